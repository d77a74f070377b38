"""Elements of a tile that move to other threads, through shared memory: gather, and the counts of a histogram.

reversed_x = sk.gather(x, BLOCK - 1 - i)
counts = sk.histogram(x % 10, 10)
"""

from __future__ import annotations

from typing import Any

import stagekit as sk
from stagekit.lib.conversion import wait
from stagekit.lib.layout import Layout, both, mask_of, recorded
from stagekit.lib.tile import Tile, Traced, of_one_axis, tile_of

_ADD, _AND, _LESS, _AT_LEAST = map(sk._operation, ("+", "&", "<", ">="))


def indices_of(layout: Layout) -> list[tuple[Traced, Traced | None]]:
    """Return for each element of a thread its index, and a mask: whether it exists, None where it does in every thread."""
    (first,) = layout.first()
    return [(_ADD(first, offset), mask_of(exists)) for (offset,), exists in zip(layout.offsets, layout.valid())]


def store_tile(array: Traced, tile: Tile) -> None:
    """Write each element of a tile to its place in shared memory."""
    for (index, mask), value in zip(indices_of(tile.layout), tile.elements):
        sk.store(_ADD(array, index), value, mask=mask)


def load_tile(array: Traced, layout: Layout) -> Tile:
    """Return the tile of what stands in shared memory at the index of each element."""
    return tile_of([sk.load(_ADD(array, index), mask=mask) for index, mask in indices_of(layout)], layout)


@sk._kernel_only
@sk._stamped
def gather(tile: Tile, index: Any) -> Any:
    """Return the elements of a tile at the indices of another tile, of any extent; at one index, a number.

    An index outside the tile has no meaning; the checking interpreter finds it. NumPy calls this `tile[index]` and `take`.
    """
    tile = of_one_axis("gather", tile)
    dtype = index.dtype if isinstance(index, Tile) else sk._dtype_of(index) if hasattr(index, "dtype") else sk.int64
    if not dtype.is_integer:
        sk.static_assert(False, f"gather: an index must be an integer, got {dtype.name}")
    if isinstance(index, int) and not 0 <= index < tile.extent:
        sk.static_assert(False, f"gather: index {index} is outside a tile of {tile.extent}")
    if isinstance(index, int):
        return tile[index]
    return _gathered(tile, index)


@recorded
@sk._direct
def _gathered(tile: Tile, index: Any) -> Any:
    scratch = sk.alloc_shared((tile.extent,), tile.dtype)
    store_tile(scratch, tile)
    wait(tile.layout.threads)
    if isinstance(index, Tile):
        rows = zip(index.elements, index.valid())
        found = index.like([sk.load(_ADD(scratch, place), mask=mask_of(exists)) for place, exists in rows])
    else:
        found = sk.load(_ADD(scratch, index))
    wait(tile.layout.threads)  # in a loop, the next round writes to the same scratch
    return found


@sk._kernel_only
@sk._stamped
def histogram(tile: Tile, bins: int, mask: Any = None) -> Tile:
    """Return the tile of `bins` int32 whose element b says how many elements of a tile of integers are b.

    bins: a compile-time int. Elements that are not from 0 to below `bins` count nowhere, nor do those where `mask` is false.
    NumPy calls this `bincount`.
    """
    tile = of_one_axis("histogram", tile)
    if not tile.dtype.is_integer:
        sk.static_assert(False, f"histogram takes a tile of integers, got {tile.dtype.name}")
    return _counts(tile, sk.zeros(bins, sk.int32), mask)


@recorded
@sk._direct
def _counts(tile: Tile, zeros: Tile, mask: Any) -> Tile:
    threads, counts = zeros.layout.threads, sk.alloc_shared((zeros.extent,), sk.int32)
    store_tile(counts, zeros)
    wait(threads)
    allowed = tile.valid() if mask is None else map(both, tile.valid(), tile.elements_of(mask))
    for value, on in zip(tile.elements, allowed):
        is_inside = _AND(both(on, _LESS(value, zeros.extent)), _AT_LEAST(value, 0))
        sk._choose(is_inside, lambda value=value: _count(_ADD(counts, value)), lambda: None)
    wait(threads)
    found = load_tile(counts, zeros.layout)
    wait(threads)  # in a loop, the next round writes zeros
    return found


def _count(place: Traced) -> None:
    sk.atomic_add(place, 1)
