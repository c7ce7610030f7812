"""Every example passes its own check, and each of its kernels replays bit for bit."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.foreign.program import ROOT, Case, Program, Tools, exercise

EXAMPLES = ROOT / "examples"
NAMES = sorted(folder.name for folder in EXAMPLES.iterdir() if any(folder.glob("*.cu")))


@dataclass(frozen=True)
class Example(Program):
    """An example, with its default sizes."""

    name: str

    def build(self, tools: Tools) -> list[str]:
        program = tools.folder / self.name
        tools.wrap("-O3", "-x", "cuda", *sorted((EXAMPLES / self.name).glob("*.cu")), "-o", program)
        return [str(program)]

    def cases(self) -> Sequence[Case]:
        return [Case("default", [], lambda folder: None, self._check)]

    def _check(self, folder: Path, output: str) -> None:
        assert output.startswith(f"PASS {self.name}: "), output


def test_there_are_eight() -> None:
    assert NAMES == ["histogram", "hydro", "lbm", "lookup", "nbody", "spmv", "stencil", "stream"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_example(name: str, tmp_path: Path) -> None:
    outcome = exercise(Example(name), tmp_path)
    assert not outcome.refused
    assert not outcome.wrong
    assert outcome.kernels
    assert len(outcome.bit_exact) == len(outcome.kernels)


def test_the_readme_tells_how_to_build_each() -> None:
    commands = re.findall(r"`r3llvm wrap -- (clang\+\+ .*)`", (EXAMPLES / "README.md").read_text())
    built = {command.split()[-1] for command in commands}
    assert built == {f"{name}/{name}" for name in NAMES}
    for command in commands:
        sources = re.findall(r"\S+\.cu", command)
        folder = EXAMPLES / Path(sources[0]).parent
        assert {EXAMPLES / source for source in sources} == set(folder.glob("*.cu"))


@pytest.mark.slow
def test_a_wrong_result_fails(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text(
        f"""#include "{EXAMPLES}/check.h"
        int main(int argc, char** argv) {{
          const float values[] = {{1.0f, 1.0f + 1e-3f, NAN}};
          const float got = values[example::argument(argc, argv, 1, 1) - 1];
          example::Verdict verdict("wrong");
          verdict.expect("value", example::relative_error<float, double>({{got, 2.0f}}, {{1.0, 2.0}}), 1e-4);
          return verdict.report();
        }}"""
    )
    tools = Tools(tmp_path)
    tools.wrap("-x", "cuda", source, "-o", tmp_path / "wrong")

    def run(argument: str) -> tuple[int, str]:
        done = subprocess.run([tmp_path / "wrong", argument], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert run("1") == (0, "PASS wrong: largest relative error 0\n")
    assert run("2") == (1, "FAIL wrong: value: error 0.0005, allowed 0.0001\n")
    assert run("3") == (1, "FAIL wrong: value: error nan, allowed 0.0001\n")
    status, message = run("many")
    assert status == 2
    assert 'argument 1 is "many"; give a positive integer' in message
