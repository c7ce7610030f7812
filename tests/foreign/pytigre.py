"""Total-variation denoising and voxel back-projection of pytigre."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.foreign.fetch import Package, fetch
from tests.foreign.program import HERE, Case, Program, Tools

_SOURCE = Package("pytigre", "0.1.8", "5ad1457303aedea9807e9e2ae90368655e1c21f64af586915fb50f2550046f74")
Array = npt.NDArray[np.float64]


def _build(tools: Tools, driver: str, source: str) -> list[str]:
    sources = fetch(_SOURCE) / "tigre" / "Source"
    program = tools.folder / driver
    # What is wrong with their printf calls is not ours to say.
    tools.wrap(
        *("-O3", "-w", "-include", HERE / "include" / "host_min_max.h", "-I", sources, "-x", "cuda"),
        *(sources / source, HERE / "drivers" / f"{driver}.cu", "-o", program),
    )
    return [str(program)]


class TotalVariation(Program):
    """Denoises a noisy phantom."""

    name = "pytigre_tv"
    _shape = (17, 19, 21)  # depth, rows, columns: no multiple of their blocks of 10 x 10 x 10
    _lambda = 8.0
    _iterations = 60

    def build(self, tools: Tools) -> list[str]:
        return _build(tools, "tigre_tv", "tvdenoising.cu")

    def cases(self) -> Sequence[Case]:
        arguments = [*map(str, self._shape[::-1]), str(self._lambda), str(self._iterations)]
        return [Case("phantom", arguments, self._prepare, self._check)]

    def _prepare(self, folder: Path) -> None:
        z, y, x = np.indices(self._shape) / np.array(self._shape).reshape(3, 1, 1, 1) - 0.5
        phantom = ((x**2 + y**2 + z**2 < 0.16) + (np.abs(x) + np.abs(y) < 0.2)).astype(np.float32)
        noise = np.random.default_rng(2).normal(0, 0.2, self._shape)
        (phantom + noise).astype(np.float32).tofile(folder / "input.bin")

    def _check(self, folder: Path, output: str) -> None:
        noisy = np.fromfile(folder / "input.bin", np.float32).reshape(self._shape).astype(np.float64)
        got = np.fromfile(folder / "output.bin", np.float32).reshape(self._shape)
        np.testing.assert_allclose(got, self._reference(noisy), atol=1e-4)
        assert _total_variation(got) < 0.7 * _total_variation(noisy)

    def _reference(self, noisy: Array) -> Array:
        # They put a slice before and after the volume, which they do not set; fresh device memory is zero here.
        f = np.pad(noisy, ((1, 1), (0, 0), (0, 0)))
        u, p = f.copy(), np.zeros((3, *f.shape))
        for i in range(self._iterations):
            ascent = 0.3 + 0.02 * i
            descent = (1 / 6 - 5 / (15 + i)) / ascent
            divergence = sum(np.diff(p[axis], axis=axis, prepend=0) for axis in range(3))
            u = u * (1 - descent) + descent * (f + divergence / self._lambda)
            for axis in range(3):
                last = np.take(u, [-1], axis=axis)
                p[axis] += ascent * np.diff(u, axis=axis, append=last)
            p /= np.maximum(1, np.sqrt((p**2).sum(axis=0)))
        return np.asarray(u[1:-1], np.float64)


class BackProjection(Program):
    """Projects smooth detector images back into a volume, through a 3D texture."""

    name = "pytigre_backprojection"
    _voxels, _detector, _angles = 20, 48, 40
    _size, _detector_size, _source, _distance = 2.0, 3.0, 10.0, 15.0

    def build(self, tools: Tools) -> list[str]:
        return _build(tools, "tigre_backprojection", "voxel_backprojection.cu")

    def cases(self) -> Sequence[Case]:
        arguments = [str(self._voxels), str(self._detector), str(self._angles)]
        return [Case("smooth", arguments, self._prepare, self._check)]

    def _prepare(self, folder: Path) -> None:
        angle, u, v = np.indices((self._angles, self._detector, self._detector))
        images = 2 + np.sin(u / 7 + angle / 3) * np.cos(v / 9 - angle / 5)
        images.astype(np.float32).tofile(folder / "projections.bin")
        angles = np.zeros((self._angles, 3), np.float32)
        angles[:, 0] = np.linspace(0, 2 * np.pi, self._angles, endpoint=False)
        angles.tofile(folder / "angles.bin")

    def _check(self, folder: Path, output: str) -> None:
        shape = (self._angles, self._detector, self._detector)
        images = np.fromfile(folder / "projections.bin", np.float32).reshape(shape).astype(np.float64)
        angles = np.fromfile(folder / "angles.bin", np.float32).reshape(-1, 3)[:, 0].astype(np.float64)
        got = np.fromfile(folder / "volume.bin", np.float32).reshape((self._voxels,) * 3)
        expected = self._reference(images, angles)
        # A texture unit interpolates with 8 bits of fraction.
        np.testing.assert_allclose(got, expected, atol=2e-3 * np.abs(expected).max())

    def _reference(self, images: Array, angles: Array) -> Array:
        step, pixel = self._size / self._voxels, self._detector_size / self._detector
        z, y, x = (np.indices((self._voxels,) * 3) + 0.5) * step - self._size / 2
        volume = np.zeros_like(x)
        for image, angle in zip(images, -angles, strict=True):
            towards = x * np.cos(angle) - y * np.sin(angle)
            across = x * np.sin(angle) + y * np.cos(angle)
            magnification = self._distance / (self._source - towards) / pixel
            u, v = (axis * magnification + self._detector / 2 for axis in (across, z))
            # Their weight is that of a point one voxel before the voxel's centre, in x and y.
            before = (x - step) * np.cos(angle) - (y - step) * np.sin(angle)
            volume += _bilinear(image, u, v) * (self._source / (self._source - before)) ** 2
        return np.asarray(volume, np.float64)


def _bilinear(image: Array, u: Array, v: Array) -> Array:
    """What a texture fetch yields: pixel centres at half-integers, zero outside."""
    padded = np.pad(image, 1)
    rows, columns = (np.clip(c + 0.5, 0, n + 0.999) for c, n in zip((u, v), image.shape, strict=True))
    row, column = rows.astype(int), columns.astype(int)
    down, right = rows - row, columns - column
    upper = padded[row, column] * (1 - right) + padded[row, column + 1] * right
    lower = padded[row + 1, column] * (1 - right) + padded[row + 1, column + 1] * right
    result: Array = upper * (1 - down) + lower * down
    return result


def _total_variation(volume: npt.NDArray[np.floating]) -> float:
    return float(sum(np.abs(np.diff(volume, axis=axis)).sum() for axis in range(3)))


PROGRAMS: list[Program] = [TotalVariation(), BackProjection()]
