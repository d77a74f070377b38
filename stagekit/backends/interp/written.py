"""What has been written: reads of shared and local memory that nothing wrote, and outputs that a launch left as they were."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from stagekit.backends.interp.findings import FindingSink, UninitialisedRead, UnwrittenOutput
from stagekit.backends.interp.memory import Allocation, Array
from stagekit.backends.interp.team import Touch, Watcher
from stagekit.ir import Space

_ALL_WRITTEN = {size: int("01" * size, 16) for size in (1, 2, 4, 8)}  # every byte of an element of this size


class WrittenBytes(Watcher):
    """Per arena, which bytes have been written. outputs: names of the arrays that must be written in full."""

    def __init__(self, outputs: Iterable[str], watches_reads: bool) -> None:
        self.outputs = frozenset(outputs)
        self.watches_reads = watches_reads
        self._bytes: dict[Allocation, Array] = {}

    def access(self, touch: Touch, value: Any) -> None:
        role = touch.access.role
        is_own = touch.allocation.space is not Space.GLOBAL
        if not self.watches_reads if is_own else (not self.outputs or role == "read"):
            return
        itemsize = touch.access.dtype.itemsize
        flags = self._of(touch.allocation)
        usable = (len(flags) - touch.phase) // itemsize * itemsize
        elements = flags[touch.phase : touch.phase + usable].view(f"u{itemsize}")
        if is_own and role != "write":
            is_missing = elements[touch.index] != _ALL_WRITTEN[itemsize]
            if np.count_nonzero(is_missing):
                name, space = touch.allocation.name, touch.allocation.space.value
                diagnostic = UninitialisedRead(touch.element(int(np.argmax(is_missing))), name, space)
                touch.team.report(diagnostic, touch.access.loc, touch.at_fault(is_missing), name)
        if role != "read":
            elements[touch.index] = _ALL_WRITTEN[itemsize]

    def forget(self, memory: Iterable[Allocation]) -> None:
        for each in memory:
            self._bytes.pop(each, None)

    def _of(self, allocation: Allocation) -> Array:
        """One byte, 1 or 0, per byte of the allocation, all copies."""
        arena, start, size = allocation.arena, allocation.arena_start, len(allocation.data)
        found = self._bytes.get(arena)
        if found is None:
            found = self._bytes[arena] = np.zeros(max(len(arena.data), arena.arena_end), np.uint8)
        return found[start : start + size]

    def report_outputs(self, allocations: Iterable[Allocation], sink: FindingSink) -> None:
        """Report what is left unwritten in the outputs, at the end of the launch."""
        for each in allocations:
            array = each.array
            if each.name not in self.outputs or array is None or not array.size:
                continue
            flags = self._of(each)[array.ctypes.data - each.base :]
            is_written = as_strided(flags, array.shape, array.strides).reshape(-1).view(np.bool_)
            missing = int(np.count_nonzero(~is_written))
            if missing:
                diagnostic = UnwrittenOutput(missing, array.size, each.name, int(np.argmin(is_written)))
                sink.report(diagnostic, None, 1, key=each.name)
