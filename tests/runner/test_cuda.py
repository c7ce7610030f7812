"""The GPU's runner, its worker stood in for by one that runs Python."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r3llvm.builder import Artifact, BuildStatus
from r3llvm.database import Database
from r3llvm.errors import R3Error
from r3llvm.files import content_hash
from r3llvm.ir import Elements
from r3llvm.recording import Launch, Recording
from r3llvm.runner import RunStatus
from r3llvm.runner import cuda as cuda_module
from r3llvm.runner.baseline import Baseline, arch_for, magnitude, region_elements, region_sums
from r3llvm.runner.cuda import CudaRunner
from r3llvm.runner.protocol import Binary
from r3llvm.search import Evaluator, Proposal, Settings, Strategy, Tuner, begin, best_trial
from r3llvm.search import Subject as SearchSubject
from r3llvm.space import BASELINE as SPACE_BASELINE
from r3llvm.space import Candidate
from tests.recording.fake import BASE, FakeRecording

DOUBLES = "f32(0)[:] = 2 * f32(1)"
BASELINE = DOUBLES + "; seconds = 10e-6"
RESULT = np.arange(1, 65, dtype=np.float32)


def make_recording(folder: Path) -> Recording:
    """Two launches alike: result, and half of it."""
    fake = FakeRecording(folder)
    half = RESULT / 2
    regions = [
        fake.region(bytes(256), RESULT.tobytes()),
        fake.region(half.tobytes(), half.tobytes(), BASE + (1 << 21)),
    ]
    module = fake.module()
    fake.launch("k", module, regions)
    fake.launch("k", module, regions, index=5)
    fake.finish()
    return Recording.open(folder)


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return make_recording(tmp_path / "r")


Open = Callable[..., CudaRunner]


def open_runner(
    patch: pytest.MonkeyPatch, recording: Recording, baseline: str, rebuilds: Sequence[str] = (), **options: Any
) -> CudaRunner:
    """A runner whose baseline is this kernel."""
    patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    made = Baseline(
        Binary(baseline.encode(), "k"), tuple(Binary(x.encode(), "k") for x in rebuilds), Elements({(0, 0): "f32"})
    )
    patch.setattr(cuda_module, "build_baseline", lambda recording, launch, arch: made)

    def command(descriptor: int) -> list[str]:
        module = [sys.executable, "-m", "tests.runner.scripted_worker", "--fd", str(descriptor)]
        return [*module, str(recording.path), "--device", "0"]

    return CudaRunner(recording, command=command, **options)


@pytest.fixture
def opened(recording: Recording, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Open]:
    runners: list[CudaRunner] = []
    monkeypatch.setenv("SCRIPTED_LOG", str(tmp_path / "log"))

    def opened(baseline: str = BASELINE, **options: Any) -> CudaRunner:
        runners.append(open_runner(monkeypatch, recording, baseline, **options))
        return runners[-1]

    yield opened
    for runner in runners:
        runner.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CudaRunner, Launch]]:
    """One runner that many kernels fail on, one after the other. It loses patience soon."""
    recording = make_recording(tmp_path_factory.mktemp("shared") / "r")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_module, "LEAST_SECONDS", 0.5)
        patch.setattr(cuda_module, "PATIENCE", 1)
        with open_runner(patch, recording, BASELINE) as runner:
            yield runner, recording.launches()[0]


def artifact(kernel: str) -> Artifact:
    return Artifact(kernel, BuildStatus.OK, cubin=kernel.encode())


def log(tmp_path: Path) -> list[list[str]]:
    """What was asked of the workers: process, request, code."""
    return [line.split(" ", 2) for line in (tmp_path / "log").read_text().splitlines()]


def test_a_good_candidate_has_a_time(opened: Open, recording: Recording) -> None:
    runner = opened()
    measured = runner.run(artifact(DOUBLES + "; seconds = 5e-6"), recording.launches()[0])
    assert (measured.status, measured.unit, measured.message) == (RunStatus.OK, "s", "")
    assert measured.cost == pytest.approx(5e-6)
    assert measured.times == (5e-6,) * 10
    assert measured.spread == 0.0
    assert runner.device == "Scripted GPU"


def test_a_result_within_tolerances_is_told_from_an_exact_one(opened: Open, recording: Recording) -> None:
    rounds = DOUBLES + "; f32(0)[3] = np.nextafter(f32(0)[3], np.float32(9))"
    runner, launch = opened(BASELINE, rebuilds=(rounds,)), recording.launches()[0]
    for kernel, exact in ((BASELINE, True), (DOUBLES, True), (rounds, False)):
        measured = runner.run(artifact(kernel), launch)
        assert (measured.status, measured.exact) == (RunStatus.OK, exact)
        assert ("is compared as f32 within 4 ulps" in measured.warning) == (not exact)
    assert runner.run(artifact(DOUBLES + "; f32(0)[3] *= 1.001"), launch).status is RunStatus.MISMATCH


def test_the_baseline_costs_what_it_takes(opened: Open, recording: Recording) -> None:
    runner = opened()
    for _ in range(2):
        assert runner.run(artifact(BASELINE), recording.launches()[0]).cost == pytest.approx(10e-6)


@pytest.mark.parametrize(
    ("kernel", "status", "message"),
    [
        ("pass", RunStatus.MISMATCH, ""),
        ("f32(0)[:] = 3 * f32(1)", RunStatus.MISMATCH, ""),
        ("f32(0)[:63] = 2 * f32(1)[:63]", RunStatus.MISMATCH, ""),
        ("f32(1)[0] = 9; f32(0)[:] = 2 * f32(1)", RunStatus.MISMATCH, ""),
        (DOUBLES + "; canaries = 8", RunStatus.MISMATCH, "out-of-bounds write: 8 bytes"),
        ("fault(700)", RunStatus.ILLEGAL_ADDRESS, "CUDA_ERROR_700 at the kernel's run"),
        ("fault(716)", RunStatus.MISALIGNED, ""),
        ("fault(719)", RunStatus.TRAP, ""),
        ("fault(715)", RunStatus.ILLEGAL_INSTRUCTION, ""),
        ("fault(710, output='k.cu:5: no\\nmore')", RunStatus.ASSERT, "CUDA_ERROR_710 at the kernel's run: k.cu:5: no"),
        ("fault(702)", RunStatus.TIMEOUT, ""),
        ("fault(714)", RunStatus.STACK_OVERFLOW, ""),
        ("fault(2, False)", RunStatus.MEMORY, ""),
        ("fault(1, False)", RunStatus.INVALID_LAUNCH, ""),
        ("fault(701, False)", RunStatus.INVALID_LAUNCH, ""),
        ("fault(912, False)", RunStatus.INVALID_LAUNCH, ""),
        ("fault(999)", RunStatus.CRASH, ""),
        ("time.sleep(60)", RunStatus.TIMEOUT, "not finished after"),
        ("os._exit(3)", RunStatus.CRASH, "exited with status 3"),
        ("os.kill(os.getpid(), 11)", RunStatus.CRASH, "was killed by SIGSEGV"),
    ],
)
def test_each_way_to_fail_has_its_status_and_harms_no_other(
    shared: tuple[CudaRunner, Launch], kernel: str, status: RunStatus, message: str
) -> None:
    runner, launch = shared
    measured = runner.run(artifact(kernel), launch)
    assert (measured.status, measured.cost) == (status, None)
    assert message in measured.message
    after = runner.run(artifact(DOUBLES + "; seconds = 5e-6"), launch)
    assert (after.status, after.cost) == (RunStatus.OK, pytest.approx(5e-6))
    assert runner.run(artifact("pass"), launch).status is RunStatus.MISMATCH  # poisoned as before


def test_a_mismatch_says_where(opened: Open, recording: Recording) -> None:
    measured = opened().run(artifact(DOUBLES + "; f32(0)[3] = 0; f32(0)[5] = 0"), recording.launches()[0])
    [difference] = measured.differences
    assert (difference.region, difference.first_offset) == ("allocation 0x300000000000", 14)


def test_a_result_that_is_wrong_only_later_is_caught(opened: Open, recording: Recording) -> None:
    """What is timed is what is verified: after its last timed launch."""
    later = DOUBLES + "; state['n'] = state.get('n', 0) + 1; f32(0)[0] += state['n'] > 1"
    measured = opened().run(artifact(later), recording.launches()[0])
    assert (measured.status, measured.cost) == (RunStatus.MISMATCH, None)
    assert "after the last timed launch" in measured.message


def test_one_worker_is_ready_when_another_dies(opened: Open, recording: Recording, tmp_path: Path) -> None:
    runner, launch = opened(), recording.launches()[0]
    for _ in range(3):
        assert runner.run(artifact("fault(700)"), launch).status is RunStatus.ILLEGAL_ADDRESS
    assert runner.run(artifact(DOUBLES), launch).status is RunStatus.OK
    processes = list(dict.fromkeys(process for process, *_ in log(tmp_path)))
    assert len(processes) == 4
    assert not any(Path(f"/proc/{process}").exists() for process in processes[:3])


def test_costs_are_in_terms_of_the_baseline_beside_them(
    opened: Open, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything becomes twice as slow, halfway through."""
    monkeypatch.setattr(cuda_module, "NEIGHBOUR_SECONDS", 0.0)
    slow = "; seconds = {} * (2 if state.get('slow') else 1)"
    runner, launch = opened(DOUBLES + slow.format(10e-6)), recording.launches()[0]
    candidate = artifact(DOUBLES + slow.format(8e-6))
    assert runner.run(candidate, launch).cost == pytest.approx(8e-6)
    assert runner.run(artifact(DOUBLES + "; state['slow'] = 1; seconds = 20e-6"), launch).status is RunStatus.OK
    after = runner.run(candidate, launch)
    assert after.cost == pytest.approx(8e-6)
    assert after.times[0] == pytest.approx(16e-6)


def test_costs_go_on_from_an_earlier_process(opened: Open, recording: Recording) -> None:
    runner, launch = opened(), recording.launches()[0]
    runner.anchor(launch, 20e-6)
    assert runner.run(artifact(DOUBLES + "; seconds = 5e-6"), launch).cost == pytest.approx(10e-6)


def test_a_hopeless_candidate_is_given_up(opened: Open, recording: Recording) -> None:
    runner, launch = opened(), recording.launches()[0]
    slow = runner.run(artifact(DOUBLES + "; seconds = 30e-6"), launch)
    assert (slow.status, slow.cost) == (RunStatus.OK, pytest.approx(30e-6))
    assert slow.message.startswith("given up early")
    assert runner.run(artifact(DOUBLES + "; seconds = 12e-6"), launch).message == ""


def test_a_confirmation_is_in_turns_and_in_a_fresh_process(opened: Open, recording: Recording, tmp_path: Path) -> None:
    runner, launch = opened(), recording.launches()[0]
    candidate = artifact(DOUBLES + "; seconds = 5e-6")
    runner.run(candidate, launch)
    before = {process for process, *_ in log(tmp_path)}
    confirmed = runner.confirm(candidate, launch)
    assert (confirmed.status, confirmed.cost, confirmed.spread) == (RunStatus.OK, pytest.approx(5e-6), 0.0)
    timed = [(process, code) for process, request, code in log(tmp_path) if request == "Time"][-10:]
    assert len({process for process, _ in timed}) == 1
    assert timed[0][0] not in before
    assert ["10e-6" in code for _, code in timed] == [True, False] * 5


def test_each_launch_has_its_own_baseline(opened: Open, recording: Recording) -> None:
    runner = opened()
    for launch in recording.launches():
        assert runner.run(artifact(DOUBLES + "; seconds = 5e-6"), launch).cost == pytest.approx(5e-6)
    other = recording.launches()[0].model_copy(update={"index": 99})
    with pytest.raises(ValueError, match="launch 99"):
        runner.run(artifact(DOUBLES), other)


def test_threads_share_the_gpu(opened: Open, recording: Recording) -> None:
    runner, launch = opened(), recording.launches()[0]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        kernel = "fault(700)" if number == 2 else "pass" if number == 4 else DOUBLES + f"; seconds = {number}e-6"
        found[number] = runner.run(artifact(kernel), launch)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[2].status is RunStatus.ILLEGAL_ADDRESS
    assert found[4].status is RunStatus.MISMATCH
    assert {n: found[n].cost for n in (1, 3, 5, 6)} == {n: pytest.approx(n * 1e-6) for n in (1, 3, 5, 6)}


def test_a_launch_whose_baseline_fails_fails_whatever_runs(opened: Open, recording: Recording) -> None:
    runner, launch = opened("f32(0)[:] = 3 * f32(1)"), recording.launches()[0]
    for kernel in (DOUBLES, "f32(0)[:] = 3 * f32(1)"):
        measured = runner.run(artifact(kernel), launch)
        assert measured.status is RunStatus.MISMATCH
        assert "the baseline itself does not reproduce" in measured.message


def test_a_launch_that_does_nothing_is_never_ok(opened: Open, recording: Recording) -> None:
    fake = FakeRecording(recording.path)
    fake.launch("k", fake.module(), [fake.region(RESULT.tobytes(), RESULT.tobytes())])
    fake.finish()
    nothing = Recording.open(recording.path).launches()[0]
    runner = opened("pass")
    runner._recording = Recording.open(recording.path)
    assert runner.run(artifact("pass"), nothing).status is RunStatus.UNCHECKABLE


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("fail", "^no GPU 0: this machine has none$"),
        ("die", r"^the GPU's worker did not start: it exited with status 1: no libcuda\.so\.1$"),
    ],
)
def test_a_worker_that_cannot_start_says_why(
    opened: Open, monkeypatch: pytest.MonkeyPatch, start: str, message: str
) -> None:
    monkeypatch.setenv("SCRIPTED_START", start)
    with pytest.raises(R3Error, match=message):
        _ = opened().device


def test_an_artifact_that_was_not_built_is_a_callers_error(opened: Open, recording: Recording) -> None:
    with pytest.raises(ValueError, match="pass_crash"):
        opened().run(Artifact("c", BuildStatus.PASS_CRASH), recording.launches()[0])


def test_nothing_is_left_running(opened: Open, recording: Recording, tmp_path: Path) -> None:
    with opened() as runner:
        runner.run(artifact(DOUBLES), recording.launches()[0])
        workers = [runner._workers.current(), *runner._workers._ahead]
    assert len(workers) == 2
    assert not any(worker.alive for worker in workers)
    with pytest.raises(R3Error, match="given back"):
        runner.run(artifact(DOUBLES), recording.launches()[0])


class Kernels:
    """A builder whose candidates' pipelines are kernels."""

    def compile(self, candidate: Candidate) -> Artifact:
        kernel = BASELINE if candidate == SPACE_BASELINE else candidate.pipeline
        return Artifact(candidate.id, BuildStatus.OK, ptx=kernel.encode(), ptx_hash=content_hash(kernel.encode()))

    def assemble(self, artifact: Artifact, candidate: Candidate) -> Artifact:
        return replace(artifact, cubin=artifact.ptx)


class Listed(Strategy):
    name = "listed"

    def __init__(self, kernels: Sequence[str]) -> None:
        self._kernels = list(kernels)
        self.told: list[float | None] = []

    def ask(self) -> Proposal | None:
        return Proposal(Candidate(pipeline=self._kernels.pop(0))) if self._kernels else None

    def tell(self, proposal: Proposal, loss: float | None) -> None:
        self.told.append(loss)


def test_a_search(opened: Open, recording: Recording, tmp_path: Path) -> None:
    """Threads build; faults, mismatches and good candidates come in any order; the best is confirmed."""
    good = [f"{DOUBLES}; seconds = {number}e-6" for number in (8, 5, 9, 12)]
    bad = ["fault(700)", "pass", "os._exit(1)", "fault(1, False)", "f32(0)[:] = 0"]
    kernels = [*good[:2], *bad[:3], *good[2:], *bad[3:]]
    subject = SearchSubject("r" * 32, "k", (0, 5), "Scripted GPU", "22.1.8", {"cache": "cold", "tolerance": "auto"})
    session, _ = begin(subject, Settings(budget=len(kernels), strategy="random"), 3)
    runner = opened()
    evaluator = Evaluator(Kernels(), runner, recording.launches())
    with Database(tmp_path / "trials.sqlite", create=True) as database:
        tuner = Tuner(database, session, Listed(kernels), evaluator)
        trials = tuner.run()
        best = best_trial(trials)
        assert best is not None
        confirmation = tuner.confirm(best)
    found = {trial.candidate["pipeline"]: trial for trial in trials if trial.number}
    for kernel, seconds in zip(good, (8e-6, 5e-6, 9e-6, 12e-6), strict=True):
        assert found[kernel].costs == pytest.approx([seconds] * 2)
        assert found[kernel].loss == pytest.approx(seconds / 10e-6)
    assert [found[kernel].status for kernel in bad] == [
        *("illegal_address", "mismatch", "crash", "invalid_launch", "mismatch")
    ]
    assert (session.unit, best.candidate["pipeline"]) == ("s", good[1])
    assert (confirmation.reproduced, confirmation.speedup) == (True, pytest.approx(2.0))


@pytest.mark.parametrize(
    ("recorded", "capability", "built"),
    [
        ("sm_90", "9.0", "sm_90"),
        ("sm_90a", "9.0", "sm_90a"),
        ("sm_80", "8.6", "sm_80"),
        ("sm_86", "8.0", "sm_80"),
        ("sm_70", "9.0", "sm_90"),
        ("sm_90", "10.0", "sm_100"),
        ("sm_120", "12.1", "sm_120"),
    ],
)
def test_what_is_built_runs_on_the_gpu(recorded: str, capability: str, built: str) -> None:
    assert arch_for(recorded, capability) == built


def test_regions_hold_what_the_parameters_that_point_there_access(recording: Recording) -> None:
    launch = recording.launches()[0]
    assert region_elements(launch, Elements({(0, 0): "f32"})) == ("f32", "bytes")
    assert region_elements(launch, Elements({(0, 0): "f32", (0, 8): "f64", (7, 0): "f64"})) == ("f32", "bytes")
    assert region_elements(launch, Elements()) == ("bytes", "bytes")
    assert region_sums(launch, Elements(sums=frozenset({(0, 0)}))) == (True, False)
    by_value = launch.model_copy(
        update={"arguments": bytes(8).hex() + launch.regions[1].base.to_bytes(8, "little").hex()}
    )
    assert region_elements(by_value, Elements({(0, 8): "f64"})) == ("bytes", "f64")
    variable = launch.regions[1].model_copy(update={"kind": "variable", "name": "v"})
    named: Launch = launch.model_copy(update={"regions": (launch.regions[0], variable)})
    assert region_elements(named, Elements({(0, 0): "f64"}, {"v": "f16"})) == ("f64", "f16")


def test_the_magnitude_is_that_of_the_finite_values(tmp_path: Path) -> None:
    fake = FakeRecording(tmp_path / "m")
    region = fake.region(bytes(16), np.array([1, -4, np.inf, np.nan], "f4").tobytes())
    short = fake.region(bytes(4), np.array([7], "f4").tobytes(), BASE + (1 << 20))
    fake.launch("k", fake.module(), [region, short])
    fake.finish()
    recording = Recording.open(tmp_path / "m")
    assert magnitude(recording, region, "f32") == 4.0
    assert magnitude(recording, short, "f32") == 7.0
    assert magnitude(recording, short, "f64") == 0.0
    assert magnitude(recording, region, "bf16") > 0
