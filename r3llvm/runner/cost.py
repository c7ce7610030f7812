"""The modelled cost of a replay on the `host` device: cycles of a Hopper-like GPU, from what the replay executed.

A model, documented in docs/cost-model.md, made to rank variants of one kernel; it is deterministic and never a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from r3llvm.builder.artifact import Resources
from r3llvm.recording.manifest import Launch

WARP = 32


@dataclass(frozen=True)
class Machine:
    """What the model counts against: an H100/H200-like device.

    Rates are per cycle and multiprocessor unless named otherwise.
    """

    multiprocessors: int = 132
    issue_rate: float = 4.0  # warp instructions
    registers: int = 65536
    register_unit: int = 256  # registers a warp's allocation is rounded to
    shared_memory: int = 228 * 1024
    shared_reserved: int = 1024  # of each block
    warps: int = 64
    blocks: int = 32
    l1_sectors: float = 4.0  # 32-byte sectors
    l2_sectors: float = 100.0  # 32-byte sectors, whole device
    dram_sectors: float = 85.0  # 32-byte sectors, whole device
    shared_wavefronts: float = 1.0
    atomic_rate: float = 0.5  # passes over one address


HOPPER = Machine()


@dataclass(frozen=True)
class ClassCost:
    """instructions: machine instructions an issue stands for; latency: cycles until the result can be used;
    rate: warp instructions per cycle and multiprocessor of the unit that runs them.
    """

    instructions: float
    rate: float
    latency: float


# By instruction class of simt.h. Rates: CUDA C++ Programming Guide, arithmetic throughput of compute capability 9.0,
# over 32 lanes.
CLASSES: Mapping[str, ClassCost] = {
    "int": ClassCost(1, 2, 4),
    "fp32": ClassCost(1, 4, 4),
    "fp64": ClassCost(1, 2, 8),
    "fp16": ClassCost(1, 4, 5),
    "sfu": ClassCost(1, 0.5, 18),
    "convert": ClassCost(1, 0.5, 10),
    "int_slow": ClassCost(20, 2, 60),
    "fp_slow": ClassCost(9, 4, 36),
    "control": ClassCost(1, 2, 6),
    "global_load": ClassCost(1, 1, 280),
    "global_store": ClassCost(1, 1, 8),
    "shared_load": ClassCost(1, 1, 26),
    "shared_store": ClassCost(1, 1, 8),
    "local": ClassCost(1, 1, 30),
    "constant": ClassCost(1, 2, 8),
    "atomic": ClassCost(1, 0.5, 120),
    "barrier": ClassCost(1, 1, 24),
    "warp": ClassCost(1, 1, 24),
    "call": ClassCost(1, 2, 6),
}

# How many independent instructions of one warp are taken to be in flight, when latency bounds the kernel.
PARALLELISM = 2.5
# The norm that joins the bounds: high enough that the largest rules, low enough that the others tell variants apart.
NORM = 4.0


def resident_blocks(resources: Resources, threads: int, shared: int, machine: Machine = HOPPER) -> int:
    """Blocks of `threads` threads and `shared` bytes of shared memory that fit on a multiprocessor at once; at least 1.

    CUDA's occupancy rules for compute capability 9.0.
    """
    warps = max(1, math.ceil(threads / WARP))
    per_warp = math.ceil(max(resources.registers, 16) * WARP / machine.register_unit) * machine.register_unit
    by_registers = machine.registers // (per_warp * warps)
    by_shared = machine.shared_memory // (shared + machine.shared_reserved)
    return max(1, min(machine.blocks, machine.warps // warps, by_registers, by_shared))


def bounds(
    counts: Mapping[str, int], resources: Resources, launch: Launch, machine: Machine = HOPPER
) -> dict[str, float]:
    """The cycles that each limit alone would take, by name."""
    threads = math.prod(launch.block)
    blocks = math.prod(launch.grid)
    warps = max(1, counts["warps"])
    resident = resident_blocks(resources, threads, resources.shared + launch.dynamic_shared, machine)
    used = min(machine.multiprocessors, blocks)

    # What ptxas spilled is touched about once a thread.
    spills = (resources.spill_stores + resources.spill_loads) / 4 * warps
    instructions = {name: counts[name] * cost.instructions for name, cost in CLASSES.items()}
    instructions["local"] += spills
    units: dict[float, float] = {}
    for name, cost in CLASSES.items():
        units[cost.rate] = max(units.get(cost.rate, 0.0), instructions[name] / cost.rate)
    memory = sum(instructions[n] for n in ("global_load", "global_store", "shared_load", "shared_store", "local"))
    latency = sum(counts[name] * cost.latency for name, cost in CLASSES.items()) / warps / PARALLELISM
    rounds = max(1.0, blocks / (used * resident))
    return {
        "issue": sum(instructions.values()) / machine.issue_rate / used,
        "units": max(units.values(), default=0.0) / used,
        "memory_units": memory / used,
        "l1": counts["global_sectors"] / machine.l1_sectors / used,
        "l2": counts["global_sectors"] / machine.l2_sectors,
        "dram": counts["global_unique_sectors"] / machine.dram_sectors,
        "shared": counts["shared_wavefronts"] / machine.shared_wavefronts / used,
        "atomics": (counts["atomic"] + counts["atomic_conflicts"]) / machine.atomic_rate / used,
        "latency": rounds * latency,
    }


def modelled_cycles(counts: Mapping[str, int], resources: Resources, launch: Launch) -> float:
    """Modelled cycles of the whole launch, to three decimals: the 4-norm of its bounds."""
    total = sum(bound**NORM for bound in bounds(counts, resources, launch).values())
    return float(round(total ** (1 / NORM), 3))
