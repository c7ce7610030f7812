"""libKMCUDA: k-means and k nearest neighbours, in single precision and in pairs of halves."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.foreign.fetch import Package, fetch
from tests.foreign.program import HERE, Case, Program, Tools

_SOURCE = Package("libKMCUDA", "6.2.3", "6bab3d020c91c0dca169c2a236f315167daa0e62c6271fb46c94699dff8c21e0")
_CURAND = Package(
    *("nvidia-curand", "10.4.0.35", "1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc"),
    wheel=True,
    keep="include",
)
# kmcuda's sums over 32 lanes name all lanes, also those that had no sample: full warps only.
_WARP = 32
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class KMeans:
    """Arguments of kmeans_cuda. m: the chain length of AFK-MC2, 0 for 200. wide: the data with more features."""

    init: str
    metric: str
    clusters: int
    half: bool = False
    m: int = 0
    tolerance: float = 0.01
    yinyang: float = 0.0
    wide: bool = False
    seed: int = 3

    def prepare(self, folder: Path) -> None:
        samples = _samples(self.metric, self.half, self.wide)
        if self.init == "import":
            start = samples[:: len(samples) // self.clusters][: self.clusters]
            np.savez(folder / "input.npz", samples=samples, centroids=start)
        else:
            np.savez(folder / "input.npz", samples=samples)
        (folder / "call.json").write_text(json.dumps({"function": "kmeans", **asdict(self)}))

    def check(self, folder: Path, output: str) -> None:
        from sklearn.cluster import KMeans as SkLearnKMeans

        inputs, outputs = np.load(folder / "input.npz"), np.load(folder / "output.npz")
        samples = inputs["samples"].astype(np.float64)
        centroids, assigned = outputs["centroids"].astype(np.float64), outputs["assignments"]
        assert assigned.max() < self.clusters
        distances = _distances(samples, centroids, self.metric)
        own = distances[np.arange(len(samples)), assigned]

        slack = 0.03 if self.half else 1e-4
        nearest = own <= np.nanmin(distances, axis=1) * (1 + slack) + slack
        # Yinyang stops when few samples move, and does not look at all of them.
        assert nearest.mean() >= (0.95 if self.half or self.yinyang else 0.999)
        np.testing.assert_allclose(outputs["average"], own.mean(), rtol=0.02 if self.half else 1e-3)

        def peer(init: object, clusters: int = self.clusters) -> SkLearnKMeans:
            return SkLearnKMeans(clusters, init=init, n_init=1, random_state=self.seed, tol=0).fit(samples)

        def mean_distance(clustering: SkLearnKMeans) -> float:
            return float(
                _distances(samples, _centres(clustering.cluster_centers_, self.metric), self.metric).min(1).mean()
            )

        if self.init == "import":  # the same start leads to the same end
            labels = peer(inputs["centroids"]).labels_
            assert (assigned == labels).mean() > 0.995
            means = np.stack([samples[assigned == cluster].mean(axis=0) for cluster in range(self.clusters)])
            np.testing.assert_allclose(centroids, means, atol=2e-3)
        elif self.init == "random":  # an optimum, if not a good one: going on from there gains little
            kept = centroids[np.unique(assigned)]  # scikit-learn would find empty clusters another place
            assert own.mean() <= 1.05 * mean_distance(peer(kept, len(kept)))
        else:
            assert own.mean() <= 1.1 * mean_distance(peer("k-means++"))


@dataclass(frozen=True)
class Neighbours:
    """Arguments of knn_cuda."""

    k: int
    metric: str
    clusters: int
    half: bool = False

    def prepare(self, folder: Path) -> None:
        from sklearn.cluster import KMeans as SkLearnKMeans

        samples = _samples(self.metric, self.half, wide=False)
        clustering = SkLearnKMeans(self.clusters, n_init=1, random_state=0).fit(samples.astype(np.float64))
        centroids = _centres(clustering.cluster_centers_, self.metric).astype(samples.dtype)
        assigned = _distances(samples.astype(np.float64), centroids.astype(np.float64), self.metric).argmin(axis=1)
        np.savez(folder / "input.npz", samples=samples, centroids=centroids, assignments=assigned)
        (folder / "call.json").write_text(json.dumps({"function": "knn", **asdict(self)}))

    def check(self, folder: Path, output: str) -> None:
        from sklearn.neighbors import NearestNeighbors

        samples = np.load(folder / "input.npz")["samples"].astype(np.float64)
        got = np.load(folder / "output.npz")["neighbours"]
        metric = "euclidean" if self.metric == "L2" else _angle
        expected, _ = NearestNeighbors(n_neighbors=self.k, metric=metric).fit(samples).kneighbors()
        assert (got != np.arange(len(samples))[:, None]).all()
        assert all(len(set(row)) == self.k for row in got)
        distances = np.stack([_distances(samples[i : i + 1], samples[got[i]], self.metric)[0] for i in range(len(got))])
        if self.half:
            assert distances.mean() <= 1.05 * expected.mean()
        else:
            np.testing.assert_allclose(np.sort(distances, axis=1), expected, rtol=1e-3, atol=2e-3)


def _metric_cases(metric: str, half: bool) -> list[KMeans | Neighbours]:
    return [
        KMeans("k-means++", metric, 40, half, yinyang=0.2),
        KMeans("afk-mc2", metric, 24, half, m=8),  # chains shorter and longer than the clusters so far
        KMeans("random", metric, 12, half, wide=True),  # too wide for a block's samples to fit shared memory
        Neighbours(5, metric, 30, half),  # heaps in shared memory
        Neighbours(20, metric, 50, half),  # heaps in global memory
    ]


class KMCuda(Program):
    """The library, called from Python."""

    name = "libKMCUDA"
    max_launches = 1

    def build(self, tools: Tools) -> list[str]:
        sources, curand = fetch(_SOURCE), fetch(_CURAND)
        library = tools.folder / "libKMCUDA.so"
        # atomicAggInc shuffles a variable that only one lane has set. nvcc does not mind; clang would draw conclusions.
        common: list[str | Path] = [
            "-ftrivial-auto-var-init=zero",
            "-O2",
            "-w",
            "-std=c++14",
            "-fPIC",
            "-DCUDA_ARCH=90",
            "-I",
            sources,
            "-isystem",
            curand,
        ]
        for name in ("kmeans", "knn", "transpose"):
            shim = HERE / "include" / "host_min_max.h"
            source, target = sources / f"{name}.cu", tools.folder / f"{name}.o"
            tools.wrap(*common, "-include", shim, "-x", "cuda", "-c", source, "-o", target)
        tools.wrap(*common, "-I", tools.cuda_include, "-c", sources / "kmcuda.cc", "-o", tools.folder / "kmcuda.o")
        objects = [tools.folder / f"{name}.o" for name in ("kmcuda", "kmeans", "knn", "transpose")]
        tools.wrap("-shared", *objects, "-o", library)
        return [sys.executable, str(HERE / "drivers" / "kmcuda_case.py"), str(library)]

    def cases(self) -> Sequence[Case]:
        calls: list[KMeans | Neighbours] = [KMeans("import", "L2", 10, tolerance=0.0)]
        for half in (False, True):
            for metric in ("L2", "cosine"):
                calls += _metric_cases(metric, half)
        return [Case(_name(call), [], call.prepare, call.check) for call in calls]


def _name(call: KMeans | Neighbours) -> str:
    what = call.init if isinstance(call, KMeans) else f"knn{call.k}"
    return f"{what}-{call.metric}-{'half' if call.half else 'single'}".lower()


@cache
def _digits() -> Floats:
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().data, np.float64) / 16


@cache
def _blobs() -> Floats:
    from sklearn.datasets import make_blobs

    samples, _ = make_blobs(512, 192, centers=12, center_box=(0.0, 1.0), cluster_std=0.05, random_state=1)
    return np.asarray(samples, np.float64)


def _samples(metric: str, half: bool, wide: bool) -> Floats:
    """Handwritten digits, or wider blobs: full warps of samples, of length 1 for the cosine."""
    samples = _blobs() if wide else _digits()
    samples = samples[: len(samples) // _WARP * _WARP]
    return _centres(samples, metric).astype(np.float16 if half else np.float32)


def _centres(vectors: Floats, metric: str) -> Floats:
    return vectors if metric == "L2" else vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _distances(samples: Floats, others: Floats, metric: str) -> Floats:
    if metric == "L2":
        from sklearn.metrics import pairwise_distances

        result: Floats = pairwise_distances(samples, others) if np.isfinite(others).all() else _plain(samples, others)
        return result
    return np.asarray(np.arccos(np.clip(samples @ others.T, -1, 1)))


def _plain(samples: Floats, others: Floats) -> Floats:
    """Empty clusters have no centre: their distances are NaN."""
    return np.asarray(np.sqrt(((samples[:, None] - others[None]) ** 2).sum(axis=2)))


def _angle(a: Floats, b: Floats) -> float:
    return float(np.arccos(np.clip(a @ b, -1, 1)))


PROGRAMS: list[Program] = [KMCuda()]
