"""Data races: each access of an element is compared with the last accesses of it by other threads.

Shadow memory per arena, one entry per unit of the smallest element accessed in that space:

    the last write        thread, time, access
    the last readers      a crowd: the lowest and the highest thread of those in no order with each other, the latest time and
                          access among them, and one reader of another block
    the last atomics      the same

Two accesses of different threads race if one of them writes, not both are atomic, and neither is ordered before the other
(`order.py`). Two writes of the same value are no race. Threads are tags (`LaunchState.tag_shift`).
Source of keeping one reader where readers are ordered: Flanagan and Freund, "FastTrack", PLDI 2009.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.access import VERBS
from stagekit.backends.interp.findings import BlockRace, GridRace, WarpRace
from stagekit.backends.interp.memory import Allocation, Array, Pointers
from stagekit.backends.interp.order import BARRIER_SHIFT, Clocks
from stagekit.backends.interp.program import Program
from stagekit.backends.interp.team import WARP_SHIFT, Access, LaunchState, Role, Touch, Watcher
from stagekit.diagnostics import Note
from stagekit.ir import Space


class LastAccesses(NamedTuple):
    """For each unit of memory, the last thread (its tag) that accessed it, when, and by which access. 0: no thread yet."""

    thread: Array
    time: Array
    access: Array

    @classmethod
    def clear(cls, units: int) -> LastAccesses:
        return cls(np.zeros(units, np.int64), np.zeros(units, np.int64), np.zeros(units, np.int32))

    def put(self, units: Array, thread: Array, time: Array, access: Any) -> None:
        self.thread[units], self.time[units], self.access[units] = thread, time, access


class Now(NamedTuple):
    """A touch as entries, one per lane and unit: the unit, the thread, its time, and the lane's position in the touch."""

    touch: Touch
    units: Array
    thread: Array
    time: Array
    lanes: Array

    def only(self, some: Array) -> tuple[Array, Array, Array]:
        """Return unit, thread and time of the entries `some`."""
        return self.units[some], self.thread[some], self.time[some]


class Crowd:
    """Per unit, threads that touched it in no order with each other: the lowest and highest of one block, and one of another.

    highest: also holds the latest time and access of the crowd. elsewhere: the thread of another block. All threads between two
    of one warp are of that warp, so the extremes tell whether a crowd is of one warp.
    """

    def __init__(self, units: int, clocks: Clocks, is_shared: bool) -> None:
        self.clocks = clocks
        self.is_shared = is_shared
        self.highest = LastAccesses.clear(units)
        self.lowest = np.zeros(units, np.int64)
        self.elsewhere = LastAccesses.clear(0 if is_shared else units)

    def join(self, now: Now) -> None:
        """Add threads. Those ordered before a newcomer are forgotten: what conflicts with them conflicts with it."""
        units = now.units
        is_new = self._is_over(units, now.thread, now.time)
        if not self.is_shared:
            is_new |= self._set_aside(now, is_new)
        new = units if np.count_nonzero(is_new) == len(units) else units[is_new]
        self.lowest[new] = self.highest.thread[new] = now.thread[is_new]
        self._stretch(now)
        self.highest.time[units], self.highest.access[units] = now.time, now.touch.access.number

    def _is_over(self, units: Array, thread: Array, time: Array) -> Array:
        """Return where every thread of the crowd in the thread's own block is ordered before it; True for an empty crowd."""
        highest, then = self.highest.thread[units], self.highest.time[units]
        shift = self.clocks.shift
        is_over = then >> BARRIER_SHIFT < time >> BARRIER_SHIFT
        if not self.is_shared:
            is_over &= (highest >> shift == thread >> shift) | (highest == 0)
        some = np.flatnonzero(~is_over)
        if len(some) and self.clocks.has_more_than_barriers:  # `syncwarp` or a hand-over may order them
            high, low, times, threads = highest[some], self.lowest[units[some]], then[some], (thread[some], time[some])
            is_one_warp = high >> WARP_SHIFT == low >> WARP_SHIFT  # a crowd of several warps has no common time
            is_over[some] = is_one_warp & self.clocks.is_ordered(high, times, *threads)
            if self.clocks.partial:
                is_over[some] &= self.clocks.is_ordered(low, times, *threads)
        return np.asarray(is_over)

    def _set_aside(self, now: Now, is_new: Array) -> Array:
        """Move crowds of other blocks to `elsewhere`; return the entries that thereby begin a new crowd."""
        highest, shift = self.highest.thread[now.units], self.clocks.shift
        aside = ~is_new & (highest >> shift != now.thread >> shift)
        if np.count_nonzero(aside):
            units = now.units[aside]
            self.elsewhere.put(units, highest[aside], self.highest.time[units], self.highest.access[units])
        return np.asarray(aside)

    def _stretch(self, now: Now) -> None:
        """Let the extremes cover every newcomer; where several blocks come at once, one stays and one is set aside."""
        units, thread = now.units, now.thread
        highest = self.highest.thread[units]
        if np.array_equal(highest, thread) and np.array_equal(self.lowest[units], thread):
            return
        if not self.is_shared:
            is_here = highest >> self.clocks.shift == thread >> self.clocks.shift
            if np.count_nonzero(away := ~is_here):
                self.elsewhere.put(units[away], thread[away], now.time[away], now.touch.access.number)
                units, thread = units[is_here], thread[is_here]
        np.minimum.at(self.lowest, units, thread)
        np.maximum.at(self.highest.thread, units, thread)

    def conflicts(self, now: Now) -> tuple[Array, Array]:
        """Return the entries of `now` that another thread of the crowd is in no order with, and these threads."""
        highest, lowest = self.highest.thread[now.units], self.lowest[now.units]
        some = np.flatnonzero((highest != now.thread) | (lowest != now.thread))
        some = some[~self._is_over(*now.only(some))]
        other = np.where(highest[some] == now.thread[some], lowest[some], highest[some])
        return some, other

    def conflicts_elsewhere(self, now: Now) -> tuple[Array, Array]:
        """Return the same for the thread that was set aside."""
        if self.is_shared:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        other = self.elsewhere.thread[now.units]
        some = np.flatnonzero((other != 0) & (other != now.thread))
        if len(some):
            units, thread, time = now.only(some)
            some = some[~self.clocks.is_ordered(other[some], self.elsewhere.time[units], thread, time)]
        return some, other[some]


class Shadow(NamedTuple):
    """The last accesses of one arena: the write, and by role ("read", "atomic") the crowds, made when a thread first joins."""

    write: LastAccesses
    crowds: defaultdict[Role, Crowd]


_RIVALS: dict[Role, tuple[Role, ...]] = {"read": ("atomic",), "write": ("read", "atomic"), "atomic": ("read",)}
"""The crowds that an access conflicts with; all conflict with writes."""


class Races(Watcher):
    """Finds races in one launch. clocks: another watcher of the launch, which has to be registered with it."""

    def __init__(self, launch: LaunchState, program: Program) -> None:
        self.clocks = Clocks(launch, program)
        self.accesses = program.accesses
        self.shadows: dict[Any, Shadow] = {}
        self.constant_arenas = _constant_arenas(launch, program)
        sizes: dict[Space, list[int]] = {}
        for access in self.accesses:
            sizes.setdefault(access.space, []).append(access.dtype.itemsize)
        starts = [a.arena_start for a in launch.allocations]
        self.unit_bytes = {space: math.gcd(*given, *starts) for space, given in sizes.items()}

    def access(self, touch: Touch, value: Any) -> None:
        arena, role = touch.allocation.arena, touch.access.role
        if arena.space is Space.LOCAL or arena in self.constant_arenas:
            return
        now, shadow = self._now(touch), self.shadows.get(arena)
        if shadow is None:
            units = -(-max(len(arena.data), arena.arena_end) // self.unit_bytes[arena.space])
            make_crowd = functools.partial(Crowd, units, self.clocks, arena.space is Space.SHARED)
            shadow = self.shadows[arena] = Shadow(LastAccesses.clear(units), defaultdict(make_crowd))
        self._compare_with_write(shadow.write, now, value)
        for rival in _RIVALS[role]:
            if (crowd := shadow.crowds.get(rival)) is not None:
                self._report(now, *crowd.conflicts(now), crowd.highest)
                self._report(now, *crowd.conflicts_elsewhere(now), crowd.elsewhere)
        if role == "write":
            self._note_write(shadow.write, now, value)
        else:
            shadow.crowds[role].join(now)
        if role == "atomic":
            self.clocks.atomic(now.thread, arena, now.units)

    def forget(self, memory: Iterable[Allocation]) -> None:
        for arena in memory:
            self.shadows.pop(arena, None)

    def _now(self, touch: Touch) -> Now:
        team, access = touch.team, touch.access
        index, thread, time = touch.indices(), touch.pick(team.tag), touch.pick(self.clocks.of(team))
        lanes = np.arange(len(index))
        if access.role == "read" and len(team.blocks) == 1 and not isinstance(touch.index, np.ndarray):
            lanes = lanes[:: max(len(index) - 1, 1)]  # of threads that read one element the extremes are enough
            index, thread, time = index[lanes], thread[lanes], time[lanes]
        unit_bytes = self.unit_bytes[access.space]
        start = (touch.allocation.arena_start + touch.phase) // unit_bytes
        pieces = access.dtype.itemsize // unit_bytes
        if pieces == 1:
            return Now(touch, index + start if start else index, thread, time, lanes)
        units = (index[:, None] * pieces + np.arange(start, start + pieces)).reshape(-1)
        return Now(touch, units, *(np.repeat(each, pieces) for each in (thread, time, lanes)))

    def _compare_with_write(self, last: LastAccesses, now: Now, value: Any) -> None:
        """Report the entries that are in no order with the last write of another thread, and store another value."""
        writer = last.thread[now.units]
        some = np.flatnonzero((writer != now.thread) & (writer != 0))
        if not len(some):
            return
        units, thread, time = now.only(some)
        some = some[~self.clocks.is_ordered(writer[some], last.time[units], thread, time)]
        if len(some) and now.touch.access.role == "write":
            some = some[_changes(now, value, some)]
        self._report(now, some, writer[some], last)

    def _note_write(self, last: LastAccesses, now: Now, value: Any) -> None:
        """Record a write, and report lanes of it that store different values to one element."""
        last.put(now.units, now.thread, now.time, now.touch.access.number)
        winner = last.thread[now.units]
        some = np.flatnonzero(winner != now.thread)
        if len(some):
            some = some[_differs_from_winner(now, value, some)]
            self._report(now, some, winner[some], last)

    def _report(self, now: Now, some: Array, other: Array, known: LastAccesses) -> None:
        """Report the entries `some` as races with the threads `other`, whose accesses `known` holds."""
        if not len(some):
            return
        other_access = known.access[now.units[some]]
        for number in np.unique(other_access).tolist():
            these = np.flatnonzero(other_access == number)
            self._report_pairs(now, some[these], other[these], self.accesses[number - 1])

    def _report_pairs(self, now: Now, some: Array, other: Array, other_access: Access) -> None:
        """Report the pair that is farthest apart: what orders two blocks also orders warps, but not the other way round."""
        touch, launch = now.touch, now.touch.team.launch
        apart = now.thread[some] ^ other  # tags differ in high bits only where blocks or warps do
        first = int(np.argmax((apart >> WARP_SHIFT != 0) + (apart >> launch.tag_shift != 0).astype(np.int8)))
        same_block, same_warp = apart[first] >> launch.tag_shift == 0, apart[first] >> WARP_SHIFT == 0
        kind = WarpRace if same_warp else BlockRace if same_block else GridRace
        lane = int(now.lanes[some[first]])
        who, allocation = launch.who(int(other[first])), touch.allocation
        diagnostic = kind(
            VERBS[touch.access.role],
            touch.element(lane),
            allocation.name,
            allocation.space.value,
            f"thread {who.thread}" if same_block else str(who),
            VERBS[other_access.role],
        )
        notes = (Note(f"the other side, which {VERBS[other_access.role]} it", other_access.loc),)
        key, at_fault = (allocation.name, other_access.number), touch.at_fault(now.lanes[some])
        touch.team.report(diagnostic, touch.access.loc, at_fault, key, notes, int(touch.lane_numbers[lane]))


def _constant_arenas(launch: LaunchState, program: Program) -> frozenset[Allocation]:
    """Return the memory that the kernel only reads, where nothing can race."""
    pairs = zip(program.fn.params, launch.params)
    written = {p.allocation.arena for value, p in pairs if value in program.written and isinstance(p, Pointers)}
    return frozenset(a.arena for a in launch.allocations) - written


def _bits(values: Array) -> Array:
    """Return values as integers that are equal where the bits are."""
    return values.view(f"u{values.dtype.itemsize}") if values.dtype.itemsize in (1, 2, 4, 8) else values


def _changes(now: Now, value: Any, some: Array) -> Array:
    """Return for which of the entries `some` the store changes the bits in memory."""
    lanes = now.lanes[some]
    there = now.touch.view.elements[now.touch.indices()[lanes]]
    return np.asarray(_stored(now, value)[lanes] != _bits(there))


def _differs_from_winner(now: Now, value: Any, some: Array) -> Array:
    """Return which of the entries `some`, all overwritten by another lane of the store, store other bits than that lane."""
    stored = _stored(now, value)
    _, group = np.unique(now.touch.indices(), return_inverse=True)
    winner = np.empty(int(group.max()) + 1, stored.dtype)
    winner[group] = stored
    lanes = now.lanes[some]
    return np.asarray(stored[lanes] != winner[group[lanes]])


def _stored(now: Now, value: Any) -> Array:
    """Return the bits that each lane of the touch stores."""
    spread = np.broadcast_to(value, now.touch.indices().shape)
    return _bits(spread.astype(now.touch.view.elements.dtype))
