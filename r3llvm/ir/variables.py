"""What a module's kernels reach beyond their arguments: device variables, and things that no recording can hold."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import llvmlite.binding as llvm

from r3llvm.ir.module import parse

_GLOBAL, _CONSTANT = "addrspace(1)", "addrspace(4)"
_NAME = re.compile(r'@(?:"([^"]*)"|([-\w$.]+))')
_TEXTURE_CALL = re.compile(r"llvm\.nvvm\.(tex|tld4|suld|sust|sured|txq|suq)\.")
_TEXTURE_ASM = re.compile(r'\basm [\w ]*"[^"]*\b(tex|tld4|suld|sust|sured|txq|suq)\.')
_HEAP = re.compile(r"(malloc|free|_Zn[wa]\w*|_Zd[la]\w*)$")  # the latter: operators new and delete
_DEVICE_LAUNCH = re.compile(r"(__)?cuda(CDP2)?(LaunchDevice|GetParameterBuffer)")


def device_variables(bitcode: bytes) -> tuple[str, ...]:
    """The variables that a program or its kernels may change: what a recording has to hold. In the module's order.

    Constants that the compiler made (strings, tables, virtual tables) are loaded with the code and left out.
    Raises R3Error when the bytes are no bitcode that LLVM reads.
    """
    return tuple(variable.name for variable in parse(bitcode).global_variables if _is_state(variable))


@dataclass(frozen=True)
class Reach:
    """What a kernel reaches through calls and initialisers.

    variables: names of those that `device_variables` lists. obstacle: why its launches cannot be replayed faithfully
    on a GPU; "" when they can.
    """

    variables: tuple[str, ...]
    obstacle: str


def reach(bitcode: bytes, kernels: Collection[str]) -> dict[str, Reach]:
    """For each of `kernels` that the module defines. Raises R3Error when the bytes are no bitcode that LLVM reads."""
    module = _References(parse(bitcode))
    return {kernel: module.reach(kernel) for kernel in kernels if kernel in module.values}


def _is_state(variable: llvm.ValueRef) -> bool:
    if variable.is_declaration or variable.name.startswith("llvm."):
        return False
    # "@name = linkage addrspace(N) externally_initialized constant TYPE VALUE, …"
    match = re.match(r"(.*?)\b(global|constant) ", str(variable).partition(" = ")[2])
    if match is None or not (_GLOBAL in match[1] or _CONSTANT in match[1]):
        return False
    # A __constant__ variable is constant to kernels only: the program may set it.
    return match[2] == "global" or "externally_initialized" in match[1]


class _References:
    """Who mentions whom in a module, by name."""

    def __init__(self, module: llvm.ModuleRef) -> None:
        functions, variables = list(module.functions), list(module.global_variables)
        self.values = {value.name: value for value in (*functions, *variables)}
        self._functions = {function.name for function in functions}
        self._text: dict[str, str] = {}
        self._managed = _managed(module)

    def reach(self, kernel: str) -> Reach:
        names = list(self._reached(kernel))
        variables = tuple(name for name in names if name not in self._functions and _is_state(self.values[name]))
        return Reach(variables, next(self._obstacles(names), ""))

    def _obstacles(self, names: list[str]) -> Iterator[str]:
        for name in names:
            yield from self._of_function(name) if name in self._functions else self._of_variable(name)

    def _of_function(self, name: str) -> Iterator[str]:
        if _TEXTURE_CALL.match(name) or _TEXTURE_ASM.search(self._text_of(name)):
            yield "it uses textures or surfaces, whose contents are not recorded"
        if self.values[name].is_declaration:
            if _HEAP.match(name):
                yield "it allocates on the device (malloc, new), and the device's heap is not recorded"
            if _DEVICE_LAUNCH.match(name):
                yield "it launches kernels from the device, which a replay cannot"

    def _of_variable(self, name: str) -> Iterator[str]:
        if name in self._managed:
            yield f"it uses the managed variable {name}, which has no fixed address"
        if not _is_state(self.values[name]):
            return
        for other in self._mentioned(name):
            if other != name:
                what = "function" if other in self._functions else "variable"
                yield f"its variable {name} holds the address of {what} {other}, which differs from load to load"

    def _reached(self, kernel: str) -> Iterator[str]:
        reached, pending = {kernel}, [kernel]
        while pending:
            name = pending.pop()
            yield name
            fresh = [other for other in self._mentioned(name) if other not in reached]
            reached.update(fresh)
            pending += fresh

    def _mentioned(self, name: str) -> list[str]:
        names = (_unquoted(match) for match in _NAME.finditer(self._text_of(name)))
        return [other for other in dict.fromkeys(names) if other in self.values]

    def _text_of(self, name: str) -> str:
        if name not in self._text:
            self._text[name] = str(self.values[name])
        return self._text[name]


def _unquoted(match: re.Match[str]) -> str:
    if match[2] is not None:
        return match[2]
    raw = re.sub(r"\\([0-9A-Fa-f]{2})", lambda code: chr(int(code[1], 16)), match[1])
    return raw.encode("latin-1").decode(errors="replace")


def _managed(module: llvm.ModuleRef) -> set[str]:
    """Variables that NVVM IR's annotations call managed."""
    return {
        _unquoted(match)
        for line in re.findall(r'^!\d+ = !\{.*!"managed".*\}$', str(module), re.MULTILINE)
        for match in _NAME.finditer(line)
    }
