"""The whole path on the host device: wrap, run, record, replay."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import r3llvm
from r3llvm.capture.toolkit import Toolkit, hostcuda_library
from r3llvm.errors import R3Error
from r3llvm.files import content_hash
from r3llvm.recording import Recording
from tests.capture.conftest import clang, toolkit  # noqa: F401
from tests.cli.conftest import Run
from tests.recording.fake import FakeRecording

APPLICATION = """
#include <cstdio>
#include <cstdlib>
#include <vector>
__device__ int calls;
__constant__ float factor;
template <class T> __global__ void scale(T *data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) ++calls;
  if (i < n) data[i] = factor * data[i] + sinf(data[i]);
}
__global__ void sum(const float *data, double *total, int n) {
  __shared__ double partial[64];
  double mine = 0;
  for (int i = threadIdx.x; i < n; i += 64) mine += data[i];
  partial[threadIdx.x] = mine;
  __syncthreads();
  for (int half = 32; half; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *total = partial[0];
}
int main(int argc, char **argv) {
  const int n = 1000;
  std::vector<float> values(n, 1.5f);
  float *data, three = 3;
  double *total, result = 0;
  cudaMalloc(&data, n * sizeof(float));
  cudaMalloc(&total, sizeof(double));
  cudaMemcpyToSymbol(factor, &three, sizeof three);
  cudaMemcpy(data, values.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  for (int i = 0; i < 3; ++i) scale<<<(n + 127) / 128, 128>>>(data, n - i);
  sum<<<1, 64>>>(data, total, n);
  cudaMemcpy(&result, total, sizeof result, cudaMemcpyDeviceToHost);
  std::printf("total %.1f\\n", result);
  if (argc > 1) std::abort();
  return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("path")


@pytest.fixture(scope="module")
def app(folder: Path, clang: str, toolkit: Toolkit) -> Path:  # noqa: F811
    """The wrapped application."""
    from r3llvm.capture import Store, Wrap

    pytest.importorskip("r3llvm._native", reason="r3llvm's extension is not built")
    try:
        hostcuda_library()
    except R3Error as error:
        pytest.skip(str(error))
    source, program = folder / "app.cu", folder / "app"
    source.write_text(APPLICATION)
    status = Wrap(Store(folder / "store"), device="host", strict=True).run(
        [clang, "-O2", str(source), "-o", str(program)]
    )
    assert status == 0
    return program


@pytest.fixture(autouse=True)
def store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R3LLVM_STORE", str(folder / "store"))


def total(text: str) -> float:
    """What the application printed, in units of what it should print."""
    expected = 0.0
    for n in range(1000):
        value = 1.5
        for _ in range(min(3, 1000 - n)):
            value = 3 * value + math.sin(value)
        expected += value
    return float(text.removeprefix("total ")) / expected


def test_the_application_runs(app: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(r3llvm.__file__).parents[1])}
    command = [sys.executable, "-m", "r3llvm", "run", "--", str(app)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert total(ended.stdout) == pytest.approx(1)


def test_a_recording_replays_with_every_byte_equal(run: Run, app: Path) -> None:
    status, out, err = run("record", "-o", "recordings/app", "--", app)
    assert status == 0
    assert total(out) == pytest.approx(1)
    assert err.startswith("r3llvm: recorded 4 launches of 2 kernels in recordings/app (")
    assert run("verify", "recordings/app")[0] == 0
    launches = Recording.open("recordings/app").launches()
    assert [launch.index for launch in launches] == [0, 1, 2, 0]
    assert {region.name for region in launches[0].regions} == {"", "calls", "factor"}
    for options in ([], ["--passes", "default<O1>"], ["--passes", "default<O0>"], ["--set", "unroll-threshold=0"]):
        status, out, err = run("replay", "--json", "recordings/app", *options)
        assert (status, err) == (0, "")
        replays = [json.loads(line) for line in out.splitlines()]
        assert [replay["status"] for replay in replays] == ["ok"] * 4
        assert all(replay["modelled_cycles"] > 0 and replay["mismatches"] == 0 for replay in replays)
        assert replays[3]["bytes_compared"] >= 4008
    assert run("replay", "--json", "recordings/app")[1] == run("replay", "--json", "recordings/app")[1]


def test_an_exported_recording_replays(run: Run, app: Path) -> None:
    assert run("record", "-o", "app", "--kernels", "sum", "--", app)[0] == 0
    assert run("export", "app", "-o", "sent.tar")[0] == 0
    status, out, _ = run("replay", "sent.tar")
    assert status == 0
    assert out.endswith("1 of 1 launches replayed with every recorded byte equal\n")
    assert "time" not in out


def test_kernels_and_launches_are_chosen(run: Run, app: Path) -> None:
    status, _, err = run("record", "-o", "few", "--kernels", r"scale<float>\(", "--max-launches", "2", "--", app)
    assert status == 0
    assert "2 launches of 1 kernel " in err
    status, out, _ = run("replay", "--json", "few", "--launch", "1", "--no-cost")
    [replay] = [json.loads(line) for line in out.splitlines()]
    assert (replay["launch"], "modelled_cycles" in replay) == (1, False)
    assert run("replay", "few", "--launch", "7")[0] == 2
    status, out, err = run("record", "-o", "none", "--kernels", "matmul", "--", app)
    assert status == 2
    assert total(out) == pytest.approx(1)
    assert err.startswith(
        "r3llvm: error: no kernel matches 'matmul'; the application launched void scale<float>(float*, int)"
    )
    assert not Path("none").exists()


def test_an_application_that_dies(run: Run, app: Path) -> None:
    status, _, err = run("record", "-o", "dead", "--", app, "die")
    assert (status, err.splitlines()[-1]) == (
        1,
        "r3llvm: error: the application was killed by SIGABRT; nothing was recorded (--allow-failure keeps what was)",
    )
    assert not list(Path().iterdir())
    assert run("record", "-o", "dead", "--allow-failure", "--", app, "die")[0] == 0
    assert run("replay", "dead")[0] == 0


def test_a_wrong_result_is_never_good(run: Run, app: Path) -> None:
    assert run("record", "-o", "app", "--kernels", "sum", "--", app)[0] == 0
    manifest = json.loads(Path("app/manifest.json").read_text())
    region = next(region for region in manifest["launches"][0]["regions"] if region["size"] == 8)
    region["epilogue"] = list(FakeRecording(Path("app")).chunks(b"\xff" * 8))
    Path("app/manifest.json").write_text(json.dumps(manifest))
    status, out, err = run("replay", "app")
    assert status == 1
    assert "mismatch" in out
    assert "0 of 1 launches" in out
    assert f"allocation {region['base']:#x}: " in err
    assert content_hash(b"\xff" * 8) in region["epilogue"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--passes", "no-such-pass"], "unknown pass name 'no-such-pass'"),
        (["--passes", "default<O3>,"], "--passes"),
        (["--set", "no-such-option=1"], "no-such-option"),
        (["--set", "unroll-threshold=many"], "unroll-threshold"),
        (["--set", "=1"], "names no option"),
        (["--set", "ptxas.no-such-option=1"], "Unknown option"),
        (["--kernel", "matmul"], "no kernel matches"),
        (["--kernel", "("], "no regular expression"),
    ],
)
def test_unknown_passes_and_options_are_usage_errors(run: Run, app: Path, options: list[str], message: str) -> None:
    assert run("record", "-o", "app", "--kernels", "sum", "--", app)[0] == 0
    status, out, err = run("replay", "app", *options)
    assert (status, out) == (2, "")
    assert err.startswith("r3llvm: error: ")
    assert message in err
    assert err.count("\n") == 1
