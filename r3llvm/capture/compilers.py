"""Compilers and their launchers, known by their names."""

from __future__ import annotations

import enum
import os
import re
import shutil
from pathlib import PurePath


class Kind(enum.Enum):
    """What a program is."""

    NVCC = "nvcc"
    CLANG = "clang"
    HOST = "host"  # gcc and its like: compiles no CUDA, links programs that hold some
    LAUNCHER = "launcher"  # takes a compiler's command line
    OTHER = "other"


_KINDS = (
    (re.compile(r"nvcc"), Kind.NVCC),
    (re.compile(r"(.*-)?clang(\+\+)?(-[\d.]+)?"), Kind.CLANG),
    (re.compile(r"(.*-)?(gcc|g\+\+|cc|c\+\+)(-[\d.]+)?"), Kind.HOST),
    (re.compile(r"ccache|sccache|distcc"), Kind.LAUNCHER),
)


def kind_of_name(name: str) -> Kind:
    """What a program of that name is, as far as a name tells."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(name)), Kind.OTHER)


def kind_of(program: str) -> Kind:
    """What a program is, by its name, else by that of the file it is a link to."""
    kind = kind_of_name(PurePath(program).name)
    if kind in (Kind.OTHER, Kind.HOST) and (path := shutil.which(program)):
        real = kind_of_name(PurePath(os.path.realpath(path)).name)
        return real if kind is Kind.OTHER or real is Kind.CLANG else kind
    return kind
