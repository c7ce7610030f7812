"""What every runner must make of a kernel, right or wrong: one suite over CUDA source, for each device.

The devices differ by nature in three things, each said where it shows (Case.cuda, and `differs` below): the CPU
checks every access, so that it names a write beside the recorded memory, where a GPU only shows that something changed;
it runs deterministically; and it compares with the recorded bytes alone, without poison, so that it cannot tell a
kernel that writes what was there from one that does nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import llvmlite.binding as llvm
import pytest

from r3llvm.builder import Artifact, Builder, BuildStatus
from r3llvm.ir import to_text
from r3llvm.recording import Launch, Recording
from r3llvm.runner import Measurement, Runner, RunStatus
from r3llvm.space import BASELINE

SOURCE = r"""
#include <cassert>
#include <cstdio>

#define KERNEL(name) extern "C" __global__ void name(float *out, float *in, int n)
#define INDEX const int i = blockIdx.x * blockDim.x + threadIdx.x
__device__ int calls;

KERNEL(work) { INDEX; if (i == 0) ++calls; if (i < n) out[i] = 3 * in[i] + 1; }

KERNEL(work_otherwise) {
  INDEX;
  if (i == 0) calls += 1;
  if (i < n) { const float x = in[i]; out[i] = x + x + x + 1; }
}
KERNEL(work_wrong) { INDEX; if (i == 0) ++calls; if (i < n) out[i] = 3 * in[i] + 2; }
KERNEL(work_partly) { INDEX; if (i == 0) ++calls; if (i < n - 1) out[i] = 3 * in[i] + 1; }
KERNEL(work_nothing) {}
KERNEL(work_uncounted) { INDEX; if (i < n) out[i] = 3 * in[i] + 1; }
KERNEL(work_on_its_input) { INDEX; if (i == 0) ++calls; if (i < n) { out[i] = 3 * in[i] + 1; in[i] = 0; } }
KERNEL(work_not_a_number) {
  INDEX;
  if (i == 0) ++calls;
  if (i < n) out[i] = i == 7 ? __int_as_float(-1) : 3 * in[i] + 1;
}
KERNEL(work_beside) { INDEX; if (i == 0) ++calls; if (i < n) out[i] = 3 * in[i] + 1; if (i == 0) out[n] = 1; }
KERNEL(work_astray) { INDEX; if (i < n) out[i + (1ll << 45)] = 1; }
KERNEL(work_trap) { INDEX; if (i < n) out[i] = 1; if (i == 5) __trap(); }
KERNEL(work_assert) { INDEX; if (i < n) out[i] = 1; assert(i != 5); }
KERNEL(work_misaligned) { INDEX; if (i < n) *(volatile int *)((char *)out + 4 * i + 1) = 1; }
KERNEL(work_forever) { INDEX; while (i < n && *(volatile float *)in >= 0) {} }

// Adds in whatever order.
KERNEL(total) { INDEX; if (i < n) atomicAdd(out, in[i]); }
KERNEL(total_wrong) { INDEX; if (i < n / 2) atomicAdd(out, in[i]); }
// Leaves what was there, the second time.
KERNEL(again) { INDEX; if (i < n) out[i] = 2 * in[i]; }
KERNEL(again_nothing) {}
KERNEL(idle) { INDEX; if (i < 0) out[i] = 1; }

int main() {
  const int n = 1000;
  float host[n], *in, *fractions, *out, *sum, *same;
  cudaMalloc(&in, sizeof host);
  cudaMalloc(&fractions, sizeof host);
  cudaMalloc(&out, sizeof host);
  cudaMalloc(&same, sizeof host);
  cudaMalloc(&sum, sizeof(float));
  cudaMemset(out, 0, sizeof host);
  cudaMemset(same, 0, sizeof host);
  cudaMemset(sum, 0, sizeof(float));
  for (int i = 0; i < n; ++i) host[i] = i % 7;
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  for (int i = 0; i < n; ++i) host[i] = 1.0f / (i + 1);
  cudaMemcpy(fractions, host, sizeof host, cudaMemcpyHostToDevice);
  const int blocks = (n + 127) / 128;
  work<<<blocks, 128>>>(out, in, n);
  total<<<blocks, 128>>>(sum, fractions, n);
  again<<<blocks, 128>>>(same, in, n);
  again<<<blocks + 1, 128>>>(same, in, n);
  idle<<<blocks, 128>>>(out, in, n);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  std::printf("%f\n", host[1]);
  return cudaGetLastError();
}
"""


@dataclass(frozen=True)
class Case:
    """A kernel in the place of `work`. cuda: what may come of it on a GPU, where that differs from the host."""

    name: str
    host: RunStatus
    cuda: frozenset[RunStatus] = frozenset()
    message: str = ""  # on a GPU

    def statuses(self, device: str) -> frozenset[RunStatus]:
        return self.cuda if self.cuda and device == "cuda" else frozenset((self.host,))


MISMATCH = frozenset((RunStatus.MISMATCH,))
CASES = (
    Case("wrong", RunStatus.MISMATCH),
    Case("partly", RunStatus.MISMATCH),
    Case("nothing", RunStatus.MISMATCH),
    Case("uncounted", RunStatus.MISMATCH),
    Case("on_its_input", RunStatus.MISMATCH),
    Case("not_a_number", RunStatus.MISMATCH),
    Case("beside", RunStatus.ILLEGAL_ADDRESS, MISMATCH, "out-of-bounds write"),
    Case("astray", RunStatus.ILLEGAL_ADDRESS),
    # What a trap is called is the driver's choice.
    Case("trap", RunStatus.TRAP, frozenset((RunStatus.TRAP, RunStatus.ILLEGAL_INSTRUCTION))),
    Case("assert", RunStatus.ASSERT),
    Case("misaligned", RunStatus.MISALIGNED),
    Case("forever", RunStatus.TIMEOUT),
)


def make_recording(folder: Path, device: str) -> Recording:
    """Wraps, runs and records SOURCE."""
    clang = shutil.which("clang++-22") or shutil.which("clang++")
    assert clang, "clang++ is not installed"
    (folder / "app.cu").write_text(SOURCE)
    for words in (
        ["wrap", "--strict", "--device", device, "--store", "store", "--", clang, "-O2", "app.cu", "-o", "app"],
        ["record", "--device", device, "--store", "store", "-o", "recording", "--", "./app"],
    ):
        done = subprocess.run([sys.executable, "-m", "r3llvm", *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return Recording.open(folder / "recording")


def instead_of(kernel: str, other: str, module: bytes) -> bytes:
    """The module with another of its kernels under this one's name."""
    text = re.sub(rf"@{kernel}\b", f"@{kernel}_as_it_was", to_text(module))
    text = re.sub(rf"@{kernel}_{other}\b", f"@{kernel}", text)
    return bytes(llvm.parse_assembly(text, llvm.create_context()).as_bitcode())


class Conformance:
    """Subclasses say what `device` is, and open its runner."""

    device: ClassVar[str]

    @pytest.fixture(scope="class")
    def recording(self, tmp_path_factory: pytest.TempPathFactory) -> Recording:
        return make_recording(tmp_path_factory.mktemp(f"conformance-{self.device}"), self.device)

    @pytest.fixture(scope="class")
    def runner(self, recording: Recording) -> Iterator[Runner]:
        raise NotImplementedError

    def launch(self, recording: Recording, kernel: str, index: int = 0) -> Launch:
        return next(x for x in recording.launches() if (x.kernel, x.index) == (kernel, index))

    def artifact(self, recording: Recording, runner: Runner, kernel: str, other: str = "") -> Artifact:
        launch = self.launch(recording, kernel)
        module = recording.module(recording.module_of(launch))
        arch = runner.arch(recording.describe_module(recording.module_of(launch)).arch)
        built = Builder(instead_of(kernel, other, module) if other else module, kernel, arch).build(BASELINE)
        assert built.status is BuildStatus.OK, built.message
        return built

    def run(self, recording: Recording, runner: Runner, kernel: str, other: str = "", index: int = 0) -> Measurement:
        return runner.run(self.artifact(recording, runner, kernel, other), self.launch(recording, kernel, index))

    @property
    def differs(self) -> bool:
        """Whether this device tells what the CPU cannot."""
        return self.device == "cuda"

    def test_the_baseline_is_right(self, recording: Recording, runner: Runner) -> None:
        measured = self.run(recording, runner, "work")
        assert (measured.status, measured.message, measured.differences) == (RunStatus.OK, "", ())
        assert measured.cost is not None and measured.cost > 0
        assert measured.unit == runner.unit

    def test_another_way_to_the_same_result_is_right(self, recording: Recording, runner: Runner) -> None:
        measured = self.run(recording, runner, "work", "otherwise")
        assert (measured.differences, measured.status) == ((), RunStatus.OK), measured.message

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_what_is_wrong_is_called_so_and_harms_nothing(
        self, recording: Recording, runner: Runner, case: Case
    ) -> None:
        measured = self.run(recording, runner, "work", case.name)
        assert measured.status in case.statuses(self.device), measured.message
        assert measured.cost is None
        assert self.differs is False or case.message in measured.message
        assert bool(measured.differences) or measured.status is not RunStatus.MISMATCH or bool(case.message)
        after = self.run(recording, runner, "work")
        assert (after.status, after.differences) == (RunStatus.OK, ()), after.message

    def test_a_difference_is_located(self, recording: Recording, runner: Runner) -> None:
        measured = self.run(recording, runner, "work", "partly")
        [difference] = measured.differences
        assert difference.first_offset // 4 == 999
        assert self.run(recording, runner, "work", "uncounted").differences[0].region == "variable calls"

    def test_a_sum_in_any_order_is_right_and_marked(self, recording: Recording, runner: Runner) -> None:
        """Whether the order shows in the sum is up to chance on a GPU, and never does on the CPU."""
        measured = self.run(recording, runner, "total")
        assert measured.status is RunStatus.OK, measured.message
        assert self.differs or measured.warning == ""
        assert self.run(recording, runner, "total", "wrong").status is RunStatus.MISMATCH

    def test_a_kernel_that_leaves_what_was_there(self, recording: Recording, runner: Runner) -> None:
        assert self.run(recording, runner, "again", index=1).status is RunStatus.OK
        nothing = self.run(recording, runner, "again", "nothing", index=1)
        assert nothing.status is (RunStatus.MISMATCH if self.differs else RunStatus.OK)
        assert self.run(recording, runner, "again", "nothing", index=0).status is RunStatus.MISMATCH

    def test_a_launch_that_does_nothing(self, recording: Recording, runner: Runner) -> None:
        measured = self.run(recording, runner, "idle")
        assert measured.status is (RunStatus.UNCHECKABLE if self.differs else RunStatus.OK)

    def test_a_confirmation(self, recording: Recording, runner: Runner) -> None:
        measured = runner.confirm(self.artifact(recording, runner, "work", "otherwise"), self.launch(recording, "work"))
        assert measured.status is RunStatus.OK, measured.message
        wrong = runner.confirm(self.artifact(recording, runner, "work", "wrong"), self.launch(recording, "work"))
        assert (wrong.status, wrong.cost) == (RunStatus.MISMATCH, None)
