"""Calls libKMCUDA in a folder with input.npz and call.json: kmcuda_case.py LIBRARY. Writes output.npz there."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

INIT = {"random": 0, "k-means++": 1, "afk-mc2": 2, "import": 3}
METRIC = {"L2": 0, "cosine": 1}
Arrays = Mapping[str, np.ndarray[Any, Any]]


def pointer(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def kmeans(library: ctypes.CDLL, call: dict[str, Any], data: Arrays) -> tuple[int, dict[str, Any]]:
    """Runs kmeans_cuda. call: init, m, tolerance, yinyang, metric, clusters, seed."""
    samples = np.ascontiguousarray(data["samples"])
    fp16 = samples.dtype == np.float16
    n, features = samples.shape
    clusters = call["clusters"]
    centroids = np.zeros((clusters, features), samples.dtype)
    if "centroids" in data:
        centroids[:] = data["centroids"]
    assignments = np.zeros(n, np.uint32)
    average, m = ctypes.c_float(), ctypes.c_uint32(call["m"])
    status = library.kmeans_cuda(
        *(INIT[call["init"]], ctypes.byref(m), ctypes.c_float(call["tolerance"]), ctypes.c_float(call["yinyang"])),
        *(METRIC[call["metric"]], ctypes.c_uint32(n), ctypes.c_uint16(features // (1 + fp16))),
        *(ctypes.c_uint32(clusters), ctypes.c_uint32(call["seed"]), ctypes.c_uint32(1), -1, int(fp16), 1),
        *(pointer(samples), pointer(centroids), pointer(assignments), ctypes.byref(average)),
    )
    return status, {"centroids": centroids, "assignments": assignments, "average": average.value}


def knn(library: ctypes.CDLL, call: dict[str, Any], data: Arrays) -> tuple[int, dict[str, Any]]:
    """Runs knn_cuda. call: k, metric."""
    samples, centroids = (np.ascontiguousarray(data[name]) for name in ("samples", "centroids"))
    assignments = np.ascontiguousarray(data["assignments"], np.uint32)
    fp16 = samples.dtype == np.float16
    n, features = samples.shape
    neighbours = np.zeros((n, call["k"]), np.uint32)
    status = library.knn_cuda(
        *(ctypes.c_uint16(call["k"]), METRIC[call["metric"]], ctypes.c_uint32(n)),
        *(ctypes.c_uint16(features // (1 + fp16)), ctypes.c_uint32(len(centroids)), ctypes.c_uint32(1), -1, int(fp16)),
        *(1, pointer(samples), pointer(centroids), pointer(assignments), pointer(neighbours)),
    )
    return status, {"neighbours": neighbours}


def main() -> None:
    call = json.loads(Path("call.json").read_text())
    function = {"kmeans": kmeans, "knn": knn}[call["function"]]
    status, results = function(ctypes.CDLL(sys.argv[1]), call, np.load("input.npz"))
    if status:
        sys.exit(f"{call['function']}_cuda returned {status}")
    np.savez("output.npz", **results)


main()
