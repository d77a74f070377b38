"""Weak tiles: indices, pointers and masks that follow from a few numbers of the block, and cost nothing until they are used.

    i = sk.arange(0, BLOCK)             Ramp(0, (1,)): no element is computed
    row = X + r * stride + i            Ramp(X + r * stride, (1,))
    mask = i < n                        Guard: each element of Ramp(0, (1,)) below n
    acc = sk.zeros((M, N), dtype)       Fill(0)
    x = sk.load(row, mask=mask)         one wide access for each vector, whose address and mask are computed here

    rows = X + i[:, None] * ld + j      Ramp(X, (ld, 1)), of two axes

A form is turned into elements where something else is done with its tile. In a form it can be seen that the elements of a vector
are neighbours in memory, and that a mask is the same for all of them: in both cases where a number is a multiple of the vector's
width, which the library asks (`sk._is_multiple`) and the launcher checks.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import stagekit as sk
from stagekit.lib.layout import Layout, Shape, both, computed_once, in_vectors
from stagekit.lib.shared import Matrix

_ADD, _SUBTRACT, _MULTIPLY, _AND = map(sk._operation, ("+", "-", "*", "&"))
_COMPARE = {symbol: sk._operation(symbol) for symbol in ("<", "<=", ">", ">=")}
_TO_EXCLUSIVE = {"<": 0, "<=": 1, ">": 1, ">=": 0}  # i <= n is i < n + 1, and i > n is i >= n + 1
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
WIDEST_BYTES = 16  # of one access


@sk._frozen(held=True)
class Ramp:
    """The element of index (i, j, ...) is `base + strides[0] * i + strides[1] * j + ...`: an int64, or where base is an address
    a pointer. strides: a number for each axis, 0 itself along axes on which nothing depends; none for a scalar.
    """

    base: Any
    strides: tuple[Any, ...]
    is_address: bool = False

    @property
    def dtype(self) -> Any:
        return sk._dtype_of(self.base)

    def is_contiguous(self, axis: int) -> bool:
        """Whether neighbours along an axis are one apart, for certain."""
        return type(self.strides[axis]) is int and self.strides[axis] == 1

    @computed_once
    def elements(self, layout: Layout, every: int = 1) -> list[Any]:
        """Return this thread's elements, or the first of `every` so many. Equal ones are one object."""
        known: list[tuple[int, int]] = []
        unknown: list[tuple[int, Any]] = []
        for axis, stride in enumerate(self.strides):
            if isinstance(stride, numbers.Integral):
                known += [(axis, int(stride))] if stride else []
            else:
                unknown.append((axis, stride))
        starts, found = {(0,) * len(unknown): self.start(layout)}, dict[Any, Any]()

        def element(index: tuple[int, ...]) -> Any:
            row = tuple([index[axis] for axis, _ in unknown])
            if row not in starts:
                steps = [_MULTIPLY(offset, stride) for offset, (_, stride) in zip(row, unknown) if offset]
                starts[row] = functools.reduce(_ADD, steps, starts[(0,) * len(unknown)])
            step = sum([index[axis] * stride for axis, stride in known])
            if (row, step) not in found:
                found[row, step] = _ADD(starts[row], step) if step else starts[row]
            return found[row, step]

        return [element(index) for index in layout.offsets[::every]]

    def place(self, index: tuple[int, ...]) -> int:
        """Return the element at an index, where base and strides are known."""
        return int(self.base) + sum([int(stride) * each for stride, each in zip(self.strides, index)])

    def start(self, layout: Layout) -> Any:
        """Return this thread's first element."""
        return _sum(self.base, self.beyond(layout))

    def beyond(self, layout: Layout) -> Any:
        """Return how far this thread's first element is from that of thread 0."""
        axes = [axis for axis, stride in enumerate(self.strides) if not is_zero(stride)]
        first = layout.first(axes)
        return functools.reduce(_sum, [_times(first[a], self.strides[a]) for a in axes if type(first[a]) is not int], 0)

    def parts(self, layout: Layout) -> list[Any]:
        return in_vectors(self.elements(layout), layout)

    def align(self, layout: Layout) -> int | None:
        """Return the bytes that each vector of memory here is aligned to; None where vectors are not known to be aligned."""
        if not self.is_address or layout.width == 1 or not self.is_contiguous(layout.vector_axis):
            return None
        align = min(layout.width * self.dtype.itemsize, WIDEST_BYTES)
        if not sk._is_multiple(self.base, align):
            return None
        return align if self.are_rows_multiples(layout.vector_axis, align // self.dtype.itemsize) else None

    def are_rows_multiples(self, axis: int, number: int) -> bool:
        """Return whether the strides of all axes but one are known to be multiples of a number."""
        return all(sk._is_multiple(s, number) for a, s in enumerate(self.strides) if a != axis and not is_zero(s))


@sk._frozen(held=True)
class Limit:
    """Compares each element of a ramp of numbers with `bound`. symbol: < <= > >=."""

    ramp: Ramp
    symbol: str
    bound: Any

    @computed_once
    def elements(self, layout: Layout, every: int = 1) -> list[Any]:
        ramp, compare, reach = self.ramp, _COMPARE[self.symbol], self.reach(layout)
        if reach is None:
            return _once_each(lambda each: compare(each, self.bound), ramp.elements(layout, every))
        near = sk.minimum(sk.maximum(self.bound, reach[0] - 1), reach[1] + 1)  # further off it decides nothing more
        rest = _SUBTRACT(sk.int32(near), sk.int32(ramp.beyond(layout)))
        places = [ramp.place(index) for index in layout.offsets[::every]]
        found = {place: compare(sk.int32(place), rest) for place in dict.fromkeys(places)}
        return [found[place] for place in places]

    def reach(self, layout: Layout) -> tuple[int, int] | None:
        """Return the least and the greatest of known numbers that are compared with an unknown bound, if they are of 32 bits.

        Then the bound less what a thread adds is compared with what thread 0 has, in one instruction for each element.
        """
        ramp = self.ramp
        are_known = all(isinstance(each, numbers.Integral) for each in (ramp.base, *ramp.strides))
        if not are_known or isinstance(self.bound, numbers.Integral):
            return None
        ends = [int(stride) * (extent - 1) for stride, extent in zip(ramp.strides, layout.shape)]
        lowest, highest = (int(ramp.base) + sum([pick(end, 0) for end in ends]) for pick in (min, max))
        return (lowest, highest) if sk.int32.min < lowest and highest < sk.int32.max else None

    def parts(self, layout: Layout) -> list[Any]:
        if self.reach(layout) is not None:
            return in_vectors(self.elements(layout), layout)
        return [_COMPARE[self.symbol](each, self.bound) for each in self.ramp.parts(layout)]

    def is_true(self, shape: Shape) -> Any:
        """Return whether the limit holds for all elements; False where it is not known which element decides that."""
        if not all(type(stride) is int and stride >= 0 for stride in self.ramp.strides):
            return False
        span = sum([stride * (extent - 1) for stride, extent in zip(self.ramp.strides, shape)])
        return _COMPARE[self.symbol](_ADD(self.ramp.base, span if "<" in self.symbol else 0), self.bound)

    def is_constant(self, width: int, axis: int) -> bool:
        """Return whether the elements of a vector are known to be all alike: none begins or ends within one."""
        ramp = self.ramp
        if is_zero(ramp.strides[axis]):
            return True
        end = _sum(self.bound, _TO_EXCLUSIVE[self.symbol])
        is_whole = ramp.is_contiguous(axis) and sk._is_multiple(end, width) and sk._is_multiple(ramp.base, width)
        return is_whole and ramp.are_rows_multiples(axis, width)


@sk._frozen(held=True)
class Guard:
    """A mask that is true where all of its limits are, and where its conditions are, which are numbers of the block."""

    limits: tuple[Limit, ...]
    conditions: tuple[Any, ...] = ()

    dtype = sk.bool_
    is_address = False

    @computed_once
    def elements(self, layout: Layout, every: int = 1) -> list[Any]:
        """Return this thread's elements, or the first of `every` so many."""
        return self._all([limit.elements(layout, every) for limit in self.limits])

    def parts(self, layout: Layout) -> list[Any]:
        if layout.width > 1 and self.is_constant(layout.width, layout.vector_axis):
            return in_vectors(self.elements(layout, layout.width), layout)
        return self._all([limit.parts(layout) for limit in self.limits])

    def is_true(self, shape: Shape) -> Any:
        """Return whether all elements are true; False itself where that is not known."""
        return functools.reduce(both, [*[limit.is_true(shape) for limit in self.limits], *self.conditions], True)

    def is_constant(self, width: int, axis: int) -> bool:
        return all(limit.is_constant(width, axis) for limit in self.limits)

    def _all(self, rows: list[list[Any]]) -> list[Any]:
        return _once_each(lambda *column: functools.reduce(_AND, (*column, *self.conditions)), *rows)


@sk._frozen(held=True)
class Fill:
    """Every element is `value`, a number of the block."""

    value: Any
    is_address = False

    @property
    def dtype(self) -> Any:
        return sk._dtype_of(self.value)

    def elements(self, layout: Layout) -> list[Any]:
        return [self.value] * layout.count

    def parts(self, layout: Layout) -> list[Any]:
        return in_vectors([self.value] * len(layout.widths), layout)


Form = Ramp | Guard | Fill | Matrix


def _times(number: Any, stride: Any) -> Any:
    return number if type(stride) is int and stride == 1 else _MULTIPLY(number, stride)


def _sum(base: Any, step: Any) -> Any:
    """Return a number plus another one, or a pointer plus a number, of which a known 0 adds nothing."""
    if isinstance(step, numbers.Integral) and step == 0:
        return base
    return step if isinstance(base, numbers.Integral) and base == 0 else _ADD(base, step)


def is_zero(stride: Any) -> bool:
    """Return whether nothing depends on the index along an axis, for certain."""
    return type(stride) is int and stride == 0


def _once_each(function: Callable[..., Any], *rows: list[Any]) -> list[Any]:
    """Map `function` over rows of arguments, and call it once for each distinct combination of objects."""
    found: dict[tuple[int, ...], Any] = {}
    for column in zip(*rows):
        key = tuple(map(id, column))
        if key not in found:
            found[key] = function(*column)
    return [found[tuple(map(id, column))] for column in zip(*rows)]


def is_alike(a: Form | None, b: Form | None) -> bool:
    """Return whether two forms differ at most in numbers known at run time, so that they meet number by number."""
    if isinstance(a, Ramp) and isinstance(b, Ramp):
        is_one_by_one = len(a.strides) == len(b.strides) and all(map(_are_steps_alike, a.strides, b.strides))
        return a.is_address == b.is_address and is_one_by_one
    if isinstance(a, Guard) and isinstance(b, Guard):
        pairs = zip(a.limits, b.limits)
        is_one_by_one = all(x.symbol == y.symbol and is_alike(x.ramp, y.ramp) for x, y in pairs)
        return len(a.limits) == len(b.limits) and len(a.conditions) == len(b.conditions) and is_one_by_one
    return a is b or (isinstance(a, Fill) and isinstance(b, Fill))


def _are_steps_alike(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (type(a) is not int or a == b)


def reshaped(form: Form, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Form:
    """Return a form with other axes. change: returns the strides that it has then."""
    if isinstance(form, Fill):
        return form
    if isinstance(form, Ramp | Matrix):
        return replace(form, strides=change(form.strides))
    limits = [replace(each, ramp=replace(each.ramp, strides=change(each.ramp.strides))) for each in form.limits]
    return replace(form, limits=tuple(limits))


def spread(form: Form, shape: Shape, rank: int) -> Form:
    """Return the form of a tile of `shape` as it meets others of so many axes: what has extent 1 goes with every index."""

    def change(strides: tuple[Any, ...]) -> tuple[Any, ...]:
        own = [0 if extent == 1 else stride for extent, stride in zip(shape, strides)]
        return (*[0] * (rank - len(own)), *own)

    return reshaped(form, change)


# -- operations that leave a form -----------------------------------------------------------------------------------------


def scalar(value: Any) -> Form | None:
    """Return an integer that an int64 holds, or a pointer, as a ramp without axes, a bool as a mask; None for other values."""
    found = sk._linear(value)  # first: the dtype of a pointer is that of what it points to
    if found is not None:
        return Ramp(found[0], (), found[1])
    return Guard((), (value,)) if type(value) is bool or getattr(value, "dtype", None) is sk.bool_ else None


def _added(left: Any, right: Any) -> Form | None:
    if not _are_ramps(left, right) or (left.is_address and right.is_address):
        return None
    if right.is_address:
        left, right = right, left
    base = (_ADD if left.is_address else _sum)(left.base, right.base)  # an array with gaps is refused here
    return Ramp(base, _by_axis(_ADD, left, right), left.is_address)


def _subtracted(left: Any, right: Any) -> Form | None:
    if not _are_ramps(left, right) or right.is_address:
        return None
    return Ramp(_SUBTRACT(left.base, right.base), _by_axis(_SUBTRACT, left, right), left.is_address)


def _by_axis(operate: Callable[[Any, Any], Any], left: Ramp, right: Ramp) -> tuple[Any, ...]:
    """Return what an operation makes of the strides of two ramps, of which one may be a scalar."""
    rank = max(len(left.strides), len(right.strides))
    rows = [ramp.strides or (0,) * rank for ramp in (left, right)]
    return tuple([a if is_zero(b) else b if is_zero(a) and operate is _ADD else operate(a, b) for a, b in zip(*rows)])


def _scaled(left: Any, right: Any) -> Form | None:
    if not _are_numbers(left, right):
        return None
    ramp, factor = (right, left) if _is_scalar(left) else (left, right)
    if not _is_scalar(factor):
        return None
    strides = ramp.strides or factor.strides
    return Ramp(_MULTIPLY(ramp.base, factor.base), tuple([_scaled_step(each, factor.base) for each in strides]))


def _scaled_step(stride: Any, factor: Any) -> Any:
    if is_zero(stride):
        return 0
    scaled = _MULTIPLY(stride, factor)
    is_looked_at = isinstance(scaled, numbers.Integral) and scaled in (0, 1)
    return int(scaled) if is_looked_at else scaled


def _limited(symbol: str) -> Rule:
    def limited(left: Any, right: Any) -> Form | None:
        if not _are_numbers(left, right):
            return None
        if _is_scalar(right):
            return Guard((Limit(left, symbol, right.base),))
        return Guard((Limit(right, _MIRRORED[symbol], left.base),)) if _is_scalar(left) else None

    return limited


def _both(left: Any, right: Any) -> Form | None:
    if isinstance(left, Guard) and isinstance(right, Guard):
        return Guard((*left.limits, *right.limits), (*left.conditions, *right.conditions))
    return None


def _are_ramps(left: Any, right: Any) -> bool:
    return isinstance(left, Ramp) and isinstance(right, Ramp)


def _are_numbers(left: Any, right: Any) -> bool:
    return _are_ramps(left, right) and not left.is_address and not right.is_address


def _is_scalar(ramp: Ramp) -> bool:
    return all(map(is_zero, ramp.strides))


Rule = Callable[[Any, Any], Form | None]
RULES: dict[str, Rule] = {
    "+": _added,
    "-": _subtracted,
    "*": _scaled,
    "&": _both,
    **{symbol: _limited(symbol) for symbol in _COMPARE},
}
"""By operator: what returns the form of its result, given those of its operands; None where there is none."""
