"""Launches, in each way that a program can reach the driver and launch with it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from r3llvm.recording.manifest import Launch, Region
from tests.recorder.conftest import Record, Recorded

ARENA = range(0x300000000000, 0x310000000000)
N = 3000
REACHES = ("dlsym", "lookup", "lookup_old", "lookup_per_thread", "linked", "linked_per_thread")


def words(launch: Launch) -> list[int]:
    data = bytes.fromhex(launch.arguments)
    return list(struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]))


def region_at(launch: Launch, address: int) -> Region:
    (region,) = [region for region in launch.regions if region.base == address]
    return region


def floats(recorded: Recorded, region: Region, when: str) -> np.ndarray:
    data = recorded.before(region) if when == "before" else recorded.after(region)
    return np.frombuffer(data, np.float32)


@pytest.mark.parametrize("reach", REACHES)
def test_every_way_to_the_driver(record: Record, reach: str) -> None:
    recorded = record("saxpy", reach=reach)
    first, second = recorded.launches("saxpy")
    assert [first.index, second.index] == [0, 1]
    assert (first.grid, first.block, first.dynamic_shared, first.cooperative) == ((2, 1, 1), (32, 1, 1), 0, False)
    assert [(p.offset, p.size, p.kind) for p in first.parameters] == [
        (0, 8, "pointer"),
        (8, 8, "pointer"),
        (16, 4, "scalar"),
        (24, 8, "scalar"),
    ]
    y, x = words(first)[:2]
    assert y in ARENA and x in ARENA and words(first)[3] == N
    assert struct.unpack_from("<f", bytes.fromhex(first.arguments), 16) == (2.0,)

    # Exactly what the arguments reach, as the application asked for it.
    assert {region.base: region.size for region in first.regions} == {x: 4 * N, y: 4 * N} | variables(first)
    ramp = np.arange(N, dtype=np.float32)
    np.testing.assert_array_equal(floats(recorded, region_at(first, x), "before"), ramp + 1)
    np.testing.assert_array_equal(floats(recorded, region_at(first, y), "before"), ramp + 2)
    np.testing.assert_array_equal(floats(recorded, region_at(first, y), "after"), 2 * (ramp + 1) + ramp + 2)
    assert region_at(first, x).epilogue == region_at(first, x).prologue
    assert region_at(second, y).prologue == region_at(first, y).epilogue

    assert recorded.journal.ended and recorded.journal.launches_seen == 2
    if not recorded.gpu:
        assert (recorded.journal.device, recorded.journal.capability) == ("r3llvm fake GPU", "9.0")
    assert recorded.outcome.errors == recorded.plain.errors


def variables(launch: Launch) -> dict[int, int]:
    return {region.base: region.size for region in launch.regions if region.kind == "variable"}


def test_the_image_is_kept(record: Record) -> None:
    recorded = record("saxpy")
    (image,) = recorded.journal.images.values()
    assert image.kind == "ptx"
    assert {launch.image for launch in recorded.journal.launches} == {image.hash}
    assert all(launch.module is None for launch in recorded.journal.launches)  # the store is empty
    kept = (recorded.folder / "images" / image.hash).read_bytes()
    assert len(kept) == image.size and b".entry saxpy" in kept


@pytest.mark.parametrize("application", ["mixed", "packed"])
def test_parameters_of_all_sizes(record: Record, application: str) -> None:
    recorded = record(application)
    launch = recorded.launch("mixed")
    layout = [(p.offset, p.size, p.alignment) for p in launch.parameters]
    assert layout == [(0, 8, 8), (8, 1, 1), (10, 2, 2), (12, 4, 4), (16, 8, 8), (24, 1, 1)]
    packed = bytes.fromhex(launch.arguments)
    kinds = {8: "B", 10: "H", 12: "I", 16: "d", 24: "B"}  # by offset
    assert [struct.unpack_from(f"<{kind}", packed, at)[0] for at, kind in kinds.items()] == [1, 2, 3, 4.5, 5]
    out = region_at(launch, words(launch)[0])
    assert struct.unpack("<d", recorded.after(out)) == (15.5,)


def test_extended_launches(record: Record) -> None:
    launch = record("extended").launch("write_only")
    assert (launch.grid, launch.block, launch.dynamic_shared) == ((4, 1, 1), (64, 1, 1), 256)
    (cluster,) = launch.attributes  # the priority changes nothing that the launch does
    assert cluster.id == 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert struct.unpack_from("<3I", bytes.fromhex(cluster.value)) == (2, 1, 1)


def test_cooperative_launches(record: Record) -> None:
    launch = record("cooperative").launch("write_only")
    assert launch.cooperative and launch.index == 0


@pytest.mark.parametrize("reach", ["dlsym", "lookup_per_thread"])
def test_kernels_of_libraries(record: Record, reach: str) -> None:
    """A CUkernel in a CUfunction's place, and the CUfunction that it stands for."""
    first, second = record("library", reach=reach, R3LLVM_RECORD_LAUNCHES="0,1").launches("count_calls")
    assert first.image == second.image and first.regions != second.regions
    assert [region.name for region in first.regions if region.name == "counter"] == ["counter"]


def test_module_variables(record: Record) -> None:
    recorded = record("variables", R3LLVM_RECORD_LAUNCHES="0,1")
    first, second = recorded.launches("count_calls")
    for launch, before in ((first, 5), (second, 6)):
        (counter,) = [region for region in launch.regions if region.name == "counter"]
        assert (counter.kind, counter.size) == ("variable", 4)
        assert struct.unpack("<I", recorded.before(counter)) == (before,)
        assert struct.unpack("<I", recorded.after(counter)) == (before + 1,)
    (table,) = [region for region in recorded.launch("look_up").regions if region.name == "table"]
    assert struct.unpack("<4f", recorded.before(table)) == (1.0, 2.5, -3.0, 0.25)
    # An argument that points into a variable is told by the variable's name.
    (relocation,) = recorded.launch("histogram").relocations
    assert (relocation.offset, relocation.variable, relocation.addend) == (0, "counter", 0)
    assert recorded.launch("histogram").parameters[0].kind == "pointer"


def test_launches_that_the_driver_refuses(record: Record) -> None:
    recorded = record("refused_launches")
    assert [launch.block for launch in recorded.launches("write_only")] == [(1, 1, 1)]


def test_streams_that_capture(record: Record) -> None:
    recorded = record("captured")
    (launch,) = recorded.launches("saxpy")  # the one outside
    assert launch.index == 3
    assert (recorded.journal.captured_launches, recorded.journal.graph_launches) == (3, 2)


def test_modules_that_are_unloaded(record: Record) -> None:
    recorded = record("unloads")
    launches = recorded.launches("count_calls")
    assert launches and {launch.image for launch in launches} == set(recorded.journal.images)
    assert recorded.journal.launches_seen == 3


def test_faults_stay_the_applications(record: Record) -> None:
    recorded = record("faults")
    assert recorded.outcome.output.splitlines()[1] == "synchronise CUDA_ERROR_ILLEGAL_ADDRESS"
    assert not recorded.launches("illegal_address") and recorded.reasons("illegal_address")
    # The context died; what had not yet been copied died with it.
    assert recorded.launches("write_only") or recorded.reasons("write_only")
