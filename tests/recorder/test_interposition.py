"""How the recorder gets between a program and its driver, and that nobody else notices."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.fakecuda import ROOT, FakeCuda
from tests.recorder.building import build
from tests.recorder.conftest import Applications


@pytest.fixture(scope="module")
def names(fakecuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("names.cpp", tmp_path_factory.mktemp("names") / "names")


@pytest.fixture
def recording(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "recording" / "chunks").mkdir(parents=True)
    return {"R3LLVM_RECORD": str(tmp_path / "recording")}


def found(program: Path, *arguments: object, **environment: str) -> list[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("R3LLVM_")}
    command = [str(argument) for argument in (program, *arguments)]
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr
    return done.stdout.splitlines()


def others(lines: list[str], *ours: str) -> list[str]:
    """Without look-ups of our own functions in these places."""
    return [line for line in lines if not (line.split()[0] in ours and re.search(" cu(MemAlloc|Launch)", line))]


@pytest.mark.parametrize("scope", [(), ("global",)], ids=["local", "global"])
def test_a_recorder_that_does_not_record_is_not_seen(
    names: Path, fakecuda: FakeCuda, library: Path, scope: tuple[str, ...]
) -> None:
    plain = found(names, fakecuda.library, *scope)
    assert "driver cuMemAlloc_v2: libcuda.so.1" in plain
    # Our names are global while libcuda is in the process, and stand for its own.
    ours = ("next",) if scope else ("next", "default", "self")
    assert others(found(names, fakecuda.library, *scope, LD_PRELOAD=str(library)), *ours) == others(plain, *ours)


def test_without_a_driver_there_is_none(names: Path, library: Path, recording: dict[str, str]) -> None:
    plain = found(names)
    assert "default cuMemAlloc_v2: nothing, undefined symbol: cuMemAlloc_v2" in plain
    assert others(found(names, LD_PRELOAD=str(library), **recording), "next") == others(plain, "next")


def test_only_the_drivers_functions_are_replaced(
    names: Path, fakecuda: FakeCuda, library: Path, recording: dict[str, str]
) -> None:
    lines = found(names, fakecuda.library, "global", LD_PRELOAD=str(library), **recording)
    for where in ("driver", "default", "self"):
        assert f"{where} cuMemAlloc_v2: {library.name}" in lines
        assert f"{where} cuLaunchKernel_ptsz: {library.name}" in lines
        assert f"{where} cuInit: libcuda.so.1" in lines
        assert f"{where} cuNoSuchFunction: nothing, undefined symbol: cuNoSuchFunction" in lines
    assert "libc cuMemAlloc_v2: nothing, undefined symbol: cuMemAlloc_v2" in lines
    assert "next puts: libc.so.6" in lines


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_beside_another_preloaded_library(
    applications: Applications, tmp_path: Path, recording: dict[str, str], first: bool
) -> None:
    wrapper = build("wrapper.cpp", tmp_path / "libwrapper.so", "-shared", "-fPIC")
    both = [str(wrapper), str(applications.library)]
    plain = applications.run("saxpy", reach="linked")
    preloaded = ":".join(both if first else reversed(both))
    outcome = applications.run("saxpy", reach="linked", LD_PRELOAD=preloaded, **recording)
    assert (outcome.status, outcome.errors) == (0, "")
    lines = outcome.output.splitlines()
    assert [line for line in lines if line != "allocation seen"] == plain.output.splitlines()
    assert ("allocation seen" in lines) == first  # behind ours, it is passed by: we ask the driver
    assert '"type":"launch"' in (tmp_path / "recording" / "journal.jsonl").read_text()


def test_exports(library: Path) -> None:
    hooks = (ROOT / "csrc" / "recorder" / "hooks.def").read_text()
    replaced = set(re.findall(r"^R3_HOOK\(\w+, (\w+),", hooks, re.MULTILINE))
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        exported = {symbol.name for symbol in symbols if symbol.name and symbol["st_shndx"] != "SHN_UNDEF"}
    assert exported == replaced | {"dlsym"}
