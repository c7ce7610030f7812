"""Fetches source distributions and wheels from PyPI into a cache. Nothing of theirs is ever executed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


class Unreachable(Exception):
    """PyPI does not answer, so that there is nothing to test."""


@dataclass(frozen=True)
class Package:
    """One file on PyPI. sha256: of the archive. wheel: take the wheel, not the source distribution.

    keep: only what lies in a folder of this name is unpacked, with the path up to it cut off.
    """

    name: str
    version: str
    sha256: str
    wheel: bool = False
    keep: str = ""


def cache_directory() -> Path:
    """$R3LLVM_FOREIGN_CACHE, else r3llvm/foreign in the user's cache folder."""
    if named := os.environ.get("R3LLVM_FOREIGN_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "r3llvm" / "foreign"


def fetch(package: Package) -> Path:
    """The folder of the unpacked package. Raises Unreachable, or ValueError where PyPI has none or another one."""
    folder = cache_directory() / f"{package.name}-{package.version}-{package.sha256[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
        archive = _download(package, Path(scratch))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != package.sha256:
            raise ValueError(f"{archive.name} has sha256 {found}, not {package.sha256}")
        unpacked = Path(scratch) / "unpacked"
        _unpack(archive, unpacked, package.keep)
        inside = list(unpacked.iterdir())
        root = inside[0] if len(inside) == 1 and inside[0].is_dir() else unpacked
        try:
            root.rename(folder)
        except OSError:  # another process was quicker
            if not folder.is_dir():
                raise
    return folder


def _download(package: Package, folder: Path) -> Path:
    """With unearth, as `pip download` runs a source distribution's build system to learn its metadata."""
    command = [sys.executable, "-m", "unearth", "--only-binary" if package.wheel else "--no-binary"]
    if index := os.environ.get("PIP_INDEX_URL"):
        command += ["--index-url", index]
    command += ["--download", str(folder), f"{package.name}=={package.version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        if "No matches" in last:
            raise ValueError(f"PyPI has no {package.name} {package.version} any more")
        raise Unreachable(f"PyPI is unreachable: {last}")
    return Path(json.loads(done.stdout)["local_path"])


def _unpack(archive: Path, target: Path, keep: str) -> None:
    target.mkdir()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                parts = PurePosixPath(name).parts
                if keep in parts[:-1] and ".." not in parts:
                    path = target.joinpath(*parts[parts.index(keep) + 1 :])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(wheel.read(name))
        return
    with tarfile.open(archive) as sdist:
        sdist.extractall(target, filter="data")
