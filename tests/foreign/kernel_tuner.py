"""convolution.cu and vector_add.cu of kernel_tuner, in two tunings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.foreign.fetch import Package, fetch
from tests.foreign.program import HERE, Case, Program, Tools

_SOURCE = Package("kernel_tuner", "1.5.0", "c1b6c9469d607457ec9a2e783135f067b2799da19517e2d7bc84e192aee7a273")
_IMAGE = 4096  # the width that convolution.cu is written for
_BLOCKS = (6, 3)


@dataclass(frozen=True)
class KernelTuner(Program):
    """block, tile, filter: width and height. read_only: loads through the read-only cache."""

    name: str
    block: tuple[int, int]
    tile: tuple[int, int]
    filter: tuple[int, int]
    read_only: bool

    def build(self, tools: Tools) -> list[str]:
        sources = fetch(_SOURCE) / "test"
        tuning = {"read_only": int(self.read_only), "block_size_z": 1}
        for name, (x, y) in {"block_size": self.block, "tile_size": self.tile}.items():
            tuning |= {f"{name}_x": x, f"{name}_y": y}
        tuning |= {"filter_width": self.filter[0], "filter_height": self.filter[1]}
        defines = [f"-D{name}={value}" for name, value in tuning.items()]
        program = tools.folder / self.name
        driver = HERE / "drivers" / "kernel_tuner.cu"
        tools.wrap("-O3", *defines, "-I", sources, "-x", "cuda", driver, "-o", program)
        return [str(program)]

    def cases(self) -> Sequence[Case]:
        return [Case("part", [], self._prepare, self._check)]

    @property
    def _part(self) -> tuple[int, int]:
        """Width and height of the part of the image that is computed."""
        return _BLOCKS[0] * self.block[0] * self.tile[0], _BLOCKS[1] * self.block[1] * self.tile[1]

    def _prepare(self, folder: Path) -> None:
        random = np.random.default_rng(5)
        border = self.filter[1] // 2 * 2
        rows, columns = self._part[1] + border, _IMAGE + self.filter[0] // 2 * 2
        random.random((rows, columns), np.float32).tofile(folder / "input.bin")
        random.random(self.filter[::-1], np.float32).tofile(folder / "filter.bin")

    def _check(self, folder: Path, output: str) -> None:
        columns = _IMAGE + self.filter[0] // 2 * 2
        image = np.fromfile(folder / "input.bin", np.float32)
        weights = np.fromfile(folder / "filter.bin", np.float32).reshape(self.filter[::-1]).astype(np.float64)
        windows = np.lib.stride_tricks.sliding_window_view(image.reshape(-1, columns), weights.shape)
        width, height = self._part
        expected = np.zeros((height, _IMAGE))
        expected[:, :width] = np.einsum("yxij,ij->yx", windows[:height, :width], weights)
        for name in ("tiled", "naive"):
            got = np.fromfile(folder / f"{name}.bin", np.float32).reshape(height, _IMAGE)
            np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=name)
        total = np.fromfile(folder / "sum.bin", np.float32)
        np.testing.assert_array_equal(total, image[: len(total)] + image[len(total) : 2 * len(total)])


PROGRAMS = [
    KernelTuner("kernel_tuner_plain", (16, 16), (1, 1), (17, 17), read_only=False),
    KernelTuner("kernel_tuner_tiled", (48, 4), (2, 3), (7, 5), read_only=True),
]
