"""One point of the space: how a recorded kernel is built."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Candidate:
    """What the builder lowers.

    pipeline: LLVM textual pass pipeline, as `opt -passes=` takes it.
    options: LLVM command-line options ("-unroll-threshold=400").
    assembler: ptxas options ("-maxrregcount=64").
    codegen_level: the code generator's -O, 0 to 3.
    """

    pipeline: str = "default<O3>"
    options: tuple[str, ...] = ()
    assembler: tuple[str, ...] = ()
    codegen_level: int = 3

    @property
    def id(self) -> str:
        """A stable hash of everything above (BLAKE2b-64, hex)."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


BASELINE = Candidate()
