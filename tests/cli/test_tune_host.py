"""`r3llvm tune` with everything real: wrap, record, tune, kill, resume, show-best, opt."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from r3llvm.capture.toolkit import find_toolkit
from r3llvm.database import Database

pytest.importorskip("r3llvm._native")
CLANG = shutil.which("clang++-22") or shutil.which("clang++")
OPT = shutil.which("opt-22")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CLANG and OPT and find_toolkit()), reason="needs clang 22, opt-22 and the CUDA headers"),
]

SOURCE = """
#include <cstdio>
__global__ void smooth(const float* in, float* out, int n, int radius) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int d = -radius; d <= radius; ++d) sum += in[min(max(i + d, 0), n - 1)];
  out[i] = sum / (2 * radius + 1);
}
__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
int main() {
  const int n = 2000;
  float *in, *out, host[n];
  for (int i = 0; i < n; ++i) host[i] = i % 7;
  cudaMalloc(&in, sizeof host);
  cudaMalloc(&out, sizeof host);
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  smooth<<<(n + 127) / 128, 128>>>(in, out, n, 5);
  smooth<<<(n + 127) / 128, 128>>>(in, out, n, 9);
  twice<<<(n + 127) / 128, 128>>>(out, n);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  printf("%f\\n", host[1000]);
  return host[1000] == 0;
}
"""


def r3llvm(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=folder, env=environment(folder), capture_output=True, text=True)


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "r3llvm", *map(str, words)]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "R3LLVM_STORE": str(folder / "store"), "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smooth")
    (folder / "smooth.cu").write_text(SOURCE)
    for words in (
        ("wrap", "--strict", "--device", "host", "--", CLANG, "-O2", "-x", "cuda", "smooth.cu", "-o", "smooth"),
        ("record", "-o", "recording", "--", "./smooth"),
    ):
        done = r3llvm(folder, *words)
        assert done.returncode == 0, done.stderr
    return folder / "recording"


OPTIONS = ("--kernel", "smooth", "--workers", 1, "--length", 12, "--seed", 3, "--json")


@pytest.fixture(scope="module")
def tuned(recording: Path) -> dict[str, object]:
    done = r3llvm(recording.parent, "tune", recording, "--budget", 25, *OPTIONS)
    assert done.returncode == 0, done.stderr
    summary: dict[str, object] = json.loads(done.stdout)
    return summary


def test_the_best_is_verified_and_no_worse_than_the_baseline(tuned: dict) -> None:
    assert tuned["confirmed"] is True
    assert tuned["trials"] == 25 == tuned["verified"] + tuned["duplicates"] + sum(tuned["failures"].values())
    assert tuned["unit"] == "modelled cycles"
    assert [x["launch"] for x in tuned["launches"]] == [0, 1]
    assert tuned["speedup"] >= 1
    assert tuned["baseline"]["resources"]["registers"] > 0


def test_opt_takes_what_show_best_prints(recording: Path, tuned: dict) -> None:
    shown = r3llvm(recording.parent, "show-best", recording, "--kernel", "smooth")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == tuned["best"]["candidate"]["pipeline"] + "\n"
    (module,) = (recording / "modules").glob("*.bc")
    opt = subprocess.run(
        [OPT, f"-passes={shown.stdout.strip()}", module, "-o", os.devnull], capture_output=True, text=True
    )
    assert (opt.returncode, opt.stderr) == (0, "")


def test_replay_gives_the_same_cost(recording: Path, tuned: dict) -> None:
    pipeline = tuned["best"]["candidate"]["pipeline"]
    replay = r3llvm(recording.parent, "replay", recording, "--kernel", "smooth", "--passes", pipeline, "--json")
    assert replay.returncode == 0, replay.stderr
    costs = [json.loads(line)["modelled_cycles"] for line in replay.stdout.splitlines()]
    assert costs == [launch["best"] for launch in tuned["launches"]]


def test_kill_9_and_resume_find_the_same(recording: Path, tuned: dict, tmp_path: Path) -> None:
    path = tmp_path / "killed.sqlite"
    words = ("tune", recording, "--budget", 25, *OPTIONS, "--resume", "--database", path)
    for _ in range(2):
        process = subprocess.Popen(
            command(*words), env=environment(recording.parent), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        before = _trials(path)
        while process.poll() is None and _trials(path) < before + 5:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = r3llvm(recording.parent, *words)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert {key: summary[key] for key in ("best", "launches", "trials", "duplicates", "failures")} == {
        key: tuned[key] for key in ("best", "launches", "trials", "duplicates", "failures")
    }


def _trials(path: Path) -> int:
    if not path.exists():
        return 0
    try:
        with Database(path) as database:
            return sum(len(database.trials(session)) for session in database.sessions())
    except Exception:  # it is just being made
        return 0


def test_failures_leave_reproducers(recording: Path, tmp_path: Path) -> None:
    candidates = tmp_path / "candidates.jsonl"
    pipelines = ["function(loop(licm))", "no-such-pass", "function(instcombine)", "trigger-crash-module"]
    candidates.write_text("".join(json.dumps({"pipeline": pipeline}) + "\n" for pipeline in pipelines))
    words = ("--strategy", f"file:{candidates}", "--database", tmp_path / "t.sqlite", *OPTIONS[:4])
    done = r3llvm(recording.parent, "tune", recording, *words, "--json")
    assert done.returncode == 0, done.stderr
    failures = json.loads(done.stdout)["failures"]
    assert failures["parse_error"] == 1 and failures["pass_crash"] >= 2
    with Database(tmp_path / "t.sqlite") as database:
        failed = [trial for trial in database.trials(database.sessions()[0]) if not trial.ok]
    assert len(failed) >= 3
    for trial in failed:
        assert trial.message and "\n" not in trial.message
        assert Path(trial.reproducer).is_dir() and (tmp_path / "failures") in Path(trial.reproducer).parents
