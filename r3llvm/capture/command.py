"""A compiler command line, taken apart as the clang driver does it."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from r3llvm.errors import UsageError

# Options whose value is the next argument (when it is not joined to them).
_TAKES_VALUE = frozenset(
    """
    -A -B -D -F -G -I -L -MF -MJ -MQ -MT -T -U -Xanalyzer -Xarch_device -Xarch_host -Xassembler -Xclang -Xclangas
    -Xcuda-fatbinary -Xcuda-ptxas -Xlinker -Xoffload-linker -Xopenmp-target -Xpreprocessor -arch -b -ccc-gcc-name
    -ccc-install-dir -cxx-isystem -dependency-dot -dependency-file -dumpdir -e -fdebug-compilation-dir -filelist
    -fmodules-user-build-path -ftrapv-handler -gen-cdb-fragment-path -idirafter -iframework -iframeworkwithsysroot
    -imacros -imultilib -include -include-pch -iprefix -iquote -isysroot -isystem -isystem-after -ivfsoverlay
    -iwithprefix -iwithprefixbefore -iwithsysroot -l -meabi -mllvm -mmlir -module-dependency-dir -mthread-model -o
    -resource-dir -rpath -serialize-diagnostics -stdlib++-isystem -target -u -undefined -vfsoverlay -working-directory
    -x -z --analyzer-output --config --define-macro --imacros --include --include-directory --language --output --param
    --serialize-diagnostics --sysroot --undefine-macro --vfsoverlay
    """.split()  # noqa: SIM905
)

# Queries and partial compilations: they make no object that an application could be linked from.
_NO_OBJECT = frozenset(
    """
    -E -M -MM -fsyntax-only -### -emit-ast --version -dumpversion -dumpmachine --help -help --analyze --precompile
    --preprocess -print-search-dirs --print-search-dirs -print-resource-dir --print-resource-dir
    """.split()  # noqa: SIM905
)
_ONE_SIDE = frozenset({"--cuda-device-only", "--cuda-host-only", "--offload-device-only", "--offload-host-only"})
# Everything else goes to the linker.
_SOURCE_SUFFIXES = frozenset(
    {".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".CPP", ".CXX", ".i", ".ii", ".s", ".S"}
)
_ARCH = ("--cuda-gpu-arch=", "--offload-arch=")
_CUDART = frozenset({"cudart", "cudart_static"})


class Mode(enum.Enum):
    """What a command line asks for."""

    OTHER = "other"  # a query, preprocessing, one side only: no object, nothing to capture
    OBJECT = "object"  # -c
    ASSEMBLY = "assembly"  # -S
    LINK = "link"


@dataclass(frozen=True)
class Argument:
    """One option with its value, or one input. `language` is what -x or the extension says of an input."""

    tokens: tuple[str, ...]
    is_input: bool = False
    language: str = ""

    @property
    def flag(self) -> str:
        return self.tokens[0]

    def value_of(self, *names: str) -> str | None:
        """The value of option `names`, whether given as `-o x`, `-ox` or `--output=x`; None when this is another."""
        if self.is_input:
            return None
        for name in names:
            if self.flag == name and len(self.tokens) == 2:
                return self.tokens[1]
            if len(self.tokens) == 1 and self.flag.startswith(name) and self.flag != name:
                return self.flag[len(name) :].removeprefix("=" if name.startswith("--") else "")
        return None


@dataclass(frozen=True)
class CompileCommand:
    """A compiler and its arguments, in the order given."""

    compiler: tuple[str, ...]  # the program, after a launcher such as ccache
    arguments: tuple[Argument, ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> CompileCommand:
        """Raises UsageError when there is no program, or a response file cannot be read."""
        if not words:
            raise UsageError("no compiler given: say `r3llvm wrap -- clang++ -x cuda app.cu -o app`")
        n_program = launcher_words(words)
        return cls(tuple(words[:n_program]), tuple(_arguments(list(_expand(words[n_program:])))))

    @property
    def words(self) -> list[str]:
        return [*self.compiler, *(token for argument in self.arguments for token in argument.tokens)]

    @property
    def inputs(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.is_input]

    @property
    def cuda_sources(self) -> list[str]:
        return [argument.flag for argument in self.inputs if argument.language == "cuda"]

    @property
    def mode(self) -> Mode:
        flags = {argument.flag for argument in self.arguments if not argument.is_input}
        if flags & _NO_OBJECT or flags & _ONE_SIDE or not self.inputs:
            return Mode.OTHER
        if flags & {"-S", "--assemble"}:
            return Mode.ASSEMBLY
        return Mode.OBJECT if flags & {"-c", "--compile"} else Mode.LINK

    @property
    def output(self) -> str | None:
        return self._last("-o", "--output")

    @property
    def archs(self) -> list[str]:
        """The GPU architectures named, in order."""
        values = [argument.value_of(*_ARCH) for argument in self.arguments]
        return [arch for value in values if value for arch in value.split(",")]

    @property
    def cuda_path(self) -> str | None:
        return self._last("--cuda-path")

    def has_prefix(self, prefix: str) -> bool:
        return any(argument.flag.startswith(prefix) for argument in self.arguments if not argument.is_input)

    def has(self, *flags: str) -> bool:
        return any(argument.flag in flags for argument in self.arguments if not argument.is_input)

    @property
    def relocatable(self) -> bool:
        """Whether device code is linked in a step of its own (-fgpu-rdc)."""
        rdc = [a.flag for a in self.arguments if a.flag in ("-fgpu-rdc", "-fcuda-rdc", "-fno-gpu-rdc", "-fno-cuda-rdc")]
        return bool(rdc) and "-no-" not in rdc[-1]

    @property
    def codegen(self) -> list[str]:
        """LLVM options that give arithmetic the precision asked for."""
        contraction = [value for argument in self.arguments if (value := argument.value_of("-ffp-contract="))]
        return ["-nvptx-fma-level=0"] if contraction[-1:] in (["off"], ["on"]) else []

    @property
    def links_device_code(self) -> bool:
        """Whether relocatable device code is linked."""
        return self.mode is Mode.LINK and (self.relocatable or self.has("--offload-link"))

    @property
    def link_output(self) -> Path:
        """The file that a device link's image is in."""
        return Path(self.output or "a.out")

    @property
    def linked_files(self) -> list[Path]:
        """Objects and static libraries, in link order; libraries by name are looked for in -L's folders."""
        files = [Path(argument.flag) for argument in self.inputs if argument.language == "object"]
        folders = [Path(folder) for argument in self.arguments if (folder := argument.value_of("-L"))]
        names = [name for argument in self.arguments if (name := argument.value_of("-l"))]
        return files + [next(iter(found)) for name in names if (found := libraries_of(name, folders))]

    def object_of(self, source: str) -> Path:
        """Where the object of `source` lands: `-o`, or the source's name with .o in the working directory."""
        return Path(self.output or PurePath(source).with_suffix(".o").name)

    @property
    def outputs(self) -> list[Path]:
        """The files that a compilation to objects, or a link, makes."""
        if self.mode is Mode.LINK:
            return [Path(self.output or "a.out")]
        return [self.object_of(argument.flag) for argument in self.inputs] if self.mode is Mode.OBJECT else []

    def names_cudart(self) -> bool:
        return any(is_cudart(argument) for argument in self.arguments)

    def _last(self, *names: str) -> str | None:
        values = [value for argument in self.arguments if (value := argument.value_of(*names)) is not None]
        return values[-1] if values else None


def libraries_of(name: str, folders: Sequence[Path]) -> list[Path]:
    """The static libraries called `name` in the folders, the first that a linker would take first."""
    return [path for folder in folders if (path := folder / f"lib{name}.a").exists()]


def launcher_words(words: Sequence[str]) -> int:
    """How many words name the compiler: two when a launcher such as ccache stands before it."""
    return 2 if PurePath(words[0]).name in ("ccache", "sccache", "distcc") and len(words) > 1 else 1


def is_cudart(argument: Argument) -> bool:
    """Whether this names the CUDA runtime library, as -lcudart, -lcudart_static or by its path."""
    if argument.is_input:
        return PurePath(argument.flag).name.split(".")[0] in {f"lib{name}" for name in _CUDART}
    return argument.value_of("-l") in _CUDART


def _arguments(words: list[str]) -> Iterator[Argument]:
    language, position, options_ended = "none", 0, False
    while position < len(words):
        word = words[position]
        if options_ended or not word.startswith("-") or word == "-":
            yield Argument((word,), is_input=True, language=_language(word, language))
        elif word == "--":
            options_ended = True
            yield Argument((word,))
        else:
            takes_value = word in _TAKES_VALUE or (word.startswith("-Xarch_") and "=" not in word)
            argument = Argument(tuple(words[position : position + 1 + takes_value]))
            position += len(argument.tokens) - 1
            language = argument.value_of("-x", "--language") or language
            yield argument
        position += 1


def _language(path: str, named: str) -> str:
    if named != "none":
        return named
    suffix = PurePath(path).suffix
    return "cuda" if suffix == ".cu" else "source" if suffix in _SOURCE_SUFFIXES else "object"


def _expand(words: Sequence[str], depth: int = 0) -> Iterator[str]:
    """Puts the contents of @response files in their place."""
    for word in words:
        if not word.startswith("@"):
            yield word
            continue
        try:
            text = Path(word[1:]).read_text()
            inner = shlex.split(text, comments=False)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"cannot read the response file {word[1:]}: {error}; check its path and quoting"
            ) from error
        if depth > 20:
            raise UsageError(f"response files include each other without end ({word})")
        yield from _expand(inner, depth + 1)
