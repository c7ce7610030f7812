"""Each runner against the suite that all share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from r3llvm.capture.toolkit import find_toolkit, hostcuda_library
from r3llvm.errors import R3Error
from r3llvm.recording import Recording
from r3llvm.runner import Runner
from r3llvm.toolchain import gpus, python_package
from tests.runner.conformance import Conformance

pytest.importorskip("r3llvm._native", reason="r3llvm's extension is not built")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not ((shutil.which("clang++-22") or shutil.which("clang++")) and find_toolkit()),
        reason="needs clang and the CUDA headers",
    ),
]


class TestHost(Conformance):
    device = "host"

    @pytest.fixture(scope="class", autouse=True)
    def runtime(self) -> None:
        try:
            hostcuda_library()
        except R3Error as error:
            pytest.skip(str(error))

    @pytest.fixture(scope="class")
    def runner(self, recording: Recording) -> Iterator[Runner]:
        from r3llvm.runner.host import HostRunner

        with HostRunner(recording, seconds=3.0) as opened:
            yield opened


@pytest.mark.cuda
class TestCuda(Conformance):
    device = "cuda"

    @pytest.fixture(scope="class", autouse=True)
    def gpu(self) -> None:
        if not gpus():
            pytest.skip("no GPU here")
        if not python_package("pycuda").found:
            pytest.skip("no PyCUDA here: pip install 'r3llvm[cuda]'")

    @pytest.fixture(scope="class")
    def runner(self, recording: Recording) -> Iterator[Runner]:
        from r3llvm.runner.cuda import CudaRunner

        with CudaRunner(recording) as opened:
            yield opened
