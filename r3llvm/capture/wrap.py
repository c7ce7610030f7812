"""Builds as told, and keeps the module of each translation unit."""

from __future__ import annotations

import datetime
import functools
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from r3llvm.capture.clang import LADDER, build_arguments, find_command_toolkit, module_arguments
from r3llvm.capture.command import CompileCommand, Mode, launcher_words
from r3llvm.capture.compilers import Kind, kind_of
from r3llvm.capture.dependencies import parse_dependencies
from r3llvm.capture.devicelink import Tools, link_modules, relocatable_images, unit_name_of, unit_names, units_of
from r3llvm.capture.fatbinary import images_of, is_elf, registers_kernels
from r3llvm.capture.nvcc import NvccCommand, is_nvcc, nvcc_toolkit
from r3llvm.capture.report import CAPTURED, FAILED, UNCHANGED
from r3llvm.capture.store import Include, Store, StoredModule
from r3llvm.capture.toolkit import Toolkit, find_toolkit, resolve_device
from r3llvm.capture.units import newest_change, remember, unchanged, unit_key
from r3llvm.errors import R3Error, UsageError
from r3llvm.files import content_hash, text_of

log = logging.getLogger(__name__)

# Libraries that hold no device code, so that they cannot blur which image belongs to which source.
_PLAIN_LIBRARIES = frozenset(
    "m pthread dl rt c stdc++ c++ gcc gcc_s cudart cudart_static cuda util atomic".split()  # noqa: SIM905
)


class CaptureFailed(Exception):
    """One translation unit's module could not be captured; the message says why, in one line."""


@dataclass(frozen=True)
class Wrap:
    """How to wrap a compiler command.

    clang: what makes the modules of other compilers' commands. note: gets one line for each thing worth telling.
    finished: gets each source, and whether it is captured, unchanged or not captured (report.py).
    build: whether to run the command; objects that are there are used when it is not. capture: whether to store.
    """

    store: Store
    arch: str = "sm_90"
    device: str = "auto"
    strict: bool = False
    clang: Path | None = None
    note: Callable[[str], None] = lambda line: print(f"r3llvm: {line}", file=sys.stderr)
    finished: Callable[[str, str], None] = lambda source, outcome: None
    build: bool = True
    capture: bool = True

    def run(self, words: Sequence[str]) -> int:
        """Runs the compiler and stores the modules. Returns the compiler's exit status.

        Raises UsageError when the command is no compiler's, R3Error when something it needs is missing, or with
        `strict` when a module could not be captured.
        """
        if is_nvcc(words):
            return self._run_nvcc(NvccCommand.parse(words), words)
        command = CompileCommand.parse(words)
        is_clang = _check_compiler(command)
        toolkit = find_command_toolkit(command)
        build = build_arguments(command, toolkit, self.arch, resolve_device(self.device))
        sources = command.cuda_sources if is_clang and command.mode is not Mode.OTHER else []
        links = is_clang and command.links_device_code
        if self.build and not (sources or links):
            log.info("running %s", shlex.join(build))
            return _exit_status(subprocess.run(build).returncode)
        status, rung = self._build(build, len(command.compiler)) if self.build else (0, ())
        if status or not self.capture:
            return status
        if command.has("--offload-new-driver") and not command.relocatable:
            return self._not_captured(sources, "--offload-new-driver hides the device image; build without it", command)
        if command.relocatable and command.mode is Mode.LINK and len(sources) > 1:
            return self._not_captured(
                sources, "several sources with -fgpu-rdc in one command: -c each, then link", command
            )
        modules: list[str | None] = []
        if sources:
            assert toolkit is not None  # build_arguments needs one for CUDA sources
            image = functools.partial(_clang_image, command, toolkit, self.arch, rung)
            unit = _Unit(command, tuple(words), image, options=tuple(command.codegen))
            modules = self._capture(unit, sources, toolkit, rung, command.outputs)
        if links:
            clang = Path(shutil.which(command.compiler[-1]) or "")
            self._link_device_code(command, list(zip(modules, sources, strict=True)), clang)
        return 0

    def _run_nvcc(self, command: NvccCommand, words: Sequence[str]) -> int:
        """Runs nvcc exactly as told; clang's front end makes the modules."""
        log.info("running %s", shlex.join(words))
        status = _exit_status(subprocess.run(list(words)).returncode) if self.build else 0
        sources = command.cuda_sources if command.mode is not Mode.OTHER else []
        links = command.links_device_code
        if status or not self.capture or not (sources or links):
            return status
        if self.clang is None:
            return self._not_captured(sources, "no clang++ found to make it with: install clang-22", command)
        toolkit = find_toolkit(nvcc_toolkit(command.compiler[-1]))
        if toolkit is None:
            return self._not_captured(sources, "no CUDA toolkit found: name it in CUDA_HOME", command)
        unit = _Unit(
            *(command.for_clang(str(self.clang), self.arch), tuple(words), functools.partial(_nvcc_image, command)),
            options=tuple(command.codegen),
            assembler=tuple(command.assembler),
        )
        modules = self._capture(unit, sources, toolkit, (), command.outputs)
        if links:
            own = list(zip(modules, sources, strict=True)) if command.relocatable else []
            self._link_device_code(command, own, self.clang)
        return 0

    def _link_device_code(
        self, command: CompileCommand | NvccCommand, own: list[tuple[str | None, str]], clang: Path
    ) -> None:
        """Stores the linked module of a device link's image. own: modules and sources that the command compiled."""
        output = command.link_output
        image = next((image for image in images_of(output) if self.store.image(content_hash(image)) is None), None)
        if image is None:
            return
        try:
            tools = _link_tools(clang)
            names = unit_names(output)
            objects: list[tuple[str, str]] = []
            for own_module, source in own:
                if own_module is None:
                    raise CaptureFailed(f"that of {source} was not")
                objects.append((own_module, unit_name_of(source, names)))
            libraries: list[tuple[str, str]] = []
            for path in command.linked_files:
                for device_unit in units_of(path, tools):
                    is_member = path.suffix == ".a"
                    if is_member and device_unit.name and device_unit.name not in names:
                        continue  # the device link had no use for it
                    module = self.store.image(device_unit.image)
                    if module is None:
                        raise CaptureFailed(f"{path} holds device code whose module was not captured")
                    (libraries if is_member and not device_unit.name else objects).append((module, device_unit.name))
            if objects or libraries:
                module = link_modules(self.store, objects, libraries, str(output.absolute()), tools)
                self.store.add_image(content_hash(image), module)
        except (CaptureFailed, R3Error) as error:
            self.note(f"warning: the linked module of {output} was not captured: {error}")
            if self.strict:
                self._discard([output])
                raise R3Error(f"the linked module of {output} was not captured (--strict)") from error

    def _not_captured(self, sources: Sequence[str], reason: str, command: CompileCommand | NvccCommand) -> int:
        for source in sources:
            self._failed(source, reason)
        if self.strict:
            self._discard(command.outputs)
            raise _strict_error(sources, len(sources))
        return 0

    def _failed(self, source: str, reason: str) -> None:
        self.finished(source, FAILED)
        self.note(f"warning: the module of {source} was not captured: {reason}")

    def _discard(self, outputs: Sequence[Path]) -> None:
        """As after any failed compilation, or make would not run this again."""
        for path in outputs:
            if self.build and path.is_file():
                path.unlink()

    def _build(self, words: list[str], n_program: int) -> tuple[int, tuple[str, ...]]:
        """Runs the build on the first rung that compiles; returns the exit status and that rung.

        The rung's options go behind the first `n_program` words, which name the compiler.
        """
        first = None
        for rung in LADDER:
            command = [*words[:n_program], *_colour(), *rung, *words[n_program:]]
            log.info("running %s", shlex.join(command))
            attempt = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
            first = first or attempt
            if attempt.returncode == 0:
                sys.stderr.write(attempt.stderr)
                if rung:
                    self.note(f"note: clang needed {' '.join(rung)} where nvcc needs nothing; built with it")
                return 0, rung
            if not _might_be_clang_gap(attempt.stderr):
                break
        assert first is not None
        sys.stderr.write(first.stderr)
        return _exit_status(first.returncode), ()

    def _capture(
        self, unit: _Unit, sources: list[str], toolkit: Toolkit, rung: tuple[str, ...], outputs: list[Path]
    ) -> list[str | None]:
        """Stores modules and what images they belong to. Returns the modules' hashes, None for one not captured."""

        def capture(number: int) -> str | None:
            source, folder = sources[number], Path(scratch, str(number))
            folder.mkdir()
            key = self._key(unit, source, toolkit, rung)
            try:
                known = unchanged(self.store, key)
                made = known or remember(self.store, key, self._module(unit, source, toolkit, rung, folder))
                image = unit.image(number, folder, 0 if self.build else newest_change(made))
            except CaptureFailed as error:
                self._failed(source, str(error))
                return None
            if image is not None:
                self.store.add_image(content_hash(image), made.module)
            log.info("captured %s as module %s", source, made.module)
            self.finished(source, UNCHANGED if known else CAPTURED)
            return made.module

        try:
            with tempfile.TemporaryDirectory(prefix="r3llvm-") as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
                captured = list(pool.map(capture, range(len(sources))))
            failed = [source for source, module in zip(sources, captured, strict=True) if module is None]
            if failed and self.strict:
                raise _strict_error(failed, len(sources))
            return captured
        except R3Error:
            self._discard(outputs)
            raise

    def _key(self, unit: _Unit, source: str, toolkit: Toolkit, rung: tuple[str, ...]) -> str:
        """What the store remembers a source of the command under."""
        compiler = compiler_version(tuple(unit.words[: launcher_words(unit.words)]))
        words = [source, compiler, self.arch, *unit.words, *unit.front_end.words, *rung, *unit.options, *unit.assembler]
        front_end = Path(shutil.which(unit.front_end.compiler[-1]) or "")
        searched = [
            argument.value_of("-I", "-isystem", "-iquote", "-idirafter") for argument in unit.front_end.arguments
        ]
        folders = [Path(source).parent, *(Path(folder) for folder in searched if folder)]
        return unit_key(words, [front_end, toolkit.root / "nvvm" / "libdevice" / "libdevice.10.bc"], folders)

    def _module(self, unit: _Unit, source: str, toolkit: Toolkit, rung: tuple[str, ...], scratch: Path) -> StoredModule:
        """Captures and stores the module of one source."""
        if source == "-":
            raise CaptureFailed("it is read from standard input; put it in a file")
        command = unit.front_end
        bitcode, depfile = scratch / "module.bc", scratch / "module.d"
        for extra in LADDER[LADDER.index(rung) :]:
            attempt = _run(module_arguments(command, source, toolkit, self.arch, extra, bitcode, depfile))
            if attempt.returncode == 0:
                break
        else:
            raise CaptureFailed(_first_error(attempt.stderr))
        data = bitcode.read_bytes()
        description = StoredModule(
            hash=content_hash(data),
            source=text_of(str(Path(source).absolute())),
            command=tuple(map(text_of, unit.words)),
            directory=text_of(str(Path.cwd())),
            arch=(command.archs or [self.arch])[0],
            includes=tuple(_hashed(path) for path in parse_dependencies(depfile.read_text(errors="replace"))),
            compiler=compiler_version(tuple(unit.words[: launcher_words(unit.words)])),
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            options=unit.options,
            assembler=unit.assembler,
        )
        self.store.add(data, description)
        return description


@dataclass(frozen=True)
class _Unit:
    """The sources of one command. front_end: what clang compiles them with; words: the command as it was given;
    image: the device image of the n-th source as the built program will register it, None when it has no kernels;
    given a folder for scratch files, and the time of change that an object must have to be the source's.
    """

    front_end: CompileCommand
    words: tuple[str, ...]
    image: Callable[[int, Path, float], bytes | None]
    options: tuple[str, ...] = ()
    assembler: tuple[str, ...] = ()


def _clang_image(
    command: CompileCommand,
    toolkit: Toolkit,
    arch: str,
    rung: tuple[str, ...],
    number: int,
    scratch: Path,
    since: float,
) -> bytes | None:
    sources = command.cuda_sources
    source = sources[number]
    if command.relocatable:
        return _relocatable_image(command, source, since)
    if command.mode is Mode.OBJECT and _is_object(command.object_of(source), since):
        return _image_of_object(command.object_of(source))
    if command.mode is Mode.LINK and _links_only_sources(command):
        images = images_of(command.outputs[0])
        if len(images) == len(sources):  # in link order, which is the order of the sources
            return images[number]
    # In doubt (a source without kernels, objects or libraries with some, assembly): compile it to an object.
    attempt = _run(_object_command(command, source, scratch / "object.o", toolkit, arch, rung))
    if attempt.returncode:
        raise CaptureFailed(_first_error(attempt.stderr))
    return _image_of_object(scratch / "object.o")


def _relocatable_image(command: CompileCommand | NvccCommand, source: str, since: float) -> bytes | None:
    """What a device link will know the source's object by. What the program registers is the linked image."""
    path = command.object_of(source)
    found = relocatable_images(path) if command.mode is Mode.OBJECT and _is_object(path, since) else []
    return found[0] if len(found) == 1 else None


def _nvcc_image(command: NvccCommand, number: int, scratch: Path, since: float) -> bytes | None:
    source = command.cuda_sources[number]
    if command.relocatable:
        return _relocatable_image(command, source, since)
    if command.mode is Mode.OBJECT and _is_object(command.object_of(source), since):
        return _image_of_object(command.object_of(source))
    # nvcc's images do not depend on where they end up: the object of a program's source holds the program's image.
    attempt = _run(command.object_words(source, scratch / "object.o"))
    if attempt.returncode:
        raise CaptureFailed(_first_error(attempt.stderr + attempt.stdout))
    return _image_of_object(scratch / "object.o")


@functools.cache
def compiler_version(compiler: tuple[str, ...]) -> str:
    """The first line of the compiler's `--version`."""
    return (_run([*compiler, "--version"]).stdout.splitlines() or ["unknown"])[0]


def _check_compiler(command: CompileCommand) -> bool:
    """Whether it is clang, or else only a linker's driver. Raises UsageError when it is neither."""
    program = command.compiler[-1]
    if shutil.which(program) is None:
        raise UsageError(f"{program}: no such program; check the compiler's name after --")
    kind = kind_of(program)
    if kind is Kind.CLANG:
        return True
    if kind is Kind.HOST:
        return False
    raise UsageError(
        f"{program} is no compiler: wrap each compiler call instead, e.g. make CXX='r3llvm wrap -- clang++'"
    )


def _links_only_sources(command: CompileCommand) -> bool:
    """Whether nothing but the sources can bring device code into the linked file."""
    objects = [argument for argument in command.inputs if argument.language == "object"]
    libraries = {argument.value_of("-l") for argument in command.arguments} - {None}
    to_linker = [argument for argument in command.arguments if argument.flag.startswith(("-Wl,", "-Xlinker"))]
    return not objects and not to_linker and libraries <= _PLAIN_LIBRARIES


def _object_command(
    command: CompileCommand, source: str, output: Path, toolkit: Toolkit, arch: str, rung: tuple[str, ...]
) -> list[str]:
    """The build's own command, for one source and up to its object."""
    dropped = {"-o", "-c", "-S", "-emit-llvm", "-MD", "-MMD", "-MF", "-MT", "-MQ", "-MJ", "-x", "--"}
    kept = [a for a in command.arguments if not a.is_input and a.flag not in dropped and a.value_of("-x", "-o") is None]
    single = CompileCommand.parse([*command.compiler, *(t for a in kept for t in a.tokens), "-c", "-x", "cuda", source])
    return [*build_arguments(single, toolkit, arch, "host"), *rung, "-w", "-fno-lto", "-o", str(output)]


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    log.info("running %s", shlex.join(words))
    return subprocess.run(words, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)


def _link_tools(clang: Path) -> Tools:
    """LLVM's programs beside clang."""
    folder = clang.resolve().parent
    names = ("llvm-link", "llvm-dis", "llvm-as", "llvm-ar")
    if missing := [name for name in names if not (folder / name).exists()]:
        raise CaptureFailed(f"{', '.join(missing)} not found in {folder}: install llvm-22")
    return Tools(*(folder / name for name in names))


def _strict_error(failed: Sequence[str], n_sources: int) -> R3Error:
    return R3Error(f"{len(failed)} of {n_sources} modules were not captured (--strict): {', '.join(failed)}")


def _exit_status(returncode: int) -> int:
    """As the shell reports it: 128 + n for a signal."""
    return returncode if returncode >= 0 else 128 - returncode


def _colour() -> list[str]:
    return ["-fcolor-diagnostics"] if sys.stderr.isatty() else []


def _might_be_clang_gap(stderr: str) -> bool:
    hopeless = ("linker command failed", "file not found", "error: expected ")
    return "error:" in stderr and not any(text in stderr for text in hopeless)


def _first_error(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if "error:" in line] or stderr.strip().splitlines() or ["no message"]
    return lines[0].strip()


def _is_object(path: Path, since: float) -> bool:
    return is_elf(path) and path.stat().st_mtime >= since


def _image_of_object(path: Path) -> bytes | None:
    images = images_of(path)
    if len(images) == 1:
        return images[0]
    if registers_kernels(path):
        raise CaptureFailed(f"{path.name} holds {len(images)} device images where one was expected")
    return None


def _hashed(path: str) -> Include:
    try:
        return Include(path=text_of(str(Path(path).absolute())), hash=content_hash(Path(path).read_bytes()))
    except OSError as error:
        raise CaptureFailed(f"cannot read {path}, which it includes: {error.strerror}") from error
