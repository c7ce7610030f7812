"""What is learnt from a baseline, in front of a worker that runs Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from r3llvm.ir import Element
from r3llvm.recording import Recording
from r3llvm.runner.measurement import RunStatus
from r3llvm.runner.protocol import Binary, Comparison, LaunchKey, Load, Ran, Reply, Request, Run, Tolerance
from r3llvm.runner.verification import (
    PATTERNS,
    Calibration,
    Calibrator,
    Ended,
    Poisoning,
    Subject,
    ToleranceMode,
    Unverifiable,
    good,
    poison,
    tolerance,
)
from tests.recording.fake import BASE, FakeRecording
from tests.runner.scripted_worker import ScriptedWorker

DOUBLES = "f32(0)[:] = 2 * f32(1)"
RESULT = np.arange(1, 65, dtype=np.float32)


class Bench:
    """A recording of `before` → `after` (bytes or arrays, by region) and a worker for it, which may be lost."""

    def __init__(self, folder: Path, regions: Sequence[tuple[object, object]]) -> None:
        fake = FakeRecording(folder)
        made = [
            fake.region(raw(before), raw(after), BASE + (number << 21))
            for number, (before, after) in enumerate(regions)
        ]
        fake.launch("k", fake.module(), made)
        fake.finish()
        self.recording = Recording.open(folder)
        self.worker = ScriptedWorker(self.recording)
        self.requests: list[Request] = []
        self.lost = 0

    def ask(self, request: Request) -> Reply | Ended:
        self.requests.append(request)
        if 0 not in self.worker.held:
            self.worker.load(0)
        reply = self.worker.answer(request)
        if type(reply).__name__ == "Fault":
            self.worker = ScriptedWorker(self.recording)
            self.lost += 1
            return Ended(RunStatus.ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS at the kernel's run", lost=True)
        return reply  # type: ignore[return-value]

    def subject(self, baseline: str, rebuilds: Sequence[str] = (), elements: Sequence[Element] = ()) -> Subject:
        regions = self.recording.launches()[0].regions
        return Subject(
            LaunchKey(0),
            code(baseline),
            [code(rebuild) for rebuild in rebuilds],
            [f"region {i}" for i in range(len(regions))],
            elements or ["bytes"] * len(regions),
            lambda region: float(
                np.abs(np.frombuffer(self.recording.read_region(regions[region], "epilogue"), "f4")).max()
            ),
        )

    def calibrate(
        self,
        baseline: str,
        rebuilds: Sequence[str] = (),
        elements: Sequence[Element] = (),
        mode: ToleranceMode = "auto",
        sums: Sequence[bool] = (),
    ) -> Calibration:
        subject = replace(self.subject(baseline, rebuilds, elements), sums=sums)
        return Calibrator(self.ask, subject, mode).calibrate()

    def passes(self, kernel: str | None, calibration: Calibration) -> bool:
        """Whether this kernel would be called right."""
        ran = self.ask(Run(LaunchKey(0), code(kernel) if kernel else None, calibration.tolerances))
        assert isinstance(ran, Ran)
        return good(ran)


def raw(data: object) -> bytes:
    return data.tobytes() if isinstance(data, np.ndarray) else bytes(data)  # type: ignore[call-overload,no-any-return]


def code(text: str) -> Binary:
    return Binary(text.encode(), "k")


@pytest.fixture
def doubling(tmp_path: Path) -> Bench:
    """Region 0 is twice region 1, and was zero."""
    values = RESULT / 2
    return Bench(tmp_path / "r", [(np.zeros(64, "f4"), RESULT), (values, values)])


def test_an_exact_baseline_is_checked_exactly(doubling: Bench) -> None:
    calibration = doubling.calibrate(DOUBLES, [DOUBLES + " "], ["f32", "f32"])
    assert calibration.tolerances == (Tolerance(), Tolerance())
    assert (calibration.deterministic, calibration.exact, calibration.warning(exact=False)) == (True, True, "")
    assert calibration.seconds == 1e-5
    assert doubling.passes(DOUBLES, calibration)
    assert not doubling.passes("f32(0)[:] = 2 * f32(1); f32(0)[7] += 1e-6", calibration)


def test_what_is_written_and_never_read_is_poisoned(doubling: Bench) -> None:
    calibration = doubling.calibrate(DOUBLES, elements=["f32", "f32"])
    assert calibration.poisonings == (Poisoning(0, 0xFF, "written"),)
    assert np.isnan(np.frombuffer(doubling.worker.held[0].restored[0], "f4")).all()
    assert doubling.worker.held[0].restored[1] == raw(RESULT / 2)


def test_only_the_bytes_that_are_written_are_poisoned(tmp_path: Path) -> None:
    after = np.concatenate([RESULT[:32], np.zeros(32, "f4")])
    bench = Bench(tmp_path / "r", [(np.zeros(64, "f4"), after)])
    calibration = bench.calibrate("f32(0)[:32] = np.arange(1, 33)")
    assert calibration.poisonings == (Poisoning(0, 0xA5, "written"),)
    assert bench.worker.held[0].restored[0] == b"\xa5" * 128 + bytes(128)


def test_memory_that_is_read_too_is_poisoned_where_it_is_only_written(tmp_path: Path) -> None:
    """The first half steers the kernel, and is no value that it survives the loss of."""
    before = np.concatenate([np.full(32, 3, "f4"), np.zeros(32, "f4")])
    after = np.concatenate([np.full(32, 3, "f4"), np.full(32, 6, "f4")])
    bench = Bench(tmp_path / "r", [(before, after)])
    steered = "f32(0)[32:] = 2 * f32(0)[:32]"
    calibration = bench.calibrate(steered)
    assert [p.where for p in calibration.poisonings] == ["changed"]
    assert bench.passes(steered, calibration)
    assert not bench.passes(None, calibration)


def test_memory_that_is_updated_in_place_is_not_poisoned(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "r", [(RESULT, RESULT + 1)])
    adds = "f32(0)[:] += 1"
    calibration = bench.calibrate(adds)
    assert calibration.poisonings == ()
    assert bench.passes(adds, calibration)
    assert not bench.passes(None, calibration)


def test_a_kernel_that_writes_what_was_there_is_still_checked(tmp_path: Path) -> None:
    """Nothing changes, yet a kernel that does nothing must not pass."""
    bench = Bench(tmp_path / "r", [(RESULT, RESULT), (RESULT / 2, RESULT / 2)])
    calibration = bench.calibrate(DOUBLES)
    assert calibration.poisonings == (Poisoning(0, 0xA5, "written"),)
    assert bench.passes(DOUBLES, calibration)
    assert not bench.passes(None, calibration)
    assert not bench.passes("f32(0)[:63] = 2 * f32(1)[:63]", calibration)


def test_a_region_that_is_rewritten_beside_one_that_changes_is_checked_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "r", [(np.zeros(64, "f4"), RESULT), (RESULT / 2, RESULT / 2), (RESULT, RESULT)])
    both = DOUBLES + "; f32(2)[:] = f32(0)"
    calibration = bench.calibrate(both)
    assert {p.region for p in calibration.poisonings} == {0, 2}
    assert not bench.passes(DOUBLES, calibration)
    assert bench.passes(both, calibration)


@pytest.mark.parametrize("kernel", ["pass", "f32(0)[:] = f32(0)"])
def test_a_launch_that_does_nothing_is_uncheckable(tmp_path: Path, kernel: str) -> None:
    bench = Bench(tmp_path / "r", [(RESULT, RESULT)])
    with pytest.raises(Unverifiable, match="does nothing would pass") as caught:
        bench.calibrate(kernel)
    assert caught.value.status is RunStatus.UNCHECKABLE


def test_memory_whose_loss_is_fatal_stays_as_it_is(tmp_path: Path) -> None:
    """Region 1 holds addresses: poisoned, they lead astray, and the worker with them."""
    bench = Bench(tmp_path / "r", [(RESULT, RESULT), (RESULT, RESULT), (RESULT / 2, RESULT / 2)])
    chases = "fault(700) if (f32(1) != np.arange(1, 65)).any() else None; f32(0)[:] = 2 * f32(2)"
    calibration = bench.calibrate(chases)
    assert calibration.poisonings == (Poisoning(0, 0xA5, "written"),)
    assert bench.lost == 1
    assert bench.worker.held[0].restored[0] == b"\xa5" * 256  # the new worker is where the old one was
    assert bench.passes(chases, calibration)


def test_a_new_worker_is_poisoned_as_the_one_before(doubling: Bench) -> None:
    calibration = doubling.calibrate(DOUBLES, elements=["f32", "f32"])
    poisoned = doubling.worker.held[0].restored
    doubling.worker = ScriptedWorker(doubling.recording)
    doubling.ask(Load(LaunchKey(0)))
    assert poison(doubling.ask, doubling.subject(DOUBLES), calibration) is None
    assert doubling.worker.held[0].restored == poisoned


@pytest.mark.parametrize("element", ["f32", "bytes"])
def test_rebuilds_that_round_otherwise_allow_for_as_much(doubling: Bench, element: Element) -> None:
    rounds = DOUBLES + "; f32(0)[3] = np.nextafter(f32(0)[3], np.float32(9))"
    calibration = doubling.calibrate(DOUBLES, [rounds], [element, "f32"])
    if element == "bytes":  # which the baseline reproduces exactly
        assert calibration.tolerances[0].exact
        return
    allowed = calibration.tolerances[0]
    assert (allowed.element, allowed.ulps, calibration.tolerances[1].exact) == ("f32", 4, True)
    assert doubling.passes(rounds, calibration)
    assert not doubling.passes(DOUBLES + "; f32(0)[3] *= 1.00001", calibration)
    assert not doubling.passes(DOUBLES + "; f32(0)[3] = float('nan')", calibration)
    assert not doubling.passes(None, calibration)
    assert "region 0 is compared as f32 within 4 ulps" in calibration.remarks[0]


def test_exact_on_request(doubling: Bench) -> None:
    rounds = DOUBLES + "; f32(0)[3] = np.nextafter(f32(0)[3], np.float32(9))"
    assert doubling.calibrate(DOUBLES, [rounds], ["f32", "f32"], "exact").tolerances[0].exact
    with pytest.raises(Unverifiable, match="does not reproduce the recorded result"):
        doubling.calibrate(rounds, [], ["f32", "f32"], "exact")


def test_a_baseline_that_differs_from_run_to_run_is_marked(doubling: Bench) -> None:
    wavers = DOUBLES + "; state['n'] = state.get('n', 0) + 1; f32(0)[5] *= np.float32(1 + state['n'] % 2 * 1.2e-7)"
    calibration = doubling.calibrate(wavers, [], ["f32", "f32"])
    assert not calibration.deterministic
    assert not calibration.tolerances[0].exact
    assert calibration.warning(exact=True) == "its baseline differs from run to run"
    assert calibration.warning(exact=False).startswith("its baseline differs from run to run; region 0 is compared as")
    assert not doubling.passes(DOUBLES + "; f32(0)[5] *= 1.01", calibration)


def test_sums_in_any_order_are_not_held_to_one_of_them(doubling: Bench) -> None:
    """However often the baseline's runs agree."""
    calibration = doubling.calibrate(DOUBLES, [], ["f32", "f32"], sums=[True, False])
    assert calibration.tolerances[0].ulps == 64
    assert doubling.passes(DOUBLES + "; f32(0)[5] *= 1 + 4e-6", calibration)
    assert not doubling.passes(DOUBLES + "; f32(0)[5] *= 1 + 1e-4", calibration)
    assert doubling.calibrate(DOUBLES, [], ["f32", "f32"], "exact", [True, False]).tolerances[0].exact


def test_what_differs_by_roundings_is_taken_for_floating_point(doubling: Bench) -> None:
    """Of a kernel that is known by its image alone, nothing says what its memory holds."""
    wavers = DOUBLES + "; state['n'] = state.get('n', 0) + 1; f32(0)[5] *= np.float32(1 + state['n'] % 2 * 1.2e-7)"
    calibration = doubling.calibrate(wavers)
    assert calibration.tolerances[0].element == "f32"
    assert "region 0 is compared as f32" in calibration.warning(exact=False)
    assert "guessed" in calibration.warning(exact=False)
    assert not doubling.passes(DOUBLES + "; f32(0)[5] *= 1.01", calibration)
    assert not doubling.passes(None, calibration)


def test_runs_that_agree_by_chance_but_not_with_the_recorded_one(doubling: Bench) -> None:
    calibration = doubling.calibrate(DOUBLES + "; f32(0)[5] *= np.float32(1 + 1.2e-7)")
    assert not calibration.deterministic
    assert calibration.tolerances[0].element == "f32"
    assert doubling.passes(DOUBLES, calibration)
    assert not doubling.passes(DOUBLES + "; f32(0)[5] *= 1.01", calibration)


def test_integers_that_differ_from_run_to_run_cannot_be_checked(doubling: Bench) -> None:
    wavers = DOUBLES + "; state['n'] = state.get('n', 0) + 1; memory[0][5] = state['n'] % 200"
    with pytest.raises(Unverifiable, match="region 0 differs from run to run") as caught:
        doubling.calibrate(wavers)
    assert caught.value.status is RunStatus.UNCHECKABLE


@pytest.mark.parametrize("elements", [["f32", "f32"], ["bytes", "bytes"]])
def test_a_baseline_that_comes_out_otherwise_makes_nothing_else_right(doubling: Bench, elements: list[Element]) -> None:
    with pytest.raises(Unverifiable, match="does not reproduce the recorded result") as caught:
        doubling.calibrate("f32(0)[:] = 3 * f32(1)", [], elements)
    assert caught.value.status is RunStatus.MISMATCH


def test_a_rebuild_that_is_far_off_or_fails_does_not_widen_the_tolerance(doubling: Bench) -> None:
    rebuilds = ["f32(0)[:] = 3 * f32(1)", "fault(700)", "canaries = 4"]
    calibration = doubling.calibrate(DOUBLES, rebuilds, ["f32", "f32"])
    assert not doubling.passes("f32(0)[:] = 3 * f32(1)", calibration)
    assert not doubling.passes("f32(0)[:] = 2.00001 * f32(1)", calibration)


@pytest.mark.parametrize(
    ("kernel", "status", "message"),
    [
        ("fault(700)", RunStatus.ILLEGAL_ADDRESS, "the baseline itself ended so: CUDA_ERROR_ILLEGAL_ADDRESS"),
        (DOUBLES + "; canaries = 12", RunStatus.MISMATCH, "12 bytes outside of the recorded memory"),
    ],
)
def test_a_baseline_that_fails(doubling: Bench, kernel: str, status: RunStatus, message: str) -> None:
    with pytest.raises(Unverifiable, match=message) as caught:
        doubling.calibrate(kernel)
    assert caught.value.status is status


def seen(ulps: int = 0, absolute: float = 0.0, relative: float = 0.0) -> Comparison:
    return Comparison(0, -1, ulps, absolute, relative)


def test_tolerances_are_a_multiple_of_the_largest_spread() -> None:
    found = tolerance("f32", [seen(1, 1e-7, 1e-7), seen(3, 2e-7, 3e-7)], 1.0)
    assert found == Tolerance("f32", ulps=12, relative=pytest.approx(1.2e-6))


def test_where_values_cancel_the_bound_is_absolute() -> None:
    found = tolerance("f64", [seen(1 << 50, 1e-14, 0.5)], 100.0)
    assert found == Tolerance("f64", absolute=4e-14)


def test_signs_of_zero_and_the_bits_of_nans_are_no_difference() -> None:
    assert tolerance("f32", [seen()], 1.0) == Tolerance("f32", ulps=1)


@pytest.mark.parametrize("found", [seen(1 << 30, 1.0, 0.5), seen(1, math.inf, math.inf), seen(1, math.nan, math.nan)])
def test_another_result_is_no_rounding(found: Comparison) -> None:
    assert tolerance("f32", [found], 1.0) is None


def test_patterns_are_distinct_in_every_byte() -> None:
    assert len(set(PATTERNS)) == len(PATTERNS)
    assert np.isnan(np.frombuffer(bytes([PATTERNS[0]] * 8), "f8")).all()
