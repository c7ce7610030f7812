"""Splitting device images apart."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3llvm.capture.fatbinary import images_of, split

bodies = st.lists(st.binary(max_size=100), max_size=6)


def image(body: bytes, version: int = 1) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, version, 16, len(body)) + body


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


@given(bodies)
def test_images_come_out_whole_and_in_order(contents: list[bytes]) -> None:
    assert split(b"".join(padded(image(body)) for body in contents)) == [image(body) for body in contents]


@given(bodies.filter(bool), st.integers(1, 5))
def test_padding_between_objects_is_skipped(contents: list[bytes], words: int) -> None:
    section = b"".join(padded(image(body)) + bytes(8 * words) for body in contents)
    assert split(section) == [image(body) for body in contents]


@given(st.binary(min_size=1, max_size=100), st.integers(1, 100))
def test_a_truncated_image_is_an_error(body: bytes, cut: int) -> None:
    with pytest.raises(ValueError, match="truncated"):
        split(image(body)[: -min(cut, len(body))])


@given(st.binary(max_size=300))
def test_any_bytes_split_or_are_refused(section: bytes) -> None:
    try:
        assert all(found in section for found in split(section))
    except ValueError as error:
        assert "truncated" in str(error)


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF" + bytes(60), b"\x7fELF\2\1\1" + bytes(57)])
def test_what_is_no_object_has_no_images(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert images_of(path) == []
