"""The worker process: what it answers, and how it ends."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from r3llvm.recording import Region
from r3llvm.recording.manifest import Attribute, Relocation
from r3llvm.recording.recording import chunk_name
from r3llvm.runner.protocol import (
    Binary,
    Comparison,
    Failure,
    Fault,
    Hello,
    LaunchKey,
    Load,
    Loaded,
    Poison,
    Poisoned,
    Ran,
    Run,
    Stop,
    Time,
    Timed,
    Tolerance,
)
from tests.device.conftest import Recorded, Start
from tests.recording.fake import BASE

GRANULE = 2 << 20
SAME = Comparison(0)


def write_only(n: int) -> bytes:
    """What the kernel of that name leaves."""
    return (np.arange(n, dtype=np.uint64) * 2654435761 + 1).astype(np.uint32).tobytes()


def saxpy(recorded: Recorded, n: int = 100_000) -> LaunchKey:
    """y = 2 x + y, with y in more than one chunk."""
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    second = BASE + 4 * n + 4096
    regions = [
        recorded.region(y.tobytes(), (2 * x + y).tobytes()),
        recorded.region(x.tobytes(), x.tobytes(), base=second // 512 * 512),
    ]
    return recorded.add("saxpy", "QQfQ", (BASE, regions[1].base, 2.0, n), regions)


def words(recorded: Recorded, n: int, size: int = 0, **more: object) -> LaunchKey:
    """write_only into `n` words of a region of `size` bytes."""
    before = bytes(range(1, 256)) * (max(size, 4 * n) // 255 + 1)
    before = before[: max(size, 4 * n)]
    after = write_only(n) + before[4 * n :]
    return recorded.add("write_only", "QQ", (BASE, n), [recorded.region(before, after)], **more)


def test_a_right_kernel_equals_the_recording(recorded: Recorded, start: Start) -> None:
    launch = saxpy(recorded)
    worker = start(recorded.write())
    assert isinstance(worker.first, Hello)
    assert worker.first.pid == worker.process.pid
    assert worker.first.memory_bytes > 1 << 30
    loaded = worker.ask(Load(launch))
    assert isinstance(loaded, Loaded)
    region = recorded.launches[0].regions[0]
    before, after = (b"".join(recorded_chunks(recorded, hashes)) for hashes in (region.prologue, region.epilogue))
    assert loaded.changed == (sum(a != b for a, b in zip(before, after, strict=True)), 0)
    for _ in range(2):  # what the first leaves must not reach the second
        ran = worker.ask(Run(launch, recorded.binary("saxpy")))
        assert isinstance(ran, Ran)
        assert ran.comparisons == (SAME, SAME)
        assert ran.canaries == 0
        assert ran.seconds > 0
        assert ran.resident_blocks > 0
    worker.connection.send(Stop())
    assert worker.process.wait(60) == 0


def recorded_chunks(recorded: Recorded, hashes: tuple[str, ...]) -> list[bytes]:
    import zstandard

    return [zstandard.decompress((recorded.folder / chunk_name(name)).read_bytes()) for name in hashes]


def test_a_kernel_that_does_nothing_differs_as_the_recording_changes(recorded: Recorded, start: Start) -> None:
    launch = saxpy(recorded)
    worker = start(recorded.write())
    loaded = worker.ask(Load(launch))
    assert isinstance(loaded, Loaded)
    for binary in (None, recorded.binary("do_nothing")):
        ran = worker.ask(Run(launch, binary))
        assert isinstance(ran, Ran)
        first = 6  # y[1] is 1.0 before and 3.0 after: the third byte is the first that differs
        assert ran.comparisons == (Comparison(loaded.changed[0], first), SAME)


def test_a_write_beside_a_region_is_seen(recorded: Recorded, start: Start) -> None:
    launch = words(recorded, 1000)
    worker = start(recorded.write())
    ran = worker.ask(Run(launch, recorded.binary("write_past")))
    assert isinstance(ran, Ran)
    assert ran.canaries == 4
    clean = worker.ask(Run(launch, recorded.binary("write_only")))
    assert isinstance(clean, Ran)
    assert (clean.canaries, clean.comparisons) == (0, (SAME,))


ELEMENTS = {"f16": (np.float16, np.uint16), "f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64)}


@pytest.mark.parametrize("element", ELEMENTS)
def test_tolerances(recorded: Recorded, start: Start, element: str) -> None:
    kind, bits = ELEMENTS[element]
    pairs = [  # actual, expected
        (1.0, 1.0),
        (1.0, np.nextafter(kind(1), kind(2))),
        (np.nextafter(kind(4), kind(0)), 4.0),  # another exponent
        (0.0, -0.0),
        (math.nan, math.nan),
        (-math.inf, -math.inf),
        (100.0, 101.0),
        (np.finfo(kind).smallest_subnormal, -np.finfo(kind).smallest_subnormal),
    ]
    actual, expected = (np.array([pair[i] for pair in pairs], kind) for i in (0, 1))
    actual.view(bits)[4] += 1  # another NaN
    tail = b"\x01"  # less than an element
    launch = recorded.add("do_nothing", "", (), [recorded.region(actual.tobytes() + tail, expected.tobytes() + tail)])
    far = int(actual.view(bits)[6] ^ expected.view(bits)[6])
    ulps = abs(int(actual.view(bits)[6]) - int(expected.view(bits)[6]))
    assert far

    worker = start(recorded.write())

    def compare(tolerance: Tolerance) -> Comparison:
        ran = worker.ask(Run(launch, recorded.binary("do_nothing"), (tolerance,)))
        assert isinstance(ran, Ran)
        return ran.comparisons[0]

    differing = sum(a != b for a, b in zip(actual.tobytes(), expected.tobytes(), strict=True))
    assert compare(Tolerance()).differing == differing
    assert compare(Tolerance()).max_ulps == 0

    exact = compare(Tolerance(element))  # type: ignore[arg-type]
    assert exact.differing == differing
    assert exact.max_ulps == ulps
    assert exact.max_absolute == 1.0
    assert exact.max_relative == pytest.approx(2.0)  # of the smallest numbers, which differ in sign

    near = compare(Tolerance(element, ulps=2))  # type: ignore[arg-type]
    assert (near.differing, near.first) == (1, 6 * kind(0).nbytes)
    assert compare(Tolerance(element, ulps=ulps)).differing == 0  # type: ignore[arg-type]
    assert compare(Tolerance(element, absolute=1.0)).differing == 0  # type: ignore[arg-type]
    assert compare(Tolerance(element, absolute=0.5)).differing == 1  # type: ignore[arg-type]
    assert compare(Tolerance(element, relative=0.01)).differing == 1  # type: ignore[arg-type]
    assert compare(Tolerance(element, relative=2.0)).differing == 0  # type: ignore[arg-type]


def test_nothing_tolerates_what_is_not_finite(recorded: Recorded, start: Start) -> None:
    inf, nan = math.inf, math.nan
    pairs = [(nan, 1.0), (1.0, nan), (inf, -inf), (inf, 3e38), (3e38, inf), (nan, inf)]
    regions = []
    for i, pair in enumerate(pairs):
        actual, expected = (np.array([0, 0, value], np.float32).tobytes() for value in pair)
        regions.append(recorded.region(actual, expected, base=BASE + 512 * i))
    launch = recorded.add("do_nothing", "", (), regions)
    worker = start(recorded.write())
    wide = Tolerance("f32", ulps=2**31, absolute=inf, relative=inf)
    ran = worker.ask(Run(launch, None, (wide,) * len(pairs)))
    assert isinstance(ran, Ran)
    assert ran.comparisons == (Comparison(1, 8),) * len(pairs)


def test_a_number_for_a_recorded_zero_is_infinitely_far(recorded: Recorded, start: Start) -> None:
    before, after = (np.array([value, 1.0], np.float32).tobytes() for value in (1e-3, 0.0))
    launch = recorded.add("do_nothing", "", (), [recorded.region(before, after)])
    worker = start(recorded.write())
    ran = worker.ask(Run(launch, None, (Tolerance("f32", absolute=1e-2, relative=1e-2),)))
    assert isinstance(ran, Ran)
    found = ran.comparisons[0]
    assert (found.differing, found.max_absolute, found.max_relative) == (0, pytest.approx(1e-3), math.inf)


def test_bf16(recorded: Recorded, start: Start) -> None:
    actual, expected = (np.array(values, np.float32).view(np.uint16)[1::2] for values in ([1.0, 2.0], [1.5, 2.0]))
    launch = recorded.add("do_nothing", "", (), [recorded.region(actual.tobytes(), expected.tobytes())])
    worker = start(recorded.write())
    ran = worker.ask(Run(launch, None, (Tolerance("bf16", absolute=0.5),)))
    assert isinstance(ran, Ran)
    assert ran.comparisons == (Comparison(0, -1, 64, 0.5, 1 / 3),)


def test_poison(recorded: Recorded, start: Start) -> None:
    """write_only writes all but the region's last 100 bytes."""
    n = 70_000
    launch = words(recorded, n, 4 * n + 100)
    worker = start(recorded.write())
    right, nothing = recorded.binary("write_only"), recorded.binary("do_nothing")
    for pattern in (0xFF, 0xA5):
        assert worker.ask(Poison(launch, 0, pattern, "all")) == Poisoned(4 * n + 100)
        ran = worker.ask(Run(launch, right, learn=0))
        assert isinstance(ran, Ran)
        assert ran.consistent
        tail = ran.comparisons[0]
        assert 98 <= tail.differing <= 100  # one of them may look like poison
        assert 4 * n <= tail.first <= 4 * n + 2
    assert worker.ask(Poison(launch, 0, 0x77, "written")) == Poisoned(4 * n)
    ran = worker.ask(Run(launch, right))
    assert isinstance(ran, Ran)
    assert ran.comparisons == (SAME,)
    ran = worker.ask(Run(launch, nothing))
    assert isinstance(ran, Ran)
    assert ran.comparisons[0].differing == 4 * n - write_only(n).count(0x77)
    timed = worker.ask(Time(launch, right, least=6, most=6))
    assert isinstance(timed, Timed)
    assert timed.ran.comparisons == (SAME,)
    assert worker.ask(Poison(launch, 0, None)) == Poisoned(0)
    unpoisoned, untouched = worker.ask(Run(launch, nothing)), worker.ask(Run(launch, None))
    assert isinstance(unpoisoned, Ran)
    assert isinstance(untouched, Ran)
    assert unpoisoned.comparisons == untouched.comparisons


def test_poison_that_is_read_shows(recorded: Recorded, start: Start) -> None:
    launch = saxpy(recorded)
    worker = start(recorded.write())
    loaded = worker.ask(Load(launch))
    assert isinstance(loaded, Loaded)
    assert worker.ask(Poison(launch, 0, 0x40, "changed")) == Poisoned(loaded.changed[0])
    ran = worker.ask(Run(launch, recorded.binary("saxpy")))
    assert isinstance(ran, Ran)
    assert ran.comparisons[0].differing > 0
    worker.ask(Poison(launch, 0, 0x40, "all"))
    ran = worker.ask(Run(launch, recorded.binary("saxpy"), learn=0))
    assert isinstance(ran, Ran)
    assert not ran.consistent
    assert isinstance(worker.ask(Poison(launch, 1, 0, "written")), Failure)  # of which nothing was learnt


def test_variables(recorded: Recorded, start: Start) -> None:
    counter = recorded.region(struct.pack("<I", 41), struct.pack("<I", 42), variable="counter")
    absent = recorded.region(b"abcd", b"abcd", variable="absent")
    out = recorded.region(bytes(4), struct.pack("<I", 42))
    launch = recorded.add("count_calls", "Q", (BASE,), [counter, absent, out])
    into = recorded.add(
        "count_calls",
        "Q",
        (0xDEAD,),
        [counter],
        relocations=(Relocation(offset=0, variable="counter", addend=0),),
    )
    lost = recorded.add("do_nothing", "", (), [recorded.region(b"abcd", b"abce", variable="absent")])
    wrong = recorded.add("do_nothing", "", (), [recorded.region(b"abcdefgh", b"abcdefgh", variable="counter")])
    worker = start(recorded.write())
    binary = recorded.binary("count_calls")
    for request in (Run(launch, binary), Time(launch, binary, most=5)):
        reply = worker.ask(request)
        ran = reply.ran if isinstance(reply, Timed) else reply
        assert isinstance(ran, Ran), reply
        assert ran.comparisons == (SAME, SAME, SAME)
    for pattern in (0xFF, 0xA5):
        assert worker.ask(Poison(launch, 1, pattern, "all")) == Poisoned(4)
        learnt = worker.ask(Run(launch, binary, learn=1))
        assert isinstance(learnt, Ran)
        assert learnt.consistent
    assert worker.ask(Poison(launch, 1, 0x77, "written")) == Poisoned(0)  # it is not there to be written
    nothing = worker.ask(Run(launch, None))
    assert isinstance(nothing, Ran)
    assert [comparison.differing for comparison in nothing.comparisons] == [1, 0, 1]
    into_ran = worker.ask(Run(into, binary))
    assert isinstance(into_ran, Ran)
    assert into_ran.comparisons == (SAME,)
    for unfit, reason in (
        (lost, "do_nothing changes the variable absent, which this binary does not have"),
        (wrong, "the variable counter has 4 bytes in this binary, but 8 were recorded"),
    ):
        assert worker.ask(Run(unfit, binary)) == Fault(500, "CUDA_ERROR_NOT_FOUND", "load", False, reason)


def test_launches_share_the_addresses(recorded: Recorded, start: Start) -> None:
    launches = [words(recorded, n) for n in (10, 2000, 300_000)]
    worker = start(recorded.write())
    for launch in (*launches, *reversed(launches)):
        ran = worker.ask(Run(launch, recorded.binary("write_only")))
        assert isinstance(ran, Ran)
        assert (ran.canaries, ran.comparisons) == (0, (SAME,))


def test_launches_make_room_for_another(recorded: Recorded, start: Start) -> None:
    n = 2 << 20  # 8 MiB, which are there twice: live and as the prologue; once more where they are poisoned
    launches = [words(recorded, n)]
    data = write_only(n)
    region = recorded.region(bytes(4 * n), data, base=BASE + 32 * GRANULE)
    launches.append(recorded.add("write_only", "QQ", (region.base, n), [region]))
    worker = start(recorded.write(), FAKECUDA_MEMORY=str(60 << 20))
    assert worker.ask(Poison(launches[0], 0, 0x77)) != Poisoned(0)
    for launch in (0, 1, 0):
        ran = worker.ask(Run(launches[launch], recorded.binary("write_only")))
        assert isinstance(ran, Ran)
        assert ran.comparisons == (SAME,)
    idle = worker.ask(Run(launches[0], None))
    assert isinstance(idle, Ran)
    assert idle.comparisons[0].differing > 4 * n * 0.99  # still poisoned


def test_a_launch_that_is_too_large(recorded: Recorded, start: Start) -> None:
    launch = words(recorded, 4 << 20)
    worker = start(recorded.write(), FAKECUDA_MEMORY=str(24 << 20))
    reply = worker.ask(Load(launch))
    assert isinstance(reply, Failure)
    assert "not enough free memory" in reply.message


def test_times_are_of_restored_memory(recorded: Recorded, start: Start) -> None:
    data = np.arange(5000, dtype=np.uint64).astype(np.uint8)
    counts = np.bincount(data, minlength=256).astype(np.uint32)
    bins = recorded.region(bytes(1024), counts.tobytes())
    read = recorded.region(data.tobytes(), data.tobytes(), base=BASE + 4096)
    launch = recorded.add("histogram", "QQQ", (bins.base, read.base, len(data)), [bins, read])
    worker = start(recorded.write())
    binary = recorded.binary("histogram")
    for cache in ("cold", "warm"):
        timed = worker.ask(Time(launch, binary, cache=cache, least=40, most=40))  # type: ignore[arg-type]
        assert isinstance(timed, Timed)
        assert timed.ran.comparisons == (SAME, SAME)
        assert len(timed.times) == 40
        assert min(timed.times) > 0
        assert timed.batch == 1  # it adds to what it finds: a second launch would do other work
        assert not timed.hopeless
    few = worker.ask(Time(launch, binary, most=3))
    assert isinstance(few, Timed)
    assert len(few.times) == 3
    hopeless = worker.ask(Time(launch, binary, bound=1e-12))
    assert isinstance(hopeless, Timed)
    assert hopeless.hopeless
    assert len(hopeless.times) == 6
    wrong = worker.ask(Time(launch, recorded.binary("do_nothing"), most=6))
    assert isinstance(wrong, Timed)
    assert wrong.ran.comparisons[0].differing > 0


def test_geometry_and_attributes(recorded: Recorded, start: Start, tmp_path, platform: str) -> None:
    policy = Attribute(id=10, value=bytes(64).hex())  # the default memory synchronisation domain
    launch = words(recorded, 100, cooperative=True, attributes=(policy,), dynamic_shared=64, shared_carveout=50)
    plain = words(recorded, 100)
    recording, log = recorded.write(), tmp_path / "log"
    worker = start(recording, FAKECUDA_LOG=str(log)) if platform == "stand-in" else start(recording)
    for binary in (
        recorded.binary("write_only"),
        Binary(recorded.ptx, "write_only", grid=(2, 1, 1), block=(32, 1, 1), dynamic_shared=100 << 10),
    ):
        for position in (launch, plain):
            ran = worker.ask(Run(position, binary))
            assert isinstance(ran, Ran), ran
            assert ran.comparisons == (SAME,)
    if platform == "stand-in":
        lines = [line for line in log.read_text().splitlines() if line.startswith("write_only")]
        assert lines == [
            "write_only 4 1 1 64 1 1 64",
            "write_only 4 1 1 64 1 1 0",
            f"write_only 2 1 1 32 1 1 {100 << 10}",
            f"write_only 2 1 1 32 1 1 {100 << 10}",
        ]


def test_refused_launches_do_no_harm(recorded: Recorded, start: Start) -> None:
    launch = words(recorded, 100)
    worker = start(recorded.write())
    code = recorded.ptx
    for binary, step in (
        (Binary(b"no image", "write_only"), "load"),
        (Binary(code, "no_such_kernel"), "load"),
        (Binary(code, "write_only", block=(4096, 1, 1)), "launch"),
        (Binary(code, "write_only", dynamic_shared=16 << 20), "launch"),
    ):
        for request in (Run(launch, binary), Time(launch, binary)):
            fault = worker.ask(request)
            assert isinstance(fault, Fault)
            assert (fault.step, fault.sticky) == (step, False)
            assert fault.code > 0
            assert fault.name.startswith("CUDA_ERROR_")
    ran = worker.ask(Run(launch, recorded.binary("write_only")))
    assert isinstance(ran, Ran)
    assert ran.comparisons == (SAME,)


FAULTS = {
    "illegal_address": {700},
    "misaligned_address": {716},
    "traps": {715, 719},
    "fails_assertion": {710},
}


@pytest.mark.parametrize("kernel", FAULTS)
@pytest.mark.parametrize("timed", [False, True])
def test_faults_end_the_worker(recorded: Recorded, start: Start, kernel: str, timed: bool) -> None:
    layout, argument = ("I", 1) if kernel == "fails_assertion" else ("Q", BASE)
    region = recorded.region(bytes(64), bytes(64))
    launch = recorded.add(
        kernel, "" if kernel == "traps" else layout, () if kernel == "traps" else (argument,), [region]
    )
    worker = start(recorded.write())
    binary = recorded.binary(kernel)
    fault = worker.ask(Time(launch, binary) if timed else Run(launch, binary))
    assert isinstance(fault, Fault)
    assert fault.code in FAULTS[kernel]
    assert (fault.step, fault.sticky) == ("run", True)
    assert ("Assertion `x == 0` failed" in fault.output) == (kernel == "fails_assertion")
    assert worker.process.wait(60) == 0


def test_a_kernel_that_never_ends_ends_with_its_runner(recorded: Recorded, start: Start) -> None:
    launch = recorded.add("runs_forever", "", (), [recorded.region(bytes(64), bytes(64))])
    worker = start(recorded.write())
    assert isinstance(worker.ask(Load(launch)), Loaded)
    worker.connection.send(Run(launch, recorded.binary("runs_forever")))
    assert not worker.connection.poll(0.2)
    assert worker.close() == 0


def test_a_damaged_recording(recorded: Recorded, start: Start) -> None:
    launch = words(recorded, 100)
    region: Region = recorded.launches[0].regions[0]
    recording = recorded.write()
    (recorded.folder / chunk_name(region.epilogue[0])).write_bytes(b"damaged")
    worker = start(recording)
    reply = worker.ask(Load(launch))
    assert isinstance(reply, Failure)
    assert f"chunk {region.epilogue[0]}" in reply.message
    missing = worker.ask(Load(LaunchKey(7)))
    assert isinstance(missing, Failure)
    assert "no launch 7" in missing.message


@pytest.mark.parametrize(
    ("environment", "device", "message"),
    [
        ({}, 7, "there is no GPU 7"),
        ({"FAKECUDA_NO_VMM": "1"}, 0, "no virtual memory management"),
        ({"FAKECUDA_FAIL": "cuMemAddressReserve=2"}, 0, "cuMemAddressReserve: CUDA_ERROR_OUT_OF_MEMORY"),
        ({"FAKECUDA_FAIL": "cuInit=100"}, 0, "cannot be used"),
    ],
)
def test_a_gpu_that_cannot_be_had(
    recorded: Recorded, start: Start, environment: dict[str, str], device: int, message: str
) -> None:
    words(recorded, 100)
    worker = start(recorded.write(), device, **environment)
    assert isinstance(worker.first, Failure)
    assert message in worker.first.message
    assert worker.process.wait(60) == 0
