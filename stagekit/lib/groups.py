"""Groups: 1 to 32 lanes of a warp that work together.

    row = sk.tiled_partition(8)                        # four groups of eight neighbours
    total = row.reduce(x, lambda a, b: a + b)
    here = sk.coalesced_threads()                      # the lanes that run this together, in a branch
    same = sk.labeled_partition(key)                   # of these, the lanes that have the same key
    if same.rank == 0: sk.atomic_add(counts + key, same.size)

A lane's rank is its place in its group, lowest lane first. Values that are moved or combined are numbers, or tuples, NamedTuples,
dataclasses or the like of numbers. All lanes of a group must take part in what it does; `sk.sanitize` finds those that do not.

The lanes of any group are found by `prev`, the next lower one: a scan combines with it, then with its own `prev`, five times.

Source: CUDA C++ Programming Guide, Cooperative Groups; Hillis and Steele, Data Parallel Algorithms, CACM 29 (12), 1986.
"""

from __future__ import annotations

from typing import Any

import stagekit as sk
from stagekit.lib.collectives import lanes_reduced
from stagekit.lib.combining import Combine, Combiner, Exists, Values, is_commutative
from stagekit.lib.layout import WARP
from stagekit.lib.reductions import butterfly
from stagekit.lib.structures import Structure
from stagekit.lib.tile import Traced

_AT_LEAST = sk._operation(">=")
_STEPS = (1, 2, 4, 8, 16)


class Group:
    """Lanes of a warp, this one among them. mask: a bit for each, uint32. size: how many. rank: this lane's place, from 0."""

    def __init__(self, mask: Traced, size: Traced, rank: Traced) -> None:
        self.mask, self.size, self.rank = mask, size, rank

    def sync(self) -> None:
        """Wait for the lanes of the group; their earlier writes are then visible to each other."""
        sk.syncwarp(self.mask)

    def any(self, predicate: Traced) -> Traced:
        """Return whether a predicate holds in any lane of the group."""
        return sk.any_sync(self.mask, predicate)

    def all(self, predicate: Traced) -> Traced:
        """Return whether a predicate holds in all lanes of the group."""
        return sk.all_sync(self.mask, predicate)

    def ballot(self, predicate: Traced) -> Traced:
        """Return a bit for each lane of the group, by rank: set where a predicate holds there; a uint32."""
        holds = sk.ballot_sync(self.mask, predicate)
        found, rest, place = sk.uint32(0), self.mask, sk.uint32(0)
        while rest != 0:
            lowest = rest & (~rest + 1)
            found |= sk.where(holds & lowest != 0, sk.uint32(1) << place, sk.uint32(0))
            rest, place = rest ^ lowest, place + 1
        return found

    def shfl(self, value: Any, rank: Traced) -> Any:
        """Return what the lane with another rank, 0 to below the size, has."""
        return _moved("shfl", self.mask, value, self._lane(rank))

    def shfl_up(self, value: Any, delta: Traced) -> Any:
        """Return what the lane with a rank `delta` lower has; where there is none, the lane's own."""
        return _moved(
            "shfl_up", self.mask, value, self._lane(sk.where(self.rank >= delta, self.rank - delta, self.rank))
        )

    def shfl_down(self, value: Any, delta: Traced) -> Any:
        """Return what the lane with a rank `delta` higher has; where there is none, the lane's own."""
        above = self.rank + delta
        return _moved("shfl_down", self.mask, value, self._lane(sk.where(above < self.size, above, self.rank)))

    def reduce(self, value: Any, combine: Combine, *, commutative: bool = False) -> Any:
        """Return `combine` over the values of the group; each of its lanes gets it.

        combine: an associative function of two values, of which the left one comes from lower ranks. commutative: their order
        does not matter, which saves an instruction in a tiled group.
        """
        return _moved("reduce", self.mask, self.scan(value, combine), _highest(self.mask))

    def scan(self, value: Any, combine: Combine, identity: Any = None, *, exclusive: bool = False) -> Any:
        """Return `combine` over the values of the lanes up to this one; if `exclusive`, of those before it.

        combine: as in `reduce`. identity: what the first lane gets in an exclusive scan, which needs it.
        """
        return _scanned(self.mask, _highest(_below(self.mask)), value, combine, identity, exclusive)

    def _lane(self, rank: Traced) -> Traced:
        """Return the lane that has a rank: the place of the bit of the mask above so many others."""
        rest, lane = self.mask, sk.int32(0)
        for width in (16, 8, 4, 2, 1):
            lower = sk.popcount(rest & ((1 << width) - 1)).to(sk.int32)
            is_above = rank >= lower
            rank = sk.where(is_above, rank - lower, rank)
            rest = sk.where(is_above, rest >> width, rest)
            lane = sk.where(is_above, lane + width, lane)
        return lane


class TiledGroup(Group):
    """`size` neighbouring lanes, a power of two known at compile time. number: of the group in its warp, from 0."""

    def __init__(self, size: int) -> None:
        lane = sk.lane_id().to(sk.int32)
        full = (1 << size) - 1
        self.mask = sk.uint32(full) if size == WARP else sk.uint32(full) << sk.uint32(lane & (WARP - size))
        self.size, self.rank, self.number = size, lane & (size - 1), lane // size

    def ballot(self, predicate: Traced) -> Traced:
        """Return a bit for each lane of the group, by rank: set where a predicate holds there; a uint32."""
        return sk.ballot_sync(self.mask, predicate) >> sk.uint32(self.number * self.size)

    def shfl(self, value: Any, rank: Traced) -> Any:
        """Return what the lane with another rank, taken modulo the size, has."""
        return _shuffled("shfl", sk.shfl_sync, self, value, rank)

    def shfl_up(self, value: Any, delta: Traced) -> Any:
        """Return what the lane with a rank `delta` lower has; where there is none, the lane's own."""
        return _shuffled("shfl_up", sk.shfl_up_sync, self, value, delta)

    def shfl_down(self, value: Any, delta: Traced) -> Any:
        """Return what the lane with a rank `delta` higher has; where there is none, the lane's own."""
        return _shuffled("shfl_down", sk.shfl_down_sync, self, value, delta)

    def shfl_xor(self, value: Any, lane_mask: Traced) -> Any:
        """Return what the lane has whose rank differs in the bits of `lane_mask`, 0 to below the size."""
        return _shuffled("shfl_xor", sk.shfl_xor_sync, self, value, lane_mask)

    def reduce(self, value: Any, combine: Combine, *, commutative: bool = False) -> Any:
        """Return `combine` over the values of the group; each of its lanes gets it: see `Group.reduce`."""
        return _tile_reduced(self.mask, self.size, value, combine, commutative)

    def scan(self, value: Any, combine: Combine, identity: Any = None, *, exclusive: bool = False) -> Any:
        """Return `combine` over the values of the lanes up to this one, or before it: see `Group.scan`."""
        return _tile_scanned(self.mask, self.size, self.rank, value, combine, identity, exclusive)


@sk._kernel_only
@sk._among_threads
def tiled_partition(size: int) -> TiledGroup:
    """Return this lane's group where a warp is cut into groups of `size` neighbours: 1, 2, 4, 8, 16 or 32, known at compile time.

    In a block whose threads do not fill its last warp, lanes of the last group may be missing.
    """
    if type(size) is not int or size not in (1, 2, 4, 8, 16, 32):
        sk.static_assert(
            False, f"tiled_partition: size must be 1, 2, 4, 8, 16 or 32, known at compile time, got {size!r}"
        )
    return TiledGroup(size)


@sk._kernel_only
@sk._among_threads
def coalesced_threads() -> Group:
    """Return the group of the lanes that run this together. A snapshot: where they part later, lanes of the group are missing."""
    return _of_mask(sk.activemask())


@sk._kernel_only
@sk._among_threads
def labeled_partition(label: Traced, group: Group | None = None) -> Group:
    """Return the group of the lanes that have the same label, a number or a bool compared by its bits.

    group: of whose lanes; left out, of those that run this together.
    """
    lanes = sk.activemask() if group is None else group.mask
    return _of_mask(sk.match_any_sync(lanes, label))


def _of_mask(mask: Traced) -> Group:
    return Group(mask, sk.popcount(mask).to(sk.int32), sk.popcount(_below(mask)).to(sk.int32))


def _below(mask: Traced) -> Traced:
    """Return the lanes of a mask that are below this one."""
    return mask & ((sk.uint32(1) << sk.uint32(sk.lane_id())) - 1)


def _highest(mask: Traced) -> Traced:
    """Return the highest lane of a mask, an int32; -1 where there is none."""
    return 31 - sk.clz(mask).to(sk.int32)


# -- by shuffles --------------------------------------------------------------------------------------------------------


@sk._direct
def _moved(user: str, mask: Traced, value: Any, lane: Traced) -> Any:
    """Return what another lane of the warp has."""
    return Structure(user, value).moved(lambda number: sk.shfl_sync(mask, number, lane))


@sk._direct
def _shuffled(user: str, shuffle: Any, group: TiledGroup, value: Any, operand: Traced) -> Any:
    return Structure(user, value).moved(lambda number: shuffle(group.mask, number, operand, group.size))


@sk._direct
def _tile_reduced(mask: Traced, size: int, value: Any, combine: Combine, commutative: bool) -> Any:
    given = Structure("reduce", value)
    combiner = given.combiner(combine)
    if is_commutative(combine, commutative):
        return given.of(butterfly(given.numbers, combiner, size, mask))
    return given.of(lanes_reduced(given.numbers, combiner, size, mask, size))


@sk._direct
def _tile_scanned(
    mask: Traced, size: int, rank: Traced, value: Any, combine: Combine, identity: Any, exclusive: bool
) -> Any:
    given, combiner = _to_scan(value, combine, identity, exclusive)

    def below(value: Values, distance: int) -> tuple[Values, Exists]:
        moved = tuple([sk.shfl_up_sync(mask, each, distance, size) for each in value])
        return moved, _AT_LEAST(rank, distance)

    found = given.numbers
    for distance in _STEPS:
        if distance < size:
            earlier, exists = below(found, distance)
            found = combiner.after(earlier, found, exists)
    if not exclusive:
        return given.of(found)
    return given.of(combiner.filled(*below(found, 1)))


@sk._direct
def _scanned(mask: Traced, prev: Traced, value: Any, combine: Combine, identity: Any, exclusive: bool) -> Any:
    """Scan over the lanes of a mask. prev: the next lower one, negative where there is none."""
    given, combiner = _to_scan(value, combine, identity, exclusive)

    def from_lane(value: Values, lane: Traced) -> tuple[Values, Exists]:
        exists = _AT_LEAST(lane, 0)
        source = sk.where(exists, lane, sk.lane_id())
        return tuple([sk.shfl_sync(mask, each, source) for each in value]), exists

    found, lane = given.numbers, prev
    for _ in _STEPS:
        earlier, exists = from_lane((*found, lane), lane)
        found, lane = combiner.after(earlier[:-1], found, exists), earlier[-1]  # a lane without one keeps its own, -1
    if not exclusive:
        return given.of(found)
    return given.of(combiner.filled(*from_lane(found, prev)))


def _to_scan(value: Any, combine: Combine, identity: Any, exclusive: bool) -> tuple[Structure, Combiner]:
    given = Structure("scan", value)
    combiner = given.combiner(combine, identity)
    if exclusive and combiner.identity is None:
        sk.static_assert(False, "scan: exclusive needs an identity, which is what the first lane gets")
    return given, combiner
