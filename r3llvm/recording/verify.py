"""Checking a recording against its own hashes."""

from __future__ import annotations

from collections.abc import Iterator

from r3llvm.errors import R3Error
from r3llvm.recording.recording import Recording, referenced_chunks


def problems(recording: Recording) -> Iterator[str]:
    """One line for each module or chunk that is missing or damaged. (Opening the recording checked the schema.)"""
    for module in recording.manifest.modules:
        try:
            recording.module(module.hash)
        except R3Error as error:
            yield str(error)
    for chunk_hash, size in referenced_chunks(recording.manifest).items():
        try:
            recording.chunk(chunk_hash, size)
        except R3Error as error:
            yield str(error)
