"""The folder that stands before the real compilers and the real toolkit, as launchers see it. shims.py makes it.

shims/     what is put first on PATH: a shim for each compiler
bin/       the toolkit's programs, and a shim for nvcc
…          the rest of the toolkit
.real      the real toolkit
launch.py  what the shims run
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import MutableMapping

VARIABLE = "R3LLVM_STANDIN"  # names the folder that a build is wrapped with
HEAD = b"#!/bin/sh\n# A compiler shim of r3llvm, for:\n# "
TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CUDAToolkit_ROOT")


def strip(environment: MutableMapping[str, str]) -> None:
    """Takes the stand-in out of an environment: compilers are to see what they see in a plain build."""
    folder = environment.get(VARIABLE)
    if not folder:
        return
    ours = {os.path.join(folder, name) for name in ("shims", "bin")}  # noqa: PTH118
    kept = [entry for entry in environment.get("PATH", "").split(os.pathsep) if entry not in ours]
    environment["PATH"] = os.pathsep.join(kept)
    for name in TOOLKIT_VARIABLES:
        if name in environment:
            environment[name] = real_path(environment[name], folder)


def real_program(program: str) -> str:
    """What a shim stands for; another program is itself."""
    path = shutil.which(program)
    if path:
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(8192)
        if head.startswith(HEAD):
            return os.fsdecode(head[len(HEAD) :].partition(b"\n")[0])
    return program


def real_path(word: str, folder: str) -> str:
    """A word with the real toolkit in the place of its stand-in, `folder`."""
    if folder not in word:
        return word
    try:
        root = os.readlink(os.path.join(folder, ".real"))  # noqa: PTH115, PTH118
    except OSError:
        return word
    return re.sub(re.escape(folder) + r"(?![\w.-])", lambda _: root, word)
