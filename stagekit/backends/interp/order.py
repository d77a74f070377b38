"""What is ordered before what: barriers, warp synchronisation, and data handed over by fences and atomics.

Every warp has a clock of three parts: block barriers passed, warp synchronisations since, fences since. Of two accesses

    in one block      the one before a barrier is ordered before the one behind it
    in one warp       the same for `syncwarp`
    anywhere          A is ordered before B if A's warp passed a fence after A, then wrote by an atomic what B's warp
                      read by an atomic, before a fence or a barrier in front of B (and so on along a chain)

The third rule is kept by vector clocks of whole warps, so a fence by one thread speaks for its warp, as a barrier before it
would make it speak for the block. A barrier also completes what an atomic read, as on real devices.
"""

from __future__ import annotations

import numpy as np

from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.team import WARP, Team

_BARRIER_SHIFT = 40
_SYNC_SHIFT = 20


class NoOrder:
    """Keeps nothing: for runs that do not look for races."""

    def barrier(self, team: Team) -> None:
        """Every thread of the team's blocks is at a barrier."""

    def block_barrier(self, block: int) -> None:
        """Every warp of `block` is at a barrier."""

    def syncwarp(self, team: Team) -> None:
        """The active lanes synchronise with their warps."""

    def fence(self, team: Team) -> None:
        """The active lanes pass a fence."""


class Clocks(NoOrder):
    """The clocks of all warps of a launch. keeps_handovers: is there a fence in the kernel at all?"""

    def __init__(self, blocks: int, threads: int, keeps_handovers: bool) -> None:
        self.threads = threads
        self.warps = -(-threads // WARP)
        self.time = np.zeros(blocks * self.warps, np.int64)
        self.handovers = _Handovers(len(self.time)) if keeps_handovers else None

    def of(self, team: Team) -> Array:
        """The time of each lane."""
        return np.asarray(self.time[team.warp_number])

    def barrier(self, team: Team) -> None:
        present = team.block if np.ndim(team.block) == 0 else np.unique(team.block[team.active_lanes()])
        for block in np.atleast_1d(present).tolist():
            self.block_barrier(block)

    def block_barrier(self, block: int) -> None:
        warps = slice(block * self.warps, (block + 1) * self.warps)
        if self.handovers:
            self.handovers.meet(range(warps.start, warps.stop), self.time)
        self.time[warps] = ((self.time[warps] >> _BARRIER_SHIFT) + 1) << _BARRIER_SHIFT

    def syncwarp(self, team: Team) -> None:
        warps = np.unique(team.warp_number[team.active_lanes()])
        self.time[warps] = ((self.time[warps] >> _SYNC_SHIFT) + 1) << _SYNC_SHIFT

    def fence(self, team: Team) -> None:
        if self.handovers:
            for warp in np.unique(team.warp_number[team.active_lanes()]).tolist():
                self.handovers.fence(warp, self.time)

    def warp_of(self, threads: Array) -> Array:
        """The warp of each thread, both numbered through the launch."""
        block, thread = np.divmod(threads, self.threads)
        return np.asarray(block * self.warps + thread // WARP)

    def is_ordered(self, before: Array, before_time: Array, now: Array, now_time: Array) -> Array:
        """Was what thread `before` did at its time ordered before what thread `now` does?"""
        same_block = before // self.threads == now // self.threads
        ordered = same_block & (before_time >> _BARRIER_SHIFT < now_time >> _BARRIER_SHIFT)
        if ordered.all():
            return np.asarray(ordered)
        before_warp, now_warp = self.warp_of(before), self.warp_of(now)
        ordered |= (before_warp == now_warp) & (before_time >> _SYNC_SHIFT < now_time >> _SYNC_SHIFT)
        if self.handovers:
            ordered |= self.handovers.covers(now_warp, before_warp, before_time)
        return np.asarray(ordered)


class _Handovers:
    """Vector clocks. A clock holds, per warp of the launch, up to which of its times everything is known to be over.

    known: by what each warp does next. read: by what its atomics have read, once it passes a fence. released: by what its
    atomics write, as of its last fence. at: by whoever reads a location by an atomic.
    """

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.known: dict[int, Array] = {}
        self.read: dict[int, Array] = {}
        self.released: dict[int, Array] = {}
        self.at: dict[tuple[object, int], Array] = {}

    def _nothing(self) -> Array:
        return np.full(self.warps, -1, np.int64)

    def _complete(self, warp: int) -> Array:
        """What `warp` knows, what its atomics have read included."""
        known = self.known.setdefault(warp, self._nothing())
        read = self.read.pop(warp, None)
        return known if read is None else np.maximum(known, read, out=known)

    def fence(self, warp: int, time: Array) -> None:
        released = self._complete(warp).copy()
        released[warp] = time[warp]
        self.released[warp] = released
        time[warp] += 1

    def meet(self, warps: range, time: Array) -> None:
        """The warps of a block share what they know."""
        joined = np.maximum.reduce([self._complete(w) for w in warps])
        joined[warps.start : warps.stop] = time[warps.start : warps.stop]
        for warp in warps:
            self.known[warp] = joined.copy()

    def atomic(self, warp: int, location: tuple[object, int]) -> None:
        """`warp` reads and writes `location` by one atomic."""
        there = self.at.get(location)
        if there is not None:
            self.read[warp] = np.maximum(self.read.get(warp, there), there)
        released = self.released.get(warp)
        if released is not None:
            self.at[location] = released if there is None else np.maximum(there, released)

    def covers(self, now: Array, before: Array, before_time: Array) -> Array:
        found = np.zeros(len(now), np.bool_)
        for warp in np.unique(now).tolist():
            known = self.known.get(warp)
            if known is not None:
                lanes = now == warp
                found[lanes] = known[before[lanes]] >= before_time[lanes]
        return found
