"""Every program, by name."""

from __future__ import annotations

from tests.foreign import cccl, kernel_tuner, kmcuda, pytigre
from tests.foreign.program import Program

PROGRAMS: dict[str, Program] = {
    program.name: program for program in [*kernel_tuner.PROGRAMS, *pytigre.PROGRAMS, *cccl.PROGRAMS, *kmcuda.PROGRAMS]
}
