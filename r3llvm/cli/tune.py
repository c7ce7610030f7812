"""`r3llvm tune`: search for the pass sequence that makes a recorded kernel cheapest."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import click

from r3llvm.builder import Builder, BuildStatus
from r3llvm.cli._console import Seconds, print_table, short_name
from r3llvm.cli._device import choose_device, device_options, open_cuda_runner
from r3llvm.cli._progress import SearchProgress
from r3llvm.database import Database, Session
from r3llvm.errors import R3Error, UsageError
from r3llvm.files import content_hash
from r3llvm.recording import Launch, Recording
from r3llvm.recording.source import MANIFEST
from r3llvm.report import Summary, summarize, tables
from r3llvm.runner import Runner
from r3llvm.runner.baseline import binary_of
from r3llvm.runner.protocol import Cache
from r3llvm.runner.sanitizer import TOOLS, Report, find_sanitizer, sanitize
from r3llvm.runner.verification import ToleranceMode
from r3llvm.search import (
    Evaluator,
    Settings,
    Subject,
    Tuner,
    begin,
    best_trial,
    candidate_of,
    create_strategy,
    resume,
)
from r3llvm.space import BASELINE, Candidate, PipelineSpace


@click.command()
@click.option("--budget", type=click.IntRange(1, 10**9), help="Trials, the baseline not among them. [200]")
@click.option("--kernel", "kernels", metavar="REGEX", help="The kernel whose mangled or C++ name this is found in.")
@click.option("--all-kernels", is_flag=True, help="Tune each kernel that matches, one after the other.")
@click.option("--launch", "launches", type=int, multiple=True, metavar="N", help="Launches to tune for. [all recorded]")
@click.option("--workers", type=click.IntRange(1, 1024), help="Trials at a time. [one per core]")
@click.option("--strategy", metavar="NAME", help="nevergrad[:OPTIMIZER], random or file:PATH. [nevergrad]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), metavar="N",
              help="With one worker, the same seed gives the same trials. [0]")  # fmt: skip
@click.option("--length", type=click.IntRange(1, 10_000), help="Passes in a sequence, at most. [24]")
@click.option("--aggressive/--no-aggressive", default=None, help="Also use passes with a history of miscompiles.")
@device_options
@click.option("--timeout", type=Seconds(), default=30.0, metavar="S", show_default=True,
              help="Seconds that one build, and one replay, may take.")  # fmt: skip
@click.option("--memory", type=click.IntRange(1, 1 << 46), default=4 << 30, metavar="BYTES", show_default="4 GiB",
              help="Memory that one build, and one replay, may take.")  # fmt: skip
@click.option("--resume", "resuming", is_flag=True, help="Go on with the kernel's latest session.")
@click.option("--database", type=click.Path(dir_okay=False, path_type=Path), help="[RECORDING/trials.sqlite]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a kernel and line, instead of tables.")
@click.argument("recording", type=click.Path(path_type=Path))
def command(
    recording: Path,
    budget: int | None,
    kernels: str | None,
    all_kernels: bool,
    launches: tuple[int, ...],
    workers: int | None,
    strategy: str | None,
    seed: int | None,
    length: int | None,
    aggressive: bool | None,
    device: str,
    cache: Cache,
    tolerance: ToleranceMode,
    timeout: float,
    memory: int,
    resuming: bool,
    database: Path | None,
    as_json: bool,
) -> int:
    """Search for the pass sequence that makes a kernel of RECORDING cheapest.

    Each candidate is built, replayed on the recorded memory, and counts only when its results are the recorded ones.
    The cost is the median time of a launch on a GPU; on the CPU it is modelled cycles: a figure to compare variants by,
    not a time. Ctrl-C ends after the trials in flight; --resume goes on from there.
    """
    opened = Recording.open(recording)
    settings = Settings(launches or None, strategy, seed, budget, length, aggressive)
    groups = _chosen(opened, kernels, all_kernels, launches)
    path = database or database_path(recording)
    status = 0
    where = choose_device(device, opened)
    conditions: dict[str, str] = {} if where == "host" else {"cache": cache, "tolerance": tolerance}
    with ExitStack() as stack:
        store = stack.enter_context(Database(path, create=True))
        runner = stack.enter_context(open_runner(opened, where, timeout, memory, cache, tolerance))
        stop = stack.enter_context(_stop_on_signal())
        for chosen in groups:
            try:
                subject = _subject(opened, chosen, runner.device, conditions)
                builder = open_builder(opened, chosen[0], runner, timeout, memory, path.parent / "failures")
                threads = workers or os.cpu_count() or 1
                if resuming:
                    session, space = resume(store, subject, settings, threads)
                else:
                    session, space = begin(subject, settings, threads)
                wanted = [launch for launch in chosen if launch.index in session.launches]
                summary = _tune(str(recording), store, session, space, Evaluator(builder, runner, wanted), stop)
                if where == "cuda" and summary.confirmed:
                    summary = summary.model_copy(update={"sanitizer": _sanitized(opened, builder, wanted[0], summary)})
            except UsageError:
                raise
            except R3Error as error:
                if len(groups) == 1:
                    raise
                click.echo(f"r3llvm: error: {short_name(chosen[0].kernel)}: {error}", err=True)
                status = 1
                continue
            _show(summary, as_json)
            if any(finding.startswith("error: ") for finding in summary.sanitizer):
                click.echo(
                    "r3llvm: error: compute-sanitizer finds fault with the best and not with the baseline", err=True
                )
                status = 1
            if summary.confirmed is False:
                click.echo("r3llvm: error: the best, built and replayed again, did not reproduce its cost", err=True)
                status = 1
            if stop.is_set():
                click.echo("r3llvm: interrupted; every finished trial is kept, --resume goes on", err=True)
                return 130
    return status


def database_path(recording: Path) -> Path:
    """Where a recording's trials lie when nothing else is said."""
    return recording / "trials.sqlite" if recording.is_dir() else recording.with_name(f"{recording.name}.trials.sqlite")


def open_runner(
    recording: Recording, device: str, seconds: float, memory_bytes: int, cache: Cache, tolerance: ToleranceMode
) -> Runner:
    from r3llvm.runner.host import HostRunner

    if device == "host":
        return HostRunner(recording, workers=1, seconds=seconds, memory_bytes=memory_bytes)
    return open_cuda_runner(recording, cache, tolerance, seconds)


def open_builder(
    recording: Recording, launch: Launch, runner: Runner, seconds: float, memory_bytes: int, failures: Path
) -> Builder:
    arch = runner.arch(recording.describe_module(recording.module_of(launch)).arch)
    return Builder.of(
        recording,
        launch,
        arch,
        seconds=seconds,
        memory_bytes=memory_bytes,
        reproducers=failures,
    )


def _chosen(
    recording: Recording, kernels: str | None, all_kernels: bool, wanted: tuple[int, ...]
) -> list[list[Launch]]:
    """The launches of each kernel to tune: of one module, that of the first wanted launch.

    UsageError: several match and not all of them are wanted.
    """
    groups: dict[str, list[Launch]] = {}
    for launch in recording.launches(kernels):
        groups.setdefault(launch.kernel, []).append(launch)
    if not groups:
        raise R3Error(f"{recording.path} holds no launches, so there is nothing to tune; record some")
    if len(groups) > 1 and not all_kernels:
        names = ", ".join(short_name(kernel) for kernel in groups)
        raise UsageError(f"{len(groups)} kernels match: {names}; name one with --kernel, or say --all-kernels")
    chosen = []
    for kernel, launches in groups.items():
        module = next((launch.module for launch in launches if launch.index in wanted), launches[0].module)
        foreign = [launch.index for launch in launches if launch.module != module]
        chosen.append([launch for launch in launches if launch.module == module])
        if foreign and not wanted:
            click.echo(
                f"r3llvm: {short_name(kernel)}: launches {foreign} left out, for they run another module's kernel; "
                "--launch names one",
                err=True,
            )
    return chosen


def _subject(recording: Recording, launches: list[Launch], device: str, conditions: dict[str, str]) -> Subject:
    return Subject(
        recording=content_hash(recording.source.read(MANIFEST)),
        kernel=launches[0].kernel,
        launches=tuple(launch.index for launch in launches),
        device=device,
        llvm=llvm_version(),
        conditions=conditions,
    )


def llvm_version() -> str:
    try:
        from r3llvm import _native
    except ImportError as error:
        raise R3Error(f"r3llvm's extension is not built ({error}): run `pip install .` in its folder") from error
    return _native.LLVM_VERSION


def _tune(
    recording: str,
    database: Database,
    session: Session,
    space: PipelineSpace,
    evaluator: Evaluator,
    stop: threading.Event,
) -> Summary:
    strategy = create_strategy(session.strategy, space, session.seed, session.budget, session.workers)
    with SearchProgress(short_name(session.kernel), session.budget) as progress:
        progress.known(database.trials(session))
        tuner = Tuner(database, session, strategy, evaluator, progress.trial, stop)
        trials = tuner.run()
        best = best_trial(trials)
        confirmation = tuner.confirm(best) if best and not stop.is_set() else None
    return summarize(recording, session, trials, confirmation)


def _sanitized(recording: Recording, builder: Builder, launch: Launch, summary: Summary) -> list[str]:
    """What compute-sanitizer finds in the best, where it is installed. A finding that the baseline has too is no error
    of ours.
    """
    if find_sanitizer() is None or summary.best is None:
        return ["not run: compute-sanitizer is not installed"]

    def reports(candidate: Candidate, tools: tuple[str, ...]) -> list[Report]:
        artifact = builder.build(candidate)
        if artifact.status is not BuildStatus.OK:
            return [Report("build", problem=artifact.message)]
        return sanitize(recording, launch, binary_of(artifact, launch), tools=tools)

    lines = []
    for report in reports(candidate_of(summary.best.candidate), TOOLS):
        if not report.findings:
            lines.append(str(report))
        elif any(baseline.findings for baseline in reports(BASELINE, (report.tool,))):
            lines.append(f"{report}, as in the baseline")
        else:
            lines.append(f"error: {report}")
    return lines


def _show(summary: Summary, as_json: bool) -> None:
    if as_json:
        click.echo(summary.model_dump_json())
        return
    for table in tables(summary, short_name(summary.kernel)):
        print_table(table)


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C (or SIGTERM) sets; the second one ends the program at once."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            print("r3llvm: ended; every finished trial is kept, --resume goes on", file=sys.stderr)
            os._exit(128 + number)  # threads in native code would be waited for
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
