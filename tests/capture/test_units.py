"""Which units have not changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from r3llvm.capture import Store, StoredModule
from r3llvm.capture.store import Include
from r3llvm.capture.units import newest_change, remember, unchanged, unit_key
from r3llvm.errors import R3Error
from r3llvm.files import content_hash


def stored(store: Store, *files: Path) -> StoredModule:
    """A module made of the files."""
    module = StoredModule(
        hash=content_hash(b"bitcode"),
        source=str(files[0]),
        command=("nvcc", "-c", str(files[0])),
        directory="/",
        arch="sm_90",
        includes=tuple(Include(path=str(file), hash=content_hash(file.read_bytes())) for file in files),
        compiler="nvcc",
        created="2026-01-01T00:00:00+00:00",
    )
    store.add(b"bitcode", module)
    return module


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    source, header = tmp_path / "a.cu", tmp_path / "a.h"
    source.write_text("source")
    header.write_text("header")
    return source, header


def test_a_unit_is_known_until_one_of_its_files_changes(tmp_path: Path, files: tuple[Path, Path]) -> None:
    store = Store(tmp_path / "store")
    assert unchanged(store, "key") is None
    unit = remember(store, "key", stored(store, *files))
    assert unchanged(store, "key") == unit
    assert unchanged(store, "other") is None
    os.utime(files[1], (1e9, 1e9))  # touched, and the same
    assert unchanged(store, "key") == unit
    files[1].write_text("changed")
    assert unchanged(store, "key") is None
    files[1].unlink()
    assert unchanged(store, "key") is None


def test_two_units_of_one_module_are_kept_apart(tmp_path: Path, files: tuple[Path, Path]) -> None:
    store = Store(tmp_path / "store")
    remember(store, "first", stored(store, files[0]))
    remember(store, "second", stored(store, files[1]))
    files[0].write_text("changed")
    assert unchanged(store, "first") is None
    assert unchanged(store, "second") is not None


@pytest.mark.parametrize("suffix", [".bc", ".json"])
def test_a_module_that_is_gone_is_captured_again(suffix: str, tmp_path: Path, files: tuple[Path, Path]) -> None:
    store = Store(tmp_path / "store")
    unit = remember(store, "key", stored(store, *files))
    (store.root / "modules" / f"{unit.module}{suffix}").unlink()
    assert unchanged(store, "key") is None


@pytest.mark.parametrize("damage", ["{", "{}", "[]", '{"module": "0", "includes": [{}]}', "\udcff"])
def test_damage_is_no_match(damage: str, tmp_path: Path, files: tuple[Path, Path]) -> None:
    store = Store(tmp_path / "store")
    remember(store, "key", stored(store, *files))
    (store.root / "units" / "key").write_text(damage, errors="surrogateescape")
    assert unchanged(store, "key") is None


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path, files: tuple[Path, Path]) -> None:
    store = Store(tmp_path / "store")
    module = stored(store, *files)
    (store.root / "units").touch()
    with pytest.raises(R3Error, match="cannot write into the store"):
        remember(store, "key", module)


def test_the_key_holds_what_decides_what_a_unit_becomes(
    tmp_path: Path, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = files[0]
    keys = [unit_key(["nvcc", "-c"], [program]), unit_key(["nvcc", "-G"], [program]), unit_key(["nvcc", "-c"], [])]
    assert unit_key(["nvcc", "-c"], [program]) == keys[0]
    os.utime(program, (1e9, 1e9))
    keys.append(unit_key(["nvcc", "-c"], [program]))
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DX")
    keys.append(unit_key(["nvcc", "-c"], [program]))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    keys.append(unit_key(["nvcc", "-c"], [program]))
    assert len(set(keys)) == len(keys)


def test_the_key_holds_what_includes_could_be(tmp_path: Path) -> None:
    """A new header may come before the one that was taken, or be what __has_include asks for."""
    folder = tmp_path / "include"
    (folder / "deeper").mkdir(parents=True)
    keys = [unit_key(["nvcc"], [], [folder])]
    (folder / "a.h").touch()
    keys.append(unit_key(["nvcc"], [], [folder]))
    (folder / "deeper" / "b.cuh").touch()
    keys.append(unit_key(["nvcc"], [], [folder]))
    assert len(set(keys)) == 3
    (folder / "a.o").touch()  # what a build makes there changes nothing
    (folder / "program").touch()
    assert unit_key(["nvcc"], [], [folder]) == keys[-1]


def test_a_damaged_module_is_captured_again(tmp_path: Path, files: tuple[Path, Path]) -> None:
    store = Store(tmp_path / "store")
    unit = remember(store, "key", stored(store, *files))
    (store.root / "modules" / f"{unit.module}.bc").write_bytes(b"damaged")
    assert unchanged(store, "key") is None


def test_the_newest_file_counts(tmp_path: Path, files: tuple[Path, Path]) -> None:
    store = Store(tmp_path / "store")
    for path, time in zip(files, (1e9, 2e9), strict=True):
        os.utime(path, (time, time))
    assert newest_change(remember(store, "key", stored(store, *files))) == 2e9
