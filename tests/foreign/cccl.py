"""Our own programs that use Thrust and CUB, from nvidia-cuda-cccl or the toolkit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.foreign.program import HERE, Case, Program, Tools


@dataclass(frozen=True)
class Cccl(Program):
    """One of programs/*.cu: it checks itself and prints PASS."""

    name: str

    def build(self, tools: Tools) -> list[str]:
        program = tools.folder / self.name
        tools.wrap("-O2", "-std=c++17", "-w", "-x", "cuda", HERE / "programs" / f"{self.name}.cu", "-o", program)
        return [str(program)]

    def cases(self) -> Sequence[Case]:
        # Small inputs take the single-tile sort, large ones the onesweep sort and several tiles of the scan.
        return [Case(f"n{n}", [str(n)], _nothing, _passed) for n in (1000, 30000)]


def _nothing(folder: Path) -> None:
    pass


def _passed(folder: Path, output: str) -> None:
    assert output.startswith("PASS "), output


PROGRAMS = [Cccl("thrust_reduce_by_key"), Cccl("cub_sort_scan")]
