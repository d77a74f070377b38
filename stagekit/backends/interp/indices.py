"""Which integers must be exact, because they become the index of an access, and by which ops they get there.

    %f = mul %row, %pitch              # wraps
    %q = floordiv %f, %width           # %f must be exact: the quotient is an index
    %c = and %f, %thirty_one           # for this it need not be: the low bits of a wrapped product are right
    %p = offset %A, %q

Backwards from each move of a pointer: through `+ - * << |`, conversions, `min`, `max`, choices and loops, whatever the dtype.
Also through `//`, `>>` and `%`, unless what they reduce is a hash, which is meant to wrap. A hash is what a `^` has mixed, a
product with an odd constant of at least 2**16 or that a loop forms of itself, and every unsigned number of which a `%` is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import cached_property

from stagekit.ir import Function, Op, Scalar, Value, flow, ops, walk
from stagekit.ir.intervals import Interval, Intervals, exact, makers
from stagekit.ir.ops import BinaryKind, UnaryKind


class _Way(IntEnum):
    """What lies between a value and the address that it becomes."""

    DIRECT = 0
    REDUCED = 1  # a `//` or `>>`
    REMAINDER = 2  # a `%`


_Step = tuple[Value, Value, _Way]  # from an operand to a result

_WRAPPING = (BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL, BinaryKind.SHL)
_MIXING = (*_WRAPPING, BinaryKind.OR, BinaryKind.XOR, BinaryKind.SHR)
_BOUNDS = ("minimum", "maximum", "abs")
_LEAST_MULTIPLIER = 1 << 16  # of a hash: primes, golden ratios, multipliers of generators


def is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer


def may_wrap(op: Op | None) -> bool:
    """Return whether `op` is arithmetic or a conversion of integers, whose exact result may not fit."""
    match op:
        case ops.Binary():
            return op.kind in _WRAPPING and is_integer(op.lhs)
        case ops.Unary():
            return op.kind is UnaryKind.NEG
        case ops.Cast():
            return is_integer(op.operand) and is_integer(op.result)
    return False


def judged_with(op: Op) -> tuple[Value, ...]:
    """Return the operands that may have wrapped, since only the result of `op` counts: `i - 1 + n` is right whatever `i - 1` is.

    These are right modulo 2**bits, and so is the result. Not so an amount to shift by, and what becomes a number of more bits.
    """
    if not may_wrap(op) or (isinstance(op, ops.Cast) and op.result.type.dtype.bits > op.operand.type.dtype.bits):
        return ()
    return op.operands()[:1] if isinstance(op, ops.Binary) and op.kind is BinaryKind.SHL else op.operands()


class Indices:
    """What must be exact in one function.

    wraps: the results of arithmetic that may leave their dtype. users: of each value that must be exact, the ops that bring it
    nearer to an address.
    """

    def __init__(self, fn: Function) -> None:
        self.makers = makers(fn.body)
        self._intervals = Intervals(self.makers.get)
        self._exact: dict[Value, Interval | None] = {}
        self._body = fn.body
        origins: dict[Value, list[tuple[Value, _Way, Op]]] = {}
        pending: list[tuple[Value, _Way, Op]] = []
        for op in walk(fn.body):
            if isinstance(op, ops.Offset):
                pending.append((op.index, _Way.DIRECT, op))
            for source, target, way in self._steps(op):
                origins.setdefault(target, []).append((source, way, op))
        ways: dict[Value, _Way] = {}
        readers: dict[Value, dict[Op, None]] = {}
        while pending:
            value, way, op = pending.pop()
            if not self._matters(value, way):
                continue
            readers.setdefault(value, {}).update(dict.fromkeys(_readers(op, value)))
            if way < ways.get(value, len(_Way)):
                ways[value] = way
                pending.extend((source, max(way, step), user) for source, step, user in origins.get(value, ()))
        self.users = {value: tuple(found) for value, found in readers.items()}
        self.wraps = frozenset(v for v in ways if self._may_wrap(v))

    @cached_property
    def _mixing(self) -> flow.Sources:
        return flow.sources(self._body, _mixing)

    def _steps(self, op: Op) -> Iterator[_Step]:
        """Yield the operands of `op` that must be exact if a result must be."""
        match op:
            case ops.Binary(kind=BinaryKind.FLOORDIV | BinaryKind.SHR | BinaryKind.MOD as kind):
                is_mask = kind is BinaryKind.MOD and _is_power_of_two(self._constant(op.rhs))
                way = _Way.REMAINDER if kind is BinaryKind.MOD else _Way.REDUCED
                yield from [] if is_mask else [(op.lhs, op.result, way)]
                yield from [] if kind is BinaryKind.SHR else [(op.rhs, op.result, _Way.DIRECT)]
            case ops.Binary(kind=BinaryKind.AND):
                pairs = ((op.lhs, op.rhs), (op.rhs, op.lhs))
                yield from ((value, op.result, _Way.DIRECT) for value, mask in pairs if self._keeps_high_bits(mask))
            case ops.Binary(kind=BinaryKind.OR) if not self._is_rotation(op):
                yield from ((value, op.result, _Way.DIRECT) for value in (op.lhs, op.rhs))
            case ops.IntrinsicOp() if op.spec.name in _BOUNDS:
                yield from ((value, op.result, _Way.DIRECT) for value in op.args)
            case ops.For():
                yield op.start, op.loop_body.params[0], _Way.DIRECT
            case ops.Cast() if not self._takes_bits(op):
                yield op.operand, op.result, _Way.DIRECT
            case ops.Binary() | ops.Unary():
                yield from ((value, op.result, _Way.DIRECT) for value in judged_with(op))
        yield from ((source, target, _Way.DIRECT) for source, target in flow.copies(op))

    def _matters(self, value: Value, way: _Way) -> bool:
        if not is_integer(value) or (way is _Way.REMAINDER and not value.type.dtype.is_signed):
            return False
        return way is _Way.DIRECT or not self._is_hash(value)

    # -- what is known of a value -------------------------------------------------------------------------------------

    def _constant(self, value: Value) -> int | None:
        return self._intervals[value].constant

    def _keeps_high_bits(self, mask: Value) -> bool:
        """Return whether `& mask` rounds down, as `& ~31` and `& -n` do: then it needs all the bits of the other operand."""
        constant, maker = self._constant(mask), self.makers.get(mask)
        if constant is None:
            return isinstance(maker, ops.Unary)
        return _is_power_of_two(-constant % (1 << mask.type.dtype.bits))

    def _is_rotation(self, op: ops.Binary) -> bool:
        """Return whether this is `x << k | x >> bits - k`, which loses no bits."""
        operands = (self.makers.get(value) for value in op.operands())
        return any(isinstance(each, ops.Binary) and each.kind is BinaryKind.SHR for each in operands)

    def _is_hash(self, value: Value) -> bool:
        return any(self._mixes(self.makers.get(each)) for each in flow.upstream([value], self._mixing))

    def _mixes(self, op: Op | None) -> bool:
        match op:
            case ops.Binary(kind=BinaryKind.XOR):
                return True
            case ops.Binary(kind=BinaryKind.MUL):
                factors = (self._constant(value) or 0 for value in op.operands())
                is_large = any(abs(factor) >= _LEAST_MULTIPLIER and factor % 2 for factor in factors)
                return is_large or op.result in flow.upstream(op.operands(), self._mixing)
        return False

    def _may_wrap(self, value: Value) -> bool:
        """Return whether the exact value may not fit its dtype, and is not meant to."""
        op = self.makers.get(value)
        if op is None or not may_wrap(op) or self._takes_bits(op):
            return False
        found = self._exactly(value)
        return found is None or not found.fits(value.type.dtype)

    def _takes_bits(self, op: Op) -> bool:
        """Return whether `op` is meant to drop bits, as `(key >> 8).to(uint8)` and the conversion of a hash do."""
        if not isinstance(op, ops.Cast) or op.result.type.dtype.is_signed or not judged_with(op):
            return False
        maker = self.makers.get(op.operand)
        is_shifted = isinstance(maker, ops.Binary) and maker.kind is BinaryKind.SHR
        return is_shifted or self._is_hash(op.operand)

    def _exactly(self, value: Value) -> Interval | None:
        """Return in what interval the value would lie if nothing wrapped, or None."""
        if value not in self._exact:
            self._exact[value] = self._exact_result(self.makers.get(value), value)
        return self._exact[value]

    def _exact_result(self, op: Op | None, value: Value) -> Interval | None:
        if op is None or not may_wrap(op):
            return self._intervals[value]
        judged = judged_with(op)
        operands = [self._exactly(each) if each in judged else self._intervals[each] for each in op.operands()]
        first, last = operands[0], operands[-1]
        if first is None or last is None or isinstance(op, ops.Cast):
            return first
        return (
            exact(op.kind, first, last)
            if isinstance(op, ops.Binary)
            else exact(BinaryKind.SUB, Interval.exactly(0), last)
        )


def _readers(op: Op, value: Value) -> Iterator[Op]:
    """Yield `op` and the terminators of its bodies, of those that read `value`."""
    return (each for each in (op, *(body.ops[-1] for body in op.bodies())) if value in each.operands())


def _mixing(op: Op) -> Iterator[flow.Edge]:
    """Yield the operands whose bits a hash mixes."""
    if isinstance(op, ops.Unary | ops.Cast) or (isinstance(op, ops.Binary) and op.kind in _MIXING):
        yield from ((value, op.result) for value in op.operands())
    yield from flow.copies(op)


def _is_power_of_two(number: int | None) -> bool:
    return number is not None and number > 0 and number & (number - 1) == 0
