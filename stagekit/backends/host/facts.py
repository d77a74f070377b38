"""What is known of an integer before it runs: a range and a divisor. Also carries the operations on such knowledge.

    thread index in a block of 256      0..255
    first thread of a warp              0..224, a multiple of 32

Range and divisor describe the mathematical value, which is also the value in the machine as long as the range fits the
dtype; `wrapped` forgets what a wrap destroys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from stagekit.dtypes import DType, int32
from stagekit.ir import BinaryKind


@dataclass(frozen=True, slots=True)
class Facts:
    """lo <= value <= hi, and `multiple` divides it (0: the value is 0)."""

    lo: int
    hi: int
    multiple: int = 1

    @property
    def constant(self) -> int | None:
        return self.lo if self.lo == self.hi else None

    @property
    def is_narrow(self) -> bool:
        """Does every possible value fit a signed 32-bit integer?"""
        return int32.min <= self.lo and self.hi <= int32.max


def exactly(value: int) -> Facts:
    return Facts(value, value, abs(value))


def anything(dtype: DType) -> Facts:
    return Facts(dtype.min, dtype.max)


def fits(facts: Facts, dtype: DType) -> bool:
    return dtype.min <= facts.lo and facts.hi <= dtype.max


def wrap(value: int, dtype: DType) -> int:
    """`value` modulo 2**bits, in the range of `dtype`."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value > dtype.max else value


def wrapped(facts: Facts, dtype: DType) -> Facts:
    """`facts` of a mathematical result, as they hold for the result in the machine."""
    if fits(facts, dtype):
        return facts
    if facts.constant is not None:
        return exactly(wrap(facts.lo, dtype))
    return Facts(dtype.min, dtype.max, facts.multiple & -facts.multiple or 1)


def union(a: Facts, b: Facts) -> Facts:
    return Facts(min(a.lo, b.lo), max(a.hi, b.hi), math.gcd(a.multiple, b.multiple))


def add(a: Facts, b: Facts) -> Facts:
    return Facts(a.lo + b.lo, a.hi + b.hi, math.gcd(a.multiple, b.multiple))


def subtract(a: Facts, b: Facts) -> Facts:
    return Facts(a.lo - b.hi, a.hi - b.lo, math.gcd(a.multiple, b.multiple))


def multiply(a: Facts, b: Facts) -> Facts:
    corners = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
    return Facts(min(corners), max(corners), a.multiple * b.multiple)


def _floor_divide(a: Facts, b: Facts) -> Facts | None:
    if b.lo <= 0:
        return None
    corners = (a.lo // b.lo, a.lo // b.hi, a.hi // b.lo, a.hi // b.hi)
    divides = b.constant is not None and a.multiple % b.lo == 0
    return Facts(min(corners), max(corners), a.multiple // b.lo if divides else 1)


def _modulo(a: Facts, b: Facts) -> Facts | None:
    if b.lo <= 0:
        return None
    if a.lo >= 0 and a.hi < b.lo:
        return a
    return Facts(0, b.hi - 1, math.gcd(a.multiple, b.multiple))


def _and(a: Facts, b: Facts) -> Facts | None:
    if a.lo < 0 and b.lo < 0:
        return None
    return Facts(0, min(x.hi for x in (a, b) if x.lo >= 0), max(_power_of_two(a), _power_of_two(b)))


def _or(a: Facts, b: Facts) -> Facts | None:
    """Also exclusive or: no bit above the highest of either."""
    if a.lo < 0 or b.lo < 0:
        return None
    return Facts(0, (1 << max(a.hi, b.hi).bit_length()) - 1, min(_power_of_two(a), _power_of_two(b)))


def _power_of_two(facts: Facts) -> int:
    """The largest power of two known to divide the value (of 0: a large one)."""
    return facts.multiple & -facts.multiple or 1 << 64


def _shift_left(a: Facts, b: Facts) -> Facts | None:
    return multiply(a, exactly(1 << b.lo)) if b.constant is not None and 0 <= b.lo < 64 else None


def _shift_right(a: Facts, b: Facts) -> Facts | None:
    if b.constant is None or not 0 <= b.lo < 64:
        return Facts(0, a.hi) if a.lo >= 0 else None
    return _floor_divide(a, exactly(1 << b.lo))


_RULES: dict[BinaryKind, Callable[[Facts, Facts], Facts | None]] = {
    BinaryKind.ADD: add,
    BinaryKind.SUB: subtract,
    BinaryKind.MUL: multiply,
    BinaryKind.FLOORDIV: _floor_divide,
    BinaryKind.MOD: _modulo,
    BinaryKind.AND: _and,
    BinaryKind.OR: _or,
    BinaryKind.XOR: _or,
    BinaryKind.SHL: _shift_left,
    BinaryKind.SHR: _shift_right,
}


def binary(kind: BinaryKind, a: Facts, b: Facts) -> Facts | None:
    """What is known of the mathematical `a kind b`, perhaps outside the dtype's range; None: nothing."""
    return _RULES[kind](a, b)
