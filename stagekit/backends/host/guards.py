"""Comparisons that come out alike in every thread of a row of blocks. They are decided once for the row, whose code then has
none.

    i = block_idx * 256 + thread_idx        in blocks 3 to 66: i is 768 to 17151
    if i < n                                a guard: it holds in all these threads if 17151 < n
    max(i - 1, 0)                           a clamp: its `0 > i - 1` is false in all of them if 0 <= 767

`decide` follows each integer of the kernel as two scalars, the least and the greatest value that it has in the row (`Bounds`).
Of a comparison whose operands have such bounds, it writes the test on the bounds that tells the outcome. The row's entry runs
these tests; if all succeed, it runs code without the comparisons. Integers without bounds, and those that might wrap, are not
followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stagekit.backends.host.compute import scalar_compare
from stagekit.backends.host.forms import Form, Uniform, known, number
from stagekit.backends.host.linear import extended_scalar, scalar
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir import BinaryKind, CompareKind, Function, Native, Op, Scalar, Value, intervals, ops, walk
from stagekit.ir.intervals import IntegerAnalysis, Interval, makers
from stagekit.ir.ops import BELOW

MAX_GUARDED_OPS = 80  # a larger kernel is not written twice: its guards cost little beside the rest
MAX_CLAMPED_OPS = 320  # without its clamps, it addresses neighbours: one vector access instead of one per lane
MAX_STRAIGHT_OPS = 700  # without loops, as in rows that fit a tile, each guard is a few instructions beside a few


@frozen()
class Bounds:
    """low <= value <= high in every thread of the row. The same object twice: one value for all of them."""

    low: Uniform
    high: Uniform

    @property
    def is_point(self) -> bool:
        return self.low is self.high


def _point(value: Uniform) -> Bounds:
    return Bounds(value, value)


@frozen()
class Decided:
    """outcomes: of comparisons, in every thread of the row, if the scalar `condition` holds."""

    outcomes: Mapping[Value, bool]
    condition: str


@frozen()
class RowSpan:
    """The threads of a row of blocks. block: threads per axis; blocks: the range of block indices per axis."""

    block: tuple[int, int, int]
    blocks: tuple[Bounds, Bounds, Bounds]
    grid: tuple[Uniform, ...]


def decide(w: Writer, fn: Function, params: Mapping[Value, Form], span: RowSpan) -> Decided | None:
    """What can be asked for a whole row, and the code that asks; None if that is nothing."""
    size = len(walk(fn.body))
    is_straight = not [op for op in walk(fn.body) if isinstance(op, ops.For | ops.While)]
    if size > (MAX_STRAIGHT_OPS if is_straight else MAX_CLAMPED_OPS):
        return None
    ranges = Ranges(w, fn, params, span)
    for op in walk(fn.body):
        if isinstance(op, ops.Compare):
            ranges.ask(op)
    if not ranges.asked or (not is_straight and size > MAX_GUARDED_OPS and all(ranges.asked.values())):
        return None
    return Decided(ranges.asked, all_of(w, ranges.conditions))


def all_of(w: Writer, conditions: Iterable[str]) -> str:
    """Write whether all scalar conditions hold."""
    found = "true"
    for text in dict.fromkeys(conditions):
        if text != "true":
            found = text if found == "true" else w.emit(f"and i1 {found}, {text}")
    return found


def bounds_of(
    w: Writer, fn: Function, params: Mapping[Value, Form], span: RowSpan, values: Sequence[Value]
) -> list[Bounds | None]:
    """Return the bounds of some integers of `fn` in a row, None for one that is not followed, or only where a comparison comes
    out as expected.
    """
    found = list[Bounds | None]()
    for value in values:
        ranges = Ranges(w, fn, params, span)
        bounds = ranges[value]
        found.append(None if ranges.conditions else bounds)
    return found


class Ranges(IntegerAnalysis[Bounds | None]):
    """The ranges of a function's integers; None where one has no range or might wrap."""

    def __init__(self, w: Writer, fn: Function, params: Mapping[Value, Form], span: RowSpan) -> None:
        super().__init__(makers(fn.body).get)
        self.asked: dict[Value, bool] = {}
        self.conditions: list[str] = []
        self._w, self._span = w, span
        self._seen: set[Op] = set()  # what one comparison chooses may be chosen by it again: each is looked at once
        self._choices = {op.condition: op for op in walk(fn.body) if isinstance(op, ops.Select)}
        loops = [op for op in walk(fn.body) if isinstance(op, ops.For | ops.While)]
        self._in_loops = {op for loop in loops for body in loop.bodies() for op in walk(body)}
        self.known.update(
            (v, _point(form)) for v, form in params.items() if isinstance(form, Uniform) and form.interval
        )

    def ask(self, op: ops.Compare) -> None:
        """Write the test whether the comparison comes out as expected in every thread, unless it is known or cannot be asked."""
        if op in self._seen:
            return
        self._seen.add(op)
        type_, a, b = op.lhs.type, self[op.lhs], self[op.rhs]
        if op.kind in (CompareKind.EQ, CompareKind.NE) or not isinstance(type_, Scalar) or a is None or b is None:
            return
        if a.is_point and b.is_point:
            return
        outcome = self._expected(op.result)
        if outcome and op in self._in_loops:
            return  # it may well hold in some iterations only, which should not cost the row what else holds
        kind = op.kind if outcome else op.kind.opposite
        ends = (a.high, b.low) if kind in BELOW else (a.low, b.high)
        text = scalar_compare(self._w, kind, type_.dtype, *ends).text
        if text != "false":
            self.asked[op.result] = outcome
            self.conditions.append(text)

    def _expected(self, value: Value) -> bool:
        """Return the outcome to ask for: that a guard holds, that a clamp does not replace what differs between threads."""
        choice = self._choices.get(value)
        if choice is None:
            return True
        if_true, if_false = self[choice.if_true], self[choice.if_false]
        return if_true is None or if_false is None or not if_true.is_point or if_false.is_point

    def select(self, op: ops.Select) -> Bounds | None:
        """Return the bounds of what the expected outcome selects. A row with another outcome runs the guarded code."""
        maker = self.maker_of(op.condition)
        if isinstance(maker, ops.Compare):
            self.ask(maker)
        if op.condition not in self.asked:
            return None
        return self[op.if_true if self.asked[op.condition] else op.if_false]

    def unknown(self, value: Value) -> Bounds | None:
        return None

    def counted(self, op: ops.For) -> Bounds | None:
        """Return the bounds of a loop's index, if it counts up. Where the stop less 1 might wrap, the stop is the upper bound."""
        start, stop, step = self[op.start], self[op.stop], self[op.step]
        if start is None or stop is None or step is None or known(step.low).lo <= 0:
            return None
        dtype = op.start.type.dtype
        if not (known(stop.high) - Interval.exactly(1)).fits(dtype):
            return Bounds(start.low, stop.high)
        return Bounds(start.low, scalar(self._w, BinaryKind.SUB, dtype, stop.high, number(1)))

    def constant(self, value: int) -> Bounds:
        return _point(number(value))

    def intrinsic(self, op: ops.IntrinsicOp) -> Bounds | None:
        span, native = self._span, op.spec.lower["cpu"]
        if native not in _INDICES:
            return None
        axis = "xyz".index(op.params[0])
        if native is Native.THREAD_IDX:
            return Bounds(number(0), number(span.block[axis] - 1))
        if native is Native.BLOCK_IDX:
            return span.blocks[axis]
        return _point(span.grid[axis] if native is Native.GRID_DIM else number(span.block[axis]))

    def binary(self, kind: BinaryKind, dtype: DType, a: Bounds | None, b: Bounds | None) -> Bounds | None:
        if a is None or b is None:
            return None
        if a.is_point and b.is_point:
            return _point(scalar(self._w, kind, dtype, a.low, b.low))
        ends = _ends(kind, a, b)
        if ends is None:
            return None
        for pair in ends:
            found = intervals.exact(kind, *map(known, pair))
            if found is None or not found.fits(dtype):
                return None
        low, high = (scalar(self._w, kind, dtype, *pair) for pair in ends)
        return Bounds(low, high)

    def cast(self, source: DType, target: DType, a: Bounds | None) -> Bounds | None:
        if a is None:
            return None
        if a.is_point:
            return _point(extended_scalar(self._w, source, target, a.low))
        if not all(known(end).fits(target) for end in (a.low, a.high)):
            return None
        low, high = (extended_scalar(self._w, source, target, end) for end in (a.low, a.high))
        return Bounds(low, high)


_INDICES = (Native.THREAD_IDX, Native.BLOCK_IDX, Native.BLOCK_DIM, Native.GRID_DIM)

_Pair = tuple[Uniform, Uniform]


def _ends(kind: BinaryKind, a: Bounds, b: Bounds) -> tuple[_Pair, _Pair] | None:
    """Return the operands that give the least and the greatest `a kind b`; None where it may rise or fall with an operand."""
    if kind is BinaryKind.ADD:
        return (a.low, b.low), (a.high, b.high)
    if kind is BinaryKind.SUB:
        return (a.low, b.high), (a.high, b.low)
    factor, other = (a, b) if a.is_point else (b, a)
    if kind is not BinaryKind.MUL or not factor.is_point or known(factor.low).lo < 0:
        return None
    return (other.low, factor.low), (other.high, factor.low)
