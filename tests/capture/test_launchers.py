"""What stands in a compiler's place: what it passes on, and what it wraps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from r3llvm.capture import standin
from r3llvm.capture.compilers import Kind, kind_of, kind_of_name
from r3llvm.capture.launchers import find_nvcc, is_probe, needs_wrap, prepare
from r3llvm.capture.settings import Settings
from r3llvm.errors import UsageError

ECHO = '#!/bin/sh\nprintf "<%s>" "$0" "$@"\nexit 3\n'
LAUNCH = "import sys; from r3llvm.capture import launchers; sys.argv = sys.argv[1:]; "
CC = [sys.executable, "-c", f"{LAUNCH} launchers.cc()", "r3llvm-cc"]
NVCC = [sys.executable, "-c", f"{LAUNCH} launchers.nvcc()", "r3llvm-nvcc"]


def program(path: Path, text: str = ECHO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that says how it was called, first on PATH."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "tools"), os.environ["PATH"]]))
    monkeypatch.delenv("R3LLVM_NVCC", raising=False)
    return program(tmp_path / "tools" / "nvcc")


def run(*words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, errors="surrogateescape", **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            ("nvcc", Kind.NVCC),
            ("clang", Kind.CLANG),
            ("clang++-22", Kind.CLANG),
            ("x86_64-linux-gnu-g++-12", Kind.HOST),
        ),
        *(("cc", Kind.HOST), ("ccache", Kind.LAUNCHER), ("clang-format-22", Kind.OTHER), ("gcc-ar", Kind.OTHER)),
        *(("make", Kind.OTHER), ("clang-cpp-22", Kind.OTHER), ("gccgo", Kind.OTHER)),
    ],
)
def test_compilers_by_their_names(name: str, kind: Kind) -> None:
    assert kind_of_name(name) is kind


def test_a_name_of_ones_own_is_that_of_the_file_behind_it(tmp_path: Path) -> None:
    real = program(tmp_path / "clang++-22")
    for name, kind in (("mycc", Kind.CLANG), ("c++", Kind.CLANG), ("nvcc", Kind.NVCC)):
        (tmp_path / name).symlink_to(real)
        assert kind_of(str(tmp_path / name)) is kind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            ("nvcc -c a.cu", True),
            ("nvcc a.cu -o app", True),
            ("ccache nvcc -c a.cu", True),
            ("nvcc -x cu -c a.cpp", True),
        ),
        *(("nvcc --version", False), ("nvcc -v __cmake_determine_cuda", False), ("nvcc -E a.cu", False)),
        *(("nvcc -M a.cu", False), ("nvcc -c a.cpp", False), ("nvcc -dlink missing.o -o link.o", False)),
        *(("nvcc -dlink there.o -o link.o", True), ("nvcc there.o -o app", True)),
        *(("clang++ -x cuda -c a.cpp", True), ("clang++ -c a.cpp", False), ("clang++ -E a.cu", True)),
        *(("g++ -c a.cpp", False), ("g++ a.o -lcudart -o app", False), ("g++ -x cuda a.cu", False)),
        *(("ccache -s", False), ("ccache", False), ("true", False), ("nvcc --options-file missing.rsp a.cu", False)),
    ],
)
def test_what_is_wrapped(text: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.o").touch()
    assert needs_wrap(text.split(), "cuda") == expected


def test_links_for_the_host_get_its_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernels.o").write_bytes(b"__cudaRegisterFatBinary")
    Path("plain.o").touch()
    for words in (["g++", "plain.o", "-lcudart"], ["g++", "kernels.o"], ["clang++", "kernels.o", "-lcudart"]):
        assert needs_wrap(words, "host")
        assert not needs_wrap(words, "cuda")
    # clang names no CUDA runtime by itself.
    assert needs_wrap(["clang++", "kernels.o"], "host")
    assert needs_wrap(["clang++", "kernels.o"], "cuda")
    assert not needs_wrap(["clang++", "plain.o"], "cuda")
    assert not needs_wrap(["g++", "plain.o"], "host")
    assert not needs_wrap(["ld", "kernels.o"], "host")


@pytest.mark.parametrize(
    ("folder", "words", "expected"),
    [
        ("build/CMakeFiles/CMakeScratch/TryCompile-x1", "nvcc -c main.cu", True),
        ("build/CMakeFiles/CMakeTmp", "nvcc -c main.cu", True),
        ("build/CMakeFiles/4.1.0-rc1/CompilerIdCUDA", "nvcc --keep CMakeCUDACompilerId.cu", True),
        ("build/meson-private", "nvcc sanitycheckcuda.cu", True),
        ("build", "nvcc -c CMakeFiles/CMakeTmp.cu", False),
        (".", "nvcc -c conftest.cu", True),
        (".", "nvcc -c myconftest.cu", False),
    ],
)
def test_where_build_systems_try_their_compilers(
    folder: str, words: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / folder)
    assert is_probe(words.split()) == expected
    assert needs_wrap(words.split(), "cuda") != expected


def test_the_compiler_gets_its_words_byte_for_byte(nvcc: Path) -> None:
    words = ["-v", "with space", "", "*", r"-DX=\"a\,b\"", "naïve", os.fsdecode(b"\xff")]
    expected = run(nvcc, *words)
    assert expected.returncode == 3
    for way in ([*CC, nvcc], NVCC):
        done = run(*way, *words)
        assert (done.returncode, done.stdout, done.stderr) == (3, expected.stdout, "")


def test_the_compiler_takes_the_launchers_process(nvcc: Path) -> None:
    nvcc.write_text("#!/bin/sh\necho $$\n")
    with subprocess.Popen([*CC, "nvcc", "--version"], stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0] == f"{process.pid}\n"


def test_a_closed_pipe_ends_the_compiler_as_without_a_launcher(nvcc: Path) -> None:
    nvcc.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    assert run(*CC, "nvcc", "--version").stdout == run(nvcc, "--version").stdout


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    done = run(*CC, tmp_path / "missing", "-c", "a.cu")
    assert done.returncode == 127
    assert done.stderr == f"r3llvm: error: cannot run {tmp_path}/missing: No such file or directory\n"
    assert run(*CC).returncode == 2


def test_nvcc_is_found(nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_nvcc() == str(nvcc)
    # A link to the launcher itself, earlier on PATH, is passed over.
    program(tmp_path / "launchers" / "r3llvm-nvcc")
    (tmp_path / "launchers" / "nvcc").symlink_to("r3llvm-nvcc")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "launchers"), str(nvcc.parent)]))
    assert find_nvcc() == str(nvcc)
    monkeypatch.setenv("R3LLVM_NVCC", "/opt/nvcc")
    assert find_nvcc() == "/opt/nvcc"
    monkeypatch.delenv("R3LLVM_NVCC")
    monkeypatch.setenv("PATH", "/nowhere")
    program(tmp_path / "cuda" / "bin" / "nvcc")
    (tmp_path / "cuda" / "nvvm" / "libdevice").mkdir(parents=True)
    (tmp_path / "cuda" / "include").mkdir()
    (tmp_path / "cuda" / "include" / "cuda_runtime.h").touch()
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "cuda"))
    assert find_nvcc() == str(tmp_path / "cuda" / "bin" / "nvcc")
    monkeypatch.setattr("r3llvm.capture.toolkit.find_toolkit", lambda: None)
    with pytest.raises(UsageError, match="R3LLVM_NVCC"):
        find_nvcc()


def test_launchers_of_launchers_come_off(nvcc: Path) -> None:
    assert prepare(["r3llvm-cc", "/bin/r3llvm-cc", "nvcc", "-c", "a.cu"]) == ["nvcc", "-c", "a.cu"]
    assert prepare(["r3llvm-nvcc", "-c"]) == [str(nvcc), "-c"]
    assert prepare(["ccache", "r3llvm-nvcc", "-c"]) == ["ccache", str(nvcc), "-c"]


def test_the_real_compiler_stands_for_its_shim(nvcc: Path, tmp_path: Path) -> None:
    shim = program(tmp_path / "shim", standin.HEAD.decode() + f"{nvcc}\nexec false\n")
    assert prepare([str(shim), "-c", "a.cu"]) == [str(nvcc), "-c", "a.cu"]
    assert prepare(["ccache", str(shim)]) == ["ccache", str(nvcc)]


def test_settings_travel_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(Path("store"), "sm_80", "host", True, tmp_path / "report")
    assert Settings.of(settings.environment) == settings._replace(store=tmp_path / "store")
    assert Settings.of({}) == Settings()
    assert Settings.of(Settings().environment) == Settings()
    with pytest.raises(UsageError, match="R3LLVM_DEVICE is 'gpu'"):
        Settings.of({"R3LLVM_DEVICE": "gpu"})


def test_a_fault_of_ours_does_not_cost_the_build(nvcc: Path, tmp_path: Path) -> None:
    nvcc.write_text('#!/bin/sh\necho "compiled $@"\n')
    (tmp_path / "sabotage.py").write_text("import r3llvm.capture.wrap\nr3llvm.capture.wrap.Wrap = None\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import sabotage; {CC[2]}"
    words = [sys.executable, "-c", script, "r3llvm-cc", "nvcc", "-c", "a.cu"]
    done = run(*words)
    assert (done.returncode, done.stdout) == (0, "compiled -c a.cu\n")
    assert "warning: nothing was captured of nvcc -c a.cu: TypeError" in done.stderr
    assert run(*words, env={**os.environ, "R3LLVM_STRICT": "1"}).returncode == 1
