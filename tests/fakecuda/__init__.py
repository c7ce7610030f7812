"""A CUDA driver (libcuda.so.1) that runs known kernels on the CPU: what tests of the recorder and of the `cuda` device
use where there is no GPU. fake.h says what it does, kernels.cu what it can run.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.fakecuda.exports import exports_source, read_exports

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEVICE_CODE = ROOT / "csrc" / "device"


@dataclass(frozen=True)
class FakeCuda:
    """Where build_fakecuda() put it."""

    folder: Path

    @property
    def library(self) -> Path:
        """libcuda.so.1; with libcuda.so beside it, for programs that are linked with -lcuda."""
        return self.folder / "libcuda.so.1"

    @property
    def private(self) -> Path:
        """The same under a name of its own: a process that loads it does not look as if it had a driver."""
        return self.folder / "libfakecuda.so"

    @property
    def ptx(self) -> Path:
        """The kernels of kernels.cu."""
        return self.folder / "kernels.ptx"

    @property
    def device_ptx(self) -> Path:
        """The kernels of csrc/device."""
        return self.folder / "device.ptx"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that are to load it."""
        return {"LD_LIBRARY_PATH": str(self.folder)}


def sources() -> list[Path]:
    """Everything that it is made of."""
    own = [path for path in sorted(HERE.iterdir()) if path.suffix in (".h", ".cpp", ".cu")]
    scripts = [HERE / "__init__.py", HERE / "exports.py"]
    return [*own, *scripts, *sorted(DEVICE_CODE.glob("*.cu")), DEVICE_CODE / "portable.h", DEVICE_CODE / "tile.h"]


def build_fakecuda(folder: Path, include: Path, clang: Path) -> FakeCuda:
    """Compiles it into the folder. include: that of cuda.h."""
    folder.mkdir(parents=True, exist_ok=True)
    built = FakeCuda(folder)
    device_code = [HERE / "kernels.cu", *sorted(DEVICE_CODE.glob("*.cu"))]
    names = [name for file in device_code for name in re.findall(r"^R3_KERNEL (\w+)\(", file.read_text(), re.MULTILINE)]
    (folder / "kernels.inc").write_text("".join(f"R3_NAMED({name})\n" for name in names))
    (folder / "exports.c").write_text(exports_source(read_exports(include)))
    # As one unit: the standard library's headers are most of the work.
    units = sorted(HERE.glob("*.cpp"))
    (folder / "all.cpp").write_text("".join(f'#include "{unit}"\n' for unit in units))

    common = ["-fPIC", "-fvisibility=hidden", "-c"]
    language = ["-std=c++20", "-Wall", "-Wextra", "-D__CUDA_API_PUSH_VISIBILITY_DEFAULT"]
    includes = [f"-I{HERE}", f"-I{ROOT / 'csrc'}", f"-I{folder}", "-isystem", include]
    _run(clang, "-x", "c", *common, folder / "exports.c", "-o", folder / "exports.o")
    _run(clang, *common, *language, *includes, folder / "all.cpp", "-o", folder / "all.o")
    for library in (built.library, built.private):
        link = ["-shared", "-Wl,-Bsymbolic,-z,defs", f"-Wl,-soname,{library.name}", "-ldl", "-pthread"]
        _run(clang, folder / "all.o", folder / "exports.o", *link, "-o", library)
    (folder / "libcuda.so").unlink(missing_ok=True)
    (folder / "libcuda.so").symlink_to(built.library.name)

    cuda = [
        "-x",
        "cuda",
        "--cuda-device-only",
        "--cuda-gpu-arch=sm_75",
        "-nocudainc",
        "-nocudalib",
        "-std=c++20",
        "-O3",
    ]
    for source, ptx in ((HERE / "kernels.cu", built.ptx), (DEVICE_CODE / "kernels.cu", built.device_ptx)):
        _run(clang, *cuda, "-Wno-unknown-cuda-version", f"-I{ROOT / 'csrc'}", "-S", source, "-o", ptx)
    return built


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)
