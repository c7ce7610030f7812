"""From what the recording library left behind to a finished recording."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import r3llvm
from r3llvm.capture import Store
from r3llvm.errors import R3Error
from r3llvm.files import flush_filesystem, text_of, write_atomically
from r3llvm.recording.manifest import Launch, Manifest, Module, Refusal
from r3llvm.recording.recording import chunk_name, module_name, referenced_chunks
from r3llvm.recording.source import MANIFEST

CHUNK_BYTES = 256 * 1024
JOURNAL = "journal.jsonl"


@dataclass
class Journal:
    """journal.jsonl, read: see recordings/README.md."""

    launches: list[Launch] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # kernels that the filter left out
    launches_seen: int = 0
    ended: bool = False  # an application that used the runtime came to its normal end

    @classmethod
    def read(cls, path: Path) -> Journal:
        """An empty journal when there is no file. Raises R3Error for a line that is not the format's."""
        journal = cls()
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        for number, line in enumerate(lines[:-1], 1):  # what follows the last newline was cut off by a kill
            try:
                entry = json.loads(line)
                if not isinstance(entry, dict):
                    raise TypeError("no JSON object")
                journal._add(entry)
            except (ValueError, TypeError, KeyError) as error:
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
                raise R3Error(f"line {number} of the recorder's journal is damaged ({reason}): record again") from error
        journal.launches_seen = max(journal.launches_seen, len(journal.launches))
        return journal

    def _add(self, entry: dict[str, Any]) -> None:
        kind = entry.pop("type")
        if kind == "launch":
            self.launches.append(Launch.model_validate(entry))
        elif kind == "refusal":
            self.refusals.append(Refusal.model_validate(entry))
        elif kind == "skipped":
            self.skipped.append(str(entry["kernel"]))
        elif kind == "end":
            self.launches_seen += int(entry["launches_seen"])
            self.ended = True
        else:
            raise ValueError(f"type {kind!r} is unknown")


def finish(folder: Path, journal: Journal, store: Store, application: tuple[str, ...], device: str) -> Manifest:
    """Turns the recorder's folder into a recording: modules copied in, manifest written, the rest removed, all on disk.

    Raises R3Error when a module is not in the store, or a chunk is missing.
    """
    modules = []
    for module_hash in dict.fromkeys(launch.module for launch in journal.launches if launch.module):
        stored = store.describe(module_hash)
        _write(folder / module_name(module_hash), store.module(module_hash))
        modules.append(
            Module(
                hash=module_hash,
                source=stored.source,
                command=stored.command,
                arch=stored.arch,
                includes=tuple(include.path for include in stored.includes),
            )
        )
    try:
        manifest = Manifest(
            r3llvm_version=r3llvm.__version__,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            device=device,
            application=tuple(map(text_of, application)),
            chunk_bytes=CHUNK_BYTES,
            modules=tuple(modules),
            launches=tuple(journal.launches),
            refusals=tuple(journal.refusals),
            launches_seen=journal.launches_seen,
        )
    except ValidationError as error:
        raise R3Error(f"the recorder's journal is inconsistent: {error.errors()[0]['msg']}") from error
    _keep_only_referenced(folder, manifest)
    _write(folder / MANIFEST, manifest.model_dump_json(indent=1).encode())
    try:
        flush_filesystem(folder)
    except OSError as error:
        raise R3Error(f"cannot write {folder}: {error.strerror or error}") from error
    return manifest


def _keep_only_referenced(folder: Path, manifest: Manifest) -> None:
    referenced = {folder / chunk_name(chunk_hash) for chunk_hash in referenced_chunks(manifest)}
    present = {path for path in (folder / "chunks").rglob("*") if path.is_file()}
    if missing := referenced - present:
        raise R3Error(f"the recorder lost {len(missing)} chunks (such as {min(missing).stem}): record again")
    for path in present - referenced:
        path.unlink()
    (folder / JOURNAL).unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as error:
        raise R3Error(f"cannot write {path}: {error.strerror or error}") from error
