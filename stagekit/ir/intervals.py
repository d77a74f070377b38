"""What is known of an integer at compile time: an interval and a divisor. Also the analysis that finds it for values of the IR.

    thread index in a block of 256      0..255
    first thread of a warp              0..224, a multiple of 32
    their sum                           0..479

Interval and divisor describe the mathematical value, which is also the value in the machine as long as the interval fits
the dtype; `Interval.wrapped` keeps what holds after a wrap.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir import ops
from stagekit.ir.core import Block, Op, Value, walk
from stagekit.ir.ops import BinaryKind, CompareKind, UnaryKind
from stagekit.ir.types import Scalar


@frozen()
class Interval:
    """lo <= value <= hi, and `multiple` divides the value (0 divides only 0)."""

    lo: int
    hi: int
    multiple: int = 1

    @staticmethod
    def exactly(value: int) -> Interval:
        return Interval(value, value, abs(value))

    @staticmethod
    def of(dtype: DType) -> Interval:
        """Return the interval of all values of an integer dtype, or of bool."""
        return Interval(dtype.min, dtype.max)

    @property
    def constant(self) -> int | None:
        return self.lo if self.lo == self.hi else None

    def fits(self, dtype: DType) -> bool:
        """Return whether every value fits `dtype`."""
        return dtype.min <= self.lo and self.hi <= dtype.max

    def wrapped(self, dtype: DType) -> Interval:
        """Return what holds for the result in the machine, where this holds for the mathematical result."""
        if self.fits(dtype):
            return self
        if self.constant is not None:
            return Interval.exactly(dtype.wrap(self.lo))
        return Interval(dtype.min, dtype.max, self.multiple & -self.multiple or 1)

    def __or__(self, other: Interval) -> Interval:
        """Return what holds for a value of which one of the two holds."""
        return Interval(min(self.lo, other.lo), max(self.hi, other.hi), math.gcd(self.multiple, other.multiple))

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.lo + other.lo, self.hi + other.hi, math.gcd(self.multiple, other.multiple))

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.lo - other.hi, self.hi - other.lo, math.gcd(self.multiple, other.multiple))

    def __mul__(self, other: Interval) -> Interval:
        corners = (self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi)
        return Interval(min(corners), max(corners), self.multiple * other.multiple)


def binary(kind: BinaryKind, dtype: DType, a: Interval, b: Interval) -> Interval:
    """Return what is known of `a kind b` in the machine."""
    found = exact(kind, a, b)
    return Interval.of(dtype) if found is None else found.wrapped(dtype)


def exact(kind: BinaryKind, a: Interval, b: Interval) -> Interval | None:
    """Return what is known of the mathematical `a kind b`, which may be outside the dtype, or None."""
    return _RULES[kind](a, b)


def minuend(kind: UnaryKind, dtype: DType) -> int:
    """Return the number m of which `kind x` is `m - x`: -x is 0 - x, and ~x is -1 - x."""
    return 0 if kind is UnaryKind.NEG else -1 if dtype.is_signed else dtype.max


def compare(kind: CompareKind, a: Interval, b: Interval) -> bool | None:
    """Return the truth of `a kind b` if it is the same for all values of the two, else None."""
    if kind in _ANSWERS:
        return _ANSWERS[kind](a, b)
    answer = _ANSWERS[kind.opposite](a, b)
    return None if answer is None else not answer


def counted(start: Interval, stop: Interval, step: Interval) -> Interval:
    """Return what is known of the index in the body of a loop over `range(start, stop, step)`."""
    multiple = math.gcd(start.multiple, step.multiple) or 1
    if step.lo > 0:
        return Interval(start.lo, max(start.lo, stop.hi - 1), multiple)
    if step.hi < 0:
        return Interval(min(start.hi, stop.lo + 1), start.hi, multiple)
    return Interval(min(start.lo, stop.lo), max(start.hi, stop.hi), multiple)


# -- arithmetic -------------------------------------------------------------------------------------------------------


def _floor_divide(a: Interval, b: Interval) -> Interval | None:
    """Nothing is known where the divisor may be negative; x // 0 is 0."""
    if b.lo < 0:
        return None
    low, high = max(b.lo, 1), max(b.hi, 1)
    corners = [a.lo // low, a.lo // high, a.hi // low, a.hi // high, *([0] if b.lo == 0 else [])]
    divides = b.constant and a.multiple % b.constant == 0
    return Interval(min(corners), max(corners), a.multiple // b.lo if divides else 1)


def _modulo(a: Interval, b: Interval) -> Interval | None:
    """Nothing is known where the divisor may be negative; x % 0 is 0."""
    if b.lo < 0:
        return None
    if a.lo >= 0 and a.hi < b.lo:
        return a
    return Interval(0, max(b.hi - 1, 0), math.gcd(a.multiple, b.multiple))


def _and(a: Interval, b: Interval) -> Interval | None:
    if a.lo < 0 and b.lo < 0:
        return None
    return Interval(0, min(x.hi for x in (a, b) if x.lo >= 0), max(_power_of_two(a), _power_of_two(b)))


def _or(a: Interval, b: Interval) -> Interval | None:
    """Of `|` and of `^`: no bit is set above the highest of either operand."""
    if a.lo < 0 or b.lo < 0:
        return None
    return Interval(0, (1 << max(a.hi, b.hi).bit_length()) - 1, min(_power_of_two(a), _power_of_two(b)))


def _power_of_two(a: Interval) -> int:
    """Return the largest power of two known to divide the value (for 0, a large one)."""
    return a.multiple & -a.multiple or 1 << 64


def _shift_left(a: Interval, b: Interval) -> Interval | None:
    return a * Interval.exactly(1 << b.lo) if b.constant is not None and 0 <= b.lo < 64 else None


def _shift_right(a: Interval, b: Interval) -> Interval | None:
    if b.constant is None or not 0 <= b.lo < 64:
        return Interval(0, a.hi) if a.lo >= 0 else None
    return _floor_divide(a, Interval.exactly(1 << b.lo))


_RULES: dict[BinaryKind, Callable[[Interval, Interval], Interval | None]] = {
    BinaryKind.ADD: Interval.__add__,
    BinaryKind.SUB: Interval.__sub__,
    BinaryKind.MUL: Interval.__mul__,
    BinaryKind.FLOORDIV: _floor_divide,
    BinaryKind.MOD: _modulo,
    BinaryKind.AND: _and,
    BinaryKind.OR: _or,
    BinaryKind.XOR: _or,
    BinaryKind.SHL: _shift_left,
    BinaryKind.SHR: _shift_right,
}

# -- comparisons ------------------------------------------------------------------------------------------------------


def _is_less(a: Interval, b: Interval) -> bool | None:
    return True if a.hi < b.lo else False if a.lo >= b.hi else None


def _is_equal(a: Interval, b: Interval) -> bool | None:
    if a.hi < b.lo or b.hi < a.lo:
        return False
    return True if a.constant is not None and a.constant == b.constant else None


_ANSWERS: dict[CompareKind, Callable[[Interval, Interval], bool | None]] = {
    CompareKind.EQ: _is_equal,
    CompareKind.LT: _is_less,
    CompareKind.GT: lambda a, b: _is_less(b, a),
}

# -- values of the IR -------------------------------------------------------------------------------------------------

T = TypeVar("T")


def makers(block: Block) -> Mapping[Value, Op]:
    """Return the op that defines each value under `block`; for the index of a loop, the loop."""
    found = {result: op for op in walk(block) for result in op.results}
    found.update((op.loop_body.params[0], op) for op in walk(block) if isinstance(op, ops.For))
    return found


class IntegerAnalysis(ABC, Generic[T]):
    """What is known of each integer value, computed from its operands when it is first asked for.

    A subclass says what that is, by one method per kind of op. maker_of: gives the op that defines a value, or None.
    known: what was computed so far, and what is known from elsewhere.
    """

    def __init__(self, maker_of: Callable[[Value], Op | None]) -> None:
        self.maker_of = maker_of
        self.known: dict[Value, T] = {}

    def __getitem__(self, value: Value) -> T:
        if value not in self.known:
            is_integer = isinstance(value.type, Scalar) and value.type.dtype.is_integer
            maker = self.maker_of(value) if is_integer else None
            self.known[value] = self.unknown(value) if maker is None else self._of_result(value, maker)
        return self.known[value]

    def _of_result(self, value: Value, op: Op) -> T:
        dtype = value.type.dtype
        match op:
            case ops.Constant():
                return self.constant(int(op.value))
            case ops.Binary():
                return self.binary(op.kind, dtype, self[op.lhs], self[op.rhs])
            case ops.Unary():  # -x is 0 - x, and ~x is -1 - x
                return self.binary(BinaryKind.SUB, dtype, self.constant(minuend(op.kind, dtype)), self[op.operand])
            case ops.Cast() if not op.operand.type.dtype.is_float:
                return self.cast(op.operand.type.dtype, dtype, self[op.operand])
            case ops.Select():
                return self.select(op)
            case ops.If():
                return self.joined(value, [body.ops[-1].operands()[op.results.index(value)] for body in op.bodies()])
            case ops.IntrinsicOp():
                return self.intrinsic(op)
            case ops.For() if value is op.loop_body.params[0]:
                return self.counted(op)
        return self.unknown(value)

    @abstractmethod
    def unknown(self, value: Value) -> T:
        """Return what is known of a value that none of these ops defines."""

    @abstractmethod
    def constant(self, number: int) -> T: ...

    @abstractmethod
    def binary(self, kind: BinaryKind, dtype: DType, a: T, b: T) -> T: ...

    @abstractmethod
    def cast(self, source: DType, target: DType, a: T) -> T:
        """Return what is known of a cast to an integer dtype, from one or from bool."""

    @abstractmethod
    def select(self, op: ops.Select) -> T: ...

    def joined(self, value: Value, yielded: Sequence[Value]) -> T:
        """Return what is known of a result of an `if`, of which each branch yields one value."""
        return self.unknown(value)

    @abstractmethod
    def intrinsic(self, op: ops.IntrinsicOp) -> T: ...

    @abstractmethod
    def counted(self, op: ops.For) -> T:
        """Return what is known of the index in the body of a loop."""


class Intervals(IntegerAnalysis[Interval]):
    """The interval of each integer."""

    def unknown(self, value: Value) -> Interval:
        return Interval.of(value.type.dtype)

    def constant(self, number: int) -> Interval:
        return Interval.exactly(number)

    def binary(self, kind: BinaryKind, dtype: DType, a: Interval, b: Interval) -> Interval:
        return binary(kind, dtype, a, b)

    def cast(self, source: DType, target: DType, a: Interval) -> Interval:
        return a.wrapped(target)

    def select(self, op: ops.Select) -> Interval:
        return self[op.if_true] | self[op.if_false]

    def joined(self, value: Value, yielded: Sequence[Value]) -> Interval:
        return functools.reduce(Interval.__or__, [self[each] for each in yielded])

    def intrinsic(self, op: ops.IntrinsicOp) -> Interval:
        return Interval(*op.spec.bounds) if op.spec.bounds else self.unknown(op.results[0])

    def counted(self, op: ops.For) -> Interval:
        return counted(self[op.start], self[op.stop], self[op.step])
