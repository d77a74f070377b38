"""Loops that read ahead: `for a, b in sk.staged(range(0, K, BK), loads, stages=3)`.

    def loads(k):
        return A.tile((row, k), (BM, BK)), B.tile((k, column), (BK, BN))

    acc = sk.zeros((BM, BN), sk.float32)
    for a, b in sk.staged(range(0, K, BK), loads, stages=3):
        acc = sk.dot(a, b, acc)

Shared memory has a slot for each stage. While a round works on its slot, `cp.async` fills those of the next ones:

    before the loop         slots 0 and 1 are begun
    round 0                 wait for slot 0; begin slot 2; work on slot 0
    round 1                 wait for slot 1; begin slot 0, on which nobody works any more; work on slot 1

So each round has one barrier. Where the arrays are not known to lie on multiples of 16 bytes, and on the CPU, a round begins with
loads of what it works on, some at a time, which go to shared memory as products want it. Source: PTX ISA, "Data Movement and
Conversion Instructions: cp.async".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import stagekit as sk
from stagekit.lib.conversion import wait
from stagekit.lib.layout import Layout, blocked, both, mask_of
from stagekit.lib.panels import Panel, new_panel
from stagekit.lib.parts import Part, parts_at
from stagekit.lib.placing import is_int, layout_for
from stagekit.lib.reductions import sum_dtype
from stagekit.lib.shared import CHUNK_BYTES, COLUMN, ROW, Matrix, new_matrix
from stagekit.lib.tile import Tile, Traced
from stagekit.lib.unit_copies import UnitRounds, boxes_for, have_boxes
from stagekit.lib.warpgroups import fits_panels, warpgroups_for
from stagekit.lib.weak import Guard, Ramp

_ADD, _MULTIPLY, _RIGHT = map(sk._operation, ("+", "*", ">>"))
MOST_STAGES = 16
_FEW_PARTS = 2
_PIECE = {1: 8}  # elements that a thread of a GPU has loaded and not stored yet, by their bytes; else 16
_ROWS_ALIKE = 8  # after which the order of chunks in a matrix repeats


@sk._kernel_only
def staged(numbers: Any, loads: Callable[[Any], Any], stages: int = 3, whole: bool = False) -> Any:
    """Return what a `for` goes through to get the tiles of each number of a range, of which the next ones are read meanwhile.

    numbers: a `range` whose step is known at compile time and positive. loads: a function from a number to a part of an array,
    `A.tile(...)`, or to a tuple of them; the loop gets a tile for each. stages: how many rounds have memory of the block, up to
    16; with 1 each round loads what it works on. A loop must not write to the arrays that it reads so: launches whose arrays
    overlap run code that does not read ahead. whole: the arrays have all elements of the parts, as whoever calls knows, so that
    copies need no masks.
    """
    _, _, step = sk._bounds(numbers)
    if not is_int(step) or step < 1:
        sk.static_assert(False, f"staged takes a range whose step is a positive compile-time int, got {step!r}")
    if not is_int(stages) or not 1 <= stages <= MOST_STAGES:
        sk.static_assert(False, f"staged has 1 to {MOST_STAGES} stages, a compile-time int, got {stages!r}")
    if stages == 1:
        return LoadingRounds(numbers, loads)
    return StagedLoop(numbers, loads, stages, whole)


class StagedLoop(NamedTuple):
    """What was asked for, of which the loop makes rounds when it begins."""

    numbers: Any
    loads: Callable[[Any], Any]
    stages: int
    whole: bool

    def __stagekit_begin__(self, may_leave: bool) -> Any:
        """Return the rounds, of which the first copies are begun. may_leave: whether the loop may end before they do."""
        numbers, loads, stages, whole = self
        start, stop, step = sk._bounds(numbers)
        parts = parts_at(loads, start + step * sk.cuda.thread_idx("x"))  # what holds for this round holds for all
        slots = [] if sk._is_for_cpu() else _slots_for(parts, stages)
        if not slots or any(slot is None for slot in slots):
            memories = _memories_for(parts)
            return CopyingRounds(numbers, loads, memories) if memories else LoadingRounds(numbers, loads)
        if not may_leave and have_boxes(parts, slots):
            return UnitRounds(numbers, loads, slots, boxes_for(parts, slots), stages)
        wait(slots[0].layout.threads)  # in a loop, for what was read in its last round
        for stage in range(stages - 1):
            _begin_round(slots, loads, start + stage * step, stop, stage, whole)
        return ReadingAhead(numbers, loads, slots, stages, whole)


def _begin_round(
    slots: list[Any], loads: Callable[[Any], Any], number: Traced, stop: Traced, place: Traced, whole: bool
) -> None:
    """Begin the copies of a round, if there is one. Where all that it copies exists, nothing is masked.

    If that is known no branch asks for it: copies go on between products then, which `ptxas` keeps apart from branches.
    """
    if whole:
        _begin(slots, parts_at(loads, number), place, exists=number < stop, is_masked=False)
    elif number < stop:
        parts = parts_at(loads, number)
        if _are_whole(parts):
            _begin(slots, parts, place, exists=True, is_masked=False)
        else:
            _begin(slots, parts, place, exists=True, is_masked=True)
    sk.cuda.cp_async_commit()


class LoadingRounds:
    """Rounds that load what they work on."""

    def __init__(self, numbers: Any, loads: Callable[[Any], Any]) -> None:
        self.numbers = numbers
        self.loads = loads

    def __stagekit_turn__(self, number: Traced) -> Any:
        tiles = [sk.load(part) for part in parts_at(self.loads, number)]
        return tuple(tiles) if len(tiles) > 1 else tiles[0]


class CopyingRounds:
    """Rounds that copy what they work on to where products read it, and load parts that have no memory."""

    def __init__(self, numbers: Any, loads: Callable[[Any], Any], memories: list[Panel | Matrix | None]) -> None:
        self.numbers = numbers
        self.loads = loads
        self.memories = memories

    def __stagekit_turn__(self, number: Traced) -> Any:
        parts = parts_at(self.loads, number)
        wait(parts[0].pointers.layout.threads)  # for what was read in the last round
        if _are_whole(parts):
            _copy(self.memories, parts, is_masked=False)
        else:
            _copy(self.memories, parts, is_masked=True)
        wait(parts[0].pointers.layout.threads)
        tiles = [
            Tile((), layout_for(part.shape), memory) if memory else sk.load(part)
            for part, memory in zip(parts, self.memories)
        ]
        return tuple(tiles) if len(tiles) > 1 else tiles[0]


@sk._direct
def _memories_for(parts: list[Part]) -> list[Panel | Matrix | None]:
    """Return memory for each part, None for those that have none; an empty list where none has."""
    forms = [form for part in parts for form in _forms(part)]
    are_known = all(isinstance(form, kind) for form, kind in zip(forms, (Ramp, Guard) * len(parts)))
    found = [_memory_for(part, part is parts[0]) for part in parts] if are_known else []
    return found if any(found) else []


def _memory_for(part: Part, is_first: bool) -> Panel | Matrix | None:
    """Return memory for a part, which those of two axes have, on a GPU if its rows are whole chunks.

    There a row of the first part, if that is of bytes, has what a product reads together of its left factor.
    """
    if len(part.shape) != 2 or part.dtype is sk.bool_:
        return None
    axis = _axis_of(part)
    if sk._is_for_cpu():
        return new_panel(part.shape, axis, part.dtype, sum_dtype(part.dtype))
    axis = 1 if is_first and part.dtype.itemsize == 1 else axis
    if part.shape[axis] * part.dtype.itemsize % CHUNK_BYTES:
        return None
    return new_matrix(part.shape[1 - axis], part.shape[axis], part.dtype, _strides_along(axis))


@sk._direct
def _axis_of(part: Part) -> int:
    """Return the axis along which a part lies side by side, as far as is known."""
    return next((axis for axis in (1, 0) if _forms(part)[0].is_contiguous(axis)), 1)


def _strides_along(axis: int) -> tuple[str, ...]:
    """Return what counts along each axis of a matrix whose rows go along one."""
    return tuple([COLUMN if each == axis else ROW for each in range(2)])


def _copy(memories: list[Panel | Matrix | None], parts: list[Part], *, is_masked: bool) -> None:
    """Copy parts that have memory, with zeros where the array has no elements."""
    for memory, part in zip(memories, parts):
        if memory is not None:
            height = _height_for(memory, part.pointers.layout.threads)
            if height == memory.rows:
                _copy_rows(memory, part, is_masked)
            else:
                for first in range(0, memory.rows, height):
                    strip = replace(memory, origin=first * memory.pitch)
                    _copy_rows(strip, _rows_of(part, memory.strides.index(ROW), first, height), is_masked)


@sk._direct
def _height_for(memory: Panel | Matrix, threads: int) -> int:
    """Return how many rows are copied at once: on a GPU as many as there are registers for, a multiple of 8.

    The order of chunks is that of a matrix again after so many.
    """
    rows, piece = memory.rows, _PIECE.get(memory.dtype.itemsize, 16)
    most = max(piece * threads // memory.columns, _ROWS_ALIKE)
    heights = [each for each in range(_ROWS_ALIKE, rows, _ROWS_ALIKE) if rows % each == 0 and each <= most]
    return rows if sk._is_for_cpu() or rows <= most or not heights else heights[-1]


def _rows_of(part: Part, axis: int, first: Traced, count: int) -> Part:
    """Return what a part has along an axis from one index on, so many elements."""
    starts, shape = list(part.starts), list(part.shape)
    starts[axis], shape[axis] = _ADD(starts[axis], first), count
    rows: Part = part.array.tile(tuple(starts), tuple(shape))
    return rows


@sk._direct
def _copy_rows(memory: Panel | Matrix, part: Part, is_masked: bool) -> None:
    """Copy all rows of a part. What the copies need of the array is computed anew in each round, as in `_begin`."""
    layout = blocked(part.shape, part.pointers.layout.threads, 1, _axis_of(part))
    ramp, inside = _forms(part)
    if not sk._is_for_cpu():
        ramp, inside = replace(ramp, strides=_unseen(ramp.strides)), _unseen_bounds(inside)
    masks = inside.elements(layout) if is_masked else [True] * layout.count
    places = zip(ramp.elements(layout), masks, layout.valid())
    memory.store([sk.load(place, mask=mask_of(both(exists, mask))) for place, mask, exists in places], layout)


class ReadingAhead:
    """Rounds that begin the copies of later ones."""

    def __init__(self, numbers: Any, loads: Callable[[Any], Any], slots: list[Any], stages: int, whole: bool) -> None:
        self.numbers = numbers
        self.loads = loads
        self.slots = slots
        self.stages = stages
        self.whole = whole
        self.place = sk.int32(0)  # of the matrices of the present round

    def __stagekit_turn__(self, number: Traced) -> Any:
        _, stop, step = sk._bounds(self.numbers)
        place, last = self.place, self.stages - 1
        sk.cuda.cp_async_wait(last - 1)
        if self.slots[0].first.is_in_panels:
            sk.cuda.fence_proxy_async(space="shared")  # before the next copies begin, for which it would wait
        wait(self.slots[0].layout.threads)
        into = sk.where(place == 0, last, place - 1)
        _begin_round(self.slots, self.loads, sk._opaque(number + last * step), stop, into, self.whole)
        self.place = sk.where(place == last, 0, place + 1)
        tiles = [slot.tile(place) for slot in self.slots]
        return tuple(tiles) if len(tiles) > 1 else tiles[0]


class StageMemory(NamedTuple):
    """The memory of one part, a matrix for each stage. layout: of which each thread copies vectors: of 16 bytes, or of a part of
    one axis, which is a row of its matrix, of an element.
    """

    first: Matrix
    shape: tuple[int, ...]
    layout: Layout

    def matrix(self, number: Traced) -> Matrix:
        return replace(self.first, origin=_MULTIPLY(number, self.first.size))

    @sk._direct
    def tile(self, number: Traced) -> Tile:
        return Tile((), layout_for(self.shape), self.matrix(number))

    def place_in(self, matrix: Matrix, index: list[Traced]) -> Traced:
        """Return a pointer to the vector at an index."""
        column = index[matrix.strides.index(COLUMN)]
        if len(index) == 1:
            return _ADD(_ADD(matrix.start, matrix.origin), column)
        chunk = _RIGHT(column, self.layout.width.bit_length() - 1)
        return matrix.chunk_at(index[matrix.strides.index(ROW)], chunk)


def _forms(part: Part) -> tuple[Any, Any]:
    """Return the ramp of pointers of a part that has a slot, and the guard that says which of them the array has."""
    return part.pointers.form, part.inside.form


@sk._direct
def _slots_for(parts: list[Part], stages: int) -> list[Any]:
    """Return memory for each part, None for those that have none. Factors that warpgroups multiply have it in panels."""
    are_factors = len(parts) == 2 and all(len(part.shape) == 2 for part in parts) and _are_factors(*parts)
    return [_slot_for(part, stages, are_factors) for part in parts]


def _are_factors(a: Part, b: Part) -> bool:
    """Return whether warpgroups multiply two parts, of which the loop then goes along the axis that they have in common."""
    if any(isinstance(place, Integral) for place in (a.starts[1], b.starts[0])):
        return False
    are_ramps = all(isinstance(_forms(part)[0], Ramp) for part in (a, b))
    if not are_ramps or a.shape[1] != b.shape[0] or a.dtype is not b.dtype:
        return False
    if not all(fits_panels(part.shape[_axis_of(part)], part.shape[1 - _axis_of(part)]) for part in (a, b)):
        return False
    shape = (a.shape[0], b.shape[1], a.shape[1])
    return warpgroups_for(a.dtype, shape, layout_for(a.shape).threads) is not None


@sk._direct
def _slot_for(part: Part, stages: int, is_in_panels: bool) -> StageMemory | None:
    """Return memory for a part; None where it cannot be copied by vectors of 16 bytes, each of which the array has or lacks."""
    pointers, inside = part.pointers.form, part.inside.form
    if sk._is_for_cpu() or not isinstance(pointers, Ramp) or not isinstance(inside, Guard):
        return None
    if len(part.shape) == 1:
        return _row_for(part, stages)
    if len(part.shape) != 2:
        return None
    axis = next((each for each in (1, 0) if pointers.is_contiguous(each)), None)
    width = CHUNK_BYTES // part.dtype.itemsize
    if axis is None or part.shape[axis] % width or part.dtype is sk.bool_:
        return None
    layout = blocked(part.shape, layout_for(part.shape).threads, width, axis)
    if layout.extent != layout.count * layout.threads or pointers.align(layout) != CHUNK_BYTES:
        return None
    if not inside.is_constant(width, axis):
        return None
    rows, columns = part.shape[1 - axis], part.shape[axis]
    matrix = new_matrix(rows, columns, part.dtype, _strides_along(axis), stages, is_in_panels=is_in_panels)
    return StageMemory(matrix, part.shape, layout)


def _row_for(part: Part, stages: int) -> StageMemory | None:
    """Return memory for a part of one axis, of which each element is copied by itself: no address needs to be a multiple."""
    if part.dtype.itemsize not in (4, 8):
        return None
    layout = blocked(part.shape, layout_for(part.shape).threads)
    room = layout.count * layout.threads  # also for elements that the part does not have, which are zeros
    return StageMemory(new_matrix(1, room, part.dtype, (COLUMN,), stages), part.shape, layout)


@sk._direct
def _are_whole(parts: list[Part]) -> Any:
    """Return whether the arrays have all elements of their parts."""
    return functools.reduce(both, [_forms(part)[1].is_true(part.shape) for part in parts], True)


@sk._direct
def _begin(slots: list[StageMemory], parts: list[Part], place: Traced, *, exists: Any, is_masked: bool) -> None:
    """Begin to copy parts to the matrices of this number. exists: whether there are any; else zeros are written.

    Rounds that copy more than two parts, as for the gradients of k and v, lack registers: they compute anew what copies need.
    """
    for slot, part in zip(slots, parts):
        matrix, layout, width = slot.matrix(place), slot.layout, slot.layout.width
        first, (ramp, inside) = layout.first(), _forms(part)
        if len(slots) > _FEW_PARTS:
            ramp, inside = replace(ramp, strides=_unseen(ramp.strides)), _unseen_bounds(inside)
        masks = [both(exists, each) for each in layout.valid()[::width]]
        if is_masked:
            masks = [*map(both, masks, inside.elements(layout, width))]
        for offset, pointer, mask in zip(layout.offsets[::width], ramp.elements(layout, width), masks):
            target = slot.place_in(matrix, [_ADD(start, step) for start, step in zip(first, offset)])
            sk.cuda.cp_async(target, pointer, mask, size=width * matrix.dtype.itemsize)


def _unseen(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return numbers of which no compiler is to see that they stay as they are round a loop.

    Else it carries a multiple of each stride, and each bound less an offset, for which sums of attention were spilled.
    """
    return tuple([each if is_int(each) else sk._opaque(each) for each in values])


def _unseen_bounds(inside: Guard) -> Guard:
    bounds = _unseen(tuple([limit.bound for limit in inside.limits]))
    return replace(inside, limits=tuple([replace(limit, bound=bound) for limit, bound in zip(inside.limits, bounds)]))
