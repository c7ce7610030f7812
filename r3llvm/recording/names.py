"""Kernel names for people."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess


@functools.cache
def demangle(name: str) -> str:
    """The C++ name of a mangled one; `name` itself when it is no mangled name."""
    if not name.startswith("_Z"):
        return name
    try:
        import cxxfilt  # type: ignore[import-untyped]

        return str(cxxfilt.demangle(name))
    except Exception:  # no C++ runtime that it could load, or a name that it does not know: LLVM's own tool may
        for tool in ("llvm-cxxfilt", "llvm-cxxfilt-22", "c++filt"):
            if shutil.which(tool):
                return subprocess.run([tool, name], capture_output=True, text=True).stdout.strip() or name
        return name


def matches(pattern: str, kernel: str) -> bool:
    """Whether the regular expression is found in the kernel's mangled or C++ name."""
    return bool(re.search(pattern, kernel) or re.search(pattern, demangle(kernel)))
