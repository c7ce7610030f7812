"""Kernel names for people."""

from __future__ import annotations

import ctypes
import functools
import re

from r3llvm.errors import UsageError


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
    """Whether the regular expression is found in the mangled or C++ name. Raises UsageError when it is none."""
    expression = compile_pattern(pattern)
    return bool(expression.search(kernel) or expression.search(demangle(kernel)))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Raises UsageError when this is no regular expression."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from error


@functools.cache
def _cxx_runtime() -> ctypes.CDLL | None:
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    runtime.__cxa_demangle.restype = ctypes.c_void_p
    return runtime
