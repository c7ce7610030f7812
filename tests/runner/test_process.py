"""Workers: started ahead, asked, replaced, ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from r3llvm.errors import R3Error
from r3llvm.runner.process import Worker, WorkerDied, WorkerLate, Workers
from r3llvm.runner.protocol import LaunchKey, Load, Loaded

# Says hello, then does with each request what it is told to.
PROGRAM = """
import os, sys, time
from multiprocessing.connection import Connection
from r3llvm.runner.protocol import Failure, Hello, Loaded, Stop
connection = Connection(int(sys.argv[1]))
connection.send(Hello(os.getpid(), "GPU", "9.0", "13.0", {memory}))
while not isinstance(request := connection.recv(), Stop):
    {action}
"""
ANSWERS = "connection.send(Loaded((), 0.5))"
Start = Callable[..., Worker]


def command(action: str = ANSWERS, memory: int = 1) -> Callable[[int], Sequence[str]]:
    return lambda descriptor: [sys.executable, "-c", PROGRAM.format(action=action, memory=memory), str(descriptor)]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    workers: list[Worker] = []

    def start(action: str = ANSWERS) -> Worker:
        workers.append(Worker(command(action)))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


def test_a_worker_answers(start: Start) -> None:
    worker = start()
    assert worker.hello().device == "GPU"
    assert worker.ask(Load(LaunchKey(0)), 60) == Loaded((), 0.5)
    worker.stop()
    assert not worker.alive


def test_one_that_does_not_answer_is_killed_with_all_that_it_started(start: Start, tmp_path: Path) -> None:
    child = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, file=open({!r}, 'w'), flush=True)"
    worker = start(f"exec({child.format(str(tmp_path / 'pid'))!r}); time.sleep(600)")
    worker.hello()
    with pytest.raises(WorkerLate, match="no answer within 3 s"):
        worker.ask(Load(LaunchKey(0)), 3)
    assert not worker.alive
    state = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("sys.exit('it is over')", "exited with status 1: it is over"),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("connection.close(); time.sleep(600)", "closed its socket"),
    ],
)
def test_one_that_dies_leaves_word(start: Start, action: str, message: str) -> None:
    worker = start(action)
    worker.hello()
    with pytest.raises(WorkerDied, match=message):
        worker.ask(Load(LaunchKey(0)), 60)
    assert not worker.alive
    with pytest.raises(WorkerDied):
        worker.ask(Load(LaunchKey(0)), 60)


@pytest.mark.parametrize(("memory", "ahead"), [(8 << 30, 1), (141 << 30, 2)])
def test_others_are_ready_to_take_its_place(start: Start, memory: int, ahead: int) -> None:
    workers = Workers(command(memory=memory))
    first = workers.current()
    assert workers.current() is first
    waiting = list(workers._ahead)
    assert len(waiting) == ahead
    assert workers.replace() is waiting[0]
    assert not first.alive
    waiting[0].kill()
    assert workers.current() is not waiting[0]  # one that has died is replaced, too
    workers.close()
    with pytest.raises(R3Error, match="given back"):
        workers.current()


def test_a_program_that_is_not_there(start: Start) -> None:
    with pytest.raises(R3Error, match="cannot start a worker"):
        Worker(lambda descriptor: ["/nonexistent/python"])
