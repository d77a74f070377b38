"""The exact reference of races: every access is kept, every thread has a plain vector clock, and all pairs are looked at.

It watches a launch as `Races` does, and says which units of memory two threads touched in no order. It costs the square of the
accesses, so it is for small launches only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.team import LaunchState, Role, Scope, Team, Touch, Watcher
from stagekit.ir import Space
from stagekit.limits import WARP

Clock = dict[int, int]
"""By thread (its tag), how many of its accesses are over."""


def merged(*clocks: Clock) -> Clock:
    """Return a new clock with the later of each number."""
    found: Clock = {}
    for clock in {id(each): each for each in clocks}.values():
        for thread, count in clock.items() if found else ():
            if found.get(thread, 0) < count:
                found[thread] = count
        found = found or dict(clock)
    return found


@dataclass
class Thread:
    """What is over for a thread; what its atomics were told of; and what they tell of, each to all and within its block.

    reads: until when nothing but reads is known to be over.
    """

    clock: Clock = field(default_factory=dict)
    reads: Clock = field(default_factory=dict)
    found_device: Clock = field(default_factory=dict)
    found_block: Clock = field(default_factory=dict)
    fenced_device: Clock = field(default_factory=dict)
    fenced_block: Clock = field(default_factory=dict)

    def merge(self, *parts: str) -> None:
        """Add what was found to the clock."""
        for part in parts:
            self.clock = merged(self.clock, getattr(self, part))
            setattr(self, part, {})


class Access(NamedTuple):
    """One access of one unit by one thread. moment: how many accesses the thread has made. stored: the bits, of a write.

    order, scope: of an atomic, or a load or store with an order. Others have "" and stand for themselves. is_arrival: at an
    mbarrier, whose phase says that it has come.
    """

    thread: int
    block: int
    moment: int
    role: Role
    size: int
    stored: bytes
    is_seen: bool
    order: str
    scope: Scope
    in_global: bool
    is_arrival: bool

    @property
    def changes(self) -> bool:
        """Whether it is an atomic that may store."""
        return bool(self.order) and self.role != "read"


Place = tuple[Any, int]  # an arena, and a unit or a byte of it


class ExactRaces(Watcher):
    """racy: the units of memory at which two threads meet in no order."""

    def __init__(self, launch: LaunchState, unit_bytes: dict[Space, int]) -> None:
        self.launch, self.unit_bytes = launch, unit_bytes
        self.threads: defaultdict[int, Thread] = defaultdict(Thread)
        self.accesses: defaultdict[Place, list[Access]] = defaultdict(list)
        self.messages: dict[tuple[Any, int, int], dict[Any, Clock]] = {}
        self.kept: defaultdict[Any, Thread] = defaultdict(Thread)
        self.racy: set[Place] = set()

    # -- accesses -----------------------------------------------------------------------------------------------------

    def access(self, touch: Touch, value: Any) -> None:
        role, size, unit = touch.access.role, touch.access.dtype.itemsize, self.unit_bytes[touch.access.space]
        if touch.access.space is Space.LOCAL:
            return
        stored = np.broadcast_to(0 if value is None else value, len(touch.indices()))
        stored = stored.astype(touch.view.elements.dtype)
        for lane, (thread, start) in enumerate(self._lanes(touch)):
            clock = self.threads[thread].clock = merged(self.threads[thread].clock)
            clock[thread] = clock.get(thread, 0) + 1
            bits = stored[lane].tobytes()
            for first in range(0, size, unit):
                part = bits[first : first + unit]
                access = touch.access
                how = access.is_seen, access.order, access.scope, access.space is Space.GLOBAL, access.is_arrival
                now = Access(thread, thread >> self.launch.tag_shift, clock[thread], role, size, part, *how)
                place = touch.allocation.arena, (start + first) // unit
                if place not in self.racy and self._races(place, now):
                    self.racy.add(place)
                self.accesses[place].append(now)
            if role == "write":
                self._overwrite(touch.allocation.arena, start, start + size)

    def _lanes(self, touch: Touch) -> Iterator[tuple[int, int]]:
        """Yield the thread of each lane and the first byte that it touches."""
        starts = touch.indices() * touch.access.dtype.itemsize + touch.allocation.arena_start + touch.phase
        yield from zip(touch.pick(touch.team.tag).tolist(), starts.tolist(), strict=True)

    def _races(self, place: Place, now: Access) -> bool:
        earlier = self.accesses[place]
        seen = (
            i for i, each in enumerate(earlier) if each.role == "atomic" and each.is_seen and self._is_over(each, now)
        )
        behind = -1 if now.order else max(seen, default=-1)
        return any(
            _conflict(each, now) and not self._is_over(each, now) and not (each.changes and i <= behind)
            for i, each in enumerate(earlier)
        )

    def _is_over(self, earlier: Access, now: Access) -> bool:
        thread = self.threads[now.thread]
        clocks = (thread.clock, thread.reads) if earlier.role == "read" or earlier.is_arrival else (thread.clock,)
        return any(each.get(earlier.thread, 0) >= earlier.moment for each in clocks)

    def _overwrite(self, arena: Any, start: int, end: int) -> None:
        for other, low, high in list(self.messages):
            if other is arena and low < end and start < high:
                del self.messages[other, low, high]

    def updated(self, touch: Touch, is_written: Any) -> None:
        size, order, scope = touch.access.dtype.itemsize, touch.access.order, touch.access.scope
        flags = np.broadcast_to(is_written, len(touch.indices())).tolist()
        for (number, start), writes in zip(self._lanes(touch), flags, strict=True):
            thread, block = self.threads[number], number >> self.launch.tag_shift
            key = touch.allocation.arena, start, start + size
            message = self.messages.setdefault(key, {})
            if touch.access.is_seen:
                of_device = {} if scope == "block" else message.get("device", {})
                if order in ("acquire", "acq_rel", "seq_cst"):
                    thread.clock = merged(thread.clock, of_device, message.get(block, {}))
                else:
                    thread.found_device = merged(thread.found_device, of_device)
                    thread.found_block = merged(thread.found_block, message.get(block, {}))
            if writes:
                if touch.access.role == "write":
                    message.clear()
                own = thread.clock if order in ("release", "acq_rel", "seq_cst") else {}
                if scope != "block":
                    message["device"] = merged(message.get("device", {}), thread.fenced_device, own)
                message[block] = merged(message.get(block, {}), thread.fenced_block, own)

    # -- edges --------------------------------------------------------------------------------------------------------

    def fence(self, team: Team, scope: Scope) -> None:
        for number in team.tag[team.active_lanes()].tolist():
            thread = self.threads[number]
            thread.merge("found_block", *(() if scope == "block" else ("found_device",)))
            thread.fenced_block = thread.clock
            if scope != "block":
                thread.fenced_device = thread.clock

    def sent(self, touch: Touch, positions: Sequence[int], key: Any, *, only_reads: bool) -> None:
        kept = self.kept[key]
        for thread in self._of(touch, positions):
            kept.reads = merged(kept.reads, thread.reads, thread.clock if only_reads else {})
            kept.clock = merged(kept.clock, {} if only_reads else thread.clock)

    def handed_on(self, key: Any, other: Any) -> None:
        kept = self.kept.pop(key, Thread())
        self.kept[other].clock = merged(self.kept[other].clock, kept.clock)
        self.kept[other].reads = merged(self.kept[other].reads, kept.reads)

    def received(self, touch: Touch, positions: Sequence[int], key: Any) -> None:
        for thread in self._of(touch, positions):
            thread.clock = merged(thread.clock, self.kept[key].clock)
            thread.reads = merged(thread.reads, self.kept[key].reads)

    def _of(self, touch: Touch, positions: Sequence[int]) -> list[Thread]:
        tags = touch.pick(touch.team.tag)
        return [self.threads[int(tags[each])] for each in positions]

    def barrier(self, teams: Sequence[Team], here: Array) -> None:
        for block in teams[0].blocks[here].tolist():
            first = block + 1 << self.launch.tag_shift
            threads = [self.threads[first + i] for i in range(self.launch.threads)]
            self._meet([threads])
            for thread in threads:
                thread.merge("found_device", "found_block")

    def syncwarp(self, team: Team, mask: Any) -> None:
        masks, active = team.spread(mask).tolist(), team.active_lanes().tolist()
        alive = [True] * team.lanes if team.ended is None else (~team.ended).tolist()
        by_warp: defaultdict[int, list[int]] = defaultdict(list)
        for lane, tag in enumerate(team.tag.tolist()):
            by_warp[tag // WARP].append(lane)
        for lanes in by_warp.values():
            groups = {masks[lane] for lane in lanes if active[lane]}
            arrived = [lane for lane in lanes if active[lane] or not alive[lane]]
            tags = [[int(team.tag[x]) for x in arrived if group >> int(team.tag[x]) % WARP & 1] for group in groups]
            self._meet([[self.threads[tag] for tag in each] for each in tags])

    def _meet(self, groups: list[list[Thread]]) -> None:
        """Let the threads of each group know what each of them knew before."""
        names = [each.name for each in fields(Thread)]
        known = [(group, {n: merged(*(getattr(t, n) for t in group)) for n in names}) for group in groups]
        for group, clocks in known:
            for thread in group:
                for name, clock in clocks.items():
                    setattr(thread, name, merged(getattr(thread, name), clock))


def _conflict(x: Access, y: Access) -> bool:
    if x.thread == y.thread or x.role == y.role == "read":
        return False
    if x.order and y.order:
        return x.size != y.size or ("block" in (x.scope, y.scope) and x.block != y.block and x.in_global)
    is_plain = not (x.order or y.order)
    return not (is_plain and x.role == y.role == "write" and x.stored == y.stored)
