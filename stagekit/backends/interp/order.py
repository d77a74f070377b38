"""What is ordered before what: barriers, warp synchronisation, and data handed over by fences and atomics.

Every warp has a clock of three parts: block barriers passed (from 1), warp synchronisations since, fences since. Of two
accesses

    in one block      the one before a barrier is ordered before the one behind it
    in one warp       the same for `syncwarp`, between lanes that its mask names
    anywhere          A is ordered before B if A's thread passed a fence after A, or met at a barrier a thread that then did,
                      and an atomic behind that wrote what an atomic of B's warp read, before a fence or a barrier in front
                      of B (and so on along a chain)

The third rule is kept by vector clocks of whole warps: the lanes that a fence of some lanes does not speak for are noted with
it. A barrier also completes what an atomic read, and puts what one thread has fenced behind the atomics of all, as on real
devices: `threadfence` is sequentially consistent there. Source: PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import Program
from stagekit.backends.interp.team import WARP_SHIFT, Launch, Scope, Team
from stagekit.ir import Native
from stagekit.limits import WARP

BARRIER_SHIFT = 40
SYNC_SHIFT = 20

_WHOLE = (1 << WARP) - 1


class _Event(NamedTuple):
    """At this time of a warp, lanes synchronised or passed a fence. groups: bit sets of those that did so together."""

    time: int
    groups: tuple[int, ...]


class Clocks:
    """The clocks of all warps of a launch, by warp tag.

    handovers: between blocks. within: inside a block, where a fence of the block is enough. partial: of each warp, the
    synchronisations that left lanes out.
    """

    def __init__(self, launch: Launch, program: Program) -> None:
        self.shift = launch.tag_shift
        self.warps = launch.warps
        self.time = np.full((launch.blocks + 1) << (self.shift - WARP_SHIFT), 1 << BARRIER_SHIFT)
        has_fence, has_block_fence = program.has(Native.FENCE), (Native.FENCE, ("block",)) in program.natives
        self.handovers = _Handovers(self.time) if has_fence else None
        self.within = _Handovers(self.time) if has_block_fence else self.handovers
        self.partial: dict[int, list[_Event]] = {}
        self.has_more_than_barriers = has_fence or program.has(Native.WARP_BARRIER)

    @property
    def all_handovers(self) -> tuple[_Handovers, ...]:
        return tuple(h for h in {id(h): h for h in (self.handovers, self.within)}.values() if h is not None)

    def of(self, team: Team) -> Array:
        """The time of each lane."""
        return np.asarray(self.time[team.warp_tag])

    # -- what threads do ----------------------------------------------------------------------------------------------

    def barrier(self, blocks: Array) -> None:
        warps = ((blocks + 1) << (self.shift - WARP_SHIFT))[:, None] + np.arange(self.warps)
        for handovers in self.all_handovers:
            for of_block in warps.tolist():
                handovers.meet(of_block)
        self._pass(warps.reshape(-1), BARRIER_SHIFT)

    def syncwarp(self, team: Team, mask: Any) -> None:
        lanes = _Lanes(team)
        self._pass(lanes.warps[lanes.here != 0], SYNC_SHIFT)
        for handovers in self.all_handovers:
            handovers.share(lanes.warps.tolist())
        arrived = lanes.here | (lanes.all & ~lanes.alive)  # who has returned counts where it is named
        named = np.where(lanes.active, team.to_warps(mask), lanes.all[:, None])
        is_whole = (arrived == lanes.all) & ((named & lanes.all[:, None]) == lanes.all[:, None]).all(axis=1)
        for row in np.flatnonzero(~is_whole & (lanes.here != 0)).tolist():
            warp = int(lanes.warps[row])
            groups = {int(m) & int(arrived[row]) for m in named[row][lanes.active[row]]}
            self.partial.setdefault(warp, []).append(_Event(int(self.time[warp]), tuple(groups)))

    def _pass(self, warps: Array, shift: int) -> None:
        self.time[warps] = ((self.time[warps] >> shift) + 1) << shift

    def fence(self, team: Team, scope: Scope) -> None:
        lanes = _Lanes(team)
        for row in np.flatnonzero(lanes.here).tolist():
            warp, here = int(lanes.warps[row]), int(lanes.here[row])
            for handovers in self.all_handovers:
                if scope != "block" or handovers is not self.handovers:
                    handovers.fence(warp, _WHOLE if here == int(lanes.all[row]) else here)
            self.time[warp] += 1

    def atomic(self, thread: Array, arena: object, units: Array) -> None:
        """Threads (tags) read and write units of an arena, each by one atomic."""
        for handovers in self.all_handovers:
            for warp, unit in zip((thread >> WARP_SHIFT).tolist(), units.tolist(), strict=True):
                handovers.atomic(warp, (arena, unit))

    # -- what follows from it -----------------------------------------------------------------------------------------

    def is_ordered(self, before: Array, before_time: Array, now: Array, now_time: Array) -> Array:
        """Was what thread `before` (a tag) did at its time ordered before what thread `now` does?"""
        same_block = before >> self.shift == now >> self.shift
        ordered = same_block & (before_time >> BARRIER_SHIFT < now_time >> BARRIER_SHIFT)
        if np.count_nonzero(ordered) == len(ordered):
            return np.asarray(ordered)
        ordered |= self._is_synchronised(before, before_time, now, now_time)
        for handovers, pairs in ((self.handovers, ~same_block), (self.within, same_block)):
            some = np.flatnonzero(pairs & ~ordered)
            if handovers is not None and len(some):
                ordered[some] = handovers.covers(now[some], before[some], before_time[some])
        return np.asarray(ordered)

    def _is_synchronised(self, before: Array, before_time: Array, now: Array, now_time: Array) -> Array:
        """By `syncwarp`, within a warp."""
        same_warp = before >> WARP_SHIFT == now >> WARP_SHIFT
        found = np.asarray(same_warp & (before_time >> SYNC_SHIFT < now_time >> SYNC_SHIFT))
        for i in np.flatnonzero(found).tolist() if self.partial else ():
            events = self.partial.get(int(now[i]) >> WARP_SHIFT, ())
            found[i] = _reaches(events, int(before[i]), int(before_time[i]), int(now[i]), int(now_time[i]))
        return found


class _Lanes:
    """Rows of a team: its warps; and as bit sets the lanes that run, those that have not returned, and all that there are."""

    def __init__(self, team: Team) -> None:
        self.warps = team.to_warps(team.warp_tag)[:, 0]
        self.active = team.to_warps(team.active_lanes())
        everyone = np.ones(team.lanes, np.bool_)
        self.here, self.all = _bits(self.active), _bits(team.to_warps(everyone))
        self.alive = self.all if team.ended is None else _bits(team.to_warps(everyone & ~team.ended))


def _bits(flags: Array) -> Array:
    """Rows of 32 bools as bit sets."""
    return np.asarray(np.packbits(flags, axis=1, bitorder="little").view("<u4")[:, 0])


def _reaches(events: Sequence[_Event], before: int, before_time: int, now: int, now_time: int) -> bool:
    """Did what one lane did reach another through synchronisations, some of which left lanes out?"""
    between = [e for e in events if before_time < e.time <= now_time]
    if (now_time >> SYNC_SHIFT) - (before_time >> SYNC_SHIFT) > len(between):
        return True  # one of them was of the whole warp
    reached = 1 << before % WARP
    for event in between:
        for group in event.groups:
            reached |= group if group & reached else 0
    return bool(reached >> now % WARP & 1)


class _Handovers:
    """Vector clocks. A clock holds, per warp of the launch, up to which of its times everything is known to be over.

    time: the clocks of the warps themselves. known: by what each warp does next. read: by what its atomics have read, once
    it passes a fence. learnt: by some of its lanes, which passed one alone. released: by what its atomics write, as of the
    last fences. at: by who reads a location by an atomic. fences: of each warp; a time in a clock is that of one, and means
    the lanes that passed it.
    """

    def __init__(self, time: Array) -> None:
        self.time = time
        self.known: dict[int, Array] = {}
        self.read: dict[int, Array] = {}
        self.learnt: dict[int, list[tuple[int, Array]]] = {}
        self.released: dict[int, Array] = {}
        self.at: dict[tuple[object, int], Array] = {}
        self.fences: dict[int, list[_Event]] = {}

    def _complete(self, warp: int) -> Array:
        """What `warp` knows, what its atomics have read and some of its lanes have learnt included."""
        known = self.known.setdefault(warp, np.zeros_like(self.time))
        read = self.read.pop(warp, known)
        for _, clock in self.learnt.pop(warp, ()):
            np.maximum(known, clock, out=known)
        return np.maximum(known, read, out=known)

    def share(self, warps: Iterable[int]) -> None:
        """What lanes of these warps have learnt is known to all of each."""
        for warp in warps:
            if warp in self.learnt:
                read = self.read.pop(warp, None)
                self._complete(warp)
                if read is not None:
                    self.read[warp] = read

    def fence(self, warp: int, lanes: int) -> None:
        released = (self._complete(warp) if lanes == _WHOLE else self._learn(warp, lanes)).copy()
        released[warp] = self.time[warp]
        self.released[warp] = released
        self._note(warp, lanes)

    def _learn(self, warp: int, lanes: int) -> Array:
        """What some lanes of `warp` know, and from now on what its atomics have read."""
        clock = self.known.get(warp, np.zeros_like(self.time))
        for others, theirs in self.learnt.get(warp, ()):
            clock = np.maximum(clock, theirs) if others & lanes else clock
        if warp in self.read:
            clock = np.maximum(clock, self.read.pop(warp))
            kept = [(others & ~lanes, theirs) for others, theirs in self.learnt.get(warp, ()) if others & ~lanes]
            self.learnt[warp] = [*kept, (lanes, clock)]
        return clock

    def _note(self, warp: int, lanes: int) -> None:
        self.fences.setdefault(warp, []).append(_Event(int(self.time[warp]), (lanes,)))

    def meet(self, warps: Sequence[int]) -> None:
        """The warps of a block share what they know, and what they have fenced."""
        joined = np.maximum.reduce([self._complete(w) for w in warps])
        joined[warps] = self.time[warps]
        fenced = [self.released[w] for w in warps if w in self.released]
        released = np.maximum.reduce(fenced) if fenced else None
        for warp in warps:
            self.known[warp] = joined.copy()
            self._note(warp, _WHOLE)
            if released is not None:
                self.released[warp] = released

    def atomic(self, warp: int, location: tuple[object, int]) -> None:
        """`warp` reads and writes `location` by one atomic."""
        there = self.at.get(location)
        if there is not None:
            self.read[warp] = np.maximum(self.read.get(warp, there), there)
        released = self.released.get(warp)
        if released is not None:
            self.at[location] = released if there is None else np.maximum(there, released)

    def covers(self, now: Array, before: Array, before_time: Array) -> Array:
        """Does each thread `now` (a tag) know that what thread `before` did at its time is over?"""
        found = np.zeros(len(now), np.bool_)
        for warp in np.unique(now >> WARP_SHIFT).tolist():
            here = now >> WARP_SHIFT == warp
            clocks = [(_WHOLE, self.known[warp])] if warp in self.known else []
            for lanes, clock in (*clocks, *self.learnt.get(warp, ())):
                pairs = np.flatnonzero(here & ~found & (np.int64(lanes) >> now % WARP & 1).astype(np.bool_))
                until = clock[before[pairs] >> WARP_SHIFT]
                for i, end in zip(pairs.tolist(), until.tolist(), strict=True):
                    found[i] = before_time[i] <= end and self._has_fenced(int(before[i]), int(before_time[i]), end)
        return found

    def _has_fenced(self, thread: int, since: int, until: int) -> bool:
        """Did the thread pass a fence between, or meet one that then did?"""
        lane = 1 << thread % WARP
        return any(
            since <= event.time <= until and (event.groups[0] & lane or since >> SYNC_SHIFT < event.time >> SYNC_SHIFT)
            for event in reversed(self.fences.get(thread >> WARP_SHIFT, ()))
        )
