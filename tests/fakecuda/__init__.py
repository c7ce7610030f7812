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
    """library: libcuda.so.1. ptx: the text of kernels.cu's kernels. environment: for programs that are to load it."""

    library: Path
    ptx: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.library.parent)}


def sources() -> list[Path]:
    """Everything that it is made of."""
    own = [path for path in sorted(HERE.iterdir()) if path.suffix in (".py", ".h", ".cpp", ".cu")]
    return [*own, *sorted(DEVICE_CODE.glob("*.cu")), DEVICE_CODE / "portable.h", DEVICE_CODE / "tile.h"]


def build_fakecuda(folder: Path, include: Path, clang: Path) -> FakeCuda:
    """Compiles it into the folder. include: that of cuda.h."""
    folder.mkdir(parents=True, exist_ok=True)
    device_code = [HERE / "kernels.cu", *sorted(DEVICE_CODE.glob("*.cu"))]
    names = [name for file in device_code for name in re.findall(r"^R3_KERNEL (\w+)\(", file.read_text(), re.MULTILINE)]
    (folder / "kernels.inc").write_text("".join(f"R3_NAMED({name})\n" for name in names))
    (folder / "exports.c").write_text(exports_source(read_exports(include)))

    # As one unit: the standard library's headers are most of the work.
    units = sorted(HERE.glob("*.cpp"))
    (folder / "all.cpp").write_text("".join(f'#include "{unit}"\n' for unit in units))
    library, ptx = folder / "libcuda.so.1", folder / "kernels.ptx"
    common = ["-fPIC", "-fvisibility=hidden"]
    _run(clang, *common, "-x", "c", "-c", folder / "exports.c", "-o", folder / "exports.o")
    _run(
        *(
            clang,
            *common,
            "-D__CUDA_API_PUSH_VISIBILITY_DEFAULT",
            "-std=c++20",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{HERE}",
            f"-I{ROOT / 'csrc'}",
        ),
        *(
            f"-I{folder}",
            "-isystem",
            include,
            "-shared",
            "-Wl,-Bsymbolic,-z,defs",
            "-Wl,-soname,libcuda.so.1",
            "-o",
            library,
        ),
        *(folder / "all.cpp", folder / "exports.o", "-ldl", "-pthread"),
    )
    (folder / "libcuda.so").unlink(missing_ok=True)
    (folder / "libcuda.so").symlink_to(library.name)
    _run(
        *(clang, "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_75", "-nocudainc", "-nocudalib", "-std=c++20"),
        *("-O3", "-Wno-unknown-cuda-version", f"-I{ROOT / 'csrc'}", "-S", HERE / "kernels.cu", "-o", ptx),
    )
    return FakeCuda(library, ptx)


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)
