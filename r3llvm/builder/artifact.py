"""What the builder makes of a candidate."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class BuildStatus(str, enum.Enum):
    """How a build ended; every status but OK is a failed trial with a stored reproducer."""

    OK = "ok"
    PARSE_ERROR = "parse_error"  # LLVM's pipeline parser refused it
    PASS_CRASH = "pass_crash"  # a pass aborted, crashed or exited
    CODEGEN_CRASH = "codegen_crash"
    TIMEOUT = "build_timeout"
    MEMORY = "build_memory"
    ASSEMBLER_ERROR = "assembler_error"


@dataclass(frozen=True)
class Resources:
    """What ptxas reports for the kernel; bytes except registers and barriers."""

    registers: int = 0
    shared: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    constant: int = 0
    barriers: int = 0


@dataclass(frozen=True)
class Artifact:
    """bitcode: the optimised device module; ptx: text; cubin: ELF. Empty unless status is OK."""

    candidate: str
    status: BuildStatus
    message: str = ""
    bitcode: bytes = b""
    ptx: bytes = b""
    ptx_hash: str = ""
    cubin: bytes = b""
    resources: Resources = field(default_factory=Resources)
    seconds: float = 0.0
    reproducer: str = ""  # path of the stored reproducer, for a failure
