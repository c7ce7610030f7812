"""What became of each translation unit of a build: a file that every launcher appends a line to."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CAPTURED, UNCHANGED, FAILED = "captured", "unchanged", "not captured"


class Report:
    """A file of JSON lines. Each is one write at the file's end, so parallel builds do not mix theirs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def finished(self, source: str, outcome: str) -> None:
        """outcome: CAPTURED, UNCHANGED or FAILED."""
        self._append({"source": source, "outcome": outcome})

    def note(self, line: str) -> None:
        """Something worth telling when the build is over."""
        self._append({"note": line})

    def called(self) -> None:
        """A compiler was called, for whatever."""
        self._append({})

    def summary(self) -> Summary:
        """What has been reported so far."""
        summary = Summary()
        for entry in self._entries():
            if outcome := entry.get("outcome"):
                summary.outcomes[outcome] += 1
            elif note := entry.get("note"):
                summary.notes.setdefault(note)
            else:
                summary.n_calls += 1
        return summary

    def _append(self, entry: dict[str, str]) -> None:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the build is over, and nobody will read it
            return
        try:
            os.write(descriptor, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(descriptor)

    def _entries(self) -> Iterator[dict[str, str]]:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines():
            yield json.loads(line)


@dataclass
class Summary:
    """outcomes: how many units each. notes: each once, in the order they came. n_calls: of compilers, by launchers."""

    outcomes: Counter[str] = field(default_factory=Counter)
    notes: dict[str, None] = field(default_factory=dict)
    n_calls: int = 0

    @property
    def failed(self) -> int:
        return self.outcomes[FAILED]

    def __str__(self) -> str:
        """One line, such as `12 units captured, 2 unchanged`."""
        counts = [(self.outcomes[name], name) for name in (CAPTURED, UNCHANGED, FAILED) if self.outcomes[name]]
        if not counts:
            return "no CUDA unit was compiled"
        (first, name), *rest = counts
        head = f"{first} unit{'s' if first > 1 else ''} {name}"
        return ", ".join([head, *(f"{count} {name}" for count, name in rest)])
