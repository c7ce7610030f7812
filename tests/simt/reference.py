"""Exact floating point on bit patterns, with fractions: what results must be, to the bit."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    exponent_bits: int
    mantissa_bits: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return bits & ~self.sign == self.infinity

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & ~self.sign < 1 << self.mantissa_bits

    def flush(self, bits: int) -> int:
        return bits & self.sign if self.is_subnormal(bits) else bits

    def value(self, bits: int) -> Fraction:
        """Of a finite pattern."""
        magnitude = bits & ~self.sign
        exponent = magnitude >> self.mantissa_bits
        mantissa = magnitude & ((1 << self.mantissa_bits) - 1)
        if exponent:
            mantissa |= 1 << self.mantissa_bits
        power = max(exponent, 1) - self.bias - self.mantissa_bits
        value = Fraction(mantissa) * Fraction(2) ** power
        return -value if bits & self.sign else value

    def round(self, exact: Fraction, mode: str, zero_sign: int = 0) -> int:
        """`exact` under rn, rz, rm or rp; a zero gets the sign bit `zero_sign`."""
        if exact == 0:
            return self.sign if zero_sign else 0
        negative = exact < 0
        magnitude = abs(exact)
        power = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1, 1 - self.bias)
        while power < self.bias and magnitude >= Fraction(2) ** (power + 1):
            power += 1
        scaled = magnitude / Fraction(2) ** (power - self.mantissa_bits)
        whole = math.floor(scaled)
        rest = scaled - whole
        up = {
            "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1 == 1),
            "rna": rest >= Fraction(1, 2),
            "rz": False,
            "rm": negative and rest > 0,
            "rp": not negative and rest > 0,
        }[mode]
        whole += up
        bits = whole + ((power + self.bias - 1) << self.mantissa_bits)
        if bits >= self.infinity:
            toward_zero = mode == "rz" or (mode == "rm" and not negative) or (mode == "rp" and negative)
            bits = self.infinity - 1 if toward_zero else self.infinity
        return bits | (self.sign if negative else 0)


F32 = Format(8, 23)
F64 = Format(11, 52)
F16 = Format(5, 10)
BF16 = Format(8, 7)
ROUNDINGS = ("rn", "rz", "rm", "rp")


def add(f: Format, x: int, y: int, mode: str) -> int | None:
    """Sum of two patterns; None for NaN."""
    if f.is_nan(x) or f.is_nan(y):
        return None
    if f.is_infinite(x) or f.is_infinite(y):
        if f.is_infinite(x) and f.is_infinite(y) and x != y:
            return None
        return x if f.is_infinite(x) else y
    exact = f.value(x) + f.value(y)
    both_zero = not x & ~f.sign and not y & ~f.sign
    negative_zero = x == y == f.sign if both_zero and x == y else mode == "rm"
    return f.round(exact, mode, negative_zero)


def multiply(f: Format, x: int, y: int, mode: str) -> int | None:
    sign = (x ^ y) & f.sign
    if f.is_nan(x) or f.is_nan(y):
        return None
    if f.is_infinite(x) or f.is_infinite(y):
        return None if not x & ~f.sign or not y & ~f.sign else sign | f.infinity
    return f.round(f.value(x) * f.value(y), mode, sign)


def divide(f: Format, x: int, y: int, mode: str) -> int | None:
    sign = (x ^ y) & f.sign
    if f.is_nan(x) or f.is_nan(y) or (f.is_infinite(x) and f.is_infinite(y)):
        return None
    if f.is_infinite(x):
        return sign | f.infinity
    if f.is_infinite(y):
        return sign
    if not y & ~f.sign:
        return None if not x & ~f.sign else sign | f.infinity
    return f.round(f.value(x) / f.value(y), mode, sign)


def fma(f: Format, x: int, y: int, z: int, mode: str) -> int | None:
    if f.is_nan(x) or f.is_nan(y) or f.is_nan(z):
        return None
    sign = (x ^ y) & f.sign
    if f.is_infinite(x) or f.is_infinite(y):
        if not x & ~f.sign or not y & ~f.sign:
            return None
        product = sign | f.infinity
        return None if f.is_infinite(z) and z != product else product
    if f.is_infinite(z):
        return z
    product = f.value(x) * f.value(y)
    exact = product + f.value(z)
    both_zero = product == 0 and not z & ~f.sign
    negative_zero = sign != 0 if both_zero and sign == z & f.sign else mode == "rm"
    return f.round(exact, mode, negative_zero)


def square_root(f: Format, x: int, mode: str) -> int | None:
    if f.is_nan(x):
        return None
    if not x & ~f.sign:
        return x
    if x & f.sign:
        return None
    if x == f.infinity:
        return x
    value = f.value(x)
    scale = 1 << 700  # far more bits than the result has: the root lies strictly between its floor and the next
    root = math.isqrt(value.numerator * scale * scale // value.denominator)
    exact = Fraction(root, scale)
    if exact * exact != value:
        exact += Fraction(1, 4 * scale)
    return f.round(exact, mode)


def patterns(f: Format, count: int, seed: int) -> list[int]:
    """Edge cases of a format and random patterns."""
    one = f.bias << f.mantissa_bits
    edges = [
        0,
        1,
        (1 << f.mantissa_bits) - 1,
        1 << f.mantissa_bits,
        one,
        one + 1,
        one - 1,
        one + (1 << f.mantissa_bits),
    ]
    edges += [
        f.infinity - 1,
        f.infinity,
        f.infinity + 1,
        f.infinity | (1 << (f.mantissa_bits - 1)),
        one | 1 << f.mantissa_bits - 1,
    ]
    edges += [bits | f.sign for bits in edges]
    source = random.Random(seed)
    return edges + [source.getrandbits(f.width) for _ in range(count)]


def tuples(values: Sequence[int], arity: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """All pairs of the first 26 values (of the edges), or random tuples of all of them."""
    source = random.Random(seed)

    def grid() -> Iterator[tuple[int, ...]]:
        edges = values[:26]
        for x in edges:
            for y in edges:
                yield (x, y, *(source.choice(edges) for _ in range(arity - 2)))[:arity]

    return [*grid(), *(tuple(source.choice(values) for _ in range(arity)) for _ in range(count))]
