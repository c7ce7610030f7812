"""What a module's kernels reach beyond their arguments: device variables, and things that no recording can hold."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from r3llvm.ir.module import parse

_GLOBAL, _CONSTANT = "addrspace(1)", "addrspace(4)"
# A definition of a function up to its closing brace, or a line that declares one or is a variable.
_ENTITY = re.compile(r"^(?:define .*?^\}$|declare .*?$|@.*?$)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r'@(?:"([^"]*)"|([-\w$.]+))')
_TEXTURE_CALL = re.compile(r"llvm\.nvvm\.(tex|tld4|suld|sust|sured|txq|suq)\.")
_TEXTURE_ASM = re.compile(r'\basm [\w ]*"[^"]*\b(tex|tld4|suld|sust|sured|txq|suq)\.')
_HEAP = re.compile(r"(malloc|free|_Zn[wa]\w*|_Zd[la]\w*)$")  # the latter: operators new and delete
_POINTER_CALL = re.compile(r'\b(?:call|invoke) [^\n@"]*%[-\w$.]+\(')
_DEVICE_LAUNCH = re.compile(r"(__)?cuda(CDP2)?(LaunchDevice|GetParameterBuffer)")


def device_variables(bitcode: bytes) -> tuple[str, ...]:
    """The variables that a program or its kernels may change: what a recording has to hold. In the module's order.

    Constants that the compiler made (strings, tables, virtual tables) and libdevice's tables are loaded with the code
    and left out.
    Raises R3Error when the bytes are no bitcode that LLVM reads.
    """
    return tuple(_Module(bitcode).state)


@dataclass(frozen=True)
class Reach:
    """What a kernel reaches through calls and initialisers.

    own_variables: names of the variables, of those that `device_variables` lists, that only the translation unit sees:
    compilers do not agree on how to call them.
    calls_pointers: it calls functions through pointers.
    obstacle: why its launches cannot be replayed faithfully on a GPU; "" when they can.
    """

    own_variables: tuple[str, ...]
    calls_pointers: bool
    obstacle: str


def reach(bitcode: bytes, kernels: Collection[str]) -> dict[str, Reach]:
    """For each of `kernels` that the module defines. Raises R3Error when the bytes are no bitcode that LLVM reads."""
    module = _Module(bitcode)
    return {kernel: module.reach(kernel) for kernel in kernels if kernel in module.text}


class _Module:
    """A module's text, taken apart: to print one value after another costs a look at the whole module for each."""

    def __init__(self, bitcode: bytes) -> None:
        self.text: dict[str, str] = {}  # of each function and variable, by name
        self._mentions: dict[str, list[str]] = {}
        text = str(parse(bitcode))
        for match in _ENTITY.finditer(text):
            if name := _NAME.search(match[0]):
                self.text[_unquoted(name)] = match[0]
        self.state = [name for name, text in self.text.items() if _is_state(name, text)]
        self._managed = {
            _unquoted(name)
            for line in re.findall(r'^!\d+ = !\{.*!"managed".*\}$', text, re.MULTILINE)
            for name in _NAME.finditer(line)
        }

    def reach(self, kernel: str) -> Reach:
        names = dict.fromkeys(self._reached(kernel))
        return Reach(
            own_variables=tuple(name for name in self.state if name in names and self._is_own(name)),
            calls_pointers=any(_POINTER_CALL.search(self.text[name]) for name in names),
            obstacle=next((reason for name in names for reason in self._obstacles(name)), ""),
        )

    def _is_own(self, name: str) -> bool:
        return " = internal " in self.text[name] or name.startswith("_ZL") or "12_GLOBAL__N_1" in name

    def _obstacles(self, name: str) -> Iterator[str]:
        text = self.text[name]
        if _TEXTURE_CALL.match(name) or _TEXTURE_ASM.search(text):
            yield "it uses textures or surfaces, whose contents are not recorded"
        if text.startswith("declare ") and _HEAP.match(name):
            yield "it allocates on the device (malloc, new), and the device's heap is not recorded"
        if text.startswith("declare ") and _DEVICE_LAUNCH.match(name):
            yield "it launches kernels from the device, which a replay cannot"
        if name in self._managed:
            yield f"it uses the managed variable {name}, which has no fixed address"
        if name in self.state:
            for other in self._mentioned(name):
                what = "variable" if self.text[other].startswith("@") else "function"
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
        """The other functions and variables in the text of one."""
        if name not in self._mentions:
            names = dict.fromkeys(_unquoted(match) for match in _NAME.finditer(self.text[name]))
            self._mentions[name] = [other for other in names if other != name and other in self.text]
        return self._mentions[name]


def _is_state(name: str, text: str) -> bool:
    # @name = linkage addrspace(N) externally_initialized constant TYPE VALUE, …
    match = re.match(r"@.*? = (.*?)\b(global|constant) ", text)
    if match is None or not (_GLOBAL in match[1] or _CONSTANT in match[1]):
        return False
    if name.startswith(("llvm.", "__cudart_")) or re.search(r"\b(external|extern_weak) ", match[1]):
        return False
    # A __constant__ variable is constant to kernels only: the program may set it.
    return match[2] == "global" or "externally_initialized" in match[1]


def _unquoted(match: re.Match[str]) -> str:
    if match[2] is not None:
        return match[2]
    raw = re.sub(r"\\([0-9A-Fa-f]{2})", lambda code: chr(int(code[1], 16)), match[1])
    return raw.encode("latin-1").decode(errors="replace")
