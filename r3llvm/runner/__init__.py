"""Runners replay artifacts on recorded launches, verify and measure them."""

from r3llvm.runner.measurement import Difference, Measurement, RunStatus
from r3llvm.runner.memory import MemoryImage
from r3llvm.runner.runner import Runner

__all__ = ["Difference", "Measurement", "MemoryImage", "RunStatus", "Runner"]
