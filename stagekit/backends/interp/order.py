"""The order of accesses: barriers, warp synchronisation, and data handed over by fences and atomics.

Every warp has a clock of three parts: block barriers passed (from 1), warp synchronisations since, fences since. Of two
accesses

    in one block      the one before a barrier is ordered before the one after it
    in one warp       the same holds for `syncwarp`, between lanes that its mask names
    anywhere          A is ordered before B if A's thread passed a fence after A, or met at a barrier a thread that then did,
                      and a later atomic wrote what an atomic of B's warp read, before a fence or a barrier in front of B
                      (and so on along a chain)

Vector clocks of whole warps implement the third rule; a fence of some lanes is noted with these lanes. A barrier also completes
what an atomic read, and lets the atomics of all its threads release what one thread has fenced, as on real devices:
`threadfence` is sequentially consistent there. Source: PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import Program
from stagekit.backends.interp.team import WARP_SHIFT, LaunchState, Scope, Team, Watcher, bit_sets
from stagekit.ir import Native
from stagekit.limits import WARP

BARRIER_SHIFT = 40
SYNC_SHIFT = 20

_WHOLE = (1 << WARP) - 1


class _Event(NamedTuple):
    """Lanes of a warp synchronised or passed a fence at this time of the warp. groups: bit sets of those that did so together."""

    time: int
    groups: tuple[int, ...]


class Clocks(Watcher):
    """The clocks of all warps of a launch, by warp tag.

    handovers: those between blocks. within: those inside a block, for which a fence of the block is enough. partial: by warp,
    the synchronisations that left lanes out.
    """

    def __init__(self, launch: LaunchState, program: Program) -> None:
        self.shift = launch.tag_shift
        self.warps = launch.warps
        self.time = np.full((launch.blocks + 1) << (self.shift - WARP_SHIFT), 1 << BARRIER_SHIFT)
        has_fence, has_block_fence = program.has(Native.FENCE), (Native.FENCE, ("block",)) in program.natives
        self.handovers = _Handovers(self.time) if has_fence else None
        self.within = _Handovers(self.time) if has_block_fence else self.handovers
        self.all_handovers = [h for h in {self.handovers, self.within} if h is not None]
        self.partial: dict[int, list[_Event]] = {}
        self.has_more_than_barriers = has_fence or program.has(Native.WARP_BARRIER)

    def of(self, team: Team) -> Array:
        """Return the time of each lane."""
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
        arrived = lanes.here | (lanes.all & ~lanes.alive)  # a lane that has returned counts where it is named
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
        """Note that threads (tags) read and write units of an arena, each by one atomic."""
        for handovers in self.all_handovers:
            for warp, unit in zip((thread >> WARP_SHIFT).tolist(), units.tolist(), strict=True):
                handovers.atomic(warp, (arena, unit))

    # -- the order that follows ---------------------------------------------------------------------------------------

    def is_ordered(self, before: Array, before_time: Array, now: Array, now_time: Array) -> Array:
        """Return where an access of thread `before` (a tag) at `before_time` is ordered before one of `now` at `now_time`."""
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
        """Return where `syncwarp` orders two accesses of one warp."""
        same_warp = before >> WARP_SHIFT == now >> WARP_SHIFT
        found = np.asarray(same_warp & (before_time >> SYNC_SHIFT < now_time >> SYNC_SHIFT))
        for i in np.flatnonzero(found).tolist() if self.partial else ():
            events = self.partial.get(int(now[i]) >> WARP_SHIFT, ())
            found[i] = _reaches(events, int(before[i]), int(before_time[i]), int(now[i]), int(now_time[i]))
        return found


class _Lanes:
    """The warps of a team, and per warp the bit sets of its lanes that are active (`here`), have not returned, and exist."""

    def __init__(self, team: Team) -> None:
        self.warps = team.to_warps(team.warp_tag)[:, 0]
        self.active = team.active_rows()
        self.here, self.all = bit_sets(self.active), bit_sets(team.existing_rows)
        self.alive = self.all if team.ended is None else bit_sets(team.to_warps(~team.ended))


def _reaches(events: Sequence[_Event], before: int, before_time: int, now: int, now_time: int) -> bool:
    """Return whether synchronisations of a warp, some of which left lanes out, order one lane before another."""
    between = [e for e in events if before_time < e.time <= now_time]
    if (now_time >> SYNC_SHIFT) - (before_time >> SYNC_SHIFT) > len(between):
        return True  # one of them was of the whole warp
    reached = 1 << before % WARP
    for event in between:
        for group in event.groups:
            reached |= group if group & reached else 0
    return bool(reached >> now % WARP & 1)


class _Handovers:
    """Vector clocks. A clock holds, per warp of the launch, the time up to which all its accesses are known to be over.

    time: the present time of each warp. Each of the others maps a warp to a clock, except as stated:
    known: what the warp knows. read: what its atomics have read, which it knows once it passes a fence. learnt: (lanes, clock)
    of fences that only these lanes passed. released: what its atomics hand on, as of its last fence. stored: by location, what
    an atomic that reads it learns. fences: the fences of each warp. A time in a clock is that of a fence, and counts for the
    lanes that passed it.
    """

    def __init__(self, time: Array) -> None:
        self.time = time
        self.known: dict[int, Array] = {}
        self.read: dict[int, Array] = {}
        self.learnt: dict[int, list[tuple[int, Array]]] = {}
        self.released: dict[int, Array] = {}
        self.stored: dict[tuple[object, int], Array] = {}
        self.fences: dict[int, list[_Event]] = {}

    def _complete(self, warp: int) -> Array:
        """Add what the atomics of `warp` have read and some of its lanes have learnt to what it knows, which is returned."""
        known = self.known.setdefault(warp, np.zeros_like(self.time))
        read = self.read.pop(warp, known)
        for _, clock in self.learnt.pop(warp, ()):
            np.maximum(known, clock, out=known)
        return np.maximum(known, read, out=known)

    def share(self, warps: Iterable[int]) -> None:
        """Let all lanes of each of these warps know what some of them have learnt."""
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
        """Let some lanes of `warp` learn what its atomics have read; return what these lanes know."""
        clock = self.known.get(warp, np.zeros_like(self.time))
        for others, theirs in self.learnt.get(warp, ()):
            clock = np.maximum(clock, theirs) if others & lanes else clock
        if warp in self.read:
            clock = np.maximum(clock, self.read.pop(warp))
            rest = [(others & ~lanes, theirs) for others, theirs in self.learnt.get(warp, ()) if others & ~lanes]
            self.learnt[warp] = [*rest, (lanes, clock)]
        return clock

    def _note(self, warp: int, lanes: int) -> None:
        self.fences.setdefault(warp, []).append(_Event(int(self.time[warp]), (lanes,)))

    def meet(self, warps: Sequence[int]) -> None:
        """Let the warps of a block share what they know and what they release."""
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
        """Note that `warp` reads and writes `location` by one atomic."""
        there = self.stored.get(location)
        if there is not None:
            self.read[warp] = np.maximum(self.read.get(warp, there), there)
        released = self.released.get(warp)
        if released is not None:
            self.stored[location] = released if there is None else np.maximum(there, released)

    def covers(self, now: Array, before: Array, before_time: Array) -> Array:
        """Return where thread `now` (a tag) knows that an access of thread `before` at `before_time` is over."""
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
        """Return whether the thread passed a fence between these times, or synchronised with a lane that then did."""
        lane = 1 << thread % WARP
        return any(
            since <= event.time <= until and (event.groups[0] & lane or since >> SYNC_SHIFT < event.time >> SYNC_SHIFT)
            for event in reversed(self.fences.get(thread >> WARP_SHIFT, ()))
        )
