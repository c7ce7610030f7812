"""The store: what `r3llvm wrap` captured, and which device image belongs to which module. See recordings/README.md."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from r3llvm.errors import R3Error
from r3llvm.files import content_hash, write_atomically

# No pydantic models: every wrapped compilation writes them, and would wait for pydantic's import.


@dataclass(frozen=True)
class Include:
    """A file that a translation unit read."""

    path: str
    hash: str


@dataclass(frozen=True)
class StoredModule:
    """Where a module came from: modules/<hash>.json of the store."""

    hash: str
    source: str
    command: tuple[str, ...]
    directory: str
    arch: str
    compiler: str
    created: str
    includes: tuple[Include, ...] = ()
    options: tuple[str, ...] = ()  # of the code generator, that the build asked for (precision of divisions, …)
    assembler: tuple[str, ...] = ()  # likewise of ptxas
    units: tuple[str, ...] = ()  # of a device link: the modules that this one was linked from
    variables: tuple[str, ...] | None = None  # names of its device variables; None: not known


def default_store() -> Path:
    """$R3LLVM_STORE, else r3llvm/store in the user's data folder."""
    if named := os.environ.get("R3LLVM_STORE"):
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "r3llvm" / "store"


def _variables(bitcode: bytes) -> tuple[str, ...] | None:
    """For the recorder, which cannot read bitcode. None when we cannot either: it then asks the device image."""
    from r3llvm.ir import device_variables  # here, for what only reads the store needs no LLVM

    try:
        return device_variables(bitcode)
    except R3Error:
        return None


class Store:
    """A folder of modules, named by content. Several builds may write into it at once."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root or default_store()).absolute()

    def add(self, bitcode: bytes, description: StoredModule) -> None:
        """Stores a module, with its variables' names; the bitcode is there before the description that names it."""
        named = dataclasses.replace(description, variables=_variables(bitcode))
        known = {name: value for name, value in dataclasses.asdict(named).items() if value is not None}
        self._write(f"modules/{named.hash}.bc", bitcode)
        self._write(f"modules/{named.hash}.json", json.dumps(known, indent=1, ensure_ascii=False).encode())

    def add_image(self, image_hash: str, module_hash: str) -> None:
        """Says that the device image with `image_hash` was compiled from the module."""
        self._write(f"images/{image_hash}", f"{module_hash}\n".encode())

    def module(self, module_hash: str) -> bytes:
        """The bitcode. Raises R3Error when it is missing or damaged."""
        data = self._read(f"modules/{module_hash}.bc", module_hash)
        if content_hash(data) != module_hash:
            raise R3Error(
                f"module {module_hash} in the store {self.root} is damaged: wrap the application's build again"
            )
        return data

    def describe(self, module_hash: str) -> StoredModule:
        """Where the module came from. Raises R3Error when that is missing or damaged."""
        from pydantic import TypeAdapter

        data = self._read(f"modules/{module_hash}.json", module_hash)
        try:
            return TypeAdapter(StoredModule).validate_json(data)
        except ValueError as error:
            raise R3Error(
                f"modules/{module_hash}.json in the store {self.root} is damaged: wrap the application's build again"
            ) from error

    def image(self, image_hash: str) -> str | None:
        """The hash of the module that an image was compiled from."""
        path = self.root / "images" / image_hash
        return path.read_text().strip() if path.exists() else None

    def _read(self, name: str, module_hash: str) -> bytes:
        if not re.fullmatch("[0-9a-f]{32}", module_hash):
            raise R3Error(f"{module_hash!r} is not the hash of a module")
        try:
            return (self.root / name).read_bytes()
        except OSError as error:
            raise R3Error(
                f"the store {self.root} has no {name} ({error.strerror}): name the wrapped build's store with --store"
            ) from error

    def _write(self, name: str, data: bytes) -> None:
        try:
            write_atomically(self.root / name, data)
        except OSError as error:
            raise R3Error(f"cannot write {name} into the store {self.root}: {error.strerror or error}") from error
