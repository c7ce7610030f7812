"""When two PTX texts are the same program."""

from __future__ import annotations

import re

from r3llvm.files import content_hash

_STRING_OR_COMMENT = re.compile(rb'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def strip_comments(ptx: bytes) -> bytes:
    """The text without comments, and without the blank space at line ends and the blank lines that they leave."""
    text = _STRING_OR_COMMENT.sub(lambda match: match[0] if match[0].startswith(b'"') else b" ", ptx)
    return b"\n".join(line for line in (line.rstrip() for line in text.split(b"\n")) if line)


def ptx_hash(ptx: bytes) -> str:
    """The content hash of a PTX text: equal for two texts that differ in nothing but comments."""
    return content_hash(strip_comments(ptx))
