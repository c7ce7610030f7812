"""`r3llvm wrap`: build as told, and store each translation unit's module."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

import click

from r3llvm.capture import default_store
from r3llvm.capture.compilers import Kind, kind_of
from r3llvm.capture.launchers import prepare
from r3llvm.capture.launchers import wrap as wrap_command
from r3llvm.capture.report import Summary
from r3llvm.capture.settings import DEFAULT_ARCH, DEVICES, Settings
from r3llvm.errors import R3Error, UsageError
from r3llvm.toolchain import find_llvm_tool


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), help="Where modules go. [$R3LLVM_STORE]")
@click.option("--arch", default=DEFAULT_ARCH, show_default=True, help="GPU architecture, where the command names none.")
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="auto",
    show_default=True,
    help="Where the program will run: decides which CUDA runtime it is linked with.",
)
@click.option("--strict", is_flag=True, help="A module that could not be captured fails its compilation.")
@click.option(
    "--toolkit",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Make DIR a stand-in for the CUDA toolkit, for builds that call nvcc by its path.",
)
@click.option(
    "--compile-commands",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Capture the CUDA units of a compile_commands.json, and build nothing.",
)
@click.argument("words", metavar="[COMMAND…]", nargs=-1, type=click.UNPROCESSED)
def command(
    store: Path | None,
    arch: str,
    device: str,
    strict: bool,
    toolkit: Path | None,
    compile_commands: Path | None,
    words: tuple[str, ...],
) -> int:
    """Run COMMAND, a build or one compiler, and store the module of each CUDA source that it compiles.

    \b
    r3llvm wrap -- make -j8
    r3llvm wrap -- nvcc -arch=sm_90 app.cu -o app
    r3llvm wrap --compile-commands build/compile_commands.json
    """
    # The report is that of a wrapped build that this command is a part of.
    report = Settings.of(os.environ).report
    settings = Settings((store or default_store()).absolute(), arch, device, strict, report)
    if compile_commands is not None:
        if words or toolkit:
            raise UsageError("--compile-commands builds nothing: leave out the command and --toolkit")
        return _capture_database(compile_commands, settings)
    if not words and toolkit is None:
        raise UsageError("no command given: say `r3llvm wrap -- make`, or `r3llvm wrap -- nvcc -c app.cu`")
    if toolkit is None and kind_of(_find(words[0])) is not Kind.OTHER:
        return wrap_command(prepare((_find(words[0]), *words[1:])), settings)
    return _build(words, settings, toolkit)


def _build(words: tuple[str, ...], settings: Settings, toolkit: Path | None) -> int:
    from r3llvm.capture import build, shims, standin

    standin.strip(os.environ)  # of a wrapped build that this one is a part of
    folder = shims.make(settings.device, toolkit, settings.environment if toolkit else None)
    if not words:
        click.echo(
            f"r3llvm: {folder} stands in for the CUDA toolkit: builds that take it for CUDA_HOME, "
            f"or {folder}/bin/nvcc for nvcc, are captured",
            err=True,
        )
        return 0
    status, summary = build.build(words, settings, folder)
    _tell(summary)
    if not (summary.n_calls or summary.outcomes or status):
        click.echo(
            "r3llvm: nothing was to be done, or the build calls its compilers by their paths: "
            "configure it under `r3llvm wrap` too, or see --toolkit",
            err=True,
        )
    return status


def _capture_database(path: Path, settings: Settings) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from r3llvm.capture import database

    entries = database.read(path)
    console = Console(stderr=True)
    columns = (TextColumn("capturing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=len(entries))
        summary = database.capture(entries, settings, functools.partial(bar.advance, task))
    _tell(summary)
    if not summary.outcomes:
        raise R3Error(f"{path} has no unit that nvcc or clang compiles as CUDA")
    if settings.strict and summary.failed:
        raise R3Error(f"{summary.failed} of {summary.outcomes.total()} units were not captured (--strict)")
    return 0


def _tell(summary: Summary) -> None:
    for line in summary.notes:
        click.echo(f"r3llvm: {line}", err=True)
    click.echo(f"r3llvm: {summary}", err=True)


def _find(program: str) -> str:
    """Distributions install clang++ as clang++-22: a plain name that is not on PATH means that one."""
    if program in ("clang", "clang++") and not shutil.which(program) and (found := find_llvm_tool(program)):
        return str(found)
    return program
