"""Sorting within a tile: a bitonic network, in registers, then by shuffles, then through shared memory.

    ordered = sk.sort(x)
    values, places = sk.topk(x, 8)

Numbers are sorted as integers that stand for them: of floats the bits, of which negative ones are turned round; of all numbers
their complement where the largest comes first. -0.0 comes before 0.0, and NaN is larger than every number, as in NumPy. What has
a place beside its number is sorted by both, in one integer where that has room: of equal numbers the lower index comes first.
There -0.0 stands as 0.0, which it is equal to, and a bit below its place tells it from that.

The first 2**n threads of the block hold E elements each, also a power of two; elements that do not exist come last. Positions
that differ by less than E are compared in a thread, by less than 32 E in a warp. Where fewer elements are wanted, as by topk,
positions that can hold none of them any more are left out: where all of them are a thread's own, they are None.

A GPU loops over what threads do with each other, so that one round of it is compiled, and not each.

Source: Batcher, Sorting Networks and Their Applications, AFIPS 1968.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import stagekit as sk
from stagekit.lib.conversion import wait
from stagekit.lib.exchange import load_tile, store_tile
from stagekit.lib.layout import WARP, Layout, both, mask_of, recorded
from stagekit.lib.placing import layout_for
from stagekit.lib.tile import Tile, Traced, of_one_axis

_ADD, _MULTIPLY, _AND, _OR, _XOR = map(sk._operation, ("+", "*", "&", "|", "^"))
_SUBTRACT, _LESS, _EQUAL, _LEFT, _RIGHT = map(sk._operation, ("-", "<", "==", "<<", ">>"))

MAX_SORTED = 16_384  # elements; with more, what a thread does by itself would be too long
_LEVELS_OF_WARP = 5
_FEWEST_IN_LOOPS = 4  # elements of a thread; with fewer, what is compared takes no longer than the loop

Values = tuple[Traced, ...]  # what is sorted together: a number, or a number and its index
Held = tuple[Values | None, ...]  # the elements of a thread


@sk._kernel_only
def sort(tile: Tile, descending: bool = False) -> Tile:
    """Return the elements of a tile in ascending order, or in descending one; up to 16,384 of them.

    NaNs are larger than all numbers, and -0.0 comes before 0.0. Each has the same bits afterwards.
    """
    keys = _keys("sort", tile, descending)
    (found,) = _sorted([keys], keys.layout)
    return _numbers(found, tile.dtype, descending)


@sk._kernel_only
def argsort(tile: Tile, descending: bool = False) -> Tile:
    """Return the indices, int64, that put the elements of a tile in order; of equal elements the lower index comes first."""
    keys = _keys("argsort", tile, descending)
    return _sorted_with_places(keys, keys.layout, tile.dtype.is_float, descending)[1]


@sk._kernel_only
def topk(tile: Tile, k: int, largest: bool = True) -> tuple[Tile, Tile]:
    """Return tiles of the `k` largest elements of a tile, or smallest, in order, and of their indices, int64.

    k: a compile-time int. NaNs are larger than all numbers; of equal elements the lower index comes first.
    """
    keys = _keys("topk", tile, largest)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= tile.extent:
        sk.static_assert(False, f"topk: k must be a compile-time int from 1 to {tile.extent}, got {k!r}")
    found, places = _sorted_with_places(keys, layout_for((k,)), tile.dtype.is_float, largest)
    return _numbers(found, tile.dtype, largest), places


# -- numbers as integers ------------------------------------------------------------------------------------------------


def _keys(function: str, tile: Tile, is_descending: bool) -> Tile:
    """Return the integers that are in the order of the elements of a tile, or in the opposite one."""
    tile = of_one_axis(function, tile)
    if tile.extent > MAX_SORTED:
        sk.static_assert(False, f"{function}: a tile of {tile.extent} elements; up to {MAX_SORTED} are sorted at once")
    keys = tile
    if tile.dtype is sk.bool_:
        keys = tile.to(sk.uint8)
    elif tile.dtype.is_float:
        signed = getattr(sk, f"int{tile.dtype.bits}")
        keys = sk.where(tile != tile, signed(signed.max), _turned(tile.view(signed)))
    return ~keys if is_descending else keys


def _numbers(keys: Tile, dtype: sk.DType, is_descending: bool) -> Tile:
    """Return the numbers of `dtype` that these integers stand for."""
    keys = ~keys if is_descending else keys
    numbers: Tile = _turned(keys).view(dtype) if dtype.is_float else keys.to(dtype)
    return numbers


def _turned(bits: Tile) -> Tile:
    """Turn the order of negative numbers round: of bits of floats, and back."""
    turned: Tile = bits ^ (bits >> bits.dtype.bits - 1 & bits.dtype.max)
    return turned


def _sorted_with_places(keys: Tile, layout: Layout, is_float: bool, is_descending: bool) -> tuple[Tile, Tile]:
    """Return keys in order, and the int64 places that they come from, as tiles of a layout."""
    if not is_float:
        return _sorted_by_both(keys, sk.arange(0, keys.extent), layout)
    zero = -1 if is_descending else 0  # the key of 0.0; that of -0.0 is its complement
    is_negative = keys == ~zero
    found, marked = _sorted_by_both(
        sk.where(is_negative, zero, keys), sk.arange(0, keys.extent) * 2 + is_negative, layout
    )
    return sk.where(marked & 1 != 0, ~zero, found), marked >> 1


def _sorted_by_both(keys: Tile, places: Tile, layout: Layout) -> tuple[Tile, Tile]:
    """Return keys in order, of equal ones the lower place first, and their places, int64, as tiles of a layout."""
    if keys.dtype.bits == 64:
        found, order = _sorted([keys, places.to(sk.int32)], layout)
        return found, order.to(sk.int64)
    half = max(16, keys.dtype.bits)
    both_in_one = getattr(sk, f"{keys.dtype.kind}{2 * half}")
    (found,) = _sorted([keys.to(both_in_one) << half | places.to(both_in_one)], layout)
    return (found >> half).to(keys.dtype), (found & ((1 << half) - 1)).to(sk.int64)


# -- the network --------------------------------------------------------------------------------------------------------


@recorded
def _sorted(tiles: list[Tile], layout: Layout) -> list[Tile]:
    """Return tiles in order, of which the first decides, and then the next; with another layout, which may be of fewer elements.

    Each round puts blocks of twice as many threads in order. They are not longer than what is wanted: of two that are in order,
    what comes first is kept, and put in order.
    """
    network = _Network(tiles, layout)
    values = network.of_threads()
    steps = sk.static_range if network.is_unrolled else range
    for level in steps(1, network.levels_wanted + 1):
        for apart in steps(level - 1, -1, -1):
            values = network.compared(values, level, apart)
        values = network.merged(values, level)
    if network.levels_wanted < network.levels:
        for level in steps(network.levels_wanted + 1, network.levels + 1):
            values = network.firsts(values, level - 1)
            for apart in steps(network.levels_wanted - 1, -1, -1):
                values = network.compared(values, level, apart)
            values = network.merged(values, level)
    return network.gathered(values, layout)


class _Network:
    """A network for tiles of one extent. Position p is in thread p // each, and there are 2**levels threads.

    wanted: how many positions have to be in order in the end: of one thread, or of 2**levels_wanted.
    """

    @sk._direct
    def __init__(self, tiles: list[Tile], result: Layout) -> None:
        extent, threads = tiles[0].extent, tiles[0].layout.threads
        size = 1 << (extent - 1).bit_length()
        self.tiles, self.extent, self.threads = tiles, extent, threads
        self.active = min(size, 1 << (threads.bit_length() - 1))
        self.each, self.wanted = size // self.active, 1 << (result.extent - 1).bit_length()
        self.levels, self.levels_wanted = [(max(n // self.each, 1) - 1).bit_length() for n in (size, self.wanted)]
        self.is_unrolled = self.each < _FEWEST_IN_LOOPS or sk._is_for_cpu()
        self.thread, self.lane = sk.int32(sk.cuda.thread_idx("x")), sk.int32(sk.lane_id())
        self.scratch = [sk.alloc_shared((size,), tile.dtype) for tile in tiles]
        self.holds = True if self.active == threads else _LESS(self.thread, self.active)

    @sk._direct
    def of_threads(self) -> Held:
        """Return this thread's elements, those that do not exist last, and put in order."""
        values, block = self.spread(), 2
        while block <= self.each:
            if block > self.wanted:
                others = [None if e & block // 2 else values[e | block // 2] for e in range(self.each)]
                values = self.kept(values, others)
            values = self.turned(values, 0) if block == self.each else values
            values = self.in_order(values, block)
            values = self.turned(values, 0) if block == self.each else values
            block *= 2
        return values

    @sk._direct
    def gathered(self, values: Held, layout: Layout) -> list[Tile]:
        """Return what all threads hold as tiles of a layout."""
        self.store(values, lambda e: _ADD(_MULTIPLY(self.thread, self.each), e))
        wait(self.threads)
        found = [load_tile(array, layout) for array in self.scratch]
        wait(self.threads)
        return found

    # -- memory -------------------------------------------------------------------------------------------------

    def spread(self) -> Held:
        """Return this thread's elements, those that do not exist last in order."""
        for array, tile in zip(self.scratch, self.tiles):
            store_tile(array, tile)
        wait(self.threads)
        found = tuple([self.load(self.place(e), self.exists(e)) for e in range(self.each)])
        wait(self.threads)
        return found

    def place(self, e: int) -> Traced:
        """Return where element e of this thread stands: neighbours of one number next to each other, for all banks to be used."""
        return _ADD(self.thread, e * self.active)

    def exists(self, e: int) -> Any:
        if (e + 1) * self.active <= self.extent:
            return self.holds
        return both(self.holds, _LESS(self.place(e), self.extent))

    def load(self, place: Traced, exists: Any) -> Values:
        """Return what stands at a place; where there is nothing, what comes last."""
        lasts = [None if exists is True else tile.dtype.max for tile in self.tiles]
        return tuple([sk.load(_ADD(a, place), mask=mask_of(exists), other=o) for a, o in zip(self.scratch, lasts)])

    def store(self, values: Held, place: Callable[[int], Traced]) -> None:
        mask = mask_of(self.holds)
        for e, value in enumerate(values):
            for array, number in zip(self.scratch, value or ()):
                sk.store(_ADD(array, place(e)), number, mask=mask)

    # -- comparisons --------------------------------------------------------------------------------------------

    @sk._direct
    def compared(self, values: Held, level: Any, apart: Any) -> Held:
        """Put positions in order that are 2**apart threads apart: ascending in even blocks of 2**level threads, or descending."""
        wants_first, others = _EQUAL(self.is_even(apart), self.is_even(level)), self.others(values, apart)
        return tuple([a and b and _chosen(wants_first, *_in_order(a, b)) for a, b in zip(values, others)])

    @sk._direct
    def merged(self, values: Held, level: Any) -> Held:
        """Put the elements of each thread in order, where all positions of other threads are: the same way as there."""
        return self.turned(self.in_order(self.turned(values, level), self.each), level)

    @sk._direct
    def firsts(self, values: Held, apart: Any) -> Held:
        """Keep what comes first of two positions that are 2**apart threads apart, in both."""
        return self.kept(values, self.others(values, apart))

    def kept(self, values: Held, others: Sequence[Values | None]) -> Held:
        return tuple([a and b and _in_order(a, b)[0] for a, b in zip(values, others)])

    def is_even(self, level: Any) -> Any:
        """Return whether this thread is in an even block of 2**level threads."""
        if isinstance(level, int) and level == self.levels:
            return True
        return _EQUAL(_AND(_RIGHT(self.thread, level), 1), 0)

    def turned(self, values: Held, level: Any) -> Held:
        """Return the complements where ascending order is to be descending: in odd blocks of 2**level threads."""
        if isinstance(level, int) and level == self.levels:
            return values
        odd = _AND(_RIGHT(self.thread, level), 1)
        masks = [_SUBTRACT(tile.dtype(0), tile.dtype(odd)) for tile in self.tiles]
        return tuple([value and tuple(map(_XOR, value, masks)) for value in values])

    def in_order(self, values: Held, block: int) -> Held:
        """Merge the two halves of each block of a thread's elements: ascending in even blocks, descending in odd ones."""
        found, distance = list(values), min(block, self.wanted) // 2
        while distance >= 1:
            for e in range(self.each):
                a, b = found[e], found[e | distance]
                if a and b and not e & distance:
                    pair = _in_order(a, b)
                    found[e], found[e | distance] = pair if block == self.each or not e & block else pair[::-1]
            distance //= 2
        return tuple(found)

    def others(self, values: Held, apart: Any) -> Held:
        """Return the elements of the thread that is 2**apart threads from this one."""
        by_shuffles, by_memory = (functools.partial(way, values, apart) for way in (self.by_shuffles, self.by_memory))
        if isinstance(apart, int) or self.levels <= _LEVELS_OF_WARP:
            return by_shuffles() if self.levels <= _LEVELS_OF_WARP or apart < _LEVELS_OF_WARP else by_memory()
        found: Held = sk._choose(_LESS(apart, _LEVELS_OF_WARP), by_shuffles, by_memory)
        return found

    def by_shuffles(self, values: Held, apart: Any) -> Held:
        distance = _LEFT(sk.int32(1), apart)
        if self.threads % WARP == 0:
            return tuple([v and tuple([sk.shfl_xor_sync(0xFFFFFFFF, x, distance) for x in v]) for v in values])
        partner, mask = _XOR(self.lane, distance), self.mask()
        source = partner if self.holds is True else sk.where(self.holds, partner, self.lane)
        return tuple([v and tuple([sk.shfl_sync(mask, x, source) for x in v]) for v in values])

    def mask(self) -> Traced:
        """Return the lanes of this thread's warp that exist."""
        short = (1 << self.threads % WARP) - 1
        if self.threads < WARP:
            return short
        is_whole = _LESS(self.thread, self.threads - self.threads % WARP)
        return sk.where(is_whole, sk.uint32(0xFFFFFFFF), sk.uint32(short))

    def by_memory(self, values: Held, apart: Any) -> Held:
        self.store(values, self.place)
        wait(self.threads)
        partner = _XOR(self.thread, _LEFT(sk.int32(1), apart))
        places = [_ADD(partner, e * self.active) for e in range(self.each)]
        found = tuple([value and self.load(place, self.holds) for value, place in zip(values, places)])
        wait(self.threads)
        return found


def _in_order(a: Values, b: Values) -> tuple[Values, Values]:
    """Return two values, that which comes first in front."""
    if len(a) == 1:
        return (sk.minimum(a[0], b[0]),), (sk.maximum(a[0], b[0]),)
    is_turned = _OR(_LESS(b[0], a[0]), _AND(_EQUAL(a[0], b[0]), _LESS(b[1], a[1])))
    return _chosen(is_turned, b, a), _chosen(is_turned, a, b)


def _chosen(condition: Traced, a: Values, b: Values) -> Values:
    return tuple([sk.where(condition, x, y) for x, y in zip(a, b)])
