"""compute-sanitizer's reports, and how it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from r3llvm.errors import R3Error
from r3llvm.recording import Recording
from r3llvm.runner import sanitizer
from r3llvm.runner.protocol import Binary
from r3llvm.runner.sanitizer import Report, parse_report, sanitize
from tests.recording.fake import FakeRecording

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x90
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x300000000fa0 is out of bounds
=========
========= Invalid __global__ read of size 16 bytes
=========     at r3_compare_tiles+0x180
=========     by thread (3,0,0) in block (1,0,0)
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum(float *)+0x110
=========     and Read access at sum(float *)+0x150 [96 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"

# Stands in for compute-sanitizer: writes the report of its tool, and runs the program.
PROGRAM = """#!{python}
import os, sys
reports = {reports!r}
tool = sys.argv[sys.argv.index("--tool") + 1]
log = sys.argv[sys.argv.index("--log-file") + 1]
if reports[tool]:
    open(log, "w").write(reports[tool])
program = sys.argv.index("no") + 1
os.execv(sys.argv[program], sys.argv[program:])
"""


def test_findings_are_headings_but_those_of_our_own_kernels() -> None:
    assert parse_report(MEMCHECK) == ("Invalid __global__ write of size 4 bytes",)
    assert parse_report(RACECHECK) == ("Error: Race reported between Write access at sum(float *)+0x110",)
    assert parse_report(CLEAN) == ()


def test_reports_are_a_line_each() -> None:
    assert str(Report("memcheck")) == "memcheck: nothing found"
    assert str(Report("memcheck", ("a", "b", "c"))) == "memcheck: a (and 2 more)"
    assert str(Report("racecheck", problem="no report")) == "racecheck: did not finish: no report"
    assert [Report("m").clean, Report("m", ("a",)).clean, Report("m", problem="p").clean] == [True, False, False]


def test_each_tool_runs_the_binary_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRecording(tmp_path / "r")
    fake.launch("k", fake.module(), [fake.region(bytes(64), b"\1" * 64)])
    fake.finish()
    recording = Recording.open(tmp_path / "r")
    reports = {"memcheck": MEMCHECK, "racecheck": CLEAN, "initcheck": ""}
    program = tmp_path / "compute-sanitizer"
    program.write_text(PROGRAM.format(python=sys.executable, reports=reports))
    program.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("SCRIPTED_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(
        sanitizer,
        "worker_command",
        lambda recording, device: (
            lambda descriptor: [
                *(sys.executable, "-m", "tests.runner.scripted_worker", "--fd", str(descriptor)),
                *(str(recording.path), "--device", str(device)),
            ]
        ),
    )
    binary = Binary(b"memory[0][:] = epilogue[0]", "k")
    found = sanitize(recording, recording.launches()[0], binary, program=program)
    assert found[:2] == [Report("memcheck", ("Invalid __global__ write of size 4 bytes",)), Report("racecheck")]
    assert str(found[2]) == "initcheck: did not finish: it wrote no report"
    requests = [line.split(" ", 2)[1] for line in (tmp_path / "log").read_text().splitlines()]
    assert requests == ["Load", "Run"] * 3


def test_a_missing_sanitizer_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "find_cuda_tool", lambda name: None)
    with pytest.raises(R3Error, match="no compute-sanitizer found: it comes with the CUDA toolkit"):
        sanitizer.require_sanitizer()
