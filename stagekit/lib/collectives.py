"""One value of each thread, combined over a warp or a block, in the order of the threads. Every thread gets the result.

    total = sk.block_reduce(x, lambda a, b: a + b, 0.0, 256)
    best = sk.block_reduce((score, index), lambda a, b: b if b[0] > a[0] else a, block_threads=(16, 16))
    place = sk.block_scan(sk.int32(is_kept), lambda a, b: a + b, 0, 256, exclusive=True)

A value is a number, or a tuple, NamedTuple, dataclass or the like of numbers: see `structures`. The function need only be
associative: its left operand comes from lower threads, counted x first, then y, then z. The order depends on the number of
threads alone, so that a result is the same on every run; of floats it differs in the last bits from NumPy's.

A block is combined in its warps by shuffles down, so that lane 0 has everything, and what they give once more. Where its last
warp is short it is scanned (`combining`).

Source: CUDA C++ Programming Guide, Warp Shuffle Functions; Sengupta et al., Scan Primitives for GPU Computing, 2007.
"""

from __future__ import annotations

from typing import Any

import stagekit as sk
from stagekit.lib.combining import Chunk, Combine, Combiner, Row, Scan, Values, is_commutative
from stagekit.lib.layout import WARP
from stagekit.lib.reductions import butterfly, over_threads
from stagekit.lib.structures import Structure

_ADD, _LESS, _EQUAL = map(sk._operation, ("+", "<", "=="))
_EVERYONE = 0xFFFFFFFF


@sk._kernel_only
@sk._direct
@sk._among_threads
def warp_reduce(value: Any, combine: Combine, lanes: int = WARP, *, commutative: bool = False) -> Any:
    """Return `combine` over the first `lanes` lanes of the warp, which are all that exist; each lane gets it.

    value: a number, or a tuple, NamedTuple, dataclass or the like of numbers. combine: an associative function of two such
    values, of which the left one comes from lower lanes. commutative: their order does not matter, which saves an instruction.
    """
    if type(lanes) is not int or not 1 <= lanes <= WARP:
        sk.static_assert(False, f"warp_reduce: lanes must be a compile-time int from 1 to {WARP}, got {lanes!r}")
    given = Structure("warp_reduce", value)
    combiner = given.combiner(combine)
    return given.of(_of_one_warp(given.numbers, combiner, lanes, is_free=is_commutative(combine, commutative)))


@sk._kernel_only
@sk._direct
@sk._among_threads
def block_reduce(
    value: Any, combine: Combine, identity: Any = None, block_threads: Any = None, *, commutative: bool = False
) -> Any:
    """Return `combine` over one value of each thread of the block; each thread gets it.

    value: a number, or a tuple, NamedTuple, dataclass or the like of numbers. combine: an associative function of two such
    values, of which the left one comes from lower threads. identity: a value with `combine(identity, x)` equal to x, which saves
    branches. block_threads: the block of the launch, as a number of threads (1 to 1024; they lie along x where nothing else says
    how) or its extents; left out, that of `device_entry`. A launch with another block is refused. commutative: the order of the
    operands does not matter, which is quicker, above all on the CPU.
    """
    threads = sk._whole_block(block_threads, "block_reduce")
    given = Structure("block_reduce", value)
    combiner = given.combiner(combine, identity)
    if is_commutative(combine, commutative):
        return given.of(over_threads(given.numbers, combiner, threads, threads))
    return given.of(_in_order(given.numbers, combiner, threads))


@sk._kernel_only
@sk._direct
@sk._among_threads
def block_scan(
    value: Any, combine: Combine, identity: Any = None, block_threads: Any = None, *, exclusive: bool = False
) -> Any:
    """Return in each thread `combine` over the values of the threads up to it; if `exclusive`, of those before it.

    exclusive: needs an identity, which is what the first thread gets. The rest is as in `block_reduce`.
    """
    threads = sk._whole_block(block_threads, "block_scan")
    given = Structure("block_scan", value)
    combiner = given.combiner(combine, identity)
    if exclusive and combiner.identity is None:
        sk.static_assert(False, "block_scan: exclusive needs an identity, which is what the first thread gets")
    scan = Scan(combiner, [Chunk(Row(threads, threads), 1, threads, [given.numbers])])
    return given.of(scan.before_each()[0] if exclusive else scan.results()[0])


def _of_one_warp(value: Values, combiner: Combiner, lanes: int, *, is_free: bool) -> Values:
    """Combine what the only `lanes` lanes of a warp hold. is_free: in any order."""
    mask, is_power = (1 << lanes) - 1, lanes & (lanes - 1) == 0
    if is_free and is_power:
        return butterfly(value, combiner, lanes, mask)
    return lanes_reduced(value, combiner, lanes, mask, lanes if is_power else WARP)


def lanes_reduced(value: Values, combiner: Combiner, lanes: int, mask: Any, width: int) -> Values:
    """Combine the first `lanes` lanes of each `width`; each of them gets it."""
    value = _to_first(value, combiner, lanes, mask, width)
    return tuple([sk.shfl_sync(mask, each, 0, width) for each in value])


def _to_first(value: Values, combiner: Combiner, lanes: int, mask: Any, width: int) -> Values:
    """Combine the first `lanes` lanes of each `width` so that the first one has it: with the lane 1, 2, 4, ... places above."""
    distance = 1
    while distance < lanes:
        exists, source = True, distance
        if lanes & (lanes - 1):
            exists = _LESS(sk.lane_id(), lanes - distance)
            source = sk.where(exists, sk.int32(distance), sk.int32(0))  # what no lane holds must not be read
        above = tuple([sk.shfl_down_sync(mask, each, source, width) for each in value])
        value = combiner.before(value, above, exists)
        distance *= 2
    return value


def _in_order(value: Values, combiner: Combiner, threads: int) -> Values:
    """Combine what all threads of the block hold."""
    if threads <= WARP:
        return _of_one_warp(value, combiner, threads, is_free=False)
    if threads % WARP:
        return Scan(combiner, [Chunk(Row(threads, threads), 1, threads, [value])]).total()
    warps = threads // WARP
    scratch = [sk.alloc_shared((warps,), dtype) for dtype in combiner.dtypes]
    for array, number in zip(scratch, _to_first(value, combiner, WARP, _EVERYONE, WARP)):
        sk.store(_ADD(array, sk.warp_id()), number, mask=_EQUAL(sk.lane_id(), 0))
    sk.syncthreads()
    place = sk.minimum(sk.lane_id(), warps - 1)  # a lane above has a copy, which the first one never gets
    loaded = tuple([sk.load(_ADD(array, place)) for array in scratch])
    total = lanes_reduced(loaded, combiner, warps, _EVERYONE, WARP)
    sk.syncthreads()  # in a loop, the next round writes to the same scratch
    return total
