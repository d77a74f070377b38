"""Loads and stores: from a pointer per lane to elements of an allocation, with the checks that every access gets.

    for touch in touches(team, address, mask, access):     # one per allocation; as a rule there is one
        touch.view.elements[touch.index]                   # what its lanes read

Lanes whose access is at fault are reported and left out: the kernel goes on without touching memory there.
Watchers (races, statistics, `WrittenBytes`) are told of every touch before memory is read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from stagekit.backends.interp.findings import (
    FindingSink,
    FreedAccess,
    MisalignedAccess,
    OutOfBounds,
    ReadOnlyWrite,
    UninitialisedRead,
    UnwrittenOutput,
)
from stagekit.backends.interp.memory import Allocation, AnyPointers, Array, Pointers, Reach, View, in_lane
from stagekit.backends.interp.team import Access, LaneIndexing, Role, Team, Touch, Watcher
from stagekit.diagnostics import Diagnostic, counted
from stagekit.ir import Space

VERBS: dict[Role, str] = {"read": "reads", "write": "writes", "atomic": "updates"}


def both(mask: Array | None, more: Any) -> Any:
    """Return the lanes both in `mask` and in `more` (a bool or one per lane); False where there is none."""
    if isinstance(more, np.ndarray):
        return more if mask is None else mask & more
    return mask if more else False


def read(team: Team, address: AnyPointers, mask: Array | None, access: Access) -> Any:
    """Return what the lanes of `mask` read; 0 in every other lane."""
    result: Any = None
    for touch in touches(team, address, mask, access):
        for watcher in team.launch.watchers:
            watcher.access(touch, None)
        values = touch.view.elements[touch.index]
        _note_order(touch, False)
        if access.dtype.kind == "bool":
            values = values != 0  # any byte but 0 is True
        if touch.lanes is None or (isinstance(address, Pointers) and not isinstance(values, np.ndarray)):
            result = values
            continue
        if result is None:
            result = np.zeros(team.lanes, access.dtype.numpy)
        result[touch.lanes] = values
    return access.dtype.numpy.type(0) if result is None else result


def write(team: Team, address: AnyPointers, value: Any, mask: Array | None, access: Access) -> None:
    """Store `value` for the lanes of `mask`; where several store to one element, the last lane wins."""
    for touch in touches(team, address, mask, access):
        stored = touch.pick(value)
        for watcher in team.launch.watchers:
            watcher.access(touch, stored)
        if isinstance(stored, np.ndarray) and not isinstance(touch.index, np.ndarray):
            stored = stored[-1]
        elements, index = touch.view.elements, touch.index
        # a loop that stores what is there, as the programs of blocks do to share what they poll, may still wait in vain
        team.launch.writes += not team.rounds or bool(np.any(elements[index] != stored))
        elements[index] = stored
        _note_order(touch, True)


def _note_order(touch: Touch, is_written: bool) -> None:
    """Tell watchers of an access with an order that it is done."""
    for watcher in touch.team.launch.watchers if touch.access.order else ():
        watcher.updated(touch, is_written)


def touches(team: Team, address: AnyPointers, mask: Array | None, access: Access) -> Iterator[Touch]:
    """Yield what the lanes of `mask` touch by `access`; lanes at fault are reported and left out."""
    for part, lanes in address.parts(mask):
        if lanes is not None and not np.count_nonzero(lanes):
            continue
        allocation, index = part.allocation, part.index
        view = allocation.view(access.dtype, part.phase)
        lanes = _without_faults(team, part, view, lanes, access)
        if lanes is False:
            continue
        if lanes is not None and isinstance(index, np.ndarray):
            index = index[lanes]
        copy = team.copy_of(access.space) if allocation.copies > 1 else None
        if copy is not None:
            index = index + (copy if lanes is None else copy[lanes]) * view.pitch
        yield Touch(team, access, allocation, view, index, lanes, part.phase)


# -- faults -----------------------------------------------------------------------------------------------------------


def _without_faults(team: Team, address: Pointers, view: View, lanes: Any, access: Access) -> Any:
    """Report faults and return the lanes without one; False if there are none."""
    if access.align is not None or not view.is_aligned:
        _report_misaligned(team, address, lanes, access)
    is_outside = address.index.view(np.uint64) >= view.limit
    if access.axes is not None and access.axes.checked:
        is_outside = is_outside | access.axes.outside(team.values)
    if address.reach is not None:
        is_outside = is_outside | _leaves(address, address.reach, access)
    if np.count_nonzero(is_outside):
        lanes = _report(team, address, lanes, is_outside, access)
    if access.role != "read" and not address.allocation.is_writable and lanes is not False:
        lanes = _report(team, address, lanes, np.True_, access)
    return lanes


def _report(team: Team, address: Pointers, lanes: Any, is_fault: Any, access: Access) -> Any:
    """Report those of `lanes` that are at fault; return the others, or False if there are none."""
    everyone = np.ones(team.lanes, np.bool_) if lanes is None else lanes
    at_fault = everyone & is_fault
    if not at_fault.any():
        return lanes
    diagnostic = _fault(team, int(np.argmax(at_fault)), address, access)
    team.report(diagnostic, access.loc, at_fault, address.allocation.name)
    unharmed = everyone & ~at_fault
    return unharmed if unharmed.any() else False


def _fault(team: Team, lane: int, address: Pointers, access: Access) -> Diagnostic:
    """Return what is wrong with the access of a lane."""
    allocation, dtype, verb = address.allocation, access.dtype, VERBS[access.role]
    index = in_lane(address.index, lane)
    count = allocation.view(dtype, address.phase).limit
    offset_bytes = index * dtype.itemsize + address.phase
    if allocation.is_gone_at(offset_bytes):
        return FreedAccess(verb, index, allocation.name, allocation.base + offset_bytes)
    indexing = access.axes.missed(team.values, lane) if access.axes is not None else None
    reach, is_beyond = address.reach, not 0 <= index < count
    leaves_view = reach is not None and team.spread(_leaves(address, reach, access))[lane]
    if indexing is not None:
        element, limit = _beyond(indexing, allocation.name)
    elif is_beyond and reach is allocation.reach:
        element, limit = f"element {index} of `{allocation.name}`", f", which has {counted(count, 'element')}"
    elif leaves_view and reach is not None:
        shape = tuple(in_lane(np.asarray(size)[()], lane) for size in reach.shape)
        at = (offset_bytes - in_lane(reach.origin, lane)) // dtype.itemsize
        element, limit = f"element {at} of a view of `{allocation.name}` with shape {shape}", ""
    else:
        return ReadOnlyWrite(verb, index, allocation.name)
    limit += f" of {dtype.name}"
    return OutOfBounds(verb, allocation.name, element, limit, allocation.space.value, index, count, offset_bytes)


def _leaves(address: Pointers, reach: Reach, access: Access) -> Any:
    """Return which lanes leave the view that their pointer was taken from."""
    return reach.misses(address.offset_bytes(access.dtype), access.dtype.itemsize)


def _beyond(indexing: LaneIndexing, name: str) -> tuple[str, str]:
    """Return in words the element that a lane indexes, and the axes that do not have it."""
    shape = indexing.shape
    shown = ", ".join(":" if index is None else str(index) for index in indexing.indices)
    element = f"`{name}[{shown}]` of shape {shape}"
    if indexing.is_view:
        element = f"`[{shown}]` of a view of `{name}` with shape {shape}"
    *others, last = indexing.missed
    limits = "".join(f"axis {k} has {shape[k]} and " for k in others)
    return element, f": {limits}axis {last} has {counted(shape[last], 'element')}"


def _report_misaligned(team: Team, address: Pointers, lanes: Array | None, access: Access) -> None:
    allocation, align = address.allocation, access.align or access.dtype.itemsize
    is_misaligned = (address.number(access.dtype) % align != 0) | (align > allocation.align)
    at_fault = (team.active_lanes() if lanes is None else lanes) & is_misaligned
    if not at_fault.any():
        return
    offset_bytes = in_lane(address.offset_bytes(access.dtype), int(np.argmax(at_fault)))
    excess = (allocation.base + offset_bytes) % align or allocation.align
    what = access.dtype.name if access.covers <= 1 else f"{access.covers} {access.dtype.name}"
    diagnostic = MisalignedAccess(VERBS[access.role], what, offset_bytes, allocation.name, excess, align)
    team.report(diagnostic, access.loc, at_fault, allocation.name)


# -- what has been written --------------------------------------------------------------------------------------------

_ALL_WRITTEN = {size: int("01" * size, 16) for size in (1, 2, 4, 8)}  # every byte of an element of this size


class WrittenBytes(Watcher):
    """Notes per arena which bytes have been written, and reports what is missing: in reads of memory of the kernel's own and
    of the arrays named by `outputs`, and, when the launch has ended, in these arrays. An atomic may add to an output as it is.

    A shared array that is begun again has the next number, which each lane counts for itself; what was written under an earlier
    number is gone.
    """

    def __init__(self, outputs: Iterable[str], watches_reads: bool) -> None:
        self.outputs = frozenset(outputs)
        self.watches_reads = watches_reads
        self._bytes: dict[Allocation, Array] = {}
        self._begun: dict[Allocation, dict[Team, Array]] = {}
        self._numbers: dict[Allocation, Array] = {}

    def access(self, touch: Touch, value: Any) -> None:
        role = touch.access.role
        if touch.allocation.space is Space.CONSTANT:
            return
        is_own = touch.allocation.space is not Space.GLOBAL
        reads = self.watches_reads and (
            role != "write" if is_own else role == "read" and touch.allocation.name in self.outputs
        )
        if not (reads or (self.watches_reads if is_own else self.outputs and role != "read")):
            return
        elements, itemsize = self._elements(touch), touch.access.dtype.itemsize
        if reads:
            is_missing = (elements[touch.index] != _ALL_WRITTEN[itemsize]) | self._is_of_earlier(touch)
            if np.count_nonzero(is_missing):
                name, space = touch.allocation.name, touch.allocation.space.value
                diagnostic = UninitialisedRead(touch.element(int(np.argmax(is_missing))), name, space)
                touch.team.report(diagnostic, touch.access.loc, touch.at_fault(is_missing), name)
        if role != "read":
            elements[touch.index] = _ALL_WRITTEN[itemsize]
            if touch.allocation in self._numbers:
                self._numbers[touch.allocation][_bytes_of(touch)] = self._number(touch)

    def copying(self, touch: Touch, value: Any) -> None:
        """Forget what was written where something is under way."""
        self._elements(touch)[touch.index] = 0

    def landed(self, touch: Touch) -> None:
        self.access(touch, None)

    def _elements(self, touch: Touch) -> Array:
        """Return the flags of the elements that lanes may touch, those of each as one number."""
        itemsize, flags = touch.access.dtype.itemsize, self._flags(touch.allocation)
        usable = (len(flags) - touch.phase) // itemsize * itemsize
        return flags[touch.phase : touch.phase + usable].view(f"u{itemsize}")

    # -- arrays that are begun again ------------------------------------------------------------------------------

    def begin(self, team: Team, allocation: Allocation) -> None:
        begun = self._begun.setdefault(allocation, {})
        counts = begun.setdefault(team, np.zeros(team.lanes, np.int64))
        counts[team.active_lanes()] += 1
        if counts.max() > 1 and allocation not in self._numbers:
            self._numbers[allocation] = np.ones(len(allocation.data), np.int64)

    def _number(self, touch: Touch) -> Array:
        """Return, as a column, which array each lane that touches takes this memory for."""
        begun = self._begun[touch.allocation].get(touch.team)
        return np.ones((1, 1), np.int64) if begun is None else begun[touch.lane_numbers, None]

    def _is_of_earlier(self, touch: Touch) -> Any:
        """Return whether each lane that touches reads what was written to an earlier array in the same place."""
        numbers = self._numbers.get(touch.allocation)
        return False if numbers is None else (numbers[_bytes_of(touch)] < self._number(touch)).any(axis=1)

    def forget(self, memory: Iterable[Allocation]) -> None:
        for each in memory:
            for known in (self._bytes, self._begun, self._numbers):
                known.pop(each, None)

    def _flags(self, allocation: Allocation) -> Array:
        """Return one byte, 1 or 0, for each byte of all copies of the allocation."""
        arena, start = allocation.arena, allocation.arena_start
        if arena not in self._bytes:
            self._bytes[arena] = np.zeros(max(len(arena.data), arena.arena_end), np.uint8)
        return self._bytes[arena][start : start + len(allocation.data)]

    def report_outputs(self, allocations: Iterable[Allocation], sink: FindingSink) -> None:
        """Report the outputs of which the launch has left elements unwritten."""
        for each in allocations:
            array = each.array
            if each.name not in self.outputs or array is None or not array.size:
                continue
            flags = self._flags(each)[array.ctypes.data - each.base :]
            is_written = as_strided(flags, array.shape, array.strides).reshape(-1).view(np.bool_)
            missing = int(np.count_nonzero(~is_written))
            if missing:
                diagnostic = UnwrittenOutput(missing, array.size, each.name, int(np.argmin(is_written)))
                sink.report(diagnostic, None, 1, key=each.name)


def _bytes_of(touch: Touch) -> Array:
    """Return, in a row for each lane that touches, where the bytes of its element lie in the allocation."""
    itemsize = touch.access.dtype.itemsize
    return np.asarray(touch.indices()[:, None] * itemsize + touch.phase + np.arange(itemsize))
