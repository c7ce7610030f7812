"""Captures the units of a compile database (compile_commands.json) without building them."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from r3llvm.capture.compilers import Kind, kind_of_name
from r3llvm.capture.launchers import is_probe, needs_wrap, prepare
from r3llvm.capture.report import FAILED, Summary
from r3llvm.capture.settings import Settings
from r3llvm.capture.store import Store
from r3llvm.capture.wrap import Wrap
from r3llvm.errors import UsageError
from r3llvm.toolchain import find_clang


@dataclass(frozen=True)
class Entry:
    """How one file is compiled: in which folder, with what words."""

    directory: str
    words: tuple[str, ...]
    file: str


@dataclass
class _Outcome:
    outcomes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def finished(self, _: str, outcome: str) -> None:
        self.outcomes.append(outcome)


def read(path: Path) -> list[Entry]:
    """The entries that may compile CUDA: those of nvcc and clang. Raises UsageError when it is no compile database."""
    try:
        listed = json.loads(path.read_text())
        if not isinstance(listed, list):
            raise TypeError("it is no list")
        entries = [
            Entry(
                directory=str(path.absolute().parent / entry.get("directory", "")),
                words=tuple(entry["arguments"] if "arguments" in entry else shlex.split(entry["command"])),
                file=entry["file"],
            )
            for entry in listed
        ]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is no compile database ({type(error).__name__}: {error}): "
            "make one with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, or with bear"
        ) from error
    return [entry for entry in entries if _may_compile_cuda(entry.words)]


def capture(entries: Sequence[Entry], settings: Settings, progress: Callable[[], None] = lambda: None) -> Summary:
    """Captures each entry's module, on all cores. progress is called as each one ends.

    Objects that the build has made, and that are no older than their files, say which images belong to the modules;
    other units are compiled to scratch objects. Raises R3Error when the store cannot be written.
    """
    summary = Summary()
    # Processes, as each unit has a working directory; started afresh, as a progress bar's thread must not be forked.
    context = multiprocessing.get_context("spawn")
    n_workers = max(1, min(len(os.sched_getaffinity(0)), len(entries)))
    with ProcessPoolExecutor(n_workers, mp_context=context) as pool:
        jobs = [pool.submit(_capture, entry, settings) for entry in entries]
        try:
            for job in as_completed(jobs):
                done = job.result()
                summary.outcomes.update(done.outcomes)
                summary.notes.update(dict.fromkeys(done.notes))
                progress()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return summary


def _capture(entry: Entry, settings: Settings) -> _Outcome:
    result = _Outcome()
    try:
        os.chdir(entry.directory)
        words = prepare(entry.words)
        if is_probe(words) or not needs_wrap(words, settings.device):
            return result
        wrap = Wrap(
            *(Store(settings.store), settings.arch, settings.device, False, find_clang()),
            note=result.notes.append,
            finished=result.finished,
            build=False,
        )
        wrap.run(words)
    except (OSError, UsageError) as error:
        result.finished(entry.file, FAILED)
        result.notes.append(f"warning: the module of {entry.file} was not captured: {_reason(error)}")
    return result


def _reason(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


def _may_compile_cuda(words: Sequence[str]) -> bool:
    """By the compiler's name: most entries of a large project are none of ours."""
    names = [PurePath(word).name for word in words[:3]]
    return any(kind_of_name(name) in (Kind.NVCC, Kind.CLANG) or name == "r3llvm-nvcc" for name in names)
