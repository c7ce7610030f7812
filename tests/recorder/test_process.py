"""Processes and threads: how applications begin, go on and end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from r3llvm.recording.journal import whole_lines
from r3llvm.toolchain import find_clang
from tests.recorder.conftest import PROGRAMS, Applications, Record


def test_a_program_without_cuda(record: Record) -> None:
    recorded = record("nothing")
    assert recorded.outcome.errors == ""
    assert not (recorded.folder / "journal.jsonl").exists()


def test_nothing_asked_for(applications: Applications) -> None:
    """Preloaded without R3LLVM_RECORD, the library does nothing at all."""
    plain = applications.run("many")
    assert applications.run("many", preload=True) == plain


def test_threads_that_launch_and_allocate(record: Record) -> None:
    wanted = range(10, 50)
    listed = ",".join(str(index) for index in wanted)
    recorded = record("threads", R3LLVM_RECORD_MAX="40", R3LLVM_RECORD_LAUNCHES=listed)
    launches = recorded.launches("saxpy")
    assert recorded.journal.launches_seen == 80
    assert sorted(launch.index for launch in launches) == list(wanted)
    for launch in launches:
        assert len([region for region in launch.regions if region.kind == "allocation"]) == 2


def test_work_that_waits_for_the_host_is_not_waited_for(record: Record) -> None:
    """Here the launch must be queued before what is before it can end."""
    recorded = record("waits_for_host", R3LLVM_RECORD_WAIT="1")
    assert not recorded.launches("saxpy")
    assert "may wait for the host" in recorded.reasons("saxpy")[0]
    assert len(recorded.launches("write_only")) == 1


def test_a_child_does_not_record(record: Record) -> None:
    recorded = record("forks")
    assert "child CUDA_ERROR_NOT_INITIALIZED" in recorded.outcome.output
    text = (recorded.folder / "journal.jsonl").read_text()
    assert text.count('"type":"end"') == 1
    assert recorded.journal.launches_seen == 2 and not recorded.journal.other_processes


def test_exit_while_threads_launch(record: Record) -> None:
    recorded = record("exits_running")
    assert recorded.outcome.status == 4
    assert recorded.journal.ended


def test_a_killed_program_leaves_whole_lines(record: Record) -> None:
    recorded = record("killed", R3LLVM_RECORD_MAX="8")
    assert recorded.outcome.status == -9
    assert not recorded.journal.ended
    for line in (recorded.folder / "journal.jsonl").read_text().splitlines():
        json.loads(line)
    for launch in recorded.launches("saxpy"):  # what is in the journal is on the disk
        for region in launch.regions:
            assert len(recorded.before(region)) == len(recorded.after(region)) == region.size


def test_an_end_without_a_synchronisation(record: Record) -> None:
    recorded = record("unsynchronised")
    (launch,) = recorded.launches("saxpy")
    assert recorded.journal.ended
    assert any(region.prologue != region.epilogue for region in launch.regions)


def test_contexts_that_end(record: Record) -> None:
    recorded = record("contexts")
    assert [launch.index for launch in recorded.launches("write_only")] == [0, 1, 2]


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("disk") / "full_disk.so"
    clang = find_clang()
    assert clang
    subprocess.run([clang, "-shared", "-fPIC", PROGRAMS / "full_disk.cpp", "-o", library, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("room", [0, 100, 5000])
def test_a_full_disk(applications: Applications, tmp_path: Path, full_disk: Path, room: int) -> None:
    folder = tmp_path / "recording"
    (folder / "chunks").mkdir(parents=True)
    outcome = applications.run(
        "many",
        preload=True,
        LD_PRELOAD=f"{applications.library}:{full_disk}",
        DISK_BYTES=str(room),
        R3LLVM_RECORD=str(folder),
        R3LLVM_STORE=str(tmp_path / "store"),
    )
    assert (outcome.status, outcome.output) == (0, applications.run("many").output)
    assert "No space left" in outcome.errors
    for line in whole_lines(folder / "journal.jsonl"):
        json.loads(line)


def test_a_disk_that_refuses(applications: Applications, tmp_path: Path) -> None:
    """The chunks' folder is no folder: the application goes on, and the reason is told."""
    folder = tmp_path / "recording"
    folder.mkdir()
    (folder / "chunks").write_text("")
    outcome = applications.run("many", preload=True, R3LLVM_RECORD=str(folder), R3LLVM_STORE=str(tmp_path / "store"))
    assert (outcome.status, outcome.output) == (0, applications.run("many").output)
    assert "recording stopped" in outcome.errors
    assert (folder / "failed").exists()


def test_a_folder_that_is_not_there(applications: Applications, tmp_path: Path) -> None:
    outcome = applications.run("many", preload=True, R3LLVM_RECORD=str(tmp_path / "gone"))
    assert (outcome.status, outcome.output) == (0, applications.run("many").output)
    assert "recording stopped" in outcome.errors


def test_one_process_makes_the_recording(record: Record, applications: Applications, tmp_path: Path) -> None:
    recorded = record("saxpy")
    folder, store = str(recorded.folder), str(tmp_path / "store")
    second = applications.run("saxpy", preload=True, gpu=recorded.gpu, R3LLVM_RECORD=folder, R3LLVM_STORE=store)
    assert second.output == recorded.outcome.output
    lines = [json.loads(line) for line in (recorded.folder / "journal.jsonl").read_text().splitlines()]
    (other,) = [line for line in lines if line["type"] == "other_process"]
    assert other["launches"] == 2
    assert len([line for line in lines if line["type"] == "launch"]) == 2


@pytest.mark.parametrize(
    "failure",
    [
        *("cuMemcpyDtoHAsync_v2=2", "cuMemcpyDtoHAsync_v2:3=719", "cuMemHostAlloc=2", "cuModuleLoadData:2=209"),
        *("cuStreamCreate=2", "cuMemcpyDtoDAsync_v2=1", "cuEventRecord=400"),
        *("cuFuncGetParamInfo=500", "cuFuncGetName=500", "cuStreamIsCapturing=400", "cuMemcpyHtoDAsync_v2=1"),
    ],
)
def test_whatever_fails_within_the_recorder_is_not_the_applications(record: Record, failure: str) -> None:
    """record() compares with the run without it: only the recorder makes these calls."""
    recorded = record("saxpy", FAKECUDA_FAIL=failure)
    for launch in recorded.journal.launches:
        for region in launch.regions:
            assert len(recorded.before(region)) == len(recorded.after(region)) == region.size
