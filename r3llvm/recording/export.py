"""One file to send, and back."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
from pathlib import Path

from r3llvm.errors import R3Error
from r3llvm.files import flush_filesystem, write_atomically
from r3llvm.recording.recording import Recording
from r3llvm.recording.verify import problems


def export_recording(recording: Recording, output: Path) -> None:
    """Writes the recording as one tar file (its chunks are compressed already). Deterministic: no owners, no times.

    Raises R3Error when a file is missing or damaged, or the disk refuses; then no output is left.
    """
    for problem in problems(recording):
        raise R3Error(f"cannot export {recording.path}: {problem}")
    top = recording.path.resolve().name.removesuffix(".tar")
    partial = output.with_name(f"{output.name}.partial-{os.getpid()}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as tar:
            for name in recording.files():
                data = recording.source.read(name)
                member = tarfile.TarInfo(f"{top}/{name}")
                member.size, member.mode = len(data), 0o644
                tar.addfile(member, io.BytesIO(data))
        partial.replace(output)
    except OSError as error:
        raise R3Error(f"cannot export {recording.path} to {output}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def import_recording(recording: Recording, output: Path) -> None:
    """Unpacks an exported recording into the folder `output`, checked. Only files that the manifest names are written.

    Raises R3Error when something is damaged or the disk refuses; then no output is left.
    """
    for problem in problems(recording):
        raise R3Error(problem)
    partial = output.with_name(f"{output.name}.partial-{os.getpid()}")
    try:
        for name in recording.files():
            write_atomically(partial / name, recording.source.read(name), flush=False)
        flush_filesystem(partial)
        partial.replace(output)
    except OSError as error:
        raise R3Error(f"cannot unpack {recording.path} into {output}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
