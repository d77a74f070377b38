"""When a loop over `range(start, stop, step)` begins and goes on, in the arithmetic of IR, of LLVM's scalars or of warps.

    step 1, or a stop far from the dtype's end      next < stop
    another step above 0                            stop - index > step, unsigned: exact because index < stop
    step below 0                                    the other way round
    sign known only at run time                     the one of these that it selects

So no index that wrapped is ever compared: `range(0, 2**63 - 1, 5)` ends.
"""

from __future__ import annotations

from typing import Generic, Protocol, Self, TypeVar

from stagekit.dtypes import DType
from stagekit.ir.intervals import Interval, counted
from stagekit.ir.ops import CompareKind

V = TypeVar("V")


class LoopArithmetic(Protocol[V]):
    """How ops on integers of one dtype and on bools are written, and what is known of an integer."""

    @property
    def dtype(self) -> DType: ...
    def interval(self, value: V) -> Interval: ...
    def number(self, value: int) -> V: ...
    def add(self, a: V, b: V) -> V: ...
    def sub(self, a: V, b: V) -> V: ...
    def compare(self, kind: CompareKind, a: V, b: V) -> V: ...
    def is_longer(self, a: V, b: V) -> V: ...  # `a > b` as unsigned numbers
    def select(self, condition: V, if_true: V, if_false: V) -> V: ...
    def both(self, a: V, b: V) -> V: ...


class Trips(Generic[V]):
    """The tests of one loop. never_wraps: the index after the last one fits the dtype too."""

    def __init__(self, arithmetic: LoopArithmetic[V], start: V, stop: V, step: V) -> None:
        self.dtype = arithmetic.dtype
        self._a, self.start, self.stop, self.step = arithmetic, start, stop, step
        starts, stops, steps = (arithmetic.interval(bound) for bound in (start, stop, step))
        self.index_interval = counted(starts, stops, steps)
        self._steps = steps
        self.never_wraps = steps.constant in (1, -1) or (stops + (steps | Interval.exactly(0))).fits(arithmetic.dtype)

    def enter(self) -> Self:
        """Write, where the loop is entered, what is the same in all iterations."""
        self._is_up: bool | V = self._steps.lo >= 0
        if self._steps.lo < 0 < self._steps.hi:
            self._is_up = self._a.compare(CompareKind.GT, self.step, self._a.number(0))
        if not self.never_wraps:
            self._size = self.step if self._is_up is True else self._distance(self._a.number(0), self.step)
        return self

    def begins(self) -> V:
        """Write the test whether there is a first iteration."""
        return self.holds(self.start)

    def holds(self, index: V) -> V:
        """Write the test whether there is an iteration for `index`: the start, or reached by steps that did not wrap."""
        found = self._is_before_stop(index)
        if not self._steps.lo <= 0 <= self._steps.hi:
            return found
        return self._a.both(found, self._a.compare(CompareKind.NE, self.step, self._a.number(0)))

    def following(self, index: V) -> V:
        return self._a.add(index, self.step)

    def goes_on(self, index: V, following: V) -> V:
        """Write the test whether there is an iteration for `following`, the index after `index`."""
        if self.never_wraps:
            return self._is_before_stop(following)
        return self._a.is_longer(self._distance(index, self.stop), self._size)

    def _is_before_stop(self, index: V) -> V:
        first, second = index, self.stop
        if not isinstance(self._is_up, bool):
            choose = self._a.select
            first, second = choose(self._is_up, index, self.stop), choose(self._is_up, self.stop, index)
        return self._a.compare(CompareKind.GT if self._is_up is False else CompareKind.LT, first, second)

    def _distance(self, a: V, b: V) -> V:
        """Write the distance from `a` to `b` in the direction of the step."""
        if self._is_up is False:
            return self._a.sub(a, b)
        ahead = self._a.sub(b, a)
        return ahead if self._is_up is True else self._a.select(self._is_up, ahead, self._a.sub(a, b))
