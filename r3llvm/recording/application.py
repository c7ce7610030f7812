"""What the program to run is: whether it can be, on which device, and whether the recorder gets into it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from r3llvm.capture.toolkit import hostcuda_library, resolve_device
from r3llvm.errors import R3Error, UsageError

_RUN_PATHS = ("DT_RPATH", "DT_RUNPATH")


def check_application(application: Sequence[str]) -> None:
    """Raises UsageError when the program cannot be run."""
    if not application or shutil.which(application[0]) is None:
        name = application[0] if application else "nothing"
        raise UsageError(f"{name}: no such program, or not executable; check what follows --")


def application_device(application: Sequence[str], device: str) -> str:
    """`auto` is `cuda` where there is a GPU, but for a program that `r3llvm wrap --device host` built."""
    resolved = resolve_device(device)
    if device == "auto" and resolved == "cuda" and _built_for_host(application):
        return "host"
    return resolved


def check_preloadable(application: Sequence[str]) -> None:
    """Raises UsageError when the program is one that the dynamic linker preloads nothing into."""
    path = _path(application)
    if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != 0:
        raise UsageError(f"{path} is setuid or setgid, so the recorder cannot be preloaded: run a copy that is not")
    linkage = _linkage(path)
    if linkage is not None and not linkage.dynamic:
        raise UsageError(f"{path} is statically linked, so the recorder cannot be preloaded: link it dynamically")


@dataclass(frozen=True)
class _Linkage:
    """Whether the dynamic linker starts the program, and where it looks for libraries first."""

    dynamic: bool
    run_path: tuple[str, ...]


def _built_for_host(application: Sequence[str]) -> bool:
    try:
        folder = hostcuda_library().parent.resolve()
        linkage = _linkage(_path(application))
    except (OSError, R3Error):
        return False
    return linkage is not None and any(Path(entry).resolve() == folder for entry in linkage.run_path)


def _path(application: Sequence[str]) -> Path:
    return Path(shutil.which(application[0]) or application[0])


def _linkage(path: Path) -> _Linkage | None:
    """None when it is no program of the machine's own format, such as a script."""
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        try:
            segments = list(ELFFile(file).iter_segments())
            tags = [tag for part in segments if isinstance(part, DynamicSegment) for tag in part.iter_tags()]
            paths = [getattr(tag, tag.entry.d_tag[3:].lower()) for tag in tags if tag.entry.d_tag in _RUN_PATHS]
            dynamic = any(part["p_type"] == "PT_INTERP" for part in segments)
        except (ELFError, ConstructError):
            return None
    return _Linkage(dynamic, tuple(entry for text in paths for entry in text.split(":")))
