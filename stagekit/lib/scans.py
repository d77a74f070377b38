"""Scans: for each element of a tile, everything up to it combined.

    x = sk.load(src + i)
    first = sk.cumsum(x) - x                                            # where each element's part begins
    rows = sk.scan((a, b), lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]))  # h = a * h + b, for all steps at once

Scans are inclusive: element i takes part in result i. The order of combination depends only on the number of threads and on how
the elements lie over them.
"""

from __future__ import annotations

from typing import Any

import stagekit as sk
from stagekit.lib.axes import axis_of, scanned
from stagekit.lib.combining import Combine, Combiner, Scan, chunks_of, combiner_of
from stagekit.lib.layout import recorded
from stagekit.lib.reductions import sum_dtype
from stagekit.lib.tile import Tile, of_one_axis, require_tile

_ADD, _MULTIPLY = map(sk._operation, ("+", "*"))


@sk._kernel_only
@sk._direct
def scan(tile: Any, combine: Combine, identity: Any = None, reverse: bool = False, *, axis: int | None = None) -> Any:
    """Return the tile whose element i is the elements 0 to i of a tile, combined: the scan is inclusive.

    tile: a tile, or a tuple of tiles of one shape, of which a tuple is returned. axis: of the scan; left out, all elements in C
    order, as a tile of one axis. combine: an associative function of two
    numbers, or of two tuples with one of each tile, that returns the same; its left operand comes before the right one. It is
    given elements of the tile, and what it has returned. identity: a number, or a tuple of them, that changes nothing as an
    operand; with one, fewer branches are needed. reverse: from the last element to the first, as if the tile were turned round
    before and after. Refused: results in another dtype than the tile's.
    """
    tiles, combiner = combiner_of("scan", tile, combine, identity)
    found = _scanned("scan", tiles, combiner, axis, is_reversed=reverse)
    return found[0] if combiner.is_single else tuple(found)


def _scanned(name: str, tiles: list[Tile], combiner: Combiner, axis: Any, *, is_reversed: bool) -> list[Tile]:
    if axis is not None and (place := axis_of(name, tiles[0], axis)) is not None and tiles[0].ndim > 1:
        return scanned(tiles, combiner, place, is_reversed)
    return _of_one_axis([of_one_axis(name, tile.reshape(-1)) for tile in tiles], combiner, is_reversed)


@recorded
@sk._direct
def _of_one_axis(tiles: list[Tile], combiner: Combiner, is_reversed: bool) -> list[Tile]:
    results = Scan(combiner, chunks_of(tiles, is_reversed=is_reversed)).results()
    return [tiles[0].like(list(column)) for column in zip(*results)]


@sk._kernel_only
@sk._stamped
def cumsum(tile: Tile, reverse: bool = False, *, axis: int | None = None) -> Tile:
    """Return the tile whose element i is the sum of elements 0 to i of a tile; from i on if `reverse`.

    axis: along which; left out, of all elements in C order, as a tile of one axis.
    Integers wrap; bool and integers below 32 bits are summed as int32 or uint32. float16 and bfloat16 are summed in
    float32 and rounded once.
    """
    return _cumulative("cumsum", tile, _ADD, 0, reverse, axis)


@sk._kernel_only
@sk._stamped
def cumprod(tile: Tile, reverse: bool = False, *, axis: int | None = None) -> Tile:
    """Return the tile whose element i is the product of elements 0 to i of a tile; from i on if `reverse`.

    Dtypes are as in `cumsum`.
    """
    return _cumulative("cumprod", tile, _MULTIPLY, 1, reverse, axis)


def _cumulative(function: str, tile: Any, combine: Combine, identity: int, reverse: bool, axis: Any) -> Tile:
    require_tile(function, tile)
    working = sum_dtype(tile.dtype)
    neutral = -0.0 if combine is _ADD and working.is_float else identity  # 0.0 would lose the sign of a negative zero
    combiner = Combiner(combine, (working,), (working(neutral),), is_single=True)
    (found,) = _scanned(function, [tile.to(working)], combiner, axis, is_reversed=reverse)
    return found.to(tile.dtype) if tile.dtype.is_float else found
