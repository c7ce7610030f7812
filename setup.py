"""Builds the native parts with CMake. What does not need code is in pyproject.toml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pybind11
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
LLVM_VERSIONS = (22, 21, 20)  # the first is the tested one


def llvm_directory() -> str:
    """The folder of LLVMConfig.cmake, from LLVM_DIR, LLVM_CONFIG or the newest llvm-config that we build with."""
    if directory := os.environ.get("LLVM_DIR"):
        return directory
    named = os.environ.get("LLVM_CONFIG")
    candidates = [named] if named else [*(f"llvm-config-{version}" for version in LLVM_VERSIONS), "llvm-config"]
    refused = []
    for candidate in candidates:
        if not (program := shutil.which(candidate)):
            continue
        version, directory = subprocess.check_output([program, "--version", "--cmakedir"], text=True).split()
        if int(version.split(".")[0]) in LLVM_VERSIONS:
            return directory
        refused.append(f"{program} is LLVM {version}")
    found = "; ".join(refused) or "found no " + " or ".join(candidates)
    sys.exit(
        f"r3llvm builds with LLVM 20 to 22 and tests with 22: {found}. "
        "Install llvm-22-dev, or name another with LLVM_CONFIG=/path/to/llvm-config or LLVM_DIR."
    )


def cuda_include() -> str | None:
    """The folder of cuda_runtime.h: what hostcuda takes CUDA's types and prototypes from."""
    roots = [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    roots += sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/cu[0-9]*"), reverse=True)
    if ptxas := shutil.which("ptxas"):
        roots.append(Path(ptxas).resolve().parent.parent)
    roots.append(Path("/usr/local/cuda"))
    named = os.environ.get("R3_CUDA_INCLUDE")
    folders = [Path(named)] if named else [root / "include" for root in roots]
    return next((str(folder) for folder in folders if (folder / "cuda_runtime.h").exists()), None)


class CMakeBuild(build_ext):
    """One CMake build of every target, installed as r3llvm/_native*.so and r3llvm/lib/ under the folder asked for."""

    def build_extension(self, ext: Extension) -> None:
        cmake = shutil.which("cmake")
        if not cmake:
            sys.exit("r3llvm's extension is built with CMake: install cmake 3.25 or newer")
        build = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"
        ninja = shutil.which("ninja")
        options = {
            "CMAKE_BUILD_TYPE": os.environ.get("R3_BUILD_TYPE", "Release"),
            "CMAKE_MAKE_PROGRAM": ninja,
            "LLVM_DIR": llvm_directory(),
            "PYBIND11_FINDPYTHON": "ON",
            "Python_EXECUTABLE": sys.executable,
            "R3_CUDA_INCLUDE": cuda_include(),
            "R3_WERROR": "ON" if os.environ.get("CI") else "OFF",
            "pybind11_DIR": pybind11.get_cmake_dir(),
        }
        jobs = str(self.parallel or len(os.sched_getaffinity(0)))
        run(
            [cmake, "-S", str(ROOT), "-B", str(build)]
            + (["-G", "Ninja"] if ninja else [])
            + [f"-D{name}={value}" for name, value in options.items() if value]
        )
        run([cmake, "--build", str(build), "--parallel", jobs])
        self.install_command = [cmake, "--install", str(build), "--component", "python", "--prefix"]
        run([*self.install_command, str(Path(self.get_ext_fullpath(ext.name)).resolve().parent)])

    def copy_extensions_to_source(self) -> None:
        """For an editable install: r3llvm/lib belongs there too."""
        run([*self.install_command, str(ROOT / "r3llvm")])


class BuildPython(build_py):
    """Puts the pass catalogue into the package; an editable install reads it where it lies."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for file in sorted((ROOT / "passes").glob("*.json")):
                target = Path(self.build_lib) / "r3llvm" / "passes" / file.name
                self.mkpath(str(target.parent))
                self.copy_file(str(file), str(target))


def run(command: list[str]) -> None:
    if subprocess.run(command).returncode:
        sys.exit(f"r3llvm's extension was not built: `{' '.join(command)}` failed; its output is above")


setup(
    ext_modules=[Extension("r3llvm._native", sources=[])], cmdclass={"build_ext": CMakeBuild, "build_py": BuildPython}
)
