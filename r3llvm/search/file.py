"""Candidates from a file, in its order."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from r3llvm.errors import UsageError
from r3llvm.search.strategy import Proposal, Strategy
from r3llvm.space import Candidate

_CANDIDATE = TypeAdapter(Candidate)


class FileStrategy(Strategy):
    """One JSON object a line with a candidate's fields: {"pipeline": "default<O2>", "options": [], …}.
    Blank lines are skipped.

    UsageError: the file cannot be read, or a line is no candidate.
    """

    def __init__(self, path: Path) -> None:
        self.name = f"file:{path}"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read candidates from {path}: {error}") from error
        self._proposals = iter([Proposal(_candidate(path, n, line)) for n, line in enumerate(lines, 1) if line.strip()])

    def ask(self) -> Proposal | None:
        return next(self._proposals, None)


def _candidate(path: Path, number: int, line: str) -> Candidate:
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict) or not fields.keys() <= Candidate.__dataclass_fields__.keys():
            raise ValueError(f"expected an object with some of {', '.join(Candidate.__dataclass_fields__)}")
        return _CANDIDATE.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{path}:{number}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise UsageError(f"{path}:{number}: not a candidate: {error}") from error
