"""What a clang command needs added to compile CUDA, and the second pass that yields a module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from r3llvm.capture.command import Argument, CompileCommand, Mode, is_cudart
from r3llvm.capture.fatbinary import registers_kernels
from r3llvm.capture.toolkit import STUB_HEADERS, Toolkit, find_toolkit, hostcuda_library
from r3llvm.errors import R3Error
from r3llvm.files import content_hash

# What nvcc accepts and clang does not, from the mildest remedy to the strongest. Each rung holds the one before.
_DEFER = ("-fgpu-defer-diag",)
_GAPS = (*_DEFER, "-Wno-register", "-include", str(STUB_HEADERS / "nvcc_gaps.h"))
_MACROS = (
    *(*_GAPS, "-D_CG_CLUSTER_INTRINSICS_AVAILABLE", "-D__NVCC__"),
    *("-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0", "-D__CUDACC_VER_BUILD__=88"),
)
LADDER: tuple[tuple[str, ...], ...] = ((), _DEFER, _GAPS, _MACROS)

_DRIVERS = ("--offload-new-driver", "--no-offload-new-driver")

# Left out of the second pass: outputs and their kind, dependency files, linking, architectures, what stops or pads it.
_DROPPED = frozenset(
    """
    -o --output -c --compile -S --assemble -MD -MMD -MP -MG -MV -MF -MT -MQ -MJ -l -L -T -u -z -e -rpath -Xlinker
    -Xoffload-linker -Xcuda-ptxas -Xcuda-fatbinary -Xassembler -serialize-diagnostics --serialize-diagnostics
    -gen-cdb-fragment-path -dependency-file -dependency-dot -dumpdir -emit-llvm -shared -static -pie -no-pie -rdynamic
    -r -s -x --language -- --coverage -pg
    """.split()  # noqa: SIM905
)
_DROPPED_PREFIXES = (
    *("-save-temps", "--save-temps", "-flto", "-ftime-trace", "-Werror", "-Wl,", "-Wa,", "-Wp,-M", "-l", "-L", "-O"),
    *("--cuda-gpu-arch=", "--offload-arch=", "--no-cuda-gpu-arch=", "--no-offload-arch=", "-MF", "-MT", "-MQ", "-MJ"),
    *("-fuse-ld", "-o", "-x", "-fprofile-", "-fcoverage-", "-fsanitize", "--output=", "--language="),
)


def build_arguments(command: CompileCommand, toolkit: Toolkit | None, arch: str, device: str) -> list[str]:
    """The command's words with what it needs added: for CUDA sources to compile, for CUDA programs to link."""
    added: list[str] = []
    if command.cuda_sources:
        added += front_end_additions(command, toolkit)
        if not command.archs:
            added.append(f"--cuda-gpu-arch={arch}")
    elif command.links_device_code and toolkit and not command.cuda_path:
        added.append(f"--cuda-path={toolkit.root}")
    if (command.cuda_sources or command.links_device_code) and not command.has(*_DRIVERS):
        added.append(_DRIVERS[0] if command.relocatable else _DRIVERS[1])  # each can do what the other cannot
    alone = command.relocatable and command.mode is Mode.LINK and len(command.cuda_sources) == 1
    if alone and not command.has_prefix("-cuid="):  # no object will tell what names the program has
        added.append(unit_identity(command, command.cuda_sources[0]))
    arguments = list(command.arguments)
    first: list[str] = []
    if command.mode is Mode.LINK and (command.names_cudart() or is_cuda_program(command)):
        arguments, first, at_link = _link(arguments, toolkit, device)
        added += at_link
    # After the user's own -isystem folders, before `--`, behind which everything is an input.
    end = next((i for i, argument in enumerate(arguments) if argument.flag == "--"), len(arguments))
    before, after = arguments[:end], arguments[end:]
    return [*command.compiler, *first, *_tokens(before), *added, *_tokens(after)]


def front_end_additions(command: CompileCommand, toolkit: Toolkit | None) -> list[str]:
    """What clang needs to accept this toolkit's headers, given what the command has already."""
    if toolkit is None:
        raise R3Error(
            "no CUDA toolkit found: install one (`pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-crt "
            "nvidia-nvvm nvidia-cuda-cccl`), or name it with --cuda-path=DIR or in CUDA_PATH"
        )
    added = [] if command.cuda_path else [f"--cuda-path={toolkit.root}"]
    added.append("-Wno-unknown-cuda-version")
    if not toolkit.has_curand:
        added += ["-isystem", str(STUB_HEADERS)]
    if toolkit.cccl.is_dir():
        added += ["-isystem", str(toolkit.cccl)]
    return added


def module_arguments(
    command: CompileCommand, source: str, toolkit: Toolkit, arch: str, rung: Sequence[str], bitcode: Path, depfile: Path
) -> list[str]:
    """The second pass: the device IR of one source as the front end leaves it, before any optimisation."""
    kept = [argument for argument in command.arguments if not argument.is_input and not _is_dropped(argument)]
    if command.relocatable and not command.has_prefix("-cuid="):  # by default it depends on where the output goes
        kept.append(Argument((unit_identity(command, source),)))
    return [
        *(*command.compiler, *_tokens(kept), *front_end_additions(command, toolkit), *rung),
        *(f"--cuda-gpu-arch={(command.archs or [arch])[0]}", "--cuda-device-only", "-O3"),
        *("-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "-w", "-Wno-unused-command-line-argument"),
        *("-MD", "-MT", "module", "-MF", str(depfile), "-o", str(bitcode), "-x", "cuda", source),
    ]


def unit_identity(command: CompileCommand, source: str) -> str:
    """The option that says what clang appends to the names of what only the unit sees, in relocatable code."""
    kept = [argument for argument in command.arguments if not argument.is_input and not _is_dropped(argument)]
    words = [str(Path(source).absolute()), *_tokens(kept)]
    return f"-cuid={content_hash(chr(0).join(words).encode(errors='surrogateescape'))[:16]}"


def find_command_toolkit(command: CompileCommand) -> Toolkit | None:
    """The toolkit that the command names, else the one found on this machine."""
    return find_toolkit(command.cuda_path)


def _link(
    arguments: list[Argument], toolkit: Toolkit | None, device: str
) -> tuple[list[Argument], list[str], list[str]]:
    """The arguments with the CUDA runtime of `device`, and what to add before and behind them for it."""
    named = any(is_cudart(argument) for argument in arguments)
    if device == "host":
        library = hostcuda_library()
        # By its path, and past the driver (-Wl,): neither -x nor another -L can turn it into something else.
        ours = f"-Wl,{library}"
        arguments = [Argument((ours,)) if is_cudart(argument) else argument for argument in arguments]
        # Its folder comes before the toolkit's, should the command name that as a run path.
        return arguments, [f"-Wl,-rpath,{library.parent}"], [] if named else [ours]
    if named:
        return arguments, [], []
    directory = toolkit.library_directory if toolkit else None
    if directory is None:
        raise R3Error(
            "no CUDA runtime library (libcudart) found to link with: name it with -L… -lcudart, or say --device host"
        )
    library_name = "-lcudart" if (directory / "libcudart.so").exists() else "-l:libcudart.so.13"
    return arguments, [], [f"-L{directory}", library_name, f"-Wl,-rpath,{directory}"]


def is_cuda_program(command: CompileCommand) -> bool:
    """Whether a source or an object on the command line holds kernels."""
    if command.cuda_sources or command.links_device_code:
        return True
    objects = (Path(argument.flag) for argument in command.inputs)
    return any(path.suffix in (".o", ".a", ".obj", ".lo") and registers_kernels(path) for path in objects)


def _is_dropped(argument: Argument) -> bool:
    return argument.flag in _DROPPED or argument.flag.startswith(_DROPPED_PREFIXES)


def _tokens(arguments: Sequence[Argument]) -> list[str]:
    return [token for argument in arguments for token in argument.tokens]
