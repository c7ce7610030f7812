"""Compile databases."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from r3llvm.capture import database
from r3llvm.capture.settings import Settings
from r3llvm.errors import UsageError
from tests.capture.builds import WRAP, Project, needs_nvcc


def write(path: Path, entries: object) -> Path:
    path.write_text(json.dumps(entries))
    return path


def test_entries_of_compilers_for_cuda(tmp_path: Path) -> None:
    path = write(
        tmp_path / "compile_commands.json",
        [
            {"directory": "/build", "command": "nvcc -DX='a b' -c a.cu -o a.o", "file": "a.cu"},
            {"directory": "sub", "arguments": ["/usr/bin/clang++-22", "-c", "b.cu"], "file": "b.cu"},
            {"directory": "/build", "command": "r3llvm-cc ccache nvcc -c c.cu", "file": "c.cu"},
            {"directory": "/build", "command": "/usr/bin/c++ -c d.cpp", "file": "d.cpp"},
        ],
    )
    assert database.read(path) == [
        database.Entry("/build", ("nvcc", "-DX=a b", "-c", "a.cu", "-o", "a.o"), "a.cu"),
        database.Entry(str(tmp_path / "sub"), ("/usr/bin/clang++-22", "-c", "b.cu"), "b.cu"),
        database.Entry("/build", ("r3llvm-cc", "ccache", "nvcc", "-c", "c.cu"), "c.cu"),
    ]


@pytest.mark.parametrize("entries", [{}, [1], [{"file": "a.cu"}], [{"file": "a.cu", "command": "nvcc '"}], "text"])
def test_what_is_no_database_is_refused(entries: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no compile database"):
        database.read(write(tmp_path / "compile_commands.json", entries))


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*missing\.json: No such file"):
        database.read(tmp_path / "missing.json")


def test_what_cannot_be_tried_is_reported(tmp_path: Path) -> None:
    entries = [
        database.Entry(str(tmp_path / "gone"), ("nvcc", "-c", "a.cu"), "a.cu"),
        database.Entry(str(tmp_path), ("nvcc", "--version"), ""),
        database.Entry(str(tmp_path), ("/nowhere/clang++", "-c", "b.cu"), "b.cu"),
    ]
    done: list[int] = []
    summary = database.capture(entries, Settings(store=tmp_path / "store"), lambda: done.append(1))
    assert len(done) == 3
    assert str(summary) == "2 units not captured"
    assert any(f"a.cu was not captured: {tmp_path}/gone: No such file" in note for note in summary.notes)
    assert any("b.cu was not captured: /nowhere/clang++: no such program" in note for note in summary.notes)


@needs_nvcc
def test_images_are_those_of_current_objects(tmp_path: Path) -> None:
    project = Project("cmake", tmp_path)
    command = f"nvcc -arch=sm_90 -Iinclude -c {project.folder}/scale.cu -o scale.o"
    path = write(
        project.folder / "compile_commands.json",
        [{"directory": str(project.folder), "command": command, "file": "scale.cu"}],
    )
    words = (*WRAP, "--compile-commands", path)
    # No object: nothing is built, and yet the image that the build will make is known.
    assert project.run(*words) == "r3llvm: 1 unit captured\n"
    assert not (project.folder / "scale.o").exists()
    project.run(*command.split())
    assert project.sources_of("scale.o") == ["scale.cu"]

    # An object older than a header is another program's; the one to come is what counts.
    factor = project.folder / "include" / "factor.h"
    factor.write_text("#define FACTOR 7\n")
    later = time.time() + 60
    os.utime(factor, (later, later))
    old = len(list(project.store.root.glob("images/*")))
    assert project.run(*words) == "r3llvm: 1 unit captured\n"
    assert len(list(project.store.root.glob("images/*"))) == old + 1
    assert len(project.modules()) == 2

    # An object that is there is believed.
    project.run(*command.split())
    os.utime(project.folder / "scale.o", (later, later))
    assert project.run(*words) == "r3llvm: 1 unit unchanged\n"
    assert project.sources_of("scale.o") == ["scale.cu"]


@needs_nvcc
def test_strict_refuses_a_database_with_a_failure(tmp_path: Path) -> None:
    project = Project("cmake", tmp_path)
    (project.folder / "wrong.cu").write_text("nonsense\n")
    entry = {"directory": str(project.folder), "command": "nvcc -c wrong.cu", "file": "wrong.cu"}
    path = write(project.folder / "compile_commands.json", [entry])
    assert "1 unit not captured" in project.run(*WRAP, "--compile-commands", path)
    assert "error: 1 of 1 units were not captured (--strict)" in project.run(
        *WRAP, "--strict", "--compile-commands", path, status=1
    )
    empty = write(project.folder / "empty.json", [])
    assert "has no unit" in project.run(*WRAP, "--compile-commands", empty, status=1)
