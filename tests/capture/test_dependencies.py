"""Reading dependency files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3llvm.capture.dependencies import parse_dependencies


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("module: app.cu\n", ["app.cu"]),
        ("module: app.cu \\\n  /usr/include/a.h \\\n  b.h\n", ["app.cu", "/usr/include/a.h", "b.h"]),
        ("module: my\\ app.cu a$$b.h c\\#d.h\n", ["my app.cu", "a$b.h", "c#d.h"]),
        ("module:\n", []),
        ("", []),
    ],
)
def test_reads_make_rules(text: str, paths: list[str]) -> None:
    assert parse_dependencies(text) == paths


@given(st.lists(st.text("abc/. #$", min_size=1, max_size=12).filter(lambda path: path.strip() == path), max_size=5))
def test_undoes_what_clang_escapes(paths: list[str]) -> None:
    escaped = [path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ") for path in paths]
    assert parse_dependencies("module: " + " \\\n  ".join(escaped) + "\n") == paths
