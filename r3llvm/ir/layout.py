"""How a kernel's parameters lie in its packed argument buffer."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import llvmlite.binding as llvm

from r3llvm.ir.module import parse


@dataclass(frozen=True)
class Slot:
    """One parameter in the packed argument buffer (PTX layout). Offset, size and alignment in bytes."""

    offset: int
    size: int
    alignment: int
    kind: Literal["scalar", "pointer", "aggregate"]


def parameter_layouts(bitcode: bytes, kernels: Collection[str]) -> dict[str, tuple[Slot, ...]]:
    """The layout of each of `kernels` that the module defines.

    Raises R3Error when the bytes are no bitcode that LLVM reads.
    """
    module = parse(bitcode)
    functions = {function.name: function for function in module.functions if not function.is_declaration}
    types = _Types(module)
    return {name: _layout(functions[name], types) for name in kernels if name in functions}


def _layout(kernel: llvm.ValueRef, types: _Types) -> tuple[Slot, ...]:
    slots = []
    end = 0
    for argument in kernel.arguments:
        attributes = b" ".join(argument.attributes).decode()
        type_name, kind = str(argument.type), "scalar"
        if pointee := _in_parentheses(attributes, "byval"):
            type_name, kind = pointee, "aggregate"
        elif type_name.startswith("ptr"):
            kind = "pointer"
        size, alignment = types.size_and_alignment(type_name)
        if kind == "aggregate" and (stated := re.search(r"\balign[ =](\d+)", attributes)):
            alignment = int(stated[1])
        offset = -(-end // alignment) * alignment
        slots.append(Slot(offset, size, alignment, kind))  # type: ignore[arg-type]
        end = offset + size
    return tuple(slots)


def _in_parentheses(text: str, attribute: str) -> str:
    """The argument of `attribute(…)`; "" when there is none."""
    start = text.find(f"{attribute}(")
    if start < 0:
        return ""
    start += len(attribute) + 1
    depth = 1
    for position in range(start, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return text[start:position]
    return ""


class _Types:
    """Sizes of the types that a module's parameters have, asked by name: llvmlite hands out no type behind a byval."""

    def __init__(self, module: llvm.ModuleRef) -> None:
        layout = module.data_layout
        self._definitions = "\n".join(re.findall(r"^%.* = type .*$", str(module), re.MULTILINE))
        self._header = f'target datalayout = "{layout}"\n' if layout else ""
        self._target = llvm.create_target_data(layout)
        self._known: dict[str, tuple[int, int]] = {}

    def size_and_alignment(self, name: str) -> tuple[int, int]:
        if name not in self._known:
            text = f"{self._header}{self._definitions}\n@asked = external global {name}\n"
            module = llvm.parse_assembly(text, llvm.create_context())
            asked = module.get_global_variable("asked").global_value_type
            self._known[name] = (self._target.get_abi_size(asked), self._target.get_abi_alignment(asked))
        return self._known[name]
