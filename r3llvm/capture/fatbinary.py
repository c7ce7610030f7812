"""The device images that clang and nvcc embed in an object or a program."""

from __future__ import annotations

import struct
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

_HEADER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of what follows it
_MAGIC = 0xBA55ED50


def split(section: bytes) -> list[bytes]:
    """The fat binaries in a `.nv_fatbin` section, each with its header. Raises ValueError on a truncated one."""
    images = []
    position = 0
    while position + _HEADER.size <= len(section):
        magic, _, header_size, body_size = _HEADER.unpack_from(section, position)
        if magic != _MAGIC:  # padding between the sections of several objects
            position += 8
            continue
        end = position + header_size + body_size
        if header_size < _HEADER.size or end > len(section):
            raise ValueError(f"the fat binary at byte {position} of .nv_fatbin is truncated")
        images.append(section[position:end])
        position = (end + 7) & ~7
    return images


def images_of(path: Path) -> list[bytes]:
    """The fat binaries of an ELF object or program, in link order; none when it is no ELF file or holds none."""
    try:
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".nv_fatbin")
            return split(section.data()) if section else []
    except (OSError, ELFError, ValueError):
        return []


def registers_kernels(path: Path) -> bool:
    """Whether an object or archive has host code that registers device images with the CUDA runtime."""
    try:
        return b"__cudaRegisterFatBinary" in path.read_bytes()
    except OSError:
        return False


def is_elf(path: Path) -> bool:
    """Whether the file is there and an ELF file: no bitcode (-flto), no text."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
