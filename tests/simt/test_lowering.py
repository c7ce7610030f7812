"""Runs the FileCheck tests of this folder: the RUN lines of *.ll."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.simt.lowered import tool

HERE = Path(__file__).parent


def file_check() -> str:
    for version in ("-22", "-21", "-20", ""):
        if config := shutil.which(f"llvm-config{version}"):
            directory = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
            if (program := Path(directory) / "FileCheck").exists():
                return str(program)
    pytest.skip("no FileCheck here: install llvm-22-tools or llvm-22")


@pytest.mark.parametrize("source", sorted(HERE.glob("*.ll")), ids=lambda path: path.stem)
def test_file_check(source: Path) -> None:
    runs = re.findall(r"^; RUN: (.*)$", source.read_text(), re.MULTILINE)
    assert runs, f"{source.name} has no RUN line"
    words = {"r3-simt-opt": str(tool()), "FileCheck": file_check(), "%s": str(source)}
    for run in runs:
        command = re.sub(r"r3-simt-opt|FileCheck|%s", lambda match: shlex.quote(words[match[0]]), run)
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr + done.stdout
