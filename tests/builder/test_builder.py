"""Candidate → artifact, and what is left of a failure."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest

from r3llvm.builder import Artifact, Assembler, Builder, BuildStatus, Resources
from r3llvm.builder.assembler import parse_resources
from r3llvm.builder.builder import merged
from r3llvm.errors import R3Error
from r3llvm.space.candidate import Candidate
from tests.modules import bitcode


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(bitcode("unit"), "scale", reproducers=tmp_path / "failures")


def test_build(builder: Builder) -> None:
    artifact = builder.build(Candidate())
    assert artifact.status is BuildStatus.OK and artifact.candidate == Candidate().id
    assert artifact.bitcode and b".entry scale(" in artifact.ptx and artifact.cubin.startswith(b"\x7fELF")
    assert 0 < artifact.resources.registers < 255
    assert artifact.message == artifact.reproducer == ""


def test_the_steps_one_by_one(builder: Builder) -> None:
    compiled = builder.compile(Candidate())
    assert compiled.status is BuildStatus.OK and compiled.cubin == b"" and compiled.resources == Resources()
    assembled = builder.assemble(compiled, Candidate())
    assert assembled.ptx == compiled.ptx and assembled.ptx_hash == compiled.ptx_hash
    assert assembled.cubin and assembled.seconds > compiled.seconds


def test_builds_are_reproducible(builder: Builder) -> None:
    first, second = builder.build(Candidate()), builder.build(Candidate())
    assert (first.ptx_hash, first.cubin) == (second.ptx_hash, second.cubin)


def test_resources_of_shared_memory_and_barriers() -> None:
    resources = Builder(bitcode("unit"), "other").build(Candidate()).resources
    assert resources.shared == 256 * 4 and resources.barriers == 1


def test_the_assembler_gets_the_candidates_options(builder: Builder) -> None:
    plain, debug = builder.build(Candidate()), builder.build(Candidate(assembler=("-O0",)))
    assert plain.ptx_hash == debug.ptx_hash and plain.cubin != debug.cubin


FAILURES = [
    (Candidate("no-such-pass"), BuildStatus.PARSE_ERROR, "unknown pass name"),
    (Candidate(options=("-no-such-option",)), BuildStatus.PARSE_ERROR, "unknown LLVM option"),
    (Candidate("trigger-crash-module"), BuildStatus.PASS_CRASH, "SIGABRT"),
    (Candidate(assembler=("-no-such-option",)), BuildStatus.ASSEMBLER_ERROR, "Unknown option"),
]


@pytest.mark.parametrize(("candidate", "status", "said"), FAILURES)
def test_a_failure_is_a_status_with_a_reproducer(
    builder: Builder, candidate: Candidate, status: BuildStatus, said: str
) -> None:
    artifact = builder.build(candidate)
    assert artifact.status is status and said in artifact.message and "\n" not in artifact.message
    assert artifact.ptx == artifact.cubin == artifact.bitcode == b""
    folder = Path(artifact.reproducer)
    assert folder.name == candidate.id
    assert (folder / "message.txt").read_text() == f"{status.value}: {artifact.message}\n"
    assert (folder / "pipeline.txt").read_text() == candidate.pipeline + "\n"
    assert Candidate(**json.loads((folder / "candidate.json").read_text())).pipeline == candidate.pipeline
    assert (folder / "module.bc").read_bytes() == builder.module
    # The tools themselves fail the same way.
    run = subprocess.run([folder / "reproduce.sh"], capture_output=True, text=True)
    assert run.returncode != 0
    if status is not BuildStatus.PASS_CRASH:
        assert candidate.pipeline in run.stderr or "no-such-option" in run.stderr + run.stdout


def test_failing_again_replaces_the_reproducer(builder: Builder, tmp_path: Path) -> None:
    for _ in range(2):
        artifact = builder.build(Candidate("no-such-pass"))
    assert [folder.name for folder in (tmp_path / "failures").iterdir()] == [Path(artifact.reproducer).name]


def test_no_reproducer_without_a_folder() -> None:
    assert Builder(bitcode("unit"), "scale").build(Candidate("no-such-pass")).reproducer == ""


def test_limits() -> None:
    slow = Candidate(",".join(["default<O3>"] * 3000))
    builder = Builder(bitcode("unit"), "scale", seconds=1)
    assert builder.build(slow).status is BuildStatus.TIMEOUT


def test_threads(builder: Builder) -> None:
    candidates = [Candidate(), Candidate("default<O1>"), *(failure[0] for failure in FAILURES)]
    alone = {candidate: _essence(builder.build(candidate)) for candidate in candidates}
    wrong: list[Candidate] = []

    def work() -> None:
        wrong.extend(candidate for candidate in candidates if _essence(builder.build(candidate)) != alone[candidate])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _essence(artifact: Artifact) -> tuple[object, ...]:
    return artifact.status, artifact.message, artifact.ptx, artifact.cubin, artifact.resources


def test_a_kernel_that_is_not_there() -> None:
    with pytest.raises(R3Error, match="no kernel 'missing'; it has scale, other"):
        Builder(bitcode("unit"), "missing")


def test_an_architecture_that_llvm_does_not_know() -> None:
    with pytest.raises(R3Error, match="cannot build for sm_1234: unknown GPU architecture 'sm_1234'"):
        Builder(bitcode("unit"), "scale", "sm_1234")


def test_features_that_the_assembler_and_llvm_know() -> None:
    assert Builder(bitcode("unit"), "scale").features.startswith("+ptx")
    assert Builder(bitcode("unit"), "scale", features="").features == ""


def test_a_failed_artifact_cannot_be_assembled(builder: Builder) -> None:
    failed = builder.compile(Candidate("no-such-pass"))
    with pytest.raises(ValueError, match="was not compiled: parse_error"):
        builder.assemble(failed, Candidate("no-such-pass"))


def _fake_ptxas(folder: Path, script: str) -> Assembler:
    program = folder / "ptxas"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Assembler(program, seconds=0.5, memory_bytes=1 << 30)


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("exec sleep 60", BuildStatus.TIMEOUT, "ptxas not finished after 0.5 s"),
        ("kill -SEGV $$", BuildStatus.ASSEMBLER_ERROR, "ptxas killed by signal 11"),
        (
            "echo 'ptxas fatal   : Memory allocation failure'; exit 2",
            BuildStatus.MEMORY,
            "out of memory (limit 1024 MiB)",
        ),
        (
            "echo 'ptxas info: x'; echo 'kernel.ptx, line 7; error   : Bad'; exit 255",
            BuildStatus.ASSEMBLER_ERROR,
            "line 7",
        ),
        ("exit 0", BuildStatus.ASSEMBLER_ERROR, "ptxas wrote no cubin"),
    ],
)
def test_an_assembler_that_fails(tmp_path: Path, script: str, status: BuildStatus, said: str) -> None:
    assembled = _fake_ptxas(tmp_path, script).assemble(b"", "k", "sm_90")
    assert assembled.status is status and said in assembled.message


def test_parse_resources() -> None:
    report = """ptxas info    : 49 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 356 bytes cmem[0]
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    32 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 19 registers, used 2 barriers, 40 bytes cumulative stack size, 1024 bytes smem, 8 bytes cmem[2]
ptxas info    : Compile time = 46.134 ms
ptxas info    : Function properties for helper
    99 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads
"""
    assert parse_resources(report, "k") == Resources(
        registers=19, shared=1024, stack=40, spill_stores=12, spill_loads=16, constant=8, barriers=2
    )
    assert parse_resources(report, "other") == Resources(registers=8, constant=356)
    assert parse_resources(report, "missing") == Resources()


@pytest.mark.parametrize(
    ("defaults", "own", "expected"),
    [
        (["-a=1", "-b"], ["-a=2"], ["-b", "-a=2"]),
        (["-maxrregcount=64", "-O2"], ["-O3"], ["-maxrregcount=64", "-O3"]),
        (["-dlcm=ca"], [], ["-dlcm=ca"]),
        ([], ["--a", "-b"], ["--a", "-b"]),
    ],
)
def test_a_candidates_options_come_before_the_builds(defaults: list[str], own: list[str], expected: list[str]) -> None:
    assert merged(defaults, own) == expected
