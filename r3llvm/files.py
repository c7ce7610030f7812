"""Content hashes, and files that appear whole or not at all."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
from pathlib import Path


def content_hash(data: bytes) -> str:
    """BLAKE2b with a digest of 16 bytes, in lower-case hex: the name of a chunk, a module or an image."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def text_of(argument: str) -> str:
    """A file name or an argument as text that can be stored: bytes that are no UTF-8 are replaced."""
    return os.fsencode(argument).decode("utf-8", "replace")


def write_atomically(path: Path, data: bytes, flush: bool = True) -> None:
    """Writes `data` beside `path`, flushes it to the disk and renames it into place. Makes missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if flush:
                os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def flush_filesystem(path: Path) -> None:
    """Waits until all that was written to the file system of `path` is on the disk: one wait for thousands of files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
