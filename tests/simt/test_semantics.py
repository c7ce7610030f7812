"""CUDA's execution semantics on the CPU, held against what an NVIDIA H200 printed for the same programs.

programs/NAME.expected is the output of `nvcc -O2 -arch=sm_90 NAME.cu` on that GPU (driver 580, CUDA 13.0).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("warp", "barrier", "atomics", "memory", "bits", "texture", "output")


class Wrapped:
    """Programs built through `r3llvm wrap`, each once a test session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "R3LLVM_STORE": str(folder / "store")}

    def r3llvm(self, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "r3llvm", *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**self.environment, **environment},
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def program(self, name: str) -> Path:
        built = self.folder / name
        if not built.exists():
            source = str(PROGRAMS / f"{name}.cu")
            self.r3llvm("wrap", "--", "clang++", "-O2", "-x", "cuda", source, "-o", str(built))
        return built


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> Wrapped:
    return Wrapped(tmp_path_factory.mktemp("simt"))


@pytest.mark.parametrize("check", ["0", "1"])
@pytest.mark.parametrize("name", NAMES)
def test_prints_what_a_gpu_prints(wrapped: Wrapped, name: str, check: str) -> None:
    done = wrapped.r3llvm("run", "--", str(wrapped.program(name)), R3LLVM_CHECK=check)
    assert done.stdout == (PROGRAMS / f"{name}.expected").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_replays_with_every_byte_equal(wrapped: Wrapped, name: str) -> None:
    recording = wrapped.folder / f"{name}.recording"
    wrapped.r3llvm("record", "-o", str(recording), "--", str(wrapped.program(name)))
    for passes in ("default<O3>", "default<O1>", "function(sroa)"):
        done = wrapped.r3llvm("replay", str(recording), "--passes", passes, "--json")
        replays = [json.loads(line) for line in done.stdout.splitlines()]
        assert replays
        assert [replay["status"] for replay in replays] == ["ok"] * len(replays)


def test_a_replay_that_takes_too_long_is_ended(wrapped: Wrapped) -> None:
    recording = wrapped.folder / "slow.recording"
    wrapped.r3llvm("record", "-o", str(recording), "--", str(wrapped.program("warp")))
    done = wrapped.r3llvm("replay", str(recording), "--launch", "0", "--timeout", "1e-6", "--json", check=False)
    assert done.returncode == 1
    assert {json.loads(line)["status"] for line in done.stdout.splitlines()} == {"run_timeout"}


# What each fault is called, and what its line on stderr must say.
FAULTS = {
    "past_end": (
        "cudaErrorIllegalAddress",
        ("past_end", "out-of-bounds store of 4 bytes", "block (0,0,0), thread (16,0,0)"),
    ),
    "far_past_end": ("cudaErrorIllegalAddress", ("past_end", "out-of-bounds", "block (0,0,0), thread (0,0,0)")),
    "past_shared": (
        "cudaErrorIllegalAddress",
        ("past_shared", "out-of-bounds shared load", "block (0,0,0), thread (31,0,0)"),
    ),
    "misaligned": ("cudaErrorMisalignedAddress", ("misaligned store of 8 bytes", "block (0,0,0), thread (5,0,0)")),
    "one_waits": ("cudaErrorLaunchTimeout", ("one_waits", "under divergence", "block (1,0,0), thread (0,0,0)")),
    "asserts": ("cudaErrorAssert", ("asserts", "assertion `n + (int)threadIdx.x < 12' failed", "thread (8,0,0)")),
    "traps": ("cudaErrorLaunchFailure", ("traps", "trap", "block (0,0,0), thread (9,0,0)")),
    "overflows": ("cudaErrorHardwareStackError", ("overflows", "local memory overflow", "thread (0,0,0)")),
    "null": ("cudaErrorIllegalAddress", ("null", "out-of-bounds", "block (0,0,0), thread (0,0,0)")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_kernel_block_and_thread(wrapped: Wrapped, fault: str) -> None:
    error, texts = FAULTS[fault]
    done = wrapped.r3llvm("run", "--", str(wrapped.program("faults")), fault, R3LLVM_CHECK="1")
    assert done.stdout.splitlines() == [error, "sticky"]
    for text in texts:
        assert text in done.stderr


@pytest.mark.parametrize("fault", ["far_past_end", "null"])
def test_wild_accesses_are_caught_without_checks(wrapped: Wrapped, fault: str) -> None:
    done = wrapped.r3llvm("run", "--", str(wrapped.program("faults")), fault, R3LLVM_CHECK="0")
    assert done.stdout.splitlines() == ["cudaErrorIllegalAddress", "sticky"]
    # Blocks run concurrently: either may be the first to fault.
    assert re.search(r"out-of-bounds access at 0x[0-9a-f]+ in block \([01],0,0\), thread \(0,0,0\)", done.stderr)


def test_a_divergent_barrier_is_named_and_passed(wrapped: Wrapped) -> None:
    """The hardware lets it pass too: a barrier counts threads, not places."""
    done = wrapped.r3llvm("run", "--", str(wrapped.program("faults")), "two_places")
    assert done.stdout.splitlines()[0] == "cudaSuccess"
    assert "divergent barrier" in done.stderr
    assert "two_places" in done.stderr
    assert "block (0,0,0), thread (1,0,0)" in done.stderr


def test_a_launch_beyond_its_bounds_is_refused(wrapped: Wrapped) -> None:
    done = wrapped.r3llvm("run", "--", str(wrapped.program("faults")), "bounded")
    assert done.stdout.splitlines() == ["cudaErrorInvalidValue", "recovered"]


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("multiplies", "uses llvm.nvvm.wmma.m16n16k16.load.a"),
        ("allocates", "allocates memory on the device (malloc)"),
    ],
)
def test_a_kernel_that_cannot_run_is_refused_by_name(wrapped: Wrapped, kernel: str, reason: str) -> None:
    done = wrapped.r3llvm("run", "--", str(wrapped.program("refused")), kernel)
    assert done.stdout == "cudaErrorNotSupported\n"
    assert done.stderr.startswith(f"r3llvm: kernel {kernel}(")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_signal_that_is_sent_ends_the_program(wrapped: Wrapped) -> None:
    done = wrapped.r3llvm("run", "--", str(wrapped.program("refused")), "raise", check=False)
    assert done.returncode == -signal.SIGSEGV
