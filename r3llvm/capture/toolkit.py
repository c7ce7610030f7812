"""Where the CUDA toolkit, the host device's CUDA runtime and the stub headers are."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from r3llvm.errors import R3Error

_PACKAGE = Path(__file__).resolve().parent.parent
STUB_HEADERS = _PACKAGE / "include" / "stubs"
_CUDART = "libcudart.so.13"


@dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit's folder, as `--cuda-path` takes it."""

    root: Path

    @property
    def cccl(self) -> Path:
        """Thrust, CUB and libcu++ (since CUDA 13; nvcc adds this folder by itself)."""
        return self.root / "include" / "cccl"

    @property
    def has_curand(self) -> bool:
        return (self.root / "include" / "curand_mtgp32_kernel.h").exists()

    @property
    def library_directory(self) -> Path | None:
        """The folder with the toolkit's own CUDA runtime library, if it is there."""
        for name in ("lib64", "lib"):
            if list((self.root / name).glob("libcudart.so*")):
                return self.root / name
        return None


def find_toolkit(named: str | None = None) -> Toolkit | None:
    """The toolkit `named`, else that of $CUDA_PATH, $CUDA_HOME, PyPI's packages, ptxas on PATH, /usr/local/cuda."""
    if named:
        return Toolkit(Path(named))
    for root in _candidates():
        if (root / "include" / "cuda_runtime.h").exists() and (root / "nvvm" / "libdevice").is_dir():
            return Toolkit(root)
    return None


def _candidates() -> Iterator[Path]:
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    nvidia = importlib.util.find_spec("nvidia")
    for location in (nvidia.submodule_search_locations or []) if nvidia else []:
        yield from sorted(Path(location).glob("cu[0-9]*"), reverse=True)
    if ptxas := shutil.which("ptxas"):
        yield Path(ptxas).resolve().parent.parent
    yield from (Path("/usr/local/cuda"), Path("/usr/lib/cuda"))
    yield from sorted(Path("/usr/local").glob("cuda-*"), reverse=True)


def has_gpu() -> bool:
    """Whether the NVIDIA driver offers a device here."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def resolve_device(device: str) -> str:
    """`auto` is `cuda` where there is a GPU, else `host`."""
    return device if device != "auto" else "cuda" if has_gpu() else "host"


def hostcuda_library() -> Path:
    """The CUDA runtime that runs kernels on the CPU. Raises R3Error when it is not built."""
    folders = [Path(os.environ["R3LLVM_HOSTCUDA"])] if os.environ.get("R3LLVM_HOSTCUDA") else []
    folders += [_PACKAGE / "lib", _PACKAGE.parent / "build" / "lib"]
    for folder in folders:
        if (folder / _CUDART).exists():
            return folder / _CUDART
    raise R3Error(
        f"the host device's CUDA runtime ({_CUDART}) is not in {' or '.join(map(str, folders))}: "
        "install r3llvm with its extension (`pip install .`), or name its folder in R3LLVM_HOSTCUDA"
    )
