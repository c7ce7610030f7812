"""Whole builds under `r3llvm wrap`."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from r3llvm.capture.report import CAPTURED, FAILED, UNCHANGED, Report
from tests.capture.builds import WRAP, Project, needs, needs_nvcc


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project("make", tmp_path)


@needs_nvcc
@needs("make", "g++")
def test_a_recursive_make_with_nvcc_by_name_and_by_path(project: Project) -> None:
    assert project.run(*WRAP, "--", "make", "-j2") == "r3llvm: 2 units captured\n"
    assert project.sources_of("app") == ["scale.cu", "shift.cu"]
    first = project.modules()
    assert len(first) == 2
    assert str(project.folder.parent / "cache").encode() not in (project.folder / "app").read_bytes()

    # Nothing to do, then one unit for which a build has no reason, then one with a new header.
    assert "nothing was to be done" in project.run(*WRAP, "--", "make")
    (project.folder / "shift.o").unlink()
    assert project.run(*WRAP, "--", "make") == "r3llvm: 1 unit unchanged\n"
    (project.folder / "device" / "factor.h").write_text("#define FACTOR 5\n")
    (project.folder / "shift.o").unlink()
    assert project.run(*WRAP, "--", "make", "-j2") == "r3llvm: 1 unit captured, 1 unchanged\n"
    assert project.sources_of("app") == ["scale.cu", "shift.cu"]
    assert set(project.modules()) > set(first)


@needs_nvcc
@needs("make", "g++")
def test_a_unit_that_cannot_be_captured_is_named_once(project: Project) -> None:
    clang = project.folder / "clang++-22"
    clang.write_text('#!/bin/sh\necho "shift.cu:1:1: error: not today" >&2\nexit 1\n')
    clang.chmod(0o755)
    path = f"{project.folder}:{project.environment['PATH']}"
    said = project.run(*WRAP, "--", "make", "shift.o", PATH=path)
    assert said == (
        "r3llvm: warning: the module of shift.cu was not captured: shift.cu:1:1: error: not today\n"
        "r3llvm: 1 unit not captured\n"
    )
    assert (project.folder / "shift.o").exists()
    (project.folder / "shift.o").unlink()
    said = project.run(*WRAP, "--strict", "--", "make", "shift.o", PATH=path, status=2)
    assert "error: 1 of 1 modules were not captured (--strict): shift.cu\n" in said
    assert not (project.folder / "shift.o").exists()


@needs_nvcc
@needs("ccache")
def test_a_cached_object_still_has_its_image(project: Project) -> None:
    environment = {"CCACHE_DIR": str(project.folder.parent / "ccache")}
    compile_shift = "nvcc -arch=sm_90 -c shift.cu -o shift.o"
    for number, words in enumerate(
        [
            ("r3llvm-cc", "ccache", *compile_shift.split()),
            ("r3llvm-cc", "ccache", *compile_shift.split()),  # from the cache
            (*WRAP, "--", "sh", "-c", f"ccache {compile_shift}"),
            (*WRAP, "--", "ccache", *compile_shift.split()),
        ]
    ):
        store = project.folder.parent / f"store{number}"
        project.run(*words, **environment, R3LLVM_STORE=str(store))
        [module] = [path.stem for path in store.glob("modules/*.bc")]
        [image] = store.glob("images/*")
        assert image.read_text() == f"{module}\n"
    statistics = subprocess.run(
        ["ccache", "-s"], env={**project.environment, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    assert re.search(r"Hits: +3 / +4", statistics.stdout)


@needs_nvcc
def test_names_with_spaces_and_accents(project: Project) -> None:
    folder = project.folder / "sub folder é"
    folder.mkdir()
    (folder / "shift é.cu").write_text((project.folder / "shift.cu").read_text())
    script = (
        'cd "sub folder é" && "$CUDA_HOME/bin/nvcc" -arch=sm_90 -shared -o "lib é.so" "shift é.cu" -Xcompiler -fPIC'
    )
    said = project.run(*WRAP, "--toolkit", folder / "tool kit", "--", "sh", "-c", script)
    assert said == "r3llvm: 1 unit captured\n"
    assert project.sources_of("sub folder é/lib é.so") == ["shift é.cu"]


@needs_nvcc
def test_a_compiler_that_a_build_wraps_itself_counts(project: Project) -> None:
    script = f"{' '.join(WRAP)} -- nvcc -arch=sm_90 -c shift.cu"
    assert project.run(*WRAP, "--", "sh", "-c", script) == "r3llvm: 1 unit captured\n"


@needs_nvcc
def test_probes_leave_no_trace(project: Project) -> None:
    folder = project.folder / "CMakeFiles" / "CMakeScratch" / "TryCompile-1"
    folder.mkdir(parents=True)
    (folder / "main.cu").write_text("int main() {}\n")
    project.run(*WRAP, "--", "sh", "-c", f"cd {folder} && nvcc -c main.cu && nvcc --version")
    assert (folder / "main.o").exists()
    assert not project.store.root.exists()


@needs_nvcc
@pytest.mark.parametrize(
    ("script", "status"), [("exit 7", 7), ("kill -TERM $$", 128 + signal.SIGTERM), ("exec missing-program", 127)]
)
def test_the_builds_exit_status_is_ours(script: str, status: int, project: Project) -> None:
    project.run(*WRAP, "--", "sh", "-c", script, status=status)


@needs_nvcc
def test_what_is_told_wrongly(project: Project) -> None:
    assert "no command given" in project.run(*WRAP, status=2)
    assert "cannot run missing-program: No such file" in project.run(*WRAP, "--", "missing-program", status=2)
    assert "leave out the command" in project.run(*WRAP, "--compile-commands", "x.json", "--", "make", status=2)


@needs_nvcc
def test_signals_reach_the_build(project: Project) -> None:
    script = "trap 'echo stopping; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        [*WRAP, "--", "sh", "-c", script],
        env=project.environment,
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.read() == "stopping\n"
    assert process.returncode == 5


def test_a_report_counts_units_and_tells_each_thing_once(tmp_path: Path) -> None:
    report = Report(tmp_path / "report")
    assert str(report.summary()) == "no CUDA unit was compiled"
    for outcome in (CAPTURED, CAPTURED, FAILED, UNCHANGED):
        report.called()
        report.finished("a.cu", outcome)
        report.note("said twice, é")
        report.note(f"of {outcome}")
    summary = report.summary()
    assert str(summary) == "2 units captured, 1 unchanged, 1 not captured"
    assert (summary.failed, summary.n_calls) == (1, 4)
    assert list(summary.notes) == ["said twice, é", "of captured", "of not captured", "of unchanged"]
    Report(tmp_path / "gone" / "report").note("nobody reads this")
