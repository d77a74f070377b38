"""Reductions over a warp, a block or a tile: shuffles, one shared buffer, two barriers. Every thread gets the result.

    total = sk.reduce_sum(x)                                            # x: a tile
    best = sk.block_reduce(score, sk.maximum, -float("inf"), 256)       # score: one scalar per thread
    both = sk.warp_reduce(flags, lambda a, b: a | b)

The order of combination depends only on the number of threads, so a result is the same on every run and every target;
for floats it differs from NumPy's pairwise order. All threads of the warp or block must take part.

Source: CUDA C++ Programming Guide, Warp Shuffle Functions; for the tree of `shfl.sync`, PTX ISA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import stagekit as sk
from stagekit.lib.tile import MAX_THREADS, WARP, Tile, Traced

_ADD, _SUBTRACT, _MULTIPLY, _REMAINDER = map(sk._operation, ("+", "-", "*", "%"))
_AND, _OR, _LESS, _EQUAL = map(sk._operation, ("&", "|", "<", "=="))

Combine = Callable[[Traced, Traced], Traced]


@sk._kernel_only
def warp_reduce(value: Traced, combine: Combine, lanes: int = WARP) -> Traced:
    """Return `combine` over the first `lanes` lanes of the warp, which are all that exist; each lane gets it.

    combine: a function of two scalars, associative and commutative up to rounding.
    """
    _require_count("warp_reduce", "lanes", lanes, WARP)
    everyone = (1 << lanes) - 1
    if lanes & (lanes - 1) == 0:
        return _butterfly(value, combine, lanes, everyone)
    return sk.shfl_sync(everyone, _gather_down(value, combine, lanes, everyone), 0)


@sk._direct
def _butterfly(value: Traced, combine: Combine, lanes: int, mask: int) -> Traced:
    """Exchange with the lane that differs in one bit, bit after bit; `lanes` is a power of two.

    Combines within each group of `lanes` neighbours; every lane of a group gets the same result.
    """
    distance = lanes // 2
    while distance > 0:
        value = combine(value, sk.shfl_xor_sync(mask, value, distance))
        distance = distance // 2
    return value


@sk._direct
def _gather_down(value: Traced, combine: Combine, lanes: Traced, mask: Traced) -> Traced:
    """Combine along a tree towards lane 0, for any number of lanes, known at compile time or not; only lane 0's result counts."""
    for distance in (16, 8, 4, 2, 1):
        above = sk.shfl_down_sync(mask, value, distance)
        value = sk.where(_LESS(_ADD(sk.lane_id(), distance), lanes), combine(value, above), value)
    return value


@sk._kernel_only
def block_reduce(value: Traced, combine: Combine, identity: Traced, block_threads: int) -> Traced:
    """Return `combine` over one scalar of each of the `block_threads` (1 to 1024) threads of the block; each thread gets it.

    combine: a function of two scalars, associative and commutative up to rounding. identity: `combine(identity, x)` is x.
    A launch with another block is refused; where the block is not fixed otherwise, it lies along x.
    """
    _require_count("block_reduce", "block_threads", block_threads, MAX_THREADS)
    sk._whole_block(block_threads, "block_reduce")
    if block_threads <= WARP:
        return warp_reduce(value, combine, block_threads)
    scratch = sk.alloc_shared((-(-block_threads // WARP),), value.dtype)
    return _through(scratch, value, combine, scratch.dtype(identity), block_threads)


@sk._direct
def _through(scratch: Traced, value: Traced, combine: Combine, identity: Traced, block_threads: int) -> Traced:
    """Reduce each warp, and what they give, by way of `scratch`, which has one element per warp."""
    of_warp = _of_warp(value, combine, block_threads)
    sk.store(_ADD(scratch, sk.warp_id()), of_warp, mask=_EQUAL(sk.lane_id(), 0))
    sk.syncthreads()
    total = _of_warps(scratch, combine, identity, block_threads)
    sk.syncthreads()  # in a loop, the next round writes to the same scratch
    return total


@sk._direct
def _of_warp(value: Traced, combine: Combine, block_threads: int) -> Traced:
    """Return the reduction of this thread's warp, right in lane 0 at least."""
    if block_threads % WARP == 0:
        return _butterfly(value, combine, WARP, 0xFFFFFFFF)
    # The last warp is shorter, and lanes that do not exist must not be named.
    lanes = _SUBTRACT(block_threads, _MULTIPLY(sk.warp_id(), WARP))
    mask = sk.where(_LESS(lanes, WARP), sk.uint32((1 << block_threads % WARP) - 1), sk.uint32(0xFFFFFFFF))
    return _gather_down(value, combine, lanes, mask)


@sk._direct
def _of_warps(scratch: Traced, combine: Combine, identity: Traced, block_threads: int) -> Traced:
    """Return the reduction of `scratch` in every thread."""
    warps = scratch.shape[0]
    if block_threads % WARP != 0:  # too few lanes in the last warp to do it side by side
        return functools.reduce(combine, (sk.load(_ADD(scratch, warp)) for warp in range(warps)))
    group = 1 << (warps - 1).bit_length()  # lanes that hold all of it: as many as warps, up to a power of two
    place = _REMAINDER(sk.lane_id(), group)
    value = sk.load(_ADD(scratch, place), mask=group == warps or _LESS(place, warps), other=identity)
    return _butterfly(value, combine, group, 0xFFFFFFFF)


@sk._direct
def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _require_count(function: str, name: str, value: int, most: int) -> None:
    if not _is_count(value, most):
        sk.static_assert(False, f"{function}: {name} must be a compile-time int from 1 to {most}, got {value!r}")


@sk._kernel_only
def reduce_sum(tile: Tile) -> Traced:
    """Return the sum of a tile's elements, a scalar that is equal in every thread.

    Integers wrap; bool and integers below 32 bits are summed as int32 or uint32. float16 and bfloat16 are summed in
    float32 and rounded once.
    """
    _require_tile("reduce_sum", tile)
    working = _sum_dtype(tile.dtype)
    zero = -0.0 if working.is_float else 0  # 0.0 would lose the sign of a sum of negative zeros
    total = _reduce(tile.to(working), _ADD, zero)
    return total.to(tile.dtype) if tile.dtype.is_float else total


def _sum_dtype(dtype: sk.DType) -> sk.DType:
    """Return the dtype in which a sum of `dtype` is done."""
    if dtype.bits >= 32:
        return dtype
    if dtype.is_float:
        return sk.float32
    return sk.uint32 if dtype.kind == "uint" else sk.int32


@sk._kernel_only
def reduce_max(tile: Tile) -> Traced:
    """Return the largest element of a tile, a scalar that is equal in every thread; NaN if there is one."""
    _require_tile("reduce_max", tile)
    dtype = tile.dtype
    if dtype is sk.bool_:
        return _reduce(tile, _OR, False)
    return _reduce(tile, sk.maximum, -float("inf") if dtype.is_float else dtype.min)


@sk._kernel_only
def reduce_min(tile: Tile) -> Traced:
    """Return the smallest element of a tile, a scalar that is equal in every thread; NaN if there is one."""
    _require_tile("reduce_min", tile)
    dtype = tile.dtype
    if dtype is sk.bool_:
        return _reduce(tile, _AND, True)
    return _reduce(tile, sk.minimum, float("inf") if dtype.is_float else dtype.max)


@sk._direct
def _require_tile(function: str, value: object) -> None:
    if not isinstance(value, Tile):
        sk.static_assert(False, f"{function} takes a tile; for one scalar per thread use block_reduce")


def _reduce(tile: Tile, combine: Combine, identity: Traced) -> Traced:
    """Combine first what this thread holds, then over the block."""
    identity = tile.dtype(identity)
    return block_reduce(_of_thread(tile, combine, identity), combine, identity, tile.layout.threads)


@sk._direct
def _of_thread(tile: Tile, combine: Combine, identity: Traced) -> Traced:
    held = [x if valid is True else sk.where(valid, x, identity) for x, valid in zip(tile.elements, tile.valid())]
    return functools.reduce(combine, held)
