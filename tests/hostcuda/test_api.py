"""The runtime as a program without kernels sees it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from r3llvm.capture.toolkit import find_toolkit
from tests.hostcuda.conftest import HERE, Program

CHECKS = re.findall(r"^TEST\((\w+)\)", (HERE / "api.cpp").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def api(build: Callable[[str], Program]) -> Program:
    return build("api.cpp")


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "unsupported_calls_name_themselves_once"])
def test_check_holds(api: Program, check: str) -> None:
    assert api.passes(check).errors == ""


def test_every_check_is_run(api: Program) -> None:
    assert api.checks() == sorted(CHECKS)


def test_unsupported_calls_name_themselves_once(api: Program) -> None:
    assert api.passes("unsupported_calls_name_themselves_once").errors == (
        "r3llvm: cudaGraphCreate is not supported on the host device\n"
        "r3llvm: cudaStreamBeginCapture is not supported on the host device\n"
    )


def test_no_room_for_the_arena_is_said(api: Program) -> None:
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v 8000000; exec {api.path} allocation"],
        env={**api.environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    first = done.stderr.splitlines()[0]
    assert first.startswith("r3llvm: cannot reserve device memory at 0x300000000000 (lift any `ulimit -v`)")


def exported(library: Path) -> dict[str, str]:
    """Each exported symbol's version."""
    with library.open("rb") as file:
        elf: Any = ELFFile(file)
        versions = elf.get_section_by_name(".gnu.version")
        definitions = elf.get_section_by_name(".gnu.version_d")
        names = {v.entry["vd_ndx"]: next(aux).name for v, aux in definitions.iter_versions()}
        return {
            symbol.name: names[versions.get_symbol(number).entry["ndx"] & 0x7FFF]
            for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols())
            if symbol.entry["st_shndx"] != "SHN_UNDEF" and symbol.entry["st_info"]["type"] == "STT_FUNC"
        }


def test_every_symbol_carries_the_version(library: Path) -> None:
    symbols = exported(library)
    assert set(symbols.values()) == {"libcudart.so.13"}
    assert all(name.startswith(("cuda", "__cuda")) for name in symbols)
    assert {"cudaLaunchKernel", "cudaLaunchKernel_ptsz", "__cudaLaunchKernel_ptsz", "cudaMemcpy_ptds"} <= set(symbols)


def test_every_entry_point_of_nvidias_library_is_there(library: Path) -> None:
    toolkit = find_toolkit()
    folder = toolkit.library_directory if toolkit else None
    if folder is None or not (folder / "libcudart.so.13").exists():
        pytest.skip("NVIDIA's libcudart.so.13 is not here: pip install nvidia-cuda-runtime")
    assert exported(folder / "libcudart.so.13").keys() <= exported(library).keys()


def test_it_needs_nothing_but_libc(library: Path) -> None:
    with library.open("rb") as file:
        dynamic: Any = ELFFile(file).get_section_by_name(".dynamic")
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
        assert [tag.soname for tag in dynamic.iter_tags("DT_SONAME")] == ["libcudart.so.13"]
    allowed = {
        "libc.so.6",
        "libm.so.6",
        "libpthread.so.0",
        "libdl.so.2",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    }
    assert needed <= allowed


def test_the_link_for_the_linker_is_beside_it(library: Path) -> None:
    assert (library.parent / "libcudart.so").resolve() == library.resolve()
