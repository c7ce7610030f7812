"""What a foreign program is, and the way each takes: build, run, record, replay."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from r3llvm.capture.toolkit import find_toolkit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class StepFailed(AssertionError):
    """A command of the way failed; the message ends with what it printed last."""


@dataclass(frozen=True)
class Case:
    """One run. prepare: lays the input into a folder. check: raises AssertionError when the output there is wrong."""

    name: str
    arguments: Sequence[str]
    prepare: Callable[[Path], None]
    check: Callable[[Path, str], None]


@dataclass
class KernelOutcome:
    """What became of a kernel. wrong: what the replay said where it is neither equal nor refused."""

    kernel: str
    recorded: int = 0
    bit_exact: int = 0
    refused: str = ""
    wrong: list[str] = field(default_factory=list)


class Tools:
    """Runs r3llvm's commands for one program, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        toolkit = find_toolkit()
        assert toolkit is not None, "no CUDA toolkit found; `make test` installs its parts from PyPI"
        self.cuda_include = toolkit.root / "include"

    def wrap(self, *words: str | Path) -> None:
        """Builds with clang, as `words` tell, and captures the modules."""
        self.run("wrap", "--strict", "--device", "host", "--", _clang(), *words)

    def run(self, *words: str | Path, cwd: Path | None = None) -> str:
        """`r3llvm words…` in `cwd`; returns what it printed on stdout. Raises StepFailed."""
        output, status, errors = self._call(words, cwd)
        if status:
            said = "\n".join((output + errors).strip().splitlines()[-25:])
            raise StepFailed(f"r3llvm {' '.join(map(str, words[:12]))} … exited with {status}:\n{said}")
        return output

    def replay(self, recording: Path) -> Iterator[dict[str, object]]:
        """What `r3llvm replay` reports of each launch."""
        output, _, errors = self._call(["replay", "--json", "--no-cost", recording], None)
        if not output:
            raise StepFailed(f"r3llvm replay said nothing: {errors.strip()[-2000:]}")
        yield from map(json.loads, output.splitlines())

    def _call(self, words: Sequence[str | Path], cwd: Path | None) -> tuple[str, int, str]:
        environment = {
            **os.environ,
            "R3LLVM_STORE": str(self.folder / "store"),
        }
        command = [sys.executable, "-m", "r3llvm", *map(str, words)]
        done = subprocess.run(
            command, cwd=cwd or self.folder, env=environment, capture_output=True, text=True, errors="replace"
        )
        return done.stdout, done.returncode, done.stderr


class Program(ABC):
    """A program: how it is built and run."""

    name: str
    max_launches: int = 2
    # Kernels that may be refused: a regular expression for the (mangled) name → one for the reason.
    may_refuse: Mapping[str, str] = {}

    @abstractmethod
    def build(self, tools: Tools) -> list[str]:
        """Fetches and builds it in the folder of `tools`; returns the command that runs it. Raises Unreachable."""

    @abstractmethod
    def cases(self) -> Sequence[Case]:
        """The runs to make."""


@dataclass
class Outcome:
    """What became of a program."""

    program: str
    kernels: dict[str, KernelOutcome] = field(default_factory=dict)

    def kernel(self, name: str) -> KernelOutcome:
        return self.kernels.setdefault(name, KernelOutcome(name))

    @property
    def bit_exact(self) -> list[KernelOutcome]:
        """Kernels of which every recorded launch replayed with every byte equal."""
        return [k for k in self.kernels.values() if k.recorded and k.recorded == k.bit_exact and not k.refused]

    @property
    def refused(self) -> list[KernelOutcome]:
        return [k for k in self.kernels.values() if k.refused]

    @property
    def wrong(self) -> list[KernelOutcome]:
        return [k for k in self.kernels.values() if k.wrong]


def exercise(program: Program, folder: Path) -> Outcome:
    """Builds, runs, records and replays. Raises StepFailed or AssertionError where the program or its check fails."""
    tools = Tools(folder)
    command = program.build(tools)
    outcome = Outcome(program.name)
    for number, case in enumerate(program.cases()):
        case_folder = folder / case.name
        case_folder.mkdir()
        case.prepare(case_folder)
        application = [*command, *case.arguments]
        if number == 0:  # without recording too
            case.check(case_folder, tools.run("run", "--", *application, cwd=case_folder))
        recording = folder / f"{case.name}.recording"
        limit = str(program.max_launches)
        output = tools.run("record", "-o", recording, "--max-launches", limit, "--", *application, cwd=case_folder)
        case.check(case_folder, output)
        _judge(tools, recording, outcome)
        shutil.rmtree(recording)
    return outcome


def unexpected_refusals(program: Program, outcome: Outcome) -> list[str]:
    """Refusals that the program's description does not allow."""
    return [
        f"{kernel.kernel}: {kernel.refused}"
        for kernel in outcome.refused
        if not any(re.search(k, kernel.kernel) and re.search(r, kernel.refused) for k, r in program.may_refuse.items())
    ]


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """The counts, and what they were counted from."""
    return {
        "kernels": sum(len(outcome.kernels) for outcome in outcomes),
        "bit_exact": sum(len(outcome.bit_exact) for outcome in outcomes),
        "refused": sum(len(outcome.refused) for outcome in outcomes),
        "launches": sum(kernel.recorded for outcome in outcomes for kernel in outcome.kernels.values()),
        "rows": [
            {"program": outcome.program, **asdict(kernel)}
            for outcome in outcomes
            for kernel in outcome.kernels.values()
        ],
    }


def _judge(tools: Tools, recording: Path, outcome: Outcome) -> None:
    manifest = json.loads((recording / "manifest.json").read_text())
    for refusal in manifest["refusals"]:
        outcome.kernel(refusal["kernel"]).refused = refusal["reason"]
    launches = list(tools.replay(recording))
    assert len(launches) == len(manifest["launches"]), "the replay left launches out"
    for launch in launches:
        kernel = outcome.kernel(str(launch["kernel"]))
        kernel.recorded += 1
        if launch["status"] == "ok" and launch["mismatches"] == 0:
            kernel.bit_exact += 1
        elif launch["status"] == "unsupported":
            kernel.refused = str(launch["remarks"])
        else:
            kernel.wrong.append(f"launch {launch['launch']}: {launch['status']}: {launch['remarks']}")


def _clang() -> str:
    """clang++, as `wrap` is told; R3LLVM_CLANG names another."""
    candidates = [os.environ.get("R3LLVM_CLANG", ""), "clang++-22", "clang++-21", "clang++-20", "clang++"]
    found = next((name for name in candidates if name and shutil.which(name)), None)
    assert found is not None, "no clang++ found; install clang-22"
    return found
