"""The driver's functions from Python, as far as tests call them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
OUT_OF_MEMORY, INVALID_VALUE = 2, 1


class CudaError(RuntimeError):
    """A call that did not return CUDA_SUCCESS."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}")
        self.code = code


class Driver:
    """Loads a driver and makes a context current in it. Names of functions are the exported ones (cuMemAlloc_v2)."""

    def __init__(self, library: Path | str) -> None:
        self.library = ctypes.CDLL(str(library))
        self("cuInit", 0)
        self.context = self.out("cuCtxCreate_v4", None, 0, 0)

    def __call__(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*map(_as_argument, arguments))
        if code:
            raise CudaError(name, code)

    def out(self, name: str, *arguments: object) -> int:
        """A function whose first parameter is where a 64-bit result goes."""
        result = ctypes.c_uint64()
        self(name, ctypes.byref(result), *arguments)
        return result.value

    def close(self) -> None:
        self("cuCtxDestroy_v2", self.context)

    def allocate(self, size: int) -> int:
        return self.out("cuMemAlloc_v2", size)

    def upload(self, values: Array) -> int:
        """Its address on the device."""
        values = np.ascontiguousarray(values)
        address = self.allocate(max(values.nbytes, 1))
        self("cuMemcpyHtoD_v2", address, values.ctypes.data, values.nbytes)
        return address

    def download(self, address: int, like: Array) -> Array:
        result = np.empty_like(like)
        self("cuMemcpyDtoH_v2", result.ctypes.data, address, result.nbytes)
        return result

    def module(self, ptx: Path) -> int:
        return self.out("cuModuleLoadData", ptx.read_bytes() + b"\0")

    def launch(
        self, function: int, arguments: Sequence[ctypes._SimpleCData | ctypes.Structure], **geometry: int
    ) -> None:
        """geometry: grid and block (4 and 64 when not given)."""
        pointers = (ctypes.c_void_p * (len(arguments) + 1))(*(ctypes.addressof(argument) for argument in arguments))
        grid, block = geometry.get("grid", 4), geometry.get("block", 64)
        self("cuLaunchKernel", function, *map(ctypes.c_uint, (grid, 1, 1, block, 1, 1, 0)), None, pointers, None)


def _as_argument(value: object) -> object:
    return ctypes.c_uint64(value) if isinstance(value, int) else value
