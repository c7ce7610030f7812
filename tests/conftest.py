"""What tests of several packages share."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest

from r3llvm.capture.toolkit import find_toolkit
from r3llvm.toolchain import find_clang
from tests import fakecuda as stand_in


@pytest.fixture(scope="session")
def fakecuda(request: pytest.FixtureRequest) -> stand_in.FakeCuda:
    """A libcuda.so.1 for machines that have none. Compiled once: kept in pytest's cache until a source changes."""
    toolkit, clang = find_toolkit(), find_clang()
    if toolkit is None or not (toolkit.root / "include" / "cudaTypedefs.h").exists():
        pytest.skip("no CUDA headers here: pip install nvidia-cuda-runtime nvidia-cuda-crt")
    if clang is None:
        pytest.skip("no clang++ here: install clang-22")
    digest = hashlib.blake2b(str((toolkit.root, clang)).encode(), digest_size=8)
    for source in stand_in.sources():
        digest.update(source.read_bytes())
    assert request.config.cache
    folder = Path(request.config.cache.mkdir("fakecuda")) / digest.hexdigest()
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
        stand_in.build_fakecuda(unfinished, toolkit.root / "include", clang)
        try:
            unfinished.rename(folder)
        except OSError:  # another session was faster
            shutil.rmtree(unfinished)
    return stand_in.FakeCuda(folder)
