"""What every device's runner offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from r3llvm.builder.artifact import Artifact
from r3llvm.recording import Launch
from r3llvm.runner.measurement import Measurement


class Runner(ABC):
    """Replays artifacts on recorded launches. A context manager: leaving it gives back what it holds."""

    @abstractmethod
    def run(self, artifact: Artifact, launch: Launch) -> Measurement:
        """Replays, verifies every recorded byte, and measures. What the kernel does wrong is told in the status.

        Raises R3Error when the recording cannot be read, ValueError for an artifact whose build failed.
        """

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Gives back memory and devices. The runner is of no use after."""

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
