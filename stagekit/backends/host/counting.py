"""When a `for` begins, what it counts and when it goes on. `i + step` never wraps into the range again.

    step known to be 1        next = i + 1; next < stop
    step > 0                  next = i + step; stop - i > step, unsigned: exact because i < stop
    sign known at run time    both comparisons, selected by the sign

Written over forms: the same code gives scalars for a uniform loop and masks for one whose lanes leave one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stagekit import dtypes
from stagekit.backends.host.compute import compare
from stagekit.backends.host.forms import Form, Linear, Uniform, Vector, known, number
from stagekit.backends.host.integers import integer_binary, integer_cast
from stagekit.backends.host.selection import select
from stagekit.backends.host.warp import Warp
from stagekit.dtypes import DType
from stagekit.ir import BOOL, BinaryKind, CompareKind, intervals, ops
from stagekit.ir.intervals import Interval

_UNSIGNED = {d.bits: d for d in dtypes.INTEGER_DTYPES if not d.is_signed}
_NEVER = Uniform("false")


@dataclass(frozen=True, slots=True)
class Trip:
    """`range(start, stop, step)`, all of one integer dtype, in any forms."""

    dtype: DType
    start: Form
    stop: Form
    step: Form

    def begins(self, warp: Warp) -> Form:
        """Is there a first iteration?"""
        up = compare(warp, CompareKind.LT, self.dtype, self.start, self.stop)
        down = compare(warp, CompareKind.GT, self.dtype, self.start, self.stop)
        return self._by_sign(warp, up, down)

    def next(self, warp: Warp, index: Form) -> Form:
        return integer_binary(warp, BinaryKind.ADD, self.dtype, index, self.step)

    def goes_on(self, warp: Warp, index: Form, following: Form) -> Form:
        """Is `following`, the index after `index`, still in range?"""
        if self._cannot_overflow():
            below = compare(warp, CompareKind.LT, self.dtype, following, self.stop)
            above = compare(warp, CompareKind.GT, self.dtype, following, self.stop)
            return self._by_sign(warp, below, above)
        up = self._is_farther(warp, self.stop, index, self.step)
        back = integer_binary(warp, BinaryKind.SUB, self.dtype, number(0), self.step)
        return self._by_sign(warp, up, self._is_farther(warp, index, self.stop, back))

    def _by_sign(self, warp: Warp, up: Form, down: Form) -> Form:
        interval = _interval(self.step)
        if interval.lo > 0:
            return up
        if interval.hi < 0:
            return down
        is_up = compare(warp, CompareKind.GT, self.dtype, self.step, number(0))
        is_down = compare(warp, CompareKind.LT, self.dtype, self.step, number(0))
        return select(warp, BOOL, is_up, up, select(warp, BOOL, is_down, down, _NEVER))

    def _cannot_overflow(self) -> bool:
        step, stop = _interval(self.step), _interval(self.stop)
        if step.constant in (1, -1):
            return True
        return stop.lo + min(step.lo, 0) >= self.dtype.min and stop.hi + max(step.hi, 0) <= self.dtype.max

    def _is_farther(self, warp: Warp, a: Form, b: Form, distance: Form) -> Form:
        """Is `a - b`, which is positive, more than `distance`?"""
        unsigned = _UNSIGNED[self.dtype.bits]
        gap = integer_cast(warp, self.dtype, unsigned, integer_binary(warp, BinaryKind.SUB, self.dtype, a, b))
        limit = integer_cast(warp, self.dtype, unsigned, distance)
        return compare(warp, CompareKind.GT, unsigned, gap, limit)

    def index_interval(self) -> Interval:
        """What is known of the index in the body."""
        return intervals.counted(*(_interval(each) for each in (self.start, self.stop, self.step)))


def trip_of(warp: Warp, op: ops.For) -> Trip:
    type_ = op.start.type
    return Trip(type_.dtype, warp[op.start], warp[op.stop], warp[op.step])


def _interval(form: Form) -> Interval:
    assert isinstance(form, Uniform | Linear | Vector)
    return known(form)


def with_interval(form: Form, interval: Interval) -> Form:
    """A scalar index about which more is known than its phi tells."""
    return replace(form, interval=interval) if isinstance(form, Uniform) else form
