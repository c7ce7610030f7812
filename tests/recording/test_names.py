"""Names of kernels, for people and between compilers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3llvm.errors import UsageError
from r3llvm.recording.names import demangle, matches, module_names

UNIT = "32_GLOBAL__N__5128453b_4_n_cu_main"


@pytest.mark.parametrize(
    ("of_nvcc", "of_clang"),
    [
        ("_Z5scalePfi", "_Z5scalePfi"),
        ("_Z5scalePfi", "_ZL5scalePfi"),
        ("plain", "_ZL5plain"),
        (f"_ZN{UNIT}2akEPi", "_ZN12_GLOBAL__N_12akEPi"),
        (f"_ZN1a{UNIT}2akIfEEvPT_", "_ZN1a12_GLOBAL__N_12akIfEEvPT_"),
        (f"_ZN30_INTERNAL_5128453b_4_n_cu_main{UNIT}4anonE", "_ZN12_GLOBAL__N_14anonE"),
        ("_ZN1a1bEv", "_ZN1aL1bEv"),
        ("_Z1fIN1a1bEEvT_", "_ZL1fIN1a1bEEvT_"),
    ],
)
def test_a_modules_name_for_what_nvcc_named(of_nvcc: str, of_clang: str) -> None:
    assert of_clang in module_names(of_nvcc)


@given(st.text(max_size=30) | st.from_regex(r"(_ZN?)?(\d{0,3}[a-z_]{0,8}){0,4}", fullmatch=True))
def test_any_name_is_its_own_first(name: str) -> None:
    names = module_names(name)
    assert names[0] == name
    assert len(names) == len(set(names)) <= 3


def test_demangling_and_matching() -> None:
    assert demangle("_Z5scalePfi") == "scale(float*, int)"
    assert demangle("_Zx") == "_Zx"
    assert matches(r"scale\(float", "_Z5scalePfi") and matches("^_Z5", "_Z5scalePfi")
    assert not matches("count", "_Z5scalePfi")
    with pytest.raises(UsageError, match="no regular expression"):
        matches("(", "k")
