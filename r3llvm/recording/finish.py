"""From the recording library's folder to a finished recording."""

from __future__ import annotations

import datetime
from pathlib import Path

from pydantic import ValidationError

import r3llvm
from r3llvm.capture import Store
from r3llvm.errors import R3Error
from r3llvm.files import content_hash, flush_filesystem, text_of, write_atomically
from r3llvm.recording.journal import JOURNAL, Journal
from r3llvm.recording.manifest import Foreign, Image, Manifest, Module
from r3llvm.recording.recording import chunk_name, image_name, module_name, referenced_chunks
from r3llvm.recording.source import MANIFEST

CHUNK_BYTES = 256 * 1024
OWNER = "owner"  # who makes the recording: the recorder's lock among the application's processes


def finish(folder: Path, journal: Journal, store: Store, application: tuple[str, ...], device: str) -> Manifest:
    """Turns the recorder's folder into a recording: modules copied in, manifest written, the rest removed, all on disk.

    Raises R3Error when a module is not in the store, or a chunk or an image is missing.
    """
    modules = []
    for module_hash in dict.fromkeys(launch.module for launch in journal.launches if launch.module):
        stored = store.describe(module_hash)
        _write(folder / module_name(module_hash), store.module(module_hash))
        modules.append(
            Module(
                hash=module_hash,
                source=stored.source,
                command=stored.command,
                arch=stored.arch,
                includes=tuple(include.path for include in stored.includes),
                options=stored.options,
                assembler=stored.assembler,
            )
        )
    images = dict.fromkeys(launch.image for launch in journal.launches if launch.image)
    try:
        manifest = Manifest(
            r3llvm_version=r3llvm.__version__,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            device=device,
            capability=journal.capability,
            application=tuple(map(text_of, application)),
            chunk_bytes=CHUNK_BYTES,
            modules=tuple(modules),
            images=tuple(journal.images[image] for image in images if image in journal.images),
            launches=tuple(journal.launches),
            refusals=tuple(journal.refusals),
            launches_seen=journal.launches_seen,
            graph_launches=journal.graph_launches,
            captured_launches=journal.captured_launches,
            other_processes=journal.other_processes,
            other_launches=journal.other_launches,
            foreign=tuple(Foreign(kind=kind, bytes=n) for kind, n in journal.foreign.items()),
        )
    except ValidationError as error:
        raise R3Error(f"the recorder's journal is inconsistent: {error.errors()[0]['msg']}") from error
    for image in manifest.images:
        _check_image(folder / image_name(image.hash), image)
    _keep_only_referenced(folder, manifest)
    _write(folder / MANIFEST, manifest.model_dump_json(indent=1).encode())
    try:
        flush_filesystem(folder)
    except OSError as error:
        raise R3Error(f"cannot write {folder}: {error.strerror or error}") from error
    return manifest


def _check_image(path: Path, image: Image) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise R3Error(f"the recorder lost image {image.hash} ({error.strerror}): record again") from error
    if content_hash(data) != image.hash or len(data) != image.size:
        raise R3Error(f"image {image.hash} was not written whole: record again")


def _keep_only_referenced(folder: Path, manifest: Manifest) -> None:
    chunks = {folder / chunk_name(chunk_hash) for chunk_hash in referenced_chunks(manifest)}
    present = _files(folder / "chunks")
    if missing := chunks - present:
        raise R3Error(f"the recorder lost {len(missing)} chunks (such as {min(missing).stem}): record again")
    images = {folder / image_name(image.hash) for image in manifest.images}
    for path in (present - chunks) | (_files(folder / "images") - images):
        path.unlink()
    for name in (JOURNAL, OWNER):
        (folder / name).unlink(missing_ok=True)


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as error:
        raise R3Error(f"cannot write {path}: {error.strerror or error}") from error
