"""Clusters: their blocks start together and their warps take turns; a barrier of them all; and each other's shared memory.

    cluster.memory[rank]          the shared memory of each block, by rank
    phase 0                       ends when every thread that has not ended has arrived; whoever waits learns what they did
    pending[allocation]           accesses by other blocks, which nothing has ordered before an end of this one

A block's shared memory is gone with its last thread. So each access by a peer must be ordered before the end of one of its
threads; `PeerMemory` looks whether it is, whichever ends first in this run.
Source: PTX ISA, "barrier.cluster", "mapa"; CUDA C++ Programming Guide, Distributed Shared Memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.access import VERBS
from stagekit.backends.interp.control import Abandoned
from stagekit.backends.interp.findings import ClusterBarrierMisused, ClusterBarrierStuck, NoPeer, PeerEnded
from stagekit.backends.interp.mbarriers import Awaited, ended
from stagekit.backends.interp.memory import Allocation, AnyPointers, Array, MixedPointers, Pointers
from stagekit.backends.interp.order import Clocks, Epochs
from stagekit.backends.interp.program import Built, Compiler, Running, Turn
from stagekit.backends.interp.team import Access, LaunchState, Team, Touch, Values, Watcher
from stagekit.diagnostics import Diagnostic, counted
from stagekit.intrinsics.clusters import cluster_wait
from stagekit.ir import Native, Space, ops


class Cluster:
    """Blocks that run together. memory: their shared memory by rank, of which each block's list is its teams' too. teams: of all.

    arrived, waited: how often each thread has come to the barrier, and has been let go, by rank. phase: how often it has opened.
    """

    def __init__(self, launch: LaunchState, blocks: int) -> None:
        self.launch = launch
        self.memory: list[list[Allocation]] = []
        self.teams: list[Team] = []
        self.arrived, self.waited = np.zeros((2, blocks, launch.threads), np.int64)
        self.phase = 0

    def missing(self) -> int:
        """Return how many threads that have not ended the present phase still lacks."""
        return sum(int(np.count_nonzero(self._lacks(team))) for team in self.teams)

    def _lacks(self, team: Team) -> Array:
        lacks: Array = self.arrived[team.rank, team.thread] <= self.phase
        return lacks if team.ended is None else lacks & ~team.ended

    def settle(self) -> None:
        """End the phase if it lacks nobody. Threads that have ended are not waited for."""
        if self.teams and (self.arrived > self.phase).any() and not self.missing():
            self.phase += 1
            self.launch.writes += 1
            for watcher in self.launch.watchers:
                watcher.handed_on(self, ended(self))

    def leave(self, team: Team) -> None:
        """Note that a team has ended."""
        self.teams.remove(team)
        self.settle()

    def stuck(self, phase: int) -> Diagnostic:
        return ClusterBarrierStuck(counted(self.missing(), "thread"))

    def awaits(self, phase: int) -> str:
        return f"the barrier of its cluster, which lacks {counted(self.missing(), 'thread')}"


# -- the barrier ----------------------------------------------------------------------------------------------------------


def build_cluster_barrier(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build an arrival or a wait."""
    if op.spec is cluster_wait:
        return lambda values, team: _wait(op, team)
    is_told = op.params[0] == "release"
    return (lambda values, team: _arrive(op, team, is_told),)


def _arrive(op: ops.IntrinsicOp, team: Team, is_told: bool) -> None:
    cluster, active = team.cluster, team.active_lanes()
    arrived, waited = (each[team.rank, team.thread] for each in (cluster.arrived, cluster.waited))
    twice = active & (arrived != waited)
    if twice.any():
        what, hint = "arrives again, before it has waited", "let each thread call `cluster_wait` between two arrivals"
        team.report(ClusterBarrierMisused(what, hint), op.loc, twice)
    if is_told:
        tell(team, cluster)
    cluster.arrived[team.rank, team.thread[active]] = waited[active] + 1
    team.launch.writes += 1
    cluster.settle()


def _wait(op: ops.IntrinsicOp, team: Team) -> Running:
    cluster, active = team.cluster, team.active_lanes().copy()
    arrived, waited = (each[team.rank, team.thread] for each in (cluster.arrived, cluster.waited))
    without = active & (arrived == waited)
    if without.any():
        what, hint = "waits without having arrived", "let the same threads call `cluster_arrive` first"
        team.report(ClusterBarrierMisused(what, hint), op.loc, without)
    while cluster.phase < int(arrived[active].max()):
        team.awaited = [Awaited(cluster, cluster.phase, op.loc, tag) for tag in team.tag[active].tolist()]
        yield Turn(op, True)
        cluster.settle()
    team.awaited = []
    cluster.waited[team.rank, team.thread[active]] = arrived[active]
    learn(team, ended(cluster))


def tell(team: Team, key: Any) -> None:
    """Tell what the active lanes have done, and what is ordered before it."""
    touch, positions = _of_active(team)
    for watcher in team.launch.watchers:
        watcher.sent(touch, positions, key, only_reads=False)


def learn(team: Team, key: Any) -> None:
    """Let the active lanes learn what others have told."""
    touch, positions = _of_active(team)
    for watcher in team.launch.watchers:
        watcher.received(touch, positions, key)


def _of_active(team: Team) -> tuple[Touch, Sequence[int]]:
    """Return the active lanes as those who touch, though they touch nothing."""
    nothing: Any = None
    return Touch(team, nothing, nothing, nothing, 0, team.mask, 0), range(team.active)


# -- shared memory of others ----------------------------------------------------------------------------------------------


def build_peer(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the pointer to the same place in another block."""
    result, pointer, rank = c.numbers((op.result, *op.args))

    def step(values: Values, team: Team) -> None:
        report_strangers(team, values[rank], team.active_lanes(), op)
        values[result] = there(team, values[pointer], values[rank])

    return (step,)


def report_strangers(team: Team, rank: Any, lanes: Array, op: ops.IntrinsicOp) -> None:
    """Report which of the lanes name a block that the cluster does not have."""
    ranks = team.spread(rank)
    is_wrong = lanes & ((ranks < 0) | (ranks >= len(team.cluster.memory)))
    if is_wrong.any():
        diagnostic = NoPeer(int(ranks[np.argmax(is_wrong)]), counted(len(team.cluster.memory), "block"))
        team.report(diagnostic, op.loc, is_wrong)


def there(team: Team, address: AnyPointers, rank: Any) -> AnyPointers:
    """Return the same places in the blocks of these ranks."""
    if isinstance(address, Pointers) and not isinstance(rank, np.ndarray):
        return _moved(team, address, int(rank))
    ranks, pieces = team.spread(rank), list[tuple[Array, Pointers]]()
    for part, lanes in address.parts(np.ones(team.lanes, np.bool_)):
        for each in np.unique(ranks[lanes]).tolist():
            pieces.append((lanes & (ranks == each), _moved(team, part, each)))
    return MixedPointers(pieces)


def _moved(team: Team, address: Pointers, rank: int) -> Pointers:
    """Return the pointer in the block of this rank; unchanged where there is none, which is reported."""
    if not 0 <= rank < len(team.cluster.memory):
        return address
    number = next(i for i, each in enumerate(team.memory) if each is address.allocation)
    return Pointers(team.cluster.memory[rank][number], address.index, address.phase, address.reach)


class _Visit(NamedTuple):
    """Accesses of a block's memory by lanes of another one, by tag and time."""

    tags: Array
    times: Array
    touch: Touch


class PeerMemory(Watcher):
    """Finds accesses of a block's shared memory by a peer that its end may come before.

    clocks: None where nobody looks for races; then those are found that come after the end in this run.
    """

    def __init__(self, launch: LaunchState, clocks: Clocks | None) -> None:
        self.launch = launch
        self.clocks = clocks
        self.pending: dict[Allocation, list[_Visit]] = {}
        self.gone: set[Allocation] = set()

    def access(self, touch: Touch, value: Any) -> None:
        allocation = touch.allocation
        if allocation.space is not Space.SHARED or any(each is allocation for each in touch.team.memory):
            return
        if allocation in self.gone:
            self._report(touch, np.arange(len(touch.lane_numbers)))
            raise Abandoned  # a GPU ends the launch here, too
        if self.clocks is not None:
            epochs = self.clocks.epochs(touch)
            times = np.broadcast_to(epochs.time, epochs.thread.shape)
            self.pending.setdefault(allocation, []).append(_Visit(epochs.thread, times, touch))

    def copying(self, touch: Touch, value: Any) -> None:
        self.access(touch, value)

    def end(self, team: Team, is_last: bool) -> None:
        for allocation in {id(each): each for each in team.memory}.values():
            left = list(self._unordered(team, self.pending.pop(allocation, [])))
            if is_last:
                self.gone.add(allocation)
                for visit in left:
                    self._report(
                        visit.touch, np.flatnonzero(np.isin(visit.touch.team.tag[visit.touch.lane_numbers], visit.tags))
                    )
            elif left:
                self.pending[allocation] = left

    def _unordered(self, team: Team, visits: list[_Visit]) -> Iterator[_Visit]:
        """Yield the accesses that are ordered before the end of none of the team's threads."""
        for visit in visits:
            tags, times = visit.tags, visit.times
            for lane in range(team.lanes):
                if len(tags):
                    is_left = ~self._is_ordered(team, lane, tags, times, visit.touch.access)
                    tags, times = tags[is_left], times[is_left]
            if len(tags):
                yield _Visit(tags, times, visit.touch)

    def _is_ordered(self, team: Team, lane: int, tags: Array, times: Array, access: Access) -> Array:
        assert self.clocks is not None
        clock = [each[lane] if isinstance(each, np.ndarray) else each for each in self.clocks.of(team)]
        are_reads = access.role == "read" or access.is_arrival
        return self.clocks.is_ordered(tags, times, Epochs(np.full(len(tags), team.tag[lane]), *clock), are_reads)

    def _report(self, touch: Touch, positions: Array) -> None:
        name = touch.allocation.name
        diagnostic = PeerEnded(VERBS[touch.access.role], touch.element(int(positions[0])), name)
        touch.team.report(diagnostic, touch.access.loc, touch.at_fault(positions), name)
