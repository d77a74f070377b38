"""Whether any or all elements of a tile are set, and how many are: a barrier that votes, two barriers for the number."""

from __future__ import annotations

from typing import Any

import stagekit as sk
from stagekit.lib.axes import axis_of
from stagekit.lib.combining import Combine, Combiner
from stagekit.lib.layout import WARP
from stagekit.lib.reductions import of_one, of_thread
from stagekit.lib.tile import Tile, require_tile

_ADD, _AND, _OR = map(sk._operation, ("+", "&", "|"))


@sk._kernel_only
@sk._stamped
def any(tile: Tile, axis: int | None = None) -> Any:
    """Return whether an element of a tile is not zero, a bool; along an axis, a tile without it. NaN is not zero."""
    return _vote("any", tile, axis, _OR, False)


@sk._kernel_only
@sk._stamped
def all(tile: Tile, axis: int | None = None) -> Any:
    """Return whether no element of a tile is zero, a bool; along an axis, a tile without it. NaN is not zero."""
    return _vote("all", tile, axis, _AND, True)


def _vote(function: str, tile: Tile, axis: Any, combine: Combine, identity: bool) -> Any:
    """Ask the threads for their elements, then the block by a barrier that votes, or the warp where it is one."""
    require_tile(function, tile)
    is_set, threads = tile.to(sk.bool_), tile.layout.threads
    if axis is not None and (axis_of(function, tile, axis), tile.ndim) != (0, 1):
        return of_one(function, is_set, combine, identity, axis)
    combiner = Combiner(combine, (sk.bool_,), (identity,), is_single=True)
    own = of_thread([(each,) for each in is_set.elements], is_set.valid(), combiner)[0]
    if threads <= WARP:
        return (sk.all_sync if identity else sk.any_sync)((1 << threads) - 1, own)
    return (sk.syncthreads_and if identity else sk.syncthreads_or)(own)


@sk._kernel_only
@sk._stamped
def count_nonzero(tile: Tile, axis: int | None = None) -> Any:
    """Return how many elements of a tile are not zero, an int32; along an axis, a tile without it. NaN is not zero."""
    require_tile("count_nonzero", tile)
    return of_one("count_nonzero", tile.to(sk.bool_).to(sk.int32), _ADD, 0, axis)
