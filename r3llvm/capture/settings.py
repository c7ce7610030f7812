"""What `r3llvm wrap` was told, handed to compiler launchers through the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from r3llvm.errors import UsageError

DEFAULT_ARCH = "sm_90"
DEVICES = ("host", "cuda", "auto")
_TRUE = frozenset({"1", "true", "yes", "on"})


class Settings(NamedTuple):
    """store: None for the default one. report: the file that gathers what became of each unit."""

    store: Path | None = None
    arch: str = DEFAULT_ARCH
    device: str = "auto"
    strict: bool = False
    report: Path | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """R3LLVM_STORE, R3LLVM_ARCH, R3LLVM_DEVICE, R3LLVM_STRICT, R3LLVM_REPORT. Raises UsageError for no device."""
        device = environment.get("R3LLVM_DEVICE") or "auto"
        if device not in DEVICES:
            raise UsageError(f"R3LLVM_DEVICE is {device!r}: say {', '.join(DEVICES)}")
        store, report = environment.get("R3LLVM_STORE"), environment.get("R3LLVM_REPORT")
        return cls(
            store=Path(store) if store else None,
            arch=environment.get("R3LLVM_ARCH") or DEFAULT_ARCH,
            device=device,
            strict=environment.get("R3LLVM_STRICT", "").lower() in _TRUE,
            report=Path(report) if report else None,
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables that say this; paths in them are absolute, as compilers run in other folders."""
        variables = {"R3LLVM_ARCH": self.arch, "R3LLVM_DEVICE": self.device, "R3LLVM_STRICT": str(int(self.strict))}
        for name, path in (("R3LLVM_STORE", self.store), ("R3LLVM_REPORT", self.report)):
            if path is not None:
                variables[name] = os.path.abspath(path)  # noqa: PTH100 - resolves no links
        return variables
