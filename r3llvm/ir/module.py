"""Reading device bitcode with llvmlite: in this process, since nothing here runs a pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import llvmlite.binding as llvm

from r3llvm.errors import R3Error

# What a call to a function of this name says about the kernel.
_CALLEES = {
    "barrier": r"llvm\.nvvm\.(barrier|bar\.sync)",
    "warp_barrier": r"llvm\.nvvm\.bar\.warp",
    "shuffle": r"llvm\.nvvm\.shfl",
    "vote": r"llvm\.nvvm\.(vote|activemask|redux)",
    "match": r"llvm\.nvvm\.match",
    "atomic": r"llvm\.nvvm\.atomic",
    "fence": r"llvm\.nvvm\.(membar|fence)",
    "texture": r"llvm\.nvvm\.(tex|suld|sust|tld4)",
    "tensor_core": r"llvm\.nvvm\.(mma|wmma|wgmma)",
    "async_copy": r"llvm\.nvvm\.cp\.async",
    "clock": r"llvm\.(nvvm\.read\.ptx\.sreg\.(clock|globaltimer)|readcyclecounter|readsteadycounter)",
    "printf": r"vprintf$",
    "assert": r"__assert(fail|_fail)$",
    "heap": r"(malloc|free)$",
    "device_math": r"__nv_",
    "trap": r"llvm\.(trap|debugtrap|ubsantrap)",
}
_OPCODES = {"atomicrmw": "atomic", "cmpxchg": "atomic", "fence": "fence"}
_TYPES = {"double": "fp64", "half": "fp16", "bfloat": "bf16"}


@dataclass(frozen=True)
class Parameter:
    """type: LLVM's name for it ("ptr", "i32"); by_value: an aggregate that is passed by value behind a `ptr`."""

    type: str
    by_value: bool = False
    attributes: str = ""

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("ptr") and not self.by_value


@dataclass(frozen=True)
class Kernel:
    """One kernel and what it reaches through calls.

    functions: names of the defined functions reached, the kernel's first.
    features: "barrier", "shuffle", "atomic", "inline_asm", "printf", "shared", "fp64", …
    instructions: static counts by opcode, over all of `functions`.
    max_threads: of __launch_bounds__; 0 when there are none.
    """

    name: str
    parameters: tuple[Parameter, ...]
    functions: tuple[str, ...]
    features: frozenset[str]
    instructions: dict[str, int]
    max_threads: int = 0


def read_kernels(bitcode: bytes) -> list[Kernel]:
    """The kernels that a module defines, in its order. Raises R3Error when the bytes are no bitcode that LLVM reads."""
    module = parse(bitcode)
    defined = {function.name: function for function in module.functions if not function.is_declaration}
    return [_read(function, defined) for function in defined.values() if _is_kernel(function)]


def instruction_counts(bitcode: bytes) -> dict[str, int]:
    """Static counts by opcode over the whole module."""
    return dict(Counter(instruction.opcode for function in parse(bitcode).functions for instruction in _walk(function)))


def to_text(bitcode: bytes) -> str:
    """The module as LLVM assembly."""
    return str(parse(bitcode))


def parse(bitcode: bytes) -> llvm.ModuleRef:
    """The module, to be read only. Raises R3Error when the bytes are no bitcode that LLVM reads."""
    # A context of its own: the global one renames the types of every further module that it reads.
    try:
        return llvm.parse_bitcode(bitcode, llvm.create_context())
    except RuntimeError as error:
        raise R3Error(
            f"not bitcode that LLVM {llvm.llvm_version_info[0]} reads: {' '.join(str(error).split())}"
        ) from error


def _walk(function: llvm.ValueRef) -> Iterator[llvm.ValueRef]:
    for block in function.blocks:
        yield from block.instructions


def _is_kernel(function: llvm.ValueRef) -> bool:
    return bool(re.search(r"^define [^@]*\bptx_kernel\b", str(function), re.MULTILINE))


def _read(kernel: llvm.ValueRef, defined: dict[str, llvm.ValueRef]) -> Kernel:
    reached = {kernel.name: kernel}
    pending = [kernel]
    features: set[str] = set()
    counts: Counter[str] = Counter()
    while pending:
        function = pending.pop(0)
        if "addrspace(3)" in str(function):
            features.add("shared")
        for instruction in _walk(function):
            opcode = instruction.opcode
            counts[opcode] += 1
            if opcode in _OPCODES:
                features.add(_OPCODES[opcode])
            if (type_name := str(instruction.type)) in _TYPES:
                features.add(_TYPES[type_name])
            operands = list(instruction.operands)
            if opcode in ("call", "invoke"):
                features |= _features_of_call(operands[-1])
            for operand in operands:
                name = operand.name
                if operand.value_kind is llvm.ValueKind.function and name in defined and name not in reached:
                    reached[name] = defined[name]
                    pending.append(defined[name])
    return Kernel(
        name=kernel.name,
        parameters=tuple(_parameter(argument) for argument in kernel.arguments),
        functions=tuple(reached),
        features=frozenset(features),
        instructions=dict(counts),
        max_threads=_max_threads(kernel),
    )


def _features_of_call(callee: llvm.ValueRef) -> set[str]:
    if callee.value_kind is llvm.ValueKind.inline_asm:
        return {"inline_asm"}
    if callee.value_kind is not llvm.ValueKind.function:
        return {"indirect_call"}
    return {feature for feature, pattern in _CALLEES.items() if re.match(pattern, callee.name)}


def _parameter(argument: llvm.ValueRef) -> Parameter:
    attributes = b" ".join(argument.attributes).decode()
    return Parameter(str(argument.type), "byval" in attributes, attributes)


def _max_threads(kernel: llvm.ValueRef) -> int:
    """The product of nvvm.maxntid="x,y,z"."""
    match = re.search(rb'"nvvm\.maxntid"="([\d,]+)"', b" ".join(kernel.attributes))
    threads = 1
    for dimension in match[1].split(b",") if match else ():
        threads *= int(dimension)
    return threads if match else 0
