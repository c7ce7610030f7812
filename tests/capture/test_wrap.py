"""Wrapping real compilations."""

from __future__ import annotations

from pathlib import Path

import pytest

from r3llvm.capture import Store, Wrap
from r3llvm.capture.fatbinary import images_of
from r3llvm.capture.toolkit import Toolkit
from r3llvm.errors import R3Error, UsageError
from r3llvm.files import content_hash

# Enough of CUDA to compile kernels and launches in a tenth of the time that the toolkit's headers take (-nocudainc).
TINY_CUDA = """
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
struct dim3 { unsigned x, y, z; dim3(unsigned x) : x(x), y(1), z(1) {} };
extern "C" int cudaConfigureCall(dim3, dim3, unsigned long = 0, void * = nullptr);
extern "C" unsigned __cudaPushCallConfiguration(dim3, dim3, unsigned long = 0, void * = nullptr);
extern "C" int cudaLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *);
"""
QUICK = "-nocudainc -nocudalib -include tiny.h"
SCALE = """
#include "factor.h"
__global__ void scale(float *data, int n) { data[n] *= FACTOR; }
void run(float *data, int n) { scale<<<1, n>>>(data, n); }
"""
SHIFT = "__global__ void shift(int *data) { *data += 1; }\nvoid go(int *data) { shift<<<1, 32>>>(data); }\n"
HEADER_GAPS = """
#include <algorithm>
int largest(int a, unsigned b) { return max(a, b) + min(a, 3) + std::max(a, 2); }
float whole(float x) { float part; return isfinite(x) ? modf(x, &part) : max(x, 2.0f); }
__host__ __device__ int both(int a, int b) { return max(a, b); }
__global__ void copy(float4 *to, float4 *from) { __stcs(to, __ldlu(from)); to[1].x = both(threadIdx.x, 3); }
int main() { copy<<<1, 1>>>(nullptr, nullptr); return largest(both(1, 2), clock()) + int(whole(2)); }
"""
FULL = """
__global__ void sine(float *data, int n) {
  cooperative_groups::sync(cooperative_groups::this_thread_block());
  data[threadIdx.x] = sinf(data[threadIdx.x]) + n;
}
int main() { sine<<<1, 32>>>(nullptr, 1); return cudaDeviceSynchronize(); }
"""
# The device side of the compilation sees no `pick` that the host function may call.
GAP = """
#ifdef __CUDA_ARCH__
__device__ int pick(int a);
#else
int pick(int a);
#endif
int first() { return pick(1); }
"""


class Builds:
    """Runs wrapped commands in a folder of its own."""

    def __init__(self, folder: Path, clang: str, toolkit: Toolkit) -> None:
        self.folder = folder
        self.clang = clang
        self.store = Store(folder / "store")
        self.notes: list[str] = []
        (folder / "tiny.h").write_text(TINY_CUDA)
        (folder / "factor.h").write_text("#define FACTOR 3\n")
        (folder / "scale.cu").write_text(SCALE)
        (folder / "shift.cu").write_text(SHIFT)
        (folder / "plain.cpp").write_text("int main() { return 0; }\n")

    def __call__(self, arguments: str, **options: object) -> int:
        wrap = Wrap(self.store, device="host", note=self.notes.append, **options)  # type: ignore[arg-type]
        return wrap.run([self.clang, *QUICK.split(), *arguments.split()])

    def modules(self) -> list[str]:
        return sorted(path.stem for path in self.store.root.glob("modules/*.bc"))

    def sources_of_images(self, path: str) -> list[str]:
        """For each device image in a file: the name of the source that the store has for it."""
        hashes = [self.store.image(content_hash(image)) for image in images_of(self.folder / path)]
        return [Path(self.store.describe(module).source).name if module else "?" for module in hashes]


@pytest.fixture
def builds(tmp_path: Path, clang: str, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch) -> Builds:
    monkeypatch.chdir(tmp_path)
    return Builds(tmp_path, clang, toolkit)


def test_an_object_gives_its_module_and_where_it_came_from(builds: Builds) -> None:
    assert builds("-std=c++17 -c scale.cu -o scale.o") == 0
    assert builds.sources_of_images("scale.o") == ["scale.cu"]
    [module] = builds.modules()
    described = builds.store.describe(module)
    assert described.source == str(builds.folder / "scale.cu")
    assert described.command == (builds.clang, *QUICK.split(), "-std=c++17", "-c", "scale.cu", "-o", "scale.o")
    assert described.directory == str(builds.folder)
    assert described.arch == "sm_90"
    assert "clang version" in described.compiler
    includes = {include.path: include.hash for include in described.includes}
    assert includes[str(builds.folder / "factor.h")] == content_hash(b"#define FACTOR 3\n")
    bitcode = builds.store.module(module)
    assert bitcode[:4] == b"BC\xc0\xde"
    assert b"_Z5scalePfi" in bitcode
    assert builds.notes == []


def test_the_toolkits_headers_are_found(builds: Builds) -> None:
    (builds.folder / "full.cu").write_text("#include <cooperative_groups.h>\n" + FULL)
    assert Wrap(builds.store, note=builds.notes.append).run([builds.clang, "-std=c++17", "-c", "full.cu"]) == 0
    assert builds.sources_of_images("full.o") == ["full.cu"]
    assert builds.notes == []


def test_a_program_of_several_sources_maps_each_image(builds: Builds, runtime: Path) -> None:
    assert builds("-shared -fPIC -x cuda shift.cu scale.cu -o both.so") == 0
    assert builds.sources_of_images("both.so") == ["shift.cu", "scale.cu"]


def test_images_of_objects_and_sources_without_kernels_are_kept_apart(builds: Builds, runtime: Path) -> None:
    assert builds("-fPIC -c shift.cu") == 0
    # Two images and two CUDA sources, but one image is the object's.
    assert builds("-shared -fPIC -x cuda scale.cu plain.cpp -x none shift.o -o both.so") == 0
    assert sorted(builds.sources_of_images("both.so")) == ["scale.cu", "shift.cu"]


def test_a_module_does_not_depend_on_optimisation_or_output(builds: Builds) -> None:
    assert builds("-O0 -c shift.cu -o first.o") == 0
    assert builds("-O2 -MD -MF deps.d -c shift.cu -o second.o") == 0
    assert len(builds.modules()) == 1
    assert builds.sources_of_images("first.o") == builds.sources_of_images("second.o") == ["shift.cu"]
    assert (builds.folder / "deps.d").read_text().startswith("second.o:")


def test_what_the_compiler_refuses_fails_as_it_does(builds: Builds, capfd: pytest.CaptureFixture[str]) -> None:
    (builds.folder / "wrong.cu").write_text("__global__ void k() { undeclared = 1; }\n")
    assert builds("-c wrong.cu") == 1
    assert "use of undeclared identifier 'undeclared'" in capfd.readouterr().err
    assert not (builds.folder / "wrong.o").exists()
    assert builds.modules() == []


def test_what_only_nvcc_accepts_is_compiled_with_the_next_rung(
    builds: Builds, capfd: pytest.CaptureFixture[str]
) -> None:
    (builds.folder / "gap.cu").write_text(GAP + SHIFT)
    assert builds("-c gap.cu") == 0
    assert builds.sources_of_images("gap.o") == ["gap.cu"]
    assert builds.notes == ["note: clang needed -fgpu-defer-diag where nvcc needs nothing; built with it"]
    assert "error" not in capfd.readouterr().err


def test_what_nvccs_headers_have_is_provided(builds: Builds) -> None:
    (builds.folder / "gaps.cu").write_text(HEADER_GAPS)
    assert Wrap(builds.store, note=builds.notes.append).run([builds.clang, "-c", "gaps.cu"]) == 0
    assert builds.sources_of_images("gaps.o") == ["gaps.cu"]
    assert len(builds.notes) == 1
    assert "nvcc_gaps.h where nvcc needs nothing" in builds.notes[0]


def test_a_launcher_stays_in_front(builds: Builds) -> None:
    launcher = builds.folder / "ccache"
    launcher.write_text('#!/bin/sh\nexec "$@"\n')
    launcher.chmod(0o755)
    (builds.folder / "gap.cu").write_text(GAP + SHIFT)
    words = [str(launcher), builds.clang, *QUICK.split(), "-c", "gap.cu"]
    assert Wrap(builds.store, note=builds.notes.append).run(words) == 0
    assert builds.sources_of_images("gap.o") == ["gap.cu"]


def test_a_command_without_cuda_is_run_as_it_is(builds: Builds, capfd: pytest.CaptureFixture[str]) -> None:
    assert builds("plain.cpp -o plain") == 0
    assert builds("--version") == 0
    assert "clang version" in capfd.readouterr().out
    assert builds("-c missing.cpp") == 1
    assert not builds.store.root.exists()


def test_preprocessing_goes_to_standard_output(builds: Builds, capfd: pytest.CaptureFixture[str]) -> None:
    assert builds("-E -x cuda factor.h -dM --cuda-host-only") == 0
    assert "#define FACTOR 3" in capfd.readouterr().out
    assert not builds.store.root.exists()


def test_what_cannot_be_captured_is_named(builds: Builds) -> None:
    assert builds("--offload-new-driver -c shift.cu") == 0
    assert (builds.folder / "shift.o").exists()
    assert builds.notes == [
        "warning: the module of shift.cu was not captured: "
        "--offload-new-driver hides the device image; build without it"
    ]
    with pytest.raises(R3Error, match=r"1 of 1 modules were not captured \(--strict\): shift\.cu"):
        builds("--offload-new-driver -c shift.cu", strict=True)
    assert not (builds.folder / "shift.o").exists()


def test_a_store_that_cannot_be_written_fails_the_build(builds: Builds) -> None:
    builds.store.root.write_text("in the way")
    with pytest.raises(R3Error, match="cannot write"):
        builds("-c shift.cu")
    assert not (builds.folder / "shift.o").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no compiler given"),
        (["no-such-compiler", "a.cu"], "no such program"),
        (["make", "-j2"], "make is no compiler"),
        (["true"], "true is no compiler"),
    ],
)
def test_what_is_no_compiler_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Wrap(Store(tmp_path)).run(words)
