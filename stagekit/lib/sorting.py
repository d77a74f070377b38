"""Sorting within a tile: a bitonic network, in registers, then by shuffles, then through shared memory.

    ordered = sk.sort(x)
    values, places = sk.topk(x, 8)

Numbers are sorted as integers that stand for them: of floats the bits, of which negative ones are turned round. -0.0 comes before
0.0, and NaN is larger than every number, as in NumPy. What has a place beside its number is sorted by both: of equal numbers the
lower index comes first.

The first 2**k threads of the block hold E elements each, also a power of two; elements that do not exist come last. Positions
that differ by less than E are compared in a thread, by less than 32 E in a warp. Where fewer elements are wanted, as by topk,
positions that can hold none of them any more are left out: where all of them are a thread's own, they are None.

Source: Batcher, Sorting Networks and Their Applications, AFIPS 1968.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stagekit as sk
from stagekit.lib.conversion import wait
from stagekit.lib.exchange import indices_of, load_tile
from stagekit.lib.layout import WARP, both, mask_of
from stagekit.lib.tile import Tile, Traced, of_one_axis

_ADD, _MULTIPLY, _AND, _OR, _XOR = map(sk._operation, ("+", "*", "&", "|", "^"))
_LESS, _GREATER, _EQUAL, _RIGHT, _DIFFERS = map(sk._operation, ("<", ">", "==", ">>", "!="))

MAX_SORTED = 16_384  # elements; with more, the network would be too long to be unrolled

Values = tuple[Traced, ...]  # what is sorted together: a number, or a number and its index
Held = list[Values | None]  # the elements of a thread


@sk._kernel_only
@sk._direct
def sort(tile: Tile, descending: bool = False) -> Tile:
    """Return the elements of a tile in ascending order, or in descending one; up to 16,384 of them.

    NaNs are larger than all numbers. Each has the same bits afterwards.
    """
    keys = _keys("sort", tile)
    (found,) = _Network(keys.extent, keys.layout.threads, [keys], descending=descending).sorted(keys)
    return _numbers(found, tile.dtype)


@sk._kernel_only
@sk._direct
def argsort(tile: Tile, descending: bool = False) -> Tile:
    """Return the indices, int64, that put the elements of a tile in order; of equal elements the lower index comes first."""
    keys = _keys("argsort", tile)
    _, places = _Network(keys.extent, keys.layout.threads, [keys, _places(keys)], descending=descending).sorted(keys)
    return places.to(sk.int64)


@sk._kernel_only
@sk._direct
def topk(tile: Tile, k: int, largest: bool = True) -> tuple[Tile, Tile]:
    """Return tiles of the `k` largest elements of a tile, or smallest, in order, and of their indices, int64.

    k: a compile-time int. NaNs are larger than all numbers; of equal elements the lower index comes first.
    """
    keys = _keys("topk", tile)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= tile.extent:
        sk.static_assert(False, f"topk: k must be a compile-time int from 1 to {tile.extent}, got {k!r}")
    network = _Network(keys.extent, keys.layout.threads, [keys, _places(keys)], descending=largest)
    found, places = network.sorted(sk.zeros(k, sk.int32))
    return _numbers(found, tile.dtype), places.to(sk.int64)


# -- numbers as integers ------------------------------------------------------------------------------------------------


def _keys(function: str, tile: Tile) -> Tile:
    """Return the integers that are in the order of the elements of a tile."""
    tile = of_one_axis(function, tile)
    if tile.extent > MAX_SORTED:
        sk.static_assert(False, f"{function}: a tile of {tile.extent} elements; up to {MAX_SORTED} are sorted at once")
    dtype = tile.dtype
    if dtype is sk.bool_:
        return tile.to(sk.uint8)
    if not dtype.is_float:
        return tile
    bits = _signed(dtype)
    return tile.each(lambda x: sk.where(_DIFFERS(x, x), bits(bits.max), _turned(sk._view(x, bits), bits)), tile)


def _numbers(keys: Tile, dtype: sk.DType) -> Tile:
    """Return the numbers of `dtype` that these integers stand for."""
    if not dtype.is_float:
        return keys.to(dtype)
    bits = _signed(dtype)
    return keys.each(lambda key: sk._view(_turned(key, bits), dtype), keys)


def _turned(bits: Traced, dtype: sk.DType) -> Traced:
    """Turn the order of negative numbers round: of bits of floats, and back."""
    return _XOR(bits, _AND(_RIGHT(bits, dtype.bits - 1), dtype.max))


def _signed(dtype: sk.DType) -> sk.DType:
    return {16: sk.int16, 32: sk.int32, 64: sk.int64}[dtype.bits]


def _places(tile: Tile) -> Tile:
    return tile.like([sk.int32(index) for index, _ in indices_of(tile.layout)])


# -- the network --------------------------------------------------------------------------------------------------------


class _Network:
    """A network for tiles of one extent, of which the first decides, and then the next. Position p is in thread p // each."""

    def __init__(self, extent: int, threads: int, tiles: list[Tile], *, descending: bool) -> None:
        size = 1 << (extent - 1).bit_length()
        self.tiles, self.extent, self.threads, self.size = tiles, extent, threads, size
        self.active = min(size, 1 << (threads.bit_length() - 1))
        self.each = size // self.active
        self.descending = descending
        self.thread, self.lane = sk.cuda.thread_idx("x"), sk.lane_id()
        self.scratch = [sk.alloc_shared((size,), tile.dtype) for tile in tiles]
        self.holds = True if self.active == threads else _LESS(self.thread, self.active)

    def sorted(self, like: Tile) -> list[Tile]:
        """Return the tiles in order, each as a tile like another one, which may be shorter.

        Blocks are not longer than what is wanted: of two that are in order, what comes first is kept, and put in order.
        """
        values, wanted = self.spread(), 1 << (like.extent - 1).bit_length()
        block = 2
        while block <= self.size:
            if block > wanted:
                values = self.firsts(values, block // 2)
            distance = min(block, wanted) // 2
            while distance >= 1:
                values = self.compare(values, block, distance)
                distance //= 2
            block *= 2
        self.store(values, lambda e: _ADD(_MULTIPLY(self.thread, self.each), e))
        wait(self.threads)
        found = [load_tile(array, like) for array in self.scratch]
        wait(self.threads)
        return found

    # -- memory -------------------------------------------------------------------------------------------------

    def spread(self) -> Held:
        """Return this thread's elements, those that do not exist last in order."""
        for array, tile in zip(self.scratch, self.tiles):
            for (index, mask), value in zip(indices_of(tile.layout), tile.elements):
                sk.store(_ADD(array, index), value, mask=mask)
        wait(self.threads)
        found: Held = [self.load(self.place(e), self.exists(e)) for e in range(self.each)]
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
        mask = mask_of(exists)
        first, *rest = [sk.load(_ADD(array, place), mask=mask) for array in self.scratch]
        if mask is None:
            return (first, *rest)
        dtype = self.tiles[0].dtype
        last = dtype(dtype.min if self.descending else dtype.max)
        return (sk.where(mask, first, last), *[sk.where(mask, each, self.size) for each in rest])

    def store(self, values: Held, place: Callable[[int], Traced]) -> None:
        mask = mask_of(self.holds)
        for e, value in enumerate(values):
            for array, number in zip(self.scratch, value or ()):
                sk.store(_ADD(array, place(e)), number, mask=mask)

    # -- comparisons --------------------------------------------------------------------------------------------

    def compare(self, values: Held, block: int, distance: int) -> Held:
        """Put positions in order that are so far apart: ascending in even blocks, descending in odd ones."""
        if distance < self.each:
            return self.in_thread(values, block, distance)
        is_first = _EQUAL(_AND(self.thread, distance // self.each), 0)
        wants_first = _EQUAL(is_first, self.is_even(block, 0))
        return [
            a and b and self.chosen(_EQUAL(self.before(b, a), wants_first), b, a)
            for a, b in zip(values, self.others(values, distance))
        ]

    def firsts(self, values: Held, distance: int) -> Held:
        """Keep what comes first of two positions so far apart: in both, or, where one thread has them, in the first alone."""
        others = self.others(values, distance)
        return [a and b and self.chosen(self.before(b, a), b, a) for a, b in zip(values, others)]

    def others(self, values: Held, distance: int) -> Held:
        """Return what stands at the positions that are so far from those of this thread."""
        apart = distance // self.each
        if apart == 0:
            return [None if e & distance else values[e | distance] for e in range(self.each)]
        return self.by_shuffles(values, apart) if apart < WARP else self.by_memory(values, apart)

    def is_even(self, block: int, e: int) -> Any:
        """Return whether the block of positions is even in which element e of this thread is."""
        if block < self.each:
            return e & block == 0
        return True if block == self.size else _EQUAL(_AND(self.thread, block // self.each), 0)

    def in_thread(self, values: Held, block: int, distance: int) -> Held:
        found = list(values)
        for e in range(self.each):
            a, b = values[e], values[e | distance]
            if a and b and e & distance == 0:
                is_even = self.is_even(block, e)
                is_turned = self.before(b, a) if is_even is not False else self.before(a, b)
                if is_even is not True and is_even is not False:
                    is_turned = _EQUAL(is_turned, is_even)
                found[e], found[e | distance] = self.chosen(is_turned, b, a), self.chosen(is_turned, a, b)
        return found

    def by_shuffles(self, values: Held, apart: int) -> Held:
        mask = 0xFFFFFFFF if self.threads % WARP == 0 else None
        if mask is not None:
            return [value and tuple([sk.shfl_xor_sync(mask, each, apart) for each in value]) for value in values]
        partner = _XOR(self.lane, apart)
        source = partner if self.holds is True else sk.where(self.holds, partner, self.lane)
        return [value and tuple([sk.shfl_sync(self.mask(), each, source) for each in value]) for value in values]

    def mask(self) -> Traced:
        """Return the lanes of this thread's warp that exist."""
        short = (1 << self.threads % WARP) - 1
        if self.threads < WARP:
            return short
        is_whole = _LESS(self.thread, self.threads - self.threads % WARP)
        return sk.where(is_whole, sk.uint32(0xFFFFFFFF), sk.uint32(short))

    def by_memory(self, values: Held, apart: int) -> Held:
        self.store(values, self.place)
        wait(self.threads)
        partner = _XOR(self.thread, apart)
        found: Held = [
            value and self.load(_ADD(partner, e * self.active), self.holds) for e, value in enumerate(values)
        ]
        wait(self.threads)
        return found

    def before(self, a: Values, b: Values) -> Traced:
        """Return whether `a` comes before `b`."""
        is_before = _GREATER(a[0], b[0]) if self.descending else _LESS(a[0], b[0])
        return is_before if len(a) == 1 else _OR(is_before, _AND(_EQUAL(a[0], b[0]), _LESS(a[1], b[1])))

    @staticmethod
    def chosen(condition: Traced, a: Values, b: Values) -> Values:
        return tuple([sk.where(condition, x, y) for x, y in zip(a, b)])
