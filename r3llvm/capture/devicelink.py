"""Relocatable device code: modules linked as nvcc's device link links the objects of their translation units."""

from __future__ import annotations

import datetime
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from r3llvm.capture.fatbinary import is_elf, split
from r3llvm.capture.store import Store, StoredModule
from r3llvm.errors import R3Error
from r3llvm.files import content_hash, text_of

_ARCHIVE = b"!<arch>\n"
# What clang appends to the names of entities that only their unit sees, once code is relocatable.
_SUFFIX = r"__(?:intern|static)__"
_PRIVATE = re.compile(rf"([@$]\"?)([\w$.]+?)({_SUFFIX})[0-9a-f]+\b")


@dataclass(frozen=True)
class Unit:
    """One translation unit's relocatable device code in an object.

    name: what nvcc calls the unit, or what clang appends to its private names; "" when unknown.
    """

    image: str  # content hash
    name: str


@dataclass(frozen=True)
class Tools:
    """LLVM's programs; raises R3Error at their first use when one failed."""

    link: Path
    disassembler: Path
    assembler: Path
    archiver: Path

    def run(self, tool: Path, *arguments: str) -> None:
        done = subprocess.run([str(tool), *arguments], capture_output=True, text=True, errors="replace")
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise R3Error(f"{tool.name}: {lines[0]}")


def relocatable_images(path: Path) -> list[bytes]:
    """The relocatable device code in an object, unit by unit: nvcc's fat binaries, or clang's offloading section."""
    if offloading := _section(path, ".llvm.offloading"):
        return [offloading]
    try:
        return split(_section(path, "__nv_relfatbin"))
    except ValueError:
        return []


def units_of(path: Path, tools: Tools) -> list[Unit]:
    """The units in an object or a static library, in order; none when there is no relocatable device code."""
    if is_elf(path):
        return list(_units_of_object(path))
    try:
        with path.open("rb") as file:
            if file.read(len(_ARCHIVE)) != _ARCHIVE:
                return []
    except OSError:
        return []
    with tempfile.TemporaryDirectory(prefix="r3llvm-") as scratch:
        tools.run(tools.archiver, "x", "--output", scratch, str(path.absolute()))
        members = sorted(Path(scratch).iterdir())
        return [unit for member in members for unit in _units_of_object(member)]


def unit_names(path: Path) -> list[str]:
    """What nvcc calls the units of an object or a program, in link order; of clang's, the suffixes of private names."""
    if offloading := _section(path, ".llvm.offloading"):
        return list(dict.fromkeys(re.findall(rf"{_SUFFIX}([0-9a-f]{{1,16}})\b", offloading.decode("latin-1"))))
    names = _strings(_section(path, "__nv_module_id"))
    return list(dict.fromkeys(name.removeprefix("def ") for name in names))


def unit_name_of(source: str, names: Sequence[str]) -> str:
    """The unit name among `names` that nvcc made of a source's file name; "" when none or several fit."""
    file = re.sub(r"\W", "_", PurePath(source).name)
    found = [name for name in names if re.match(rf"_[0-9a-f]{{8}}_{len(file)}_{re.escape(file)}(_|$)", name)]
    return found[0] if len(found) == 1 else ""


def link_modules(
    store: Store, objects: Sequence[tuple[str, str]], libraries: Sequence[tuple[str, str]], output: str, tools: Tools
) -> str:
    """Links and stores modules; returns the hash of the result, in which private kernels have the compiler's names.

    objects, libraries: (module hash, unit name), in link order; of libraries only what is needed.
    Raises R3Error when they cannot be linked.
    """
    first = store.describe(objects[0][0] if objects else libraries[0][0])
    with tempfile.TemporaryDirectory(prefix="r3llvm-") as scratch:
        folder = Path(scratch)
        named = [_renamed(store, *unit, folder, tools) for unit in objects]
        needed = [_renamed(store, *unit, folder, tools) for unit in libraries]
        linked = folder / "linked.bc"
        tools.run(tools.link, "-o", str(linked), *map(str, named))
        if needed:
            before, linked = linked, folder / "with-libraries.bc"
            tools.run(tools.link, "--only-needed", "-o", str(linked), str(before), *map(str, needed))
        data = linked.read_bytes()
    units = tuple(module for module, _ in (*objects, *libraries))
    stored = [store.describe(unit) for unit in dict.fromkeys(units)]
    description = StoredModule(
        hash=content_hash(data),
        source=text_of(output),
        command=first.command,
        directory=first.directory,
        arch=first.arch,
        includes=tuple({include.path: include for unit in stored for include in unit.includes}.values()),
        compiler=first.compiler,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        options=first.options,
        assembler=first.assembler,
        units=units,
    )
    store.add(data, description)
    return description.hash


def nvcc_name(name: str, unit: str) -> str:
    """What nvcc calls an entity that only its unit sees, given clang's mangled name for it."""
    space = f"_GLOBAL__N_{unit}"
    name = name.replace("12_GLOBAL__N_1", f"{len(space)}{space}")
    name = re.sub(r"^_ZL(\d)", r"_Z\1", name)
    variable = re.fullmatch(r"_Z(\d+)(\w+)", name)
    if variable and len(variable[2]) == int(variable[1]):  # a static variable keeps its plain name
        name = variable[2]
    return f"__nv_static_{len(unit)}_{unit}_{name}"


def _renamed(store: Store, module: str, unit: str, folder: Path, tools: Tools) -> Path:
    path = folder / f"{module}.bc"
    path.write_bytes(store.module(module))
    if not unit:
        return path
    text = folder / f"{module}.ll"
    tools.run(tools.disassembler, "-o", str(text), str(path))
    source = text.read_text()
    renamed = _PRIVATE.sub(
        lambda match: (
            f"{match[1]}{match[2]}{match[3]}{unit}"
            if re.fullmatch("[0-9a-f]{1,16}", unit)
            else f"{match[1]}{nvcc_name(match[2], unit)}"
        ),
        source,
    )
    if renamed != source:
        text.write_text(renamed)
        tools.run(tools.assembler, "-o", str(path), str(text))
    return path


def _units_of_object(path: Path) -> Iterator[Unit]:
    images = relocatable_images(path)
    names = unit_names(path)
    for number, image in enumerate(images):
        yield Unit(content_hash(image), names[number] if len(names) == len(images) else "")


def _section(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(name)
            return bytes(section.data()) if section else b""
    except (OSError, ELFError):
        return b""


def _strings(section: bytes) -> list[str]:
    return [text.decode(errors="replace") for text in section.split(b"\0") if text]
