"""A replay under compute-sanitizer, which sees what no comparison does: races, reads of what nobody wrote."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r3llvm.errors import R3Error
from r3llvm.recording import Launch, Recording
from r3llvm.runner.cuda import worker_command
from r3llvm.runner.process import Command, Worker, WorkerDied, WorkerLate
from r3llvm.runner.protocol import Binary, Failure, LaunchKey, Load, Run
from r3llvm.toolchain import find_cuda_tool

TOOLS = ("memcheck", "racecheck", "initcheck")

_OWN = re.compile(r"\bat r3_\w+")  # a frame in our own device code
_HEADING = re.compile(r"^========= (?=\S)(?!COMPUTE-SANITIZER|(?:\w+ )?SUMMARY)(.+)")
_SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """What one tool found: a line each. problem: why it did not come to its end."""

    tool: str
    findings: tuple[str, ...] = ()
    problem: str = ""

    @property
    def clean(self) -> bool:
        return not self.findings and not self.problem

    def __str__(self) -> str:
        if self.problem:
            return f"{self.tool}: did not finish: {self.problem}"
        if not self.findings:
            return f"{self.tool}: nothing found"
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        return f"{self.tool}: {self.findings[0]}{more}"


def find_sanitizer() -> Path | None:
    """compute-sanitizer, in the CUDA toolkit or on PATH."""
    return find_cuda_tool("compute-sanitizer")


def require_sanitizer() -> Path:
    """R3Error: it is not installed."""
    found = find_sanitizer()
    if found is None:
        raise R3Error(
            "no compute-sanitizer found: it comes with the CUDA toolkit (package cuda-sanitizer-13-0 of NVIDIA's "
            "repository); put its folder on PATH"
        )
    return found


def sanitize(
    recording: Recording,
    launch: Launch,
    binary: Binary,
    *,
    device: int = 0,
    tools: Sequence[str] = TOOLS,
    seconds: float = 600.0,
    program: Path | None = None,
) -> list[Report]:
    """Runs the binary once under each tool. R3Error: there is no compute-sanitizer."""
    sanitizer = program or require_sanitizer()
    plain = worker_command(recording, device)
    return [_under(sanitizer, tool, plain, recording, launch, binary, seconds) for tool in tools]


def _under(
    sanitizer: Path, tool: str, plain: Command, recording: Recording, launch: Launch, binary: Binary, seconds: float
) -> Report:
    key = LaunchKey(recording.manifest.launches.index(launch))
    with tempfile.TemporaryDirectory(prefix="r3llvm-") as folder:
        log = Path(folder) / "log"

        def command(descriptor: int) -> list[str]:
            options = ["--tool", tool, "--log-file", str(log), "--report-api-errors", "no"]
            return [str(sanitizer), *options, *plain(descriptor)]

        worker = Worker(command)
        problem = ""
        try:
            worker.hello()
            for request in (Load(key), Run(key, binary)):
                reply = worker.ask(request, seconds)
                if isinstance(reply, Failure):
                    problem = reply.message
                    break
        except (R3Error, WorkerDied, WorkerLate) as error:
            problem = str(error)
        finally:
            worker.stop(seconds)
        text = log.read_text(errors="replace") if log.exists() else ""
    findings = parse_report(text)
    if findings or _SUMMARY.search(text):
        return Report(tool, findings)
    return Report(tool, problem=problem or (text.strip().splitlines() or ["it wrote no report"])[-1])


def parse_report(text: str) -> tuple[str, ...]:
    """The headings of a log's findings, those in our own device code left out."""
    findings: list[list[str]] = []
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            findings.append([heading[1].strip()])
        elif findings:
            findings[-1].append(line)
    return tuple(lines[0] for lines in findings if not any(_OWN.search(line) for line in lines))
