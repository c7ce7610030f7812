"""The store of captured modules."""

import json
from pathlib import Path

import pytest

from r3llvm.capture import Store, StoredModule, default_store
from r3llvm.errors import R3Error
from r3llvm.files import content_hash
from tests.modules import assemble


def describe(bitcode: bytes) -> StoredModule:
    return StoredModule(
        hash=content_hash(bitcode),
        source="/src/app.cu",
        command=("clang++", "app.cu"),
        directory="/src",
        arch="sm_90",
        compiler="clang version 22",
        created="2026-01-01T00:00:00+00:00",
    )


def test_keeps_modules_and_images(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    module = describe(b"BC")
    store.add(b"BC", module)
    store.add_image("0" * 32, module.hash)
    again = Store(tmp_path / "store")
    assert again.module(module.hash) == b"BC"
    assert again.describe(module.hash) == module
    assert again.image("0" * 32) == module.hash
    assert again.image("1" * 32) is None
    assert (tmp_path / "store" / "images" / ("0" * 32)).read_text() == f"{module.hash}\n"
    assert not list((tmp_path / "store").rglob(".*"))


def test_missing_and_damaged_modules_say_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path)
    module = describe(b"BC")
    with pytest.raises(R3Error, match="--store"):
        store.module(module.hash)
    store.add(b"BC", module)
    (tmp_path / "modules" / f"{module.hash}.bc").write_bytes(b"B")
    with pytest.raises(R3Error, match="damaged"):
        store.module(module.hash)
    (tmp_path / "modules" / f"{module.hash}.json").write_text("{")
    with pytest.raises(R3Error, match="damaged"):
        store.describe(module.hash)
    with pytest.raises(R3Error, match="not the hash"):
        store.module("../x")


def test_a_store_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(R3Error, match="cannot write"):
        Store(tmp_path / "file").add_image("0" * 32, "1" * 32)


def test_the_default_store_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("R3LLVM_STORE", str(tmp_path / "named"))
    assert default_store() == tmp_path / "named"
    monkeypatch.delenv("R3LLVM_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_store() == tmp_path / "r3llvm" / "store"


def test_a_modules_variables_are_listed_for_the_recorder(tmp_path: Path) -> None:
    bitcode = assemble(
        b"@total = addrspace(1) externally_initialized global i32 0, align 4\n"
        b'@text = private unnamed_addr constant [2 x i8] c"a\\00"\n'
    )
    store = Store(tmp_path)
    store.add(bitcode, describe(bitcode))
    file = tmp_path / "modules" / f"{content_hash(bitcode)}.json"
    assert json.loads(file.read_text())["variables"] == ["total"]
    assert store.describe(content_hash(bitcode)).variables == ("total",)
    store.add(b"BC", describe(b"BC"))
    unknown = tmp_path / "modules" / f"{content_hash(b'BC')}.json"
    assert "variables" not in json.loads(unknown.read_text())
    assert store.describe(content_hash(b"BC")).variables is None
