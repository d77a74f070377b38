"""Weak tiles: indices, pointers and masks that follow from a few numbers of the block, and cost nothing until they are used.

    i = sk.arange(0, BLOCK)             Ramp(0, 1): no element is computed
    row = X + r * stride + i            Ramp(X + r * stride, 1)
    mask = i < n                        Guard: each element of Ramp(0, 1) below n
    x = sk.load(row, mask=mask)         one wide access for each vector, whose address and mask are computed here

A form is turned into elements where something else is done with its tile. In a form it can be seen that the elements of a vector
are neighbours in memory, and that a mask is the same for all of them: in both cases where a number is a multiple of the vector's
width, which the library asks (`sk._is_multiple`) and the launcher checks.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import stagekit as sk
from stagekit.lib.layout import Layout

_ADD, _SUBTRACT, _MULTIPLY, _AND = map(sk._operation, ("+", "-", "*", "&"))
_COMPARE = {symbol: sk._operation(symbol) for symbol in ("<", "<=", ">", ">=")}
_TO_EXCLUSIVE = {"<": 0, "<=": 1, ">": 1, ">=": 0}  # i <= n is i < n + 1, and i > n is i >= n + 1
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
WIDEST_BYTES = 16  # of one access


@dataclass(frozen=True)
class Ramp:
    """The element of index i is `base + stride * i`: an int64, or where base is an address a pointer. stride: 0 for a scalar."""

    base: Any
    stride: Any
    is_address: bool = False

    @property
    def dtype(self) -> Any:
        return sk._dtype_of(self.base)

    @property
    def is_contiguous(self) -> bool:
        """Whether neighbours are one apart, for certain."""
        return type(self.stride) is int and self.stride == 1

    def start(self, layout: Layout) -> Any:
        """Return this thread's first element."""
        return _ADD(self.base, _times(layout.first(), self.stride))

    def elements(self, layout: Layout, every: int = 1) -> list[Any]:
        """Return this thread's elements, or the first of `every` so many."""
        start = self.start(layout)
        return [
            _ADD(start, _times(offset, self.stride)) if offset else start
            for offset in map(layout.offset, range(0, layout.count, every))
        ]

    def parts(self, layout: Layout) -> list[Any]:
        return sk._in_vectors(self.elements(layout), layout.widths) if layout.widths[0] > 1 else self.elements(layout)

    def align(self, layout: Layout) -> int | None:
        """Return the bytes that each vector of memory here is aligned to; None where vectors are not known to be aligned."""
        if not self.is_address or not self.is_contiguous or layout.width == 1:
            return None
        align = min(layout.width * self.dtype.itemsize, WIDEST_BYTES)
        return align if sk._is_multiple(self.base, align) else None


@dataclass(frozen=True)
class Limit:
    """Compares each element of a ramp of numbers with `bound`. symbol: < <= > >=."""

    ramp: Ramp
    symbol: str
    bound: Any

    def elements(self, layout: Layout, every: int = 1) -> list[Any]:
        return [_COMPARE[self.symbol](each, self.bound) for each in self.ramp.elements(layout, every)]

    def parts(self, layout: Layout) -> list[Any]:
        return [_COMPARE[self.symbol](each, self.bound) for each in self.ramp.parts(layout)]

    def is_constant(self, width: int) -> bool:
        """Return whether the elements of a vector are known to be all alike: none begins or ends within one."""
        end = _ADD(self.bound, _TO_EXCLUSIVE[self.symbol])
        return self.ramp.is_contiguous and sk._is_multiple(end, width) and sk._is_multiple(self.ramp.base, width)


@dataclass(frozen=True)
class Guard:
    """A mask that is true where all of its limits are, and where its conditions are, which are numbers of the block."""

    limits: tuple[Limit, ...]
    conditions: tuple[Any, ...] = ()

    dtype = sk.bool_
    is_address = False

    def elements(self, layout: Layout, every: int = 1) -> list[Any]:
        """Return this thread's elements, or the first of `every` so many."""
        return self._all([limit.elements(layout, every) for limit in self.limits])

    def parts(self, layout: Layout) -> list[Any]:
        if layout.width > 1 and self.is_constant(layout.width):
            whole: list[Any] = sk._in_vectors(self.elements(layout, layout.width), layout.widths)
            return whole
        return self._all([limit.parts(layout) for limit in self.limits])

    def is_constant(self, width: int) -> bool:
        return all(limit.is_constant(width) for limit in self.limits)

    def _all(self, rows: list[list[Any]]) -> list[Any]:
        return [functools.reduce(_AND, (*column, *self.conditions)) for column in zip(*rows)]


Form = Ramp | Guard


def _times(number: Any, stride: Any) -> Any:
    return number if type(stride) is int and stride == 1 else _MULTIPLY(number, stride)


def is_alike(a: Form | None, b: Form | None) -> bool:
    """Return whether two forms differ at most in numbers known at run time, so that they meet number by number."""
    if isinstance(a, Ramp) and isinstance(b, Ramp):
        return (
            a.is_address == b.is_address
            and type(a.stride) is type(b.stride)
            and (type(a.stride) is not int or a.stride == b.stride)
        )
    if isinstance(a, Guard) and isinstance(b, Guard):
        pairs = zip(a.limits, b.limits)
        is_one_by_one = all(x.symbol == y.symbol and is_alike(x.ramp, y.ramp) for x, y in pairs)
        return len(a.limits) == len(b.limits) and len(a.conditions) == len(b.conditions) and is_one_by_one
    return a is b


# -- operations that leave a form -----------------------------------------------------------------------------------------


def scalar(value: Any) -> Form | None:
    """Return an integer that an int64 holds, or a pointer, as a ramp of stride 0, a bool as a mask; None for other values."""
    if type(value) is bool or getattr(value, "dtype", None) is sk.bool_:
        return Guard((), (value,))
    found = sk._linear(value)
    return Ramp(found[0], 0, found[1]) if found is not None else None


def _added(left: Any, right: Any) -> Form | None:
    if not _are_ramps(left, right) or (left.is_address and right.is_address):
        return None
    base = _ADD(right.base, left.base) if right.is_address else _ADD(left.base, right.base)
    return Ramp(base, _ADD(left.stride, right.stride), left.is_address or right.is_address)


def _subtracted(left: Any, right: Any) -> Form | None:
    if not _are_ramps(left, right) or right.is_address:
        return None
    return Ramp(_SUBTRACT(left.base, right.base), _SUBTRACT(left.stride, right.stride), left.is_address)


def _scaled(left: Any, right: Any) -> Form | None:
    if not _are_numbers(left, right):
        return None
    ramp, factor = (right, left) if _is_scalar(left) else (left, right)
    if not _is_scalar(factor):
        return None
    stride = _MULTIPLY(ramp.stride, factor.base)
    is_looked_at = isinstance(stride, numbers.Integral) and stride in (0, 1)
    return Ramp(_MULTIPLY(ramp.base, factor.base), int(stride) if is_looked_at else stride)


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
    return type(ramp.stride) is int and ramp.stride == 0


Rule = Callable[[Any, Any], Form | None]
RULES: dict[str, Rule] = {
    "+": _added,
    "-": _subtracted,
    "*": _scaled,
    "&": _both,
    **{symbol: _limited(symbol) for symbol in _COMPARE},
}
"""By operator: what returns the form of its result, given those of its operands; None where there is none."""
