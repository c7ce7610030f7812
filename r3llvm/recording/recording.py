"""Reading a recording. Everything read is checked against its hash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import zstandard
from pydantic import ValidationError

from r3llvm.errors import R3Error, UsageError
from r3llvm.files import content_hash
from r3llvm.recording.manifest import SCHEMA_VERSION, Image, Launch, Manifest, Module, Region
from r3llvm.recording.names import demangle, matches
from r3llvm.recording.source import MANIFEST, Source, open_source

Moment = Literal["prologue", "epilogue"]


def chunk_name(chunk_hash: str) -> str:
    """A chunk's file inside a recording."""
    return f"chunks/{chunk_hash[:2]}/{chunk_hash}.zst"


def module_name(module_hash: str) -> str:
    """A module's file inside a recording."""
    return f"modules/{module_hash}.bc"


def image_name(image_hash: str) -> str:
    """A device image's file inside a recording."""
    return f"images/{image_hash}"


class Recording:
    """A recording that is there to be read: a folder, or a file from `r3llvm export`."""

    def __init__(self, path: Path, source: Source, manifest: Manifest) -> None:
        self.path = path
        self.source = source
        self.manifest = manifest

    @classmethod
    def open(cls, path: Path | str) -> Recording:
        """Reads the manifest. Raises R3Error when this is no recording, or one of a newer r3llvm."""
        path = Path(path)
        source = open_source(path)
        try:
            data = source.read(MANIFEST)
        except OSError as error:
            raise R3Error(
                f"{path} is not a recording: it has no readable {MANIFEST}; name what `r3llvm record -o` made"
            ) from error
        return cls(path, source, parse_manifest(data, path))

    @property
    def kernels(self) -> list[str]:
        """Mangled names of the recorded kernels, in the order of their first launch."""
        return list(dict.fromkeys(launch.kernel for launch in self.manifest.launches))

    def launches(self, kernels: str | None = None) -> list[Launch]:
        """The launches of the kernels whose mangled or C++ name the regular expression `kernels` is found in.

        Raises UsageError when it matches none.
        """
        if kernels is None:
            return list(self.manifest.launches)
        found = [launch for launch in self.manifest.launches if matches(kernels, launch.kernel)]
        if not found:
            names = ", ".join(demangle(kernel) for kernel in self.kernels)
            raise UsageError(f"no kernel matches {kernels!r}; {self.path} holds {names or 'none'}")
        return found

    def describe_module(self, module_hash: str) -> Module:
        """Where a module came from."""
        return next(module for module in self.manifest.modules if module.hash == module_hash)

    def module_of(self, launch: Launch) -> str:
        """The hash of the launch's module. Raises R3Error when only its device image was recorded."""
        if launch.module is None:
            raise R3Error(
                f"{demangle(launch.kernel)} was recorded without its module (it was not built through `r3llvm wrap`): "
                "its image can be replayed and timed, but not rebuilt"
            )
        return launch.module

    def module(self, module_hash: str) -> bytes:
        """A module's bitcode. Raises R3Error when it is missing or damaged."""
        return self._read_whole(module_name(module_hash), f"module {module_hash}", module_hash)

    def describe_image(self, image_hash: str) -> Image:
        """What kind of image it is."""
        return next(image for image in self.manifest.images if image.hash == image_hash)

    def image(self, image_hash: str) -> bytes:
        """A device image, as cuModuleLoadData takes it. Raises R3Error when it is missing or damaged."""
        return self._read_whole(image_name(image_hash), f"image {image_hash}", image_hash)

    def read_region(self, region: Region, moment: Moment) -> bytes:
        """`region.size` bytes, before or after the launch. Raises R3Error when a chunk is missing or damaged."""
        return b"".join(self.chunks(region, moment))

    def chunks(self, region: Region, moment: Moment) -> Iterator[bytes]:
        """The same, one chunk at a time."""
        step = self.manifest.chunk_bytes
        for number, chunk_hash in enumerate(getattr(region, moment)):
            yield self.chunk(chunk_hash, min(step, region.size - number * step))

    def chunk(self, chunk_hash: str, size: int) -> bytes:
        """One chunk of `size` raw bytes. Raises R3Error when it is missing or damaged."""
        frame = self._read(chunk_name(chunk_hash), f"chunk {chunk_hash}")
        try:
            # The frame's own idea of its size is not to be trusted with the allocation.
            if zstandard.frame_content_size(frame) not in (size, -1):
                raise self._damaged(f"chunk {chunk_hash}", f"it does not hold {size} bytes")
            data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
        except zstandard.ZstdError as error:
            raise self._damaged(f"chunk {chunk_hash}", "it is truncated or no zstd frame") from error
        if len(data) != size or content_hash(data) != chunk_hash:
            raise self._damaged(f"chunk {chunk_hash}", "its bytes have another hash")
        return data

    def files(self) -> Iterator[str]:
        """The names of all files that belong to the recording, the manifest last."""
        yield from (module_name(module.hash) for module in self.manifest.modules)
        yield from (image_name(image.hash) for image in self.manifest.images)
        yield from (chunk_name(chunk_hash) for chunk_hash in referenced_chunks(self.manifest))
        yield MANIFEST

    def stored_bytes(self) -> int:
        """Bytes on disk. Raises R3Error when a file is missing."""
        try:
            return sum(self.source.size(name) for name in self.files())
        except OSError as error:
            raise R3Error(f"{self.path} is incomplete: {error}; `r3llvm verify` names all that is wrong") from error

    def _read_whole(self, name: str, what: str, content: str) -> bytes:
        data = self._read(name, what)
        if content_hash(data) != content:
            raise self._damaged(what, "its bytes have another hash")
        return data

    def _read(self, name: str, what: str) -> bytes:
        try:
            return self.source.read(name)
        except OSError as error:
            raise self._damaged(
                what, "it is missing" if isinstance(error, FileNotFoundError) else str(error)
            ) from error

    def _damaged(self, what: str, reason: str) -> R3Error:
        return R3Error(f"{what} of {self.path} is damaged: {reason}; record again, or get the recording again")


def referenced_chunks(manifest: Manifest) -> dict[str, int]:
    """Every chunk that the manifest names, once, with the raw bytes it must hold."""
    step = manifest.chunk_bytes
    sizes: dict[str, int] = {}
    for launch in manifest.launches:
        for region in launch.regions:
            for hashes in (region.prologue, region.epilogue):
                for number, chunk_hash in enumerate(hashes):
                    sizes[chunk_hash] = min(step, region.size - number * step)
    return sizes


def parse_manifest(data: bytes, path: Path) -> Manifest:
    """Raises R3Error when this is no manifest, or one of a newer r3llvm. `path` is for the message."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise R3Error(f"{path} is not a recording: its {MANIFEST} is no JSON ({error}); record again") from error
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if not isinstance(version, int) or version < 1:
        raise R3Error(f"{path} is not a recording: its {MANIFEST} has no schema version")
    if version > SCHEMA_VERSION:
        raise R3Error(
            f"{path} is of a newer r3llvm (schema {version}; this one reads up to {SCHEMA_VERSION}): upgrade r3llvm"
        )
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise R3Error(f"{MANIFEST} of {path} breaks the schema at {where or 'the top'}: {first['msg']}") from error
