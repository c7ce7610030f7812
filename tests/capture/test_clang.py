"""What is added to a clang command, and the second pass."""

from pathlib import Path

import pytest

from r3llvm.capture.clang import build_arguments, module_arguments
from r3llvm.capture.command import CompileCommand
from r3llvm.capture.toolkit import STUB_HEADERS, Toolkit
from r3llvm.errors import R3Error


@pytest.fixture
def fake(tmp_path: Path) -> Toolkit:
    (tmp_path / "cuda" / "include" / "cccl").mkdir(parents=True)
    (tmp_path / "cuda" / "lib64").mkdir()
    (tmp_path / "cuda" / "lib64" / "libcudart.so.13").touch()
    return Toolkit(tmp_path / "cuda")


def build(text: str, toolkit: Toolkit | None, device: str = "host") -> list[str]:
    words = text.split()
    built = build_arguments(CompileCommand.parse(words), toolkit, "sm_90", device)
    return [word for word in built if word not in words] if built != words else []


def test_a_cuda_source_gets_what_clang_lacks(fake: Toolkit) -> None:
    added = build("clang++ -c app.cu", fake)
    assert added == [
        f"--cuda-path={fake.root}",
        "-Wno-unknown-cuda-version",
        *("-isystem", str(STUB_HEADERS)),
        *("-isystem", str(fake.cccl)),
        "--cuda-gpu-arch=sm_90",
        "--no-offload-new-driver",
    ]
    assert (STUB_HEADERS / "curand_mtgp32_kernel.h").exists()


def test_what_the_command_says_is_not_said_again(fake: Toolkit) -> None:
    (fake.root / "include" / "curand_mtgp32_kernel.h").touch()
    text = f"clang++ -c app.cu --cuda-path={fake.root} --offload-arch=sm_80 --offload-new-driver"
    assert build(text, fake) == ["-Wno-unknown-cuda-version", "-isystem", str(fake.cccl)]


def test_other_commands_are_left_alone(fake: Toolkit) -> None:
    for text in ("clang++ -c main.cpp", "clang++ main.cpp -o main", "clang++ --version", "clang++ main.o -lm -o main"):
        assert build(text, fake) == []


def test_a_missing_toolkit_says_how_to_get_one() -> None:
    with pytest.raises(R3Error, match="pip install nvidia-cuda-nvcc"):
        build("clang++ -c app.cu", None)


def test_a_link_gets_the_runtime_of_the_device(fake: Toolkit, runtime: Path) -> None:
    on_host = build("clang++ app.cu", fake)
    assert (on_host[0], on_host[-1]) == (f"-Wl,-rpath,{runtime.parent}", f"-Wl,{runtime}")
    on_gpu = build("clang++ app.cu", fake, "cuda")
    assert on_gpu[-3:] == [f"-L{fake.root}/lib64", "-l:libcudart.so.13", f"-Wl,-rpath,{fake.root}/lib64"]


@pytest.mark.parametrize("named", ["-lcudart", "-lcudart_static", "/opt/cuda/lib64/libcudart_static.a"])
def test_on_the_host_device_the_named_runtime_is_replaced(fake: Toolkit, runtime: Path, named: str) -> None:
    built = build_arguments(CompileCommand.parse(["g++", "a.o", named, "-lm"]), fake, "sm_90", "host")
    assert built == ["g++", f"-Wl,-rpath,{runtime.parent}", "a.o", f"-Wl,{runtime}", "-lm"]
    assert build(f"g++ a.o {named}", fake, "cuda") == []


def test_objects_that_register_kernels_need_a_runtime(fake: Toolkit, runtime: Path, tmp_path: Path) -> None:
    plain, cuda = tmp_path / "plain.o", tmp_path / "cuda.o"
    plain.write_bytes(b"main")
    cuda.write_bytes(b"..__cudaRegisterFatBinary..")
    assert build(f"clang++ {plain} -o app", fake) == []
    assert build(f"clang++ {plain} {cuda} -o app", fake) == [f"-Wl,-rpath,{runtime.parent}", f"-Wl,{runtime}"]


def test_what_is_added_stays_before_the_end_of_options(fake: Toolkit) -> None:
    built = build_arguments(CompileCommand.parse(["clang++", "-c", "--", "app.cu"]), fake, "sm_90", "host")
    assert built[-2:] == ["--", "app.cu"]


def test_the_second_pass_keeps_the_front_end_flags_only(fake: Toolkit) -> None:
    text = (
        "clang++ -std=c++17 -Iinc -DN=3 -include pre.h -O1 -g -ffast-math -Werror -MD -MF app.d -MT app -save-temps "
        "-flto -Wl,-z,now -Llib -lfoo -Xlinker --x -Xcuda-ptxas -v -Xcuda-ptxas -O1 -shared -fPIC -o app "
        "--offload-arch=sm_80 --offload-arch=sm_90 -x cuda a.cpp b.cpp other.o"
    )
    words = module_arguments(
        CompileCommand.parse(text.split()), "b.cpp", fake, "sm_75", ("-fgpu-defer-diag",), Path("m.bc"), Path("m.d")
    )
    assert words == [
        *("clang++", "-std=c++17", "-Iinc", "-DN=3", "-include", "pre.h", "-g", "-ffast-math", "-fPIC"),
        *(f"--cuda-path={fake.root}", "-Wno-unknown-cuda-version"),
        *("-isystem", str(STUB_HEADERS), "-isystem", str(fake.cccl), "-fgpu-defer-diag"),
        *("--cuda-gpu-arch=sm_80", "--cuda-device-only", "-O3", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c"),
        *("-w", "-Wno-unused-command-line-argument", "-MD", "-MT", "module", "-MF", "m.d", "-o", "m.bc"),
        *("-x", "cuda", "b.cpp"),
    ]
