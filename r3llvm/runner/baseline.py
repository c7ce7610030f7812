"""What every candidate of a launch is held against: the same kernel, built as usual."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from r3llvm.builder import Artifact, Builder, BuildStatus
from r3llvm.errors import R3Error
from r3llvm.ir import Element, Elements, Place, elements_of, without_contraction
from r3llvm.recording import Launch, Recording, Region, demangle
from r3llvm.runner.protocol import Binary
from r3llvm.space import BASELINE

log = logging.getLogger(__name__)

_AGGRESSIVE = ("-nvptx-fma-level=2",)  # fuses also where the source did not give leave
_NEVER = ("-nvptx-fma-level=0",)
_TYPES: dict[Element, Any] = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class Baseline:
    """binary: the kernel built with the space's baseline, or the recorded image where no module is known. rebuilds:
    with and without contraction, where that makes another binary. elements: what the kernel accesses.
    """

    binary: Binary
    rebuilds: tuple[Binary, ...] = ()
    elements: Elements = field(default_factory=Elements)


def build_baseline(recording: Recording, launch: Launch, arch: str) -> Baseline:
    """R3Error: it cannot be built."""
    builder = Builder.of(recording, launch, arch)
    artifact = builder.build(BASELINE)
    if artifact.status is not BuildStatus.OK:
        raise R3Error(f"the baseline of {demangle(launch.kernel)} does not build: {artifact.message}")
    rebuilds = [builder.build(replace(BASELINE, options=_AGGRESSIVE))]
    try:
        asked = recording.describe_module(recording.module_of(launch))
        uncontracted = Builder(
            without_contraction(builder.module), launch.kernel, arch, options=asked.options, assembler=asked.assembler
        )
        rebuilds.append(uncontracted.build(replace(BASELINE, options=_NEVER)))
    except (R3Error, RuntimeError) as error:  # one rebuild fewer to learn from
        log.info("no rebuild of %s without contraction: %s", launch.kernel, error)
    binaries = dict.fromkeys(binary_of(a, launch) for a in rebuilds if a.status is BuildStatus.OK)
    binary = binary_of(artifact, launch)
    return Baseline(
        binary, tuple(other for other in binaries if other != binary), elements_of(artifact.bitcode, launch.kernel)
    )


def image_baseline(recording: Recording, launch: Launch, arch: str | None = None) -> Baseline:
    """The image that the application ran. R3Error: it was not recorded.

    arch: builds the module for it too, where it is known: how its builds differ says how others may.
    """
    if launch.image is None:
        raise R3Error(
            f"launch {launch.index} of {demangle(launch.kernel)} was recorded without its image; replay a rebuild"
        )
    image = Binary(recording.image(launch.image), launch.name_in_image)
    if arch is None or launch.module is None:
        return Baseline(image)
    try:
        built = build_baseline(recording, launch, arch)
    except R3Error as error:
        log.info("no build to hold against the image: %s", error)
        return Baseline(image)
    return Baseline(image, (built.binary, *built.rebuilds), built.elements)


def binary_of(artifact: Artifact, launch: Launch) -> Binary:
    return Binary(artifact.cubin, launch.kernel)


def arch_for(recorded: str, capability: str) -> str:
    """The architecture to build for on a GPU of this compute capability ("9.0"): the recorded one where it runs."""
    major, minor = (int(part) for part in capability.split("."))
    digits = "".join(filter(str.isdigit, recorded))
    if digits and int(digits[:-1]) == major and int(digits[-1]) <= minor:
        return recorded
    return f"sm_{major}{minor}"


def region_elements(launch: Launch, elements: Elements) -> tuple[Element, ...]:
    """What each region of the launch holds, as far as the kernel's pointers and the variables' types tell."""
    found: list[set[Element]] = [set() for _ in launch.regions]
    for place, element in elements.pointers.items():
        for kinds, region in zip(found, launch.regions, strict=True):
            if _points_into(launch, place, region):
                kinds.add(element)
    for kinds, region in zip(found, launch.regions, strict=True):
        if region.kind == "variable":
            kinds.add(elements.variables.get(region.name, "bytes"))
    return tuple(kinds.pop() if len(kinds) == 1 else "bytes" for kinds in found)


def region_sums(launch: Launch, elements: Elements) -> tuple[bool, ...]:
    """Which regions the kernel adds to atomically, in floating point."""
    return tuple(any(_points_into(launch, place, region) for place in elements.sums) for region in launch.regions)


def _points_into(launch: Launch, place: Place, region: Region) -> bool:
    position, offset = place
    if position >= len(launch.parameters):
        return False
    start = launch.parameters[position].offset + offset
    address = int.from_bytes(bytes.fromhex(launch.arguments)[start : start + 8], "little")
    return region.base <= address < region.base + region.size


def magnitude(recording: Recording, region: Region, element: Element) -> float:
    """The largest finite magnitude in the recorded result, 0.0 for none and for what holds no known numbers."""
    largest = 0.0
    if element == "bytes":
        return largest
    for chunk in recording.chunks(region, "epilogue"):  # a chunk's length is a multiple of every type's
        values = np.abs(_numbers(chunk, element))
        finite = values[np.isfinite(values)]
        largest = max(largest, float(finite.max(initial=0.0)))
    return largest


def _numbers(chunk: bytes, element: Element) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    kind = _TYPES[element]
    whole = chunk[: len(chunk) // kind().itemsize * kind().itemsize]
    if not whole:
        return np.zeros(1)
    numbers = np.frombuffer(whole, kind)
    if element == "bf16":
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(np.float64)


def names_of(regions: Sequence[Region]) -> tuple[str, ...]:
    return tuple(region_name(region) for region in regions)


def region_name(region: Region) -> str:
    """A region as a message names it."""
    return f"variable {region.name}" if region.kind == "variable" else f"allocation {region.base:#x}"
