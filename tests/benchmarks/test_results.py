from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import NAMES, main
from benchmarks.results import FOLDER, Results, once, write


def test_written_results_have_the_form(tmp_path: Path) -> None:
    path = write("main-job", "host", {"apps": once(5, "1")}, [{"app": "stencil"}], tmp_path)
    assert path == tmp_path / "main-job.host.json"
    written = json.loads(path.read_text())
    assert list(written) == ["benchmark", "device", "date", "commit", "versions", "command", "metrics", "rows"]
    assert written["metrics"] == {"apps": {"value": 5.0, "unit": "1", "low": 5.0, "high": 5.0, "n": 1}}
    assert written["command"] == "python -m benchmarks main-job --device host"
    assert re.fullmatch(r"[0-9a-f]{40}\+?", written["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", written["date"])
    assert {"r3llvm", "llvm", "cuda", "python"} <= written["versions"].keys()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.name)
def test_stored_results_have_the_form(path: Path) -> None:
    results = Results.model_validate_json(path.read_text())
    assert path.name == f"{results.benchmark}.{results.device}.json"
    assert results.benchmark in NAMES
    assert all(metric.low <= metric.value <= metric.high and metric.n >= 1 for metric in results.metrics.values())


def test_a_benchmark_is_a_file() -> None:
    assert "main-job" in NAMES
    for name in NAMES:
        module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
        assert module.DEVICES and callable(module.run)


def test_what_there_is_not_is_said() -> None:
    unknown = CliRunner().invoke(main, ["nothing"])
    assert unknown.exit_code == 2 and "main-job" in unknown.output
    elsewhere = CliRunner().invoke(main, ["main-job", "--device", "z80"])
    assert elsewhere.exit_code == 2 and "main-job runs on host, not on z80" in elsewhere.output
