"""Checking a recording against its own hashes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from r3llvm.errors import R3Error
from r3llvm.recording.recording import Recording, referenced_chunks


def problems(recording: Recording) -> Iterator[str]:
    """One line for each module, image or chunk that is missing or damaged. (Opening checked the schema.)"""
    checks = [
        *(partial(recording.module, module.hash) for module in recording.manifest.modules),
        *(partial(recording.image, image.hash) for image in recording.manifest.images),
        *(partial(recording.chunk, *chunk) for chunk in referenced_chunks(recording.manifest).items()),
    ]
    for check in checks:
        try:
            check()
        except R3Error as error:
            yield str(error)
