"""Data races: for every element, who touched it last, held against who touches it now.

Shadow memory per arena, one entry per unit of the smallest element accessed in that space:

    the last write            thread, time, access
    the readers since         a crowd: lowest and highest thread that are in no order with each other, their time and access,
                              and one reader of another block
    the atomics since         the same

Two accesses of different threads race if one of them writes, not both are atomic, and neither is ordered before the other
(`order.py`). Two writes of the same value do not count. Clear entries are 0: threads and accesses are counted from 1.
Source for keeping one reader where readers are ordered: Flanagan and Freund, "FastTrack", PLDI 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.access import VERBS, Access, Place
from stagekit.backends.interp.findings import BlockRace, GridRace, WarpRace
from stagekit.backends.interp.launch import Launch
from stagekit.backends.interp.memory import Allocation, Array
from stagekit.backends.interp.order import Clocks
from stagekit.backends.interp.team import Team
from stagekit.diagnostics import Diagnostic, Note
from stagekit.ir import Space


class Entry(NamedTuple):
    """Of each of some units: a thread, its time and access."""

    thread: Array
    time: Array
    access: Array

    @classmethod
    def clear(cls, units: int) -> Entry:
        return cls(np.zeros(units, np.int64), np.zeros(units, np.int64), np.zeros(units, np.int32))

    def put(self, units: Array, thread: Array, time: Array, access: int) -> None:
        self.thread[units], self.time[units], self.access[units] = thread, time, access

    def get(self, units: Array) -> Entry:
        return Entry(self.thread[units], self.time[units], self.access[units])


class Now(NamedTuple):
    """One op's accesses: units, and the thread (from 1) and time of each. lanes: which lane of the place each belongs to."""

    team: Team
    access: Access
    place: Place
    units: Array
    thread: Array
    time: Array
    lanes: Array


class Crowd:
    """Threads that touched a unit in no order with each other: the extremes in one block, and one of another block."""

    def __init__(self, units: int, clocks: Clocks) -> None:
        self.clocks = clocks
        self.last = Entry.clear(units)  # the highest thread, and the latest time and access
        self.lowest = np.zeros(units, np.int64)
        self.elsewhere = Entry.clear(units)

    def join(self, now: Now) -> None:
        """Add threads. Those ordered before a newcomer are forgotten: who conflicts with them conflicts with it."""
        crowd = self.last.get(now.units)
        is_known = (crowd.thread != 0) & ((crowd.thread != now.thread) | (self.lowest[now.units] != now.thread))
        starts = np.ones(len(now.units), np.bool_)
        if is_known.any():
            some = np.flatnonzero(is_known)
            starts[some] = self._starts_anew(now, some, crowd)
        units = now.units[starts]
        self.lowest[units] = self.last.thread[units] = now.thread[starts]
        self._gather(now)
        self.last.time[now.units], self.last.access[now.units] = now.time, now.access.number

    def _starts_anew(self, now: Now, some: Array, crowd: Entry) -> Array:
        """Of the units that have a crowd: which of them begin a new one, with the old one of another block set aside."""
        before, me = crowd.thread[some] - 1, now.thread[some] - 1
        is_ordered = ~self.unordered(now, some)
        is_elsewhere = before // self.clocks.threads != me // self.clocks.threads
        aside = some[~is_ordered & is_elsewhere]
        self.elsewhere.put(now.units[aside], crowd.thread[aside], crowd.time[aside], crowd.access[aside])
        return np.asarray(is_ordered | is_elsewhere)

    def _gather(self, now: Now) -> None:
        """Let the extremes cover every newcomer; of several blocks at once, one is kept and one set aside."""
        highest = self.last.thread[now.units]
        if np.array_equal(highest, now.thread) and np.array_equal(self.lowest[now.units], now.thread):
            return
        threads = self.clocks.threads
        is_here = (highest - 1) // threads == (now.thread - 1) // threads
        np.minimum.at(self.lowest, now.units[is_here], now.thread[is_here])
        np.maximum.at(self.last.thread, now.units[is_here], now.thread[is_here])
        away = ~is_here
        self.elsewhere.put(now.units[away], now.thread[away], now.time[away], now.access.number)

    def unordered(self, now: Now, some: Array) -> Array:
        """Of the entries `some`: is there anyone in the crowd's own block who is not ordered before it?"""
        units, me, time = now.units[some], now.thread[some] - 1, now.time[some]
        highest, lowest, then = self.last.thread[units] - 1, self.lowest[units] - 1, self.last.time[units]
        is_alone = (highest == me) & (lowest == me)
        before = np.where(highest == me, lowest, highest)
        ordered = self.clocks.is_ordered(before, then, me, time)
        # A crowd of several warps is newer than the last barrier: the time of one says nothing of the others.
        is_mixed = self.clocks.warp_of(highest) != self.clocks.warp_of(lowest)
        by_barrier = (before // self.clocks.threads == me // self.clocks.threads) & (then >> 40 < time >> 40)
        return np.asarray(~is_alone & ~np.where(is_mixed, by_barrier, ordered))


class Shadow:
    """What is known of one arena."""

    def __init__(self, units: int, clocks: Clocks) -> None:
        self.write = Entry.clear(units)
        self.reads = Crowd(units, clocks)
        self.atomics = Crowd(units, clocks)


class Races:
    """Finds races in one launch; an observer of every access."""

    def __init__(self, launch: Launch, clocks: Clocks) -> None:
        self.clocks = clocks
        self.accesses = launch.program.accesses
        self.shadows: dict[Any, Shadow] = {}
        sizes: dict[Space, list[int]] = {}
        for access in self.accesses:
            sizes.setdefault(access.space, []).append(access.dtype.itemsize)
        starts = [a.arena_start for a in launch.allocations]
        self.unit_bytes = {space: math.gcd(*given, *starts) for space, given in sizes.items()}
        self.has_atomics = any(a.role == "atomic" for a in self.accesses)

    def observe(self, team: Team, access: Access, place: Place, value: Any) -> None:
        if access.space is Space.LOCAL:
            return
        shadow = self._shadow(place)
        now = self._now(team, access, place)
        for check in _CHECKS[access.role]:
            check(self, shadow, now, value)

    def _shadow(self, place: Place) -> Shadow:
        arena = place.allocation.arena
        found = self.shadows.get(arena)
        if found is None:
            unit_bytes = self.unit_bytes[place.allocation.space]
            end = max(len(arena.data), arena.arena_end)
            found = self.shadows[arena] = Shadow(-(-end // unit_bytes), self.clocks)
        return found

    def forget(self, arenas: Iterable[Allocation]) -> None:
        """Drop shared memory that is gone."""
        for arena in arenas:
            self.shadows.pop(arena, None)

    def _now(self, team: Team, access: Access, place: Place) -> Now:
        index, thread, time = place.indices(team), place.pick(team.thread_number), place.pick(self.clocks.of(team))
        lanes = np.arange(len(index))
        if access.role == "read" and len(team.blocks) == 1 and not isinstance(place.index, np.ndarray):
            lanes = np.unique([0, len(index) - 1])  # of threads that read one element the extremes are enough
            index, thread, time = index[lanes], thread[lanes], time[lanes]
        unit_bytes = self.unit_bytes[access.space]
        start = (place.allocation.arena_start + place.phase) // unit_bytes
        pieces = access.dtype.itemsize // unit_bytes
        if pieces == 1:
            return Now(team, access, place, index + start, thread + 1, time, lanes)
        units = (index[:, None] * pieces + np.arange(start, start + pieces)).reshape(-1)
        repeated = [np.repeat(each, pieces) for each in (thread + 1, time, lanes)]
        return Now(team, access, place, units, *repeated)

    # -- the rules ----------------------------------------------------------------------------------------------------

    def against_write(self, shadow: Shadow, now: Now, value: Any) -> None:
        before = shadow.write.get(now.units)
        some = np.flatnonzero((before.thread != 0) & (before.thread != now.thread))
        if not len(some):
            return
        is_ordered = self.clocks.is_ordered(
            before.thread[some] - 1, before.time[some], now.thread[some] - 1, now.time[some]
        )
        some = some[~is_ordered]
        if len(some) and now.access.role == "write":
            some = some[_changes(now, value, some)]
        self._report(now, some, before.thread[some], before.access[some])

    def against_reads(self, shadow: Shadow, now: Now, value: Any) -> None:
        self._against_crowd(shadow.reads, now)

    def against_atomics(self, shadow: Shadow, now: Now, value: Any) -> None:
        if self.has_atomics:
            self._against_crowd(shadow.atomics, now)

    def _against_crowd(self, crowd: Crowd, now: Now) -> None:
        highest, lowest = crowd.last.thread[now.units], crowd.lowest[now.units]
        some = np.flatnonzero((highest != 0) & ((highest != now.thread) | (lowest != now.thread)))
        if len(some):
            some = some[crowd.unordered(now, some)]
            other = np.where(highest[some] == now.thread[some], lowest[some], highest[some])
            self._report(now, some, other, crowd.last.access[now.units[some]])
        away = crowd.elsewhere.get(now.units)
        some = np.flatnonzero(away.thread != 0)
        if len(some):
            is_ordered = self.clocks.is_ordered(
                away.thread[some] - 1, away.time[some], now.thread[some] - 1, now.time[some]
            )
            some = some[~is_ordered & (away.thread[some] != now.thread[some])]
            self._report(now, some, away.thread[some], away.access[some])

    def note_read(self, shadow: Shadow, now: Now, value: Any) -> None:
        shadow.reads.join(now)

    def note_atomic(self, shadow: Shadow, now: Now, value: Any) -> None:
        shadow.atomics.join(now)
        handovers = self.clocks.handovers
        if handovers:
            warps = self.clocks.warp_of(now.thread - 1)
            for warp, unit in zip(warps.tolist(), now.units.tolist(), strict=True):
                handovers.atomic(warp, (now.place.allocation.arena, unit))

    def note_write(self, shadow: Shadow, now: Now, value: Any) -> None:
        shadow.write.put(now.units, now.thread, now.time, now.access.number)
        winner = shadow.write.thread[now.units]
        some = np.flatnonzero(winner != now.thread)
        if len(some):
            some = some[_differs_from_winner(now, value, some)]
            self._report(now, some, winner[some], np.full(len(some), now.access.number))

    # -- the words ----------------------------------------------------------------------------------------------------

    def _report(self, now: Now, some: Array, other: Array, other_access: Array) -> None:
        if not len(some):
            return
        for number in np.unique(other_access).tolist():
            these = other_access == number
            self._report_pair(now, some[these], int(other[these][0]) - 1, self.accesses[number - 1])

    def _report_pair(self, now: Now, some: Array, other: int, other_access: Access) -> None:
        team, place = now.team, now.place
        lanes = np.arange(team.lanes) if place.lanes is None else np.flatnonzero(place.lanes)
        at_fault = np.zeros(team.lanes, np.bool_)
        at_fault[lanes[now.lanes[some]]] = True
        # The lane that `report` will name must be the one that the words are about.
        first = int(np.argmax(at_fault))
        entry = int(some[np.argmax(lanes[now.lanes[some]] == first)])
        diagnostic = self._words(now, entry, other, other_access)
        notes = (Note(f"the other side, which {VERBS[other_access.role]} it", other_access.loc),)
        team.report(diagnostic, now.access.loc, at_fault, (place.allocation.name, other_access.number), notes)

    def _words(self, now: Now, entry: int, other: int, other_access: Access) -> Diagnostic:
        me, launch, place = int(now.thread[entry]) - 1, now.team.launch, now.place
        index = int(place.indices(now.team)[now.lanes[entry]]) % max(place.view.pitch, 1)
        same_block = me // launch.threads == other // launch.threads
        me_warp, other_warp = (int(w) for w in self.clocks.warp_of(np.array([me, other])))
        kind = WarpRace if me_warp == other_warp else BlockRace if same_block else GridRace
        who = launch.who(other)
        name = f"thread {who.thread}" if same_block else str(who)
        verbs = VERBS[now.access.role], VERBS[other_access.role]
        return kind(verbs[0], place.allocation.name, index, place.allocation.space.value, name, verbs[1])


_CHECKS: dict[str, tuple[Any, ...]] = {
    "read": (Races.against_write, Races.against_atomics, Races.note_read),
    "write": (Races.against_write, Races.against_reads, Races.against_atomics, Races.note_write),
    "atomic": (Races.against_write, Races.against_reads, Races.note_atomic),
}


def _bits(values: Array) -> Array:
    """Values as integers that are equal where the bits are."""
    return values.view(f"u{values.dtype.itemsize}") if values.dtype.itemsize in (1, 2, 4, 8) else values


def _changes(now: Now, value: Any, some: Array) -> Array:
    """Of the entries `some`: does the store put other bits there than lie there?"""
    lanes = now.lanes[some]
    there = now.place.view.elements[now.place.indices(now.team)[lanes]]
    return np.asarray(_bits(_stored(now, value)[lanes]) != _bits(there))


def _differs_from_winner(now: Now, value: Any, some: Array) -> Array:
    """Of the entries `some`, which lose to another lane of the same store: did they want other bits than the winner?"""
    index = now.place.indices(now.team)
    stored = _bits(_stored(now, value))
    _, group = np.unique(index, return_inverse=True)
    winner = np.empty(int(group.max()) + 1, stored.dtype)
    winner[group] = stored
    lanes = now.lanes[some]
    return np.asarray(stored[lanes] != winner[group[lanes]])


def _stored(now: Now, value: Any) -> Array:
    """What each lane of the place stores, in the dtype of memory."""
    count = now.place.count(now.team)
    spread = value if isinstance(value, np.ndarray) else np.full(count, value)
    return spread.astype(now.place.view.elements.dtype)
