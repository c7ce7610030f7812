"""`r3llvm replay`: build a recorded kernel anew, run it on its recorded memory, compare the results, and time it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from r3llvm.builder.artifact import Artifact, BuildStatus
from r3llvm.cli._console import Seconds, duration, print_table, short_name
from r3llvm.cli._device import choose_device, device_options, only_on_a_gpu, open_cuda_runner
from r3llvm.errors import R3Error, UsageError
from r3llvm.recording import Launch, Recording
from r3llvm.runner import Measurement, Runner, RunStatus
from r3llvm.runner.baseline import binary_of, image_baseline
from r3llvm.runner.cuda import CudaRunner
from r3llvm.runner.protocol import Binary, Cache
from r3llvm.runner.sanitizer import Report, require_sanitizer
from r3llvm.runner.sanitizer import sanitize as sanitize_binary
from r3llvm.runner.verification import ToleranceMode
from r3llvm.space.candidate import Candidate


@dataclass(frozen=True)
class Replay:
    """One launch replayed; no measurement when the build failed, no artifact when the recorded image ran.

    reports: what compute-sanitizer's tools found.
    """

    launch: Launch
    artifact: Artifact | None
    measurement: Measurement | None
    reports: tuple[Report, ...] = ()

    @property
    def status(self) -> str:
        if self.measurement:
            return self.measurement.status.value
        assert self.artifact is not None  # an image is not built
        return self.artifact.status.value

    @property
    def good(self) -> bool:
        ok = self.measurement is not None and self.measurement.status is RunStatus.OK
        return ok and all(report.clean for report in self.reports)

    @property
    def bytes_compared(self) -> int:
        """All recorded bytes, when the kernel came to its end."""
        ended = self.measurement is not None and self.measurement.status in (RunStatus.OK, RunStatus.MISMATCH)
        return sum(region.size for region in self.launch.regions) if ended else 0

    @property
    def mismatches(self) -> int:
        return sum(difference.bytes for difference in self.measurement.differences) if self.measurement else 0

    def remarks(self) -> Iterator[str]:
        """What there is to say beyond the table."""
        if self.measurement is None:
            if self.artifact:
                reproducer = f" (reproducer: {self.artifact.reproducer})" if self.artifact.reproducer else ""
                yield self.artifact.message + reproducer
            return
        for difference in self.measurement.differences:
            yield f"{difference.region}: {difference.bytes} bytes differ, the first at offset {difference.first_offset}"
        if self.measurement.status is not RunStatus.OK and self.measurement.message:
            yield self.measurement.message
        if self.measurement.warning:
            yield f"warning: {self.measurement.warning}"
        yield from (str(report) for report in self.reports)

    def as_json(self, device: str, with_cost: bool) -> dict[str, Any]:
        entry = {
            "kernel": self.launch.kernel,
            "launch": self.launch.index,
            "status": self.status,
            "bytes_compared": self.bytes_compared,
            "mismatches": self.mismatches,
            "remarks": list(self.remarks()),
        }
        measured = self.measurement
        if with_cost and device == "host":
            entry["modelled_cycles"] = measured.cost if measured else None
            entry["counts"] = measured.counts if measured else {}
        elif with_cost:
            entry["seconds"] = measured.cost if measured else None
            entry["spread"] = measured.spread if measured else None
            entry["times"] = measured.times if measured else ()
            entry["exact"] = measured.exact if measured else False
        if device != "host":
            entry["device"] = device
        return entry

    def cost(self) -> str:
        """For the table: modelled cycles as they are, seconds as a time with its confidence interval."""
        if self.measurement is None or self.measurement.cost is None:
            return ""
        if self.measurement.unit != "s":
            return f"{self.measurement.cost:,.0f}"
        return f"{duration(self.measurement.cost)} ± {self.measurement.spread:.1%}"


@click.command()
@click.option("--kernel", "kernels", metavar="REGEX", help="Kernels whose mangled or C++ name this is found in. [all]")
@click.option("--launch", "index", type=int, metavar="N", help="Only the launch with this number (see `r3llvm show`).")
@click.option("--passes", default="default<O3>", show_default=True, help="Pass pipeline, as opt -passes takes it.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An LLVM option (unroll-threshold=400) or one of the assembler (ptxas.maxrregcount=64).",
)
@device_options
@click.option("--repeat", type=click.IntRange(1, 10**6), metavar="N",
              help="Launches to time on a GPU. [until the median is known to 1 %]")  # fmt: skip
@click.option("--image", is_flag=True, help="Replay what the application itself ran, not a rebuild. (GPU)")
@click.option("--sanitize", is_flag=True, help="Replay under compute-sanitizer's tools too. (GPU)")
@click.option("--workers", type=click.IntRange(0, 1024), default=0,
              help="Threads that run blocks on the CPU. [one per core]")  # fmt: skip
@click.option(
    "--timeout", type=Seconds(), default=60.0, metavar="S", show_default=True, help="Seconds a replay may take."
)
@click.option("--no-cost", is_flag=True, help="Leave out the modelled cycles, or the time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a launch and line.")
@click.argument("recording", type=click.Path(path_type=Path))
def command(
    recording: Path,
    kernels: str | None,
    index: int | None,
    passes: str,
    settings: tuple[str, ...],
    device: str,
    cache: Cache,
    tolerance: ToleranceMode,
    repeat: int | None,
    image: bool,
    sanitize: bool,
    workers: int,
    timeout: float,
    no_cost: bool,
    as_json: bool,
) -> int:
    """Rebuild each kernel of RECORDING, run it on the recorded memory, and compare every recorded byte.

    On a GPU the cost is the median time of a launch, with its 95 % confidence interval, and results may differ from the
    recorded ones as far as rebuilds of the baseline do (--tolerance). On the CPU it is modelled cycles: a figure to
    compare variants by, not a time.
    """
    opened = Recording.open(recording)
    launches = [launch for launch in opened.launches(kernels) if index in (None, launch.index)]
    if not launches:
        which = "launches" if index is None else f"launch {index}"
        raise UsageError(f"no {which} in {recording}; `r3llvm show {recording}` lists what it holds")
    where = choose_device(device, opened)
    only_on_a_gpu(where, repeat=repeat, image=image, sanitize=sanitize)
    if sanitize:
        require_sanitizer()
    chosen = candidate(passes, settings)
    heading = "modelled cycles" if where == "host" else "time (median ± 95 % CI)"
    table = Table("kernel", "launch", "status", "bytes compared", "mismatches", *([] if no_cost else [heading]))
    failures = 0
    remarks: dict[str, None] = {}
    with _runner(opened, where, workers, timeout, cache, tolerance, repeat, image) as runner, _at_once_on_ctrl_c():
        name = runner.device
        for number, replay in enumerate(_replays(opened, launches, chosen, runner, image, sanitize), 1):
            failures += not replay.good
            _say(f"replayed {number} of {len(launches)}" if number < len(launches) else "")
            if as_json:
                click.echo(json.dumps(replay.as_json(name, not no_cost)))
                continue
            table.add_row(
                short_name(replay.launch.kernel),
                str(replay.launch.index),
                replay.status,
                f"{replay.bytes_compared:,}",
                f"{replay.mismatches:,}",
                *([] if no_cost else [replay.cost()]),
            )
            which = f"{short_name(replay.launch.kernel)}, launch {replay.launch.index}"
            remarks |= dict.fromkeys(f"{which}: {remark}" for remark in replay.remarks())
    if not as_json:
        print_table(table)
        for remark in remarks:
            click.echo(f"r3llvm: {remark}", err=True)
        right = "every recorded byte equal" if where == "host" else f"the recorded result on {name}"
        click.echo(f"{len(launches) - failures} of {len(launches)} launches replayed with {right}")
    return 1 if failures else 0


def candidate(passes: str, settings: tuple[str, ...]) -> Candidate:
    """The candidate that the options describe. Raises UsageError for a pass or an LLVM option that is unknown."""
    native = _native()
    options, assembler = [], []
    for setting in settings:
        name = setting.lstrip("-")
        if not name.partition("=")[0]:
            raise UsageError(f"--set {setting!r} names no option: say --set unroll-threshold=400")
        if name.startswith("ptxas."):
            assembler.append(f"-{name.removeprefix('ptxas.').lstrip('-')}")
        else:
            options.append(f"-{name}")
    try:
        native.check_pipeline(passes)
    except ValueError as error:
        raise UsageError(f"--passes {passes!r} is refused by LLVM: {error}") from error
    try:
        native.check_options(options)
    except ValueError as error:
        raise UsageError(f"--set is refused by LLVM: {error}; options of the assembler start with ptxas.") from error
    return Candidate(pipeline=passes, options=tuple(options), assembler=tuple(assembler))


def _replays(
    recording: Recording, launches: list[Launch], candidate: Candidate, runner: Runner, image: bool, sanitize: bool
) -> Iterator[Replay]:
    """Builds each kernel once. What has no module is replayed from its image, where the runner can."""
    from r3llvm.builder import Builder

    artifacts: dict[tuple[str, str], Artifact] = {}
    for launch in launches:
        if isinstance(runner, CudaRunner) and (image or launch.module is None):
            reports = _sanitize(recording, launch, image_baseline(recording, launch).binary) if sanitize else ()
            yield Replay(launch, None, runner.run_image(launch), reports)
            continue
        module = recording.module_of(launch)
        key = (module, launch.kernel)
        if key not in artifacts:
            arch = runner.arch(recording.describe_module(module).arch)
            artifacts[key] = Builder.of(recording, launch, arch).build(candidate)
            if artifacts[key].status is BuildStatus.ASSEMBLER_ERROR and "nknown option" in artifacts[key].message:
                raise UsageError(
                    f"--set: the assembler refused {', '.join(candidate.assembler)}: {artifacts[key].message}"
                )
        artifact = artifacts[key]
        if artifact.status is not BuildStatus.OK:
            yield Replay(launch, artifact, None)
            continue
        measured = runner.run(artifact, launch)
        yield Replay(
            launch, artifact, measured, _sanitize(recording, launch, binary_of(artifact, launch)) if sanitize else ()
        )


def _sanitize(recording: Recording, launch: Launch, binary: Binary) -> tuple[Report, ...]:
    return tuple(sanitize_binary(recording, launch, binary))


@contextmanager
def _at_once_on_ctrl_c() -> Iterator[None]:
    """Python would see Ctrl-C only when the replay under way ends; nothing is left half-done, so it may end us."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say(state: str) -> None:
    """Replaces the last line of a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{state}", nl=False, err=True)


def _runner(
    recording: Recording,
    device: str,
    workers: int,
    timeout: float,
    cache: Cache,
    tolerance: ToleranceMode,
    repeat: int | None,
    image: bool,
) -> Runner:
    from r3llvm.runner.host import HostRunner

    if device == "host":
        return HostRunner(recording, workers=workers, seconds=timeout)
    return open_cuda_runner(recording, cache, tolerance, timeout, repeat=repeat, image=image)


def _native() -> Any:
    try:
        from r3llvm import _native
    except ImportError as error:
        raise R3Error(f"r3llvm's extension is not built ({error}): run `pip install .` in its folder") from error
    _native.init()
    return _native
