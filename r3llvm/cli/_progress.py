"""How a search is going: a live bar on a terminal, plain lines elsewhere. All of it on stderr."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from r3llvm.database import Trial

_QUIET_SECONDS = 10.0  # plain lines come when the best improves, else no more often than this


class SearchProgress:
    """A context manager; call `trial` with each finished trial."""

    def __init__(self, kernel: str, budget: int, done: int = 0) -> None:
        self._kernel = kernel
        self._budget = budget
        self._count = done
        self._best = float("inf")
        self._duplicates = 0
        self._failures = 0
        self._last = 0.0
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(kernel, total=budget, completed=done, state="")

    def __enter__(self) -> SearchProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def known(self, trials: list[Trial]) -> None:
        """Takes trials of earlier runs into account."""
        for trial in trials:
            self._take(trial)
        self._bar.update(self._task, completed=self._count, state=self._state())

    def trial(self, trial: Trial) -> None:
        improved = self._take(trial)
        self._bar.update(self._task, completed=self._count, state=self._state())
        if self._bar.disable and (improved or self._count == self._budget or self._is_due()):
            self._last = time.monotonic()
            self._console.print(f"{self._kernel}: {self._count} of {self._budget} trials, {self._state()}")

    def say(self, message: str) -> None:
        """A line of its own, above the bar."""
        self._bar.console.print(message)

    def _take(self, trial: Trial) -> bool:
        self._count += trial.number > 0
        self._duplicates += trial.duplicate_of is not None
        self._failures += trial.duplicate_of is None and not trial.ok
        improved = trial.loss is not None and trial.loss < self._best
        if trial.loss is not None:
            self._best = min(self._best, trial.loss)
        return improved

    def _is_due(self) -> bool:
        return time.monotonic() - self._last > _QUIET_SECONDS

    def _state(self) -> str:
        best = f"best {1 / self._best:.3f}x" if self._best < float("inf") else "no best yet"
        return f"{best}, {self._duplicates} duplicates, {self._failures} failed"
