"""The application's memory, as the application sees it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fakecuda import FakeCuda
from tests.recorder.building import build

ARENA = range(0x300000000000, 0x300000000000 + 2**40)


@pytest.fixture(scope="module")
def program(fakecuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("allocations.cpp", tmp_path_factory.mktemp("allocations") / "allocations", "-pthread")


def run(program: Path, fakecuda: FakeCuda, which: str, **environment: str) -> list[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("R3LLVM_", "FAKECUDA_"))}
    settings = {**kept, **fakecuda.environment, "FAKECUDA_MEMORY": str(512 << 20), **environment}
    done = subprocess.run([program, which], env=settings, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture
def recorder(library: Path, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "recording" / "chunks").mkdir(parents=True)
    return {"LD_PRELOAD": str(library), "R3LLVM_RECORD": str(tmp_path / "recording")}


def test_memory_that_many_threads_take_and_give_back(
    program: Path, fakecuda: FakeCuda, recorder: dict[str, str]
) -> None:
    assert run(program, fakecuda, "churn", **recorder) == ["all given back"]


def test_what_the_driver_tells_of_a_pointer(program: Path, fakecuda: FakeCuda, recorder: dict[str, str]) -> None:
    plain = run(program, fakecuda, "attributes")
    assert "small 0 1000 0 1000 1 2 0" in plain and "buffers told apart: 1" in plain
    assert run(program, fakecuda, "attributes", **recorder) == plain


def test_addresses_are_the_same_in_the_next_process(
    program: Path, fakecuda: FakeCuda, recorder: dict[str, str]
) -> None:
    addresses = run(program, fakecuda, "addresses", **recorder)
    assert run(program, fakecuda, "addresses", **recorder) == addresses
    assert all(int(address, 16) in ARENA for address in addresses)
    freed_large, freed_small = addresses[1], addresses[3]
    assert addresses[7:9] == [freed_large, freed_small]  # the lowest that fits
