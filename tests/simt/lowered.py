"""Runs lowered IR on bit patterns: what an intrinsic or an inline assembly computes once it is host code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = 'target triple = "nvptx64-nvidia-cuda"\n'
WIDTH = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "half": 16,
    "bfloat": 16,
    "i32": 32,
    "float": 32,
    "<2 x half>": 32,
    "<2 x bfloat>": 32,
    "<2 x i16>": 32,
    "i64": 64,
    "double": 64,
}


def tool() -> Path:
    """The development tool that the build leaves in its tree."""
    if named := os.environ.get("R3LLVM_SIMT_OPT"):
        return Path(named)
    found = sorted(ROOT.glob("build/*/csrc/simt/r3-simt-opt"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FileNotFoundError(
            "r3-simt-opt is not built: install the package from source first, or set R3LLVM_SIMT_OPT"
        )
    return found[-1]


def translate(ir: str, step: str = "both") -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool(), step, "-"], input=HEADER + ir, capture_output=True, text=True, timeout=60)


class Cases:
    """Several computations on the same arguments, run together on many records of them."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.arguments = list(arguments)
        self.body: list[str] = []
        self.declarations: set[str] = set()
        self.results: list[tuple[str, str]] = []

    def add(self, name: str, result: str, call: str) -> None:
        """`call` is IR after `%x =`, with the arguments as %a0, %a1, …"""
        index = len(self.results)
        value = f"%r{index}"
        self.body.append(f"  {value} = {call}")
        if result == "i1":
            self.body.append(f"  {value}.wide = zext i1 {value} to i8")
            result, value = "i8", f"{value}.wide"
        self.body.append(f"  %p{index} = getelementptr i64, ptr %out, i64 {index}")
        self.body.append(f"  store i64 0, ptr %p{index}")
        self.body.append(f"  store {result} {value}, ptr %p{index}")
        self.results.append((name, result))

    def intrinsic(self, name: str, result: str, uses: Sequence[int] | None = None, extra: str = "") -> None:
        """A call of llvm.nvvm.NAME on the arguments, or those of them that `uses` lists; `extra` goes last."""
        chosen = list(range(len(self.arguments))) if uses is None else list(uses)
        types = [self.arguments[i] for i in chosen]
        operands = [f"{self.arguments[i]} %a{i}" for i in chosen]
        if extra:
            types.append(extra.split()[0])
            operands.append(extra)
        self.declarations.add(f"declare {result} @llvm.nvvm.{name}({', '.join(types)})")
        self.add(name, result, f"call {result} @llvm.nvvm.{name}({', '.join(operands)})")

    def ptx(self, assembly: str, result: str, name: str | None = None) -> None:
        """An inline assembly with the result as $0 and the arguments as $1, $2, …"""
        letters = [constraint(type_) for type_ in self.arguments]
        operands = ", ".join(f"{type_} %a{i}" for i, type_ in enumerate(self.arguments))
        constraints = ",".join([f"={constraint(result)}", *letters])
        self.add(name or assembly, result, f'call {result} asm "{assembly}", "{constraints}"({operands})')

    def ir(self) -> str:
        loads = []
        for i, type_ in enumerate(self.arguments):
            loads.append(f"  %i{i} = getelementptr i64, ptr %in, i64 {i}")
            loads.append(f"  %a{i} = load {type_}, ptr %i{i}")
        body = "\n".join([*loads, *self.body])
        declarations = "\n".join(sorted(self.declarations))
        return f"{HEADER}{declarations}\ndefine void @f(ptr %in, ptr %out) {{\n{body}\n  ret void\n}}\n"

    def run(self, records: Sequence[Sequence[int]], directory: Path) -> dict[str, list[int]]:
        """The results' bits by case, in the order of `records`, whose elements are the arguments' bits."""
        source = directory / "cases.ll"
        source.write_text(self.ir())
        data = b"".join(value.to_bytes(8, "little") for record in records for value in record)
        sizes = [str(8 * len(self.arguments)), str(8 * len(self.results))]
        done = subprocess.run([tool(), "eval", source, "f", *sizes], input=data, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        words = [int.from_bytes(done.stdout[i : i + 8], "little") for i in range(0, len(done.stdout), 8)]
        count = len(self.results)
        assert len(words) == count * len(records)
        return {name: words[index::count] for index, (name, _) in enumerate(self.results)}


def constraint(type_: str) -> str:
    return {"i16": "h", "half": "h", "bfloat": "h", "float": "f", "double": "d", "i64": "l", "i1": "b"}.get(type_, "r")
