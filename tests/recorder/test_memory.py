"""What a kernel can reach, and where the application's memory comes from."""

from __future__ import annotations

import struct

import numpy as np

from r3llvm.recording.manifest import Launch
from tests.recorder.conftest import Record
from tests.recorder.test_launches import ARENA, N, region_at, words


def allocations(launch: Launch) -> list[int]:
    return [region.base for region in launch.regions if region.kind == "allocation"]


def test_pointers_in_memory_are_followed(record: Record) -> None:
    recorded = record("list")
    launch = recorded.launch("sum_list")
    result, first = words(launch)
    middle = struct.unpack_from("<Q", recorded.before(region_at(launch, first)))[0]
    last = struct.unpack_from("<Q", recorded.before(region_at(launch, middle)))[0]
    assert sorted(allocations(launch)) == sorted([result, first, middle, last])  # and not what only points to it
    assert struct.unpack("<Q", recorded.after(region_at(launch, result))) == (31,)


def test_scope_all(record: Record) -> None:
    assert len(allocations(record("list", R3LLVM_RECORD_SCOPE="all").launch("sum_list"))) == 5


def test_pointers_within_arguments_and_structures(record: Record) -> None:
    recorded = record("embedded")
    by_value, in_memory = recorded.launch("scale_view"), recorded.launch("scale_through")
    assert by_value.parameters[0].kind == "aggregate" and by_value.parameters[0].size == 16
    data, view = words(by_value)[0], words(in_memory)[0]
    assert allocations(by_value) == [data]
    assert sorted(allocations(in_memory)) == sorted([data, view])
    before = np.frombuffer(recorded.before(region_at(in_memory, data)), np.float32)
    after = np.frombuffer(recorded.after(region_at(in_memory, data)), np.float32)
    expected = before.copy()
    expected[1:51] *= 3
    np.testing.assert_array_equal(after, expected)


def test_chunks_that_do_not_change_are_kept_once(record: Record) -> None:
    recorded = record("large")
    launch = recorded.launch("write_only")
    (data,) = [region for region in launch.regions if region.kind == "allocation"]
    assert data.size == 1500001 and len(data.prologue) == 6
    assert words(launch)[0] == data.base + 600000
    changed = [i for i, (a, b) in enumerate(zip(data.prologue, data.epilogue, strict=True)) if a != b]
    assert changed == [600000 // 262144]
    before, after = (np.frombuffer(memory, np.uint8) for memory in (recorded.before(data), recorded.after(data)))
    expected = (np.arange(1500001) % 251).astype(np.uint8)
    expected[600000:604000] = 0
    np.testing.assert_array_equal(before, expected)
    written = (np.arange(1000, dtype=np.uint64) * 2654435761 + 1).astype(np.uint32)
    expected[600000:604000] = written.view(np.uint8)
    np.testing.assert_array_equal(after, expected)


def test_memory_of_another_device(record: Record) -> None:
    recorded = record("peers", FAKECUDA_DEVICES="2")
    assert len(recorded.launches("write_only")) == 1
    (reason,) = recorded.reasons("saxpy")
    assert "another GPU" in reason and not recorded.launches("saxpy")


def test_pitched_rows(record: Record) -> None:
    launch = record("pitched").launch("histogram")
    rows = region_at(launch, words(launch)[1])
    assert rows.size == 512 * 7


def test_stream_ordered_memory(record: Record) -> None:
    launches = record("stream_ordered").launches("saxpy")
    assert len(launches) == 3
    for launch in launches:
        assert all(address in ARENA for address in words(launch)[:2])
        assert len(allocations(launch)) == 2


def test_memory_that_the_application_maps(record: Record) -> None:
    recorded = record("own_mappings")
    launch = recorded.launch("scale_view")
    regions = [region for region in launch.regions if region.kind == "allocation"]
    assert [region.size for region in regions] == [4 << 20, 4 << 20]  # one a mapping
    after = b"".join(recorded.after(region) for region in regions)
    at = (4 << 20) - 2000
    np.testing.assert_array_equal(np.frombuffer(after[at : at + 4 * N], np.float32), 2 * (np.arange(N) + 1.0))
    assert not allocations(recorded.launch("do_nothing"))


def test_memory_without_a_fixed_address(record: Record) -> None:
    recorded = record("foreign")
    reasons = " ".join(recorded.reasons("write_only"))
    assert not recorded.launches("write_only")
    for kind in ("managed memory", "pinned host memory", "registered host memory"):
        assert kind in reasons
    (warning,) = recorded.launch("sum_list").warnings
    assert "managed memory" in warning
    assert recorded.journal.foreign == {
        "managed memory": 4 * N,
        "pinned host memory": 4 * N,
        "registered host memory": 4 * N,
    }


def test_memory_runs_out_as_without_the_recorder(record: Record) -> None:
    assert record("exhausts").outcome.output.startswith("2, more than one: 1\n")


def test_a_device_that_cannot_map_memory(record: Record) -> None:
    recorded = record("saxpy", FAKECUDA_NO_VMM="1")
    assert not recorded.journal.launches
    assert "nothing can be recorded" in recorded.outcome.errors


def test_physical_memory_that_the_driver_does_not_give(record: Record) -> None:
    """The arena fails half-way: what it cannot serve comes from the driver."""
    recorded = record("threads", FAKECUDA_FAIL="cuMemMap:3=1")
    assert recorded.outcome.output == "0 wrong\n"


def test_too_large_a_snapshot_is_refused(record: Record) -> None:
    recorded = record("saxpy", R3LLVM_RECORD_BYTES="4000")
    (reason,) = recorded.reasons("saxpy")
    assert "--max-bytes" in reason and not recorded.journal.launches
