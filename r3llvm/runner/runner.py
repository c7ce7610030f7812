"""What every device's runner offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from r3llvm.builder.artifact import Artifact
from r3llvm.recording import Launch
from r3llvm.runner.measurement import Measurement


class Runner(ABC):
    """Replays artifacts on recorded launches. A context manager: leaving it gives back what it holds. Thread-safe."""

    unit = "modelled cycles"  # of every cost

    @property
    def device(self) -> str:
        """ "host", or the GPU's name."""
        return "host"

    def arch(self, recorded: str) -> str:
        """What to build a module for that was recorded for this architecture ("sm_90")."""
        return recorded

    @abstractmethod
    def run(self, artifact: Artifact, launch: Launch) -> Measurement:
        """Replays, verifies every recorded byte, and measures. What the kernel does wrong is told in the status.

        Raises R3Error when the recording cannot be read, ValueError for an artifact whose build failed.
        """

    def confirm(self, artifact: Artifact, launch: Launch) -> Measurement:
        """The same once more, owing nothing to what ran before."""
        return self.run(artifact, launch)

    def anchor(self, launch: Launch, cost: float) -> None:  # noqa: B027
        """Costs of this launch are to be in terms of a baseline that costs this, as they were in an earlier process."""

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Gives back memory and devices. The runner is of no use after."""

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
