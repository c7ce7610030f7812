"""What the recorder writes, and that the application never notices it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from r3llvm.files import content_hash
from r3llvm.recording.manifest import Launch
from tests.hostcuda.conftest import MODULE, Program


@dataclass(frozen=True)
class Recorded:
    folder: Path

    def lines(self, kind: str) -> list[dict[str, Any]]:
        entries = [json.loads(line) for line in (self.folder / "journal.jsonl").read_text().splitlines()]
        return [{k: v for k, v in entry.items() if k != "type"} for entry in entries if entry["type"] == kind]

    def launches(self) -> list[Launch]:
        return [Launch.model_validate(line) for line in self.lines("launch")]

    def refusals(self) -> dict[str, str]:
        return {line["kernel"]: line["reason"] for line in self.lines("refusal")}

    def memory(self, chunks: tuple[str, ...]) -> bytes:
        data = b""
        for name in chunks:
            chunk = zstandard.decompress((self.folder / "chunks" / name[:2] / f"{name}.zst").read_bytes())
            assert content_hash(chunk) == name
            assert len(chunk) <= 256 * 1024
            data += chunk
        return data


@pytest.fixture
def record(launcher: Program, tmp_path: Path) -> Callable[..., Recorded]:
    """Runs a check under the recorder; the application must not notice."""

    def record(check: str, expect_errors: bool = False, **environment: str) -> Recorded:
        plain = launcher.passes(check)
        folder = tmp_path / f"recording-{len(list(tmp_path.iterdir()))}"
        recorded = launcher.passes(check, R3LLVM_RECORD=str(folder), **environment)
        assert recorded.output == plain.output
        assert expect_errors or recorded.errors == plain.errors
        return Recorded(folder)

    return record


def test_pointers_in_memory_are_followed(record: Callable[..., Recorded]) -> None:
    recording = record("record_pointers_in_memory")
    (launch,) = recording.launches()
    assert launch.kernel == "_Z4walkP4Node"
    assert launch.module == content_hash(MODULE)
    assert (launch.grid, launch.block, launch.dynamic_shared, launch.cooperative) == ((1, 1, 1), (1, 1, 1), 0, False)
    nodes = [region for region in launch.regions if region.kind == "allocation"]
    assert [region.size for region in nodes] == [16, 16, 16]
    assert int.from_bytes(bytes.fromhex(launch.arguments), "little") == nodes[2].base
    for number, (region, value) in enumerate(zip(nodes, (1, 20, 300), strict=True)):
        following = nodes[number - 1].base if number else 0
        assert struct.unpack("<QQ", recording.memory(region.prologue)) == (following, value)
        assert struct.unpack("<QQ", recording.memory(region.epilogue)) == (following, 2 * value)
    assert recording.lines("end") == [{"launches_seen": 1}]


def test_launches_that_differ_in_more_than_addresses_are_recorded(record: Callable[..., Recorded]) -> None:
    recording = record("record_distinct_launches", R3LLVM_RECORD_MAX="5")
    launches = recording.launches()
    assert [launch.index for launch in launches] == [0, 3, 6, 9, 10]
    assert [(launch.grid[0], launch.block[0]) for launch in launches] == [(1, 32), (1, 64), (1, 64), (2, 64), (2, 64)]
    assert [bytes.fromhex(launch.arguments)[8] for launch in launches] == [5, 5, 6, 0, 1]
    assert recording.lines("end") == [{"launches_seen": 20}]


def test_four_launches_a_kernel_unless_told_otherwise(record: Callable[..., Recorded]) -> None:
    assert len(record("record_distinct_launches").launches()) == 4
    assert len(record("record_distinct_launches", R3LLVM_RECORD_MAX="100").launches()) == 13
    assert record("record_distinct_launches", R3LLVM_RECORD_MAX="0").launches() == []


def test_variables_are_recorded(record: Callable[..., Recorded]) -> None:
    recording = record("record_variables")
    (launch,) = recording.launches()
    variables = {region.name: region for region in launch.regions}
    assert all(region.kind == "variable" for region in launch.regions)
    assert {name: region.size for name, region in variables.items()} == {"counter": 4, "table": 64, "managed": 4}
    assert recording.memory(variables["counter"].prologue) == bytes(4)
    assert recording.memory(variables["counter"].epilogue) == b"\1\0\0\0"
    assert recording.memory(variables["table"].prologue) == b"\x09" * 64
    assert variables["table"].epilogue == variables["table"].prologue


def test_aggregates_are_searched_for_pointers(record: Callable[..., Recorded]) -> None:
    (launch,) = record("record_an_aggregate").launches()
    (parameter,) = launch.parameters
    assert (parameter.offset, parameter.size, parameter.alignment, parameter.kind) == (0, 16, 8, "aggregate")
    assert [region.size for region in launch.regions if region.kind == "allocation"] == [64]


def test_a_pointer_past_the_end_reaches_what_it_follows(record: Callable[..., Recorded]) -> None:
    recording = record("record_a_pointer_past_the_end")
    (launch,) = recording.launches()
    (region,) = (region for region in launch.regions if region.kind == "allocation")
    assert region.base + region.size == int.from_bytes(bytes.fromhex(launch.arguments), "little")
    assert recording.memory(region.epilogue) == bytes(4092) + b"\x09\0\0\0"


def test_large_memory_is_cut_into_chunks_that_are_stored_once(record: Callable[..., Recorded]) -> None:
    recording = record("record_large_memory")
    (launch,) = recording.launches()
    (region,) = (region for region in launch.regions if region.kind == "allocation")
    assert region.size == 1 << 20
    assert len(region.prologue) == 4
    assert len(set(region.prologue)) == 1  # zeros
    assert region.epilogue[1:] == region.prologue[1:]
    assert recording.memory(region.epilogue) == b"\1\0\0\0" * 100 + bytes((1 << 20) - 400)
    stored = {path.stem for path in (recording.folder / "chunks").rglob("*.zst")}
    assert stored == {name for region in launch.regions for name in (*region.prologue, *region.epilogue)}
    assert not list((recording.folder / "chunks").rglob(".part*"))


@pytest.mark.parametrize("pattern", ["^_Z4fill", r"fill\(int\*, int\)", "count|fill"])
def test_kernels_are_chosen_by_mangled_or_cpp_name(record: Callable[..., Recorded], pattern: str) -> None:
    assert record("record_distinct_launches", R3LLVM_RECORD_KERNELS=pattern).launches()


def test_what_the_filter_leaves_out_is_named_once(record: Callable[..., Recorded]) -> None:
    recording = record("record_distinct_launches", R3LLVM_RECORD_KERNELS="walk")
    assert recording.launches() == []
    assert recording.lines("skipped") == [{"kernel": "_Z4fillPii"}]
    assert recording.lines("end") == [{"launches_seen": 20}]
    assert not (recording.folder / "chunks" / "00").exists()


def test_refusals_are_named_with_their_reason(record: Callable[..., Recorded]) -> None:
    recording = record("record_refusals")
    assert recording.launches() == []
    assert recording.refusals() == {
        "_Z4fillPii": "an argument points to memory registered with cudaHostRegister, which has no fixed address; "
        "allocate it with cudaMallocHost",
        "_Z7refusedv": "inline PTX `wgmma.fence` is not translated",
        "_Z10uncapturedi": "no captured module; rebuild the application through `r3llvm wrap`",
        "_Z5countv": "the launch failed: invalid argument",
        "_Z4failii": "the launch failed: the kernel failed as told",
    }


def test_an_application_that_launches_nothing_has_an_end(record: Callable[..., Recorded]) -> None:
    assert record("record_nothing").lines("end") == [{"launches_seen": 0}]


def test_a_forked_child_has_no_end_of_its_own(record: Callable[..., Recorded]) -> None:
    assert record("record_in_a_child").lines("end") == [{"launches_seen": 0}]


def test_a_bad_filter_stops_the_recording_only(record: Callable[..., Recorded]) -> None:
    recording = record("record_variables", expect_errors=True, R3LLVM_RECORD_KERNELS="(")
    assert (recording.folder / "failed").read_text().startswith("R3LLVM_RECORD_KERNELS is no regular expression")
    assert recording.launches() == []


def test_a_bad_limit_stops_the_recording_only(record: Callable[..., Recorded]) -> None:
    recording = record("record_variables", expect_errors=True, R3LLVM_RECORD_MAX="many")
    assert (recording.folder / "failed").read_text() == "R3LLVM_RECORD_MAX is no number: many\n"


def test_a_folder_that_cannot_be_written_stops_the_recording_only(launcher: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = launcher.passes("record_variables", R3LLVM_RECORD=str(tmp_path / "file" / "recording"))
    assert outcome.output == "first\ncounted\nlast\n"
    assert outcome.errors.startswith("r3llvm: recording stopped: ")
    assert outcome.errors.count("\n") == 1


def test_a_disk_that_fills_up_stops_the_recording_only(launcher: Program, tmp_path: Path) -> None:
    """A file size limit stands in for the disk: writing past it fails in the same way once SIGXFSZ is ignored."""
    folder = tmp_path / "recording"
    script = f"trap '' XFSZ; ulimit -f 0; exec {launcher.path} record_large_memory"
    outcome = Program(Path("/bin/sh"), launcher.environment).run("-c", script, R3LLVM_RECORD=str(folder))
    assert outcome.status == 0
    assert outcome.errors.startswith("r3llvm: recording stopped: ")
    assert outcome.errors.count("\n") == 1
    assert (folder / "failed").exists()
    assert not [path for path in (folder / "chunks").rglob("*") if path.is_file()]
