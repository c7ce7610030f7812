"""Recordings made without an application, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from r3llvm.files import content_hash
from r3llvm.recording import Image, Launch, Manifest, Module, Parameter, Region
from r3llvm.recording.recording import chunk_name, image_name, module_name

CHUNK_BYTES = 256 * 1024
BASE = 0x300000000000


@dataclass
class FakeRecording:
    """Builds a recording in `folder`: launches first, then `finish`."""

    folder: Path
    modules: list[Module] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)

    def module(self, bitcode: bytes = b"BC module", source: str = "app.cu") -> str:
        name = content_hash(bitcode)
        path = self.folder / module_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bitcode)
        self.modules.append(Module(hash=name, source=source, command=("clang++", source), arch="sm_90"))
        return name

    def image(self, data: bytes = b"\x7fELF image") -> str:
        name = content_hash(data)
        path = self.folder / image_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.images.append(Image(hash=name, kind="cubin", size=len(data)))
        return name

    def chunks(self, data: bytes) -> tuple[str, ...]:
        hashes = []
        for start in range(0, len(data), CHUNK_BYTES):
            raw = data[start : start + CHUNK_BYTES]
            hashes.append(content_hash(raw))
            path = self.folder / chunk_name(hashes[-1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(zstandard.compress(raw))
        return tuple(hashes)

    def region(self, before: bytes, after: bytes, base: int = BASE, variable: str = "") -> Region:
        return Region(
            kind="variable" if variable else "allocation",
            name=variable,
            base=base,
            size=len(before),
            prologue=self.chunks(before),
            epilogue=self.chunks(after),
        )

    def launch(
        self, kernel: str, module: str | None, regions: Sequence[Region], index: int = 0, image: str | None = None
    ) -> Launch:
        launch = Launch(
            kernel=kernel,
            module=module,
            image=image,
            index=index,
            grid=(4, 2, 1),
            block=(128, 1, 1),
            arguments=BASE.to_bytes(8, "little").hex(),
            parameters=(Parameter(offset=0, size=8, alignment=8, kind="pointer"),),
            regions=tuple(regions),
        )
        self.launches.append(launch)
        return launch

    def finish(self) -> Manifest:
        manifest = Manifest(
            r3llvm_version="0.1.0",
            created="2026-01-01T00:00:00+00:00",
            device="host",
            application=("./app", "10"),
            chunk_bytes=CHUNK_BYTES,
            modules=tuple(self.modules),
            images=tuple(self.images),
            launches=tuple(self.launches),
            launches_seen=len(self.launches),
        )
        (self.folder / "manifest.json").write_text(manifest.model_dump_json())
        return manifest


def small_recording(folder: Path) -> Path:
    """Two kernels of one module, three launches; one region of two chunks, one variable."""
    fake = FakeRecording(folder)
    module = fake.module()
    large = bytes(range(256)) * 1200
    changed = b"\xff" + large[1:]
    array = fake.region(large, changed)
    counter = fake.region(b"\0" * 4, b"\1\0\0\0", BASE + (1 << 20), "counter")
    fake.launch("_Z5scalePfi", module, [array])
    fake.launch("_Z5scalePfi", module, [array, counter], index=7)
    fake.launch("_Z5countPi", module, [counter])
    fake.finish()
    return folder
