"""What has been written: reads of shared and local memory that nothing wrote, and outputs that a launch left as they were."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from stagekit.backends.interp.access import Access, Place
from stagekit.backends.interp.findings import Finding, FindingSink, UninitialisedRead, UnwrittenOutput
from stagekit.backends.interp.memory import Allocation, Array
from stagekit.backends.interp.team import Team
from stagekit.ir import Space

_ALL_WRITTEN = {size: int("01" * size, 16) for size in (1, 2, 4, 8)}  # every byte of an element of this size


class WrittenBytes:
    """Per arena, which bytes have been written. outputs: names of the arrays that must be written in full."""

    def __init__(self, outputs: Iterable[str], watches_reads: bool) -> None:
        self.outputs = frozenset(outputs)
        self.watches_reads = watches_reads
        self._bytes: dict[Allocation, Array] = {}

    def observe(self, team: Team, access: Access, place: Place, value: Any) -> None:
        allocation = place.allocation
        is_own = allocation.space is not Space.GLOBAL
        if not self.watches_reads if is_own else (not self.outputs or access.role == "read"):
            return
        flags = self._flags(allocation, access, place)
        if is_own and access.role != "write":
            self._check_read(team, access, place, flags)
        if access.role != "read":
            flags[place.index] = _ALL_WRITTEN[access.dtype.itemsize]

    def forget(self, allocations: Iterable[Allocation]) -> None:
        """Drop memory that is gone."""
        for each in allocations:
            self._bytes.pop(each, None)

    def _flags(self, allocation: Allocation, access: Access, place: Place) -> Array:
        """One flag per element as `access` sees the allocation, each as wide as the element: a byte of it is 1 or 0."""
        flags, itemsize = self._of(allocation), access.dtype.itemsize
        usable = (len(flags) - place.phase) // itemsize * itemsize
        return flags[place.phase : place.phase + usable].view(f"u{itemsize}")

    def _of(self, allocation: Allocation) -> Array:
        """One byte, 1 or 0, per byte of the allocation, all copies."""
        arena, start, size = allocation.arena, allocation.arena_start, len(allocation.data)
        found = self._bytes.get(arena)
        if found is None:
            found = self._bytes[arena] = np.zeros(max(len(arena.data), arena.arena_end), np.uint8)
        return found[start : start + size]

    def _check_read(self, team: Team, access: Access, place: Place, flags: Array) -> None:
        is_missing = flags[place.index] != _ALL_WRITTEN[access.dtype.itemsize]
        if np.count_nonzero(is_missing):
            _report_missing(team, access, place, is_missing)

    def report_outputs(self, allocations: Iterable[Allocation], sink: FindingSink) -> None:
        """Report what is left unwritten in the outputs, at the end of the launch."""
        for each in allocations:
            if each.name in self.outputs and each.array is not None and each.array.size:
                self._report_output(each, each.array, sink)

    def _report_output(self, allocation: Allocation, array: Array, sink: FindingSink) -> None:
        flags = self._of(allocation)
        start = array.ctypes.data - allocation.base
        is_written = as_strided(flags[start:], array.shape, array.strides).reshape(-1).view(np.bool_)
        missing = int(np.count_nonzero(~is_written))
        if missing and sink.is_new((UnwrittenOutput.id, allocation.name), 1):
            diagnostic = UnwrittenOutput(allocation.name, missing, array.size, int(np.argmin(is_written)))
            sink.add((UnwrittenOutput.id, allocation.name), Finding(diagnostic, None, None, (), 1))


def _report_missing(team: Team, access: Access, place: Place, is_missing: Any) -> None:
    lanes = np.arange(team.lanes) if place.lanes is None else np.flatnonzero(place.lanes)
    at_fault = np.zeros(team.lanes, np.bool_)
    at_fault[lanes] = is_missing
    allocation = place.allocation
    first = int(place.indices(team)[np.argmax(np.broadcast_to(is_missing, lanes.shape))]) % place.view.pitch
    diagnostic = UninitialisedRead(allocation.name, first, allocation.space.value)
    team.report(diagnostic, access.loc, at_fault, allocation.name)
