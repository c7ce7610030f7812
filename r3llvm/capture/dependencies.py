"""Dependency files, as `clang -MD` writes them."""

from __future__ import annotations

import re


def parse_dependencies(text: str) -> list[str]:
    """The prerequisites of the first rule, with make's escapes undone."""
    _, _, right = text.replace("\\\n", " ").replace("\\\r\n", " ").partition(": ")
    words = re.findall(r"(?:\\[ #]|\$\$|[^\s])+", right)
    return [re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in words]
