"""What the commands' output has in common."""

from __future__ import annotations

import math
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from r3llvm.recording import demangle


class Seconds(click.FloatRange):
    """An option's type: more than no time, at most some eleven days."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True, max=1e6)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return seconds


def print_table(table: Table, stderr: bool = False) -> None:
    """Prints to stdout or stderr; a pipe gets as much width as the table asks for."""
    width = None if Console(stderr=stderr).is_terminal else 200
    # Names as they are: f[abi:cxx11]() is no markup.
    Console(highlight=False, markup=False, emoji=False, width=width, stderr=stderr).print(table)


def short_name(kernel: str) -> str:
    """A kernel's C++ name without its parameter list."""
    name = demangle(kernel)
    depth = 0
    for position, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and not name.startswith("(anonymous namespace)", position):
            name = name[:position]
            break
    return name.removeprefix("void ")


def count(number: int, thing: str) -> str:
    """`1 launch`, `2 launches`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}{'es' if thing.endswith(('ch', 's')) else 's'}"


def size(n_bytes: int) -> str:
    """A size for people."""
    if n_bytes < 10_000:
        return f"{n_bytes} B"
    return f"{n_bytes / 2**10:.0f} KiB" if n_bytes < 10 * 2**20 else f"{n_bytes / 2**20:.0f} MiB"


def duration(seconds: float) -> str:
    """A time for people: 12.34 µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} µs"


def dimensions(extent: tuple[int, int, int]) -> str:
    """A grid or block, without trailing ones."""
    x, y, z = extent
    return f"{x}x{y}x{z}" if z > 1 else f"{x}x{y}" if y > 1 else f"{x}"
