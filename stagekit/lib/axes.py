"""Reductions and scans along one axis of a tile.

    totals = sk.reduce_sum(x, axis=1)        # shape (M,) of a tile of shape (M, N)
    y = x / totals[:, None]                  # every thread has the totals of its rows: nothing moves

A reduction of which the order does not matter begins with what each thread holds, goes on among the lanes of a warp that have
other elements along the axis, and where several warps have some, through shared memory. Its result stays where it is: in every
thread that holds a part of the row, as copies.

What has to be combined in order is laid out row after row, as a tile of one axis whose scan begins anew in each row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import stagekit as sk
from stagekit.lib.combining import Combiner, Scan, Values, chunks_of
from stagekit.lib.conversion import wait
from stagekit.lib.exchange import gather
from stagekit.lib.layout import WARP, Layout, blocked, recorded, width_for
from stagekit.lib.placing import layout_for
from stagekit.lib.tile import Tile, Traced

_ADD, _MULTIPLY, _AND, _OR, _DIFFERS = map(sk._operation, ("+", "*", "&", "|", "!="))
_DIVIDE, _REMAINDER, _SUBTRACT = map(sk._operation, ("//", "%", "-"))


def axis_of(function: str, tile: Tile, axis: Any) -> int:
    """Return an axis as a number from 0 on. Refused: what a tile has no axis for."""
    if not isinstance(axis, int) or isinstance(axis, bool) or not -tile.ndim <= axis < tile.ndim:
        hint = f"axes are compile-time ints, here from {-tile.ndim} to {tile.ndim - 1}"
        sk._refuse_shape(f"{function} along axis {axis!r} of a tile of shape {tile.shape}", hint)
    return int(axis % tile.ndim)


def held(tile: Tile) -> Tile:
    """Return a tile with its elements: a weak one as memory has it."""
    return tile.like(list(tile.at(tile.layout)._parts)) if tile.form else tile


# -- in any order ---------------------------------------------------------------------------------------------------------


@recorded
@sk._direct
def reduced(tile: Tile, rows: list[Values], combiner: Combiner, axis: int) -> list[Tile]:
    """Return tiles without an axis, each element all along it combined, in any order. rows: what `tile` has in each register.

    The combiner has an identity, which stands in for elements that do not exist.
    """
    layout, kept = tile.layout, tile.layout.restricted([axis])
    groups: dict[Any, list[Values]] = {offset: [] for offset in kept.offsets}
    for offset, row, exists in zip(layout.offsets, rows, layout.valid()):
        groups[_with_zero(offset, axis)].append(combiner.filled(row, exists))
    values = [functools.reduce(combiner, groups[offset]) for offset in kept.offsets]
    values = _over_lanes(values, combiner, layout, axis)
    result = kept.squeezed(axis)
    return [Tile((), result).like(list(column)) for column in zip(*values)]


@recorded
@sk._direct
def reduced_by_vectors(tile: Tile, combiner: Combiner, axis: int) -> Tile:
    """Return the reduction of one tile along an axis by a function that takes whole vectors."""
    layout = tile.layout
    if layout.width == 1 or any(exists is not True for exists in layout.valid()):
        return reduced(tile, [(each,) for each in tile.elements], combiner, axis)[0]
    kept, width = layout.restricted([axis]), layout.width
    groups: dict[Any, list[Traced]] = {}
    for offset, part in zip(layout.offsets[::width], tile.vectors_of(tile)):
        groups.setdefault(_with_zero(offset, axis), []).append(part)
    parts = [functools.reduce(combiner.function, groups[offset]) for offset in kept.offsets[:: kept.width]]
    if layout.vector_axis == axis:
        values = [functools.reduce(combiner, [(lane,) for lane in sk._lanes(part)]) for part in parts]
    else:
        values = [(lane,) for part in parts for lane in sk._lanes(part)]
    values = _over_lanes(values, combiner, layout, axis)
    return Tile((), kept.squeezed(axis)).like([value for (value,) in values])


def _with_zero(offset: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*offset[:axis], 0, *offset[axis + 1 :])


def _over_lanes(
    values: list[Values], combiner: Combiner, layout: Layout, axis: int, *, in_order: bool = False
) -> list[Values]:
    """Combine what the threads hold whose numbers differ in the digits along an axis; each of them gets it."""
    above = 1
    for digit in layout.lanes:
        if digit.axis == axis and digit.stride:
            in_warp = _lanes_in_warp(layout.threads, above, digit.radix)
            mask = (1 << min(layout.threads, WARP)) - 1
            distances = [above << bit for bit in range(in_warp.bit_length() - 1)]
            for distance in distances if in_order else distances[::-1]:
                others = [tuple([sk.shfl_xor_sync(mask, each, distance) for each in value]) for value in values]
                pairs = zip(values, others)
                if in_order:
                    is_later = _DIFFERS(_AND(sk.lane_id(), distance), 0)
                    values = [combiner(*_sorted_by(is_later, value, other)) for value, other in pairs]
                else:
                    values = [combiner(value, other) for value, other in pairs]
            if digit.radix > in_warp:
                values = _over_memory(values, combiner, layout.threads, above * in_warp, digit.radix // in_warp)
        above *= digit.radix
    return values


def _sorted_by(is_later: Traced, value: Values, other: Values) -> tuple[Values, Values]:
    """Return both values, the other one first where this one comes later."""
    pairs = list(zip(value, other))
    first = tuple([sk.where(is_later, theirs, own) for own, theirs in pairs])
    return first, tuple([sk.where(is_later, own, theirs) for own, theirs in pairs])


def _lanes_in_warp(threads: int, above: int, radix: int) -> int:
    """Return how many values of a digit, a power of two that divides its radix, are within a warp."""
    is_whole = threads % WARP == 0 or threads & (threads - 1) == 0
    if not is_whole or above & (above - 1) or above >= WARP:
        return 1
    return math.gcd(radix, min(WARP, threads) // above)


def _over_memory(values: list[Values], combiner: Combiner, threads: int, step: int, count: int) -> list[Values]:
    """Combine over the `count` threads whose numbers differ by multiples of `step`, in the order of their numbers."""
    thread = sk.cuda.thread_idx("x")
    digit = _REMAINDER(_DIVIDE(thread, step), count)
    first = _SUBTRACT(thread, _MULTIPLY(digit, step))
    arrays = [sk.alloc_shared((len(values) * threads,), dtype) for dtype in combiner.dtypes]
    for number, value in enumerate(values):
        for array, each in zip(arrays, value):
            sk.store(_ADD(array, _ADD(thread, number * threads)), each)
    wait(threads)
    found = []
    for number in range(len(values)):
        places = [_ADD(first, number * threads + other * step) for other in range(count)]
        rows = [tuple([sk.load(_ADD(array, place)) for array in arrays]) for place in places]
        found.append(functools.reduce(combiner, rows))
    wait(threads)  # in a loop, the next round writes to the same memory
    return found


# -- in order ---------------------------------------------------------------------------------------------------------------


@recorded
@sk._direct
def scanned(tiles: Sequence[Tile], combiner: Combiner, axis: int, is_reversed: bool) -> list[Tile]:
    """Return the scans of tiles of one shape along an axis."""
    order = _with_last(tiles[0].ndim, axis)
    flat = [tile.trans(order).reshape(-1) for tile in tiles]
    shape = tuple([tiles[0].shape[a] for a in order])
    back = [order.index(a) for a in range(len(order))]
    found = _row_by_row(flat, combiner, shape[-1], is_reversed=is_reversed)
    return [each.reshape(shape).trans(back) for each in found]


@recorded
@sk._direct
def reduced_in_order(tiles: Sequence[Tile], combiner: Combiner, axis: int) -> list[Tile]:
    """Return tiles of one shape without an axis, each element all along it combined, in the order of the indices.

    Threads that follow one another have neighbours along the axis. Each combines its own, then come the threads, then what is
    so many elements further. Where elements are missing and nothing stands in for them, all is scanned.
    """
    shape = tiles[0].shape
    threads = layout_for(shape).threads
    layout = blocked(shape, threads, width_for(shape, threads, sk._vector_width(), axis), axis)
    valid = layout.valid()
    if combiner.identity is None and any(exists is not True for exists in valid):
        return _last_of_rows(tiles, combiner, axis)
    step = layout.width * math.prod([digit.radix for digit in layout.lanes if digit.axis == axis])
    groups: dict[Any, list[Values]] = {}
    for offset, row, exists in zip(layout.offsets, zip(*[tile.at(layout).elements for tile in tiles]), valid):
        key = _with_zero(offset, axis), offset[axis] // step
        groups.setdefault(key, []).append(combiner.filled(row, exists))
    values = [functools.reduce(combiner, rows) for rows in groups.values()]
    values = _over_lanes(values, combiner, layout, axis, in_order=True)
    found: dict[Any, Values] = {}
    for (place, _), value in sorted(zip(groups, values), key=lambda each: each[0]):
        found[place] = combiner(found[place], value) if place in found else value
    kept = layout.restricted([axis])
    result = kept.squeezed(axis)
    return [Tile((), result).like(list(column)) for column in zip(*[found[offset] for offset in kept.offsets])]


def _last_of_rows(tiles: Sequence[Tile], combiner: Combiner, axis: int) -> list[Tile]:
    order = _with_last(tiles[0].ndim, axis)
    *around, length = [tiles[0].shape[a] for a in order]
    flat = [tile.trans(order).reshape(-1) for tile in tiles]
    lasts = sk.arange(0, math.prod(around)) * length + (length - 1)
    return [gather(each, lasts).reshape(around) for each in _row_by_row(flat, combiner, length, is_reversed=False)]


def _with_last(rank: int, axis: int) -> list[int]:
    return [a for a in range(rank) if a != axis] + [axis]


def _row_by_row(flat: Sequence[Tile], combiner: Combiner, length: int, *, is_reversed: bool) -> list[Tile]:
    """Scan tiles of one axis that have a row of so many elements after the other."""
    layout = layout_for(flat[0].shape)
    index = sk.arange(0, flat[0].extent) % length
    begins = (index == (length - 1 if is_reversed else 0)).to(sk.int32)
    tiles = [held(each).at(layout) for each in (begins, *flat)]
    neutral = None if combiner.identity is None else (sk.int32(0), *combiner.identity)
    whole = Combiner(_anew(combiner), [sk.int32, *combiner.dtypes], neutral, is_single=False)
    results = Scan(whole, chunks_of(tiles, is_reversed=is_reversed)).results()
    _, *columns = zip(*results)
    return [tiles[0].like(list(column)) for column in columns]


def _anew(combiner: Combiner) -> Callable[[Values, Values], Values]:
    """Return a function that combines values of one row. Before its values each has a number, 1 where a row begins with it."""

    def combine(a: Values, b: Values) -> Values:
        begins = _DIFFERS(b[0], 0)
        both = combiner(a[1:], b[1:])
        return (_OR(a[0], b[0]), *[sk.where(begins, own, each) for own, each in zip(b[1:], both)])

    return combine
