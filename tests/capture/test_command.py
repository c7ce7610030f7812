"""Taking compiler command lines apart."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3llvm.capture.command import CompileCommand, Mode
from r3llvm.errors import UsageError


def parse(text: str) -> CompileCommand:
    return CompileCommand.parse(text.split())


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("clang++ app.cu", ["app.cu"]),
        ("clang++ -x cuda app.cpp other.cc -o app", ["app.cpp", "other.cc"]),
        ("clang++ -xcuda app.cpp", ["app.cpp"]),
        ("clang++ --language=cuda app.cpp", ["app.cpp"]),
        ("clang++ --language cuda app.cpp", ["app.cpp"]),
        ("clang++ first.cpp -x cuda second.cpp -x none third.cpp fourth.cu", ["second.cpp", "fourth.cu"]),
        ("clang++ -x c++ app.cu", []),
        ("clang++ app.o lib.a main.cpp -lfoo", []),
        ("clang++ -o app.cu main.cpp", []),
        ("clang++ -include pre.cu -I inc.cu -D X.cu -MF dep.cu -Xclang y.cu main.cpp", []),
        ("clang++ -Xarch_sm_90 z.cu -Xarch_host z.cu main.cpp", []),
        ("clang++ -c -- -odd.cu", ["-odd.cu"]),
        ("clang++ -x cuda -", ["-"]),
        ("ccache clang++ app.cu", ["app.cu"]),
    ],
)
def test_finds_the_cuda_sources(text: str, sources: list[str]) -> None:
    assert parse(text).cuda_sources == sources


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("clang++ app.cu", Mode.LINK),
        ("clang++ app.o", Mode.LINK),
        ("clang++ -shared app.cu", Mode.LINK),
        ("clang++ -c app.cu", Mode.OBJECT),
        ("clang++ -S app.cu", Mode.ASSEMBLY),
        ("clang++ -E app.cu", Mode.OTHER),
        ("clang++ -M app.cu", Mode.OTHER),
        ("clang++ -MD -c app.cu", Mode.OBJECT),
        ("clang++ -fsyntax-only app.cu", Mode.OTHER),
        ("clang++ --cuda-device-only -c app.cu", Mode.OTHER),
        ("clang++ --version", Mode.OTHER),
        ("clang++ -o -c app.cu", Mode.LINK),
    ],
)
def test_tells_what_is_asked_for(text: str, mode: Mode) -> None:
    assert parse(text).mode is mode


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("clang++ a.cu", None),
        ("clang++ a.cu -o app", "app"),
        ("clang++ -oapp a.cu", "app"),
        ("clang++ --output=app a.cu", "app"),
        ("clang++ --output app a.cu", "app"),
        ("clang++ -o first a.cu -o app", "app"),
        ("clang++ -O3 -objects a.cu -o app", "app"),
    ],
)
def test_finds_the_output(text: str, output: str | None) -> None:
    assert parse(text).output == output


def test_objects_land_beside_the_caller() -> None:
    assert parse("clang++ -c src/deep/app.cu").object_of("src/deep/app.cu") == Path("app.o")
    assert parse("clang++ -c src/app.cu -o out/x.o").object_of("src/app.cu") == Path("out/x.o")


def test_finds_architectures_and_the_toolkit() -> None:
    command = parse("clang++ --cuda-gpu-arch=sm_80 --offload-arch=sm_90,sm_100 --cuda-path=/opt/cuda a.cu")
    assert command.archs == ["sm_80", "sm_90", "sm_100"]
    assert command.cuda_path == "/opt/cuda"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("clang++ a.o -lcudart", True),
        ("clang++ a.o -l cudart", True),
        ("clang++ a.o -lcudart_static", True),
        ("clang++ a.o /usr/local/cuda/lib64/libcudart_static.a", True),
        ("clang++ a.o /usr/local/cuda/lib64/libcudart.so.13", True),
        ("clang++ a.o -lcudadevrt", False),
        ("clang++ a.o -Dcudart", False),
    ],
)
def test_sees_whether_the_cuda_runtime_is_named(text: str, named: bool) -> None:
    assert parse(text).names_cudart() is named


def test_reads_response_files_with_quotes_and_nesting(tmp_path: Path) -> None:
    (tmp_path / "inner").write_text("app.cu -o 'my app'")
    (tmp_path / "outer").write_text(f'-I"/some dir" @{tmp_path}/inner\n-c')
    command = CompileCommand.parse(["clang++", f"@{tmp_path}/outer"])
    assert command.words == ["clang++", "-I/some dir", "app.cu", "-o", "my app", "-c"]
    assert command.cuda_sources == ["app.cu"]


def test_bad_response_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "loop").write_text(f"@{tmp_path}/loop")
    (tmp_path / "quote").write_text("'open")
    for name, message in (("missing", "cannot read"), ("quote", "cannot read"), ("loop", "without end")):
        with pytest.raises(UsageError, match=message):
            CompileCommand.parse(["clang++", f"@{tmp_path}/{name}"])


WORDS = st.sampled_from(
    [
        "-c",
        "-o",
        "x",
        "-x",
        "cuda",
        "none",
        "-I",
        "-Iinc",
        "-D",
        "a.cu",
        "b.cpp",
        "-",
        "--",
        "-Xclang",
        "-l",
        "-O3",
        "@",
    ]
) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).filter(
    lambda word: not word.startswith("@")
)


@given(st.lists(WORDS.filter(lambda word: word != "@"), max_size=12))
def test_any_words_are_kept_in_order(words: list[str]) -> None:
    command = CompileCommand.parse(["clang++", *words])
    assert command.words == ["clang++", *words]
    assert set(command.cuda_sources) <= set(words)
    assert isinstance(command.mode, Mode)


@given(st.lists(st.sampled_from(["-I", "-o", "-MF", "-Xclang", "-include", "-isystem", "-Xarch_host"]), max_size=6))
def test_values_of_options_are_never_inputs(options: list[str]) -> None:
    words = [word for option in options for word in (option, "value.cu")]
    assert CompileCommand.parse(["clang++", *words, "real.cu"]).cuda_sources == ["real.cu"]
