"""Compares the catalogue with what an LLVM offers: `python passes/check.py [--opt opt-22]`. Exit status 1: they differ.

Every pass LLVM lists must be in catalogue.json or denied.json, every entry must be one LLVM has at that level, and
every action and every value of every parameter must parse for an NVPTX module.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator

from r3llvm.space import Action, Catalogue, load_catalogue, pipeline_text

_SECTIONS = {"Module": "module", "CGSCC": "cgscc", "Function": "function", "LoopNest": "loop", "Loop": "loop"}
_HEADING = re.compile(r"(Module|CGSCC|Function|LoopNest|Loop) passes( with params)?:")
_MODULE = """
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr %p, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i32, ptr %p, i32 %i
  %old = load i32, ptr %at
  %new = add i32 %old, %n
  store i32 %new, ptr %at
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def offered(opt: str) -> dict[str, set[str]]:
    """Pass name → levels, as `opt --print-passes` lists them (target passes are not listed)."""
    found: dict[str, set[str]] = {}
    level = ""
    for line in subprocess.run([opt, "--print-passes"], check=True, capture_output=True, text=True).stdout.splitlines():
        if not line.startswith(" "):
            heading = _HEADING.fullmatch(line)
            level = _SECTIONS[heading[1]] if heading else ""
        elif level:
            found.setdefault(line.strip().split("<")[0], set()).add(level)
    return found


def all_actions(catalogue: Catalogue) -> Iterator[Action]:
    """Every action of the space, and every value of every parameter on its own."""
    yield from catalogue.actions(aggressive=True)
    for entry in catalogue.passes:
        for parameter in entry.parameters:
            for text in parameter.texts():
                yield entry.action(text)


def parse_error(opt: str, actions: Iterable[Action]) -> str:
    """LLVM's message when the pipeline of `actions` does not parse or dies on a small kernel, else ''."""
    with tempfile.NamedTemporaryFile("w", suffix=".ll") as module:
        module.write(_MODULE)
        module.flush()
        command = [opt, "-disable-output", f"-passes={pipeline_text(actions)}", module.name]
        run = subprocess.run(command, capture_output=True, text=True)
    return "" if run.returncode == 0 else (run.stderr.strip().splitlines() or [f"status {run.returncode}"])[0]


def problems(opt: str) -> list[str]:
    """What is wrong, one line each."""
    catalogue = load_catalogue()
    found = offered(opt)
    listed = {entry.name for entry in catalogue.passes}
    lines = [
        f"{name}: in neither catalogue.json nor denied.json"
        for name in found.keys() - listed - catalogue.denied.keys() - {"default"}
    ]
    lines += [f"{name}: both listed and denied" for name in listed & catalogue.denied.keys()]
    lines += [f"{name}: denied, but LLVM has no such pass" for name in catalogue.denied.keys() - found.keys()]
    for entry in catalogue.passes:
        level = "loop" if entry.level == "loop-mssa" else entry.level
        if not entry.target and level not in found.get(entry.name, set()):
            lines.append(f"{entry.name}: LLVM has no such {level} pass")
    actions = list(all_actions(catalogue))
    if parse_error(opt, actions):  # one by one only to say which
        lines += [f"{action.text}: {error}" for action in actions if (error := parse_error(opt, [action]))]
    return sorted(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--opt", default="opt-22", help="the opt to compare with")
    lines = problems(parser.parse_args().opt)
    print("\n".join(lines) if lines else "the catalogue and LLVM agree")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
