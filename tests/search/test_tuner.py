from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from r3llvm.database import Database, Session, Trial
from r3llvm.errors import R3Error
from r3llvm.runner import Difference, Measurement, RunStatus
from r3llvm.search import Confirmation, Evaluator, Settings, Tuner, best_trial, create_strategy, resume
from r3llvm.space import BASELINE
from tests.search.conftest import SUBJECT
from tests.search.toy import OPTIMUM, ToyBuilder, ToyRunner, launch


def essence(trials: list[Trial]) -> list[tuple[object, ...]]:
    return [(t.number, t.candidate_id, t.status, t.costs, t.loss, t.duplicate_of) for t in trials]


def test_finds_the_optimum(tune) -> None:
    _, trials = tune(budget=250)
    best = best_trial(trials)
    assert len(trials) == 251
    assert best.loss == pytest.approx(OPTIMUM)
    assert best.costs == pytest.approx([1000 * OPTIMUM, 50_000 * OPTIMUM])


def test_baseline_comes_first(tune) -> None:
    _, trials = tune(budget=3)
    assert (trials[0].number, trials[0].candidate_id, trials[0].loss) == (0, BASELINE.id, 1.0)
    assert trials[1].candidate_id == BASELINE.id and trials[1].duplicate_of == 0  # the first seed, not run again


@pytest.mark.parametrize("workers", [1, 4])
def test_nothing_is_run_twice(tune, workers: int) -> None:
    builder, runner = ToyBuilder(), ToyRunner()
    _, trials = tune(budget=150, workers=workers, builder=builder, runner=runner)
    assert len(builder.compiled) == len(set(builder.compiled))
    own = [t for t in trials if t.duplicate_of is None]
    assert len(own) < len(trials)
    replayed = {t.ptx_hash for t in own if t.run_status}
    assert set(runner.ran) == replayed
    assert all(runner.ran.count(ptx) <= 2 for ptx in replayed)  # once per launch
    by_number = {t.number: t for t in trials}
    for trial in trials:
        if trial.duplicate_of is not None:
            original = by_number[trial.duplicate_of]
            assert original.duplicate_of is None
            assert (original.status, original.costs, original.loss) == (trial.status, trial.costs, trial.loss)


def test_failures_are_kept_by_kind_and_never_best(tune) -> None:
    _, trials = tune(budget=300, strategy="random")
    kinds = {t.status for t in trials}
    assert {"ok", "pass_crash", "mismatch", "run_timeout"} <= kinds
    for trial in trials:
        assert trial.ok == (trial.status == "ok") == bool(trial.costs)
    crashed = next(t for t in trials if t.status == "pass_crash")
    assert (crashed.message, crashed.reproducer, crashed.run_status) == ("slsr aborted", "failures/1", None)
    differs = next(t for t in trials if t.status == "mismatch")
    assert differs.message == "4 bytes of allocation 0x300000000000 differ, the first at offset 8"
    assert best_trial([t for t in trials if not t.ok]) is None


@pytest.mark.parametrize("strategy", ["nevergrad", "nevergrad:TwoPointsDE", "random"])
def test_one_worker_and_a_seed_give_the_same_trials(tune, strategy: str) -> None:
    _, first = tune(budget=60, strategy=strategy)
    _, second = tune(budget=60, strategy=strategy)
    _, third = tune(budget=60, strategy=strategy, seed=8)
    assert essence(first) == essence(second)
    assert essence(first) != essence(third)


def test_a_broken_baseline_is_said(tune, database: Database) -> None:
    class Wrong(ToyRunner):
        def run(self, artifact, launch):
            from r3llvm.runner.measurement import Measurement, RunStatus

            return Measurement(RunStatus.MISMATCH, message="16 bytes differ")

    with pytest.raises(
        R3Error, match=r"baseline default<O3> does not reproduce the recording \(mismatch 16 bytes differ\)"
    ):
        tune(budget=5, runner=Wrong())
    assert [t.status for t in database.trials(database.sessions()[0])] == ["mismatch"]


class Interrupted(Exception):
    pass


def resumed(
    database: Database, workers: int = 1, stop_after: int | None = None, **settings: object
) -> tuple[Session, list[Trial]]:
    """Goes on with the latest session, until `stop_after` more trials."""
    session, space = resume(database, SUBJECT, Settings(**settings), workers)  # type: ignore[arg-type]
    strategy = create_strategy(session.strategy, space, session.seed, session.budget, workers)
    count = 0

    def on_trial(trial: Trial) -> None:
        nonlocal count
        count += 1
        if count == stop_after:
            raise Interrupted

    evaluator = Evaluator(ToyBuilder(), ToyRunner(), [launch(0), launch(3, 50)])
    return session, Tuner(database, session, strategy, evaluator, on_trial).run()


@pytest.mark.parametrize("strategy", ["nevergrad", "nevergrad:TwoPointsDE", "random"])
def test_interruptions_change_nothing(tune, database: Database, strategy: str) -> None:
    _, whole = tune(budget=80, strategy=strategy)
    tune(budget=1, strategy=strategy)
    rng = random.Random(1)
    while True:
        try:
            session, trials = resumed(database, stop_after=rng.randint(1, 30), budget=80)
            break
        except Interrupted:
            pass
    assert essence(trials) == essence(whole)
    assert essence(database.trials(session)) == essence(whole)


def test_several_workers_resume_with_nothing_lost_or_doubled(tune, database: Database) -> None:
    tune(budget=1, workers=4)
    for _ in range(6):
        with pytest.raises(Interrupted):
            resumed(database, workers=4, stop_after=10, budget=100)
    _, trials = resumed(database, workers=4)
    assert sorted(t.number for t in trials) == list(range(101))
    assert sorted([t.asked for t in trials if t.number] + [t.told for t in trials if t.number]) == list(range(1, 201))
    own = [t.candidate_id for t in trials if t.duplicate_of is None]
    assert len(own) == len(set(own))


def test_a_finished_session_resumes_to_itself(tune, database: Database) -> None:
    _, trials = tune(budget=20)
    _, again = resumed(database)
    assert essence(again) == essence(trials)


def test_stop_ends_after_what_is_in_flight(tune, database: Database) -> None:
    session, space = resume(database, SUBJECT, Settings(budget=1000, length=6), 2)
    stop = threading.Event()
    evaluator = Evaluator(ToyBuilder(seconds=0.001), ToyRunner(), [launch(0), launch(3)])
    strategy = create_strategy("random", space, 0, 1000, 2)
    seen: list[int] = []

    def on_trial(trial: Trial) -> None:
        seen.append(trial.number)
        if len(seen) == 10:
            stop.set()

    trials = Tuner(database, session, strategy, evaluator, on_trial, stop).run()
    assert 10 <= len(trials) <= 12
    assert len(database.trials(session)) == len(trials)


def test_confirm(tune, database: Database) -> None:
    session, trials = tune(budget=50)
    best = best_trial(trials)
    strategy = create_strategy("random", resume(database, SUBJECT, Settings(), 1)[1], 0, 1, 1)

    class Broken(ToyRunner):
        def confirm(self, artifact, launch):
            return Measurement(RunStatus.MISMATCH, differences=(Difference("x", 4, 8),))

    def confirm(runner: ToyRunner) -> Confirmation:
        return Tuner(database, session, strategy, Evaluator(ToyBuilder(), runner, [launch(0), launch(3, 50)])).confirm(
            best
        )

    class Slower(ToyRunner):
        def run(self, artifact, launch):
            from dataclasses import replace

            measurement = super().run(artifact, launch)
            return replace(measurement, cost=measurement.cost + 1)

    assert confirm(ToyRunner()) == Confirmation(True, pytest.approx(1 / best.loss))
    assert not confirm(Slower()).reproduced
    assert confirm(Broken()) == Confirmation(False, message="4 bytes of x differ, the first at offset 8")


def test_a_time_that_spreads_is_confirmed_within_its_spread(tune, database: Database) -> None:
    class Timing(ToyRunner):
        factor = 1.0

        def confirm(self, artifact, launch):
            from dataclasses import replace

            measurement = super().run(artifact, launch)
            return replace(measurement, cost=measurement.cost * self.factor, spread=0.01)

    session, trials = tune(budget=50)
    best = best_trial(trials)
    strategy = create_strategy("random", resume(database, SUBJECT, Settings(), 1)[1], 0, 1, 1)
    for factor, reproduced in ((0.8, True), (1.0, True), (1.025, True), (1.05, False)):
        runner = Timing()
        runner.factor = factor
        evaluator = Evaluator(ToyBuilder(), runner, [launch(0), launch(3, 50)])
        found = Tuner(database, session, strategy, evaluator).confirm(best)
        assert (found.reproduced, found.spread) == (reproduced, 0.01)
        assert found.speedup == pytest.approx(1 / best.loss / factor)


def test_a_resumed_session_hands_on_what_its_baseline_cost(tune, database: Database) -> None:
    anchors: list[tuple[int, float]] = []

    class Anchored(ToyRunner):
        def anchor(self, launch, cost):
            anchors.append((launch.index, cost))

    session, _ = tune(budget=5)
    runner = Anchored()
    strategy = create_strategy("random", resume(database, SUBJECT, Settings(), 1)[1], 0, 1, 1)
    Tuner(database, session, strategy, Evaluator(ToyBuilder(), runner, [launch(0), launch(3, 50)])).run()
    assert anchors == [(0, 1000.0), (3, 50000.0)]


WORKER = """
import sys
from pathlib import Path
from r3llvm.database import Database
from r3llvm.search import Evaluator, Settings, Tuner, create_strategy, resume
from tests.search.conftest import SUBJECT
from tests.search.toy import ToyBuilder, ToyRunner, launch, use_small_space
use_small_space()
folder, workers = Path(sys.argv[1]), int(sys.argv[2])
with Database(folder / "trials.sqlite", create=True) as database:
    session, space = resume(database, SUBJECT, Settings(seed=7, length=6, budget=60, strategy="random"), workers)
    strategy = create_strategy(session.strategy, space, session.seed, session.budget, workers)
    evaluator = Evaluator(ToyBuilder(folder / "built", 0.003), ToyRunner(), [launch(0), launch(3, 50)])
    def told(trial):
        print(trial.number, flush=True)
    Tuner(database, session, strategy, evaluator, told).run()
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_kill_9_and_resume(tune, tmp_path: Path, workers: int) -> None:
    """Every trial reported before a kill is there after it, once; with one worker the result is that of no kill."""
    _, whole = tune(budget=60, strategy="random")
    folder = tmp_path / "killed"
    folder.mkdir()
    rng = random.Random(workers)
    reported: set[int] = set()
    kills = 0
    while True:
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), str(workers)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        ) as process:
            assert process.stdout
            limit = rng.randint(5, 25)
            for count, line in enumerate(process.stdout, 1):
                if line.endswith("\n"):  # a line may be cut short by the kill
                    assert int(line) not in reported
                    reported.add(int(line))
                if count == limit:
                    time.sleep(rng.random() * 0.005)
                    process.send_signal(signal.SIGKILL)
                    kills += 1
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
    assert kills >= 2
    with Database(folder / "trials.sqlite") as database:
        trials = database.trials(database.sessions()[0])
    assert sorted(t.number for t in trials) == list(range(61))
    assert reported <= set(range(61))
    built = (folder / "built").read_text().split()
    assert len(built) - len(set(built)) <= kills * workers  # only what was in flight at a kill is built again
    if workers == 1:
        assert essence(trials) == essence(whole)


def test_candidates_from_a_file(tune, tmp_path: Path) -> None:
    file = tmp_path / "candidates.jsonl"
    pipelines = ["default<O3>", "function(sroa)", "", "function(sroa),function(gvn)"]
    file.write_text("\n".join(json.dumps({"pipeline": p}) if p else "" for p in pipelines))
    _, trials = tune(budget=50, strategy=f"file:{file}")
    assert [t.candidate["pipeline"] for t in trials] == ["default<O3>", "default<O3>", *pipelines[1:2], pipelines[3]]
    assert trials[-1].loss == pytest.approx(0.72)
