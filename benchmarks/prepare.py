"""`python -m benchmarks.prepare FOLDER`: builds every program of the GPU benchmarks, for machines that cannot.

Needs clang, nvcc and, for the foreign programs, PyPI. The folder holds all that the programs need beyond a driver, the
C and C++ libraries and Python with numpy:

    programs.json   the programs and how each is run
    bin/ lib/       what was built; the CUDA runtime that it was linked with
    store/          the modules of what clang built
    cases/          input files
    commit          what it was made from
    faults/         variants of one kernel that are right, or wrong, each in its own way
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.gpu import PROGRAMS, Build, Catalogue, Program
from benchmarks.results import ROOT, commit
from r3llvm.capture.toolkit import find_toolkit
from r3llvm.toolchain import find_clang, find_cuda_tool
from tests.foreign import cccl, kernel_tuner, kmcuda, program, pytigre

ARCH = "sm_90"
OWN = ROOT / "benchmarks" / "programs"

# Sizes for a GPU: what a kernel touches stays within half of L2, or is many times L2, so that what the kernel before it
# left there hardly matters; launches are several.
EXAMPLES = {
    "histogram": "134217728 1056 8",
    "hydro": "96 10",
    "lbm": "2048 1024 6",
    "lookup": "2000000 48 512 8",
    "nbody": "4096 8",
    "spmv": "100000 matrix.mtx 20",
    "stencil": "1024 1024 16 12",
    "stream": "67108864 12",
}
# Launches to record: past the start, and the only ones of kernels that are launched once.
LAUNCHES = {"lbm": "0,3", "nbody": "0,3"} | dict.fromkeys(("hydro", "lookup", "stencil", "stream"), "3")
# These are built by nvcc, too.
NVCC_EXAMPLES = ("histogram", "lbm", "lookup", "stencil", "stream")
_KERNEL_TUNER_BLOCKS = {"kernel_tuner_plain": (256, 256), "kernel_tuner_tiled": (42, 341)}
_IMAGE_FLOATS = 4112 * 4112  # what the largest of them reads
_VOLUME = 192
_KMCUDA_CASES = ("k-means++-l2-single", "knn20-l2-single")

FAULTS = {
    "good": 0,
    "good_unrolled": 1,
    "good_backwards": 2,
    "wrong_value": 10,
    "does_nothing": 11,
    "half_done": 12,
    "out_of_bounds": 13,
    "illegal_address": 20,
    "misaligned": 21,
    "trap": 22,
    "assert": 23,
    "endless": 24,
    "too_large": 25,
    "invalid_launch": 26,
}


class Tools(program.Tools):
    """Builds for a GPU, into the folder's bin/ and store/."""

    def __init__(self, folder: Path, defines: Sequence[str] = ()) -> None:
        super().__init__(folder / "bin")
        self._defines = defines
        self._store = folder / "store"

    def wrap(self, *words: str | Path) -> None:
        clang = str(find_clang() or "clang++")
        wrapped = ["wrap", "--strict", "--device", "cuda", "--arch", ARCH, "--store", str(self._store), "--", clang]
        self.run(*wrapped, *self._defines, *words)


class Preparation:
    """What is built into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[Program] = []
        self.missing: dict[str, str] = {}
        for name in ("bin", "lib", "store", "cases", "faults"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def attempt(self, name: str, build: Callable[..., Program], *arguments: Any) -> None:
        """One program more, or the reason why there is none."""
        click.echo(f"{name} …", err=True)
        try:
            self.programs.append(build(*arguments))
        except Exception as error:
            self.missing[name] = f"{type(error).__name__}: {' '.join(str(error).split())[-500:]}"
            click.echo(f"{name}: {self.missing[name]}", err=True)

    def finish(self) -> None:
        catalogue = Catalogue(programs=tuple(self.programs), missing=self.missing)
        (self.folder / PROGRAMS).write_text(catalogue.model_dump_json(indent=1) + "\n")
        (self.folder / "commit").write_text(commit() + "\n")

    # Our own programs

    def clang(self, name: str, sources: Sequence[Path], arguments: str, measured: bool = False) -> Program:
        Tools(self.folder).wrap("-O3", "-x", "cuda", *sources, "-o", self.folder / "bin" / name)
        command = ("{folder}/bin/" + name, *arguments.split())
        launches = LAUNCHES.get(name, "")
        return Program(name=name, build="clang", command=command, launches=launches, measured=measured)

    def nvcc(self, name: str, sources: Sequence[Path], arguments: str, build: Build) -> Program:
        target = f"{name}.{build}"
        cudart = build.removeprefix("nvcc-")
        words = ["-O3", f"-arch={ARCH}", "-cudart", cudart, *map(str, sources), "-o", str(self.folder / "bin" / target)]
        call_nvcc(*words)
        return Program(name=target, build=build, command=("{folder}/bin/" + target, *arguments.split()))

    # Foreign ones

    def kernel_tuner(self, known: kernel_tuner.KernelTuner) -> Program:
        x, y = _KERNEL_TUNER_BLOCKS[known.name]
        known.build(Tools(self.folder, [f"-DBLOCKS_X={x}", f"-DBLOCKS_Y={y}", "-DROUNDS=10"]))
        weights = known.filter[0] * known.filter[1]
        return Program(
            name=known.name,
            build="clang",
            command=("{folder}/bin/" + known.name,),
            floats={"input.bin": _IMAGE_FLOATS, "filter.bin": weights},
            outputs=("tiled.bin", "naive.bin", "sum.bin"),
            measured=True,
        )

    def total_variation(self, known: pytigre.TotalVariation) -> Program:
        known.build(Tools(self.folder))
        return Program(
            name=known.name,
            build="clang",
            command=("{folder}/bin/tigre_tv", *[str(_VOLUME)] * 3, "8.0", "20"),
            floats={"input.bin": _VOLUME**3},
            outputs=("output.bin",),
            measured=True,
        )

    def back_projection(self, known: pytigre.BackProjection) -> Program:
        known.build(Tools(self.folder))
        (case,) = known.cases()
        return Program(
            name=known.name,
            build="clang",
            command=("{folder}/bin/tigre_backprojection", *case.arguments),
            inputs=self._inputs(known.name, case),
            outputs=("volume.bin",),
            measured=True,
        )

    def cccl(self, known: cccl.Cccl) -> Program:
        known.build(Tools(self.folder))
        rounds = {"thrust_reduce_by_key": ("8000000", "300", "8"), "cub_sort_scan": ("16000000", "8")}
        command = ("{folder}/bin/" + known.name, *rounds[known.name])
        return Program(name=known.name, build="clang", command=command, measured=True)

    def kmcuda(self, known: kmcuda.KMCuda) -> None:
        """One program a case."""

        def build() -> Program:
            known.build(Tools(self.folder))
            for left in (self.folder / "bin").glob("*.o"):
                left.unlink()
            return next(programs)

        library = "{folder}/bin/libKMCUDA.so"
        driver = "{root}/tests/foreign/drivers/kmcuda_case.py"
        programs = (
            Program(
                name=f"{known.name}-{case.name}",
                build="clang",
                command=("{python}", driver, library),
                inputs=self._inputs(f"{known.name}-{case.name}", case),
                outputs=("output.npz",),
                measured=True,
            )
            for case in known.cases()
            if case.name in _KMCUDA_CASES
        )
        self.attempt(known.name, build)
        self.programs += programs if known.name not in self.missing else ()

    def _inputs(self, name: str, case: program.Case) -> str:
        folder = self.folder / "cases" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        case.prepare(folder)
        return name

    def faults(self) -> None:
        """A cubin and a PTX file of each variant; what the assembler refuses is left out and said."""
        for name, number in FAULTS.items():
            target = self.folder / "faults" / name
            try:
                for kind in ("ptx", "cubin"):
                    source = str(OWN / "faults.cu")
                    options = [f"-DVARIANT={number}", f"-arch={ARCH}", "-O3", "-w"]
                    call_nvcc(f"-{kind}", *options, source, "-o", f"{target}.{kind}")
            except RuntimeError as error:
                self.missing[f"faults/{name}"] = str(error)
                click.echo(f"faults/{name}: {error}", err=True)

    def runtime(self) -> None:
        """The CUDA runtime, for a machine whose toolkit has another, or none."""
        toolkit = find_toolkit()
        directory = toolkit.library_directory if toolkit else None
        if directory is None:
            raise click.ClickException("no CUDA toolkit with libcudart found: name one in CUDA_PATH")
        shutil.copy(directory / "libcudart.so.13", self.folder / "lib" / "libcudart.so.13")


def call_nvcc(*words: str) -> None:
    """Raises RuntimeError with the first line of what it says."""
    nvcc = find_cuda_tool("nvcc")
    if nvcc is None:
        raise RuntimeError("no nvcc found: install a CUDA toolkit, or name it in CUDA_PATH")
    done = subprocess.run([str(nvcc), *words], capture_output=True, text=True, errors="replace")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or [done.stderr.strip()]
        raise RuntimeError(f"nvcc: {lines[0]}")


def prepare(folder: Path) -> Catalogue:
    """Builds everything; what cannot be built is listed with its reason."""
    made = Preparation(folder)
    made.runtime()
    for name, arguments in EXAMPLES.items():
        sources = sorted((ROOT / "examples" / name).glob("*.cu"))
        made.attempt(name, made.clang, name, sources, arguments, True)
    nvcc: tuple[Build, ...] = ("nvcc-static", "nvcc-shared")
    for name in NVCC_EXAMPLES:
        sources = sorted((ROOT / "examples" / name).glob("*.cu"))
        for build in nvcc:
            made.attempt(f"{name}.{build}", made.nvcc, name, sources, EXAMPLES[name], build)
    short = ["short_launches", [OWN / "short_launches.cu"], "102400", "nvcc-static"]
    made.attempt("short_launches.nvcc-static", made.nvcc, *short)
    made.attempt("copied_launch", made.clang, "copied_launch", [OWN / "copied_launch.cu"], "")
    made.attempt("faults", made.clang, "faults", [OWN / "faults.cu"], "")
    made.faults()
    for tuner in kernel_tuner.PROGRAMS:
        made.attempt(tuner.name, made.kernel_tuner, tuner)
    made.attempt("pytigre_tv", made.total_variation, pytigre.TotalVariation())
    made.attempt("pytigre_backprojection", made.back_projection, pytigre.BackProjection())
    for ours in cccl.PROGRAMS:
        made.attempt(ours.name, made.cccl, ours)
    made.kmcuda(kmcuda.KMCuda())
    made.finish()
    return Catalogue.model_validate_json((folder / PROGRAMS).read_text())


@click.command(help="Build every program of the GPU benchmarks into FOLDER.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "build" / "programs")
def main(folder: Path) -> None:
    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()) and not (folder / PROGRAMS).exists():
        raise click.UsageError(f"{folder} holds something else: name an empty or a new folder")
    with tempfile.TemporaryDirectory(dir=folder.parent if folder.parent.is_dir() else None, prefix=".prepare-") as new:
        catalogue = prepare(Path(new))
        Path(new).chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(new, folder, symlinks=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    click.echo(f"{len(catalogue.programs)} programs in {os.path.relpath(folder)} ({size / 2**20:.1f} MiB)", err=True)
    for name, reason in catalogue.missing.items():
        click.echo(f"not built: {name}: {reason}", err=True)
    sys.exit(not catalogue.programs)


if __name__ == "__main__":
    main()
