"""Lowers candidates of one kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from r3llvm.builder.artifact import Artifact, BuildStatus
from r3llvm.builder.assembler import Assembler
from r3llvm.builder.ptx import ptx_hash
from r3llvm.builder.reproducer import store_reproducer
from r3llvm.errors import R3Error
from r3llvm.recording import Launch, Recording
from r3llvm.space.candidate import Candidate
from r3llvm.toolchain import ptx_features


class Builder:
    """Candidate → optimised bitcode and PTX (`compile`) → cubin and resources (`assemble`). Thread-safe.

    module_bitcode: a translation unit's module, as recorded. The kernel and what it reaches are cut out of it once.
    seconds, memory_bytes: what each build may take, wall-clock and address space; the assembler gets the same.
    features: LLVM's target features; by default the newest PTX version that both LLVM and the assembler know.
    reproducers: a folder that gets one subfolder for each failed build; none are kept without it.
    options, assembler: what the module's own build asked for, unless a candidate asks for another value.

    Raises R3Error when the module has no such kernel, LLVM knows no such arch, or the extension is not built.
    """

    def __init__(
        self,
        module_bitcode: bytes,
        kernel: str,
        arch: str = "sm_90",
        *,
        features: str | None = None,
        seconds: float = 30.0,
        memory_bytes: int = 4 << 30,
        reproducers: Path | None = None,
        ptxas: Path | None = None,
        options: Sequence[str] = (),
        assembler: Sequence[str] = (),
    ) -> None:
        self._native = _native()
        self.kernel = kernel
        self.arch = arch
        self.features = self._choose_features(ptxas) if features is None else features
        self._seconds = seconds
        self._memory_bytes = memory_bytes
        self._reproducers = reproducers
        self._ptxas = ptxas
        self._options = options
        self._assembler_options = assembler
        self._assembler: Assembler | None = None
        try:
            self.module: bytes = self._native.prepare(module_bitcode, kernel, seconds, memory_bytes)
        except RuntimeError as error:
            raise R3Error(str(error)) from error

    @classmethod
    def of(cls, recording: Recording, launch: Launch, arch: str | None = None, **limits: Any) -> Builder:
        """For a recorded launch, with what its module's build asked for.

        arch: instead of the recorded one. Raises R3Error when the module is not known.
        """
        module = recording.describe_module(recording.module_of(launch))
        return cls(
            *(recording.module(module.hash), launch.kernel, arch or module.arch),
            options=module.options,
            assembler=module.assembler,
            **limits,
        )

    def build(self, candidate: Candidate) -> Artifact:
        """Both steps; the first failure is the artifact's status."""
        artifact = self.compile(candidate)
        return self.assemble(artifact, candidate) if artifact.status is BuildStatus.OK else artifact

    def compile(self, candidate: Candidate) -> Artifact:
        """Runs the pipeline and generates PTX, in a child process: whatever a pass does ends as a status."""
        result = self._native.compile(
            self.module,
            candidate.pipeline,
            cpu=self.arch,
            features=self.features,
            codegen_level=candidate.codegen_level,
            options=merged(self._options, candidate.options),
            seconds=self._seconds,
            memory_bytes=self._memory_bytes,
        )
        status = BuildStatus(result.status)
        if status is not BuildStatus.OK:
            return Artifact(
                candidate=candidate.id,
                status=status,
                message=result.message,
                seconds=result.seconds,
                reproducer=self._reproduce(candidate, status=status, message=result.message, log=result.log),
            )
        return Artifact(
            candidate=candidate.id,
            status=status,
            bitcode=result.bitcode,
            ptx=result.ptx,
            ptx_hash=ptx_hash(result.ptx),
            seconds=result.seconds,
        )

    def assemble(self, artifact: Artifact, candidate: Candidate) -> Artifact:
        """Adds cubin and resources. Raises R3Error when there is no assembler, ValueError for a failed artifact."""
        if artifact.status is not BuildStatus.OK:
            raise ValueError(f"candidate {artifact.candidate} was not compiled: {artifact.status.value}")
        if self._assembler is None:
            self._assembler = Assembler(self._ptxas, self._seconds, self._memory_bytes)
        started = time.monotonic()
        assembled = self._assembler.assemble(artifact.ptx, self.kernel, self.arch, self._line(candidate))
        seconds = artifact.seconds + time.monotonic() - started
        if assembled.status is not BuildStatus.OK:
            return Artifact(
                candidate=artifact.candidate,
                status=assembled.status,
                message=assembled.message,
                ptx_hash=artifact.ptx_hash,
                seconds=seconds,
                reproducer=self._reproduce(
                    candidate,
                    status=assembled.status,
                    message=assembled.message,
                    ptx=artifact.ptx,
                    assembler=self._assembler.command(self.arch, self._line(candidate)),
                ),
            )
        return replace(artifact, cubin=assembled.cubin, resources=assembled.resources, seconds=seconds)

    def _line(self, candidate: Candidate) -> tuple[str, ...]:
        return tuple(merged(self._assembler_options, candidate.assembler))

    def _choose_features(self, ptxas: Path | None) -> str:
        error = None
        for features in (*ptx_features(ptxas), ""):
            try:
                self._native.check_target(self.arch, features)
                return features
            except ValueError as refused:
                error = refused
        raise R3Error(f"cannot build for {self.arch}: {error}")

    def _reproduce(self, candidate: Candidate, **what: Any) -> str:
        if self._reproducers is None:
            return ""
        stored = store_reproducer(
            self._reproducers,
            candidate,
            options=merged(self._options, candidate.options),
            module=self.module,
            cpu=self.arch,
            features=self.features,
            **what,
        )
        return str(stored)


def merged(defaults: Sequence[str], own: Sequence[str]) -> list[str]:
    """`own` options and those of the defaults that they do not set; LLVM takes each option once."""
    named = {_option_name(option) for option in own}
    return [*(option for option in defaults if _option_name(option) not in named), *own]


def _option_name(option: str) -> str:
    name = option.lstrip("-").partition("=")[0]
    return "O" if name[:1] == "O" and name[1:].isdigit() else name


def _native() -> Any:
    try:
        from r3llvm import _native
    except ImportError as error:
        raise R3Error(f"r3llvm's extension is not built ({error}): run `pip install .` in its folder") from error
    return _native
