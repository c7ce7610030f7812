"""What kind of numbers a kernel's memory holds, and the module without floating-point contraction."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

import llvmlite.binding as llvm

from r3llvm.ir.module import parse

Element = Literal["bytes", "f16", "bf16", "f32", "f64"]

_FLOATS: dict[str, Element] = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_SCALAR = re.compile(r"^(?:(?:\[|<)\d+ x )*(half|bfloat|float|double)[\]>]*$")
_PRODUCT = re.compile(
    r'^( +)%("[^"]+"|[-\w.$]+) = fmul ((?:[a-z]+ )*?)((?:<\d+ x )?(?:half|bfloat|float|double)>?) ([^!\n]*?)'
    r"(?:, ![^\n]*)?$",
    re.MULTILINE,
)
_MANGLED = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_BYTES_ON = re.compile(r"= getelementptr (?:\w+ )*i8, ")
_SUM = re.compile(r"\batomicrmw (?:volatile )?f(?:add|sub)\b")
# Instructions whose result points to where an operand points.
_DERIVING = frozenset(("getelementptr", "addrspacecast", "bitcast", "phi", "select", "freeze"))
# Flags of fast maths come between the operation and its type.
_CONTRACT = re.compile(
    r"^(  (?:%\S+ = )?(?:tail |musttail |notail )?(?:f\w+|select|phi|call) (?:\w+ )*?)contract ", re.M
)


Place = tuple[int, int]  # a pointer: a parameter's position, and where in that parameter it lies (0 unless by value)


@dataclass(frozen=True)
class Elements:
    """What a kernel reads and writes through each pointer it is given, and what each module variable holds.

    "bytes" where it is no floating point, not known, or more than one kind. sums: the pointers through which it adds
    floating-point numbers atomically, so in no order that can be relied on.
    """

    pointers: dict[Place, Element] = field(default_factory=dict)
    variables: dict[str, Element] = field(default_factory=dict)
    sums: frozenset[Place] = frozenset()


def elements_of(bitcode: bytes, kernel: str) -> Elements:
    """From the types of the loads and stores in an optimised module. Raises R3Error for what is no bitcode."""
    module = parse(bitcode)
    found = next((f for f in module.functions if f.name == kernel and not f.is_declaration), None)
    if found is None:
        return Elements()
    defined = {function.name: function for function in module.functions if not function.is_declaration}
    kinds, sums = _accessed(list(defined.values()), list(found.arguments), defined)
    variables = {variable.name: _element(str(variable.global_value_type)) for variable in module.global_variables}
    return Elements({place: _only(found) for place, found in kinds.items()}, variables, sums)


def without_contraction(bitcode: bytes) -> bytes:
    """The module with no multiplication that could be fused with an addition, whatever the code generator's options."""
    fences: set[str] = set()

    def fenced(product: re.Match[str]) -> str:
        indent, name, flags, kind, operands = product.groups()
        lanes, scalar = re.fullmatch(r"(?:<(\d+) x )?(\w+)>?", kind).groups()  # type: ignore[union-attr]
        fence = f"@llvm.arithmetic.fence.{f'v{lanes}' if lanes else ''}{_MANGLED[scalar]}"
        fences.add(f"declare {kind} {fence}({kind})\n")
        raw = f'%"{name.strip(chr(34))}.product"'
        quoted = f"%{name}"
        return f"{indent}{raw} = fmul {flags}{kind} {operands}\n{indent}{quoted} = call {kind} {fence}({kind} {raw})"

    text = _PRODUCT.sub(fenced, _CONTRACT.sub(r"\1", str(parse(bitcode))))
    return bytes(llvm.parse_assembly(text + "".join(sorted(fences)), llvm.create_context()).as_bitcode())


def _accessed(
    functions: list[llvm.ValueRef], arguments: list[llvm.ValueRef], defined: dict[str, llvm.ValueRef]
) -> tuple[dict[Place, set[Element]], frozenset[Place]]:
    """The kinds of the accesses through each pointer that the kernel is given, followed into the functions it calls;
    and those through which it adds atomically.
    """
    origins: dict[llvm.ValueRef, set[Place]] = defaultdict(set)
    inside: dict[llvm.ValueRef, Place] = {}  # addresses within parameters that are passed by value
    for position, argument in enumerate(arguments):
        if any(attribute.startswith(b"byval") for attribute in argument.attributes):
            inside[argument] = (position, 0)
        else:
            origins[argument].add((position, 0))
    instructions = [
        (i, i.opcode, list(i.operands))
        for function in functions
        for block in function.blocks
        for i in block.instructions
    ]
    for instruction, opcode, operands in instructions:
        if operands and operands[0] in inside:
            position, offset = inside[operands[0]]
            if opcode == "addrspacecast":
                inside[instruction] = (position, offset)
            elif opcode == "getelementptr" and _BYTES_ON.search(str(instruction)) and operands[1].is_constant:
                inside[instruction] = (position, offset + int(operands[1].get_constant_value(signed_int=True)))
            elif opcode == "load" and str(instruction.type).startswith("ptr"):
                origins[instruction].add((position, offset))
    growing = True
    while growing:  # phis run in circles
        growing = False
        for instruction, opcode, operands in instructions:
            flows: list[tuple[llvm.ValueRef, llvm.ValueRef]] = []
            if opcode in _DERIVING:
                sources = operands[:1] if opcode == "getelementptr" else operands
                flows = [(source, instruction) for source in sources]
            elif opcode in ("call", "invoke") and operands[-1].name in defined:
                flows = list(zip(operands, defined[operands[-1].name].arguments, strict=False))
            for source, target in flows:
                new = origins[source] - origins[target] if source in origins else None
                if new:
                    origins[target] |= new
                    growing = True
    kinds: dict[Place, set[Element]] = defaultdict(set)
    sums: set[Place] = set()
    for instruction, opcode, operands in instructions:
        pointers, kind = _access(instruction, opcode, operands, defined)
        for pointer in pointers:
            for place in origins.get(pointer, ()):
                kinds[place].add(kind)
                if opcode == "atomicrmw" and _SUM.search(str(instruction)):
                    sums.add(place)
    return kinds, frozenset(sums)


def _access(
    instruction: llvm.ValueRef, opcode: str, operands: list[llvm.ValueRef], defined: dict[str, llvm.ValueRef]
) -> tuple[list[llvm.ValueRef], Element]:
    """The pointers that an instruction reads or writes through, and what is there."""
    if opcode == "load":
        return operands[:1], _element(str(instruction.type))
    if opcode == "store":
        return operands[1:2], _element(str(operands[0].type))
    if opcode == "atomicrmw":
        return operands[:1], _element(str(operands[1].type))
    if opcode == "cmpxchg":
        return operands[:1], "bytes"  # what a loop around it makes of the bits, it does not say
    if opcode in ("call", "invoke") and operands[-1].name not in defined:
        harmless = operands[-1].name.startswith(("llvm.lifetime", "llvm.assume", "llvm.prefetch"))
        return ([] if harmless else operands[:-1]), _element(str(instruction.type))
    return [], "bytes"


def _element(type_name: str) -> Element:
    match = _SCALAR.match(type_name)
    return _FLOATS[match[1]] if match else "bytes"


def _only(kinds: set[Element]) -> Element:
    return next(iter(kinds)) if len(kinds) == 1 else "bytes"
