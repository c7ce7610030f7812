"""A stand-in for an application under the recording library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from r3llvm.capture import Store, StoredModule
from r3llvm.recording import Launch, Recorder, Recording
from tests.recording.fake import FakeRecording

BITCODE = b"BC of the application"


def launch_line(launch: Launch, **changes: object) -> dict[str, Any]:
    """The journal's line for a launch: "" stands for no module and no image."""
    line = {"type": "launch", **launch.model_dump(mode="json"), **changes}
    return line | {name: line[name] or "" for name in ("module", "image")}


class Application:
    """A script that leaves in $R3LLVM_RECORD what the recording library would."""

    def __init__(self, folder: Path, bitcode: bytes = BITCODE) -> None:
        self.folder = folder
        self.path = folder / "app"
        self.store = Store(folder / "store")
        self.output = folder / "recordings" / "name"
        self.fake = fake = FakeRecording(folder / "outbox")
        self.module = module = fake.module(bitcode)
        fake.launch("_Z5scalePfi", module, [fake.region(b"a" * 8, b"b" * 8)])
        fake.launch("_Z5countPi", module, [fake.region(b"c" * 8, b"c" * 8)], index=3)
        self.lines = [launch_line(launch) for launch in fake.launches]
        self.store.add(
            bitcode,
            StoredModule(
                hash=module,
                source="/src/app.cu",
                command=("clang++", "app.cu"),
                directory="/src",
                arch="sm_80",
                compiler="clang",
                created="2026-01-01T00:00:00+00:00",
            ),
        )
        self.writes(*self.lines, {"type": "end", "launches_seen": 9})

    def writes(self, *lines: object, then: str = "", tail: str = "") -> None:
        """Sets the journal's lines, and what the script does after writing them."""
        text = "".join(json.dumps(line) + "\n" for line in lines) + tail
        (self.folder / "outbox" / "journal.jsonl").write_text(text)
        copy = f'(cd {self.folder}/outbox && cp -r * "$R3LLVM_RECORD" && rm -rf "$R3LLVM_RECORD"/modules)'
        self.path.write_text(f"#!/bin/sh\n{copy}\n{then}\n")
        self.path.chmod(0o755)

    def record(self, *arguments: str, force: bool = False, **options: object) -> Recording:
        recorder = Recorder(self.store, **options)  # type: ignore[arg-type]
        return recorder.record([str(self.path), *arguments], self.output, force)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.output.parent.glob("*")) if self.output.parent.exists() else []
