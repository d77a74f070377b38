"""Sizes and strides of arrays, and which indices a slice selects: Python's, clamped to the axis.

    A[lo:hi]      start = min(max(lo < 0 ? lo + n : lo, 0), n), likewise stop; size = max(stop - start, 0)

Python itself computes what is known while specialising. At run time, the part of a clamp that cannot be needed is left out: a
start that is known not to be negative is used as it is, since past the end the size is 0 already.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from stagekit import dtypes
from stagekit.frontend.errors import BadIndex
from stagekit.frontend.evaluation import Site
from stagekit.frontend.numbers import SYMBOLS, is_literal
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Extent, Number
from stagekit.intrinsics import registry
from stagekit.ir.intervals import Interval
from stagekit.limits import MOST_ELEMENTS


def interval_of(tracer: Tracer, value: Extent) -> Interval:
    """Return the interval in which a number is known to lie."""
    if isinstance(value, int):
        return Interval.exactly(value)
    tracer.builder.spoil_log()
    return tracer.intervals[value.value]


def combine_extents(site: Site, symbol: str, left: Extent, right: Extent) -> Extent:
    """Return `left symbol right`, computed now where both are known."""
    if isinstance(left, int) and isinstance(right, int):
        return SYMBOLS[symbol].python(left, right)  # type: ignore[no-any-return]
    if isinstance(right, int) and right == 0 and symbol in "+-":
        return left
    found: Number = site.tracer.arithmetic.binary(symbol, left, right)
    return found


def row_major(tracer: Tracer, shape: Sequence[Extent]) -> tuple[tuple[Extent, ...], Extent]:
    """Return the strides of an array without gaps, in elements, and how many elements it has."""

    def times(step: Extent, size: Extent) -> Any:
        if isinstance(step, int) and (step == 1 or isinstance(size, int)):
            return size if step == 1 else size * step  # type: ignore[operator]
        return tracer.arithmetic.binary("*", size, step)

    *strides, count = itertools.accumulate(reversed(shape), times, initial=1)
    return tuple(reversed(strides)), count


def scaled(tracer: Tracer, stride: Extent, step: int) -> Extent:
    """Return the stride of every `step`-th element. A step beyond int64 leaves one element, so that any stride will do."""
    if isinstance(stride, int):
        return stride * step if dtypes.INDEX.holds(stride * step) else 0
    return stride if step == 1 else Number(tracer.builder.mul(stride.value, tracer.builder.index(step)))


def is_row_major(shape: tuple[Extent, ...], strides: tuple[Extent, ...]) -> bool:
    """Return whether it is known at compile time that there are no gaps."""
    step: Extent | None = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        is_packed = stride == step if isinstance(stride, int) and isinstance(step, int) else stride is step
        if not is_packed:
            return False
        if isinstance(step, int) and isinstance(size, int):
            step *= size
        else:
            step = size if isinstance(step, int) and step == 1 else None
    return True


def step_of(site: Site, index: slice) -> int:
    """Return the step of a slice, which must be known while specialising."""
    if index.step is None:
        return 1
    if isinstance(index.step, bool) or not (is_literal(index.step) or hasattr(index.step, "__index__")):
        raise site.error(BadIndex("the step of a slice must be a Python int", "compute the indices in a loop"))
    if isinstance(index.step, float) or int(index.step) == 0:
        raise site.error(BadIndex(f"a slice with a step of {index.step}", "a step is an int other than 0"))
    return max(min(int(index.step), MOST_ELEMENTS), -MOST_ELEMENTS)  # a longer step leaves one element too


class Cut(NamedTuple):
    """A slice of one axis: the first index, the number of indices, and the distance between two of them."""

    start: Extent
    size: Extent
    step: int


def cut_of(site: Site, start: Extent | None, stop: Extent | None, step: int, size: Extent) -> Cut:
    """Return the indices that `start:stop:step` selects in an axis of `size`."""
    start, stop = (max(min(b, MOST_ELEMENTS), -MOST_ELEMENTS) if isinstance(b, int) else b for b in (start, stop))
    if not any(isinstance(each, Number) for each in (start, stop, size)):
        first, end, _ = slice(start, stop, step).indices(size)  # type: ignore[arg-type]
        return Cut(first, len(range(first, end, step)), step)
    clamp = _Clamp(site, size, step)
    lower, upper = (start, stop) if step > 0 else (stop, start)
    near = clamp.low if lower is None else clamp.near(lower)
    far = clamp.last if upper is None else clamp.far(upper)
    return Cut(near if step > 0 else far, clamp.steps(clamp.between(near, far)), step)


class _Clamp:
    """Clamps the bounds of one slice to `low` and `last`: 0 and the size, each one less where the step is negative."""

    def __init__(self, site: Site, size: Extent, step: int) -> None:
        self.site, self.size, self.step = site, size, step
        self.low = 0 if step > 0 else -1
        self.last = size if step > 0 else self.binary("-", size, 1)

    def binary(self, symbol: str, left: Extent, right: Extent) -> Extent:
        return combine_extents(self.site, symbol, left, right)

    def extreme(self, name: str, left: Extent, right: Extent) -> Extent:
        """Emit `minimum` or `maximum` of two numbers of which one is not known."""
        if isinstance(left, Number) and isinstance(right, Number) and left.value is right.value:
            return left
        values = [self.site.tracer.arithmetic.to_value(each, dtypes.INDEX) for each in (left, right)]
        return Number(self.site.tracer.builder.call_one(registry.by_name(name), values, ()))

    def from_the_end(self, bound: Extent) -> Extent:
        """Return a bound as an index from the start: a negative one counts from the end."""
        if isinstance(bound, int):
            return bound if bound >= 0 else self.binary("+", self.size, bound)
        is_negative = self.site.tracer.arithmetic.compare(ast.Lt, bound, 0)
        counted = self.binary("+", bound, self.size)
        return self.site.tracer.arithmetic.select(is_negative.value, counted, bound)

    def near(self, bound: Extent) -> Extent:
        """Clamp the bound nearer to the first index of the axis. One past the end may stay, since the size is negative then."""
        if interval_of(self.site.tracer, bound).lo >= 0:
            return bound
        found = self.extreme("maximum", self.from_the_end(bound), self.low)
        return found if isinstance(bound, int) else self.extreme("minimum", found, self.last)

    def far(self, bound: Extent) -> Extent:
        """Clamp the bound nearer to the end of the axis."""
        interval = interval_of(self.site.tracer, bound)
        if isinstance(bound, int) and bound < 0:
            return self.extreme("maximum", self.from_the_end(bound), self.low)
        if interval.lo < 0:
            bound = self.extreme("maximum", self.from_the_end(bound), self.low)
        elif isinstance(self.last, int) and interval.hi <= self.last:
            return bound
        return self.extreme("minimum", bound, self.last)

    def between(self, near: Extent, far: Extent) -> Extent:
        """Return how many indices there are from one bound to the other."""
        distance = self.binary("-", far, near)
        if isinstance(distance, int):
            return max(distance, 0)
        if isinstance(near, int) and near == self.low:
            return distance
        return self.extreme("maximum", distance, 0)

    def steps(self, length: Extent) -> Extent:
        """Return how many indices the step leaves of `length`."""
        size = abs(self.step)
        return length if size == 1 else self.binary("//", self.binary("+", length, size - 1), size)
