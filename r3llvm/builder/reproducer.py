"""A failed build, kept so that it can be had again with LLVM's own tools."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from r3llvm.builder.artifact import BuildStatus
from r3llvm.space.candidate import Candidate
from r3llvm.toolchain import find_llvm_tool


def store_reproducer(
    directory: Path,
    candidate: Candidate,
    *,
    options: list[str],
    module: bytes,
    cpu: str,
    features: str,
    status: BuildStatus,
    message: str,
    log: str = "",
    ptx: bytes = b"",
    assembler: list[str] | None = None,
) -> Path:
    """Writes module.bc, pipeline.txt, candidate.json, message.txt, log.txt and reproduce.sh to directory/<id>.

    options: LLVM's, the candidate's among them. assembler: the command that failed on `ptx`, if one did. The folder
    appears whole or not at all, and replaces an older one of the same candidate.
    """
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / candidate.id
    staging = Path(tempfile.mkdtemp(prefix=f".{candidate.id}.", dir=directory))
    try:
        (staging / "module.bc").write_bytes(module)
        (staging / "pipeline.txt").write_text(candidate.pipeline + "\n")
        (staging / "candidate.json").write_text(json.dumps(asdict(candidate), indent=2) + "\n")
        (staging / "message.txt").write_text(f"{status.value}: {message}\n")
        if log:
            (staging / "log.txt").write_text(log)
        if ptx:
            (staging / "kernel.ptx").write_bytes(ptx)
        script = staging / "reproduce.sh"
        script.write_text(_script(candidate, options, cpu, features, assembler))
        script.chmod(0o755)
        staging.chmod(0o755)
        # Two threads may fail on the same candidate: whoever comes second replaces the first's equal folder.
        if target.exists():
            shutil.rmtree(target, ignore_errors=True)
        try:
            staging.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _script(candidate: Candidate, options: list[str], cpu: str, features: str, assembler: list[str] | None) -> str:
    target = [f"-mcpu={cpu}", *([f"-mattr={features}"] if features else [])]
    opt = [_tool("opt"), *target, *options]
    llc = [_tool("llc"), f"-O{candidate.codegen_level}", *target, "-fp-contract=fast", *options]
    lines = ["#!/bin/sh", "# Does again what failed. message.txt says how it ended.", 'cd "$(dirname "$0")" || exit 1']
    if assembler:
        lines.append(shlex.join(assembler))
    else:
        lines.append(f'{shlex.join(opt)} -passes="$(cat pipeline.txt)" module.bc -o optimised.bc &&')
        lines.append(f"{shlex.join(llc)} optimised.bc -o kernel.ptx")
    return "\n".join(lines) + "\n"


def _tool(name: str) -> str:
    tool = find_llvm_tool(name)
    return str(tool) if tool else name
