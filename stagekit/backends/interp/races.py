"""Data races: each access of an element is compared with the accesses of it that came before, by other threads.

Two accesses of different threads race if neither is ordered before the other (`order.py`), unless both read, both are atomics of
the same bytes whose scopes hold the other thread, or both store the same bits. A load or store with an order is an atomic. Shadow
memory per arena, one entry per unit of the smallest element accessed in that space:

    reads      a crowd: the threads that read it, none of which is ordered before a later one
    writes     a crowd: those that stored the value that is there; `replaced`: those that stored the value before
    atomics    a crowd: the last one whose result the kernel uses, and what came after it. What is ordered behind such an atomic
               is ordered behind all that it follows at that element, as its result depends on them
    loads      a crowd: the threads that loaded it with an order, which no atomic races with
    arrivals   a crowd: the threads that came to the mbarrier that it is, which is in order with who waits for it, as reads are

A thread that is ordered before a newcomer may be forgotten: what races with it races with the newcomer. Of stores that holds only
for another value than the newcomer's, so two crowds are kept. Threads are tags (`LaunchState.tag_shift`).
Source of keeping one epoch where accesses are ordered: Flanagan and Freund, "FastTrack", PLDI 2009.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from stagekit.backends.interp.access import VERBS
from stagekit.backends.interp.findings import BlockRace, GridRace, WarpRace
from stagekit.backends.interp.memory import Allocation, Array, Pointers
from stagekit.backends.interp.order import Clocks, Epochs
from stagekit.backends.interp.program import Program
from stagekit.backends.interp.team import WARP_SHIFT, Access, LaunchState, Team, Touch, Watcher
from stagekit.diagnostics import Note
from stagekit.ir import Native, Space

_SETTLE_AT = 1 << 16  # members that a crowd's list may hold in the order of their coming


class Now(NamedTuple):
    """A touch as entries, one per lane and unit: the unit, the epoch, and the lane's position in the touch."""

    touch: Touch
    units: Array
    epochs: Epochs
    lanes: Array

    def at(self, some: Array) -> Now:
        return Now(self.touch, self.units[some], self.epochs.at(some), self.lanes[some])


class Rivals(NamedTuple):
    """Accesses that race: positions among the entries of a `Now`, and for each the thread and access of the other side."""

    entries: Array
    threads: Array
    accesses: Array

    def only(self, some: Array) -> Rivals:
        return Rivals(self.entries[some], self.threads[some], self.accesses[some])


class Members(NamedTuple):
    """Members of crowds, an entry each: unit, thread, time, access, and the round in which it joined."""

    unit: Array
    thread: Array
    time: Array
    access: Array
    round: Array

    def at(self, some: Array) -> Members:
        return Members(*(each[some] for each in self))


def _joined(several: Iterable[Members]) -> Members:
    return Members(*map(np.concatenate, zip(*several, strict=True)))


class Roll:
    """The members of crowds of more than one thread, in an order in which those of a unit are found quickly.

    since: per unit, the round in which its present crowd began. runs: sorted, each at least twice as long as the next.
    fresh: in the order in which they came.
    """

    def __init__(self, units: int) -> None:
        self.since = np.zeros(units, np.int32)
        self.round = 0
        self.runs: list[Members] = []
        self.clear()

    def clear(self) -> None:
        self.runs.clear()
        self.fresh: list[Members] = []
        self.fresh_count = 0

    def restart(self, units: Array) -> None:
        """Forget the crowds of these units."""
        self.round += 1
        self.since[units] = self.round

    def add(self, unit: Array, thread: Array, time: Any, access: Any) -> None:
        if len(unit):
            rest = (np.broadcast_to(each, unit.shape) for each in (thread, time, access, np.int32(self.round)))
            self.fresh.append(Members(unit, *rest))
            self.fresh_count += len(unit)
            if self.fresh_count > max(_SETTLE_AT, sum(len(run.unit) for run in self.runs)):
                self._settle()

    def _settle(self) -> None:
        """Sort what is fresh into the runs."""
        if self.fresh:
            self.runs.append(self._sorted(self.fresh))
            self.fresh, self.fresh_count = [], 0
        while len(self.runs) > 1 and len(self.runs[-2].unit) < 2 * len(self.runs[-1].unit):
            self.runs[-2:] = [self._sorted(self.runs[-2:])]

    def _sorted(self, several: Iterable[Members]) -> Members:
        """Return one run, with the latest entry of each thread at each unit."""
        every = _joined(several)
        every = every.at(every.round >= self.since[every.unit])
        every = every.at(np.lexsort((every.thread, every.unit)))
        is_latest = (np.diff(every.unit, append=-1) != 0) | (np.diff(every.thread, append=-1) != 0)
        return every.at(is_latest)

    def of(self, units: Array) -> tuple[Array, Members]:
        """Return every member of the crowds of `units`, and for each the position of its unit there."""
        self._settle()
        found = [(np.zeros(0, np.int64), Members(*[np.zeros(0, np.int64)] * 5))]
        for run in self.runs:
            start, stop = np.searchsorted(run.unit, units), np.searchsorted(run.unit, units, side="right")
            counts = stop - start
            places = np.repeat(np.arange(len(units)), counts)
            members = run.at(np.arange(len(places)) + np.repeat(start - (np.cumsum(counts) - counts), counts))
            lives = members.round >= self.since[members.unit]
            found.append((places[lives], members.at(lives)))
        return np.concatenate([places for places, _ in found]), _joined(members for _, members in found)


class Crowd:
    """For each memory unit, a set of threads: their lowest and highest tag (0: no thread), and their latest time and access.

    All threads between two of one warp, or block, are of that warp or block: as a rule that and the time say that all are ordered
    before a newcomer. Where not, and lanes may be ordered one by one, all members are looked at: `roll` has those of crowds of
    more than one.
    """

    def __init__(self, units: int, clocks: Clocks, is_shared: bool, are_reads: bool) -> None:
        self.clocks = clocks
        self.is_shared = is_shared
        self.are_reads = are_reads
        self.high, self.time = np.zeros((2, units), np.int64)
        self.low = self.high  # one array, as long as no crowd is of more than one
        self.access = np.zeros(units, np.int32)
        self.roll: Roll | None = None

    # -- judging ------------------------------------------------------------------------------------------------------

    def is_over(self, now: Now) -> Array:
        """Return where the crowd is empty, or known at a glance to hold only threads that are ordered before the newcomer."""
        units, epochs, shift = now.units, now.epochs, self.clocks.shift
        then = self.time[units]
        is_over = then < epochs.block
        if not self.is_shared:
            is_over &= self.low[units] >> shift == epochs.thread >> shift
            is_over &= self.high[units] >> shift == epochs.thread >> shift
        is_over |= self.high[units] == 0
        some = np.flatnonzero(~is_over)
        if len(some):
            low, high, then, epochs = self.low[units[some]], self.high[units[some]], then[some], epochs.at(some)
            found = self.clocks.is_past(low, then, epochs) & self.clocks.is_past(high, then, epochs)
            single = np.flatnonzero(~found & (low == high))
            if len(single):
                found[single] = self.clocks.is_ordered(high[single], then[single], epochs.at(single), self.are_reads)
            is_over[some] = found
        return np.asarray(is_over)

    def rivals(self, now: Now, is_over: Array | None = None) -> Rivals:
        """Return the members that are not ordered before the newcomers. is_over: of `now`, where it is known."""
        some = np.flatnonzero(~(self.is_over(now) if is_over is None else is_over))
        units = now.units[some]
        single = self.low[units] == self.high[units]
        found = Rivals(some[single], self.high[units[single]], self.access[units[single]])
        many = some[~single]
        if not len(many):
            return found
        others = self._members(now, many) if self.clocks.knows_lanes else self._extremes(now, many)
        return Rivals(*map(np.concatenate, zip(found, others, strict=True)))

    def _members(self, now: Now, many: Array) -> Rivals:
        """Return the members that are in no order with the entries `many`."""
        places, members = self.members().of(now.units[many])
        entries = many[places]
        races = ~self.clocks.is_ordered(members.thread, members.time, now.epochs.at(entries), self.are_reads)
        return Rivals(entries[races], members.thread[races], members.access[races])

    def _extremes(self, now: Now, many: Array) -> Rivals:
        """Return the member that is farthest away: where only barriers order, a crowd that is not over has no order with it."""
        units, thread = now.units[many], now.epochs.thread[many]
        low, high = self.low[units], self.high[units]
        return Rivals(many, np.where(low ^ thread > high ^ thread, low, high), self.access[units])

    # -- changing -----------------------------------------------------------------------------------------------------

    def begin(self, now: Now) -> None:
        """Let the newcomers be the crowds, of several at one unit the last."""
        units = now.units
        if self.roll is not None:
            self.roll.restart(units)
        self.low[units] = self.high[units] = now.epochs.thread
        self.time[units], self.access[units] = now.epochs.time, now.touch.access.number

    def join(self, now: Now, is_new: Array) -> Array:
        """Add the newcomers; those of `is_new` begin a crowd. Return the entries that have company in their crowd."""
        new = now
        if not is_new.all():
            stays = now.units[~is_new]
            some = np.flatnonzero(is_new)
            # of several newcomers at one unit, one may know less than the others
            new = now.at(some[~np.isin(now.units[some], stays)])
            if self.clocks.knows_lanes:
                single = np.unique(stays[self.low[stays] == self.high[stays]])
                self.members().add(single, self.high[single], self.time[single], self.access[single])
        self.begin(new)
        is_alone = new is now and np.array_equal(self.high[now.units], now.epochs.thread)
        return np.zeros(0, np.int64) if is_alone else self._mingle(now)

    def _mingle(self, now: Now) -> Array:
        """Add newcomers to crowds that hold others, or newcomers of the same touch."""
        units, epochs, number = now.units, now.epochs, now.touch.access.number
        self.low = self.high.copy() if self.low is self.high else self.low
        np.minimum.at(self.low, units, epochs.thread)
        np.maximum.at(self.high, units, epochs.thread)
        np.maximum.at(self.time, units, epochs.time)
        self.access[units] = number
        company = np.flatnonzero(self.low[units] != self.high[units])
        if self.clocks.knows_lanes:
            some = epochs.at(company)
            self.members().add(units[company], some.thread, some.time, number)
        return company

    def take(self, other: Crowd, units: Array) -> None:
        """Replace the crowds of `units` by those of another."""
        if self.roll is not None:
            self.roll.restart(units)
        self.low = self.high.copy() if self.low is self.high else self.low
        for mine, theirs in ((self.low, other.low), (self.high, other.high), (self.time, other.time)):
            mine[units] = theirs[units]
        self.access[units] = other.access[units]
        if other.roll is not None:
            _, members = other.roll.of(np.unique(units[self.low[units] != self.high[units]]))
            self.members().add(members.unit, members.thread, members.time, members.access)

    def members(self) -> Roll:
        if self.roll is None:
            self.roll = Roll(len(self.low))
        return self.roll


class AtomicKind(NamedTuple):
    """What atomics must have in common, or they race: the width in bytes, and a scope that holds both.

    in_block: the scope is the block. loads: they only load; these do not race with each other.
    """

    width: int
    in_block: bool
    loads: bool


Part = Literal["read", "write", "replaced", "atomic", "load", "arrival"] | AtomicKind


class Shadow(dict[Part, Crowd]):
    """The crowds of one arena, each made when a thread first joins. A kind: where there are atomics that might race."""

    def __init__(self, make_crowd: Callable[[bool], Crowd]) -> None:
        super().__init__()
        self.make_crowd = make_crowd

    def __missing__(self, part: Part) -> Crowd:
        crowd = self[part] = self.make_crowd(part in ("read", "load", "arrival"))
        return crowd


_UNSHARED = (Space.LOCAL, Space.CONSTANT)
_RIVALS: dict[Part, tuple[Part, ...]] = {
    "read": ("write", "atomic", "arrival"),
    "write": ("read", "atomic", "load", "arrival"),
    "atomic": ("write", "read"),
    "load": ("write",),
    "arrival": ("write", "read"),
}


def _part(access: Access) -> Part:
    if access.is_arrival:
        return "arrival"
    if access.order and access.role != "atomic":
        return "load" if access.role == "read" else "atomic"
    return access.role


def _kind(access: Access) -> AtomicKind:
    return AtomicKind(
        access.dtype.itemsize, access.scope == "block" and access.space is Space.GLOBAL, access.role == "read"
    )


class Races(Watcher):
    """Finds races in one launch. clocks: another watcher of the launch, which has to be registered behind it."""

    def __init__(self, launch: LaunchState, program: Program) -> None:
        self.clocks = Clocks(launch, program)
        self.accesses = program.accesses
        self.has_peers = program.has(Native.PEER)  # does more than one block reach shared memory?
        self.shadows: dict[Any, Shadow] = {}
        self.constant_arenas = _constant_arenas(launch, program)
        sizes: dict[Space, set[int]] = defaultdict(set)
        self.kinds: dict[Space, set[AtomicKind]] = defaultdict(set)
        for access in self.accesses:
            sizes[access.space].add(access.dtype.itemsize)
            if access.order:
                self.kinds[access.space].add(_kind(access))
        starts = [a.arena_start for a in launch.allocations]
        self.unit_bytes = {space: math.gcd(*given, *starts) for space, given in sizes.items()}
        self.mixed = {
            s for s, some in self.kinds.items() if any(k.in_block for k in some) or len({k.width for k in some}) > 1
        }

    def copying(self, touch: Touch, value: Any) -> None:
        self.access(touch, value)

    def access(self, touch: Touch, value: Any) -> None:
        arena, part = touch.allocation.arena, _part(touch.access)
        if arena.space in _UNSHARED or arena in self.constant_arenas:
            return
        now, shadow = self._now(touch), self.shadows.get(arena)
        if shadow is None:
            units = -(-max(len(arena.data), arena.arena_end) // self.unit_bytes[arena.space])
            is_shared = arena.space is Space.SHARED and not self.has_peers
            shadow = self.shadows[arena] = Shadow(functools.partial(Crowd, units, self.clocks, is_shared))
        for rival in _RIVALS[part]:
            if (crowd := shadow.get(rival)) is not None:
                self._report(now, crowd.rivals(now))
        if part == "write":
            self._write(shadow, now, value)
        elif part == "atomic" and touch.access.is_seen:
            shadow[part].begin(now)
        else:
            shadow[part].join(now, shadow[part].is_over(now))
        if touch.access.order and touch.access.space in self.mixed:
            self._compare_kinds(shadow, now)

    def barrier(self, teams: Sequence[Team], here: Array) -> None:
        """Forget the rolls of shared memory, all of whose crowds are over."""
        for memory in teams[0].memory if here.all() and not self.has_peers else ():
            for crowd in self.shadows[memory].values() if memory in self.shadows else ():
                if crowd.roll is not None:
                    crowd.roll.clear()

    def forget(self, memory: Iterable[Allocation]) -> None:
        for arena in memory:
            self.shadows.pop(arena, None)

    def _now(self, touch: Touch) -> Now:
        access, index, epochs = touch.access, touch.indices(), self.clocks.epochs(touch)
        lanes = np.arange(len(index))
        unit_bytes = self.unit_bytes[access.space]
        start = (touch.allocation.arena_start + touch.phase) // unit_bytes
        pieces = access.dtype.itemsize // unit_bytes
        if pieces == 1:
            return Now(touch, index + start if start else index, epochs, lanes)
        units = (index[:, None] * pieces + np.arange(start, start + pieces)).reshape(-1)
        lanes = np.repeat(lanes, pieces)
        return Now(touch, units, epochs.at(lanes), lanes)

    def _compare_kinds(self, shadow: Shadow, now: Now) -> None:
        """Report atomics of another width than earlier ones, and those whose scope leaves the other thread out."""
        mine, shift = _kind(now.touch.access), self.clocks.shift
        shadow[mine].join(now, shadow[mine].is_over(now))  # first, since threads of one touch may be of several blocks
        for theirs in self.kinds[now.touch.access.space]:
            may_race = theirs.width != mine.width or theirs.in_block or mine.in_block
            if not may_race or (theirs.loads and mine.loads):
                continue
            rivals = shadow[theirs].rivals(now)
            if theirs.width == mine.width:
                is_elsewhere = rivals.threads >> shift != now.epochs.thread[rivals.entries] >> shift
                rivals = rivals.only(np.flatnonzero(is_elsewhere))
            self._report(now, rivals)

    def _write(self, shadow: Shadow, now: Now, value: Any) -> None:
        writes, units = shadow["write"], now.units
        is_over, changes = writes.is_over(now), np.zeros(len(units), np.bool_)
        lives = writes.high[units] != 0
        if writes.is_shared:
            lives &= writes.time[units] >= now.epochs.block
        some = np.flatnonzero(lives)
        if len(some):
            changes[some] = self._stored(now, value)[some] != self._there(now, some)
            self._report(now, writes.rivals(now, is_over | ~changes))
            if (replaced := shadow.get("replaced")) is not None:
                self._report(now, replaced.rivals(now, changes | replaced.is_over(now)))
            if np.count_nonzero(changes):
                shadow["replaced"].take(writes, units[changes])
        company = writes.join(now, is_over | changes)
        if len(company) and isinstance(value, np.ndarray):
            self._report(now, _disagreeing(now, self._stored(now, value), company))

    def _stored(self, now: Now, value: Any) -> Array:
        """Return the bits that each entry stores."""
        values = np.ascontiguousarray(value, now.touch.view.elements.dtype)
        return np.resize(values.view(f"u{self.unit_bytes[now.touch.access.space]}"), len(now.units))

    def _there(self, now: Now, some: Array) -> Array:
        """Return the bits that are in memory for the entries `some`."""
        allocation, unit_bytes = now.touch.allocation, self.unit_bytes[now.touch.access.space]
        data = allocation.data[: len(allocation.data) // unit_bytes * unit_bytes]
        return np.asarray(data.view(f"u{unit_bytes}")[now.units[some] - allocation.arena_start // unit_bytes])

    def _report(self, now: Now, rivals: Rivals) -> None:
        """Report races, of each entry the one with the thread that is farthest away, by the access of the other side."""
        if not len(rivals.entries):
            return
        order = np.lexsort((now.epochs.thread[rivals.entries] ^ rivals.threads, rivals.entries))
        rivals = rivals.only(order[np.diff(rivals.entries[order], append=-1) != 0])
        for number in np.unique(rivals.accesses).tolist():
            these = rivals.only(np.flatnonzero(rivals.accesses == number))
            self._report_pairs(now, these.entries, these.threads, self.accesses[number - 1])

    def _report_pairs(self, now: Now, some: Array, other: Array, other_access: Access) -> None:
        """Report the pair that is farthest apart: what orders two blocks also orders warps, but not the other way round."""
        touch, launch = now.touch, now.touch.team.launch
        apart = now.epochs.thread[some] ^ other  # tags differ in high bits only where blocks or warps do
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
    pointers = [p for value, p in pairs if value in program.written and isinstance(p, Pointers)]
    written = {each.arena for p in pointers for each in p.reached}
    return frozenset(a.arena for a in launch.allocations) - written


def _disagreeing(now: Now, stored: Array, some: Array) -> Rivals:
    """Return those of the entries `some` that store other bits than the last lane of the touch at the same unit."""
    _, group = np.unique(now.units[some], return_inverse=True)
    last = np.empty(int(group.max()) + 1, np.int64)
    last[group] = some
    other = last[group]
    found = np.flatnonzero(stored[some] != stored[other])
    accesses = np.full(len(found), now.touch.access.number)
    return Rivals(some[found], now.epochs.thread[other[found]], accesses)
