"""Putting the recording library into an application that runs on a GPU."""

from __future__ import annotations

import os
import re
from pathlib import Path

from r3llvm import toolchain
from r3llvm.capture import Store
from r3llvm.capture.toolkit import has_gpu
from r3llvm.errors import R3Error

_LIBRARY = "libr3recorder.so"


def cuda_environment(store: Store) -> dict[str, str]:
    """The environment of a program that is recorded on a GPU: the recording library comes first, before all others.

    Raises R3Error when the library is not built, or lies where it cannot be preloaded from.
    """
    library = str(recorder_library())
    if re.search(r"[\s:]", library):
        raise R3Error(f"{library} cannot be preloaded, for its path holds a space or a colon: move r3llvm elsewhere")
    inherited = os.environ.get("LD_PRELOAD")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("R3LLVM_RECORD_")}
    preload = f"{library}:{inherited}" if inherited else library
    return {**kept, "LD_PRELOAD": preload, "R3LLVM_STORE": str(store.root)}


def recorder_library() -> Path:
    """The library that records on a GPU. Raises R3Error when it is not built."""
    if named := os.environ.get("R3LLVM_RECORDER"):
        candidates = [Path(named), Path(named) / _LIBRARY]
    else:
        candidates = [toolchain.LIBRARIES / _LIBRARY, toolchain.PACKAGE.parent / "build" / "lib" / _LIBRARY]
    for path in candidates:
        if path.is_file():
            return path.absolute()
    raise R3Error(
        f"the recording library ({_LIBRARY}) is not in {' or '.join(str(path.parent) for path in candidates)}: "
        "install r3llvm with its extension (`pip install .`), or name it in R3LLVM_RECORDER"
    )


def check_gpu() -> None:
    """Raises R3Error when the NVIDIA driver offers no device."""
    if not has_gpu() and not toolchain.gpus():  # the latter asks the driver, which takes a while
        raise R3Error("there is no NVIDIA GPU here: run on a machine that has one, or say --device host")
