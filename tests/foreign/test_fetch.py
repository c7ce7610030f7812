from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.foreign import fetch
from tests.foreign.fetch import Package


def _sdist(path: Path, names: list[str]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(name)
            archive.addfile(entry, io.BytesIO(name.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R3LLVM_FOREIGN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _serve(monkeypatch: pytest.MonkeyPatch, archive: Path) -> None:
    monkeypatch.setattr(fetch, "_download", lambda package, folder: archive)


def test_a_source_distribution_is_unpacked_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = _sdist(tmp_path / "a-1.tar.gz", ["a-1/src/k.cu"])
    _serve(monkeypatch, tmp_path / "a-1.tar.gz")
    folder = fetch.fetch(Package("a", "1", digest))
    assert (folder / "src" / "k.cu").read_text() == "a-1/src/k.cu"
    _serve(monkeypatch, tmp_path / "gone")
    assert fetch.fetch(Package("a", "1", digest)) == folder
    assert list(cache.iterdir()) == [folder]


def test_another_archive_than_expected_is_refused(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _sdist(tmp_path / "a-1.tar.gz", ["a-1/k.cu"])
    _serve(monkeypatch, tmp_path / "a-1.tar.gz")
    with pytest.raises(ValueError, match="sha256"):
        fetch.fetch(Package("a", "1", "0" * 64))
    assert list(cache.iterdir()) == []


def test_a_path_out_of_the_archive_is_refused(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = _sdist(tmp_path / "a-1.tar.gz", ["a-1/k.cu", "../../escaped"])
    _serve(monkeypatch, tmp_path / "a-1.tar.gz")
    with pytest.raises(tarfile.OutsideDestinationError):
        fetch.fetch(Package("a", "1", digest))
    assert not (tmp_path / "escaped").exists()
    assert list(cache.iterdir()) == []


def test_only_the_named_folder_of_a_wheel_is_kept(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        for name in (
            "nvidia/cu13/include/rand.h",
            "nvidia/cu13/lib/librand.so",
            "nvidia/cu13/include/../../../escaped",
        ):
            wheel.writestr(name, name)
    _serve(monkeypatch, archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    folder = fetch.fetch(Package("a", "1", digest, wheel=True, keep="include"))
    assert [path.name for path in folder.rglob("*")] == ["rand.h"]
