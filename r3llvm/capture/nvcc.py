"""An nvcc command line, and what it means to clang's device front end.

Options: NVIDIA's "NVCC Command Options" of CUDA 13.0.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from r3llvm.capture.command import CompileCommand, Mode, launcher_words, libraries_of
from r3llvm.errors import UsageError

# --long name: its short one. By what follows: nothing, one value, a list of values separated by commas.
_FLAGS = {
    "cuda": "cuda", "cubin": "cubin", "fatbin": "fatbin", "ptx": "ptx", "optix-ir": "optix-ir", "ltoir": "ltoir",
    "preprocess": "E", "generate-dependencies": "M", "generate-nonsystem-dependencies": "MM",
    "generate-dependencies-with-compile": "MD", "generate-nonsystem-dependencies-with-compile": "MMD",
    "generate-dependency-targets": "MP", "compile": "c", "device-c": "dc", "device-w": "dw", "device-link": "dlink",
    "link": "link", "lib": "lib", "run": "run", "objdir-as-tempdir": "objtemp",
    "allow-unsupported-compiler": "allow-unsupported-compiler", "use-local-env": "use-local-env",
    "force-cl-env-setup": "force-cl-env-setup", "profile": "pg", "debug": "g", "device-debug": "G",
    "generate-line-info": "lineinfo", "dlink-time-opt": "dlto", "lto": "lto", "gen-opt-lto": "gen-opt-lto",
    "no-exceptions": "noeh", "shared": "shared", "no-host-device-initializer-list": "nohdinitlist",
    "no-host-device-move-forward": "nohdmoveforward", "expt-relaxed-constexpr": "expt-relaxed-constexpr",
    "extended-lambda": "extended-lambda", "expt-extended-lambda": "expt-extended-lambda", "m64": "m64",
    "forward-unknown-to-host-compiler": "forward-unknown-to-host-compiler",
    "forward-unknown-to-host-linker": "forward-unknown-to-host-linker", "forward-unknown-opts": "forward-unknown-opts",
    "dont-use-profile": "noprof", "dryrun": "dryrun", "verbose": "v", "fdevice-syntax-only": "fdevice-syntax-only",
    "keep": "keep", "save-temps": "save-temps", "clean-targets": "clean", "no-align-double": "no-align-double",
    "no-device-link": "nodlink", "use_fast_math": "use_fast_math",
    "extra-device-vectorization": "extra-device-vectorization", "disable-warnings": "w",
    "keep-device-functions": "keep-device-functions", "source-in-ptx": "src-in-ptx", "restrict": "restrict",
    "Wreorder": "Wreorder", "Wdefault-stream-launch": "Wdefault-stream-launch",
    "Wmissing-launch-bounds": "Wmissing-launch-bounds", "Wext-lambda-captures-this": "Wext-lambda-captures-this",
    "Wno-deprecated-declarations": "Wno-deprecated-declarations",
    "Wno-deprecated-gpu-targets": "Wno-deprecated-gpu-targets", "resource-usage": "res-usage",
    "extensible-whole-program": "ewp", "no-compress": "no-compress", "compile-as-tools-patch": "astoolspatch",
    "list-gpu-code": "code-ls", "list-gpu-arch": "arch-ls", "display-error-number": "err-no",
    "no-display-error-number": "no-err-no", "augment-host-linker-script": "aug-hls", "relocatable-link": "r",
    "relocatable-ptx": "reloc-ptx", "jobserver": "jobserver", "help": "h", "version": "V",
}  # fmt: skip
_VALUES = {
    "dependency-output": "MF", "output-file": "o", "output-directory": "odir", "compiler-bindir": "ccbin",
    "archiver-binary": "arbin", "cudart": "cudart", "cudadevrt": "cudadevrt", "libdevice-directory": "ldir",
    "target-directory": "target-dir", "optimize": "O", "Ofast-compile": "Ofc", "dopt": "dopt",
    "ftemplate-backtrace-limit": "ftemplate-backtrace-limit", "ftemplate-depth": "ftemplate-depth", "x": "x",
    "std": "std", "machine": "m", "static-global-template-stub": "static-global-template-stub",
    "device-entity-has-hidden-visibility": "device-entity-has-hidden-visibility", "threads": "t",
    "split-compile": "split-compile", "split-compile-extended": "split-compile-extended",
    "fdevice-time-trace": "fdevice-time-trace", "keep-dir": "keep-dir", "time": "time", "input-drive-prefix": "idp",
    "dependency-drive-prefix": "ddp", "drive-prefix": "dp", "dependency-target-name": "MT",
    "gpu-architecture": "arch", "relocatable-device-code": "rdc", "maxrregcount": "maxrregcount", "ftz": "ftz",
    "prec-div": "prec-div", "prec-sqrt": "prec-sqrt", "fmad": "fmad", "default-stream": "default-stream",
    "host-linker-script": "hls", "brief-diagnostics": "brief-diag", "jump-table-density": "jtd",
    "device-stack-protector": "device-stack-protector", "compress-mode": "compress-mode",
    "frandom-seed": "frandom-seed", "sanitize": "sanitize", "qpp-config": "qpp-config",
}  # fmt: skip
_LISTS = {
    "pre-include": "include", "library": "l", "define-macro": "D", "undefine-macro": "U", "include-path": "I",
    "system-include": "isystem", "library-path": "L", "compiler-options": "Xcompiler", "linker-options": "Xlinker",
    "archive-options": "Xarchive", "ptxas-options": "Xptxas", "nvlink-options": "Xnvlink", "run-args": "run-args",
    "gpu-code": "code", "generate-code": "gencode", "entries": "e", "Werror": "Werror", "diag-error": "diag-error",
    "diag-suppress": "diag-suppress", "diag-warn": "diag-warn", "opt-info": "opt-info", "options-file": "optf",
    "cudafe-options": "Xcudafe",  # not documented, and in wide use
}  # fmt: skip
_LONG = {short: long for table in (_FLAGS, _VALUES, _LISTS) for long, short in table.items()}
_JOINED = ("D", "U", "I", "L", "l", "O", "m", "t", "x")  # -DNAME, -lm, -O3, …

# Queries, parts of a compilation and links of device code only: nothing that a module belongs to comes out.
_NO_OBJECT = frozenset(
    """
    cuda cubin fatbin ptx optix-ir ltoir preprocess generate-dependencies generate-nonsystem-dependencies lib run dryrun
    fdevice-syntax-only clean-targets list-gpu-code list-gpu-arch help version device-link
    """.split()  # noqa: SIM905
)
_TRUE = frozenset({"true", "1", "yes", "on"})
_CUDA_SUFFIXES = frozenset({".cu"})
_SOURCE_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx"})
# Host options that the device front end should see too.
_HOST_KEPT = re.compile(r"-(?:[DUI]|isystem|include|idirafter|iquote|f(?:no-)?exceptions|f(?:no-)?rtti|fopenmp$)")
_HOST_VALUE = frozenset({"-D", "-U", "-I", "-isystem", "-include", "-idirafter", "-iquote"})


@dataclass(frozen=True)
class NvccOption:
    """One option by its long name, with its values; or one input, whose name is "" and whose value is the path."""

    name: str
    values: tuple[str, ...] = ()
    language: str = ""  # of an input: "cuda", "source" or "object"
    inherited: bool = False  # from the environment, where nvcc finds it again


@dataclass
class NvccCommand:
    """nvcc and its options, in the order given, option files put in their place."""

    compiler: tuple[str, ...]
    options: list[NvccOption] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # for the host compiler, or for nvcc to refuse

    @classmethod
    def parse(cls, words: Sequence[str]) -> NvccCommand:
        """With what $NVCC_PREPEND_FLAGS and $NVCC_APPEND_FLAGS add. Raises UsageError for an option file that cannot be
        read."""
        n_program = launcher_words(words)
        command = cls(tuple(words[:n_program]))
        language = ""
        before, after = (command._inherited(f"NVCC_{place}_FLAGS") for place in ("PREPEND", "APPEND"))
        for option in (*before, *command._options(list(words[n_program:])), *after):
            if option.name == "x":
                language = {"cu": "cuda"}.get(option.values[0], "source") if option.values else ""
            if option.name == "":
                option = replace(option, language=language or _language(option.values[0]))
            command.options.append(option)
        return command

    def values(self, name: str) -> list[str]:
        """All values of an option, in order."""
        return [value for option in self.options if option.name == name for value in option.values]

    def has(self, *names: str) -> bool:
        return any(option.name in names for option in self.options)

    def is_true(self, name: str, default: bool) -> bool:
        """A true|false option; the last one counts."""
        values = self.values(name)
        return values[-1].lower() in _TRUE if values else default

    @property
    def inputs(self) -> list[NvccOption]:
        return [option for option in self.options if option.name == ""]

    @property
    def cuda_sources(self) -> list[str]:
        return [option.values[0] for option in self.inputs if option.language == "cuda"]

    @property
    def mode(self) -> Mode:
        """OTHER: nothing to capture."""
        if self.has(*_NO_OBJECT) or not self.inputs:
            return Mode.OTHER
        return Mode.OBJECT if self.has("compile", "device-c", "device-w") else Mode.LINK

    @property
    def relocatable(self) -> bool:
        """Whether device code is linked in a step of its own (-rdc=true, -dc)."""
        return not self.has("device-w") and (self.has("device-c") or self.is_true("relocatable-device-code", False))

    @property
    def links_device_code(self) -> bool:
        """Whether relocatable device code is linked: -dlink, or a link of objects or -rdc=true sources."""
        if self.has("device-link"):
            return not self.has("dryrun")
        return (
            self.mode is Mode.LINK and not self.has("no-device-link") and (self.relocatable or bool(self.linked_files))
        )

    @property
    def link_output(self) -> Path:
        """The file that a device link's image is in."""
        return Path((self.values("output-file") or ["a_dlink.o" if self.has("device-link") else "a.out"])[-1])

    @property
    def linked_files(self) -> list[Path]:
        """Objects and static libraries, in link order; libraries by name are looked for in -L's folders."""
        files = [Path(option.values[0]) for option in self.inputs if option.language == "object"]
        folders = [Path(folder) for folder in self.values("library-path")]
        return files + [path for name in self.values("library") for path in libraries_of(name, folders)[:1]]

    @property
    def archs(self) -> list[str]:
        """The GPU architectures that machine code or PTX is made for, as sm_NN, in the order named."""
        named = [re.split(r"[,=]", value) for value in self.values("generate-code")]
        words = [word for parts in named for word in parts]
        words += self.values("gpu-architecture") + self.values("gpu-code")
        found = [match[1] for word in words if (match := re.fullmatch(r"\[?(?:sm|compute|lto)_(\d+[af]?)\]?", word))]
        return [f"sm_{number}" for number in dict.fromkeys(found)]

    def arch(self, wanted: str) -> str:
        """What to capture for: `wanted` when the command makes code for it, or names none; else the newest."""
        archs = self.archs
        if not archs or wanted in archs:
            return wanted
        return max(archs, key=lambda arch: int(re.findall(r"\d+", arch)[0]))

    @property
    def assembler(self) -> list[str]:
        """ptxas options that shape the code; what it should print is left out."""
        options = [f"-maxrregcount={value}" for value in self.values("maxrregcount")[-1:]]
        words = iter(self.values("ptxas-options"))
        for word in words:
            name = word.lstrip("-").partition("=")[0]
            if name in ("v", "verbose", "w", "disable-warnings", "warn-spills", "warn-on-spills", "warn-lmem-usage"):
                continue
            if name in ("O", "dlcm", "dscm", "maxrregcount", "opt-level") and "=" not in word:
                word = f"{word}={next(words, '')}"
            options.append(word)
        return options

    @property
    def codegen(self) -> list[str]:
        """LLVM options that give arithmetic the precision asked for."""
        fast = self.has("use_fast_math")
        options = []
        if not self.is_true("prec-div", not fast):
            options.append("-nvptx-prec-divf32=0" if fast else "-nvptx-prec-divf32=1")
        if not self.is_true("prec-sqrt", not fast):
            options.append("-nvptx-prec-sqrtf32=0")
        if not self.is_true("fmad", True):
            options.append("-nvptx-fma-level=0")
        return options

    def object_of(self, source: str) -> Path:
        """Where the object of `source` lands."""
        if named := self.values("output-file"):
            return Path(named[-1])
        name = PurePath(source).with_suffix(".o").name
        folder = self.values("output-directory")
        return Path(folder[-1], name) if folder else Path(name)

    @property
    def outputs(self) -> list[Path]:
        """The files that a compilation to objects, or a link, makes."""
        if self.mode is Mode.LINK:
            return [Path((self.values("output-file") or ["a.out"])[-1])]
        if self.mode is Mode.OBJECT:
            return [self.object_of(option.values[0]) for option in self.inputs]
        return []

    def object_words(self, source: str, output: Path) -> list[str]:
        """The command, for one source and up to its object."""
        words, skip = (
            list(self.compiler),
            {"", "x", "link", "compile", "output-file", "output-directory", "shared", "run"},
        )
        skip |= {"library", "library-path", "linker-options", "save-temps", "keep", "keep-dir"}
        skip |= {
            "generate-dependencies-with-compile",
            "generate-nonsystem-dependencies-with-compile",
            "dependency-output",
        }
        for option in self.options:
            if option.name in skip or option.inherited:
                continue
            if option.name in _LISTS and option.name != "generate-code":
                words += [token for value in option.values for token in (f"--{option.name}", quote_value(value))]
            else:
                words.append("=".join([f"--{option.name}", *option.values]))
        return [*words, *self.unknown, "-c", "-x", "cu", source, "-o", str(output)]

    def for_clang(self, clang: str, arch: str) -> CompileCommand:
        """The command of clang whose device front end sees what nvcc's would see, for one architecture."""
        words = [clang, f"--cuda-gpu-arch={self.arch(arch)}"]
        # As nvcc: a shuffle's argument may be undefined; names of templates with enable_if.
        words += ["-Xclang", "-no-enable-noundef-analysis", "-fclang-abi-compat=17"]
        spelled = {"define-macro": "-D", "undefine-macro": "-U", "include-path": "-I"}
        for option in self.options:
            if option.name in spelled:
                words += [f"{spelled[option.name]}{value}" for value in option.values]
            elif option.name in ("system-include", "pre-include"):
                for value in option.values:
                    words += ["-isystem" if option.name == "system-include" else "-include", value]
            elif option.name == "compiler-options":
                words += _kept_of_host(option.values)
            elif translate := _TRANSLATED.get(option.name):
                words += translate(option.values)
        words += _kept_of_host(self.unknown)
        fast = self.has("use_fast_math")
        if self.is_true("ftz", fast):
            words.append("-fgpu-flush-denormals-to-zero")
        if fast:
            words.append("-fgpu-approx-transcendentals")
        if not self.is_true("fmad", True):
            words.append("-ffp-contract=off")
        if self.values("default-stream")[-1:] == ["per-thread"]:
            words.append("-DCUDA_API_PER_THREAD_DEFAULT_STREAM=1")
        if self.relocatable:
            words.append("-fgpu-rdc")
        words += ["-c", "-x", "cuda", *self.cuda_sources]
        return CompileCommand.parse(words)

    def _inherited(self, variable: str) -> list[NvccOption]:
        try:
            words = shlex.split(os.environ.get(variable, ""))
        except ValueError as error:
            raise UsageError(f"cannot read ${variable}: {error}; check its quoting") from error
        return [replace(option, inherited=True) for option in self._options(words)]

    def _options(self, words: list[str], depth: int = 0) -> Iterator[NvccOption]:
        position = 0
        while position < len(words):
            word = words[position]
            position += 1
            if not word.startswith("-") or word == "-":
                yield NvccOption("", (word,))
                continue
            name, value = _named(word)
            if name is None:
                self.unknown.append(word)
                continue
            if name in _FLAGS:
                yield NvccOption(name)
                continue
            if value is None:
                value = words[position] if position < len(words) else ""
                position += 1
            values = tuple(split_list(value)) if name in _LISTS and name != "generate-code" else (value,)
            if name != "options-file":
                yield NvccOption(name, values)
                continue
            if depth > 20:
                raise UsageError(f"option files include each other without end ({value})")
            for file in values:
                yield from self._options(_read_words(file), depth + 1)


def is_nvcc(words: Sequence[str]) -> bool:
    """Whether the command's compiler is nvcc, by its name."""
    return bool(words) and PurePath(words[launcher_words(words) - 1]).name == "nvcc"


def nvcc_toolkit(program: str) -> str | None:
    """The folder of the toolkit that an nvcc belongs to."""
    path = shutil.which(program)
    root = Path(path).resolve().parent.parent if path else None
    return str(root) if root and (root / "include" / "cuda_runtime.h").exists() else None


def quote_value(value: str) -> str:
    """A value of a list option, as split_list reads it."""
    return value.replace("\\", "\\\\").replace(",", "\\,")


def split_list(text: str) -> list[str]:
    r"""The values of a list option: separated by commas, but not by `\,` or within quotes, which are taken off."""
    values, current, quote, position = [], "", "", 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character == "\\" and following in (",", '"', "'", "\\"):
            if following in (",", "\\"):
                current += following
            position += 1
        elif quote:
            quote = "" if character == quote else quote
            current += "" if not quote else character
        elif character in "\"'" and not current:
            quote = character
        elif character == ",":
            values.append(current)
            current = ""
        else:
            current += character
        position += 1
    return [value for value in [*values, current] if value]


def _named(word: str) -> tuple[str | None, str | None]:
    """The long name of an option and the value joined to it; no name: nvcc does not know it."""
    body, joined, value = word.partition("=")
    long = body[2:] if body.startswith("--") else _LONG.get(body[1:], body[1:])
    if long in _FLAGS or long in _VALUES or long in _LISTS:
        return long, value if joined else None
    if not word.startswith("--"):
        for short in _JOINED:
            if word[1:].startswith(short):
                return _LONG[short], word[1 + len(short) :]
    return None, None


def _read_words(file: str) -> list[str]:
    try:
        return shlex.split(Path(file).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the option file {file}: {error}; check its path and quoting") from error


def _language(path: str) -> str:
    suffix = PurePath(path).suffix
    return "cuda" if suffix in _CUDA_SUFFIXES else "source" if suffix in _SOURCE_SUFFIXES else "object"


def _kept_of_host(words: Sequence[str]) -> list[str]:
    kept = []
    rest = iter(words)
    for word in rest:
        if _HOST_KEPT.match(word):
            kept += [word, next(rest, "")] if word in _HOST_VALUE else [word]
    return kept


_TRANSLATED: dict[str, Callable[[tuple[str, ...]], list[str]]] = {
    "std": lambda values: [f"-std={values[0]}"],
    "ftemplate-depth": lambda values: [f"-ftemplate-depth={values[0]}"],
    "no-exceptions": lambda values: ["-fno-exceptions"],
}
