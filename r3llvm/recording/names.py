"""Kernel names for people."""

from __future__ import annotations

import ctypes
import functools
import re


@functools.cache
def demangle(name: str) -> str:
    """The C++ name of a mangled one; `name` itself when it is no mangled name."""
    runtime = _cxx_runtime()
    if runtime is None or not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    text = runtime.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not text:
        return name
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


def matches(pattern: str, kernel: str) -> bool:
    """Whether the regular expression is found in the kernel's mangled or C++ name."""
    return bool(re.search(pattern, kernel) or re.search(pattern, demangle(kernel)))


@functools.cache
def _cxx_runtime() -> ctypes.CDLL | None:
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    runtime.__cxa_demangle.restype = ctypes.c_void_p
    return runtime
