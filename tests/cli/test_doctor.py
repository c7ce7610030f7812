"""`r3llvm doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from r3llvm import toolchain
from r3llvm.cli.doctor import command, examine


def _doctor(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)


def test_a_machine_that_is_set_up() -> None:
    result = _doctor()
    assert result.return_value == 0, result.output
    assert "all that is required is there" in result.output
    for name in (
        "clang++",
        "ptxas",
        "libdevice",
        "libr3core.so",
        "libcudart.so.13",
        "cuda_runtime.h",
        "nevergrad",
        "host",
    ):
        assert name in result.output


def test_json() -> None:
    report = json.loads(_doctor("--json").output)
    assert report["ok"] is True
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert Path(findings["ptxas"]["path"]).exists() and findings["ptxas"]["version"].split(".")[0].isdigit()
    assert findings["r3llvm._native"]["version"].startswith("LLVM 2")
    assert all(finding["disables"] and finding["remedy"] for finding in report["findings"] if finding["required"])


def test_a_bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("CUDA_PATH", "CUDA_HOME", "LLVM_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("r3llvm.capture.toolkit._candidates", lambda: iter([tmp_path]))
    result = _doctor()
    assert result.return_value == 1
    assert "something required is missing" in result.output
    assert "apt-get install clang-22" in result.output and "pip install nvidia-cuda-nvcc" in result.output
    assert "pip install 'r3llvm[cuda]'" in result.output  # not taken for markup
    monkeypatch.setenv("R3LLVM_RECORDER", str(tmp_path))
    missing = {finding.name for finding in examine() if not finding.found}
    assert {"clang++", "opt", "ptxas", "fatbinary", "nvcc", "libdevice", "cuda_runtime.h", "cmake"} <= missing
    assert {"compute-sanitizer", "libr3recorder.so"} <= missing


def test_the_recording_library_is_found_where_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libr3recorder.so").touch()
    monkeypatch.setenv("R3LLVM_RECORDER", str(tmp_path))
    [finding] = [finding for finding in examine() if finding.name == "libr3recorder.so"]
    assert finding.path == str(tmp_path / "libr3recorder.so")
    assert finding.found and not finding.required


def test_a_driver_that_breaks_takes_nobody_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_GPU_PROBE", "import os; os.abort()")
    assert toolchain.gpus() == []
    monkeypatch.setattr(
        toolchain, "_GPU_PROBE", 'print(\'[{"name": "G", "capability": "9.0", "memory": 1, "driver": "13.0"}]\')'
    )
    assert [gpu.name for gpu in toolchain.gpus()] == ["G"]
    assert any(finding.kind == "device" and finding.name == "G" for finding in examine())


def test_versions_and_the_ptx_they_imply(tmp_path: Path) -> None:
    def ptxas(release: str) -> Path:
        program = tmp_path / release
        program.write_text(
            f"#!/bin/sh\necho 'ptxas: NVIDIA (R) Ptx optimizing assembler'\necho 'release, V{release}'\n"
        )
        program.chmod(0o755)
        return program

    expected = {"13.0.88": "+ptx88", "12.9.1": "+ptx88", "12.8.93": "+ptx87", "12.4.0": "+ptx84", "11.8.0": "+ptx78"}
    assert {release: toolchain.ptx_features(ptxas(release))[0] for release in expected} == expected
    assert toolchain.ptx_features(ptxas("9.0.1")) == []
    assert toolchain.version_of(tmp_path / "missing") == ""
