"""`r3llvm wrap`: build as told, and store each translation unit's module."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from r3llvm.capture import Store, Wrap
from r3llvm.toolchain import find_llvm_tool


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), help="Where modules go. [$R3LLVM_STORE]")
@click.option("--arch", default="sm_90", show_default=True, help="GPU architecture, where the command names none.")
@click.option(
    "--device",
    type=click.Choice(["host", "cuda", "auto"]),
    default="auto",
    show_default=True,
    help="Where the program will run: decides which CUDA runtime it is linked with.",
)
@click.option("--strict", is_flag=True, help="Fail when a module could not be captured.")
@click.argument("compiler", nargs=-1, required=True, type=click.UNPROCESSED)
def command(store: Path | None, arch: str, device: str, strict: bool, compiler: tuple[str, ...]) -> int:
    """Run COMPILER as told, and store the module of each CUDA source.

    \b
    r3llvm wrap -- clang++ -x cuda app.cu -o app
    make CXX='r3llvm wrap -- clang++'
    """
    program, *arguments = compiler
    return Wrap(Store(store), arch, device, strict, find_llvm_tool("clang++")).run((_find(program), *arguments))


def _find(program: str) -> str:
    """Distributions install clang++ as clang++-22: a plain name that is not on PATH means that one."""
    if program in ("clang", "clang++") and not shutil.which(program) and (found := find_llvm_tool(program)):
        return str(found)
    return program
