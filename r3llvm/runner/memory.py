"""Recorded memory as two files that a replay maps at the recorded addresses."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

from r3llvm.errors import R3Error
from r3llvm.recording import Launch, Recording, Region

PAGE = mmap.PAGESIZE


class Span(NamedTuple):
    """Whole pages of device memory, and where in the files they lie (all in bytes)."""

    address: int
    length: int
    offset: int


def spans_of(ranges: Iterable[tuple[int, int]]) -> list[Span]:
    """The pages that the (base, size) ranges touch, merged where they meet, one after the other in the file."""
    spans: list[Span] = []
    for base, size in sorted(ranges):
        start, end = base // PAGE * PAGE, -(-(base + size) // PAGE) * PAGE
        if spans and start <= spans[-1].address + spans[-1].length:
            last = spans[-1]
            spans[-1] = last._replace(length=max(last.length, end - last.address))
        else:
            spans.append(Span(start, end - start, spans[-1].offset + spans[-1].length if spans else 0))
    return spans


class MemoryImage:
    """The regions of one launch: page-aligned `spans` and memory files of the prologue and the epilogue.

    What lies in a page but in no region reads as zero in both. A context manager: leaving it closes the files.
    """

    def __init__(self, recording: Recording, regions: Sequence[Region]) -> None:
        """Raises R3Error when a chunk is damaged or memory runs out."""
        self.spans = spans_of((region.base, region.size) for region in regions)
        self.size = sum(span.length for span in self.spans)
        self._files: list[int] = []
        try:
            self.prologue_fd = self._file(recording, regions, "prologue")
            self.epilogue_fd = self._file(recording, regions, "epilogue")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes both files."""
        while self._files:
            os.close(self._files.pop())

    def __enter__(self) -> MemoryImage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _file(self, recording: Recording, regions: Sequence[Region], moment: str) -> int:
        descriptor = os.memfd_create(f"r3llvm-{moment}", os.MFD_CLOEXEC)
        self._files.append(descriptor)
        try:
            os.ftruncate(descriptor, self.size)
            for region in regions:
                position = self._offset(region.base)
                for chunk in recording.chunks(region, "prologue" if moment == "prologue" else "epilogue"):
                    if chunk.count(0) != len(chunk):  # what is all zero stays a hole
                        _write_all(descriptor, chunk, position)
                    position += len(chunk)
        except OSError as error:
            raise R3Error(
                f"not enough memory for the {self.size >> 20} MiB of {recording.path}: {error.strerror}"
            ) from error
        return descriptor

    def _offset(self, address: int) -> int:
        span = next(span for span in self.spans if span.address <= address < span.address + span.length)
        return span.offset + address - span.address


@dataclass
class _Slot:
    image: MemoryImage | None = None
    users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryImages:
    """The images of a recording's launches, kept for the next replay while they fit `keep_bytes`. Thread-safe."""

    def __init__(self, recording: Recording, keep_bytes: int) -> None:
        self._recording = recording
        self._keep_bytes = keep_bytes
        self._slots: dict[tuple[str | None, str, int], _Slot] = {}  # the least recently used first
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, launch: Launch) -> Iterator[MemoryImage]:
        """The launch's image, open for as long as the context lasts. Raises R3Error as MemoryImage does."""
        key = (launch.module, launch.kernel, launch.index)
        with self._lock:
            slot = self._slots[key] = self._slots.pop(key) if key in self._slots else _Slot()
            slot.users += 1
        try:
            with slot.lock:
                slot.image = slot.image or MemoryImage(self._recording, launch.regions)
            yield slot.image
        finally:
            with self._lock:
                slot.users -= 1
                self._evict()

    def close(self) -> None:
        """Closes the images that nobody uses."""
        with self._lock:
            self._keep_bytes = 0
            self._evict()

    def _evict(self) -> None:
        kept = sum(slot.image.size for slot in self._slots.values() if slot.image)
        for key, slot in list(self._slots.items()):
            if kept <= self._keep_bytes:
                return
            if slot.users == 0 and slot.image:
                kept -= slot.image.size
                slot.image.close()
                del self._slots[key]


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
