"""What is ordered before what: barriers, warp synchronisation, and data handed over by fences and atomics.

Every warp has a clock of three parts: block barriers passed (from 1), warp synchronisations since, fences since. Of two
accesses

    in one block      the one before a barrier is ordered before the one behind it
    in one warp       the same for `syncwarp`
    anywhere          A is ordered before B if A's warp passed a fence after A, then wrote by an atomic what B's warp
                      read by an atomic, before a fence or a barrier in front of B (and so on along a chain)

The third rule is kept by vector clocks of whole warps, so a fence by one thread speaks for its warp, as a barrier before it
would make it speak for the block. A barrier also completes what an atomic read, as on real devices.
"""

from __future__ import annotations

import numpy as np

from stagekit.backends.interp.launch import Launch
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.team import WARP_SHIFT, Team

BARRIER_SHIFT = 40
SYNC_SHIFT = 20


class NoOrder:
    """Keeps nothing: for runs that do not look for races."""

    def barrier(self, team: Team) -> None:
        """The active threads of the team are at a barrier, and with them their blocks."""

    def block_barrier(self, block: int) -> None:
        """Every warp of `block` is at a barrier."""

    def syncwarp(self, team: Team) -> None:
        """The active lanes synchronise with their warps."""

    def fence(self, team: Team) -> None:
        """The active lanes pass a fence."""


class Clocks(NoOrder):
    """The clocks of all warps of a launch, by warp tag."""

    def __init__(self, launch: Launch) -> None:
        self.shift = launch.tag_shift
        self.warps = launch.warps
        self.time = np.full((launch.blocks + 1) << (self.shift - WARP_SHIFT), 1 << BARRIER_SHIFT)
        self.handovers = _Handovers(self.time) if launch.program.has_fence else None
        self.has_more_than_barriers = launch.program.has_fence or launch.program.has_syncwarp

    def of(self, team: Team) -> Array:
        """The time of each lane."""
        return np.asarray(self.time[team.warp_tag])

    def barrier(self, team: Team) -> None:
        if self.handovers or team.mask is not None:
            for block in np.unique(team.spread(team.block)[team.active_lanes()]).tolist():
                self.block_barrier(block)
        else:
            self._pass(team.warp_tag, BARRIER_SHIFT)

    def block_barrier(self, block: int) -> None:
        first = (block + 1) << (self.shift - WARP_SHIFT)
        warps = range(first, first + self.warps)
        if self.handovers:
            self.handovers.meet(warps)
        self._pass(slice(warps.start, warps.stop), BARRIER_SHIFT)

    def syncwarp(self, team: Team) -> None:
        self._pass(team.warp_tag[team.active_lanes()], SYNC_SHIFT)

    def _pass(self, warps: Array | slice, shift: int) -> None:
        self.time[warps] = ((self.time[warps] >> shift) + 1) << shift

    def fence(self, team: Team) -> None:
        if self.handovers:
            for warp in np.unique(team.warp_tag[team.active_lanes()]).tolist():
                self.handovers.fence(warp)

    def is_ordered(self, before: Array, before_time: Array, now: Array, now_time: Array) -> Array:
        """Was what thread `before` (a tag) did at its time ordered before what thread `now` does?"""
        same_block = before >> self.shift == now >> self.shift
        ordered = same_block & (before_time >> BARRIER_SHIFT < now_time >> BARRIER_SHIFT)
        if ordered.all():
            return np.asarray(ordered)
        same_warp = before >> WARP_SHIFT == now >> WARP_SHIFT
        ordered |= same_warp & (before_time >> SYNC_SHIFT < now_time >> SYNC_SHIFT)
        if self.handovers:
            ordered |= self.handovers.covers(now >> WARP_SHIFT, before >> WARP_SHIFT, before_time)
        return np.asarray(ordered)


class _Handovers:
    """Vector clocks. A clock holds, per warp of the launch, up to which of its times everything is known to be over.

    time: the clocks of the warps themselves. known: by what each warp does next. read: by what its atomics have read, once
    it passes a fence. released: by what its atomics write, as of its last fence. at: by who reads a location by an atomic.
    """

    def __init__(self, time: Array) -> None:
        self.time = time
        self.known: dict[int, Array] = {}
        self.read: dict[int, Array] = {}
        self.released: dict[int, Array] = {}
        self.at: dict[tuple[object, int], Array] = {}

    def _complete(self, warp: int) -> Array:
        """What `warp` knows, what its atomics have read included."""
        known = self.known.setdefault(warp, np.zeros_like(self.time))
        read = self.read.pop(warp, None)
        return known if read is None else np.maximum(known, read, out=known)

    def fence(self, warp: int) -> None:
        released = self._complete(warp).copy()
        released[warp] = self.time[warp]
        self.released[warp] = released
        self.time[warp] += 1

    def meet(self, warps: range) -> None:
        """The warps of a block share what they know."""
        joined = np.maximum.reduce([self._complete(w) for w in warps])
        joined[warps.start : warps.stop] = self.time[warps.start : warps.stop]
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
        """Does each warp `now` know that what warp `before` did at its time is over?"""
        found = np.zeros(len(now), np.bool_)
        for warp in np.unique(now).tolist():
            known = self.known.get(warp)
            if known is not None:
                lanes = now == warp
                found[lanes] = known[before[lanes]] >= before_time[lanes]
        return found
