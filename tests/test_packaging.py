"""What setup.py and the set-up script refuse, and how."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _llvm_config(folder: Path, version: str) -> Path:
    program = folder / "llvm-config"
    program.write_text(f"#!/bin/sh\necho {version}\necho {folder}/cmake\n")
    program.chmod(0o755)
    return program


def _build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "setup.py"), "-q", "build_ext", "--build-lib", "lib", "--build-temp", "temp"]
    kept = {name: value for name, value in os.environ.items() if name not in ("LLVM_DIR", "LLVM_CONFIG")}
    return subprocess.run(command, cwd=folder, env={**kept, **environment}, capture_output=True, text=True)


@pytest.mark.parametrize("version", ["14.0.6", "19.1.7", "23.0.0git"])
def test_other_llvm_versions_are_refused_by_name(tmp_path: Path, version: str) -> None:
    program = _llvm_config(tmp_path, version)
    result = _build(tmp_path, LLVM_CONFIG=str(program))
    assert result.returncode == 1
    line = result.stderr.strip().splitlines()[-1]
    assert f"LLVM 20 to 22 and tests with 22: {program} is LLVM {version}" in line and "LLVM_CONFIG=" in line


def test_no_llvm_at_all(tmp_path: Path) -> None:
    (tmp_path / "cmake").symlink_to("/bin/true")
    result = _build(tmp_path, PATH=str(tmp_path))
    assert result.returncode == 1
    assert "found no llvm-config-22 or llvm-config-21 or llvm-config-20 or llvm-config" in result.stderr


def _setup(folder: Path, **tools: str) -> subprocess.CompletedProcess[str]:
    """The set-up script in a folder of its own, on a machine that has only these tools (name → shell script)."""
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", folder / "scripts")
    bin_ = folder / "bin"
    bin_.mkdir()
    for name in ("bash", "dirname", "env"):
        (bin_ / name).symlink_to(shutil.which(name) or name)
    for name, script in tools.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{script}\n")
        (bin_ / name).chmod(0o755)
    return subprocess.run(
        [str(folder / "scripts" / "setup.sh")], env={"PATH": str(bin_)}, capture_output=True, text=True, timeout=60
    )


NOTHING_INSTALLED = {"apt-get": "echo called >&2; exit 1", "dpkg-query": "exit 1", "python3": "exit 0"}


def test_without_root_the_command_is_printed_and_nothing_is_done(tmp_path: Path) -> None:
    offered = 'case "$2" in *-21*) echo "  Candidate: 1:21.1";; *) echo "  Candidate: (none)";; esac'
    result = _setup(tmp_path, **NOTHING_INSTALLED, **{"apt-cache": offered, "id": "echo 1000"})
    assert result.returncode == 1 and "called" not in result.stderr
    assert "sudo apt-get update && sudo apt-get install --yes --no-install-recommends clang-21 llvm-21" in result.stderr
    assert "libzstd-dev" in result.stderr and not (tmp_path / ".venv").exists()


def test_with_root_packages_are_installed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tools = {**NOTHING_INSTALLED, "apt-get": f'echo "$@" >> {log}; [ "$1" = update ]', "id": "echo 0"}
    result = _setup(tmp_path, **tools, **{"apt-cache": 'echo "  Candidate: 1:22.1"'})
    update, install = log.read_text().splitlines()
    assert update.startswith("update") and "clang-22 llvm-22 llvm-22-dev lld-22" in install
    assert result.returncode == 1 and "apt-get install clang-22" in result.stderr  # this apt-get fails


def test_a_distribution_without_a_fitting_llvm(tmp_path: Path) -> None:
    tools = {**NOTHING_INSTALLED, "apt-get": "exit 0", "id": "echo 0", "apt-cache": 'echo "  Candidate: (none)"'}
    result = _setup(tmp_path, **tools)
    assert result.returncode == 1
    assert "offers no clang and LLVM of versions 22, 21, 20" in result.stderr
