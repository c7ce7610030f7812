"""Which module a translation unit gave when it was captured last, so that an unchanged one is not captured again."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import r3llvm
from r3llvm.capture.store import Include, Store, StoredModule
from r3llvm.errors import R3Error
from r3llvm.files import content_hash, write_atomically

# What compilers take from the environment.
_VARIABLES = (
    "CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH CCC_OVERRIDE_OPTIONS NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS".split()  # noqa: SIM905
)
_DEPTH = 3  # of folders within an include folder
_HEADERS = frozenset("h hh hpp hxx h++ cuh inc inl ipp tpp def cu".split())  # noqa: SIM905


@dataclass(frozen=True)
class Unit:
    """units/<key> of the store: a module, and the files that it was made of as they were then."""

    module: str
    includes: tuple[Include, ...]

    @classmethod
    def parse(cls, data: bytes) -> Unit:
        """Raises ValueError, KeyError or TypeError when it is damaged."""
        unit = json.loads(data)
        return cls(str(unit["module"]), tuple(Include(**include) for include in unit["includes"]))


def unit_key(words: Sequence[str], programs: Sequence[Path], folders: Sequence[Path] = ()) -> str:
    """A hash of all that decides what a unit becomes but for its files: the words, the working directory, what
    compilers take from the environment, the programs (by path, size and time of change), and the names of what lies in
    the folders where includes are looked for: a new file may come before another, or be asked for (__has_include)."""
    parts = [r3llvm.__version__, str(Path.cwd()), *(os.environ.get(name, "") for name in _VARIABLES), *words]
    for program in programs:
        path = program.resolve()
        status = path.stat() if path.exists() else None
        parts += [str(path), f"{status.st_size} {status.st_mtime_ns}" if status else ""]
    for folder in folders:
        parts += ["", str(folder), *_headers(folder)]
    return content_hash(os.fsencode("\0".join(parts)))


def _headers(folder: Path) -> list[str]:
    """The headers in a folder, and some way below it."""
    found = []
    for root, folders, names in os.walk(folder):
        deep = len(Path(root).relative_to(folder).parts) >= _DEPTH
        folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
        found += [str(Path(root, name)) for name in names if name.rpartition(".")[2].lower() in _HEADERS]
    return sorted(found)


def unchanged(store: Store, key: str) -> Unit | None:
    """The unit, when the store still has its module and no file that it was made of has changed."""
    try:
        unit = Unit.parse((store.root / "units" / key).read_bytes())
        if any(content_hash(Path(include.path).read_bytes()) != include.hash for include in unit.includes):
            return None
        store.module(unit.module)  # raises for damage, too
        store.describe(unit.module)
    except (OSError, ValueError, KeyError, TypeError, R3Error):
        return None
    return unit


def remember(store: Store, key: str, module: StoredModule) -> Unit:
    """Says what the unit has become. Raises R3Error when the store cannot be written."""
    unit = Unit(module=module.hash, includes=module.includes)
    try:
        write_atomically(store.root / "units" / key, json.dumps(dataclasses.asdict(unit)).encode(), flush=False)
    except OSError as error:
        raise R3Error(f"cannot write into the store {store.root}: {error.strerror or error}") from error
    return unit


def newest_change(unit: Unit) -> float:
    """When the last of the unit's files changed, in seconds since the epoch."""
    return max((Path(include.path).stat().st_mtime for include in unit.includes), default=0.0)
