"""Lowered llvm.nvvm intrinsics against exact references."""

from __future__ import annotations

import math
import re
import struct
import subprocess
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from tests.simt.lowered import Cases, tool, translate
from tests.simt.reference import (
    BF16,
    F16,
    F32,
    F64,
    ROUNDINGS,
    Format,
    add,
    divide,
    fma,
    multiply,
    patterns,
    square_root,
    tuples,
)

TYPES = {"f": ("float", F32), "d": ("double", F64), "f16": ("half", F16), "bf16": ("bfloat", BF16)}
M32 = 0xFFFFFFFF
M64 = (1 << 64) - 1


def same(f: Format, result: int, expected: int | None) -> bool:
    return f.is_nan(result) if expected is None else result == expected


def check(f: Format, results: list[int], records: list[tuple[int, ...]], expected: Callable[..., int | None]) -> None:
    wrong = [
        (record, result, want)
        for record, result in zip(records, results, strict=True)
        if not same(f, result, want := expected(*record))
    ]
    assert not wrong, [tuple(hex(v) if isinstance(v, int) else v for v in (*w[0], w[1], w[2])) for w in wrong[:5]]


@pytest.mark.parametrize("suffix", ["f", "d"])
def test_directed_roundings_are_exact(suffix: str, tmp_path: Path) -> None:
    type_, f = TYPES[suffix]
    cases = Cases([type_, type_, type_])
    for mode in ROUNDINGS:
        for op, uses in (
            ("add", [0, 1]),
            ("mul", [0, 1]),
            ("div", [0, 1]),
            ("fma", [0, 1, 2]),
            ("sqrt", [0]),
            ("rcp", [0]),
        ):
            cases.intrinsic(f"{op}.{mode}.{suffix}", type_, uses)
    records = tuples(patterns(f, 300, 1), 3, 300, 2)
    results = cases.run(records, tmp_path)
    one = f.bias << f.mantissa_bits
    for mode in ROUNDINGS:
        expected: dict[str, Callable[..., int | None]] = {
            "add": lambda x, y, _, m=mode: add(f, x, y, m),
            "mul": lambda x, y, _, m=mode: multiply(f, x, y, m),
            "div": lambda x, y, _, m=mode: divide(f, x, y, m),
            "fma": lambda x, y, z, m=mode: fma(f, x, y, z, m),
            "sqrt": lambda x, _, __, m=mode: square_root(f, x, m),
            "rcp": lambda x, _, __, m=mode: divide(f, one, x, m),
        }
        for op, reference in expected.items():
            check(f, results[f"{op}.{mode}.{suffix}"], records, reference)


def test_flush_and_saturate(tmp_path: Path) -> None:
    cases = Cases(["float", "float", "float"])
    for mode in ROUNDINGS:
        cases.intrinsic(f"add.{mode}.ftz.f", "float", [0, 1])
        cases.intrinsic(f"mul.{mode}.ftz.f", "float", [0, 1])
        cases.intrinsic(f"fma.{mode}.ftz.sat.f", "float")
        cases.intrinsic(f"add.{mode}.sat.f", "float", [0, 1])
    records = tuples(patterns(F32, 300, 3), 3, 300, 4)
    results = cases.run(records, tmp_path)
    one = F32.bias << F32.mantissa_bits

    def clamp(bits: int | None) -> int:
        if bits is None or bits & F32.sign:
            return 0
        return min(bits, one)

    def flushed(bits: int | None, exact: Callable[[], Fraction]) -> int | None:
        """As hardware does: what is subnormal is decided before rounding."""
        if bits is None or F32.is_infinite(bits):
            return bits
        return bits & F32.sign if abs(exact()) < Fraction(1, 1 << 126) else bits

    q, v = F32.flush, F32.value

    def added(x: int, y: int, mode: str) -> int | None:
        x, y = q(x), q(y)
        return flushed(add(F32, x, y, mode), lambda: v(x) + v(y))

    def multiplied(x: int, y: int, mode: str) -> int | None:
        x, y = q(x), q(y)
        return flushed(multiply(F32, x, y, mode), lambda: v(x) * v(y))

    def fused(x: int, y: int, z: int, mode: str) -> int | None:
        x, y, z = q(x), q(y), q(z)
        return flushed(fma(F32, x, y, z, mode), lambda: v(x) * v(y) + v(z))

    for mode in ROUNDINGS:
        check(F32, results[f"add.{mode}.ftz.f"], records, lambda x, y, _, m=mode: added(x, y, m))
        check(F32, results[f"mul.{mode}.ftz.f"], records, lambda x, y, _, m=mode: multiplied(x, y, m))
        check(F32, results[f"fma.{mode}.ftz.sat.f"], records, lambda x, y, z, m=mode: clamp(fused(x, y, z, m)))
        check(F32, results[f"add.{mode}.sat.f"], records, lambda x, y, _, m=mode: clamp(add(F32, x, y, m)))


@pytest.mark.parametrize("suffix", ["f16", "bf16"])
def test_half_fma_rounds_once(suffix: str, tmp_path: Path) -> None:
    type_, f = TYPES[suffix]
    cases = Cases([type_, type_, type_])
    cases.intrinsic(f"fma.rn.{suffix}", type_)
    cases.intrinsic(f"fma.rn.relu.{suffix}", type_)
    cases.declarations.add(f"declare {type_} @llvm.fma.{suffix}({type_}, {type_}, {type_})")
    cases.add("llvm.fma", type_, f"call {type_} @llvm.fma.{suffix}({type_} %a0, {type_} %a1, {type_} %a2)")
    # 1 + tiny, and products next to a tie that the addend decides.
    values = patterns(f, 600, 5)
    records = tuples(values, 3, 2500, 6)
    results = cases.run(records, tmp_path)
    check(f, results[f"fma.rn.{suffix}"], records, lambda x, y, z: fma(f, x, y, z, "rn"))
    check(f, results["llvm.fma"], records, lambda x, y, z: fma(f, x, y, z, "rn"))

    def relu(x: int, y: int, z: int) -> int | None:
        bits = fma(f, x, y, z, "rn")
        return 0 if bits is not None and bits & f.sign else bits

    check(f, results[f"fma.rn.relu.{suffix}"], records, relu)


def minimum(f: Format, x: int, y: int, is_max: bool, nan: bool, xorsign: bool, ftz: bool) -> int | None:
    if ftz:
        x, y = f.flush(x), f.flush(y)
    sign = (x ^ y) & f.sign
    if xorsign:
        x, y = x & ~f.sign, y & ~f.sign
    if f.is_nan(x) or f.is_nan(y):
        if nan or (f.is_nan(x) and f.is_nan(y)):
            return None
        result = y if f.is_nan(x) else x
    else:

        def order(bits: int) -> int:
            return -(bits & ~f.sign) - 1 if bits & f.sign else bits

        result = max(x, y, key=order) if is_max else min(x, y, key=order)
    return result | sign if xorsign else result


@pytest.mark.parametrize("suffix", ["f", "f16", "bf16"])
def test_minimum_and_maximum(suffix: str, tmp_path: Path) -> None:
    type_, f = TYPES[suffix]
    cases = Cases([type_, type_])
    variants = [
        (op, ftz, nan, xorsign)
        for op in ("fmin", "fmax")
        for ftz in (False, True)
        for nan in (False, True)
        for xorsign in (False, True)
    ]

    def name(op: str, ftz: bool, nan: bool, xorsign: bool) -> str:
        return op + ".ftz" * ftz + ".nan" * nan + ".xorsign.abs" * xorsign + "." + suffix

    for variant in variants:
        cases.intrinsic(name(*variant), type_)
    records = tuples(patterns(f, 100, 7), 2, 300, 8)
    results = cases.run(records, tmp_path)
    for op, ftz, nan, xorsign in variants:
        check(
            f,
            results[name(op, ftz, nan, xorsign)],
            records,
            lambda x, y, op=op, ftz=ftz, nan=nan, xorsign=xorsign: minimum(f, x, y, op == "fmax", nan, xorsign, ftz),
        )


def to_integer(f: Format, bits: int, width: int, signed: bool, mode: str) -> int:
    mask = (1 << width) - 1
    if f.is_nan(bits):
        return 0 if f.width <= 32 and width <= 32 else 1 << (width - 1)
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, mask)
    if f.is_infinite(bits):
        return (low if bits & f.sign else high) & mask
    value = f.value(bits)
    whole = {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}[mode](value)
    return min(max(whole, low), high) & mask


@pytest.mark.parametrize("source", ["f", "d"])
def test_float_to_integer_saturates(source: str, tmp_path: Path) -> None:
    type_, f = TYPES[source]
    cases = Cases([type_])
    targets = {"i": (32, True), "ui": (32, False), "ll": (64, True), "ull": (64, False)}
    for target, (width, _) in targets.items():
        for mode in ROUNDINGS:
            cases.intrinsic(f"{source}2{target}.{mode}", f"i{width}")
            if source == "f":
                cases.intrinsic(f"f2{target}.{mode}.ftz", f"i{width}")
    halves = [f.round(Fraction(n, 2), "rn") for n in range(-9, 10)]
    limits = [f.round(Fraction(s * (1 << n) + d), "rz") for n in (31, 32, 63, 64) for s in (-1, 1) for d in (-1, 0, 1)]
    records = [(bits,) for bits in [*halves, *limits, *patterns(f, 2000, 9)]]
    results = cases.run(records, tmp_path)
    for target, (width, signed) in targets.items():
        for mode in ROUNDINGS:
            for (bits,), plain in zip(records, results[f"{source}2{target}.{mode}"], strict=True):
                assert plain == to_integer(f, bits, width, signed, mode), (hex(bits), target, mode)
            if source == "f":
                for (bits,), flushed in zip(records, results[f"f2{target}.{mode}.ftz"], strict=True):
                    assert flushed == to_integer(f, f.flush(bits), width, signed, mode), (hex(bits), target, mode)


def test_integer_to_float_rounds_as_told(tmp_path: Path) -> None:
    cases = Cases(["i64", "i32"])
    for name, use in (("ll", 0), ("ull", 0), ("i", 1), ("ui", 1)):
        for mode in ROUNDINGS:
            cases.intrinsic(f"{name}2f.{mode}", "float", [use])
            cases.intrinsic(f"{name}2d.{mode}", "double", [use])
    values = [0, 1, M64, 1 << 63, (1 << 63) - 1, (1 << 63) + 1, (1 << 53) + 1, (1 << 24) + 1, (1 << 24) + 3, 0x7FFFFFBF]
    values += [value & M64 for value in patterns(F64, 500, 10)]
    records = [(value, value & M32) for value in values]
    results = cases.run(records, tmp_path)
    for name, use, width in (("ll", 0, 64), ("ull", 0, 64), ("i", 1, 32), ("ui", 1, 32)):
        for mode in ROUNDINGS:
            for suffix, f in (("f", F32), ("d", F64)):
                for record, result in zip(records, results[f"{name}2{suffix}.{mode}"], strict=True):
                    value = record[use]
                    if not name.startswith("u") and value >> (width - 1):
                        value -= 1 << width
                    assert result == f.round(Fraction(value), mode), (name, suffix, mode, value)


def convert(source: Format, target: Format, bits: int, mode: str) -> int | None:
    if source.is_nan(bits):
        return None
    sign = target.sign if bits & source.sign else 0
    if source.is_infinite(bits):
        return sign | target.infinity
    return target.round(source.value(bits), mode, sign)


def test_narrowing_conversions(tmp_path: Path) -> None:
    doubles = Cases(["double"])
    for mode in ROUNDINGS:
        doubles.intrinsic(f"d2f.{mode}", "float")
        doubles.intrinsic(f"d2f.{mode}.ftz", "float")
    records = [(bits,) for bits in patterns(F64, 500, 11)]
    records += [
        (struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<I", b & M32))[0]))[0] + d,)
        for b in patterns(F32, 500, 12)
        if not F32.is_nan(b)
        for d in (0, 1)
    ]
    results = doubles.run(records, tmp_path)

    def flushed(x: int, mode: str) -> int | None:
        bits = convert(F64, F32, x, mode)
        tiny = bits is not None and not F64.is_infinite(x) and abs(F64.value(x)) < Fraction(1, 1 << 126)
        return bits & F32.sign if tiny else bits

    for mode in ROUNDINGS:
        check(F32, results[f"d2f.{mode}"], records, lambda x, m=mode: convert(F64, F32, x, m))
        check(F32, results[f"d2f.{mode}.ftz"], records, lambda x, m=mode: flushed(x, m))

    floats = Cases(["float"])
    for mode in ("rn", "rz"):
        for satfinite in ("", ".satfinite"):
            floats.intrinsic(f"f2f16.{mode}{satfinite}", "half")
            floats.intrinsic(f"f2bf16.{mode}{satfinite}", "bfloat")
    floats.intrinsic("f2h.rn", "i16")
    floats.intrinsic("f2tf32.rna", "i32")
    records = [(bits,) for bits in patterns(F32, 1200, 13)]
    records += [(F32.round(F16.value(b) + F16.value(1) / 2, "rn"),) for b in range(0, 0x7C00, 97)]  # ties
    results = floats.run(records, tmp_path)
    for mode in ("rn", "rz"):
        for name, f in (("f16", F16), ("bf16", BF16)):
            check(f, results[f"f2{name}.{mode}"], records, lambda x, f=f, m=mode: convert(F32, f, x, m))

            def finite(x: int, f: Format = f, m: str = mode) -> int | None:
                bits = convert(F32, f, x, m)
                return bits - 1 if bits is not None and f.is_infinite(bits) else bits

            check(f, results[f"f2{name}.{mode}.satfinite"], records, finite)
    check(F16, results["f2h.rn"], records, lambda x: convert(F32, F16, x, "rn"))

    def tf32(x: int) -> int:
        bits = convert(F32, Format(8, 10), x, "rna")
        return x & 0xFFFFE000 if bits is None else bits << 13  # a NaN is cut, as hardware does

    for (bits,), result in zip(records, results["f2tf32.rna"], strict=True):
        assert result == tf32(bits), hex(bits)


FP8 = {"e4m3x2": (4, 3, 7, 0x7E), "e5m2x2": (5, 2, 15, 0x7B)}


def fp8_value(kind: str, bits: int) -> Fraction | None:
    _, mantissa_bits, bias, largest = FP8[kind]
    magnitude = bits & 0x7F
    if magnitude > largest:
        return None
    exponent = magnitude >> mantissa_bits
    mantissa = magnitude & ((1 << mantissa_bits) - 1) | (1 << mantissa_bits if exponent else 0)
    value = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
    return -value if bits & 0x80 else value


@pytest.mark.parametrize("kind", FP8)
def test_eight_bit_formats(kind: str, tmp_path: Path) -> None:
    largest = FP8[kind][3]
    back = Cases(["i16"])
    back.intrinsic(f"{kind}.to.f16x2.rn", "<2 x half>")
    codes = [(low | high << 8,) for low in range(256) for high in (low ^ 0x55,)]
    for (code,), result in zip(codes, back.run(codes, tmp_path)[f"{kind}.to.f16x2.rn"], strict=True):
        for lane in (0, 1):
            half = result >> (16 * lane) & 0xFFFF
            byte = code >> (8 * lane) & 0xFF
            value = fp8_value(kind, byte)
            if value is not None:
                assert F16.value(half) == value
                assert half >> 15 == byte >> 7
            elif kind == "e5m2x2" and byte & 0x7F == 0x7C:
                assert F16.is_infinite(half)
            else:
                assert F16.is_nan(half)

    forth = Cases(["float", "float"])
    forth.intrinsic(f"ff.to.{kind}.rn", "i16")
    records = tuples(
        patterns(F32, 200, 14)
        + [F32.round(v, "rn") for c in range(largest) if (v := fp8_value(kind, c)) is not None]
        + [F32.round((fp8_value(kind, c) + fp8_value(kind, c + 1)) / 2, "rn") for c in range(largest)],
        2,
        300,
        15,
    )
    finite = [(fp8_value(kind, code), code) for code in range(largest + 1)]

    @cache
    def nearest(bits: int) -> int:
        sign = bits >> 31 << 7
        if F32.is_nan(bits):
            return 0x7F
        if F32.is_infinite(bits):
            return sign | largest
        value = abs(F32.value(bits))
        return sign | min(finite, key=lambda entry: (abs(entry[0] - value), entry[1] & 1))[1]

    for (x, y), result in zip(records, forth.run(records, tmp_path)[f"ff.to.{kind}.rn"], strict=True):
        assert result == nearest(x) << 8 | nearest(y), (hex(x), hex(y))


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def find_nth_set(mask: int, base: int, offset: int) -> int:
    offset = signed(offset, 32)
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else M32
    position, count, step = base, abs(offset), 1 if offset > 0 else -1
    while 0 <= position < 32:
        if mask >> position & 1:
            count -= 1
            if count == 0:
                return position
        position += step
    return M32


def permute(x: int, y: int, selector: int, mode: str) -> int:
    data = (x | y << 32).to_bytes(8, "little")
    c = selector & 3
    indices = {
        "f4e": [c, c + 1, c + 2, c + 3],
        "b4e": [c, (c - 1) & 7, (c - 2) & 7, (c - 3) & 7],
        "rc8": [c] * 4,
        "ecl": [max(c, 0), max(c, 1), max(c, 2), 3],
        "ecr": [0, min(c, 1), min(c, 2), min(c, 3)],
        "rc16": [(c & 1) * 2, (c & 1) * 2 + 1] * 2,
    }
    if mode:
        return int.from_bytes(bytes(data[i] for i in indices[mode]), "little")
    result = 0
    for i in range(4):
        nibble = selector >> (4 * i) & 15
        byte = data[nibble & 7]
        result |= (byte if nibble < 8 else 0xFF * (byte >> 7)) << (8 * i)
    return result


def test_bit_operations(tmp_path: Path) -> None:
    cases = Cases(["i32", "i32", "i32"])
    reference: dict[str, Callable[[int, int, int], int]] = {}

    def case(name: str, uses: list[int], expected: Callable[[int, int, int], int], extra: str = "") -> None:
        cases.intrinsic(name, "i32", uses, extra)
        reference[name] = expected

    case("prmt", [0, 1, 2], lambda x, y, z: permute(x, y, z, ""))
    for mode in ("f4e", "b4e"):
        case(f"prmt.{mode}", [0, 1, 2], lambda x, y, z, m=mode: permute(x, y, z, m))
    for mode in ("rc8", "ecl", "ecr", "rc16"):
        case(f"prmt.{mode}", [0, 1], lambda x, y, z, m=mode: permute(x, 0, y, m))
    case("mulhi.i", [0, 1], lambda x, y, z: signed(x, 32) * signed(y, 32) >> 32 & M32)
    case("mulhi.ui", [0, 1], lambda x, y, z: x * y >> 32)
    case("mul24.i", [0, 1], lambda x, y, z: signed(x, 24) * signed(y, 24) & M32)
    case("mul24.ui", [0, 1], lambda x, y, z: (x & 0xFFFFFF) * (y & 0xFFFFFF) & M32)
    case("sad.i", [0, 1, 2], lambda x, y, z: abs(signed(x, 32) - signed(y, 32)) + z & M32)
    case("sad.ui", [0, 1, 2], lambda x, y, z: abs(x - y) + z & M32)
    case("fshl.clamp.i32", [0, 1, 2], lambda x, y, z: (x << 32 | y) << min(z, 32) >> 32 & M32)
    case("fshr.clamp.i32", [0, 1, 2], lambda x, y, z: (x << 32 | y) >> min(z, 32) & M32)
    case("flo.u.i32", [0], lambda x, y, z: x.bit_length() - 1 & M32, "i1 false")
    case("flo.s.i32", [0], lambda x, y, z: (~x & M32 if x >> 31 else x).bit_length() - 1 & M32, "i1 false")
    case("fns", [0, 1, 2], find_nth_set)

    def mask(x: int, y: int, clamp: bool) -> int:
        x, y = (min(x, 32), min(y, 32)) if clamp else (x & 31, y & 31)
        return ((1 << y) - 1) << x & M32

    case("bmsk.clamp", [0, 1], lambda x, y, z: mask(x, y, True))
    case("bmsk.wrap", [0, 1], lambda x, y, z: mask(x, y, False))

    def extended(x: int, y: int, is_signed: bool, clamp: bool) -> int:
        width = min(y, 32) if clamp else y & 31
        if width == 0:
            return 0
        return (signed(x, width) if is_signed else x & ((1 << width) - 1)) & M32

    for clamp in (True, False):
        mode = "clamp" if clamp else "wrap"
        case(f"sext.{mode}", [0, 1], lambda x, y, z, c=clamp: extended(x, y, True, c))
        case(f"zext.{mode}", [0, 1], lambda x, y, z, c=clamp: extended(x, y, False, c))

    def dot(x: int, y: int, z: int, x_sign: str, y_sign: str, width: int, offset: int) -> int:
        def part(value: int, bits: int, place: int, sign: str) -> int:
            field = value >> place & ((1 << bits) - 1)
            return signed(field, bits) if sign == "s" else field

        count = 32 // width
        return (
            z + sum(part(x, width, width * i, x_sign) * part(y, 8, 8 * i + offset, y_sign) for i in range(count))
        ) & M32

    for x_sign in "su":
        for y_sign in "su":
            case(f"idp4a.{x_sign}.{y_sign}", [0, 1, 2], lambda x, y, z, p=x_sign, q=y_sign: dot(x, y, z, p, q, 8, 0))
    source = patterns(F32, 200, 16) + list(range(34)) + [0x7FFFFFFF, 0x80000000, M32, 0x3210, 0x7654, 0xBA98]
    records = tuples(source[26:] + source[:26], 3, 3000, 17)
    records += [(0x80F00F01, base, offset & M32) for base in range(34) for offset in range(-9, 10)]
    results = cases.run(records, tmp_path)
    for name, expected in reference.items():
        for record, result in zip(records, results[name], strict=True):
            assert result == expected(*record), (name, [hex(v) for v in record], hex(result))


def test_approximations_are_close(tmp_path: Path) -> None:
    cases = Cases(["float", "float"])
    functions: dict[str, Callable[[float], float]] = {
        "ex2.approx.f32": lambda x: 2.0**x,
        "lg2.approx.f": math.log2,
        "sin.approx.f": math.sin,
        "cos.approx.f": math.cos,
        "rsqrt.approx.f": lambda x: 1 / math.sqrt(x),
        "sqrt.approx.f": math.sqrt,
        "rcp.approx.ftz.f": lambda x: 1 / x,
    }
    for name in functions:
        cases.intrinsic(name, "float", [0])
    cases.intrinsic("div.approx.f", "float")
    cases.intrinsic("div.full", "float")
    records = [(bits, 0x40400000) for bits in range(0x3A000000, 0x41000000, 0x13571)]
    results = cases.run(records, tmp_path)
    for name, function in functions.items():
        for (bits, _), result in zip(records, results[name], strict=True):
            expected = function(float(F32.value(bits)))
            assert abs(float(F32.value(result)) - expected) <= 2.0**-22 * max(abs(expected), 0.25), (name, hex(bits))
    for name in ("div.approx.f", "div.full"):
        assert results[name] == [divide(F32, x, y, "rn") for x, y in records]

    # A huge divisor gives 0, and NaN for an infinite dividend.
    huge = F32.round(Fraction(2) ** 127, "rn")
    edges = cases.run([(0x3F800000, huge), (0xBF800000, huge), (F32.infinity, huge), (0, F32.infinity)], tmp_path)
    assert edges["div.approx.f"][:2] == [0, F32.sign]
    assert F32.is_nan(edges["div.approx.f"][2])
    assert edges["div.approx.f"][3] == 0


def test_double_halves(tmp_path: Path) -> None:
    cases = Cases(["double", "i32", "i32"])
    cases.intrinsic("d2i.lo", "i32", [0])
    cases.intrinsic("d2i.hi", "i32", [0])
    cases.intrinsic("lohi.i2d", "double", [1, 2])
    records = [(0x123456789ABCDEF0, 0xDEADBEEF, 0x7FF00000)]
    assert cases.run(records, tmp_path) == {
        "d2i.lo": [0x9ABCDEF0],
        "d2i.hi": [0x12345678],
        "lohi.i2d": [0x7FF00000DEADBEEF],
    }


def test_every_pure_intrinsic_is_lowered() -> None:
    done = subprocess.run([tool(), "missing"], capture_output=True, text=True, timeout=60, check=True)
    # Textures, matrices and clusters, stochastic rounding, and what lowering of registers and address spaces does.
    others = (
        r"\.(tex|tld4|txq|suq|suld|sust|istypep|[wt]?mma|wgmma|ldmatrix|tcgen05|mapa|getctarank|clusterlaunchcontrol)\."
    )
    known = re.compile(
        others + r"|\.rs(\.|$)|\.isspacep\.|\.read\.ptx\.sreg\.|is_explicit_cluster|mbarrier\.pending|texsurf"
    )
    assert [name for name in done.stdout.split() if not known.search(name + ".")] == []


def test_reflection_answers_from_the_target() -> None:
    done = translate(
        """
@name = private addrspace(4) constant [12 x i8] c"__CUDA_ARCH\\00"
declare i32 @llvm.nvvm.reflect(ptr)
define i32 @f() "target-cpu"="sm_86" {
  %r = call i32 @llvm.nvvm.reflect(ptr addrspacecast (ptr addrspace(4) @name to ptr))
  ret i32 %r
}
"""
    )
    assert "ret i32 860" in done.stdout
