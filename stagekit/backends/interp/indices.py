"""Which integers must be exact, because they become the index of an access, and by which ops they get there.

    %f = mul %row, %pitch              # wraps
    %q = floordiv %f, %width           # %f must be exact: the quotient is an index
    %c = and %f, %thirty_one           # for this it need not be: the low bits of a wrapped product are right
    %p = offset %A, %q                 # and so is what `and` and a power of two take of a sum, a product or a shift

Backwards from each move of a pointer: through `+ - * << |`, conversions, `min`, `max`, choices and loops, whatever the dtype.
Also through `//`, `>>` and `%`, unless what they reduce is a hash, which is meant to wrap. A hash is what a `^` has mixed, a
product with an odd constant of at least 2**16 or that a loop forms of itself, and every unsigned number of which a `%` is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from stagekit.forks import cached_property
from stagekit.intrinsics import by_name
from stagekit.ir import Block, Function, Op, Scalar, Value, flow, ops, walk
from stagekit.ir.intervals import Interval, Intervals, exact, makers
from stagekit.ir.ops import BinaryKind, UnaryKind


class _Way(IntEnum):
    """What lies between a value and the address that it becomes."""

    DIRECT = 0
    SHIFTED = 1  # a `>>`, or a `//` by a power of two
    REDUCED = 2  # another `//`
    REMAINDER = 3  # a `%`
    LOW_BITS = 4  # a mask, or a `%` by a power of two: only the low bits matter

    def past(self, step: _Way) -> _Way:
        """Return what lies between the operand of a `step` and the address, where this lies behind its result."""
        if self is _Way.LOW_BITS and step in (_Way.REDUCED, _Way.REMAINDER):
            return step  # the low bits of a quotient need all bits of the dividend
        return max(self, step)


_Step = tuple[Value, Value, _Way]  # from an operand to a result
_Origin = tuple[Value, _Way, Op]  # an operand, and the op that reads it

_DIVISIONS = {
    (BinaryKind.FLOORDIV, False): _Way.REDUCED,
    (BinaryKind.FLOORDIV, True): _Way.SHIFTED,
    (BinaryKind.MOD, False): _Way.REMAINDER,
    (BinaryKind.MOD, True): _Way.LOW_BITS,
}
"""By the op, and whether it divides by a constant power of two."""

_WRAPPING = (BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL, BinaryKind.SHL)
_DIVIDING = (BinaryKind.FLOORDIV, BinaryKind.MOD, BinaryKind.SHR)
_MIXING = (*_WRAPPING, BinaryKind.OR, BinaryKind.XOR, BinaryKind.SHR)
_BOUNDS = tuple(map(by_name, ("minimum", "maximum", "abs")))
_NARROW_BITS = 32
_LEAST_MULTIPLIER = 1 << 16  # of a hash: primes, golden ratios, multipliers of generators


def is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer


def is_narrow(value: Value) -> bool:
    """Return whether ordinary numbers fill the dtype. Bounds of 64 bits are not looked at: it would cost more than it finds."""
    return bool(value.type.dtype.bits <= _NARROW_BITS)


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
    nearer to an address, or hold an index against it.
    """

    def __init__(self, fn: Function) -> None:
        self.makers = makers(fn.body)
        self._intervals = Intervals(self.makers.get)
        self._exact: dict[Value, Interval | None] = {}
        self._body = fn.body
        origins: dict[Value, list[_Origin]] = {}
        for op in walk(fn.body):
            for source, target, way in self._steps(op):
                origins.setdefault(target, []).append((source, way, op))
        self._ways: dict[Value, _Way] = {}
        self._readers: dict[Value, dict[Op, None]] = {}
        self._trace([(op.index, _Way.DIRECT, op) for op in walk(fn.body) if isinstance(op, ops.Offset)], origins)
        indices = frozenset(self._ways)
        self._trace(list(self._bounds(fn.body)), origins)
        self.users = {value: tuple(found) for value, found in self._readers.items()}
        exact = (v for v, way in self._ways.items() if way is not _Way.LOW_BITS and (v in indices or is_narrow(v)))
        self.wraps = frozenset(v for v in exact if self._may_wrap(v))

    def _trace(self, pending: list[_Origin], origins: Mapping[Value, Sequence[_Origin]]) -> None:
        """Note what must be exact because of the `pending` values, these included, and who reads it."""
        while pending:
            value, way, op = pending.pop()
            if not self._matters(value, way):
                continue
            self._readers.setdefault(value, {}).update(dict.fromkeys(_readers(op, value)))
            if way < self._ways.get(value, len(_Way)):
                self._ways[value] = way
                pending.extend((source, way.past(step), user) for source, step, user in origins.get(value, ()))

    def _bounds(self, body: Block) -> Iterator[_Origin]:
        """Yield what indices are compared with, and the quotients and remainders among indices that are compared."""
        for op in walk(body):
            if isinstance(op, ops.Compare):
                for value, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
                    is_bound = other in self._ways and value not in self._ways
                    is_part = value in self._ways and self._is_made_by(value, *_DIVIDING)
                    if is_bound or is_part:
                        yield value, self._ways.get(value, _Way.DIRECT), op

    @cached_property
    def _mixing(self) -> flow.Sources:
        return flow.sources(self._body, _mixing)

    def _steps(self, op: Op) -> Iterator[_Step]:
        """Yield the operands of `op` that must be exact if a result must be."""
        match op:
            case ops.Binary(kind=BinaryKind.SHR):  # `x << 8 >> 24` takes bits out of a word
                yield op.lhs, op.result, _Way.LOW_BITS if self._is_made_by(op.lhs, BinaryKind.SHL) else _Way.SHIFTED
            case ops.Binary(kind=BinaryKind.FLOORDIV | BinaryKind.MOD):
                by_bits = _is_power_of_two(self._constant(op.rhs))
                yield op.lhs, op.result, _DIVISIONS[op.kind, by_bits]
                yield op.rhs, op.result, _Way.DIRECT
            case ops.Binary(kind=BinaryKind.AND):
                for value, mask in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
                    yield value, op.result, _Way.DIRECT if self._keeps_high_bits(mask) else _Way.LOW_BITS
            case ops.Binary(kind=BinaryKind.OR):
                if not any(self._is_made_by(value, BinaryKind.SHR) for value in op.operands()):  # a rotation loses none
                    yield from ((value, op.result, _Way.DIRECT) for value in op.operands())
            case ops.IntrinsicOp() if op.spec in _BOUNDS:
                yield from ((value, op.result, _Way.DIRECT) for value in op.args)
            case ops.For():
                yield from ((bound, op.loop_body.params[0], _Way.DIRECT) for bound in (op.start, op.stop, op.step))
            case ops.Cast():
                yield op.operand, op.result, _Way.LOW_BITS if self._takes_bits(op) else _Way.DIRECT
            case ops.Binary() | ops.Unary():
                yield from ((value, op.result, _Way.DIRECT) for value in judged_with(op))
        yield from ((source, target, _Way.DIRECT) for source, target in flow.copies(op))

    def _matters(self, value: Value, way: _Way) -> bool:
        if not is_integer(value) or (way is _Way.REMAINDER and not value.type.dtype.is_signed):
            return False
        return way in (_Way.DIRECT, _Way.LOW_BITS) or not self._is_hash(value)

    # -- what is known of a value -------------------------------------------------------------------------------------

    def _constant(self, value: Value) -> int | None:
        return self._intervals[value].constant

    def _is_made_by(self, value: Value, *kinds: BinaryKind) -> bool:
        op = self.makers.get(value)
        return isinstance(op, ops.Binary) and op.kind in kinds

    def _keeps_high_bits(self, mask: Value) -> bool:
        """Return whether `& mask` rounds down, as `& ~31` and `& -n` do: then it needs all the bits of the other operand."""
        constant, maker = self._constant(mask), self.makers.get(mask)
        if constant is None:
            return isinstance(maker, ops.Unary)
        return _is_power_of_two(-constant % (1 << mask.type.dtype.bits))

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
        return self._is_made_by(op.operand, BinaryKind.SHR) or self._is_hash(op.operand)

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
