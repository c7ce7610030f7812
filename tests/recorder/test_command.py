"""`r3llvm record` with the real recording library, on a driver that runs kernels on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import r3llvm
from r3llvm.capture import Store, StoredModule
from r3llvm.files import content_hash
from r3llvm.recording import Recording, problems
from r3llvm.toolchain import find_clang
from tests.fakecuda import HERE, ROOT
from tests.recorder.conftest import Applications

_FRONT_END = (
    *("-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_75", "-nocudainc", "-nocudalib", "-std=c++20", "-O3"),
    *("-Xclang", "-disable-llvm-passes", "-Wno-unknown-cuda-version", f"-I{ROOT / 'csrc'}", "-emit-llvm", "-c"),
)


class Command:
    """Calls `r3llvm record --device cuda` in a folder of its own, for one of the applications."""

    def __init__(self, applications: Applications, folder: Path) -> None:
        self.applications, self.folder = applications, folder
        self.store = Store(folder / "store")

    def __call__(self, application: str, *options: object) -> tuple[int, str, str]:
        return self.r3llvm(
            *("record", "--device", "cuda", "--store", self.store.root, *options),
            *("--", self.applications.unlinked, application),
        )

    def r3llvm(self, *arguments: object) -> tuple[int, str, str]:
        fake = self.applications.fakecuda
        done = subprocess.run(
            [sys.executable, "-m", "r3llvm", *map(str, arguments)],
            cwd=self.folder,
            env={
                **os.environ,
                **fake.environment,
                "REACH": "lookup",
                "KERNELS": str(fake.ptx),
                "PYTHONPATH": str(Path(r3llvm.__file__).parents[1]),
                "R3LLVM_RECORDER": str(self.applications.library),
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    def recording(self, name: str = "rec") -> Recording:
        return Recording.open(self.folder / name)

    def store_module(self) -> str:
        """What `r3llvm wrap` would have: the module of the kernels, and that the image belongs to it."""
        bitcode = self.folder / "kernels.bc"
        subprocess.run([str(find_clang()), *_FRONT_END, HERE / "kernels.cu", "-o", bitcode], check=True)
        data = bitcode.read_bytes()
        module = StoredModule(
            hash=content_hash(data),
            source="kernels.cu",
            command=("clang++",),
            directory="/",
            arch="sm_75",
            compiler="clang",
            created="2026-01-01T00:00:00+00:00",
        )
        self.store.add(data, module)
        self.store.add_image(content_hash(self.applications.fakecuda.ptx.read_bytes()), module.hash)
        return module.hash


@pytest.fixture
def command(applications: Applications, tmp_path: Path) -> Command:
    return Command(applications, tmp_path)


def test_an_unknown_kernel_is_recorded_with_its_image(command: Command) -> None:
    status, out, err = command("saxpy", "-o", "rec")
    assert (status, out) == (0, command.applications.run("saxpy").output)
    assert err.startswith("r3llvm: recorded 2 launches of 1 kernel on ")
    assert "note: 1 kernel came without a module" in err
    recording = command.recording()
    assert list(problems(recording)) == []
    first, _ = recording.launches("saxpy")
    assert first.module is None
    assert recording.image(first.image or "") == command.applications.fakecuda.ptx.read_bytes()
    assert recording.manifest.device != "host"


def test_a_wrapped_kernel_comes_with_its_module(command: Command) -> None:
    module = command.store_module()
    status, _, err = command("mixed", "-o", "rec")
    assert (status, "without a module" in err) == (0, False)
    [launch] = command.recording().manifest.launches
    assert launch.module == module
    sizes = [(0, 8), (8, 1), (10, 2), (12, 4), (16, 8), (24, 1)]
    assert [(parameter.offset, parameter.size) for parameter in launch.parameters] == sizes
    assert [parameter.kind for parameter in launch.parameters] == ["pointer", *5 * ["scalar"]]
    assert command("variables", "-o", "variables")[0] == 0
    named = {region.name for launch in command.recording("variables").manifest.launches for region in launch.regions}
    assert named == {"", "counter", "table"}
    status, out, err = command.r3llvm("replay", "--device", "host", "variables")
    assert (status, err) == (0, "")
    assert "3 of 3 launches replayed with every recorded byte equal" in out


def test_the_hottest_kernel_is_measured_then_recorded(command: Command) -> None:
    plain = command.applications.run("embedded").output
    status, out, err = command("embedded", "--hottest", 1, "-o", "rec")
    assert (status, out) == (0, 2 * plain)
    assert len(command.recording().kernels) == 1
    assert "1*" in err
    status, out, err = command("embedded", "--profile")
    assert (status, err) == (0, "")
    assert "scale_view" in out and "scale_through" in out


@pytest.mark.parametrize(
    ("application", "options", "status", "message"),
    [
        ("nothing", (), 1, "the recorder saw no launch"),
        ("saxpy", ("--kernels", "no such"), 2, "no kernel matches 'no such'; the application launched saxpy"),
        ("saxpy", ("--kernels", "(?i)SAXPY"), 2, "is no regular expression"),
        ("saxpy", ("--launches", "70,90"), 1, "launched 2 kernels, none of which --launches"),
        ("saxpy", ("--max-bytes", "100"), 1, "saxpy: needs 1 MiB, --max-bytes allows 1 MiB"),
    ],
)
def test_why_nothing_was_recorded(
    command: Command, application: str, options: tuple[str, ...], status: int, message: str
) -> None:
    ended, _, err = command(application, *options, "-o", "rec")
    assert ended == status
    assert message in err.splitlines()[-1]
    assert not (command.folder / "rec").exists()
