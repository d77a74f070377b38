"""Happens-before: which accesses are ordered before what a lane does next.

    program order    a lane's own accesses
    barrier          all that the threads of the block did before `syncthreads`
    syncwarp         all that the lanes did which met there; a shuffle or a vote orders nothing
    message          a lane passes a fence, then updates an element by an atomic; the result of another lane's atomic shows that
                     update, or a later one of the chain of atomics that goes on from it, and that lane passes a fence: what came
                     before the first fence is ordered before what comes after the second. An access that releases is its own
                     fence in front, one that acquires its own fence behind. Sender and receiver must reach each other: they are
                     of one block, or none of the fences and accesses has the scope "block"

The order is transitive. Fences are sequentially consistent, as `membar` is, so either of the two may stand behind a barrier or a
`syncwarp` from its atomic, in another thread. A barrier also completes what atomics of its block have found, as CUDA's own
reductions rely on. An atomic alone orders nothing but the element itself (`races.py`).

Time runs by team: each event in it takes the next number. An access is an epoch, a lane and the time. What is ordered before a
lane is a set of bounds, each "every access of these threads before that time": two floors, one number each for its block (the
last barrier) and its warp (the last whole `syncwarp`), and a sparse map of all else, which lanes share until they differ.
Sources: Flanagan and Freund, "FastTrack", PLDI 2009; PTX ISA, "Memory Consistency Model".

    phase            what is ordered before an arrival at an mbarrier, or before the start of a copy that signals it, and the copy
                     itself: before what a lane does that waited for that phase. Of a relaxed arrival only reads are, which need
                     no fence: they had their values before the thread went on

An asynchronous copy counts as an access of the lane that begins it. Whoever meets that lane, but has not waited for the copy,
finds it under way (`asynchronous.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import Program
from stagekit.backends.interp.team import WARP_SHIFT, Access, LaunchState, Scope, Team, Touch, Watcher, bit_sets
from stagekit.ir import Native
from stagekit.limits import WARP

# -- what is known of other threads -----------------------------------------------------------------------------------


Path = tuple[int, ...]
"""The keys that lead to a thread: many blocks, fewer, the block, the warp, the lane; or the first few of these."""


class Known(NamedTuple):
    """A tree over threads: all accesses before `time` by threads below this node are known to be over. Immutable, and shared."""

    time: int
    below: Mapping[int, Known]

    def bound(self, path: Path) -> int:
        """Return the time before which the accesses of the thread at `path` are known to be over."""
        node, time = self, self.time
        for key in path:
            found = node.below.get(key)
            if found is None:
                break
            node, time = found, max(time, found.time)
        return time


NOTHING = Known(0, {})


_LANES_BELOW = 4  # the depth of a node whose children are the lanes of one warp


def join(a: Known, b: Known, depth: int = 0) -> Known:
    """Return what is known from `a` or `b`: one of the two where the other adds nothing. depth: that of both nodes."""
    if b is NOTHING or a is b:
        return a
    if a is NOTHING:
        return b
    if len(a.below) < len(b.below):
        a, b = b, a
    time, changed = max(a.time, b.time), {}
    for key, node in b.below.items():
        there = a.below.get(key, NOTHING)
        both = join(there, node, depth + 1)
        if both is not there and (both.time > time or both.below):
            changed[key] = both
    if not changed:
        return a if time == a.time else Known(time, a.below)
    below = {**a.below, **changed}
    if depth == _LANES_BELOW and len(below) == WARP:  # one number says what a whole warp has in common
        time = max(time, min(node.time for node in below.values()))
        below = {key: node for key, node in below.items() if node.time > time}
    return Known(time, below)


class Scoped(NamedTuple):
    """What is known from messages: of those that reach the whole device, and of those that stay within the block."""

    device: Known = NOTHING
    block: Known = NOTHING

    def within(self, scope: Scope) -> Scoped:
        """Return what of it an access of this scope tells or finds."""
        return Scoped(NOTHING, self.block) if scope == "block" else self

    def joined(self, other: Scoped) -> Scoped:
        """Return both together; `self` where `other` adds nothing."""
        device, block = join(self.device, other.device), join(self.block, other.block)
        return self if device is self.device and block is self.block else Scoped(device, block)


class Learnt(NamedTuple):
    """What a lane, or each lane of a warp or of a block, has learnt of others.

    known: the accesses that are ordered before its next one. found: those that its atomics were told of, known once it passes a
    fence. fenced: those that its atomics tell of. own: by scope, the time up to which they also tell of the lane itself.
    """

    known: Known = NOTHING
    found: Scoped = Scoped()
    fenced: Scoped = Scoped()
    own: tuple[int, int] = (0, 0)

    def fence(self, scope: Scope, floors: Known, now: int) -> Learnt:
        """Return what it has learnt after a fence at the time `now`. floors: what its floors stand for."""
        known = join(self.known, self.found.block)
        if scope == "block":
            fenced = Scoped(self.fenced.device, join(known, floors))
            return Learnt(known, Scoped(self.found.device), fenced, (self.own[0], now))
        known = join(known, self.found.device)
        everything = join(known, floors)
        return Learnt(known, Scoped(), Scoped(everything, everything), (now, now))

    def told(self, path: Path) -> Scoped:
        """Return what an atomic tells of. path: of the lane, or of the warp where all its lanes are alike."""
        device, block = (entry(path, time) if time else NOTHING for time in self.own)
        return self.fenced.joined(Scoped(device, block))


_READS = -1  # a key that no thread has: what is below it says of reads alone


def of_reads(known: Known) -> Known:
    """Return what is known of reads, where of writes nothing is: their values are there, so that nothing comes before them."""
    every = Known(known.time, {key: node for key, node in known.below.items() if key != _READS})
    return Known(0, {_READS: join(every, known.below.get(_READS, NOTHING), 1)})


def entry(path: Path, time: int, below: Mapping[int, Known] = NOTHING.below) -> Known:
    """Return the knowledge that all accesses before `time` by the threads at `path` are over. below: more about some of them."""
    node = Known(time, below)
    for key in reversed(path):
        node = Known(0, {key: node})
    return node


def _together(several: Sequence[tuple[Learnt, Path]]) -> Learnt:
    """Return what lanes or warps, each with its path, have learnt together."""
    known = reduce(join, (each.known for each, _ in several))
    found = reduce(Scoped.joined, (each.found for each, _ in several))
    return Learnt(known, found, reduce(Scoped.joined, (each.told(path) for each, path in several)))


class _BlockKnowledge:
    """What the lanes of one block have learnt: `base` at the last barrier; since then by warp, or as a table of its 32 lanes."""

    def __init__(self, path: Callable[[int], Path]) -> None:
        self.path = path
        self.base = Learnt()
        self.warps: dict[int, Learnt | list[Learnt]] = {}

    def of(self, tag: int) -> Learnt:
        found = self.warps.get(tag >> WARP_SHIFT, self.base)
        return found[tag % WARP] if isinstance(found, list) else found

    def table(self, warp: int) -> list[Learnt]:
        """Return the table of a warp, made where its lanes were alike."""
        found = self.warps.get(warp, self.base)
        if not isinstance(found, list):
            found = self.warps[warp] = [found] * WARP
        return found

    def lanes(self, warp: int) -> list[tuple[Learnt, Path]]:
        """Return what the lanes of a warp have learnt, with their paths; with that of the warp, where they are alike."""
        found, path = self.warps[warp], self.path(warp << WARP_SHIFT)
        if not isinstance(found, list):
            return [(found, path[:-1])]
        return [(each, (*path[:-1], path[-1] + lane)) for lane, each in enumerate(found)]

    def meet(self) -> None:
        """Let all lanes know what each has learnt or found."""
        if self.warps:
            joined = _together([(self.base, ()), *(lane for warp in self.warps for lane in self.lanes(warp))])
            known = join(join(joined.known, joined.found.device), joined.found.block)
            self.base = Learnt(known, Scoped(), joined.fenced)
            self.warps.clear()

    def meet_in_part(self, warp: int, groups: set[int], now: int) -> None:
        """Let the lanes of each group (a bit set) know what each has learnt, and of what each has done before `now`."""
        table = self.table(warp)
        before = self.lanes(warp)
        for group in groups:
            lanes = [lane for lane in range(WARP) if group >> lane & 1]
            joined = _together([before[lane] for lane in lanes])
            done = reduce(join, (entry(before[lane][1], now) for lane in lanes), joined.known)
            for lane in lanes:
                table[lane] = _together([(table[lane], before[lane][1]), (joined._replace(known=done), ())])


# -- clocks -----------------------------------------------------------------------------------------------------------


class Clock(NamedTuple):
    """The clock of a team, each a number or one per lane: the time, and the floors of the lane's warp and block.

    An access of the same warp before the time `warp`, or of the same block before `block`, is ordered before the lane.
    """

    time: Any = 0
    warp: Any = 0
    block: Any = 0


class Epochs(NamedTuple):
    """Accesses that go on now, each by a lane (its tag) at a time; `time`, `warp` and `block` as in `Clock`."""

    thread: Array
    time: Any
    warp: Any
    block: Any

    def at(self, some: Array) -> Epochs:
        return Epochs(*(each[some] if isinstance(each, np.ndarray) else each for each in self))


class _ChainKnowledge:
    """What an element's chain of atomics tells of: to all, and by block, within it."""

    def __init__(self) -> None:
        self.device = NOTHING
        self.blocks: dict[int, Known] = {}

    def to(self, block: int) -> Scoped:
        return Scoped(self.device, self.blocks.get(block, NOTHING))

    def add(self, block: int, told: Scoped) -> None:
        self.device = join(self.device, told.device)
        self.blocks[block] = join(self.blocks.get(block, NOTHING), told.block)


_MESSAGES = (
    *(Native.FENCE, Native.MBARRIER, Native.BULK_COPY, Native.TILE_COPY),
    *(Native.CLUSTER_BARRIER, Native.NAMED_BARRIER),
)
"""What tells some threads of others."""


class Clocks(Watcher):
    """The clocks of all teams that run, what their lanes have learnt (by block tag), and messages by arena and place.

    knows_lanes: whether a lane may be in order with one thread and not with its neighbour; barriers order whole blocks.
    """

    def __init__(self, launch: LaunchState, program: Program) -> None:
        self.shift = launch.tag_shift
        self.has_messages = any(map(program.has, _MESSAGES)) or any(a.acquires or a.releases for a in program.accesses)
        self.knows_lanes = self.has_messages or program.has(Native.WARP_BARRIER)
        self.teams: dict[Team, Clock] = {}
        self.blocks: dict[int, _BlockKnowledge] = {}
        self.messages: dict[Any, dict[tuple[int, int], _ChainKnowledge]] = {}
        self.kept: dict[Any, Known] = {}  # what arrivals at mbarriers, and copies under way, tell of

    def of(self, team: Team) -> Clock:
        return self.teams.get(team, Clock())

    def epochs(self, touch: Touch) -> Epochs:
        """Return the accesses of the lanes that touch."""
        epochs = Epochs(touch.team.tag, *self.of(touch.team))
        return epochs if touch.lanes is None else epochs.at(touch.lanes)

    def _tick(self, *teams: Team) -> int:
        """Return a time later than all of these teams."""
        return 1 + max(int(np.max(self.of(team).time)) for team in teams)

    def _path(self, tag: int) -> Path:
        shift = self.shift
        return tag >> shift + 12, tag >> shift + 6, tag >> shift, tag >> WARP_SHIFT, tag

    # -- what threads do ----------------------------------------------------------------------------------------------

    def barrier(self, teams: Sequence[Team], here: Array) -> None:
        now = self._tick(*teams)
        for team in teams:
            old = self.of(team)
            lanes = None if here.all() else here[team.row]
            self.teams[team] = Clock(*(now if lanes is None else np.where(lanes, now, each) for each in old))
        for number in teams[0].blocks[here].tolist() if self.blocks else ():
            block = self.blocks.get(number + 1)
            if block is not None:
                block.meet()

    def syncwarp(self, team: Team, mask: Any) -> None:
        now, old, warps = self._tick(team), self.of(team), _Warps(team)
        arrived = warps.here | (warps.all & ~warps.alive)  # a lane that has returned counts where it is named
        named = np.where(warps.active, team.to_warps(mask), warps.all[:, None]) & arrived[:, None]
        is_whole = (warps.here != 0) & (named == warps.all[:, None]).all(axis=1)
        floor = now if is_whole.all() else np.where(team.from_warps(is_whole[:, None]), now, old.warp)
        self.teams[team] = Clock(now, floor, old.block)
        for row in np.flatnonzero(warps.here).tolist():
            warp, block = int(warps.tags[row]), self.blocks.get(int(warps.tags[row]) << WARP_SHIFT >> self.shift)
            if not is_whole[row]:
                groups = set(named[row][warps.active[row]].tolist()) - {0}
                self._block_of(warp << WARP_SHIFT).meet_in_part(warp, groups, now)
            elif block is not None and warp in block.warps:
                block.warps[warp] = _together(block.lanes(warp))

    def fence(self, team: Team, scope: Scope) -> None:
        now, clock, warps = self._tick(team), self.of(team), _Warps(team)
        block_floors, warp_floors = (_by_warp(team, each) for each in (clock.block, clock.warp))
        for row in np.flatnonzero(warps.here).tolist():
            warp, here = int(warps.tags[row]), int(warps.here[row])
            path, of_warp = self._path(warp << WARP_SHIFT), Known(int(warp_floors[row]), {})
            floors = entry(path[:3], int(block_floors[row]), {path[3]: of_warp})
            block = self._block_of(warp << WARP_SHIFT)
            learnt = block.warps.get(warp, block.base)
            if here == int(warps.all[row]) and not isinstance(learnt, list):
                block.warps[warp] = learnt.fence(scope, floors, now)
                continue
            table = block.table(warp)
            table[:] = [each.fence(scope, floors, now) if here >> i & 1 else each for i, each in enumerate(table)]
        self.teams[team] = clock._replace(time=now)

    def _block_of(self, tag: int) -> _BlockKnowledge:
        return self.blocks.setdefault(tag >> self.shift, _BlockKnowledge(self._path))

    def updated(self, touch: Touch, is_written: Any) -> None:
        access, messages = touch.access, self.messages.get(touch.allocation.arena)
        if not self.has_messages or not (messages or self.blocks or access.releases):
            return
        messages = self.messages.setdefault(touch.allocation.arena, {})
        size, clock, lanes = access.dtype.itemsize, self.of(touch.team), self.epochs(touch)
        starts = touch.indices() * size + (touch.allocation.arena_start + touch.phase)
        rows = zip(lanes.thread.tolist(), starts.tolist(), np.broadcast_to(is_written, starts.shape).tolist())
        for i, (tag, start, writes) in enumerate(rows):
            place = start, start + size
            if access.is_seen and place in messages:
                self._find(access, messages[place], tag)
            if writes:
                told = self._told(access, tag, lanes, i)
                if access.role == "write":
                    messages.pop(place, None)  # of another lane of this store
                if told.block is not NOTHING:
                    messages.setdefault(place, _ChainKnowledge()).add(tag >> self.shift, told)
        if access.releases:
            self.teams[touch.team] = clock._replace(time=clock.time + 1)

    def _find(self, access: Access, message: _ChainKnowledge, tag: int) -> None:
        """Let a lane find a message by an access: at once if it acquires, else for its next fence."""
        block, here = self._block_of(tag), message.to(tag >> self.shift)
        learnt, here = block.of(tag), here.within(access.scope)
        if access.acquires:
            changed = learnt._replace(known=join(join(learnt.known, here.device), here.block))
        else:
            changed = learnt._replace(found=learnt.found.joined(here))
        if changed.known is not learnt.known or changed.found is not learnt.found:
            block.table(tag >> WARP_SHIFT)[tag % WARP] = changed

    def _told(self, access: Access, tag: int, lanes: Epochs, i: int) -> Scoped:
        """Return what an access of a lane tells of: what its fences allow, and if it releases, all that is ordered before it."""
        block, path = self.blocks.get(tag >> self.shift), self._path(tag)
        learnt = Learnt() if block is None else block.of(tag)
        told = learnt.told(path)
        if access.releases:
            now = lanes.at(np.array([i]))
            time, warp, of_block = (int(np.ravel(each)[0]) for each in (now.time, now.warp, now.block))
            floors = entry(path[:3], of_block, {path[3]: Known(warp, {})})
            everything = join(join(learnt.known, floors), entry(path, time + 1))
            told = told.joined(Scoped(everything, everything))
        return told.within(access.scope)

    def sent(self, touch: Touch, positions: Sequence[int], key: Any, *, only_reads: bool) -> None:
        lanes, told = self.epochs(touch).at(np.array(positions)), NOTHING
        warps: dict[int, list[int]] = {}
        for i, tag in enumerate(lanes.thread.tolist()):
            warps.setdefault(tag >> WARP_SHIFT, []).append(i)
        for members in warps.values():
            told = join(told, self._done_by(lanes.at(np.array(members))))
        for known in {id(known): known for known in map(self._known_to, lanes.thread.tolist())}.values():
            told = join(told, known)
        self.kept[key] = join(self.kept.get(key, NOTHING), of_reads(told) if only_reads else told)
        clock = self.of(touch.team)
        self.teams[touch.team] = clock._replace(time=clock.time + 1)

    def _known_to(self, tag: int) -> Known:
        block = self.blocks.get(tag >> self.shift)
        return NOTHING if block is None else block.of(tag).known

    def _done_by(self, lanes: Epochs) -> Known:
        """Return the knowledge that all is over which these lanes of one warp have done, or which their floors tell of."""
        path = self._path(int(lanes.thread[0]))
        floor, of_block = (int(np.max(each)) for each in (lanes.warp, lanes.block))
        times = np.broadcast_to(np.asarray(lanes.time) + 1, lanes.thread.shape).tolist()
        if len(times) == WARP:
            floor = max(floor, min(times))
        below = {tag: Known(time, {}) for tag, time in zip(lanes.thread.tolist(), times) if time > floor}
        return entry(path[:3], of_block, {path[3]: Known(floor, below)})

    def handed_on(self, key: Any, other: Any) -> None:
        self.kept[other] = join(self.kept.get(other, NOTHING), self.kept.pop(key, NOTHING))

    def received(self, touch: Touch, positions: Sequence[int], key: Any) -> None:
        known, joined = self.kept.get(key, NOTHING), dict[int, Known]()
        for tag in self.epochs(touch).thread[np.array(positions)].tolist():
            block = self._block_of(tag)
            learnt = block.of(tag)
            before = learnt.known  # as a rule the same object in many lanes
            if id(before) not in joined:
                joined[id(before)] = join(before, known)
            if joined[id(before)] is not before:
                block.table(tag >> WARP_SHIFT)[tag % WARP] = learnt._replace(known=joined[id(before)])

    def access(self, touch: Touch, value: Any) -> None:
        """Drop the messages that a plain store overwrites: it is no part of a chain."""
        messages = self.messages.get(touch.allocation.arena)
        if not messages or touch.access.role != "write":
            return
        size = touch.access.dtype.itemsize
        starts = np.sort(touch.indices() * size + (touch.allocation.arena_start + touch.phase))
        low, high = np.array(list(messages)).T
        last = np.searchsorted(starts, high) - 1  # the last element that starts in front of the message's end
        is_hit = (last >= 0) & (starts[last] + size > low)
        for place in np.flatnonzero(is_hit).tolist():
            del messages[int(low[place]), int(high[place])]

    def end(self, team: Team, is_last: bool) -> None:
        self.teams.pop(team, None)
        for number in team.blocks.tolist() if is_last else ():
            self.blocks.pop(number + 1, None)

    def forget(self, memory: Any) -> None:
        for arena in memory:
            self.messages.pop(arena, None)

    # -- the order that follows ---------------------------------------------------------------------------------------

    def is_past(self, before: Array, then: Array, now: Epochs) -> Array:
        """Return where the floors order accesses of the threads `before` at the times `then` before those of now."""
        of_block = (before >> self.shift == now.thread >> self.shift) & (then < now.block)
        of_warp = (before >> WARP_SHIFT == now.thread >> WARP_SHIFT) & (then < now.warp)
        return np.asarray(of_block | of_warp)

    def is_ordered(self, before: Array, then: Array, now: Epochs, are_reads: bool) -> Array:
        """Return where accesses of the threads `before` (tags) at the times `then` are ordered before those of now.

        are_reads: nothing is written by those before.
        """
        found: Array = (before == now.thread) | self.is_past(before, then, now)
        if not self.blocks:
            return found
        some = np.flatnonzero(~found)
        tags, whose = np.unique(now.thread[some], return_inverse=True)
        for k, tag in enumerate(tags.tolist()):
            block = self.blocks.get(tag >> self.shift)
            known = NOTHING if block is None else block.of(tag).known
            if known is not NOTHING:
                theirs = some[whose == k]
                found[theirs] = self._bounds(known, before[theirs]) > then[theirs]
                reads = known.below.get(_READS) if are_reads else None
                if reads is not None:
                    found[theirs] |= self._bounds(reads, before[theirs]) > then[theirs]
        return found

    def _bounds(self, known: Known, threads: Array) -> Array:
        """Return the time before which accesses of each of these threads are known to be over."""
        each, places = np.unique(threads, return_inverse=True)
        return np.array([known.bound(self._path(tag)) for tag in each.tolist()])[places]


def _by_warp(team: Team, value: Any) -> Array:
    """Return the value of the first lane of each warp of `team`. value: a number, or one per lane."""
    return np.asarray(team.to_warps(value)[:, 0] if isinstance(value, np.ndarray) else np.full(team.warp_rows, value))


class _Warps:
    """The warps of a team, by tag; per warp the bit sets of the lanes that are active (`here`), have not returned, and exist."""

    def __init__(self, team: Team) -> None:
        self.tags: Array = team.to_warps(team.warp_tag)[:, 0]
        self.active = team.active_rows()
        self.here, self.all = bit_sets(self.active), bit_sets(team.existing_rows)
        self.alive = self.all if team.ended is None else bit_sets(team.to_warps(~team.ended))
