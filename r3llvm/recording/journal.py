"""What the recording library left behind, read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from r3llvm.errors import R3Error
from r3llvm.recording.manifest import Image, Launch, Refusal

JOURNAL = "journal.jsonl"


@dataclass
class Journal:
    """journal.jsonl, read: see recordings/README.md."""

    device: str = ""  # the GPU's name; none on the host
    capability: str = ""
    launches: list[Launch] = field(default_factory=list)
    images: dict[str, Image] = field(default_factory=dict)  # by hash
    refusals: list[Refusal] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # kernels that the filter left out
    launches_seen: int = 0
    graph_launches: int = 0
    captured_launches: int = 0
    foreign: Counter[str] = field(default_factory=Counter)  # bytes by kind
    other_processes: int = 0  # that launched kernels while another made the recording
    other_launches: int = 0
    ended: bool = False  # an application that used the runtime came to its normal end

    @classmethod
    def read(cls, path: Path) -> Journal:
        """An empty journal when there is no file. Raises R3Error for a line that is not the format's."""
        journal = cls()
        for number, line in enumerate(whole_lines(path), 1):
            try:
                journal._add(json_object(line))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
                raise R3Error(f"line {number} of the recorder's journal is damaged ({reason}): record again") from error
        journal.launches_seen = max(journal.launches_seen, len(journal.launches))
        return journal

    def _add(self, entry: dict[str, Any]) -> None:
        kind = entry.pop("type")
        if kind == "launch":
            hashes = {name: entry.get(name) or None for name in ("module", "image")}  # "": none
            self.launches.append(Launch.model_validate(entry | hashes))
        elif kind == "image":
            image = Image(hash=entry["hash"], kind=entry["kind"], size=entry["bytes"])
            self.images[image.hash] = image
        elif kind == "refusal":
            self.refusals.append(Refusal.model_validate(entry))
        elif kind == "skipped":
            self.skipped.append(str(entry["kernel"]))
        elif kind == "device":
            self.device, self.capability = str(entry["name"]), str(entry["capability"])
        elif kind == "count":
            self.graph_launches += count(entry["graph_launches"])
            self.captured_launches += count(entry["captured_launches"])
            for foreign in entry["foreign"]:
                self.foreign[str(foreign["kind"])] += count(foreign["bytes"])
        elif kind == "other_process":
            self.other_processes += 1
            self.other_launches += count(entry["launches"])
        elif kind == "end":
            self.launches_seen += count(entry["launches_seen"])
            self.ended = True
        else:
            raise ValueError(f"type {kind!r} is unknown")


def whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file that need not exist; what follows the last newline was cut off by a kill."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise R3Error(f"cannot read {path}: {error.strerror or error}") from error
    yield from data.split(b"\n")[:-1]


def json_object(line: bytes) -> dict[str, Any]:
    """Raises ValueError or TypeError when this is none."""
    entry = json.loads(line)
    if not isinstance(entry, dict):
        raise TypeError("no JSON object")
    return entry


def count(value: Any) -> int:
    """How many. Raises ValueError for what is no count."""
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no count")
    return value
