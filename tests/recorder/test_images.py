"""Which module a kernel's image was compiled from, and what that module calls the image's variables."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

from r3llvm.files import content_hash
from r3llvm.recording.journal import Journal
from tests.fakecuda import FakeCuda
from tests.recorder.building import build

MODULE = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def fat_binary(fakecuda: FakeCuda) -> bytes:
    """With the stand-in's kernels as PTX."""
    ptx = fakecuda.ptx.read_bytes() + b"\0"
    entry = struct.pack("<HHIQI44x", 1, 0x101, 64, len(ptx), 0) + ptx
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


@pytest.fixture(scope="module")
def program(fat_binary: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrapped")
    (folder / "image").write_bytes(fat_binary)
    return build("wrapped.cpp", folder / "wrapped", f'-DFATBIN="{folder / "image"}"', "-fno-pie", "-no-pie")


def record(program: Path, fakecuda: FakeCuda, library: Path, folder: Path, *arguments: str) -> Journal:
    (folder / "recording" / "chunks").mkdir(parents=True)
    settings = {"R3LLVM_RECORD": str(folder / "recording"), "R3LLVM_STORE": str(folder / "store")}
    environment = {**os.environ, **fakecuda.environment, **settings, "LD_PRELOAD": str(library)}
    command = [str(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "6 counter\n", "")
    return Journal.read(folder / "recording" / "journal.jsonl")


def store(folder: Path, image: bytes, **about: object) -> None:
    (folder / "store" / "images").mkdir(parents=True)
    (folder / "store" / "modules").mkdir()
    (folder / "store" / "images" / content_hash(image)).write_text(f"{MODULE}\n")
    (folder / "store" / "modules" / f"{MODULE}.json").write_text(json.dumps({"arch": "sm_75", **about}))


@pytest.mark.parametrize("arguments", [(), ("freed",)], ids=["in the program", "in memory"])
def test_the_store_knows_the_module(
    program: Path,
    fat_binary: bytes,
    fakecuda: FakeCuda,
    library: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    store(tmp_path, fat_binary, variables=["counter", "dropped"])
    journal = record(program, fakecuda, library, tmp_path, *arguments)
    (launch,) = journal.launches
    assert (launch.module, launch.image) == (MODULE, content_hash(fat_binary))
    assert [region.name for region in launch.regions if region.kind == "variable"] == ["counter"]
    assert (tmp_path / "recording" / "images" / launch.image).read_bytes() == fat_binary


def test_static_variables_are_found_as_the_program_registers_them(
    program: Path, fat_binary: bytes, fakecuda: FakeCuda, library: Path, tmp_path: Path
) -> None:
    store(tmp_path, fat_binary, variables=["_ZL7counter"])
    (launch,) = record(program, fakecuda, library, tmp_path).launches
    assert [(r.name, r.size) for r in launch.regions if r.kind == "variable"] == [("_ZL7counter", 4)]


def test_without_a_module_the_image_is_all(
    program: Path, fat_binary: bytes, fakecuda: FakeCuda, library: Path, tmp_path: Path
) -> None:
    (launch,) = record(program, fakecuda, library, tmp_path).launches
    assert (launch.module, launch.image) == (None, content_hash(fat_binary))
