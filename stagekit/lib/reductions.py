"""Reductions over a tile: shuffles, a shared buffer, a barrier. Every thread gets the result.

    total = sk.reduce_sum(x)                                            # x: a tile
    lower, upper = sk.reduce((x, x), lambda a, b: (sk.minimum(a[0], b[0]), sk.maximum(a[1], b[1])))

The order of combination depends only on the number of threads and on how the elements lie over them, so a result is the same on
every run. On the CPU, and for some arguments, tiles lie otherwise: float results then differ in the last bits, as they do from
NumPy's pairwise order. All threads of the block must take part. What each thread has of its own: `collectives`.

Source: CUDA C++ Programming Guide, Warp Shuffle Functions; for the tree of `shfl.sync`, PTX ISA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import stagekit as sk
from stagekit.lib.axes import axis_of, held, reduced, reduced_by_vectors, reduced_in_order
from stagekit.lib.combining import Chunk, Combine, Combiner, Row, Scan, Values, chunks_of, combiner_of, thread_number
from stagekit.lib.layout import WARP, Layout, blocked, recorded
from stagekit.lib.tile import Tile, Traced, of_one_axis, require_tile

_ADD, _REMAINDER, _AND, _OR, _NOT = map(sk._operation, ("+", "%", "&", "|", "~"))
_LESS, _EQUAL, _AT_MOST, _AT_LEAST = map(sk._operation, ("<", "==", "<=", ">="))


def over_threads(value: Values, combiner: Combiner, threads: int, count: int) -> Values:
    """Combine what the first `count` of the block's threads hold, in any order where that is quicker."""
    warps = threads // WARP
    is_filled = combiner.identity is not None
    if threads <= WARP and threads & (threads - 1) == 0 and (count == threads or is_filled):
        return butterfly(_filled(value, combiner, threads, count), combiner, threads, (1 << threads) - 1)
    if threads > WARP and threads % WARP == 0 and (is_filled or (count == threads and warps & (warps - 1) == 0)):
        value = _filled(value, combiner, threads, count)
        if sk._is_for_cpu():
            return _by_rows(value, combiner, -(-count // WARP), threads)
        return _by_butterflies(value, combiner, warps)
    return Scan(combiner, [Chunk(Row(threads, count), 1, count, [value])]).total()


def _filled(value: Values, combiner: Combiner, threads: int, count: int) -> Values:
    return value if count == threads else combiner.filled(value, _LESS(thread_number(), count))


def butterfly(value: Values, combiner: Combiner, lanes: int, mask: int) -> Values:
    """Exchange with the lane that differs in one bit, bit after bit; `lanes` is a power of two.

    Combines within each group of `lanes` neighbours; every lane of a group gets the same result.
    """
    distance = lanes // 2
    while distance > 0:
        value = combiner(value, tuple([sk.shfl_xor_sync(mask, each, distance) for each in value]))
        distance //= 2
    return value


def _by_butterflies(value: Values, combiner: Combiner, warps: int) -> Values:
    """Reduce each warp, and what they give, in each warp again, by way of shared memory."""
    everyone = 0xFFFFFFFF
    of_warp = butterfly(value, combiner, WARP, everyone)
    scratch = [sk.alloc_shared((warps,), dtype) for dtype in combiner.dtypes]
    is_ordered = sk._in_order()
    for array, number in zip(scratch, of_warp):
        sk.store(_ADD(array, sk.warp_id()), number, mask=_EQUAL(sk.lane_id(), 0))
    sk.syncthreads()
    group = 1 << (warps - 1).bit_length()  # lanes that hold all of it: as many as warps, up to a power of two
    place = _REMAINDER(sk.lane_id(), group)
    mask = None if group == warps else _LESS(place, warps)
    others = combiner.identity or [None] * len(scratch)
    loaded = tuple([sk.load(_ADD(array, place), mask=mask, other=other) for array, other in zip(scratch, others)])
    total = butterfly(loaded, combiner, group, everyone)
    if not is_ordered:  # in a loop, the next round writes to the same scratch
        sk.syncthreads()
    return total


def _by_rows(value: Values, combiner: Combiner, warps: int, threads: int) -> Values:
    """Combine what the first warps hold, lane by lane, then the lanes of one. On the CPU a warp is a vector, of which the
    shuffles of a butterfly cost more than memory; what is the same in every warp is done once.
    """
    thread = thread_number()
    scratch = [sk.alloc_shared((warps * WARP,), dtype) for dtype in combiner.dtypes]
    for array, number in zip(scratch, value):
        sk.store(_ADD(array, thread), number, mask=None if warps * WARP == threads else _LESS(thread, warps * WARP))
    sk.syncthreads()
    lane = sk.lane_id()
    rows = [tuple([sk.load(_ADD(array, _ADD(lane, warp * WARP))) for array in scratch]) for warp in range(warps)]
    while len(rows) > 1:  # pairs of pairs: operations that do not wait for each other
        rows = [*map(combiner, rows[::2], rows[1::2]), *rows[len(rows) & ~1 :]]
    total = butterfly(rows[0], combiner, WARP, 0xFFFFFFFF)
    sk.syncthreads()  # in a loop, the next round writes to the same scratch
    return total


@sk._kernel_only
@sk._direct
def reduce(
    tile: Any, combine: Combine, identity: Any = None, commutative: bool = False, *, axis: int | None = None
) -> Any:
    """Return the elements of a tile combined into one number; of a tuple of tiles of one shape, a tuple of numbers.

    axis: along it alone, so that the result is a tile without it; left out, over all elements in C order.

    combine: an associative function of two numbers, or of two tuples with one of each tile, that returns the same. Its left
    operand comes from lower indices than the right one, except if `commutative`, which is quicker. It is given elements of the
    tile, and what it has returned. identity: a number, or a tuple of them, that changes nothing as an operand; with one, fewer
    branches are needed. Refused: results in another dtype than the tile's.
    """
    tiles, combiner = combiner_of("reduce", tile, combine, identity)
    if axis is not None and (place := axis_of("reduce", tiles[0], axis)) is not None and tiles[0].ndim > 1:
        if commutative and combiner.identity is not None:
            rows = list(zip(*[tiles[0].elements_of(each) for each in tiles]))
            return combiner.answer(tuple(reduced(tiles[0], rows, combiner, place)))
        return combiner.answer(tuple(reduced_in_order(tiles, combiner, place)))
    tiles = [of_one_axis("reduce", each.reshape(-1)) for each in tiles]
    return combiner.answer((_in_any_order if commutative else _in_order)(tiles, combiner))


@recorded
@sk._direct
def _in_order(tiles: Sequence[Tile], combiner: Combiner) -> Values:
    return Scan(combiner, chunks_of(tiles)).total()


@recorded
@sk._direct
def _in_any_order(tiles: Sequence[Tile], combiner: Combiner) -> Values:
    """Combine first what each thread holds, by vectors where the function takes them, then over the block."""
    layout = tiles[0].layout
    is_by_vectors = len(tiles) == 1 and combiner.identity and sk._takes_vectors(combiner.function, ())
    if is_by_vectors and tiles[0].is_in_vectors:
        value = _of_vectors(tiles[0], combiner)
    else:
        rows = zip(*[tiles[0].elements_of(tile) for tile in tiles])
        value = of_thread(list(rows), layout.owned(), combiner)
    return _over_block(value, combiner, layout)


def _over_block(value: Values, combiner: Combiner, layout: Layout) -> Values:
    is_of_memory = len(layout.shape) == 1 and layout == blocked(layout.shape, layout.threads, layout.width)
    count = min(layout.threads, -(-layout.extent // layout.width)) if is_of_memory else layout.threads
    return over_threads(value, combiner, layout.threads, count)


def of_thread(rows: list[Values], valid: list[Any], combiner: Combiner) -> Values:
    """Combine a thread's elements, of which those that exist come first."""
    value = combiner.filled(rows[0], valid[0])
    for row, exists in zip(rows[1:], valid[1:]):
        value = combiner.before(value, row, exists)
    return value


def _of_vectors(tile: Tile, combiner: Combiner) -> Values:
    """Combine vectors of one width, then their lanes. Where elements may be missing, a vector is taken apart."""
    numbers, by_width, valid = [], dict[int, list[Traced]](), iter(tile.layout.owned())
    for width, part in zip(tile.layout.widths, tile.vectors_of(tile)):
        exists = [next(valid) for _ in range(width)]
        if all(each is True for each in exists):
            by_width.setdefault(width, []).append(part)
        else:
            numbers += [combiner.filled((lane,), each)[0] for lane, each in zip(sk._lanes(part), exists)]
    for parts in by_width.values():
        numbers += sk._lanes(functools.reduce(combiner.function, parts))
    return functools.reduce(combiner, [(number,) for number in numbers])


@sk._kernel_only
@sk._stamped
def reduce_sum(tile: Tile, axis: int | None = None) -> Any:
    """Return the sum of a tile's elements, a number; along an axis, a tile without it.

    Integers wrap; bool and integers below 32 bits are summed as int32 or uint32. float16 and bfloat16 are summed in
    float32 and rounded once.
    """
    require_tile("reduce_sum", tile)
    working = sum_dtype(tile.dtype)
    zero = -0.0 if working.is_float else 0  # 0.0 would lose the sign of a sum of negative zeros
    total = of_one("reduce_sum", tile.to(working), _ADD, zero, axis)
    return tile.dtype(total) if tile.dtype.is_float else total


def sum_dtype(dtype: sk.DType) -> sk.DType:
    """Return the dtype in which a sum or product of `dtype` is done."""
    if dtype.bits >= 32:
        return dtype
    if dtype.is_float:
        return sk.float32
    return sk.uint32 if dtype.kind == "uint" else sk.int32


@sk._kernel_only
@sk._stamped
def reduce_max(tile: Tile, axis: int | None = None) -> Any:
    """Return the largest element of a tile, a number, NaN if there is one; along an axis, a tile without it."""
    require_tile("reduce_max", tile)
    if tile.dtype is sk.bool_:
        return of_one("reduce_max", tile, _OR, False, axis)
    return of_one("reduce_max", tile, sk.maximum, _lowest(tile.dtype), axis)


@sk._kernel_only
@sk._stamped
def reduce_min(tile: Tile, axis: int | None = None) -> Any:
    """Return the smallest element of a tile, a number, NaN if there is one; along an axis, a tile without it."""
    require_tile("reduce_min", tile)
    if tile.dtype is sk.bool_:
        return of_one("reduce_min", tile, _AND, True, axis)
    return of_one("reduce_min", tile, sk.minimum, _highest(tile.dtype), axis)


def _lowest(dtype: sk.DType) -> Any:
    return -float("inf") if dtype.is_float else dtype.min


def _highest(dtype: sk.DType) -> Any:
    return float("inf") if dtype.is_float else dtype.max


def of_one(function: str, tile: Tile, combine: Combine, identity: Any, axis: int | None) -> Any:
    """Combine the elements of a tile in any order, of all axes or of one."""
    combiner = Combiner(combine, (tile.dtype,), (tile.dtype(identity),), is_single=True)
    if axis is None or axis_of(function, tile, axis) == tile.ndim - 1 == 0:
        return _in_any_order([tile], combiner)[0]
    return reduced_by_vectors(held(tile), combiner, axis_of(function, tile, axis))


# -- where --------------------------------------------------------------------------------------------------


@sk._kernel_only
@sk._stamped
def argmax(tile: Tile, axis: int | None = None) -> Any:
    """Return the index, an int64, of the largest element of a tile: of several the lowest, of NaNs the first.

    axis: along it, a tile without it; left out, among all elements in C order.
    """
    return _place_of("argmax", tile, axis, _AT_MOST, _lowest)


@sk._kernel_only
@sk._stamped
def argmin(tile: Tile, axis: int | None = None) -> Any:
    """Return the index, an int64, of the smallest element of a tile: of several the lowest, of NaNs the first.

    axis: along it, a tile without it; left out, among all elements in C order.
    """
    return _place_of("argmin", tile, axis, _AT_LEAST, _highest)


def _place_of(function: str, tile: Tile, axis: Any, is_no_better: Any, worst: Callable[[sk.DType], Any]) -> Any:
    """Return the index of the best element. is_no_better: whether a number is not better than another; false with a NaN."""
    require_tile(function, tile)
    along = 0 if axis is None else axis_of(function, tile, axis)
    tile = held(tile) if axis is not None and tile.ndim > 1 else of_one_axis(function, tile.reshape(-1))
    numbers = tile.to(sk.uint8) if tile.dtype is sk.bool_ else tile
    return _of_best(numbers, along, is_no_better, numbers.dtype(worst(numbers.dtype)))


@recorded
@sk._direct
def _of_best(tile: Tile, along: int, is_no_better: Any, worst: Any) -> Any:
    dtype, layout = tile.dtype, tile.layout

    def is_better(b: Traced, a: Traced) -> Traced:
        differs = _NOT(is_no_better(b, a))
        return _AND(differs, _EQUAL(a, a)) if dtype.is_float else differs

    def first(a: Values, b: Values) -> Values:
        """Combine elements of a thread, which come in the order of their indices."""
        return _either(is_better(b[0], a[0]), b, a)

    def first_of_any(a: Values, b: Values) -> Values:
        is_later = _OR(is_better(a[0], b[0]), _AND(_LESS(a[1], b[1]), _NOT(is_better(b[0], a[0]))))
        return _either(is_later, a, b)

    identity = (worst, sk.int32(tile.extent))
    dtypes = (dtype, sk.int32)
    start = sk.int32(layout.first([along])[along])
    rows = [(x, _ADD(start, offset[along])) for x, offset in zip(tile.elements, layout.offsets)]
    if tile.ndim > 1:
        combiner = Combiner(first_of_any, dtypes, identity, is_single=False)
        return reduced(tile, rows, combiner, along)[1].to(sk.int64)
    value = of_thread(rows, layout.valid(), Combiner(first, dtypes, identity, is_single=False))
    found = _over_block(value, Combiner(first_of_any, dtypes, identity, is_single=False), layout)
    return sk.int64(found[1])


def _either(condition: Traced, a: Values, b: Values) -> Values:
    return tuple([sk.where(condition, x, y) for x, y in zip(a, b)])
