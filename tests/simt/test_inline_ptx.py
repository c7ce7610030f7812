"""Translated inline PTX, run: the values it computes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simt.lowered import Cases, translate
from tests.simt.reference import BF16, F16, F32, F64, ROUNDINGS, Format, add, fma, patterns, tuples

M32 = 0xFFFFFFFF
M64 = (1 << 64) - 1


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def check(
    cases: Cases, reference: dict[str, Callable[..., int]], records: list[tuple[int, ...]], directory: Path
) -> None:
    results = cases.run(records, directory)
    for name, expected in reference.items():
        for record, result in zip(records, results[name], strict=True):
            want = expected(*record)
            assert result == want, (name, [hex(v) for v in record], hex(result), hex(want))


def words(count: int, seed: int) -> list[int]:
    source = random.Random(seed)
    edges = [0, 1, 2, 31, 32, 33, 64, 255, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, M32, 0x12345678, 0x00FF00FF]
    return edges + [source.getrandbits(32) for _ in range(count)]


def test_integer_arithmetic(tmp_path: Path) -> None:
    cases = Cases(["i32", "i32", "i32"])
    reference: dict[str, Callable[..., int]] = {}

    def case(assembly: str, expected: Callable[..., int], result: str = "i32") -> None:
        cases.ptx(assembly, result)
        reference[assembly] = expected

    s = lambda v: signed(v, 32)  # noqa: E731
    saturate = lambda v: min(max(v, -(1 << 31)), (1 << 31) - 1) & M32  # noqa: E731
    case("add.s32 $0, $1, $2;", lambda x, y, z: x + y & M32)
    case("add.sat.s32 $0, $1, $2;", lambda x, y, z: saturate(s(x) + s(y)))
    case("sub.sat.s32 $0, $1, $2;", lambda x, y, z: saturate(s(x) - s(y)))
    case("mul.hi.s32 $0, $1, $2;", lambda x, y, z: s(x) * s(y) >> 32 & M32)
    case("mul.wide.u32 $0, $1, $2;", lambda x, y, z: x * y, "i64")
    case("mad.wide.s32 $0, $1, $2, -1;", lambda x, y, z: s(x) * s(y) - 1 & M64, "i64")
    case("mad.hi.sat.s32 $0, $1, $2, $3;", lambda x, y, z: saturate((s(x) * s(y) >> 32) + s(z)))
    case("mad24.hi.u32 $0, $1, $2, $3;", lambda x, y, z: ((x & 0xFFFFFF) * (y & 0xFFFFFF) >> 16) + z & M32)
    case("sad.s32 $0, $1, $2, $3;", lambda x, y, z: abs(s(x) - s(y)) + z & M32)
    case("abs.s32 $0, $1;", lambda x, y, z: abs(s(x)) & M32)
    case("neg.s32 $0, $1;", lambda x, y, z: -x & M32)
    case("min.s32 $0, $1, $2;", lambda x, y, z: min(s(x), s(y)) & M32)
    case("max.relu.s32 $0, $1, $2;", lambda x, y, z: max(s(x), s(y), 0))
    case("cnot.b32 $0, $1;", lambda x, y, z: int(x == 0))
    case("div.u32 $0, $1, $2;", lambda x, y, z: x // y if y else M32)
    case("div.s32 $0, $1, $2;", lambda x, y, z: int(Fraction(s(x), s(y))) & M32 if y else M32)
    case("rem.s32 $0, $1, $2;", lambda x, y, z: s(x) - int(Fraction(s(x), s(y))) * s(y) & M32 if y else M32)
    case("shl.b32 $0, $1, $2;", lambda x, y, z: x << y & M32 if y < 32 else 0)
    case("shr.u32 $0, $1, $2;", lambda x, y, z: x >> y if y < 32 else 0)
    case("shr.s32 $0, $1, $2;", lambda x, y, z: s(x) >> min(y, 31) & M32)
    case("shf.l.wrap.b32 $0, $1, $2, $3;", lambda x, y, z: (y << 32 | x) << (z & 31) >> 32 & M32)
    case("shf.r.clamp.b32 $0, $1, $2, $3;", lambda x, y, z: (y << 32 | x) >> min(z, 32) & M32)
    case("lop3.b32 $0, $1, $2, $3, 0x96;", lambda x, y, z: x ^ y ^ z)
    case("lop3.b32 $0, $1, $2, $3, 0xca;", lambda x, y, z: x & y | ~x & z)
    case("brev.b32 $0, $1;", lambda x, y, z: int(f"{x:032b}"[::-1], 2))
    case("popc.b32 $0, $1;", lambda x, y, z: x.bit_count())
    case("clz.b32 $0, $1;", lambda x, y, z: 32 - x.bit_length())
    case("bfind.u32 $0, $1;", lambda x, y, z: x.bit_length() - 1 & M32)
    case("bfind.shiftamt.u32 $0, $1;", lambda x, y, z: 32 - x.bit_length() if x else M32)
    case("selp.u32 $0, $1, $2, 1;", lambda x, y, z: x)
    case("slct.u32.s32 $0, $1, $2, $3;", lambda x, y, z: x if s(z) >= 0 else y)
    case("{ .reg .u16 l, h; mov.b32 {l, h}, $1; mov.b32 $0, {h, l}; }", lambda x, y, z: x >> 16 | x << 16 & M32)
    case("mov.b64 $0, {$1, $2};", lambda x, y, z: x | y << 32, "i64")
    case("{ .reg .b32 t<3>; mov.b32 t0, 0x10; add.u32 t2, t0, $1; mov.b32 $0, t2; }", lambda x, y, z: x + 16 & M32)

    def extract(x: int, position: int, length: int, is_signed: bool) -> int:
        position, length = position & 255, length & 255
        if length == 0:
            return 0
        sign = x >> min(position + length - 1, 31) & 1 if is_signed else 0
        bits = [x >> (position + i) & 1 if i < length and position + i < 32 else sign for i in range(32)]
        return sum(bit << i for i, bit in enumerate(bits))

    def insert(x: int, into: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        for i in range(length):
            if position + i < 32:
                into = into & ~(1 << (position + i)) | (x >> i & 1) << (position + i)
        return into

    case("bfe.u32 $0, $1, $2, $3;", lambda x, y, z: extract(x, y, z, False))
    case("bfe.s32 $0, $1, $2, $3;", lambda x, y, z: extract(x, y, z, True))
    case("bfi.b32 $0, $1, $2, $3, 7;", lambda x, y, z: insert(x, y, z, 7))
    case("bfi.b32 $0, $1, $1, $2, $3;", lambda x, y, z: insert(x, x, y, z))
    records = tuples(words(200, 1) + list(range(40)), 3, 1500, 2)
    check(cases, reference, records, tmp_path)


def test_carry_chains(tmp_path: Path) -> None:
    cases = Cases(["i32", "i32", "i32"])
    # 64-bit arithmetic on 32-bit halves: (x:y) with (y:z) and (z:x).
    add64 = "{ .reg .u32 l, h; add.cc.u32 l, $1, $2; addc.u32 h, $2, $3; mov.b64 $0, {l, h}; }"
    sub64 = "{ .reg .u32 l, h; sub.cc.u32 l, $1, $2; subc.u32 h, $2, $3; mov.b64 $0, {l, h}; }"
    square = (
        "{ .reg .u32 l, h, t; mul.lo.u32 l, $1, $2; mul.hi.u32 h, $1, $2; mad.lo.cc.u32 l, $2, $3, l;"
        " madc.hi.u32 h, $2, $3, h; mov.b64 $0, {l, h}; }"
    )
    chain = "{ .reg .u32 a, b, c; add.cc.u32 a, $1, $2; addc.cc.u32 b, $1, $3; addc.u32 c, 0, 0; mov.b32 $0, c; }"
    for assembly, result in ((add64, "i64"), (sub64, "i64"), (square, "i64"), (chain, "i32")):
        cases.ptx(assembly, result)
    reference: dict[str, Callable[..., int]] = {
        add64: lambda x, y, z: (x | y << 32) + (y | z << 32) & M64,
        sub64: lambda x, y, z: (x | y << 32) - (y | z << 32) & M64,
        square: lambda x, y, z: x * y + y * z & M64,
        chain: lambda x, y, z: (x | x << 32) + (y | z << 32) >> 64,
    }
    check(cases, reference, tuples(words(100, 3), 3, 1000, 4), tmp_path)


def test_comparisons(tmp_path: Path) -> None:
    cases = Cases(["float", "float", "i32"])
    reference: dict[str, Callable[..., int]] = {}
    ordered: dict[str, Callable[[Fraction, Fraction], bool]] = {
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }

    def value(bits: int) -> Fraction:
        huge = Fraction(2) ** 1000
        return (-huge if bits & F32.sign else huge) if F32.is_infinite(bits) else F32.value(bits)

    for op, compare in ordered.items():
        for unordered in ("", "u"):
            assembly = (
                f"{{ .reg .pred p, q; setp.{op}{unordered}.f32 p|q, $1, $2;"
                " selp.b32 $0, 3, 1, p; @q xor.b32 $0, $0, 4; }"
            )
            cases.ptx(assembly, "i32")

            def expected(x: int, y: int, _: int, c: Callable[..., bool] = compare, u: bool = bool(unordered)) -> int:
                nan = F32.is_nan(x) or F32.is_nan(y)
                return 3 if (u if nan else c(value(x), value(y))) else 5

            reference[assembly] = expected
    both = "{ .reg .pred p, r; setp.ne.u32 r, $3, 0; setp.num.and.f32 p, $1, $2, !r; selp.b32 $0, 1, 0, p; }"
    cases.ptx(both, "i32")
    reference[both] = lambda x, y, z: int(not F32.is_nan(x) and not F32.is_nan(y) and z == 0)
    mask = "set.gt.u32.f32 $0, $1, $2;"
    cases.ptx(mask, "i32")
    reference[mask] = lambda x, y, z: 0 if F32.is_nan(x) or F32.is_nan(y) else M32 * (value(x) > value(y))
    records = [(x, y, i % 2) for i, (x, y) in enumerate(tuples(patterns(F32, 50, 5), 2, 300, 6))]
    check(cases, reference, records, tmp_path)


def test_control_flow(tmp_path: Path) -> None:
    cases = Cases(["i32", "i32"])
    # Euclid's algorithm: a loop with a label, a guarded branch and a register that changes.
    gcd = (
        "{ .reg .u32 a, b, t; .reg .pred p; mov.u32 a, $1; mov.u32 b, $2; AGAIN: setp.eq.u32 p, b, 0; @p bra DONE;"
        " rem.u32 t, a, b; mov.u32 a, b; mov.u32 b, t; bra.uni AGAIN; DONE: mov.u32 $0, a; }"
    )
    clamp = "{ .reg .pred p; mov.u32 $0, $1; setp.gt.u32 p, $1, 100; @p mov.u32 $0, 100; @!p add.u32 $0, $0, 1; }"
    cases.ptx(gcd, "i32")
    cases.ptx(clamp, "i32")
    reference: dict[str, Callable[..., int]] = {
        gcd: math.gcd,
        clamp: lambda x, y: 100 if x > 100 else x + 1,
    }
    check(cases, reference, tuples(words(100, 7), 2, 300, 8), tmp_path)


def test_operands(tmp_path: Path) -> None:
    cases = Cases(["i32", "i32"])
    cases.add("tied", "i32", 'call i32 asm "add.u32 $0, $0, $1;", "=r,r,0"(i32 %a0, i32 %a1)')
    cases.add("immediate", "i32", 'call i32 asm "add.u32 $0, $1, $2;", "=r,r,n"(i32 %a0, i32 -3)')
    cases.body.append(
        '  %two = call { i32, i64 } asm "mov.u32 $0, $2; cvt.u64.u32 $1, $3;", "=r,=l,r,r"(i32 %a0, i32 %a1)'
    )
    cases.add("first", "i32", "extractvalue { i32, i64 } %two, 0")
    cases.add("second", "i64", "extractvalue { i32, i64 } %two, 1")
    records = [(7, 9), (M32, 2)]
    assert cases.run(records, tmp_path) == {
        "tied": [16, 1],
        "immediate": [4, M32 - 3],
        "first": [7, M32],
        "second": [9, 2],
    }


def test_conversions(tmp_path: Path) -> None:
    cases = Cases(["float", "double", "i32"])
    reference: dict[str, Callable[..., int]] = {}

    def case(assembly: str, result: str, expected: Callable[..., int]) -> None:
        cases.ptx(assembly, result)
        reference[assembly] = expected

    def narrowed(source: Format, target: Format, bits: int, mode: str) -> int:
        if source.is_nan(bits):
            return 0x7FFF
        sign = target.sign if bits & source.sign else 0
        return sign | target.infinity if source.is_infinite(bits) else target.round(source.value(bits), mode, sign)

    def clamped(value: int, low: int, high: int) -> int:
        return min(max(value, low), high)

    for mode in ("rn", "rz"):
        case(f"cvt.{mode}.f16.f32 $0, $1;", "i16", lambda x, d, i, m=mode: narrowed(F32, F16, x, m))
        case(
            f"cvt.{mode}.bf16x2.f32 $0, $1, 0f3F800000;",
            "i32",
            lambda x, d, i, m=mode: narrowed(F32, BF16, x, m) << 16 | 0x3F80,
        )
    for mode in ROUNDINGS:
        case(f"cvt.{mode}.f16.f64 $0, $2;", "i16", lambda x, d, i, m=mode: narrowed(F64, F16, d, m))
        case(f"cvt.{mode}.f32.s32 $0, $3;", "float", lambda x, d, i, m=mode: F32.round(Fraction(signed(i, 32)), m))
        case(f"cvt.{mode}.f16.u32 $0, $3;", "i16", lambda x, d, i, m=mode: F16.round(Fraction(i), m))

    def to_byte(x: int) -> int:
        if F32.is_nan(x):
            return 0
        if F32.is_infinite(x):
            return 0x80 if x & F32.sign else 0x7F
        return clamped(round(F32.value(x)), -128, 127) & 0xFF

    case("{ .reg .s8 t; cvt.rni.s8.f32 t, $1; cvt.u32.u8 $0, t; }", "i32", lambda x, d, i: to_byte(x))
    case("cvt.s32.s8 $0, $3;", "i32", lambda x, d, i: signed(i, 8) & M32)
    case("cvt.sat.u8.s32 $0, $3;", "i32", lambda x, d, i: clamped(signed(i, 32), 0, 255))
    case("cvt.sat.s16.u32 $0, $3;", "i32", lambda x, d, i: clamped(i, 0, 32767))
    case("cvt.u64.s32 $0, $3;", "i64", lambda x, d, i: signed(i, 32) & M64)
    case("cvt.s64.u32 $0, $3;", "i64", lambda x, d, i: i)
    records = [
        (x, d, i)
        for x, d, i in zip(patterns(F32, 600, 9), patterns(F64, 600, 10), (words(700, 11) * 2)[:626], strict=True)
    ]
    check(cases, reference, records, tmp_path)


def test_half_pairs(tmp_path: Path) -> None:
    cases = Cases(["i32", "i32", "i32"])
    forms = {"f16x2": F16, "bf16x2": BF16}
    for kind in forms:
        cases.ptx(f"fma.rn.{kind} $0, $1, $2, $3;", "i32", f"fma.{kind}")
        cases.ptx(f"add.rn.{kind} $0, $1, $2;", "i32", f"add.{kind}")
        cases.ptx(f"set.lt.u32.{kind} $0, $1, $2;", "i32", f"mask.{kind}")
        cases.ptx(f"set.gtu.{kind}.{kind} $0, $1, $2;", "i32", f"ones.{kind}")
    source = random.Random(12)
    records = [tuple(source.getrandbits(32) for _ in range(3)) for _ in range(500)]
    records += [
        tuple(p << 16 | q for p, q in zip(r, reversed(r), strict=True))
        for r in tuples(patterns(F16, 20, 13), 3, 500, 14)
    ]
    results = cases.run(records, tmp_path)
    for kind, f in forms.items():
        for lane in (0, 16):
            for index, record in enumerate(records):
                x, y, z = (value >> lane & 0xFFFF for value in record)
                nan = f.is_nan(x) or f.is_nan(y)
                for name, want in ((f"fma.{kind}", fma(f, x, y, z, "rn")), (f"add.{kind}", add(f, x, y, "rn"))):
                    got = results[name][index] >> lane & 0xFFFF
                    assert f.is_nan(got) if want is None else got == want, (name, hex(x), hex(y), hex(z), hex(got))
                order = [-(bits & 0x7FFF) if bits & 0x8000 else bits for bits in (x, y)]
                mask = results[f"mask.{kind}"][index] >> lane & 0xFFFF
                assert mask == (0 if nan else 0xFFFF * (order[0] < order[1]))
                one = f.bias << f.mantissa_bits
                assert results[f"ones.{kind}"][index] >> lane & 0xFFFF == one * (nan or order[0] > order[1])


def test_bytes_and_halfwords_in_words(tmp_path: Path) -> None:
    cases = Cases(["i32", "i32", "i32"])
    reference: dict[str, Callable[..., int]] = {}
    operations: dict[str, Callable[[int, int], int]] = {
        "vadd": lambda p, q: p + q,
        "vsub": lambda p, q: p - q,
        "vabsdiff": lambda p, q: abs(p - q),
        "vmin": min,
        "vmax": max,
    }

    def apply(
        x: int,
        y: int,
        z: int,
        op: Callable[[int, int], int],
        lanes: int,
        is_signed: bool,
        saturating: bool,
        total: bool,
    ) -> int:
        bits = 32 // lanes
        result = z if total else 0
        for lane in range(lanes):
            p, q = x >> (bits * lane), y >> (bits * lane)
            p, q = (signed(v, bits) if is_signed else v & ((1 << bits) - 1) for v in (p, q))
            value = op(p, q)
            if saturating:
                low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
                value = min(max(value, low), high)
            result = result + value if total else result | (value & ((1 << bits) - 1)) << (bits * lane)
        return result & M32

    for name, op in operations.items():
        for lanes in (2, 4):
            for sign in "su":
                for suffix in ("", ".sat", ".add"):
                    if suffix == ".add" and name != "vabsdiff":
                        continue
                    kind = f"{sign}32"
                    assembly = f"{name}{lanes}.{kind}.{kind}.{kind}{suffix} $0, $1, $2, $3;"
                    cases.ptx(assembly, "i32")
                    reference[assembly] = (
                        lambda x, y, z, op=op, n=lanes, s=sign == "s", c=suffix == ".sat", t=suffix == ".add": apply(
                            x, y, z, op, n, s, c, t
                        )
                    )
    check(cases, reference, tuples(words(100, 15), 3, 500, 16), tmp_path)


def test_what_an_h200_computes(tmp_path: Path) -> None:
    """Results where the PTX manual leaves room, as an NVIDIA H200 gave them."""
    words_ = Cases(["i32", "i32"])
    average = "vavrg4.s32.s32.s32 $0, $1, $2, $1;"
    words_.ptx(average, "i32")
    words_.ptx("rem.s32 $0, $1, $2;", "i32")
    words_.ptx("neg.f16x2 $0, $1;", "i32")
    words_.ptx("{ .reg .pred p; testp.normal.f32 p, $1; selp.b32 $0, 1, 0, p; }", "i32", "normal")
    results = words_.run([(0x00FF02FD, 0x01FE01FE), (5, 0), (0x7F7F8000, 1), (0, 1)], tmp_path)
    assert results[average][0] == 0x01FE02FD
    assert results["rem.s32 $0, $1, $2;"][1] == M32
    assert results["neg.f16x2 $0, $1;"][2] == 0x7FFF0000
    assert results["normal"][3] == 1

    floats = Cases(["float", "float"])
    floats.ptx("mul.rn.ftz.f32 $0, $1, $2;", "float", "flushed")
    floats.ptx("mul.rn.f32 $0, $1, $2;", "float", "kept")
    floats.ptx("cvt.rn.tf32.f32 $0, $1;", "i32", "tf32")
    results = floats.run([(0x00800000, 0x3F7FFFFF), (0x7FC00000, 0)], tmp_path)
    assert results["flushed"][0] == 0
    assert results["kept"][0] == 0x00800000
    assert results["tf32"][1] == 0x7FFFE000


def test_memory_forms(tmp_path: Path) -> None:
    cases = Cases(["i64", "i64"])
    wide = "{ i64, i64 }"
    cases.body.append(f'  %v = call {wide} asm "ld.global.v2.u64 {{$0, $1}}, [$2];", "=l,=l,l"(ptr %in)')
    cases.add("v0", "i64", f"extractvalue {wide} %v, 0")
    cases.add("v1", "i64", f"extractvalue {wide} %v, 1")
    cases.add("byte", "i32", 'call i32 asm "ld.global.s8 $0, [$1+3];", "=r,l"(ptr %in)')
    cases.add("half", "i32", 'call i32 asm "{ .reg .u16 t; ld.u16 t, [$1+-2]; cvt.u32.u16 $0, t; }", "=r,l"(ptr %i1)')
    cases.body.append('  call void asm sideeffect "st.v4.b32 [$0], {1, $1, 3, 4};", "l,r"(ptr %scratch, i32 2)')
    cases.body.append('  call void asm sideeffect "red.add.u32 [$0+8], 10;", "l"(ptr %scratch)')
    cases.add("old", "i32", 'call i32 asm sideeffect "atom.inc.u32 $0, [$1+4], 1;", "=r,l"(ptr %scratch)')
    cases.add("low", "i64", "load i64, ptr %scratch")
    cases.body.append("  %upper = getelementptr i64, ptr %scratch, i64 1")
    cases.add("high", "i64", "load i64, ptr %upper")
    cases.body.insert(0, "  %scratch = alloca [2 x i64], align 16")
    results = cases.run([(0x8899AABBCCDDEEFF, 0x1122334455667788)], tmp_path)
    assert results == {
        "v0": [0x8899AABBCCDDEEFF],
        "v1": [0x1122334455667788],
        "byte": [0xFFFFFFCC],
        "half": [0x8899],
        "old": [2],
        "low": [0x0000000000000001],
        "high": [0x000000040000000D],
    }


def test_barriers_in_memory(tmp_path: Path) -> None:
    """An mbarrier of two arrivals: a phase ends with the second, and then the next one begins."""
    cases = Cases(["i32"])
    cases.body.append("  %bar = alloca i64, align 8")
    cases.body.append('  call void asm sideeffect "mbarrier.init.shared.b64 [$0], 2;", "l"(ptr %bar)')
    arrive = 'call i64 asm sideeffect "mbarrier.arrive.shared.b64 $0, [$1];", "=l,l"(ptr %bar)'
    test = (
        'call i32 asm sideeffect "{{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [$1], $2;'
        ' selp.u32 $0, 1, 0, p; }}",'
        ' "=r,l,l"(ptr %bar, i64 {})'
    )
    parity = (
        'call i32 asm sideeffect "{{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [$1], $2;'
        ' selp.u32 $0, 1, 0, p; }}",'
        ' "=r,l,r"(ptr %bar, i32 {})'
    )
    for phase in range(2):
        cases.body.append(f"  %t{phase} = {arrive}")
        cases.add(f"open {phase}", "i32", test.format(f"%t{phase}"))
        cases.add(f"open by parity {phase}", "i32", parity.format(phase))
        cases.body.append(f"  %u{phase} = {arrive}")
        cases.add(f"closed {phase}", "i32", test.format(f"%t{phase}"))
        cases.add(f"closed by parity {phase}", "i32", parity.format(phase))
    pending = 'call i32 asm "mbarrier.pending_count.b64 $0, $1;", "=r,l"(i64 %u1)'
    cases.add("pending", "i32", pending)
    results = cases.run([(0,)], tmp_path)
    assert {name: value for name, (value,) in results.items()} == {
        "open 0": 0,
        "open by parity 0": 0,
        "closed 0": 1,
        "closed by parity 0": 1,
        "open 1": 0,
        "open by parity 1": 0,
        "closed 1": 1,
        "closed by parity 1": 1,
        "pending": 1,
    }


TOKENS = [
    "add",
    "mov",
    "ld",
    "st",
    ".u32",
    ".f32",
    ".v2",
    ".global",
    " ",
    "$0",
    "$1",
    "$2",
    "%tid.x",
    "{",
    "}",
    "[",
    "]",
]
TOKENS += [
    "@",
    "!",
    "|",
    ",",
    ";",
    "0x",
    "12",
    "-",
    "+",
    ".reg",
    ".pred",
    "p",
    "L:",
    "bra",
    "/*",
    "*/",
    "//",
    "_",
    "0f3F800000",
    "<2>",
    "\\0A",
]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join), min_size=20, max_size=20))
def test_any_text_is_translated_or_refused(texts: list[str]) -> None:
    functions = [
        f'define i32 @f{n}(i32 %x) {{ %r = call i32 asm sideeffect "{text}", "=r,r,n"(i32 %x, i32 4)\n ret i32 %r }}'
        for n, text in enumerate(texts)
    ]
    done = translate("\n".join(functions), "inline-ptx")
    assert done.returncode == 0, done.stderr
    kept = {line.split("@")[1].split("(")[0] for line in done.stdout.splitlines() if line.startswith("define")}
    assert kept == {f"f{n}" for n in range(len(texts))}
    refused = {line.split(":")[0] for line in done.stderr.splitlines() if line.startswith("f")}
    assert done.stdout.count("call i32 asm") == len(refused)
