"""See the package."""

from __future__ import annotations

import ctypes

_cuda = ctypes.CDLL("libcuda.so.1")


class Error(Exception):
    """A call of the driver failed."""


def _call(name: str, *arguments: object) -> None:
    if code := getattr(_cuda, name)(*arguments):
        raise Error(f"{name} failed: {code}")


def _integer(name: str, *arguments: object, kind: type = ctypes.c_int) -> int:
    value = kind()
    _call(name, ctypes.byref(value), *arguments)
    return int(value.value)


def init() -> None:
    _call("cuInit", 0)


def get_driver_version() -> int:
    return _integer("cuDriverGetVersion")


class Context:
    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle

    def push(self) -> None:
        _call("cuCtxPushCurrent_v2", self._handle)


class Device:
    def __init__(self, ordinal: int) -> None:
        self._device = _integer("cuDeviceGet", ordinal)

    @staticmethod
    def count() -> int:
        return _integer("cuDeviceGetCount")

    def retain_primary_context(self) -> Context:
        handle = ctypes.c_void_p()
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(handle), self._device)
        return Context(handle)

    def name(self) -> str:
        text = ctypes.create_string_buffer(256)
        _call("cuDeviceGetName", text, len(text), self._device)
        return text.value.decode()

    def compute_capability(self) -> tuple[int, int]:
        major, minor = (_integer("cuDeviceGetAttribute", attribute, self._device) for attribute in (75, 76))
        return major, minor

    def total_memory(self) -> int:
        return _integer("cuDeviceTotalMem_v2", self._device, kind=ctypes.c_size_t)
