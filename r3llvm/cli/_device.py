"""Where a recording is replayed, and by what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from r3llvm import toolchain
from r3llvm.errors import R3Error, UsageError
from r3llvm.recording import Recording
from r3llvm.runner import Runner
from r3llvm.runner.protocol import Cache
from r3llvm.runner.verification import ToleranceMode

_Command = TypeVar("_Command", bound=Callable[..., Any])


def device_options(command: _Command) -> _Command:
    """--device, --cache and --tolerance."""
    for option in (
        click.option(
            "--tolerance",
            type=click.Choice(["auto", "exact"]),
            default="auto",
            show_default=True,
            help="How near a GPU's results must be: as near as rebuilds of the baseline, or equal.",
        ),
        click.option(
            "--cache",
            type=click.Choice(["cold", "warm"]),
            default="cold",
            show_default=True,
            help="What a launch that is timed on a GPU finds in L2: nothing of its own, or all that fits.",
        ),
        click.option(
            "--device",
            type=click.Choice(["host", "cuda", "auto"]),
            default="auto",
            show_default=True,
            help="Where kernels run: the CPU, the GPU, or the GPU for what was recorded on one, if there is one.",
        ),
    ):
        command = option(command)
    return command


def choose_device(wanted: str, recording: Recording) -> str:
    """ "host" or "cuda". R3Error: a GPU is wanted and there is none."""
    if wanted == "host" or (wanted == "auto" and recording.manifest.device == "host"):
        return "host"
    if toolchain.gpus():
        return "cuda"
    if wanted == "cuda":
        raise R3Error("no GPU: the NVIDIA driver offers none (`r3llvm doctor` shows what it found); say --device host")
    return "host"


def open_cuda_runner(
    recording: Recording, cache: Cache, tolerance: ToleranceMode, seconds: float, **options: Any
) -> Runner:
    from r3llvm.runner.cuda import CudaRunner

    return CudaRunner(recording, cache=cache, tolerance=tolerance, seconds=seconds, **options)


def only_on_a_gpu(device: str, **options: object) -> None:
    """UsageError for the first option that is set, where the kernels run on the CPU."""
    for name, value in options.items():
        if value and device == "host":
            raise UsageError(f"--{name} needs a GPU, and this recording is replayed on the CPU: say --device cuda")
