"""Programs that a build calls in a compiler's place: r3llvm-cc, r3llvm-nvcc, and the shims that `r3llvm wrap` makes.

A command with nothing to capture becomes the real compiler (exec), at the cost of Python's start. So this module
imports at its top only what deciding that takes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NoReturn

from r3llvm.capture import standin
from r3llvm.capture.command import CompileCommand, Mode, launcher_words
from r3llvm.capture.compilers import Kind, kind_of
from r3llvm.capture.nvcc import NvccCommand, is_nvcc
from r3llvm.capture.report import Report
from r3llvm.capture.settings import Settings
from r3llvm.errors import R3Error, UsageError

# Set for what a launcher runs: launchers further down leave the work to the first.
_AT_WORK = "R3LLVM_AT_WORK"
# Where build systems try their compilers out: what is compiled there is no part of the program.
_PROBE = re.compile(r"/CMakeFiles/(CMakeTmp|CMakeScratch|\d[^/]*/CompilerId\w+)(/|$)|/meson-private(/|$)")


def cc() -> NoReturn:
    """The program r3llvm-cc: `r3llvm-cc nvcc -c a.cu`."""
    if len(sys.argv) < 2:
        _end(UsageError("no compiler given: say r3llvm-cc COMPILER …, or set CMAKE_CUDA_COMPILER_LAUNCHER=r3llvm-cc"))
    launch(sys.argv[1:])


def nvcc() -> NoReturn:
    """The program r3llvm-nvcc: nvcc's command line."""
    launch(["r3llvm-nvcc", *sys.argv[1:]])


def launch(words: Sequence[str]) -> NoReturn:
    """Becomes the compiler when there is nothing to capture; else compiles, captures and exits as the compiler does."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    settings, command = Settings(), list(words)
    try:
        settings = Settings.of(os.environ)
        command = prepare(words)
        if settings.report:
            Report(settings.report).called()
        if os.environ.get(_AT_WORK) or not needs_wrap(command, settings.device):
            _become(command)
        status = wrap(command, settings)
    except R3Error as error:
        _end(error)
    except Exception as error:  # a fault of ours must not cost the build
        if settings.strict:
            raise
        note(f"warning: nothing was captured of {shlex.join(command)}: {type(error).__name__}: {error}", settings)
        _become(command)
    except KeyboardInterrupt:  # make wants to see the signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        status = 130
    sys.exit(status)


def prepare(words: Sequence[str]) -> list[str]:
    """The command as a plain build would give it: real programs for ours and for shims, the real toolkit for its
    stand-in. Changes the environment likewise. Raises UsageError when nvcc is asked for and there is none.
    """
    folder = os.environ.get(standin.VARIABLE, "")
    standin.strip(os.environ)
    result = list(words)
    while len(result) > 1 and PurePath(result[0]).name == "r3llvm-cc":
        del result[0]
    for position in range(launcher_words(result)):
        program = result[position]
        result[position] = find_nvcc() if PurePath(program).name == "r3llvm-nvcc" else standin.real_program(program)
    return [standin.real_path(word, folder) for word in result] if folder else result


def find_nvcc() -> str:
    """$R3LLVM_NVCC, else nvcc on PATH, else the toolkit's. Raises UsageError when there is none."""
    if named := os.environ.get("R3LLVM_NVCC"):
        return standin.real_program(named)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = shutil.which("nvcc", path=folder)
        if path and PurePath(os.path.realpath(path)).name != "r3llvm-nvcc":
            return standin.real_program(path)
    from r3llvm.capture.toolkit import find_toolkit

    toolkit = find_toolkit()
    if toolkit and (toolkit.root / "bin" / "nvcc").exists():
        return str(toolkit.root / "bin" / "nvcc")
    raise UsageError("no nvcc found: name it in R3LLVM_NVCC, or put it on PATH")


def needs_wrap(words: Sequence[str], device: str) -> bool:
    """Whether there is CUDA to compile, device code to link, or a CUDA runtime to be named at a link."""
    try:
        if is_nvcc(words):
            return not is_probe(words) and _compiles_or_links(NvccCommand.parse(words))
        command = CompileCommand.parse(words)
    except UsageError:  # what we cannot read, the compiler will complain about
        return False
    kind = kind_of(command.compiler[-1])
    if kind is Kind.CLANG and (command.cuda_sources or _compiles_or_links(command)):
        return True  # also when only preprocessing: clang needs to be told where the toolkit is
    if kind not in (Kind.CLANG, Kind.HOST) or command.mode is not Mode.LINK:
        return False
    from r3llvm.capture.clang import is_cuda_program
    from r3llvm.capture.toolkit import resolve_device

    if resolve_device(device) == "host":
        return command.names_cudart() or is_cuda_program(command)
    return kind is Kind.CLANG and not command.names_cudart() and is_cuda_program(command)


def wrap(words: Sequence[str], settings: Settings) -> int:
    """Runs a compiler's command and captures what it compiles. Returns its exit status."""
    from r3llvm.capture.store import Store
    from r3llvm.capture.wrap import Wrap
    from r3llvm.toolchain import find_clang

    os.environ[_AT_WORK] = "1"
    job = Wrap(
        *(Store(settings.store), settings.arch, settings.device, settings.strict, find_clang()),
        note=lambda line: note(line, settings),
        finished=Report(settings.report).finished if settings.report else lambda source, outcome: None,
        capture=not is_probe(words),
    )
    return job.run(words)


def note(line: str, settings: Settings) -> None:
    """Something worth telling: at the end of the build when that is reported on, else now."""
    if settings.report:
        Report(settings.report).note(line)
    else:
        print(f"r3llvm: {line}", file=sys.stderr)


def is_probe(words: Sequence[str]) -> bool:
    """Whether a build system is trying its compiler out."""
    return bool(_PROBE.search(str(Path.cwd()))) or any(re.search(r"(^|/)conftest\.\w+$", word) for word in words)


def _compiles_or_links(command: CompileCommand | NvccCommand) -> bool:
    if command.cuda_sources and command.mode is not Mode.OTHER:
        return True
    return command.links_device_code and any(path.exists() for path in command.linked_files)


def _become(words: Sequence[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a program's start leaves as they are
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(words[0], list(words))
    except OSError as error:
        print(f"r3llvm: error: cannot run {words[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _end(error: R3Error) -> NoReturn:
    print("r3llvm: error:", " ".join(str(error).split()), file=sys.stderr)
    sys.exit(2 if isinstance(error, UsageError) else 1)
