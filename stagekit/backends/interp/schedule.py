"""The scheduler: blocks start one after another, and the teams of those that run take turns.

A kernel whose threads wait for each other only at barriers runs as teams of whole blocks, as many side by side as there is
room for. Where warps wait for each other, or an order is asked for, each warp of a block is a team of its own. A team runs
until it makes a request: `Arrive` at a block barrier, which all teams of the block have to reach, or `Turn`, after which others
may run. When every running team waits in vain, the next block is started too, so that blocks may wait for blocks. When no block
is left to start, the kernel is stuck, and a finding says where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagekit.backends.interp.asynchronous import lander
from stagekit.backends.interp.clusters import Cluster
from stagekit.backends.interp.control import Abandoned
from stagekit.backends.interp.findings import BarrierNotReached, DivergentBarrier, NoProgress
from stagekit.backends.interp.mbarriers import Awaited
from stagekit.backends.interp.memory import Allocation, Array, just_aligned
from stagekit.backends.interp.options import Schedule
from stagekit.backends.interp.program import Arrive, Program, Running, Turn, execute
from stagekit.backends.interp.team import LaunchState, Team
from stagekit.diagnostics import Note
from stagekit.frozen import frozen
from stagekit.ir import Op, Space
from stagekit.limits import WARP

_TEAM_LANES = 8192  # lanes at which NumPy's cost per call no longer matters
_TEAM_SHARED_BYTES = 1 << 24  # of the shared memory of the blocks of one team
_SHARED_BASE = 0x1000  # shared memory has addresses of its own, of which only the alignment matters
_DYNAMIC_ALIGN = 16  # bytes, of dynamic shared memory
_PATIENCE = 100  # turns after which a copy lands although somebody still does something
_MOST_NOTES = 8  # of others that wait, when all do
_ORDER_SEED = 1  # keeps the order of blocks apart from the order of warps under one seed


@frozen(eq=False, slots=False)
class BlockGroup:
    """Blocks started side by side, as `teams` teams. messages_before: how many prints and failures came before theirs."""

    blocks: Array
    memory: list[Allocation]
    teams: int
    messages_before: tuple[int, int]


@dataclass(eq=False)
class TeamRun:
    """One running team. arrived: the barrier it waits at. turn: its last request for a turn, if it has not run since.

    rounds: by loop, `launch.writes` at the start of its present round. idle_since: the same where the round that has just
    ended changed nothing in the team; while `launch.writes` is still this, the next round would change nothing either. Else -1.
    """

    team: Team
    run: Running
    group: BlockGroup
    arrived: Arrive | None = None
    answer: Any = None
    turn: Turn | None = None
    rounds: dict[Op, int] = field(default_factory=dict)
    idle_since: int = -1


# -- starting ---------------------------------------------------------------------------------------------------------


def _blocks_to_start(launch: LaunchState, program: Program) -> Iterator[Array]:
    """Return the blocks of clusters that start together, one cluster in each row, in the order of the schedule."""
    clusters = _clusters(launch)
    numbers = np.arange(len(clusters))
    schedule = launch.options.schedule
    if schedule is not None and schedule.order == "backward":
        numbers = numbers[::-1]
    elif schedule is not None and schedule.order == "random":
        numbers = np.random.default_rng((schedule.seed, _ORDER_SEED)).permutation(numbers)
    together = 1
    if not program.is_scheduled:
        sizes = (a.count * a.dtype.itemsize for a in program.shared if a.count is not None)
        shared_bytes = sum(sizes) + launch.dynamic_shared_bytes
        blocks = min(_TEAM_LANES // launch.threads, _TEAM_SHARED_BYTES // max(shared_bytes, 1))
        together = max(blocks // clusters.shape[1], 1)
    return (clusters[numbers[start : start + together]] for start in range(0, len(numbers), together))


def _clusters(launch: LaunchState) -> Array:
    """Return the numbers of the blocks of each cluster, by rank: shape (clusters, blocks of each)."""
    (gx, gy, gz), (cx, cy, cz) = launch.grid, launch.cluster
    numbers = np.arange(launch.blocks).reshape(gz // cz, cz, gy // cy, cy, gx // cx, cx)
    return numbers.transpose(0, 2, 4, 1, 3, 5).reshape(-1, cx * cy * cz)


def _start(launch: LaunchState, program: Program, clusters: Array) -> list[TeamRun]:
    """Return the teams of blocks that start together: of one cluster where warps take turns, else side by side."""
    if not program.is_scheduled:
        return _start_blocks(launch, program, clusters.reshape(-1))
    (blocks,) = clusters
    cluster = Cluster(launch, len(blocks))
    started = []
    for rank, block in enumerate(blocks):
        teams = _start_blocks(launch, program, np.array([block]))
        for each in teams:
            each.team.cluster, each.team.rank = cluster, rank
            cluster.teams.append(each.team)
        cluster.memory.append(teams[0].group.memory)
        started += teams
    return started


def _start_blocks(launch: LaunchState, program: Program, blocks: Array) -> list[TeamRun]:
    memory = _shared_memory(launch, program, len(blocks))
    lanes = WARP if program.is_scheduled else launch.threads
    firsts = range(0, launch.threads, lanes)
    group = BlockGroup(blocks, memory, len(firsts), (len(launch.prints), len(launch.failures)))
    started = []
    for first in firsts:
        values = program.fresh_values(launch.params)
        team = Team(launch, blocks, first, min(lanes, launch.threads - first), memory, values)
        started.append(TeamRun(team, execute(program.code, values, team), group))
    return started


def _shared_memory(launch: LaunchState, program: Program, copies: int) -> list[Allocation]:
    """Return the shared memory of blocks: one allocation per `alloc`, except that all `alloc`s of the dynamic bytes share one."""
    memory: list[Allocation] = []
    base, dynamic = _SHARED_BASE, None
    for op in program.shared:
        if op.count is None and dynamic is not None:
            memory.append(dynamic)
            continue
        size = launch.dynamic_shared_bytes if op.count is None else op.count * op.dtype.itemsize
        base = just_aligned(base, max(op.align, op.dtype.itemsize, _DYNAMIC_ALIGN if op.count is None else 1))
        name = op.result.name or "shared"
        memory.append(Allocation.fresh(name, Space.SHARED, op.dtype, base, size=size, copies=copies))
        base += size
        dynamic = memory[-1] if op.count is None else dynamic
    return memory


# -- taking turns -----------------------------------------------------------------------------------------------------

Pick = Callable[[list[TeamRun], TeamRun | None], TeamRun]
"""From the teams that can run, and the one that ran last, to the one that runs next."""


def _picker(schedule: Schedule | None) -> Pick:
    """Return what picks teams in the order of `schedule`; None is "forward"."""
    if schedule is not None and schedule.order == "random":
        generator = np.random.default_rng(schedule.seed)
        return lambda ready, last: ready[int(generator.integers(len(ready)))]
    is_backward = schedule is not None and schedule.order == "backward"

    def pick(ready: list[TeamRun], last: TeamRun | None) -> TeamRun:
        if last is None or last not in ready:
            return ready[-1 if is_backward else 0]
        if last.turn is None:
            return last
        return ready[(ready.index(last) + (-1 if is_backward else 1)) % len(ready)]

    return pick


class Scheduler:
    """Runs all blocks of a launch. running: the teams that have started and not ended, in the order of their start."""

    def __init__(self, launch: LaunchState, program: Program) -> None:
        self.launch = launch
        self.starting = (_start(launch, program, blocks) for blocks in _blocks_to_start(launch, program))
        self.pick = _picker(launch.options.schedule)
        self.land = lander(launch)
        self.patience = _PATIENCE
        self.running: list[TeamRun] = []

    def run(self) -> None:
        """Run to the end, or until no team can go on; the findings say why."""
        last: TeamRun | None = None
        try:
            while self.running or self._start_next():
                ready = [t for t in self.running if t.arrived is None]
                if not ready:  # some block waits at a barrier that not all of its teams will reach
                    self._release(self.running[0].group)
                elif all(t.turn is not None and t.idle_since == self.launch.writes for t in ready):
                    if not self.land():
                        self._unstick(ready[0])
                else:
                    last = self.pick(ready, last)
                    self._advance(last)
        except Abandoned:
            return  # what is wrong is among the findings

    def _start_next(self) -> bool:
        started = next(self.starting, [])
        self.running += started
        return bool(started)

    def _unstick(self, waiting: TeamRun) -> None:
        """Start another block when all teams wait in vain; without one, report it and abandon the launch."""
        if waiting.turn is None or self._start_next():
            return
        stuck = [awaited for each in self.running for awaited in each.team.awaited]
        if waiting.team.awaited:
            self._report_stuck(waiting.team, stuck)
        else:
            why = "every warp that can run waits for memory that nobody will change"
            others = self._notes(stuck)
            waiting.team.report(NoProgress(why), waiting.turn.op.loc, waiting.team.active_lanes(), notes=others)
        raise Abandoned

    def _report_stuck(self, team: Team, stuck: list[Awaited]) -> None:
        """Report a wait that nobody will end, with those of all other threads."""
        first = team.awaited[0]
        others = self._notes([each for each in stuck if each[:3] != first[:3]])
        at_fault = np.isin(team.tag, [each.tag for each in stuck if each[:3] == first[:3]])
        team.report(first.what.stuck(first.phase), first.loc, at_fault, notes=others)

    def _notes(self, stuck: list[Awaited]) -> tuple[Note, ...]:
        """Return what some of those wait for that wait in phases, each place and phase once."""
        once = {each[:3]: each for each in reversed(stuck)}
        return tuple(
            [
                Note(f"{self.launch.who(each.tag)} waits for {each.what.awaits(each.phase)}", each.loc)
                for each in list(reversed(once.values()))[:_MOST_NOTES]
            ]
        )

    def _advance(self, each: TeamRun) -> None:
        """Let a team run until its next request."""
        if each.turn is not None:
            each.rounds[each.turn.op] = self.launch.writes
        answer, each.answer, each.turn = each.answer, None, None
        try:
            request = each.run.send(answer)
        except StopIteration:
            self._end(each)
            return
        if isinstance(request, Turn):
            each.turn = request
            self.patience = self.patience - 1 if self.patience else _PATIENCE
            if not self.patience:
                self.land()  # who asks a limited number of times sees an end of it
            each.idle_since = each.rounds.get(request.op, -1) if request.is_idle else -1
            return
        each.arrived = request
        is_partial = (request.present > 0) & (request.present < each.team.block_lanes)
        if is_partial.any():
            diagnostic = DivergentBarrier(int(request.present[np.argmax(is_partial)]), self.launch.threads)
            each.team.report(diagnostic, request.op.loc, each.team.active_lanes() & is_partial[each.team.row])
        if sum(t.group is each.group and t.arrived is not None for t in self.running) == each.group.teams:
            self._release(each.group)

    def _release(self, group: BlockGroup) -> None:
        """Let the teams that wait at a barrier go on. If they are not all teams of the block at one barrier, report it."""
        waiting = [(t, t.arrived) for t in self.running if t.group is group and t.arrived is not None]
        (first, at), *_ = waiting
        here = sum(request.op is at.op and request.rounds == at.rounds for _, request in waiting)
        if here < group.teams:
            is_loop = all(request.op is at.op for _, request in waiting)
            elsewhere = "are in another round of its loop" if is_loop else "wait at another barrier"
            others = "have ended" if len(waiting) < group.teams else elsewhere
            who = self.launch.who(int(first.team.tag[np.argmax(first.team.active_lanes())]))
            self.launch.sink.report(BarrierNotReached(here, group.teams, others), at.op.loc, 1, who=lambda: who)
        holds = np.sum([request.holds for _, request in waiting], axis=0)
        present = np.sum([request.present for _, request in waiting], axis=0)
        for watcher in self.launch.watchers:
            watcher.barrier([team.team for team, _ in waiting], present > 0)
        for each, _ in waiting:
            each.arrived, each.answer = None, (holds, present)

    def _end(self, each: TeamRun) -> None:
        """Remove a team that has ended; when it was the last of its group, sort the messages of the blocks by block."""
        self.running.remove(each)
        group, is_last = each.group, all(t.group is not each.group for t in self.running)
        for watcher in self.launch.watchers:
            watcher.end(each.team, is_last)
            watcher.forget(each.team.local.values())
            watcher.forget(group.memory if is_last else ())
        if each.team.cluster is not None:
            each.team.cluster.leave(each.team)
        if is_last and len(group.blocks) > 1:
            for messages, start in zip((self.launch.prints, self.launch.failures), group.messages_before):
                messages[start:] = sorted(messages[start:], key=lambda m: m.who.block[::-1])
