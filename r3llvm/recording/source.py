"""Where a recording's files lie: in a folder, or in the tar file that `r3llvm export` makes."""

from __future__ import annotations

import tarfile
from abc import ABC, abstractmethod
from pathlib import Path

from r3llvm.errors import R3Error

MANIFEST = "manifest.json"


class Source(ABC):
    """Reads a recording's files by their name inside it."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Raises OSError when there is no such file or it cannot be read."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes stored. Raises OSError as `read` does."""


class Folder(Source):
    """A recording as `r3llvm record` leaves it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def size(self, name: str) -> int:
        return (self.path / name).stat().st_size


class Tar(Source):
    """An exported recording. Files are read where they lie: nothing is unpacked, links are not followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with tarfile.open(path, "r:") as tar:
                members = {member.name.removeprefix("./"): member for member in tar if member.isreg()}
        except (tarfile.TarError, EOFError) as error:
            raise R3Error(
                f"{path} is not a recording: neither a folder nor a whole file from `r3llvm export`"
            ) from error
        top = next((name[: -len(MANIFEST)] for name in members if _is_top_manifest(name)), "")
        self._members = {name.removeprefix(top): member for name, member in members.items() if name.startswith(top)}

    def read(self, name: str) -> bytes:
        member = self._member(name)
        with self.path.open("rb") as file:
            file.seek(member.offset_data)
            data = file.read(member.size)
        if len(data) != member.size:
            raise OSError(f"{name} is cut off")
        return data

    def size(self, name: str) -> int:
        return self._member(name).size

    def _member(self, name: str) -> tarfile.TarInfo:
        if name not in self._members:
            raise FileNotFoundError(f"no {name}")
        return self._members[name]


def _is_top_manifest(name: str) -> bool:
    return name.split("/")[-1] == MANIFEST and name.count("/") <= 1


def open_source(path: Path) -> Source:
    """Raises R3Error when there is neither a folder nor an exported file."""
    if not path.exists():
        raise R3Error(f"{path}: no such recording; `r3llvm list` shows those in recordings/")
    try:
        return Folder(path) if path.is_dir() else Tar(path)
    except OSError as error:
        raise R3Error(f"cannot read {path}: {error.strerror or error}") from error
