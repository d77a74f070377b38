"""Products of tiles on the CPU, where the lanes of a warp are one vector.

    sums[r][c] = fma(left[r, k], right[k, c], sums[r][c])         left: one number; right: the lanes' numbers, side by side

The lanes hold neighbours along one axis of the result, and a warp some rows of those. It goes over the common axis once for as
many rows as registers hold the sums of, so that a number that is read is used by all columns, and a vector by all rows. Both
operands lie in shared memory (`panels`), `right` by rows, `left` in either order: what it gives is one number at a time.

Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

import math

import stagekit as sk
from stagekit.lib.conversion import wait
from stagekit.lib.layout import WARP, Digit, Layout, layout_of, mask_of
from stagekit.lib.panels import Panel, stored
from stagekit.lib.shared import COLUMN
from stagekit.lib.tile import Tile, Traced

_ADD, _MULTIPLY, _LESS = map(sk._operation, ("+", "*", "<"))

_SUM_BYTES = 1024  # of the sums that a warp adds to at once: half of the registers of AVX-512


@sk._direct
def cpu_product(a: Tile, b: Tile, total: Tile, *, whole_rows: bool) -> Tile:
    """Return `a @ b + total`, of the dtype of total. whole_rows: each warp has rows of it from end to end."""
    is_by_rows = whole_rows or _has_whole_rows(a)
    if _is_along_rows(a, b):
        return _by_columns(a, b, total, WARP)
    return _by_columns(b.trans(), a.trans(), total.trans(), a.layout.threads if is_by_rows else WARP).trans()


def _is_along_rows(a: Tile, b: Tile) -> bool:
    """Return whether the lanes lie along rows of the result, else along its columns, so that few operands have to be turned."""
    (m, _), n = a.shape, b.shape[1]
    if m % WARP:
        return True
    is_ready = _lies_along(b, 1), _lies_along(a, 0)
    if is_ready[0] != is_ready[1]:
        return is_ready[0]
    return not _has_whole_rows(a) if is_ready[0] else m > n


def _lies_along(tile: Tile, axis: int) -> bool:
    return tile.form.strides[axis] == COLUMN if isinstance(tile.form, Panel) else tile.layout.fastest_axis == axis


def _has_whole_rows(a: Tile) -> bool:
    """Return whether threads that follow one another have rows that do so, each from end to end."""
    lanes = a.layout.lanes
    return not a.form and len(lanes) == 1 and lanes[0] == Digit(a.layout.threads, 0, 1)


def _layout_of(shape: tuple[int, ...], threads: int, across: int) -> Layout:
    """Return the layout of a product of which so many threads share a row, as far as it goes."""
    rows, columns = shape
    across = math.gcd(threads, across, 1 << (columns - 1).bit_length())
    down = threads // across
    registers = (Digit(-(-columns // across), 1, across), Digit(-(-rows // down), 0, down))
    return layout_of(shape, threads, registers, (Digit(across, 1, 1), Digit(down, 0, 1)), 1)


def _by_columns(left: Tile, right: Tile, total: Tile, across: int) -> Tile:
    """Return a product in which the lanes lie along rows, which so many threads share."""
    threads, dtype, depth = total.layout.threads, total.dtype, left.shape[1]
    layout = _layout_of(total.shape, threads, across)
    total = total.at(layout)
    at_hand = _at_hand(left, dtype), _at_hand(right, dtype, 1)
    of_left = at_hand[0] or stored(left, left.layout.fastest_axis, dtype)
    of_right = at_hand[1] or stored(right, 1, dtype)
    is_own = _has_whole_rows(right.trans()) and right.layout.lanes == layout.lanes  # each thread reads what it wrote
    is_new = at_hand[0] is None or (at_hand[1] is None and not is_own)
    if is_new:
        wait(threads)
    sums = list(total.elements)
    for places, rows, columns in _blocks(layout, dtype.itemsize):
        lefts, rights = _places(of_left, layout, 0, rows), _places(of_right, layout, 1, columns)
        found = _after(depth, lefts, rights, [sums[place] for place in places], dtype.is_float)
        for place, each in zip(places, found):
            sums[place] = each
    if is_new:
        wait(threads)  # in a loop, the next round writes to the same memory
    return total.like(sums)


def _at_hand(tile: Tile, dtype: sk.DType, axis: int | None = None) -> Panel | None:
    """Return where a tile is in memory as it is wanted, by rows along an axis; None where it is not."""
    form = tile.form
    if not isinstance(form, Panel) or 0 in form.strides or form.start.dtype is not dtype:
        return None
    return form if axis is None or form.strides[axis] == COLUMN else None


def _blocks(layout: Layout, itemsize: int) -> list[tuple[list[int], list[int], list[int]]]:
    """Return what a warp adds to at once: numbers of registers, and how far their rows and columns are from its first ones."""
    at = {offset: number for number, offset in enumerate(layout.offsets)}
    rows, columns = (list(dict.fromkeys(each)) for each in zip(*layout.offsets))
    most = max(_SUM_BYTES // (WARP * itemsize), 1)
    wide = max(min(len(columns), most // len(rows)), 1)
    high = max(most // wide, 1)
    return [
        ([at[row, column] for row in some_rows for column in some_columns], some_rows, some_columns)
        for some_columns in _cut(columns, wide)
        for some_rows in _cut(rows, high)
    ]


def _cut(numbers: list[int], most: int) -> list[list[int]]:
    """Return numbers in as few equal parts as have at most so many."""
    parts = -(-len(numbers) // most)
    size = -(-len(numbers) // parts)
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def _places(panel: Panel, layout: Layout, axis: int, offsets: list[int]) -> _Places:
    """Return where this thread's rows (axis 0) of a left operand, or columns of a right one, begin."""
    start, first, steps = panel.first(layout, (axis,)), layout.first((axis,))[axis], panel.steps()
    pointers = [_ADD(start, offset * steps[axis]) for offset in offsets]
    extent, last = layout.shape[axis], layout.last[axis]
    masks = [True if o + last < extent else _LESS(_ADD(first, o), extent) for o in offsets]
    return _Places(pointers, masks, steps[1 - axis])


class _Places:
    """Where numbers begin that go on along the common axis, step by step."""

    def __init__(self, pointers: list[Traced], masks: list[Traced], step: int) -> None:
        self.pointers, self.masks, self.step = pointers, masks, step

    def at(self, number: Traced) -> list[Traced]:
        far = _MULTIPLY(number, self.step)
        return [sk.load(_ADD(place, far), mask=mask_of(mask)) for place, mask in zip(self.pointers, self.masks)]


@sk._kernel_only
def _after(depth: int, lefts: _Places, rights: _Places, sums: list[Traced], is_float: bool) -> list[Traced]:
    """Return sums with the products of all numbers along the common axis added, one after the other."""
    for k in range(depth):
        sums = _added(k, lefts, rights, sums, is_float)
    return sums


@sk._direct
def _added(k: Traced, lefts: _Places, rights: _Places, sums: list[Traced], is_float: bool) -> list[Traced]:
    row = rights.at(k)
    pairs = [(x, y) for y in lefts.at(k) for x in row]
    return [sk.fma(x, y, each) if is_float else _ADD(_MULTIPLY(x, y), each) for (x, y), each in zip(pairs, sums)]
