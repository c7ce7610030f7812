"""Large memory before and after a launch, with and without room for a copy of it on the device."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from r3llvm.capture.toolkit import find_toolkit
from r3llvm.recording.journal import Journal
from r3llvm.toolchain import find_clang
from tests.recorder.conftest import PROGRAMS, Applications, Outcome, Recorded

SIZE = (16 << 20) + 13
CHUNK = 256 << 10


@pytest.fixture(scope="module")
def program(applications: Applications, tmp_path_factory: pytest.TempPathFactory) -> Path:
    toolkit, clang = find_toolkit(), find_clang()
    assert toolkit and clang
    path = tmp_path_factory.mktemp("large") / "large"
    include = str(toolkit.root / "include")
    command: list[str | Path] = [clang, "-std=c++20", "-O1", "-isystem", include, PROGRAMS / "large.cpp", "-o", path]
    subprocess.run([*command, "-pthread"], check=True)
    return path


def run(program: Path, applications: Applications, argument: str, **environment: str) -> Outcome:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("R3LLVM_", "FAKECUDA_"))}
    settings = {"KERNELS": str(applications.fakecuda.ptx), "FAKECUDA_MEMORY": str(256 << 20), "REACH": "lookup"}
    done = subprocess.run(
        [program, argument],
        env={**kept, **applications.fakecuda.environment, **settings, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def written(memory: bytes, offset: int, words: int) -> bytes:
    """The memory after the kernel write_only."""
    values = b"".join(((i * 2654435761 + 1) & 0xFFFFFFFF).to_bytes(4, "little") for i in range(words))
    return memory[:offset] + values + memory[offset + 4 * words :]


@pytest.mark.parametrize("room", ["plenty", "short"])
def test_every_byte_before_and_after(program: Path, applications: Applications, tmp_path: Path, room: str) -> None:
    folder, log = tmp_path / "recording", tmp_path / "launches"
    (folder / "chunks").mkdir(parents=True)
    plain = run(program, applications, room)
    recorder = {"LD_PRELOAD": str(applications.library), "R3LLVM_RECORD": str(folder), "FAKECUDA_LOG": str(log)}
    outcome = run(program, applications, room, **recorder)
    assert (plain.status, plain.errors) == (0, "")
    assert dataclasses.astuple(outcome) == dataclasses.astuple(plain)
    assert ("r3_changed_chunks" in log.read_text()) == (room == "plenty")  # it is compared where there is a copy

    recorded = Recorded(plain, outcome, folder, False, Journal.read(folder / "journal.jsonl"))
    memory = bytes((i >> 12) & 0xFF for i in range(SIZE))
    writes = [((5 << 20) - 8, 4), (SIZE // 4 * 4 - 4, 1), (0, SIZE // 4)]
    assert len(recorded.launches("write_only")) == len(writes)
    for launch, (offset, words) in zip(recorded.launches("write_only"), writes, strict=True):
        (region,) = (region for region in launch.regions if region.size == SIZE)
        assert recorded.before(region) == memory
        memory = written(memory, offset, words)
        assert recorded.after(region) == memory
        changed = [before != after for before, after in zip(region.prologue, region.epilogue, strict=True)]
        first, last = offset // CHUNK, (offset + 4 * words - 1) // CHUNK
        assert changed == [first <= chunk <= last for chunk in range(len(changed))]
