"""Rounds that read ahead by the TMA unit, from compute capability 9.0 on: what `staged` does for factors in panels.

    before the loop         slots 0 and 1 are begun; each slot has two mbarriers, `full` and `empty`
    round 0                 arrive at `empty` of slot 2; one thread waits for that, and begins slot 2; wait for `full` of slot 0
    round 1                 arrive at `empty` of slot 0; one thread waits for that, and begins slot 0; wait for `full` of slot 1

So warps are up to a round apart, and while some wait others multiply.

A panel is a box of a tensor map with a swizzle of 128 bytes. So the array must be an argument, of which the launcher makes a map;
what a map asks of sizes and strides is taken for granted, and launches for which it does not hold run other code. Where the
array has no elements the unit writes zeros, so that nothing is masked. Source: PTX ISA, "cp.async.bulk.tensor", "mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stagekit as sk
from stagekit.lib.conversion import wait
from stagekit.lib.layout import WARP
from stagekit.lib.parts import Part, parts_at
from stagekit.lib.shared import CHUNK_BYTES, COLUMN, PANEL_CHUNKS
from stagekit.lib.tensor_maps import tensor_map
from stagekit.lib.tile import Traced

_ADD = sk._operation("+")
_LINE = CHUNK_BYTES * PANEL_CHUNKS  # bytes of a row of a panel
_MOST_ROWS = 256  # of a box
_MOST = 1 << 30  # elements of an axis, beyond which no coordinate of a tile needs to be told apart
_MOST_STRIDE = 1 << 38  # elements of 16 bits, of which a tensor map has fewer


def have_boxes(parts: list[Part], slots: list[Any]) -> bool:
    """Return whether the TMA unit can copy all parts to their memory."""
    found = all(slot.first.is_in_panels and slot.first.rows <= _MOST_ROWS for slot in slots)
    return found and all(sk._is_argument(part.array) and _has_map(part.array) for part in parts)


def _has_map(array: Any) -> Any:
    """Return whether an array of two axes has a tensor map, besides what copies of 16 bytes ask for."""
    holds = True
    for size, stride in zip(array.shape, array.strides):
        holds = holds & (size >= 1) & (size <= _MOST) & (stride >= 0) & (stride < _MOST_STRIDE)
    return sk._holds(holds, "sizes and strides of a tensor map")


def boxes_for(parts: list[Part], slots: list[Any]) -> list[Any]:
    """Return for each part the tensor map whose boxes are its panels."""
    return [_box_for(part, slot) for part, slot in zip(parts, slots)]


def _box_for(part: Part, slot: Any) -> Any:
    array = part.array if _is_by_rows(slot) else part.array.T
    return tensor_map(array, (slot.first.rows, _LINE // part.dtype.itemsize), swizzle=_LINE)


def _is_by_rows(slot: Any) -> Any:
    return slot.first.strides[1] == COLUMN


class UnitRounds:
    """Rounds that begin the copies of later ones. maps: a tensor map for each slot.

    full, empty: the mbarriers, one for each stage, of which those that a slot has been copied, or that all warps have read it.
    """

    def __init__(
        self, numbers: Any, loads: Callable[[Any], Any], slots: list[Any], maps: list[Any], stages: int
    ) -> None:
        self.numbers = numbers
        self.loads = loads
        self.slots = slots
        self.maps = maps
        self.stages = stages
        self.full, self.empty = [sk.alloc_shared((stages,), sk.uint64) for _ in range(2)]
        self.place = sk.int32(0)  # of the matrices of the present round
        self.parity = sk.int32(0)
        sk.cuda.fence_proxy_async()  # of what threads have written to the arrays
        if sk.cuda.thread_idx("x") == 0:
            for stage in sk.static_range(stages):
                sk.cuda.mbarrier_init(self.full + stage, 1)
                sk.cuda.mbarrier_init(self.empty + stage, slots[0].layout.threads // WARP)
            sk.cuda.fence_mbarrier_init()
        wait(slots[0].layout.threads)
        start, stop, step = sk._bounds(numbers)
        for stage in sk.static_range(stages - 1):
            self.begin(start + stage * step, stop, stage, True)

    def begin(self, number: Traced, stop: Traced, place: Traced, is_new: bool) -> None:
        """Begin the copies of a round to the matrices of this number, if there is one. is_new: nobody has read them yet."""
        if number < stop:
            parts = parts_at(self.loads, number)
            if sk.cuda.thread_idx("x") == 0:
                full = self.full + place
                if not is_new:
                    sk.cuda.mbarrier_wait(self.empty + place, self.parity)
                sk.cuda.mbarrier_arrive_expect_tx(
                    full, sum(slot.first.size * slot.first.dtype.itemsize for slot in self.slots)
                )
                for part, map_, slot in zip(parts, self.maps, self.slots):
                    _copy(part, map_, slot, slot.matrix(place), full)

    def __stagekit_turn__(self, number: Traced) -> Any:
        _, stop, step = sk._bounds(self.numbers)
        place, last = self.place, self.stages - 1
        into = sk.where(place == 0, last, place - 1)  # which was read in the last round
        sk.syncwarp()
        if sk.lane_id() == 0:
            sk.cuda.mbarrier_arrive(self.empty + into)
        self.begin(sk._opaque(number + last * step), stop, into, False)
        sk.cuda.mbarrier_wait(self.full + place, self.parity)
        self.parity = sk.where(place == last, self.parity ^ 1, self.parity)
        self.place = sk.where(place == last, 0, place + 1)
        tiles = [slot.tile(place) for slot in self.slots]
        return tuple(tiles) if len(tiles) > 1 else tiles[0]

    def __stagekit_end__(self) -> None:
        """End the mbarriers, which a loop around begins again."""
        wait(self.slots[0].layout.threads)
        if sk.cuda.thread_idx("x") == 0:
            for stage in sk.static_range(self.stages):
                sk.cuda.mbarrier_inval(self.full + stage)
                sk.cuda.mbarrier_inval(self.empty + stage)


def _panels(slot: Any) -> int:
    return int(slot.first.columns // slot.first.pitch)


def _copy(part: Part, map_: Any, slot: Any, matrix: Any, full: Any) -> None:
    """Begin to copy a part to a matrix, panel by panel."""
    row, column = part.starts if _is_by_rows(slot) else part.starts[::-1]
    row, column = _coordinate(row), _coordinate(column)
    for panel in sk.static_range(_panels(slot)):
        place = _ADD(matrix.start, matrix.origin + panel * matrix.rows * matrix.pitch)
        map_.load(place, (row, column + panel * matrix.pitch), full)


def _coordinate(start: Traced) -> Traced:
    """Return where a tile begins as the TMA unit is told: outside of the array it does not matter where."""
    return sk.int32(sk.minimum(sk.maximum(start, -_MOST), _MOST))
