"""Kernel names for people."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterator

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


def module_names(name: str) -> list[str]:
    """What a kernel that a program knows as `name` may be called in its module, the likeliest first.

    nvcc gives entities that only their translation unit sees other names than clang does: see csrc/store/names.h.
    """
    scoped = "".join(_in_clang(part) for part in _parts(name))
    return list(dict.fromkeys([name, scoped, *_as_static(scoped)]))


def _parts(mangled: str) -> Iterator[str]:
    """A mangled name cut into length-prefixed identifiers, and the characters between them."""
    at = 0
    while at < len(mangled):
        digits = re.match(r"\d+", mangled[at:], re.ASCII)
        end = at + len(digits[0]) + int(digits[0]) if digits and len(digits[0]) < 6 else 0
        part = mangled[at:end] if digits and int(digits[0]) and end <= len(mangled) else mangled[at]
        yield part or mangled[at]
        at += len(part) or 1


def _in_clang(part: str) -> str:
    identifier = part.lstrip("0123456789")
    if identifier.startswith("_GLOBAL__N__"):
        return "12_GLOBAL__N_1"
    return "" if identifier.startswith("_INTERNAL_") else part


def _as_static(name: str) -> Iterator[str]:
    """The name of the same entity declared `static`: an L before its last identifier. None where there is no such."""
    if not name.startswith("_Z"):
        if name:
            yield f"_ZL{len(name)}{name}"
        return
    nested = name.startswith("_ZN")
    last = at = 3 if nested else 2
    for part in _parts(name[at:]):
        if len(part) < 2 or (at > 2 and not nested):
            break
        last, at = at, at + len(part)
    if at > (3 if nested else 2):
        yield f"{name[:last]}L{name[last:]}"


@functools.cache
def _cxx_runtime() -> ctypes.CDLL | None:
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    runtime.__cxa_demangle.restype = ctypes.c_void_p
    return runtime
