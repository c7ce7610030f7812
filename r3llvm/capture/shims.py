"""Makes the folder that stands before the real compilers and the real toolkit (standin.py)."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import r3llvm
from r3llvm.capture import standin
from r3llvm.capture.compilers import Kind, kind_of_name
from r3llvm.capture.nvcc import nvcc_toolkit
from r3llvm.capture.toolkit import Toolkit, find_toolkit, resolve_device
from r3llvm.errors import R3Error, UsageError
from r3llvm.files import content_hash

_PACKAGES = Path(r3llvm.__file__).resolve().parent.parent


def make(device: str, folder: Path | None = None, settings: Mapping[str, str] | None = None) -> Path:
    """Makes the stand-in for what is on PATH and for the toolkit found now. Returns its folder.

    folder: where; else a folder of the user's cache that the next build with the same compilers finds again, as build
    systems remember where their compilers are. Shims there pass everything on unless $R3LLVM_STANDIN names the folder.
    settings: the environment of shims that capture whoever calls them, which those in `folder` do.
    Raises UsageError when something else is in the way, R3Error when the folder cannot be written.
    """
    compilers, toolkit, host = dict(_compilers()), _toolkit(), resolve_device(device) == "host"
    if folder is None:
        identity = ascii(
            (sys.executable, _module_path(), compilers, toolkit, _entries(toolkit), host, Path(__file__).read_bytes())
        )  # of the file too, as it says what shims are like
        target = _cache() / content_hash(identity.encode())
        if target.exists():
            return target
    else:
        target = folder.absolute()
        if toolkit is None:
            raise UsageError("no CUDA toolkit found to stand in for: name it in CUDA_HOME")
        if target.exists() and not _is_ours(target) and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{folder} is there already and no stand-in of r3llvm's: name another folder")
    if os.pathsep in str(target):
        raise UsageError(f"{target} cannot be put on PATH, as it has a colon in its name: name another folder")
    try:
        _make(target, compilers, toolkit, host, settings)
    except OSError as error:
        hint = "" if folder else "; name another place in XDG_CACHE_HOME"
        raise R3Error(f"cannot make compiler shims in {target}: {error.strerror or error}{hint}") from error
    return target


def environment(folder: Path, before: Mapping[str, str]) -> dict[str, str]:
    """The environment of a build whose compilers are to be those of the stand-in."""
    after = dict(before)
    after[standin.VARIABLE] = str(folder)
    after["PATH"] = os.pathsep.join([str(folder / "shims"), before.get("PATH", os.defpath)])
    if (folder / ".real").is_dir():
        after.update(dict.fromkeys(("CUDA_HOME", "CUDA_PATH", "CUDA_TOOLKIT_ROOT_DIR"), str(folder)))
    nvcc = next((path for path in (folder / "shims" / "nvcc", folder / "bin" / "nvcc") if path.exists()), None)
    if nvcc:
        after["CUDACXX"] = str(nvcc)
    for name in ("CC", "CXX", "CUDACXX", "NVCC", *standin.TOOLKIT_VARIABLES):
        if before.get(name):
            after[name] = redirected(f"{name}={before[name]}", folder).removeprefix(f"{name}=")
    return after


def redirected(word: str, folder: Path) -> str:
    """A word of a build's command line, such as NVCC=/usr/local/cuda/bin/nvcc or -DCUDA_HOME=/usr/local/cuda, with the
    stand-in where a compiler or the toolkit is named by its absolute path."""
    before, equals, value = word.rpartition("=")
    if not os.path.isabs(value):  # noqa: PTH117
        return word
    real = Path(value)
    is_toolkit = (folder / ".real").exists() and real.exists() and real.samefile(folder / ".real")
    if is_toolkit and "cuda" in before.lower():  # PREFIX=/usr/local/cuda is to stay
        return f"{before}{equals}{folder}"
    for shim in (folder / "shims" / real.name, folder / "bin" / real.name):
        stands_for = standin.real_program(str(shim)) if shim.exists() else None
        if stands_for and real.exists() and real.samefile(stands_for):
            return f"{before}{equals}{shim}"
    return word


def _toolkit() -> Toolkit | None:
    """The toolkit that a build would take: what it is told, else its nvcc's, else the one at the usual place."""
    if any(os.environ.get(name) for name in ("CUDA_PATH", "CUDA_HOME")):
        return find_toolkit()
    usual = Path("/usr/local/cuda")
    return find_toolkit(nvcc_toolkit("nvcc") or (str(usual) if (usual / "bin" / "nvcc").exists() else None))


def _compilers() -> Iterator[tuple[str, str]]:
    """Names on PATH that a shim is needed for, with the program that each one is now."""
    seen: set[str] = set()
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        try:
            names = sorted(os.listdir(folder or "."))  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            path = os.path.join(os.path.abspath(folder), name)  # noqa: PTH100, PTH118
            if name not in seen and kind_of_name(name) is not Kind.OTHER and os.access(path, os.X_OK):
                seen.add(name)
                yield name, standin.real_program(path)


def _make(
    target: Path, compilers: Mapping[str, str], toolkit: Toolkit | None, host: bool, settings: Mapping[str, str] | None
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        scratch.chmod(0o755)
        (scratch / "launch.py").write_text(_launcher(target, settings))
        (scratch / "shims").mkdir()
        for name, real in compilers.items():
            _write(scratch / "shims" / name, _shim(name, real, target, host, settings is not None))
        if toolkit is not None:
            root = toolkit.root.absolute()
            for entry in root.iterdir():
                if entry.name != "bin":
                    (scratch / entry.name).symlink_to(entry)
            (scratch / ".real").symlink_to(root)
            (scratch / "bin").mkdir()
            for entry in (root / "bin").iterdir() if (root / "bin").is_dir() else ():
                path = scratch / "bin" / entry.name
                if entry.name == "nvcc":
                    real = standin.real_program(str(entry))
                    _write(path, _shim("nvcc", real, target, host, settings is not None))
                else:
                    path.symlink_to(entry)
        if _is_ours(target):
            shutil.rmtree(target)
        scratch.rename(target)
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
        if not _is_ours(target):  # else another build has made it meanwhile
            raise


def _is_ours(folder: Path) -> bool:
    return (folder / "launch.py").is_file() and (folder / "shims").is_dir()


def _module_path() -> list[str]:
    """Where this process finds modules, but for its working directory."""
    ours = str(Path(r3llvm.__file__).resolve().parent.parent)
    return list(
        dict.fromkeys([ours, *(path for path in sys.path if Path(path).is_absolute() and path != str(Path.cwd()))])
    )


def _launcher(target: Path, settings: Mapping[str, str] | None) -> str:
    """What the shims run. It is told where modules are, as nothing but the interpreter's own are found with -S."""
    lines = ["import os", "import sys", f"sys.path[:] = {_module_path()!a}"]
    variables = {standin.VARIABLE: str(target), **(settings or {})}
    lines += [f"os.environ.setdefault({name!a}, {value!a})" for name, value in variables.items()]
    lines += ["from r3llvm.capture.launchers import launch", "launch(sys.argv[1:])"]
    return "\n".join([*lines, ""])


def _shim(name: str, real: str, target: Path, host: bool, always: bool) -> bytes:
    """A shell script, as it starts in a millisecond: what has nothing to do with CUDA costs no more."""
    program, folder = shlex.quote(real), shlex.quote(str(target))
    lines = [real] if always else [real, f'[ "$R3LLVM_STANDIN" ] || exec {program} "$@"']
    # Words with the stand-in's path are to be rewritten; links may need a CUDA runtime, or for the host another one.
    no_link = "*' -c '*|*' -E '*|*' -S '*"
    cuda = "*.cu*|*' -x'*|*--language*|*cuda*|*gpu*|*offload*|*' @'*"
    quick = {
        Kind.HOST: f'case " $* " in *{folder}*) ;; {no_link if host else "*"}) r3=1 ;; esac',
        Kind.CLANG: f'case " $* " in *{folder}*|{cuda}) ;; {no_link}) r3=1 ;; esac',
        Kind.LAUNCHER: 'case "${1##*/}" in *nvcc|*clang*) ;; *) r3=1 ;; esac',
    }.get(kind_of_name(name))
    if quick:
        without = '${r3path%%"$r3shims"*}:${r3path#*"$r3shims"}'
        lines += [
            *("r3=", quick, f"r3path=:$PATH: r3shims=:{folder}/shims:"),
            f'case "$r3path" in *"$r3shims"*) r3path={without} ;; esac',
            f'if [ "$r3" ]; then r3path=${{r3path#:}}; PATH=${{r3path%:}}; exec {program} "$@"; fi',
        ]
    lines.append(f'exec {shlex.quote(sys.executable)} -IS {folder}/launch.py {program} "$@"')
    return standin.HEAD + os.fsencode("\n".join([*lines, ""]))


def _write(path: Path, script: bytes) -> None:
    path.write_bytes(script)
    path.chmod(0o755)


def _entries(toolkit: Toolkit | None) -> list[str]:
    if toolkit is None:
        return []
    folders = (toolkit.root, toolkit.root / "bin")
    return sorted(str(path) for folder in folders if folder.is_dir() for path in folder.iterdir())


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "r3llvm" / "standins"
