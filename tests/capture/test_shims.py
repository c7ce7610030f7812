"""The folder that stands before the compilers and the toolkit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from r3llvm.capture import shims, standin
from r3llvm.errors import R3Error, UsageError

SAY = '#!/bin/sh\necho "$0" "$@" "path=$PATH" "cuda=$CUDA_HOME"\n'


def program(path: Path, text: str = SAY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tools/ on PATH, a toolkit cuda/, and a cache. Its name has a space and an accent."""
    root = tmp_path / "ma chine é"
    for name in ("nvcc", "g++", "clang++-22", "ccache", "make"):
        program(root / "tools" / name)
    for name in ("nvcc", "ptxas"):
        program(root / "cuda" / "bin" / name)
    (root / "cuda" / "nvvm" / "libdevice").mkdir(parents=True)
    (root / "cuda" / "include").mkdir()
    (root / "cuda" / "include" / "cuda_runtime.h").touch()
    monkeypatch.setenv("PATH", f"{root}/tools:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_PATH", str(root / "cuda"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    for name in ("CUDA_HOME", "CUDACXX", "CXX", "R3LLVM_STANDIN", "R3LLVM_REPORT", "R3LLVM_AT_WORK"):
        monkeypatch.delenv(name, raising=False)
    return root


def output(words: list[str], **environment: str) -> str:
    return subprocess.run(
        words, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ).stdout


def test_each_compiler_on_path_has_a_shim_that_runs_it(machine: Path) -> None:
    folder = shims.make("cuda")
    names = {path.name for path in (folder / "shims").iterdir()}
    assert {"nvcc", "g++", "clang++-22", "ccache"} <= names
    assert "make" not in names
    environment = shims.environment(folder, os.environ)
    plain = os.environ["PATH"]
    for name in ("nvcc", "g++", "clang++-22", "ccache"):
        said = output([str(folder / "shims" / name), "-c", "a b.cpp", "$x"], **environment)
        assert said.startswith(f"{machine}/tools/{name} -c a b.cpp $x path={plain} cuda=")
        assert standin.real_program(str(folder / "shims" / name)) == f"{machine}/tools/{name}"


def test_shims_pass_everything_on_once_the_build_is_over(machine: Path) -> None:
    folder = shims.make("cuda")
    (folder / "launch.py").write_text("raise SystemExit('not to be run')\n")
    assert output([str(folder / "shims" / "nvcc"), "-c", "a.cu"]).startswith(f"{machine}/tools/nvcc -c a.cu")
    assert output([str(folder / "bin" / "nvcc"), "-c", "a.cu"]).startswith(f"{machine}/cuda/bin/nvcc -c a.cu")


def test_what_has_nothing_to_do_with_cuda_starts_no_python(machine: Path) -> None:
    folder = shims.make("cuda")
    (folder / "launch.py").write_text("raise SystemExit('python')\n")
    environment = shims.environment(folder, os.environ)
    quick = ["g++ -c a.cpp", "g++ a.o -lcudart", "clang++-22 -c a.cpp -O2", "ccache g++ -c a.cpp"]
    for text in quick:
        name, *words = text.split()
        assert output([str(folder / "shims" / name), *words], **environment).startswith(f"{machine}/tools/{name}")
    slow = [
        *("nvcc --version", "clang++-22 -c a.cu", "clang++-22 -x cuda -c a.cpp", "clang++-22 -fgpu-rdc a.o"),
        *(
            "ccache nvcc -c a.cu",
            "ccache clang++-22 -c a.cu",
            f"g++ -c a.cpp -I{folder}/include",
            "clang++-22 @file",
            "clang++-22 a.o",
        ),
    ]
    for text in slow:
        name, *words = text.split()
        done = subprocess.run([str(folder / "shims" / name), *words], env=environment, capture_output=True, text=True)
        assert done.stderr == "python\n", text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("{shims}:/usr/bin:/bin", "/usr/bin:/bin"),
        ("/first:{shims}:/usr/bin:/bin", "/first:/usr/bin:/bin"),
        ("/usr/bin:/bin:{shims}", "/usr/bin:/bin"),
        (":{shims}:/usr/bin:", ":/usr/bin:"),
        ("/usr/bin:/bin", "/usr/bin:/bin"),
    ],
)
def test_compilers_find_no_shims_on_path(path: str, expected: str, machine: Path) -> None:
    folder = shims.make("cuda")
    environment = {**shims.environment(folder, os.environ), "PATH": path.format(shims=folder / "shims")}
    for name in ("g++", "nvcc"):  # without Python, and with it
        said = output([str(folder / "shims" / name), "-c", "a.cpp"], **environment)
        assert f" path={expected} cuda=" in said


def test_links_for_the_host_are_looked_at(machine: Path) -> None:
    folder = shims.make("host")
    (folder / "launch.py").write_text("raise SystemExit('python')\n")
    environment = shims.environment(folder, os.environ)
    compiled = output([str(folder / "shims" / "g++"), "-c", "a.cpp"], **environment)
    assert compiled.startswith(f"{machine}/tools/g++ -c a.cpp")
    linked = subprocess.run([str(folder / "shims" / "g++"), "a.o"], env=environment, capture_output=True, text=True)
    assert linked.stderr == "python\n"


def test_a_stand_in_is_the_toolkit_but_for_nvcc(machine: Path) -> None:
    folder = shims.make("cuda")
    assert (folder / "include" / "cuda_runtime.h").samefile(machine / "cuda" / "include" / "cuda_runtime.h")
    assert (folder / "bin" / "ptxas").samefile(machine / "cuda" / "bin" / "ptxas")
    environment = shims.environment(folder, os.environ)
    assert environment["CUDA_HOME"] == environment["CUDA_PATH"] == environment["CUDA_TOOLKIT_ROOT_DIR"] == str(folder)
    assert environment["CUDACXX"] == f"{folder}/shims/nvcc"
    # The compiler is called as in a plain build: neither words nor variables name the stand-in.
    said = output([f"{folder}/bin/nvcc", f"-I{folder}/include", f"{folder}-not", "--version"], **environment)
    assert said == (
        f"{machine}/cuda/bin/nvcc -I{machine}/cuda/include {folder}-not --version "
        f"path={os.environ['PATH']} cuda={machine}/cuda\n"
    )


def test_compilers_named_by_their_paths_are_replaced(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shims.make("cuda")
    for before, after in [
        (f"NVCC={machine}/tools/nvcc", f"NVCC={folder}/shims/nvcc"),
        (f"-DCMAKE_CUDA_COMPILER={machine}/cuda/bin/nvcc", f"-DCMAKE_CUDA_COMPILER={folder}/bin/nvcc"),
        (f"CUDA_DIR={machine}/cuda", f"CUDA_DIR={folder}"),
        (f"-DCUDAToolkit_ROOT:PATH={machine}/cuda/", f"-DCUDAToolkit_ROOT:PATH={folder}"),
        (f"PREFIX={machine}/cuda", f"PREFIX={machine}/cuda"),
        ("-j8", "-j8"),
        (f"OUT={machine}/missing/nvcc", f"OUT={machine}/missing/nvcc"),
    ]:
        assert shims.redirected(before, folder) == after
    monkeypatch.setenv("CXX", f"{machine}/tools/clang++-22")
    monkeypatch.setenv("CUDACXX", "clang++-22")
    environment = shims.environment(folder, os.environ)
    assert environment["CXX"] == f"{folder}/shims/clang++-22"
    assert environment["CUDACXX"] == "clang++-22"


def test_the_same_compilers_give_the_same_folder(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shims.make("cuda")
    monkeypatch.chdir(machine)
    assert shims.make("cuda") == first
    assert shims.make("host") != first
    program(machine / "tools" / "clang++-21")
    assert shims.make("cuda") != first


def test_a_stand_in_of_ones_own_captures_whoever_calls_it(machine: Path) -> None:
    folder = shims.make("cuda", machine / "stand in", {"R3LLVM_ARCH": "sm_80"})
    assert folder == machine / "stand in"
    (folder / "launch.py").write_text(
        (folder / "launch.py").read_text().partition("from r3llvm")[0]
        + ("print(os.environ['R3LLVM_STANDIN'], os.environ['R3LLVM_ARCH'], *sys.argv[1:])\n")
    )
    said = output([f"{folder}/bin/nvcc", "-c"])
    assert said == f"{folder} sm_80 {machine}/cuda/bin/nvcc -c\n"
    # Made again in its place; nothing else is taken for one.
    assert shims.make("cuda", folder, {}) == folder
    assert "sm_80" not in (folder / "launch.py").read_text()
    for taken in (machine / "tools", machine / "tools" / "make"):
        with pytest.raises(UsageError, match="is there already"):
            shims.make("cuda", taken, {})
    with pytest.raises(UsageError, match="colon"):
        shims.make("cuda", machine / "a:b", {})


def test_without_a_toolkit_there_are_shims_alone(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shims, "find_toolkit", lambda named=None: None)
    with pytest.raises(UsageError, match="no CUDA toolkit"):
        shims.make("cuda", machine / "standin", {})
    folder = shims.make("cuda")
    environment = shims.environment(folder, {"PATH": os.environ["PATH"]})
    assert sorted(environment) == ["CUDACXX", "PATH", "R3LLVM_STANDIN"]
    assert output([f"{folder}/shims/nvcc", "-V"], **environment).startswith(f"{machine}/tools/nvcc -V")


def test_a_cache_that_cannot_be_written_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file"))
    with pytest.raises(R3Error, match=r"cannot make compiler shims in .*XDG_CACHE_HOME"):
        shims.make("cuda")
