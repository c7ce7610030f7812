"""Registration and launches, on a stand-in for the engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hostcuda.conftest import HERE, Program, fill_store

CHECKS = re.findall(r"^TEST\((\w+)\)", (HERE / "launch.cpp").read_text(), re.MULTILINE)
QUIET = [
    "launch_by_stub",
    "launch_as_clang_and_nvcc_do",
    "symbols",
    "managed_variables",
    "geometry",
    "many_threads",
    "occupancy",
    "static_kernels_of_nvcc",
]


@pytest.mark.parametrize("check", QUIET)
def test_check_holds(launcher: Program, check: str) -> None:
    assert launcher.passes(check).errors == ""


def test_a_refused_kernel_says_why_once(launcher: Program) -> None:
    assert launcher.passes("a_refused_kernel").errors == (
        "r3llvm: kernel refused() cannot run here: inline PTX `wgmma.fence` is not translated\n"
    )


def test_a_kernel_without_a_module_says_what_to_do_once(launcher: Program) -> None:
    assert launcher.passes("a_kernel_without_a_module").errors == (
        "r3llvm: kernel uncaptured(int): no captured module; rebuild the application through `r3llvm wrap`\n"
    )


def test_a_kernel_that_the_module_lacks(launcher: Program) -> None:
    outcome = launcher.passes("a_kernel_that_the_module_lacks")
    assert "kernel absent(): the captured module has no such kernel" in outcome.errors


def test_errors_stick_and_the_engines_line_is_shown(launcher: Program) -> None:
    assert launcher.passes("sticky_errors").errors == "r3llvm: the kernel failed as told\n" * 6


def test_launches_that_never_began_leave_the_context(launcher: Program) -> None:
    assert (
        launcher.passes("launches_that_never_began_leave_the_context").errors == "r3llvm: the kernel failed as told\n"
    )


def test_a_damaged_module_is_named(launcher: Program, store: Path) -> None:
    (module,) = (store / "modules").glob("*.bc")
    module.write_bytes(b"variable counter 8 0\n")
    outcome = launcher.passes("a_module_that_cannot_load")
    assert outcome.errors == (
        f"r3llvm: kernel count(): {module} is damaged; delete it and rebuild through `r3llvm wrap`\n"
    )


@pytest.mark.parametrize("description", ["", "[]", "{}", '{"arch": 3}', '{"arch": "sm_90"'])
def test_a_damaged_description_is_named(launcher: Program, store: Path, description: str) -> None:
    (file,) = (store / "modules").glob("*.json")
    file.write_text(description)
    outcome = launcher.passes("a_module_that_cannot_load")
    assert outcome.errors == f"r3llvm: kernel count(): {file} is damaged; delete it and rebuild through `r3llvm wrap`\n"


def test_a_damaged_image_link_is_named(launcher: Program, store: Path) -> None:
    (image,) = (store / "images").iterdir()
    image.write_text("../../etc/passwd\n")
    assert f"{image} does not name a module" in launcher.passes("a_module_that_cannot_load").errors


def test_what_the_engine_says_of_a_module_is_shown(launcher: Program, tmp_path: Path) -> None:
    other = fill_store(tmp_path / "other")
    (description,) = (other / "modules").glob("*.json")
    description.write_text('{"arch": "sm_80"}')
    outcome = launcher.passes("a_module_that_cannot_load", R3LLVM_STORE=str(other))
    assert outcome.errors == "r3llvm: kernel count(): wrong options\n"


def test_no_engine_is_said(launcher: Program) -> None:
    errors = launcher.passes("no_engine", R3LLVM_CORE="/nowhere/libr3core.so").errors
    assert errors.startswith("r3llvm: kernel count(): cannot load the execution engine: /nowhere/libr3core.so")
    assert errors.count("\n") == 1
    assert errors.endswith("set R3LLVM_CORE to its libr3core.so\n")


def test_no_engine_is_needed_without_launches(launcher: Program) -> None:
    assert launcher.passes("record_nothing", R3LLVM_CORE="/nowhere/libr3core.so").errors == ""


def test_output_of_host_and_kernel_keeps_its_order(launcher: Program) -> None:
    assert launcher.passes("record_variables").output == "first\ncounted\nlast\n"


def test_every_live_block_is_passed_to_a_checking_engine(launcher: Program) -> None:
    assert launcher.passes("accesses_are_checked", R3LLVM_CHECK="1").errors == "r3llvm: out of bounds\n"


def test_a_managed_variable_without_a_module_says_so(launcher: Program) -> None:
    assert launcher.passes("a_managed_variable_without_a_module").errors == (
        "r3llvm: managed variable lost: no captured module; rebuild the application through `r3llvm wrap`\n"
    )
