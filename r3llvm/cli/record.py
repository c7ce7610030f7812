"""`r3llvm record`: run an application and keep what its kernels saw."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import click
from rich.table import Table

from r3llvm.capture import Store
from r3llvm.cli._console import count, duration, print_table, short_name, size
from r3llvm.cli._notes import graph_note, notes
from r3llvm.errors import UsageError
from r3llvm.recording import Profile, Recorder, Recording, application_device
from r3llvm.recording.profile import pattern_of

_LONGEST_PATTERN = 60_000  # what the recorder's regular expressions (std::regex) and an environment variable can hold


def _bytes(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """A number of bytes, with K, M, G or T for powers of 1024."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)(?:i?B)?", value, re.IGNORECASE | re.ASCII)
    if not match or not int(match[1]):
        raise click.BadParameter(f"{value!r} is no size: say 500M or 8G")
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")


def _numbers(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Numbers from 0, separated by commas."""
    if value is None:
        return ()
    if not re.fullmatch(r"\d{1,15}(,\d{1,15})*", value, re.ASCII):
        raise click.BadParameter(f"{value!r} is no list of numbers: say 0,5,9")
    return tuple(sorted({int(number) for number in value.split(",")}))


def _ranks(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The same, or `all`."""
    if value in (None, "all"):
        return value
    return ",".join(map(str, _numbers(context, parameter, value)))


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder to make: recordings/NAME.")
@click.option("--kernels", metavar="REGEX", help="Record kernels whose mangled or C++ name this is found in. [all]")
@click.option(
    "--max-launches", type=click.IntRange(1, 2**32 - 1), metavar="N", help="Record at most N launches of a kernel. [4]"
)
@click.option(
    "--launches", callback=_numbers, metavar="N,…", help="Only a kernel's launches with these numbers, from 0."
)
@click.option("--every", type=click.IntRange(1, 2**32 - 1), metavar="N", help="Only every Nth launch of a kernel.")
@click.option(
    "--hottest",
    type=click.IntRange(1, 1000),
    metavar="K",
    help="Run the application twice: measure first, then record the K kernels with the most GPU time. (GPU)",
)
@click.option("--profile", is_flag=True, help="Only measure: rank the kernels by GPU time, record nothing. (GPU)")
@click.option(
    "--scope",
    type=click.Choice(["reachable", "all"]),
    help="Memory that pointers lead to from the arguments, or all that is allocated. (GPU) [reachable]",
)
@click.option(
    "--max-bytes", callback=_bytes, metavar="SIZE", help="Host memory that snapshots may wait in: 500M, 8G. (GPU) [4G]"
)
@click.option("--ranks", callback=_ranks, metavar="LIST", help="MPI ranks that may record: 0,2 or all. (GPU) [0]")
@click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), help="Where its modules are. [$R3LLVM_STORE]"
)
@click.option(
    "--device",
    type=click.Choice(["host", "cuda", "auto"]),
    default="auto",
    help="Where it runs. [cuda where there is a GPU, else host]",
)
@click.option("--force", is_flag=True, help="Replace the recording of that name, and the trials in it.")
@click.option("--allow-failure", is_flag=True, help="Keep what was recorded when the application fails.")
@click.argument("application", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    output: Path | None,
    kernels: str | None,
    max_launches: int | None,
    launches: tuple[int, ...],
    every: int | None,
    hottest: int | None,
    profile: bool,
    scope: str | None,
    max_bytes: int | None,
    ranks: str | None,
    store: Path | None,
    device: str,
    force: bool,
    allow_failure: bool,
    application: tuple[str, ...],
) -> None:
    """Run APPLICATION and record each kernel's launches: arguments, geometry, memory before and after.

    \b
    r3llvm record -o recordings/app --max-launches 3 -- ./app args
    r3llvm record -o recordings/train --hottest 5 -- python train.py
    """
    recorder = Recorder(
        *(Store(store), kernels, max_launches, allow_failure, application_device(application, device)),
        launches=launches,
        every=every,
        scope=scope,
        max_bytes=max_bytes,
        ranks=ranks,
    )
    if recorder.device == "host":
        _refuse_gpu_options(click.get_current_context())
    if profile:
        if output is not None or hottest is not None:
            raise UsageError("--profile records nothing: leave out -o and --hottest")
        print_table(_ranking(recorder.profile(application).matching(kernels)))
        return
    if output is None:
        raise UsageError("name the folder to make: -o recordings/NAME")
    if hottest is not None:
        recorder.check_output(output, force)
        recorder = dataclasses.replace(recorder, kernels=_hottest(recorder, application, hottest))
    recording = recorder.record(application, output, force)
    _say(_summary(recording, output))
    for note in notes(recording.manifest):
        _say(note)


def _refuse_gpu_options(context: click.Context) -> None:
    for name in ("hottest", "profile", "scope", "max_bytes", "ranks"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise UsageError(f"--{name.replace('_', '-')} works on a GPU only: leave it out, or say --device cuda")


def _hottest(recorder: Recorder, application: tuple[str, ...], n: int) -> str:
    """Measures, shows the ranking, and gives the regular expression of the first n kernels."""
    profile = recorder.profile(application).matching(recorder.kernels)
    if not profile.kernels:
        raise UsageError(f"no kernel matches {recorder.kernels!r}; `r3llvm record --profile` lists what is launched")
    print_table(_ranking(profile, n), stderr=True)
    pattern = pattern_of(kernel.kernel for kernel in profile.kernels[:n])
    if len(pattern) > _LONGEST_PATTERN:
        raise UsageError(f"the names of {n} kernels are {len(pattern):,} characters long: say a smaller --hottest")
    return pattern


def _ranking(profile: Profile, n_recorded: int = 0) -> Table:
    table = Table("", "kernel", "launches", "GPU time", "share", "median launch")
    for number, kernel in enumerate(profile.kernels, 1):
        table.add_row(
            f"{number}{'*' if number <= n_recorded else ''}",
            short_name(kernel.kernel),
            f"{kernel.launches:,}",
            duration(kernel.seconds),
            f"{kernel.seconds / profile.seconds:.1%}" if profile.seconds else "",
            duration(kernel.median_seconds),
        )
    graphs = graph_note(profile.graph_launches, profile.captured_launches, "measured")
    if n_recorded or graphs:
        table.caption = "; ".join(filter(None, ["*: recorded in the run that follows" if n_recorded else "", graphs]))
        table.caption_justify = "left"
    return table


def _summary(recording: Recording, output: Path) -> str:
    manifest = recording.manifest
    what = f"{count(len(manifest.launches), 'launch')} of {count(len(recording.kernels), 'kernel')}"
    where = "" if manifest.device == "host" else f" on {manifest.device}"
    return f"recorded {what}{where} in {output} ({size(recording.stored_bytes())})"


def _say(line: str) -> None:
    click.echo(f"r3llvm: {line}", err=True)
