"""Bulk copies: begun by a lane, carried out by nobody in particular, late, and in an order that a kernel must not rely on.

    flight = source, target, what it signals        begun, and noted in `launch.flights`
    ... the lane goes on; memory has its old contents ...
    land(launch, flight)                             when every warp waits in vain, or this lane has waited for the group

A flight lands as late as it can, the last one first, or by the seed of a random order: who does not wait reads old data.
`Protocols` finds who touches what a flight still reads or writes, which is wrong whenever it lands; copies of what threads wrote
(through what PTX calls the generic proxy) with no `fence_proxy_async` behind it; and what a block leaves undone when it ends.
Source: PTX ISA, "cp.async.bulk", "Async proxy", "Memory Consistency Model: proxies".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.access import VERBS, touches
from stagekit.backends.interp.findings import (
    BadBulkSize,
    CopyLeftBehind,
    CopyUnderWay,
    MbarrierBytesLeft,
    MbarrierMisused,
    ProductUnderWay,
    ProxyFenceMissing,
)
from stagekit.backends.interp.mbarriers import Mbarrier, count_down, ended, existing, word
from stagekit.backends.interp.memory import Allocation, AnyPointers, Array
from stagekit.backends.interp.order import Clocks, Epochs
from stagekit.backends.interp.program import Built, Compiler
from stagekit.backends.interp.team import Access, LaunchState, Run, Team, Touch, Values, Watcher
from stagekit.backends.interp.warpgroups import end_products
from stagekit.diagnostics import Note, counted
from stagekit.intrinsics.hopper import fence_mbarrier_init
from stagekit.intrinsics.tensor import CHUNK_BYTES
from stagekit.ir import Native, Space, ops
from stagekit.limits import MBARRIER_BYTES


class Signal(NamedTuple):
    """What a copy signals: an mbarrier, which is this word of memory."""

    mbarrier: Mbarrier
    word: Run


Arrange = Callable[[Array, Array], Array]
"""From the elements that a copy has read, and those in its target, to those that it leaves there."""


def _as_read(value: Array, before: Array) -> Array:
    return value


@dataclass(eq=False)
class Flight:
    """A copy under way. group: how many groups its lane had closed before. value: the elements, once they have been read."""

    source: Run
    target: Run
    signal: Signal | None
    group: int
    arrange: Arrange = _as_read
    value: Array | None = None

    @property
    def team(self) -> Team:
        return self.source.team

    @property
    def lane(self) -> int:
        """The lane that began it. Of a tile outside an array there is nothing to read, but a whole tile to write."""
        return int((self.source if self.signal is None else self.target).lane_numbers[0])

    def read(self) -> Array:
        """Read the source, unless that is done."""
        if self.value is None:
            self.value = self.source.now()
        return self.value


def land(launch: LaunchState, flight: Flight) -> None:
    """Carry out a copy, and signal its mbarrier."""
    launch.flights.remove(flight)
    target = flight.target
    target.view.elements[target.index] = flight.arrange(flight.read(), target.now())
    launch.writes += 1
    for watcher in launch.watchers:
        watcher.landed(target)
    if flight.signal is not None:
        for watcher in launch.watchers:
            watcher.handed_on(flight, flight.signal.mbarrier)
        count_down(launch, flight.signal.mbarrier, 0, len(target.index) * target.access.dtype.itemsize)


def lander(launch: LaunchState) -> Callable[[], bool]:
    """Return what lets one copy of those under way land, and says whether there was one."""
    schedule = launch.options.schedule
    generator = np.random.default_rng((schedule.seed, _SEED)) if schedule and schedule.order == "random" else None

    def land_one() -> bool:
        if launch.flights:
            number = int(generator.integers(len(launch.flights))) if generator else -1
            land(launch, launch.flights[number])
            return True
        return False

    return land_one


_SEED = 2  # keeps the order of copies apart from that of warps and of blocks under one seed


# -- beginning and waiting ------------------------------------------------------------------------------------------------


def build_bulk_copy(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the start of copies, of one lane after the other."""
    target, source, size, *_ = c.numbers(op.args)
    reads, writes = c.access(op, "read", op.args[1]), c.access(op, "write", op.args[0])
    signals_of = signalling(c, op)

    def step(values: Values, team: Team) -> None:
        sizes = team.spread(values[size])
        for lane, signal in signals_of(values, team).items():
            count, rest = divmod(int(sizes[lane]), CHUNK_BYTES)
            if rest or not count:
                team.report(BadBulkSize(counted(int(sizes[lane]), "byte")), op.loc, only(team, lane))
                continue
            count *= CHUNK_BYTES // reads.dtype.itemsize
            runs = [run_of(team, values[p], lane, count, each) for p, each in ((source, reads), (target, writes))]
            if runs[0] is not None and runs[1] is not None:
                begin(Flight(runs[0], runs[1], signal, int(team.bulk_closed[lane])))

    return (step,)


def signalling(c: Compiler, op: ops.IntrinsicOp) -> Callable[[Values, Team], dict[int, Signal | None]]:
    """Return what gives, for each lane that begins a copy, what that signals: None where the copy takes no mbarrier.

    A lane whose mbarrier does not exist is reported, and begins no copy.
    """
    if "mbarrier" not in op.spec.args:
        return lambda values, team: dict.fromkeys(np.flatnonzero(team.active_lanes()).tolist())
    pointer, signals_at = signalling_at(c, op)
    return lambda values, team: signals_at(team, values[pointer], team.mask)


def signalling_at(
    c: Compiler, op: ops.IntrinsicOp
) -> tuple[int, Callable[[Team, AnyPointers, Array | None], dict[int, Signal | None]]]:
    """Return the number of the mbarrier that a copy takes, and what gives the signals of lanes that point to some."""
    mbarrier = op.args[op.spec.args.index("mbarrier")]
    arrives = word(c, op, "atomic", mbarrier)

    def signals_at(team: Team, address: AnyPointers, mask: Array | None) -> dict[int, Signal | None]:
        return {
            use.lane: Signal(use.mbarrier, _one(touch, use.position))
            for touch in touches(team, address, mask, arrives)
            for use in existing(team, touch, 0, op.spec.name)
        }

    return c.number(mbarrier), signals_at


def begin(flight: Flight) -> None:
    """Note that a copy is under way, and tell watchers."""
    launch, (source, target) = flight.team.launch, (flight.source, flight.target)
    for watcher in launch.watchers:
        if len(source.index):
            watcher.access(source, None)
        watcher.copying(target, flight.arrange(source.now(), target.now()))
    for watcher in launch.watchers if flight.signal is not None else ():
        watcher.access(flight.signal.word, None)  # type: ignore[union-attr]
        watcher.sent(flight.target, (0,), flight, only_reads=False)
    launch.flights.append(flight)


def _one(touch: Touch, position: int) -> Run:
    """Return the access of one lane out of several."""
    lane, index = touch.lane_numbers[position], touch.indices()[position]
    return Run(touch.team, touch.access, touch.allocation, touch.view, np.array([index]), np.array([lane]), touch.phase)


def only(team: Team, lane: int) -> Array:
    """Return a mask of one lane."""
    return np.asarray(team.lane_numbers == lane)


def run_of(
    team: Team, address: AnyPointers, lane: int, count: int, access: Access, align: int = CHUNK_BYTES
) -> Run | None:
    """Return the elements from where a lane points; None, and a report, where they are not aligned or not all there."""
    mask = only(team, lane)
    aligned = replace(access, align=align, covers=align // access.dtype.itemsize)
    first = next(touches(team, address, mask, aligned), None)
    if first is None:
        return None
    for i in _doubtful(address, mask, count, access):
        if next(touches(team, address + np.int64(i), mask, access), None) is None:
            return None
    start = int(first.indices()[0])
    measured = replace(
        access, covers=int(access.space is Space.GLOBAL)
    )  # of what statistics say of shared memory, nothing holds
    every = np.arange(start, start + count)
    return Run(team, measured, first.allocation, first.view, every, np.full(count, lane), first.phase)


def _doubtful(address: AnyPointers, mask: Array, count: int, access: Access) -> Iterator[int]:
    """Yield the elements that say whether all exist: the last one, and one outside the view that the pointer must stay in."""
    lane, itemsize = int(np.argmax(mask)), access.dtype.itemsize
    for part, lanes in address.parts(mask):
        if lanes[lane] and part.reach is not None:
            start = part.offset_bytes(access.dtype)
            places = (start[lane] if isinstance(start, np.ndarray) else start) + np.arange(count) * itemsize
            yield int(np.argmax(part.reach.in_lane(lane).misses(places, itemsize)))
    yield count - 1


def build_bulk_commit(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the end of a group of copies."""

    def step(values: Values, team: Team) -> None:
        team.bulk_closed[team.active_lanes()] += 1

    return (step,)


def build_bulk_wait(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the wait until at most so many groups of copies, the latest ones, are under way, or have not read their source."""
    pending, is_read = op.params

    def step(values: Values, team: Team) -> None:
        active = team.active_lanes()
        for flight in [f for f in team.launch.flights if f.team is team and f.signal is None and active[f.lane]]:
            if flight.group < team.bulk_closed[flight.lane] - pending:
                flight.read() if is_read else land(team.launch, flight)

    return (step,)


def build_proxy_fence(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the fence behind which copies see what was written the usual way, or mbarriers that were initialised."""
    is_of_mbarriers = op.spec is fence_mbarrier_init

    def step(values: Values, team: Team) -> None:
        memory = [each for each in team.memory if not is_of_mbarriers or each in team.launch.mbarriers]
        for watcher in team.launch.watchers:
            watcher.proxy_fence(team, memory)

    return (step,)


# -- what is wrong --------------------------------------------------------------------------------------------------------


class Protocols(Watcher):
    """Finds who touches what a copy works on, copies of what was written without a proxy fence, and what is left undone.

    clocks: None where nobody looks for races; then proxy fences are not looked for either. unfenced: by shared allocation, one
    row each of the writer (its tag), its time and its access, for every byte that was written and not yet fenced; else 0.
    """

    def __init__(self, launch: LaunchState, clocks: Clocks | None, accesses: Sequence[Access]) -> None:
        self.launch = launch
        self.clocks = clocks
        self.accesses = accesses
        self.unfenced: dict[Allocation, Array] = {}

    # -- what is under way ------------------------------------------------------------------------------------------------

    def access(self, touch: Touch, value: Any) -> None:
        for flight in self.launch.flights:
            self._compare(touch, flight.target, "writes")
            if touch.access.role != "read" and flight.value is None:
                self._compare(touch, flight.source, "reads")
        if touch.access.role != "read":
            self._look_for_products(touch)
        is_copied = isinstance(touch, Run) and touch.access.role == "read"
        if touch.access.covers or is_copied:  # no operation of mbarriers
            self._look_for_mbarriers(touch)
        if touch.access.role != "read":
            self._note_write(touch)
        if isinstance(touch, Run):
            self._ask_for_fence(touch)

    def copying(self, touch: Touch, value: Any) -> None:
        for flight in self.launch.flights:
            self._compare(touch, flight.target, "writes")
            if flight.value is None:
                self._compare(touch, flight.source, "reads")
        self._look_for_products(touch)
        self._look_for_mbarriers(touch)
        if not isinstance(touch, Run):  # of `cp_async`, which writes as threads do
            return
        self._ask_for_fence(touch)
        if (unfenced := self.unfenced.get(touch.allocation)) is not None:
            unfenced[:, slice(*touch.span)] = 0

    def _look_for_mbarriers(self, touch: Touch) -> None:
        """Report accesses of memory that is an mbarrier, of which the bits mean nothing."""
        known = list(self.launch.mbarriers.get(touch.allocation, ()))
        if not known:
            return
        first = touch.indices() * touch.access.dtype.itemsize + touch.phase
        hit = np.flatnonzero(np.isin(first - first % MBARRIER_BYTES, known))
        if len(hit):
            verb, name = VERBS[touch.access.role], touch.allocation.name
            what = f"{verb} element {touch.element(int(hit[0]))} of `{name}`, which is an mbarrier"
            diagnostic = MbarrierMisused(what, "only operations of mbarriers may touch it, until `mbarrier_inval`")
            touch.team.report(diagnostic, touch.access.loc, touch.at_fault(hit), name)

    def _compare(self, touch: Touch, run: Run, verb: str, work: str = "copy") -> None:
        both_atomic = touch.access.role == run.access.role == "atomic"
        if run.allocation.arena is not touch.allocation.arena or both_atomic or not len(run.index):
            return
        itemsize, origin = touch.access.dtype.itemsize, touch.allocation.arena_start + touch.phase
        hit = np.flatnonzero(run.overlaps(touch.indices() * itemsize + origin, itemsize))
        if len(hit):
            allocation, first = touch.allocation, int(hit[0])
            given = VERBS[touch.access.role], touch.element(first), allocation.name
            is_copy = work == "copy"
            diagnostic = CopyUnderWay(*given, allocation.space.value, verb) if is_copy else ProductUnderWay(*given)
            notes = (Note(f"the {work} begins here", run.access.loc),)
            key = (allocation.name, run.access.number)
            touch.team.report(
                diagnostic, touch.access.loc, touch.at_fault(hit), key, notes, int(touch.lane_numbers[first])
            )

    def _look_for_products(self, touch: Touch) -> None:
        """Report writes to what a product has not read yet."""
        for product in self.launch.products:
            for factor in product.reads:
                self._compare(touch, factor, "reads", "product")

    # -- proxies ------------------------------------------------------------------------------------------------------------

    def _note_write(self, touch: Touch) -> None:
        allocation, size = touch.allocation, touch.access.dtype.itemsize
        is_arrival = touch.access.role == "atomic" and allocation in self.launch.mbarriers
        if self.clocks is None or allocation.space is not Space.SHARED or is_arrival:
            return
        if allocation not in self.unfenced:
            self.unfenced[allocation] = np.zeros((3, len(allocation.data)), np.int64)
        epochs = self.clocks.epochs(touch)
        places = touch.indices()[:, None] * size + touch.phase + np.arange(size)
        times = np.broadcast_to(epochs.time, epochs.thread.shape)
        for row, each in zip(
            self.unfenced[allocation], (epochs.thread, times, np.full(len(places), touch.access.number))
        ):
            row[places] = each[:, None]

    def proxy_fence(self, team: Team, memory: Iterable[Allocation]) -> None:
        """Forget the writes that are ordered before the fence of one of the active lanes."""
        for unfenced in [self.unfenced[each] for each in memory if each in self.unfenced]:
            for lane in np.flatnonzero(team.active_lanes()).tolist():
                some = np.flatnonzero(unfenced[0])
                if len(some):
                    done = self._is_ordered(team, lane, unfenced[0, some], unfenced[1, some])
                    unfenced[:, some[done]] = 0

    def _is_ordered(self, team: Team, lane: int, threads: Array, times: Array) -> Array:
        assert self.clocks is not None
        clock = [each[lane] if isinstance(each, np.ndarray) else each for each in self.clocks.of(team)]
        return self.clocks.is_ordered(threads, times, Epochs(np.full(len(threads), team.tag[lane]), *clock), False)

    def _ask_for_fence(self, run: Run) -> None:
        unfenced = self.unfenced.get(run.allocation)
        if unfenced is None:
            return
        places = run.places()
        missing = np.flatnonzero(unfenced[0, places])
        if len(missing):
            first = int(missing[0])
            _, _, number = unfenced[:, places[first]].tolist()
            element = run.element(first // run.access.dtype.itemsize)
            diagnostic = ProxyFenceMissing(VERBS[run.access.role], element, run.allocation.name)
            notes = (Note("it is written here", self.accesses[number - 1].loc),)
            key = (run.allocation.name, number)
            run.team.report(diagnostic, run.access.loc, run.at_fault([0]), key, notes)

    # -- the end ------------------------------------------------------------------------------------------------------------

    def end(self, team: Team, is_last: bool) -> None:
        end_products(self.launch, team, is_last=is_last)
        for flight in [f for f in self.launch.flights if is_last and np.isin(f.team.blocks, team.blocks).any()]:
            if flight.value is not None:
                land(self.launch, flight)
                continue
            self.launch.flights.remove(flight)
            run = flight.source if flight.signal is None else flight.target
            flight.team.report(CopyLeftBehind(run.allocation.name), run.access.loc, run.at_fault([0]))

    def forget(self, memory: Iterable[Allocation]) -> None:
        for each in memory:
            self.unfenced.pop(each, None)
            for mbarrier in self.launch.mbarriers.pop(each, {}).values():
                if mbarrier.tx:
                    self.launch.sink.report(MbarrierBytesLeft(mbarrier.name, mbarrier.lacks()), mbarrier.loc, 1)
                for key in (mbarrier, ended(mbarrier)) if self.clocks else ():
                    self.clocks.kept.pop(key, None)  # type: ignore[union-attr]
