"""Relocatable device code: units in objects, and the module that belongs to the linked image."""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from r3llvm.capture import Store, Wrap
from r3llvm.capture.devicelink import nvcc_name, relocatable_images, unit_name_of, unit_names
from r3llvm.capture.fatbinary import images_of
from r3llvm.errors import R3Error
from r3llvm.files import content_hash
from r3llvm.toolchain import find_clang, find_cuda_tool

UNIT = "_13bc1fea_7_main_cu__Z1kPi"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_ZL2skPi", "_Z2skPi"),
        ("_ZN12_GLOBAL__N_12akEPi", "_ZN37_GLOBAL__N__13bc1fea_7_main_cu__Z1kPi2akEPi"),
        ("_ZL6hidden", "hidden"),
        ("_ZL2skIiEvPT_", "_Z2skIiEvPT_"),
    ],
)
def test_names_of_what_one_unit_sees_are_nvccs(name: str, expected: str) -> None:
    assert nvcc_name(name, UNIT) == f"__nv_static_26_{UNIT}_{expected}"


def test_a_source_is_told_by_its_unit_name() -> None:
    names = [UNIT, "_e99d209c_8_table_cu_table", "_e99d209d_11_my_table_cu"]
    assert unit_name_of("src/main.cu", names) == UNIT
    assert unit_name_of("table.cu", names) == "_e99d209c_8_table_cu_table"
    assert unit_name_of("my-table.cu", names) == "_e99d209d_11_my_table_cu"
    assert unit_name_of("other.cu", names) == ""
    assert unit_name_of("main.cu", [UNIT, "_23bc1fea_7_main_cu__Z1kPi"]) == ""  # one of two: nothing says which


def test_what_is_no_object_has_no_units(tmp_path: Path) -> None:
    text = tmp_path / "a.o"
    text.write_text("text")
    assert (unit_names(text), relocatable_images(text)) == ([], [])
    assert unit_names(tmp_path / "missing.o") == []


nvcc = find_cuda_tool("nvcc")
needs_nvcc = pytest.mark.skipif(nvcc is None or find_clang() is None, reason="needs nvcc and clang")

TABLE = """
__device__ int table[4] = {1, 2, 3, 4};
static __device__ int hidden = 5;
__device__ int lookup(int i) { return table[i] + hidden; }
static __global__ void own(int* p) { *p = lookup(0); }
void first(int* p) { own<<<1, 1>>>(p); }
"""
MAIN = """
extern __device__ int table[4];
__device__ int lookup(int i);
static __device__ int hidden = 7;
static __global__ void own(int* p) { p[1] = lookup(1) + hidden; }
__global__ void last(int* p) { p[2] = table[3]; }
void first(int* p);
int main() { int* p; cudaMalloc(&p, 16); first(p); own<<<1, 1>>>(p); last<<<1, 1>>>(p); }
"""


class Project:
    """Two units in a folder of their own, built through Wrap with a store of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "table.cu").write_text(TABLE)
        (folder / "main.cu").write_text(MAIN)
        self.notes: list[str] = []
        self.store = Store(folder / "store")

    def nvcc(self, text: str, strict: bool = True) -> int:
        wrap = Wrap(self.store, clang=find_clang(), strict=strict, note=self.notes.append)
        return wrap.run([str(nvcc), "-arch=sm_90", *shlex.split(text)])

    def clang(self, text: str) -> int:
        wrap = Wrap(self.store, device="host", strict=True, note=self.notes.append)
        return wrap.run([str(find_clang()), *shlex.split(text)])

    def module_of(self, path: str) -> str:
        """The module of the linked image in a file, as text."""
        (image,) = images_of(Path(path))
        module = self.store.image(content_hash(image))
        assert module is not None
        clang = find_clang()
        assert clang is not None
        disassembler = clang.resolve().parent / "llvm-dis"
        data = self.store.module(module)
        return subprocess.run([str(disassembler)], input=data, capture_output=True, check=True).stdout.decode()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


def _is_complete(module: str) -> None:
    assert module.count("define weak_odr dso_local ptx_kernel void @__nv_static_") == 2
    assert "define dso_local ptx_kernel void @_Z4lastPi" in module
    assert "external" not in module.replace("externally_initialized", "")  # every unit's symbols are resolved


@needs_nvcc
def test_the_ways_to_link_give_one_module(project: Project) -> None:
    for source in ("table", "main"):
        assert project.nvcc(f"-dc {source}.cu -o {source}.o") == 0
    assert project.nvcc("table.o main.o -o linked") == 0
    _is_complete(project.module_of("linked"))

    assert project.nvcc("-dlink table.o main.o -o dlink.o") == 0
    assert project.module_of("dlink.o") == project.module_of("linked")

    other = Store(project.store.root.parent / "other")
    project.store = other
    assert project.nvcc("-rdc=true table.cu main.cu -o at-once") == 0
    _is_complete(project.module_of("at-once"))


@needs_nvcc
def test_a_static_library_gives_what_is_needed(project: Project) -> None:
    assert project.nvcc("-dc table.cu -o table.o") == 0
    assert project.nvcc("-lib table.o -o libtable.a") == 0
    assert project.nvcc("-dc main.cu -o main.o") == 0
    assert project.nvcc("main.o -L. -ltable -o linked") == 0
    module = project.module_of("linked")
    assert "_Z6lookupi(" in module
    assert "external" not in module.replace("externally_initialized", "")


@needs_nvcc
def test_a_unit_without_module_is_named(project: Project) -> None:
    subprocess.run([str(nvcc), "-arch=sm_90", "-dc", "table.cu", "-o", "table.o"], check=True)
    assert project.nvcc("-dc main.cu -o main.o") == 0
    assert project.nvcc("table.o main.o -o linked", strict=False) == 0
    assert project.notes == [
        "warning: the linked module of linked was not captured: table.o holds device code whose module was not captured"
    ]
    with pytest.raises(R3Error, match="linked"):
        project.nvcc("table.o main.o -o linked")
    assert not Path("linked").exists()


@needs_nvcc
def test_a_link_without_all_its_modules_is_named(project: Project) -> None:
    """nvcc compiles a managed variable, and clang does not."""
    Path("managed.cu").write_text("__managed__ int shared;\n__global__ void change() { shared = 1; }\n")
    assert project.nvcc("-rdc=true table.cu main.cu managed.cu -o linked", strict=False) == 0
    assert project.notes[-1] == ("warning: the linked module of linked was not captured: that of managed.cu was not")
    (image,) = images_of(Path("linked"))
    assert project.store.image(content_hash(image)) is None


def short_suffix() -> str:
    """A cuid whose hash, which clang appends to names, has 15 digits."""
    return next(
        name
        for name in map(str, range(1000))
        if 1 << 56 <= int.from_bytes(hashlib.md5(name.encode()).digest()[:8], "little") < 1 << 60
    )


@pytest.mark.skipif(find_clang() is None or find_cuda_tool("fatbinary") is None, reason="needs clang and fatbinary")
def test_clangs_relocatable_code_too(project: Project, runtime: Path) -> None:
    for source, cuid in (("table", short_suffix()), ("main", "1")):  # leading zeros are not written
        assert project.clang(f"-fgpu-rdc -cuid={cuid} -c {source}.cu -o {source}.o") == 0
    assert project.clang("-fgpu-rdc table.o main.o -o linked -Wl,--unresolved-symbols=ignore-all") == 0
    module = project.module_of("linked")
    private = re.findall(r"ptx_kernel void @_ZL3ownPi__intern__([0-9a-f]{1,16})\(", module)
    program = Path("linked").read_bytes()
    assert len(set(private)) == 2
    assert min(map(len, private)) == 15
    assert all(f"_ZL3ownPi__intern__{suffix}".encode() in program for suffix in private)


@pytest.mark.skipif(find_clang() is None or find_cuda_tool("fatbinary") is None, reason="needs clang and fatbinary")
def test_one_source_compiled_and_linked_at_once(project: Project, runtime: Path) -> None:
    assert project.clang("-fgpu-rdc table.cu -o linked -Wl,--unresolved-symbols=ignore-all") == 0
    (name,) = re.findall(r"ptx_kernel void @(_ZL3ownPi__intern__[0-9a-f]{1,16})\(", project.module_of("linked"))
    assert name.encode() in Path("linked").read_bytes()
    with pytest.raises(R3Error, match="2 of 2 modules were not captured"):
        project.clang("-fgpu-rdc table.cu main.cu -o both -Wl,--unresolved-symbols=ignore-all")
    assert "several sources" in project.notes[0]
