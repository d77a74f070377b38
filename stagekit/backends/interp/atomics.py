"""Atomic operations of many lanes at once, as if they came one after another in the order of lanes.

    old = update(elements, index, value, add)         # index: one element per lane, repetitions allowed

Lanes that hit different elements go together. Lanes that hit the same one go in rounds: the first of each element, then
the second, and so on. Where few elements are hit by many lanes, a NumPy function accumulates along the lanes of each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagekit.backends.interp.memory import Array
from stagekit.dtypes import DType
from stagekit.intrinsics import by_name
from stagekit.ir import BinaryKind, Native, semantics

Combine = Callable[[Array, Array], Array]
"""(element before, value) -> element after."""


def _table(kind: BinaryKind) -> Callable[[DType], Combine]:
    """The row itself: the hardware's atomics are of dtypes that NumPy computes in themselves."""
    return lambda dtype: semantics.BINARY[kind]


def _record(name: str) -> Callable[[DType], Combine]:
    def combine(dtype: DType) -> Combine:
        evaluate = by_name(name).evaluate
        if evaluate is None:
            raise KeyError(name)
        return evaluate

    return combine


COMBINES: dict[Native, Callable[[DType], Combine]] = {
    Native.ATOMIC_ADD: _table(BinaryKind.ADD),
    Native.ATOMIC_SUB: _table(BinaryKind.SUB),
    Native.ATOMIC_AND: _table(BinaryKind.AND),
    Native.ATOMIC_OR: _table(BinaryKind.OR),
    Native.ATOMIC_XOR: _table(BinaryKind.XOR),
    Native.ATOMIC_MIN: _record("minimum"),
    Native.ATOMIC_MAX: _record("maximum"),
    Native.ATOMIC_EXCHANGE: lambda dtype: lambda old, value: value,
}


def update(elements: Array, index: Array, value: Array, combine: Combine) -> Array:
    """Combine each lane's `value` into its element; what each found there."""
    if len(index) == 1:
        return _at_once(elements, index, value, combine)
    order, starts = _by_element(index)
    if len(starts) == len(index):
        return _at_once(elements, index, value, combine)
    counts = np.diff(starts, append=len(index))
    if isinstance(combine, np.ufunc) and counts.max() > len(starts):
        return _along_each(elements, index, value, combine, order, starts)
    return _in_rounds(elements, index, value, combine, order, starts)


def swap(elements: Array, index: Array, expected: Array, desired: Array) -> Array:
    """Compare-and-swap in the order of lanes; what each found."""
    both = np.stack([expected, desired], axis=1)
    return update(elements, index, both, lambda old, pair: np.where(old == pair[:, 0], pair[:, 1], old))


def _at_once(elements: Array, index: Array, value: Array, combine: Combine) -> Array:
    found = elements[index]
    elements[index] = combine(found, value)
    return found


def _by_element(index: Array) -> tuple[Array, Array]:
    """An order of lanes in which those of one element are neighbours, in lane order; and where each element starts in it."""
    order = np.argsort(index, kind="stable")
    sorted_index = index[order]
    is_start = np.empty(len(index), np.bool_)
    is_start[0] = True
    np.not_equal(sorted_index[1:], sorted_index[:-1], out=is_start[1:])
    return order, np.flatnonzero(is_start)


def _along_each(elements: Array, index: Array, value: Array, combine: np.ufunc, order: Array, starts: Array) -> Array:
    found = np.empty(len(index), elements.dtype)
    for lanes in np.split(order, starts[1:]):
        where = index[lanes[0]]
        steps = combine.accumulate(np.concatenate([elements[where : where + 1], value[lanes]]), dtype=elements.dtype)
        found[lanes], elements[where] = steps[:-1], steps[-1]
    return found


def _in_rounds(elements: Array, index: Array, value: Array, combine: Combine, order: Array, starts: Array) -> Array:
    found = np.empty(len(index), elements.dtype)
    counts = np.diff(starts, append=len(index))
    for turn in range(int(counts.max())):
        lanes = order[starts[counts > turn] + turn]
        found[lanes] = _at_once(elements, index[lanes], value[lanes], combine)
    return found


__all__ = ["COMBINES", "swap", "update"]
