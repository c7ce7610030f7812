"""Each way to reach the driver, recorded and replayed; candidates that break; a small search."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from benchmarks.gpu import Folder, digest, preloaded
from benchmarks.gpu_faults import EXPECTED, GOOD, artifact_of
from benchmarks.interposition import COMPILED, SCRIPTS, caches, program, replayed
from r3llvm.recording import Recording
from r3llvm.runner import RunStatus
from r3llvm.runner.cuda import CudaRunner

pytestmark = [pytest.mark.cuda, pytest.mark.slow]

SECONDS = 120.0


@pytest.fixture(scope="module")
def target(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A recording of the kernel that broken candidates are held against."""
    scratch = tmp_path_factory.mktemp("faults")
    chosen = folder.program("faults")
    done = folder.record(chosen, folder.lay(chosen, scratch / "run"), scratch / "recording", SECONDS)
    assert done.check("record").startswith("PASS faults")
    return Recording.open(scratch / "recording")


@pytest.mark.parametrize("name", [*SCRIPTS, *COMPILED])
def test_the_recorder_changes_nothing_and_its_launches_replay(name: str, folder: Folder, tmp_path: Path) -> None:
    if name in SCRIPTS and importlib.util.find_spec(name) is None:
        pytest.skip(f"no {name} here")
    chosen = program(folder, name)
    without = folder.lay(chosen, tmp_path / "without")
    expected = digest(without, chosen, folder.run(chosen, without, SECONDS, caches(without)).check(name))
    within, recording = folder.lay(chosen, tmp_path / "with"), tmp_path / "recording"
    done = folder.record(chosen, within, recording, SECONDS, extra=caches(within))
    assert digest(within, chosen, done.check("record")) == expected
    launches = Recording.open(recording).manifest.launches
    assert launches
    replay = folder.r3llvm("replay", "--device", "cuda", "--json", recording, seconds=SECONDS)
    entries = [json.loads(line) for line in replay.output.splitlines()]
    assert len(entries) == len(launches), replay.error
    assert all(map(replayed, entries)), entries


def test_an_idle_recorder_changes_nothing(folder: Folder, tmp_path: Path) -> None:
    chosen = program(folder, "lbm.nvcc-static")
    where = folder.lay(chosen, tmp_path / "run")
    extra = preloaded(tmp_path / "record") | {"R3LLVM_RECORD_KERNELS": "^no kernel has this name$"}
    assert folder.run(chosen, where, SECONDS, extra).check("lbm").startswith("PASS lbm")
    journal = [json.loads(line) for line in (tmp_path / "record" / "journal.jsonl").read_text().splitlines()]
    assert "launch" not in {line["type"] for line in journal}
    assert not any((tmp_path / "record" / "chunks").iterdir())


def test_a_profile_times_every_launch(folder: Folder, tmp_path: Path) -> None:
    chosen = program(folder, "lbm.nvcc-static")  # 5 steps and a sum, in each of two precisions
    times = folder.launch_times(chosen, folder.lay(chosen, tmp_path / "run"), SECONDS)
    assert sorted(map(len, times.values())) == [1, 1, 5, 5]
    assert all(1e-7 < time < 1 for launches in times.values() for time in launches)


@pytest.mark.parametrize("variant", EXPECTED)
def test_a_broken_candidate_gets_its_status_and_the_next_is_unharmed(
    variant: str, folder: Folder, target: Recording
) -> None:
    (launch,) = target.manifest.launches
    runner = CudaRunner(target, timing=0.1)
    with runner:
        assert runner.run(artifact_of(folder, variant), launch).status in EXPECTED[variant]
        after = runner.run(artifact_of(folder, GOOD[0]), launch)
    assert after.status is RunStatus.OK
    assert after.cost is not None and 1e-7 < after.cost < 1


def test_tuning_on_a_gpu_finds_times(folder: Folder, target: Recording, tmp_path: Path) -> None:
    words = ["tune", "--device", "cuda", "--json", "--budget", "10", "--strategy", "random"]
    done = folder.r3llvm(*words, "--database", tmp_path / "trials.sqlite", target.path, seconds=SECONDS)
    summary = json.loads(done.check("tune").splitlines()[-1])
    assert summary["unit"] == "s"
    assert summary["trials"] == 10
    assert 1e-7 < summary["launches"][0]["baseline"] < 1
