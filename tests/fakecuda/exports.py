"""What the stand-in exports, read from CUDA's headers: every function of cuda.h, and which symbol and version is meant
when a program asks cuGetProcAddress for one by its base name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# Older versions that differ from the newest in their name only.
SAME_AS_NEWEST = (
    *("cuCtxDestroy", "cuCtxPopCurrent", "cuCtxPushCurrent", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset"),
    *("cuDevicePrimaryCtxSetFlags", "cuDeviceGetUuid", "cuEventDestroy", "cuStreamDestroy", "cuMemHostRegister"),
    *("cuStreamWriteValue32", "cuStreamWriteValue64", "cuStreamWaitValue32", "cuStreamWaitValue64"),
    *("cuIpcOpenMemHandle", "cuLinkCreate", "cuLinkAddData", "cuLinkAddFile", "cuEventElapsedTime"),
)
_RELEASE_OF_PTDS = 7000


@dataclass(frozen=True)
class Exports:
    """functions: all names. aliases: name -> the one that it equals. versions: (base name, version, whether it is the
    per-thread variant, symbol), ascending by version. errors: code -> name.
    """

    functions: tuple[str, ...]
    aliases: dict[str, str]
    versions: tuple[tuple[str, int, bool, str], ...]
    errors: dict[int, str]


def read_exports(include: Path) -> Exports:
    """From the folder that holds cuda.h and cudaTypedefs.h."""
    header = (include / "cuda.h").read_text(errors="replace")
    declared = set(re.findall(r"^\s*(?:__CUDA_DEPRECATED )?CUresult CUDAAPI (cu\w+)\(", header, re.MULTILINE))
    declared |= set(re.findall(r"^\s*#define cu\w+\s+(cu\w+)\s*$", header, re.MULTILINE))
    declared |= set(re.findall(r"__CUDA_API_PT[DS][SZ]\((cu\w+)\)", header))
    per_thread = {name for name in declared if name.endswith(("_ptsz", "_ptds"))}
    per_thread |= {f"{name}_ptds" for name in re.findall(r"__CUDA_API_PTDS\((cu\w+)\)", header)}
    per_thread |= {f"{name}_ptsz" for name in re.findall(r"__CUDA_API_PTSZ\((cu\w+)\)", header)}
    plain = declared - per_thread

    newest: dict[str, str] = {}
    for name in sorted(plain, key=_order):
        newest[_base(name)] = name
    aliases = {name: name[:-5] for name in per_thread}
    aliases |= {name: newest[name] for name in SAME_AS_NEWEST if newest.get(name, name) != name}

    versions = []
    typedefs = set(re.findall(r"PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)", (include / "cudaTypedefs.h").read_text()))
    for base in newest:
        for variant in (False, True):
            symbols = sorted((n for n in (per_thread if variant else plain) if _base(n) == base), key=_order)
            since = sorted({int(v) for name, v, suffix in typedefs if name == base and bool(suffix) == variant})
            for version, symbol in zip(reversed(since), reversed(symbols), strict=False):
                versions.append((base, version, variant, symbol))
    errors = {
        int(code): name
        for name, code in re.findall(r"^\s*(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)", header, re.MULTILINE)
    }
    return Exports(tuple(sorted(plain | per_thread)), aliases, tuple(sorted(versions)), errors)


def exports_source(exports: Exports) -> str:
    """C: every function that no other file defines (it returns CUDA_ERROR_NOT_SUPPORTED), and the tables."""
    lines = ['#define EXPORT __attribute__((weak, visibility("default")))']
    for name in exports.functions:
        if name in exports.aliases:
            lines.append(f"extern int {name}(void);")
            lines.append(
                f'__asm__(".weak {name}\\n.type {name}, @function\\n{name}: " JUMP "{exports.aliases[name]}\\n");'
            )
        else:
            lines.append(f"EXPORT int {name}(void) {{ return 801; }}")
    lines.insert(1, '#ifdef __x86_64__\n#define JUMP "jmp "\n#else\n#define JUMP "b "\n#endif')
    lines.append("struct fake_version { const char* base; int since, per_thread; void* function; };")
    lines.append("const struct fake_version fake_versions[] = {")
    lines += [f'{{"{base}", {since}, {int(each)}, (void*){symbol}}},' for base, since, each, symbol in exports.versions]
    lines.append("{0}};\nstruct fake_error { int code; const char* name; };\nconst struct fake_error fake_errors[] = {")
    lines += [f'{{{code}, "{name}"}},' for code, name in exports.errors.items()]
    return "\n".join([*lines, "{0}};", ""])


def _base(name: str) -> str:
    return re.sub(r"(_v\d+)?(_pt[ds][sz])?$", "", name)


def _order(name: str) -> tuple[str, int]:
    match = re.search(r"_v(\d+)", name)
    return _base(name), int(match[1]) if match else 1
