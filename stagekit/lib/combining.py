"""Combining values in the order of their numbers: in a thread, over the lanes of a warp, over the warps of a block.

A value is a tuple with one number of each tile that takes part. The elements of a block stand in rows: thread t of a row holds W
elements that follow one another, and those of thread t + 1 come next. In the last row the first threads alone may hold something.
What the others hold never reaches the user's function.

A row is combined in its threads, then by shuffles in its warps: after steps of 1, 2, 4, 8 and 16 places a lane has everything of
its warp up to itself. The totals of the warps go to shared memory, where the first warp combines them in the same way. So there
are two barriers. None is needed behind them: what the next use writes first, nobody reads after the second.

Source: Hillis and Steele, Data Parallel Algorithms, CACM 29 (12), 1986; Sengupta et al., Scan Primitives for GPU Computing, 2007.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import stagekit as sk
from stagekit.lib.layout import WARP, both, mask_of
from stagekit.lib.placing import layout_for
from stagekit.lib.tile import Tile, Traced

_ADD, _MULTIPLY = map(sk._operation, ("+", "*"))
_AND, _OR, _LESS, _EQUAL, _AT_LEAST = map(sk._operation, ("&", "|", "<", "==", ">="))

Combine = Callable[..., Any]
Values = tuple[Traced, ...]  # one number of each tile
Exists = Any  # whether a value exists: True or False itself, or a run-time bool


class Combiner:
    """A user's function of two values, of which the left one comes first in order.

    identity: a value that changes no other; None where the user gave none. It stands in where one of the two values is missing;
    without it the function runs under the condition that both exist.
    """

    def __init__(
        self, function: Combine, dtypes: Sequence[sk.DType], identity: Values | None, *, is_single: bool
    ) -> None:
        self.function = function
        self.dtypes = dtypes
        self.identity = identity
        self.is_single = is_single

    def __call__(self, a: Values, b: Values) -> Values:
        if self.is_single:
            return (_in_dtype(self.function(a[0], b[0]), self.dtypes[0]),)
        found = self.function(a, b)
        if not isinstance(found, tuple | list) or len(found) != len(self.dtypes):
            text = f"a combiner of {len(self.dtypes)} tiles takes two tuples of as many numbers and returns one"
            sk.static_assert(False, text)
        return tuple(map(_in_dtype, found, self.dtypes))

    def after(self, a: Values, b: Values, exists: Exists) -> Values:
        """Return `a` combined with `b`; `b` alone where `a` is missing."""
        if exists is True or self.identity is not None:
            return self(self.filled(a, exists), b)
        return self.chosen(exists, lambda: self(a, b), b)

    def after_each(self, a: list[Values], b: list[Values], exists: Exists) -> list[Values]:
        """Return each of `a` combined with its partner in `b`; the one of `b` alone where those of `a` are missing."""
        if exists is True or self.identity is not None:
            return [self(self.filled(x, exists), y) for x, y in zip(a, b)]
        return list(sk._choose(exists, lambda: tuple(map(self, a, b)), lambda: tuple(b)))

    def before(self, a: Values, b: Values, exists: Exists) -> Values:
        """Return `a` combined with `b`; `a` alone where `b` is missing."""
        if exists is True or self.identity is not None:
            return self(a, self.filled(b, exists))
        return self.chosen(exists, lambda: self(a, b), a)

    def answer(self, value: Values) -> Any:
        """Return a value as the user sees it: a number for one tile, a tuple for several."""
        return value[0] if self.is_single else value

    @staticmethod
    def chosen(condition: Exists, then: Callable[[], Values], otherwise: Values) -> Values:
        """Return `then()`, which happens only where the condition holds, else `otherwise`."""
        found: Values = sk._choose(condition, then, lambda: otherwise)
        return found

    def filled(self, value: Values, exists: Exists) -> Values:
        """Return `value`, and the identity, if there is one, where it is missing."""
        if exists is True or self.identity is None:
            return value
        if exists is False:
            return self.identity
        return tuple([sk.where(exists, each, other) for each, other in zip(value, self.identity)])


def combiner_of(name: str, tile: Any, combine: Combine, identity: Any) -> tuple[list[Tile], Combiner]:
    """Return the tiles that a user gave to the function `name`, and what combines their elements."""
    is_single = isinstance(tile, Tile)
    tiles = [tile] if is_single else list(tile) if isinstance(tile, tuple | list) else []
    if not tiles or not all(isinstance(each, Tile) for each in tiles):
        sk.static_assert(
            False, f"{name} takes a tile, or a tuple of tiles; for one scalar per thread there is block_reduce"
        )
    if not callable(combine):
        sk.static_assert(False, f"{name}: combine must be a function of two numbers, got {combine!r}")
    shapes = list(dict.fromkeys(each.shape for each in tiles))
    if len(shapes) > 1:
        sk._refuse_shape(f"{name} of tiles of shapes {' and '.join(map(str, shapes))}", "give tiles of one shape")
    tiles = [each.at(layout_for(each.shape)) for each in tiles]
    dtypes = [each.dtype for each in tiles]
    if not sk._takes_vectors(combine, ()):
        combine = sk._template(name, combine, dtypes, is_single) or checked(name, combine)
    given = [identity] if is_single else identity
    if identity is None:
        return tiles, Combiner(combine, dtypes, None, is_single=is_single)
    if not isinstance(given, tuple | list) or len(given) != len(tiles):
        sk.static_assert(False, f"{name}: identity must be a tuple with a number for each of {len(tiles)} tiles")
    neutral = tuple([dtype(each) for dtype, each in zip(dtypes, given)])
    return tiles, Combiner(combine, dtypes, neutral, is_single=is_single)


def checked(name: str, combine: Combine) -> Combine:
    """Return the combiner that a user gave to the function `name`, which is refused where it needs other threads."""
    return combine if sk._takes_vectors(combine, ()) else functools.partial(sk._combined, name, combine)


def _in_dtype(value: Any, dtype: sk.DType) -> Traced:
    """Return what a combiner gave for a tile of `dtype`, which must be of that dtype, or a literal."""
    if isinstance(value, Tile):
        sk.static_assert(False, "the combiner gives a tile: it combines numbers of a tile, and gives a number")
    if type(value) in (bool, int, float):
        return dtype(value)
    given = sk._dtype_of(value) if hasattr(value, "dtype") else None
    if given is not dtype:
        given = given.name if given else repr(value)
        text = f"the combiner gives {given} for elements of {dtype.name}: give it a tile of {given}, by .to(dtype)"
        sk.static_assert(False, text)
    return value


def is_commutative(combine: Combine, is_said: bool) -> bool:
    """Return whether the order of a combiner's operands does not matter: as the user says, or as is known of `sk.maximum`."""
    function = getattr(combine, "__wrapped__", combine)
    return is_said or any(function is each for each in (sk.maximum, sk.minimum, sk.fmax, sk.fmin))


def thread_number() -> Traced:
    """Return the number of this thread in its block: x first, then y, then z."""
    if sk._is_along_x():
        return sk.cuda.thread_idx("x")
    return _ADD(_MULTIPLY(sk.warp_id(), WARP), sk.lane_id())


class Row:
    """The threads of a block, of which the first `count` hold something. is_reversed: the last comes first.

    Lanes that do not exist are never named: the last warp may be short.
    """

    def __init__(self, threads: int, count: int, *, is_reversed: bool = False) -> None:
        self.threads, self.count, self.is_reversed = threads, count, is_reversed
        self.thread, self.lane = thread_number(), sk.lane_id()
        self.holds: Exists = True if count == threads else _LESS(self.thread, count)
        self.mask = self._existing_lanes()

    @property
    def warps(self) -> int:
        """The number of warps that hold something."""
        return -(-self.count // WARP)

    def _existing_lanes(self) -> Traced:
        """Return the lanes of this thread's warp that exist, as bits."""
        full, short = 0xFFFFFFFF, (1 << self.threads % WARP) - 1
        if self.threads % WARP == 0:
            return full
        if self.threads < WARP:
            return short
        return sk.where(_LESS(self.thread, self.threads - self.threads % WARP), sk.uint32(full), sk.uint32(short))

    def neighbour(self, value: Values, distance: int) -> tuple[Values, Exists]:
        """Return what the lane so many places earlier in the order holds, and whether both lanes hold something."""
        exists = self._has_neighbour(distance)
        if not self.is_reversed:
            return tuple([sk.shfl_up_sync(self.mask, each, distance) for each in value]), exists
        if self.threads % WARP == 0:
            return tuple([sk.shfl_down_sync(self.mask, each, distance) for each in value]), exists
        source = sk.where(exists, _ADD(self.lane, distance), self.lane)  # what no lane holds must not be read
        return tuple([sk.shfl_sync(self.mask, each, source) for each in value]), exists

    def _has_neighbour(self, distance: int) -> Exists:
        if distance >= self.count:
            return False
        if not self.is_reversed:
            return self.where_held(_AT_LEAST(self.lane, distance))
        is_in_warp = _LESS(self.lane, WARP - distance)
        if self.count % WARP == 0:
            return self.where_held(is_in_warp)
        is_in_row = _LESS(self.thread, self.count - distance)
        return is_in_row if self.warps == 1 else _AND(is_in_warp, is_in_row)

    def where_held(self, condition: Exists) -> Exists:
        """Return whether a condition is true and this thread holds something."""
        return both(condition, self.holds)

    def scan(self, combiner: Combiner, values: list[Values]) -> list[Values]:
        """Return the inclusive scan of each value over the lanes of this warp."""
        distance = 1
        while distance < min(self.count, WARP):
            pairs = [self.neighbour(value, distance) for value in values]
            values = combiner.after_each([earlier for earlier, _ in pairs], values, pairs[0][1])
            distance *= 2
        return values

    @property
    def is_last_of_warp(self) -> Exists:
        """Whether this thread is the last in order of those of its warp that hold something."""
        if self.is_reversed:
            return self.where_held(_EQUAL(self.lane, 0))
        if self.count % WARP == 0:
            return self.where_held(_EQUAL(self.lane, WARP - 1))
        is_last = _EQUAL(self.thread, self.count - 1)
        return self.where_held(_OR(is_last, _EQUAL(self.lane, WARP - 1)) if self.warps > 1 else is_last)

    def of_last_lane(self, value: Values) -> Values:
        """Return what the last thread in order holds, where the block is one warp."""
        last = 0 if self.is_reversed else self.count - 1
        return tuple([sk.shfl_sync(self.mask, each, last) for each in value])


class Chunk:
    """The `extent` elements of one row, `width` in a thread. values: those of this thread, in the order of their numbers."""

    def __init__(self, row: Row, width: int, extent: int, values: list[Values]) -> None:
        self.row, self.width, self.extent, self.values = row, width, extent, values

    def exists(self, place: int) -> Exists:
        """Return whether this thread has an element at this place."""
        if (self.extent - 1) % self.width >= place:  # also the last thread that holds anything
            return self.row.holds
        return _LESS(_ADD(_MULTIPLY(self.row.thread, self.width), place), self.extent)

    def scan(self, combiner: Combiner) -> list[Values]:
        """Return for each place the combination of this thread's elements up to there."""
        row = self.row
        if self.width > 1 and combiner.identity is None and row.holds is not True and self.extent % self.width == 0:
            whole = Chunk(
                Row(row.threads, row.threads, is_reversed=row.is_reversed), self.width, self.extent, self.values
            )
            return list(sk._choose(row.holds, lambda: tuple(whole.scan(combiner)), lambda: tuple(self.values)))
        places = range(self.width)[:: -1 if row.is_reversed else 1]
        found = {places[0]: combiner.filled(self.values[places[0]], self.exists(places[0]))}
        for earlier, place in itertools.pairwise(places):
            found[place] = self._combined(combiner, found[earlier], self.values[place], place)
        return [found[place] for place in range(self.width)]

    def _combined(self, combiner: Combiner, earlier: Values, own: Values, place: int) -> Values:
        """Combine with the element at a place. In reversed order a missing one comes before those that exist."""
        if combiner.identity is not None:
            return combiner(earlier, combiner.filled(own, self.exists(place)))
        if self.row.is_reversed:
            return combiner.after(earlier, own, self.exists(place + 1))
        return combiner.before(earlier, own, self.exists(place))


def chunks_of(tiles: Sequence[Tile], *, is_reversed: bool = False) -> list[Chunk]:
    """Return the elements of tiles of one extent as chunks, in the order of their numbers."""
    layout = tiles[0].layout
    extent, threads, width = layout.extent, layout.threads, layout.width
    values = list(zip(*[tiles[0].elements_of(tile) for tile in tiles]))
    whole = Row(threads, threads, is_reversed=is_reversed)
    chunks = []
    for number, first in enumerate(range(0, extent, threads * width)):
        here = min(extent - first, threads * width)
        count = -(-here // width)
        row = whole if count == threads else Row(threads, count, is_reversed=is_reversed)
        chunks.append(Chunk(row, width, here, values[number * width : (number + 1) * width]))
    return chunks


class Scan:
    """The scan of the chunks of a block. in_threads: what each thread has of its own; in_warps: of its warp up to itself."""

    def __init__(self, combiner: Combiner, chunks: list[Chunk]) -> None:
        self.combiner, self.chunks = combiner, chunks
        row, width = chunks[0].row, chunks[0].width
        self.is_reversed, self.is_one_warp = row.is_reversed, row.threads <= WARP
        self.warps = -(-row.threads // WARP)  # of a chunk; the last may need fewer
        self.totals = (len(chunks) - 1) * self.warps + chunks[-1].row.warps
        last = 0 if row.is_reversed else width - 1
        self.in_threads = [chunk.scan(combiner) for chunk in chunks]
        rows = [(chunk.row, own[last]) for chunk, own in zip(chunks, self.in_threads)]
        self.in_warps = [
            value
            for same, group in itertools.groupby(rows, key=lambda each: each[0])  # all but the last are one row
            for value in same.scan(combiner, [value for _, value in group])
        ]

    def results(self) -> list[Values]:
        """Return for each element of this thread the combination of everything up to it."""
        earlier = self._before_chunks() if self.is_one_warp else self._before_warps()
        return [value for c, before in enumerate(earlier) for value in self._of_chunk(c, *before)]

    def before_each(self) -> list[Values]:
        """Return for each element of this thread, which holds one of each chunk, the combination of everything before it."""
        assert self.combiner.identity is not None
        earlier = self._before_chunks() if self.is_one_warp else self._before_warps()
        found = []
        for chunk, in_warps, (before, has_before) in zip(self.chunks, self.in_warps, earlier):
            in_warp = self.combiner.filled(*chunk.row.neighbour(in_warps, 1))
            found.append(self.combiner(self.combiner.filled(before, has_before), in_warp))
        return found

    def total(self) -> Values:
        """Return the combination of everything, in each thread."""
        if self.is_one_warp:
            return self._up_to_chunks()[-1]
        last = 0 if self.is_reversed else self.totals - 1
        return tuple([sk.load(_ADD(array, last)) for array in self._up_to_warps()])

    def _of_chunk(self, c: int, before: Values, has_before: Exists) -> list[Values]:
        """Return the results of one chunk. before: what comes before this warp."""
        combiner, own = self.combiner, self.in_threads[c]
        if len(own) == 1:  # what the warp has combined up to this thread has its one element
            own = [self.in_warps[c]]
            has_before = self.chunks[c].row.holds if has_before is True and combiner.identity is None else has_before
        else:
            before, has_before = self._before_thread(c, before, has_before)
        if has_before is False:
            return own
        if has_before is True or combiner.identity is not None:
            before = combiner.filled(before, has_before)
            return [combiner(before, value) for value in own]
        return list(
            sk._choose(has_before, lambda: tuple([combiner(before, value) for value in own]), lambda: tuple(own))
        )

    def _before_thread(self, c: int, before: Values, has_before: Exists) -> tuple[Values, Exists]:
        """Return what comes before this thread in one chunk, and whether anything does. before: of its warp."""
        combiner, row = self.combiner, self.chunks[c].row
        in_warp, has_in_warp = row.neighbour(self.in_warps[c], 1)
        if has_before is False:
            return in_warp, has_in_warp
        if combiner.identity is not None:
            return combiner(combiner.filled(before, has_before), combiner.filled(in_warp, has_in_warp)), True
        if has_before is True:
            return combiner.before(before, in_warp, has_in_warp), row.holds
        either = _OR(has_before, has_in_warp)
        before = combiner.chosen(has_before, lambda: combiner.before(before, in_warp, has_in_warp), in_warp)
        return before, both(either, row.holds)

    # -- in a block of one warp ---------------------------------------------------------------------------------

    def _up_to_chunks(self) -> list[Values]:
        """Return the combinations of everything up to each chunk, in the order of the scan."""
        found: list[Values] = []
        for chunk, value in list(zip(self.chunks, self.in_warps))[:: -1 if self.is_reversed else 1]:
            own = chunk.row.of_last_lane(value)
            found.append(self.combiner(found[-1], own) if found else own)
        return found

    def _before_chunks(self) -> list[tuple[Values, Exists]]:
        """Return what comes before each chunk, and whether anything does."""
        nothing = self.in_warps[0]
        totals = self._up_to_chunks()[:-1] if len(self.chunks) > 1 else []
        found = [(nothing, False), *[(total, True) for total in totals]]
        return found[:: -1 if self.is_reversed else 1]

    # -- in a block of several ----------------------------------------------------------------------------------

    def _up_to_warps(self) -> list[Traced]:
        """Return arrays in shared memory with the combinations of everything up to each warp of each chunk."""
        totals, up_to = ([sk.alloc_shared((self.totals,), d) for d in self.combiner.dtypes] for _ in range(2))
        for c, chunk in enumerate(self.chunks):
            place, is_last = self._place(c, 0), chunk.row.is_last_of_warp
            for array, value in zip(totals, self.in_warps[c]):
                sk.store(_ADD(array, place), value, mask=is_last)
        sk.syncthreads()
        sk._choose(_EQUAL(sk.warp_id(), 0), lambda: self._scan_totals(totals, up_to), lambda: None)
        sk.syncthreads()
        return up_to

    def _place(self, c: int, shift: int) -> Traced:
        """Return the number of this thread's warp of chunk c among all, moved by `shift`."""
        return _ADD(sk.warp_id(), c * self.warps + shift)

    def _scan_totals(self, totals: list[Traced], up_to: list[Traced]) -> None:
        """Scan the totals in the first warp, some in each lane."""
        width = -(-self.totals // WARP)
        row = Row(WARP, -(-self.totals // width), is_reversed=self.is_reversed)
        chunk = Chunk(row, width, self.totals, [])
        places = [_ADD(_MULTIPLY(row.lane, width), place) for place in range(width)]
        masks = [mask_of(chunk.exists(place)) for place in range(width)]
        for place, mask in zip(places, masks):
            chunk.values.append(tuple([sk.load(_ADD(array, place), mask=mask) for array in totals]))
        for place, mask, value in zip(places, masks, Scan(self.combiner, [chunk]).results()):
            for array, number in zip(up_to, value):
                sk.store(_ADD(array, place), number, mask=mask)

    def _before_warps(self) -> list[tuple[Values, Exists]]:
        """Return what comes before this thread's warp in each chunk, and whether anything does."""
        arrays = self._up_to_warps()
        return [self._before_warp(arrays, c) for c in range(len(self.chunks))]

    def _before_warp(self, arrays: list[Traced], c: int) -> tuple[Values, Exists]:
        place, row = self._place(c, 1 if self.is_reversed else -1), self.chunks[c].row
        if self.is_reversed:
            exists = True if (c + 1) * self.warps < self.totals else _LESS(place, self.totals)
        else:
            exists = row.where_held(True if c > 0 else _AT_LEAST(place, 0))
        return tuple([sk.load(_ADD(array, place), mask=mask_of(exists)) for array in arrays]), exists
