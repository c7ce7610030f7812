"""`r3llvm replay`: build a recorded kernel anew, run it on its recorded memory, compare every byte."""

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
from r3llvm.cli._console import Seconds, print_table, short_name
from r3llvm.errors import R3Error, UsageError
from r3llvm.recording import Launch, Recording
from r3llvm.runner import Measurement, Runner, RunStatus
from r3llvm.space.candidate import Candidate


@dataclass(frozen=True)
class Replay:
    """One launch replayed; no measurement when the build failed."""

    launch: Launch
    artifact: Artifact
    measurement: Measurement | None

    @property
    def status(self) -> str:
        return self.measurement.status.value if self.measurement else self.artifact.status.value

    @property
    def good(self) -> bool:
        return self.measurement is not None and self.measurement.status is RunStatus.OK

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
            yield f"{self.artifact.message}" + (
                f" (reproducer: {self.artifact.reproducer})" if self.artifact.reproducer else ""
            )
            return
        for difference in self.measurement.differences:
            yield f"{difference.region}: {difference.bytes} bytes differ, the first at offset {difference.first_offset}"
        if not self.good and self.measurement.message:
            yield self.measurement.message
        if self.measurement.warning:
            yield f"warning: {self.measurement.warning}"

    def as_json(self, with_cost: bool) -> dict[str, Any]:
        entry = {
            "kernel": self.launch.kernel,
            "launch": self.launch.index,
            "status": self.status,
            "bytes_compared": self.bytes_compared,
            "mismatches": self.mismatches,
            "remarks": list(self.remarks()),
        }
        if with_cost:
            entry["modelled_cycles"] = self.measurement.cost if self.measurement else None
            entry["counts"] = self.measurement.counts if self.measurement else {}
        return entry


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
@click.option("--workers", type=click.IntRange(0, 1024), default=0, help="Threads that run blocks. [one per core]")
@click.option(
    "--timeout", type=Seconds(), default=60.0, metavar="S", show_default=True, help="Seconds a replay may take."
)
@click.option("--no-cost", is_flag=True, help="Leave out the modelled cycles.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a launch and line.")
@click.argument("recording", type=click.Path(path_type=Path))
def command(
    recording: Path,
    kernels: str | None,
    index: int | None,
    passes: str,
    settings: tuple[str, ...],
    workers: int,
    timeout: float,
    no_cost: bool,
    as_json: bool,
) -> int:
    """Rebuild each kernel of RECORDING, run it on the CPU on the recorded memory, and compare every recorded byte.

    The cost is modelled cycles: a figure to compare variants by, not a time.
    """
    opened = Recording.open(recording)
    launches = [launch for launch in opened.launches(kernels) if index in (None, launch.index)]
    if not launches:
        which = "launches" if index is None else f"launch {index}"
        raise UsageError(f"no {which} in {recording}; `r3llvm show {recording}` lists what it holds")
    chosen = candidate(passes, settings)
    table = Table(
        "kernel", "launch", "status", "bytes compared", "mismatches", *([] if no_cost else ["modelled cycles"])
    )
    failures = 0
    remarks: dict[str, None] = {}
    with _runner(opened, workers, timeout) as runner, _at_once_on_ctrl_c():
        for number, replay in enumerate(_replays(opened, launches, chosen, runner), 1):
            failures += not replay.good
            _say(f"replayed {number} of {len(launches)}" if number < len(launches) else "")
            if as_json:
                click.echo(json.dumps(replay.as_json(not no_cost)))
                continue
            cost = replay.measurement.cost if replay.measurement else None
            table.add_row(
                short_name(replay.launch.kernel),
                str(replay.launch.index),
                replay.status,
                f"{replay.bytes_compared:,}",
                f"{replay.mismatches:,}",
                *([] if no_cost else ["" if cost is None else f"{cost:,.0f}"]),
            )
            name = f"{short_name(replay.launch.kernel)}, launch {replay.launch.index}"
            remarks |= dict.fromkeys(f"{name}: {remark}" for remark in replay.remarks())
    if not as_json:
        print_table(table)
        for remark in remarks:
            click.echo(f"r3llvm: {remark}", err=True)
        click.echo(f"{len(launches) - failures} of {len(launches)} launches replayed with every recorded byte equal")
    return int(failures > 0)


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


def _replays(recording: Recording, launches: list[Launch], candidate: Candidate, runner: Runner) -> Iterator[Replay]:
    """Builds each kernel once."""
    from r3llvm.builder import Builder

    artifacts: dict[tuple[str, str], Artifact] = {}
    for launch in launches:
        module = recording.module_of(launch)
        key = (module, launch.kernel)
        if key not in artifacts:
            arch = recording.describe_module(module).arch
            artifacts[key] = Builder(recording.module(module), launch.kernel, arch).build(candidate)
            if artifacts[key].status is BuildStatus.ASSEMBLER_ERROR and "nknown option" in artifacts[key].message:
                raise UsageError(
                    f"--set: the assembler refused {', '.join(candidate.assembler)}: {artifacts[key].message}"
                )
        artifact = artifacts[key]
        measured = runner.run(artifact, launch) if artifact.status is BuildStatus.OK else None
        yield Replay(launch, artifact, measured)


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


def _runner(recording: Recording, workers: int, timeout: float) -> Runner:
    from r3llvm.runner.host import HostRunner

    return HostRunner(recording, workers=workers, seconds=timeout)


def _native() -> Any:
    try:
        from r3llvm import _native
    except ImportError as error:
        raise R3Error(f"r3llvm's extension is not built ({error}): run `pip install .` in its folder") from error
    _native.init()
    return _native
