"""When a `for` begins, what it counts and when it goes on. `i + step` never wraps into the range again.

    step known to be 1        next = i + 1; next < stop
    step > 0                  next = i + step; stop - i > step, unsigned: exact because i < stop
    sign known at run time    both comparisons, selected by the sign

Written over forms: the same code gives scalars for a uniform loop and masks for one whose lanes leave one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stagekit import dtypes
from stagekit.backends.host.compute import compare
from stagekit.backends.host.facts import Facts
from stagekit.backends.host.forms import Form, Linear, Uniform, Vector, known, number
from stagekit.backends.host.integers import integer_binary, integer_cast
from stagekit.backends.host.selection import select
from stagekit.backends.host.warp import Warp
from stagekit.dtypes import DType
from stagekit.ir import BOOL, BinaryKind, CompareKind, ops

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
        facts = _facts(self.step)
        if facts.lo > 0:
            return up
        if facts.hi < 0:
            return down
        is_up = compare(warp, CompareKind.GT, self.dtype, self.step, number(0))
        is_down = compare(warp, CompareKind.LT, self.dtype, self.step, number(0))
        return select(warp, BOOL, is_up, up, select(warp, BOOL, is_down, down, _NEVER))

    def _cannot_overflow(self) -> bool:
        step, stop = _facts(self.step), _facts(self.stop)
        if step.constant in (1, -1):
            return True
        return stop.lo + min(step.lo, 0) >= self.dtype.min and stop.hi + max(step.hi, 0) <= self.dtype.max

    def _is_farther(self, warp: Warp, a: Form, b: Form, distance: Form) -> Form:
        """Is `a - b`, which is positive, more than `distance`?"""
        unsigned = _UNSIGNED[self.dtype.bits]
        gap = integer_cast(warp, self.dtype, unsigned, integer_binary(warp, BinaryKind.SUB, self.dtype, a, b))
        limit = integer_cast(warp, self.dtype, unsigned, distance)
        return compare(warp, CompareKind.GT, unsigned, gap, limit)

    def index_facts(self) -> Facts:
        """What is known of the index in the body."""
        start, stop, step = _facts(self.start), _facts(self.stop), _facts(self.step)
        multiple = math.gcd(start.multiple, step.multiple) or 1
        if step.lo > 0:
            return Facts(start.lo, max(start.lo, stop.hi - 1), multiple)
        if step.hi < 0:
            return Facts(min(start.hi, stop.lo + 1), start.hi, multiple)
        return Facts(min(start.lo, stop.lo), max(start.hi, stop.hi), multiple)


def trip_of(warp: Warp, op: ops.For) -> Trip:
    type_ = op.start.type
    return Trip(type_.dtype, warp[op.start], warp[op.stop], warp[op.step])


def _facts(form: Form) -> Facts:
    assert isinstance(form, Uniform | Linear | Vector)
    return known(form)


def with_facts(form: Form, facts: Facts) -> Form:
    """A scalar index about which more is known than its phi tells."""
    return replace(form, facts=facts) if isinstance(form, Uniform) else form
