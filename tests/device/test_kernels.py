"""The device code, against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakecuda import FakeCuda
from tests.fakecuda.client import Array, Driver

REACH = 4096
HOW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Kernels:
    """Launches the kernels of csrc/device by name; integers are 64 bits wide, arrays go up and come down again."""

    def __init__(self, driver: Driver, ptx: Path) -> None:
        self.driver, self.loaded = driver, driver.module(ptx)

    def __call__(self, name: str, *arguments: int | Array) -> None:
        addresses = [a if isinstance(a, int) else self.driver.upload(a) for a in arguments]
        function = self.driver.out("cuModuleGetFunction", self.loaded, name.encode())
        self.driver.launch(function, [ctypes.c_uint64(address) for address in addresses])
        for argument, address in zip(arguments, addresses, strict=True):
            if isinstance(argument, int):
                continue
            argument[...] = self.driver.download(address, argument)
            self.driver("cuMemFree_v2", address)


@pytest.fixture(scope="module", params=["stand-in", pytest.param("gpu", marks=pytest.mark.cuda)])
def kernels(request: pytest.FixtureRequest, fakecuda: FakeCuda) -> Iterator[Kernels]:
    try:
        driver = Driver(fakecuda.private if request.param == "stand-in" else "libcuda.so.1")
    except (OSError, RuntimeError) as error:
        pytest.skip(f"no GPU here ({error})")
    yield Kernels(driver, fakecuda.device_ptx)
    driver.close()


@st.composite
def memory(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[int]]:
    """Allocations (base, size), ascending and apart, and words that mostly point near one."""
    allocations, at = [], 0x300000000000
    for _ in range(draw(st.integers(1, 6))):
        at += 512 * draw(st.integers(0, 20))
        size = draw(st.integers(1, 9000))
        allocations.append((at, size))
        at += (size + 511) // 512 * 512
    near = st.builds(
        lambda which, offset: max(0, which[0] + offset),
        st.sampled_from(allocations),
        st.one_of(st.integers(-REACH - 2, REACH + 2), st.integers(-20000, 20000)),
    )
    ends = st.builds(
        lambda which, offset: which[0] + which[1] + offset,
        st.sampled_from(allocations),
        st.sampled_from([-1, 0, 1, REACH - 1, REACH, REACH + 1]),
    )
    anything = st.integers(0, 2**64 - 1)
    return allocations, draw(st.lists(st.one_of(near, ends, anything, st.just(0)), max_size=40))


@HOW
@given(memory())
def test_scan_words(kernels: Kernels, made: tuple[list[tuple[int, int]], list[int]]) -> None:
    allocations, values = made
    words = np.array(values, np.uint64)
    bases, sizes = (np.array(column, np.uint64) for column in zip(*allocations, strict=True))
    flags = np.zeros(len(allocations), np.uint8)
    low, high = allocations[0][0], allocations[-1][0] + allocations[-1][1]
    kernels("r3_scan_words", words, len(words), low, high, REACH, bases, sizes, len(allocations), flags)
    # Of the allocations around a word, the nearest before it and the nearest behind it count, if they are in reach.
    expected = np.zeros_like(flags)
    for word in values:
        before = [i for i, (base, _) in enumerate(allocations) if base <= word]
        behind = [i for i, (base, _) in enumerate(allocations) if base > word]
        if before and word < sum(allocations[before[-1]]) + REACH:
            expected[before[-1]] = 1
        if behind and allocations[behind[0]][0] - word <= REACH:
            expected[behind[0]] = 1
    np.testing.assert_array_equal(flags, expected)


@HOW
@given(st.integers(0, 500), st.integers(1, 70), st.sets(st.integers(0, 499)))
def test_changed_chunks(kernels: Kernels, n: int, chunk_words: int, changes: set[int]) -> None:
    before = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    after = before.copy()
    changed = [index for index in changes if index < n]
    after[changed] += np.uint64(1)
    flags = np.zeros(max(1, -(-n // chunk_words)), np.uint8)
    kernels("r3_changed_chunks", before, after, n, chunk_words, flags)
    assert set(np.flatnonzero(flags)) == {index // chunk_words for index in changed}


def tiles_of(parts: list[tuple[int, int, int]], shift: int) -> Array:
    """Tiles of at most 1 << (shift + 4) bytes for parts (to, from, bytes)."""
    most = 1 << (shift + 4)
    rows = [
        (to + at, source + at, min(most, size - at))
        for to, source, size in parts
        for at in range(0, max(size, 1), most)
    ]
    return np.array(rows, np.uint64)


@HOW
@given(st.integers(0, 4), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 300)), max_size=4))
def test_copying_and_filling_tiles(kernels: Kernels, shift: int, parts: list[tuple[int, int, int]]) -> None:
    """Ranges of any alignment; nothing beside them changes."""
    slot = 512
    source = np.random.default_rng(1).integers(0, 256, slot * max(1, len(parts)), dtype=np.uint8)
    target = np.full_like(source, 7)
    expected, filled = target.copy(), target.copy()
    driver = kernels.driver
    to, origin = driver.upload(target), driver.upload(source)
    placed = []
    for i, (a, b, size) in enumerate(parts):
        placed.append((to + i * slot + a, origin + i * slot + b, size))
        expected[i * slot + a : i * slot + a + size] = source[i * slot + b : i * slot + b + size]
        filled[i * slot + a : i * slot + a + size] = 0xA5
    tiles = tiles_of(placed, shift)
    kernels("r3_copy_tiles", tiles, len(tiles), shift)
    np.testing.assert_array_equal(driver.download(to, target), expected)
    driver("cuMemcpyHtoD_v2", to, target.ctypes.data, target.nbytes)
    kernels("r3_fill_tiles", tiles, len(tiles), shift, 0xA5)
    np.testing.assert_array_equal(driver.download(to, target), filled)
    wrong = np.zeros(1, np.uint64)
    kernels("r3_check_tiles", tiles, len(tiles), shift, 0xA5, wrong)
    assert wrong[0] == 0
    kernels("r3_check_tiles", tiles, len(tiles), shift, 0xA4, wrong)
    assert wrong[0] == sum(size for _, _, size in parts)
    for address in (to, origin):
        driver("cuMemFree_v2", address)


FLOATS: dict[int, tuple[type[np.floating], type[np.unsignedinteger]]] = {
    1: (np.float16, np.uint16),
    3: (np.float32, np.uint32),
    4: (np.float64, np.uint64),
}


def ordered(bits: Array) -> list[int]:
    """Integers in the order of the floating-point numbers, one apart where those are neighbours; both zeros are 0."""
    width = bits.dtype.itemsize * 8
    sign = 1 << (width - 1)
    return [-(value - sign) if value & sign else value for value in map(int, bits)]


@HOW
@given(st.data())
@pytest.mark.parametrize("element", FLOATS)
def test_comparing_elements(kernels: Kernels, element: int, data: st.DataObject) -> None:
    """Any bit patterns: what differs, where first, and how far what is finite is off."""
    number, unsigned = FLOATS[element]
    width = np.dtype(unsigned).itemsize
    pattern = st.integers(0, 2 ** (8 * width) - 1)
    expected_bits = np.array(data.draw(st.lists(pattern, min_size=1, max_size=40)), unsigned)
    near = st.integers(-3, 3).map(lambda step: step % 2 ** (8 * width))
    steps = data.draw(st.lists(st.one_of(near, pattern), min_size=len(expected_bits), max_size=len(expected_bits)))
    actual_bits = expected_bits + np.array(steps, unsigned)
    ulps = data.draw(st.integers(0, 4))
    relative = data.draw(st.sampled_from([0.0, 1e-3, 0.5]))

    result = compare(kernels, actual_bits, expected_bits, element, ulps, 0.0, relative)
    actual, expected = (bits.view(number).astype(np.float64) for bits in (actual_bits, expected_bits))
    differing, first, most_ulps, most_absolute = 0, 2**64 - 1, 0, 0.0
    apart = [abs(a - e) for a, e in zip(ordered(actual_bits), ordered(expected_bits), strict=True)]
    exact = not ulps and not relative
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if actual_bits[i] == expected_bits[i]:
            continue
        if np.isfinite(a) and np.isfinite(e):
            with np.errstate(over="ignore"):
                absolute = abs(a - e)
            most_ulps, most_absolute = max(most_ulps, apart[i]), max(most_absolute, absolute)
            good = not exact and (apart[i] <= ulps or absolute <= relative * abs(e) or absolute == 0)
        else:
            good = not exact and bool(np.isnan(a) and np.isnan(e))
        if not good:
            raw = (actual_bits[i : i + 1].view(np.uint8) != expected_bits[i : i + 1].view(np.uint8)).nonzero()[0]
            differing += len(raw) if exact else 1
            first = min(first, i * width + (int(raw[0]) if exact else 0))
    assert (result.differing, result.first, result.ulps) == (differing, first, most_ulps)
    assert result.absolute == most_absolute


class Result(ctypes.Structure):
    _fields_ = (
        ("differing", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
        ("ulps", ctypes.c_uint64),
        ("absolute", ctypes.c_double),
        ("relative", ctypes.c_double),
    )


def compare(
    kernels: Kernels, actual: Array, expected: Array, element: int, ulps: int, absolute: float, relative: float
) -> Result:
    driver, shift = kernels.driver, 2
    a, e = driver.upload(actual), driver.upload(expected)
    most = 1 << (shift + 4)
    tiles = np.array(
        [(a + at, e + at, min(most, actual.nbytes - at), 0, at) for at in range(0, actual.nbytes, most)], np.uint64
    )
    bounds = np.array([absolute, relative], np.float64).view(np.uint64)
    tolerance = np.array([element, ulps, *bounds], np.uint64)
    results = np.array([0, 2**64 - 1, 0, 0, 0], np.uint64)
    kernels("r3_compare_tiles", tiles, len(tiles), shift, tolerance, results)
    for address in (a, e):
        driver("cuMemFree_v2", address)
    return Result.from_buffer_copy(results.tobytes())


@HOW
@given(st.integers(1, 200), st.sets(st.integers(0, 199), max_size=9))
def test_comparing_bytes(kernels: Kernels, n: int, changes: set[int]) -> None:
    expected = np.arange(n, dtype=np.uint8)
    actual = expected.copy()
    changed = sorted(index for index in changes if index < n)
    actual[changed] ^= 0x40
    result = compare(kernels, actual, expected, 0, 0, 0.0, 0.0)
    assert (result.differing, result.first) == (len(changed), changed[0] if changed else 2**64 - 1)
