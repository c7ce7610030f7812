"""The stand-in behaves as the driver's documentation says where tests rely on it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from r3llvm.capture.toolkit import find_toolkit
from r3llvm.toolchain import find_ptxas
from tests.fakecuda import FakeCuda
from tests.fakecuda.client import CudaError, Driver
from tests.fakecuda.exports import read_exports

PAGE = 2 << 20
N = 100
NOT_SUPPORTED, INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE, NOT_FOUND, NOT_READY = 801, 1, 2, 400, 500, 600


@pytest.fixture
def driver(fakecuda: FakeCuda) -> Iterator[Driver]:
    driver = Driver(fakecuda.private)
    yield driver
    driver.close()


def code_of(driver: Driver, name: str, *arguments: object) -> int:
    try:
        driver(name, *arguments)
    except CudaError as error:
        return error.code
    return 0


def function(driver: Driver, image: bytes, name: str) -> int:
    return driver.out("cuModuleGetFunction", driver.out("cuModuleLoadData", image), name.encode())


def launch(driver: Driver, fakecuda: FakeCuda, name: str, *arguments: ctypes._SimpleCData) -> None:
    driver.launch(function(driver, fakecuda.ptx.read_bytes() + b"\0", name), arguments)


def write_numbers(driver: Driver, kernel: int) -> bool:
    """Whether write_only does what it should."""
    out = driver.upload(np.zeros(N, np.uint32))
    driver.launch(kernel, [ctypes.c_uint64(out), ctypes.c_uint64(N)])
    expected = (np.arange(N, dtype=np.uint64) * 2654435761 + 1).astype(np.uint32)
    return bool((driver.download(out, expected) == expected).all())


def test_all_of_the_header_is_there(driver: Driver) -> None:
    toolkit = find_toolkit()
    assert toolkit
    exports = read_exports(toolkit.root / "include")
    assert len(exports.functions) > 500
    for name in exports.functions:
        assert getattr(driver.library, name)
    assert code_of(driver, "cuGraphicsUnregisterResource", 0) == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("base", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
        ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
        ("cuLaunchKernel", 12000, 1, "cuLaunchKernel"),
        ("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"),
        ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 13000, 0, "cuCtxCreate_v4"),
        ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuStreamGetCaptureInfo", 12000, 2, "cuStreamGetCaptureInfo_v2_ptsz"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ],
)
def test_functions_by_version(driver: Driver, base: str, version: int, flags: int, symbol: str) -> None:
    found, status = ctypes.c_void_p(), ctypes.c_int()
    driver(
        *("cuGetProcAddress_v2", base.encode(), ctypes.byref(found), ctypes.c_int(version), flags),
        ctypes.byref(status),
    )
    assert found.value == ctypes.cast(getattr(driver.library, symbol), ctypes.c_void_p).value
    assert status.value == 0


@pytest.mark.parametrize(("base", "version", "status"), [("cuNothing", 13000, 1), ("cuLaunchKernelEx", 11000, 2)])
def test_functions_that_are_not_there(driver: Driver, base: str, version: int, status: int) -> None:
    found, said = ctypes.c_void_p(), ctypes.c_int()
    arguments = (base.encode(), ctypes.byref(found), ctypes.c_int(version), 0, ctypes.byref(said))
    assert code_of(driver, "cuGetProcAddress_v2", *arguments) == NOT_FOUND
    assert (found.value, said.value) == (None, status)


def test_every_form_of_an_image(driver: Driver, fakecuda: FakeCuda, tmp_path: Path) -> None:
    ptxas = find_ptxas()
    if ptxas is None:
        pytest.skip("no ptxas here")
    cubin = tmp_path / "kernels.cubin"
    subprocess.run([ptxas, "-arch=sm_90", fakecuda.ptx, "-o", cubin], check=True)
    image = cubin.read_bytes()
    entry = (2).to_bytes(2, "little") + (0x101).to_bytes(2, "little") + (64).to_bytes(4, "little")
    entry = (entry + len(image).to_bytes(8, "little")).ljust(64, b"\0") + image
    header = bytes.fromhex("50ed55ba01001000") + len(entry).to_bytes(8, "little")
    for form in (image, header + entry):
        assert write_numbers(driver, function(driver, form, "write_only"))
        module = driver.out("cuModuleLoadData", form)
        address, size = ctypes.c_uint64(), ctypes.c_uint64()
        driver("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, b"counter")
        assert size.value == 4 and driver.download(address.value, np.zeros(1, np.uint32))[0] == 5
        mixed = driver.out("cuModuleGetFunction", module, b"mixed")
        offset = ctypes.c_uint64()
        layout = []
        for index in range(6):
            driver("cuFuncGetParamInfo", mixed, index, ctypes.byref(offset), ctypes.byref(size))
            layout.append((offset.value, size.value))
        assert layout == [(0, 8), (8, 1), (10, 2), (12, 4), (16, 8), (24, 1)]
        assert (
            code_of(driver, "cuFuncGetParamInfo", mixed, 6, ctypes.byref(offset), ctypes.byref(size)) == INVALID_VALUE
        )


@pytest.mark.parametrize(("image", "code"), [(b"\x01\x02\x03\0", 200), (b"no PTX\0", 218)])
def test_what_is_no_image(driver: Driver, image: bytes, code: int) -> None:
    module = ctypes.c_uint64()
    assert code_of(driver, "cuModuleLoadData", ctypes.byref(module), image) == code


@pytest.mark.parametrize(
    ("kernel", "code"),
    [("illegal_address", 700), ("misaligned_address", 716), ("traps", 719), ("fails_assertion", 710)],
)
def test_faults_are_sticky(driver: Driver, fakecuda: FakeCuda, kernel: str, code: int) -> None:
    out = driver.allocate(64)
    arguments = {"traps": [], "fails_assertion": [ctypes.c_uint32(1)]}.get(kernel, [ctypes.c_uint64(out)])
    launch(driver, fakecuda, kernel, *arguments)  # the launch itself succeeds
    assert code_of(driver, "cuCtxSynchronize") == code
    for name, more in (("cuMemFree_v2", (out,)), ("cuCtxSynchronize", ()), ("cuMemAlloc_v2", (out, 4))):
        assert code_of(driver, name, *more) == code
    after = Driver(fakecuda.private)  # another context is none the worse
    assert write_numbers(after, function(after, fakecuda.ptx.read_bytes() + b"\0", "write_only"))
    after.close()


def test_only_mapped_memory_can_be_used(driver: Driver, fakecuda: FakeCuda) -> None:
    """As far as pages tell: 2 MiB of them on a GPU, too."""
    out = driver.allocate(PAGE)
    launch(driver, fakecuda, "write_past", ctypes.c_uint64(out), ctypes.c_uint64(N))
    driver("cuCtxSynchronize")
    launch(driver, fakecuda, "write_past", ctypes.c_uint64(out), ctypes.c_uint64(PAGE // 4))
    assert code_of(driver, "cuCtxSynchronize") == 700


def test_a_kernel_that_never_ends(driver: Driver, fakecuda: FakeCuda) -> None:
    launch(driver, fakecuda, "runs_forever")
    assert code_of(driver, "cuStreamQuery", None) == NOT_READY
    assert code_of(driver, "cuStreamQuery", None) == NOT_READY


def test_the_host_cannot_touch_device_memory(fakecuda: FakeCuda) -> None:
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(Path(__file__).parent.parent.parent)!r})
from tests.fakecuda.client import Driver
ctypes.memset(Driver({str(fakecuda.private)!r}).allocate(64), 0, 1)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.returncode == -11, done.stderr


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = (
        *(("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location)),
        *(("metadata", ctypes.c_void_p), ("flags", ctypes.c_uint64)),
    )


class Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("location", Location), ("flags", ctypes.c_int))


PINNED = Properties(type=1, location=Location(1, 0))
READ_WRITE = Access(Location(1, 0), 3)


def test_virtual_memory(driver: Driver, fakecuda: FakeCuda) -> None:
    hint = 0x2F0000000000
    base = driver.out("cuMemAddressReserve", 4 * PAGE, 0, hint, 0)
    assert base == hint
    elsewhere = driver.out("cuMemAddressReserve", 4 * PAGE, 0, hint, 0)
    assert elsewhere not in (0, hint)  # only a hint
    driver("cuMemAddressFree", elsewhere, 4 * PAGE)
    memory = driver.out("cuMemCreate", PAGE, ctypes.byref(PINNED), 0)
    assert code_of(driver, "cuMemMap", base - PAGE, PAGE, 0, memory, 0) == INVALID_VALUE  # not reserved
    assert code_of(driver, "cuMemMap", base, PAGE + 1, 0, memory, 0) == INVALID_VALUE
    driver("cuMemMap", base, PAGE, 0, memory, 0)
    assert code_of(driver, "cuMemMap", base, PAGE, 0, memory, 0) == INVALID_VALUE  # mapped
    numbers = np.arange(N, dtype=np.uint32)
    copy = ("cuMemcpyHtoD_v2", base, numbers.ctypes.data, numbers.nbytes)
    assert code_of(driver, *copy) == INVALID_VALUE  # no access yet
    driver("cuMemMap", base + PAGE, PAGE, 0, memory, 0)  # the same memory twice
    driver("cuMemSetAccess", base, 2 * PAGE, ctypes.byref(READ_WRITE), 1)
    driver(*copy)
    np.testing.assert_array_equal(driver.download(base + PAGE, numbers), numbers)
    assert code_of(driver, "cuMemAddressFree", base, 4 * PAGE) == INVALID_VALUE  # still mapped
    driver("cuMemRelease", memory)
    np.testing.assert_array_equal(driver.download(base, numbers), numbers)  # the mappings keep it
    assert code_of(driver, "cuMemUnmap", base, PAGE // 2) == INVALID_VALUE
    driver("cuMemUnmap", base, 2 * PAGE)
    assert code_of(driver, *copy) == INVALID_VALUE
    driver("cuMemAddressFree", base, 4 * PAGE)


def test_memory_is_given_back(driver: Driver) -> None:
    free, total = ctypes.c_uint64(), ctypes.c_uint64()

    def available() -> int:
        driver("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    before = available()
    address = driver.allocate(3 * PAGE)
    assert available() == before - 3 * PAGE
    driver("cuMemFree_v2", address)
    assert available() == before
    result = ctypes.c_uint64()
    assert code_of(driver, "cuMemAlloc_v2", ctypes.byref(result), total.value + 1) == OUT_OF_MEMORY
    assert code_of(driver, "cuMemAlloc_v2", ctypes.byref(result), 0) == INVALID_VALUE
    assert code_of(driver, "cuMemFree_v2", address) == INVALID_VALUE


def test_a_stream_waits_for_a_value(driver: Driver) -> None:
    """And what is behind in the queue waits with it, while other streams go on."""
    stream = driver.out("cuStreamCreate", 1)
    gate = driver.out("cuMemHostAlloc", 4, 0)
    word = ctypes.c_uint32.from_address(gate)
    word.value = 0
    target = driver.upload(np.zeros(4, np.uint8))
    driver("cuStreamWaitValue32_v2", stream, gate, 1, 0)
    driver("cuMemsetD8Async", target, 7, 4, stream)
    assert code_of(driver, "cuStreamQuery", stream) == NOT_READY
    assert driver.download(target, np.zeros(4, np.uint8)).sum() == 0

    def open_later() -> None:
        time.sleep(0.01)
        word.value = 1

    thread = threading.Thread(target=open_later)
    thread.start()
    driver("cuStreamSynchronize", stream)
    thread.join()
    assert driver.download(target, np.zeros(4, np.uint8)).tolist() == [7] * 4


def test_times_are_the_same_each_time(driver: Driver, fakecuda: FakeCuda) -> None:
    start, end = driver.out("cuEventCreate", 0), driver.out("cuEventCreate", 0)
    kernel = function(driver, fakecuda.ptx.read_bytes() + b"\0", "do_nothing")
    took = ctypes.c_float()
    assert code_of(driver, "cuEventElapsedTime", ctypes.byref(took), start, end) == INVALID_HANDLE
    times = set()
    for _ in range(3):
        driver("cuEventRecord", start, None)
        driver.launch(kernel, [])
        driver("cuEventRecord", end, None)
        driver("cuEventElapsedTime", ctypes.byref(took), start, end)
        times.add(round(took.value, 6))
    assert times == {0.002001}  # milliseconds


def test_wrong_handles(driver: Driver) -> None:
    assert code_of(driver, "cuStreamSynchronize", 0x1234) == INVALID_HANDLE
    assert code_of(driver, "cuEventSynchronize", 0x1234) == INVALID_HANDLE
    assert code_of(driver, "cuModuleUnload", 0x1234) == INVALID_HANDLE
    driver("cuCtxPopCurrent_v2", None)
    assert code_of(driver, "cuCtxSynchronize") == 201  # CUDA_ERROR_INVALID_CONTEXT
    driver("cuCtxPushCurrent_v2", driver.context)


def test_capture_forbids_what_would_break_it(driver: Driver) -> None:
    stream = driver.out("cuStreamCreate", 0)
    result = ctypes.c_uint64()
    for call in (("cuMemAlloc_v2", ctypes.byref(result), 4), ("cuCtxSynchronize",), ("cuStreamSynchronize", stream)):
        driver("cuStreamBeginCapture_v2", stream, 0)
        assert code_of(driver, *call) == 900  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        assert code_of(driver, "cuStreamEndCapture", stream, ctypes.byref(result)) == 901  # …_INVALIDATED


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_process_has_no_driver(driver: Driver) -> None:
    child = os.fork()
    if child == 0:
        os._exit(driver.library.cuCtxSynchronize())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3  # CUDA_ERROR_NOT_INITIALIZED
