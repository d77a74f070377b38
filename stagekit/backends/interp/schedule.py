"""Warps that take turns: a scheduler of generators, for kernels whose warps wait for each other, and for trying orders.

A warp runs until it asks: `Arrive` at a block barrier, which all warps of the block have to reach, or `Turn`, after which
others may go. Blocks start one after another; when every warp in sight waits in vain, the next block is started too, so that
blocks may wait for blocks. When there is none left to start, the kernel is stuck, and says where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagekit.backends.interp.control import Abandoned
from stagekit.backends.interp.findings import BarrierNotReached, DivergentBarrier, Finding, NoProgress
from stagekit.backends.interp.launch import Launch
from stagekit.backends.interp.options import Schedule
from stagekit.backends.interp.program import Arrive, Running, Turn
from stagekit.backends.interp.team import Team
from stagekit.ir import Op

Pick = Callable[[list["Warp"], "Warp | None"], "Warp"]
"""Who runs next: of those that can, given who ran last."""


@dataclass(eq=False)
class Warp:
    """One warp under way. arrived: the barrier it waits at. turn: what it last repeated.

    rounds: launch.writes at the start of the present round of each loop. idle_since: the same where the round that has just
    ended changed nothing, in the warp or in memory: as long as nobody writes, the next would be no different.
    """

    team: Team
    run: Running
    block: BlockRun
    arrived: Arrive | None = None
    answer: Any = None
    turn: Turn | None = None
    rounds: dict[Op, int] = field(default_factory=dict)
    idle_since: int = -1
    is_done: bool = False


@dataclass(eq=False)
class BlockRun:
    """A block that has been started. number: linear."""

    number: int
    warps: list[Warp] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return all(w.is_done for w in self.warps)


def picker(schedule: Schedule | None) -> Pick:
    """The order that `schedule` stands for; None is "forward"."""
    if schedule is not None and schedule.order == "random":
        generator = np.random.default_rng(schedule.seed)
        return lambda ready, last: ready[int(generator.integers(len(ready)))]
    position = -1 if schedule is not None and schedule.order == "backward" else 0
    return lambda ready, last: last if last in ready and not _wants_others(last) else _next(ready, last, position)


def _wants_others(warp: Warp | None) -> bool:
    return warp is not None and warp.turn is not None


def _next(ready: list[Warp], last: Warp | None, position: int) -> Warp:
    """Round about from the one that gave up its turn; else the first (or last) in line."""
    if last in ready and len(ready) > 1:
        step = 1 if position == 0 else -1
        return ready[(ready.index(last) + step) % len(ready)]
    return ready[position]


class Scheduler:
    """Runs all blocks of a launch."""

    def __init__(self, launch: Launch, order: Iterator[int], start: Callable[[int], BlockRun]) -> None:
        self.launch = launch
        self.waiting_blocks = order
        self.start = start
        self.pick = picker(launch.options.schedule)
        self.running: list[BlockRun] = []

    def run(self) -> None:
        last: Warp | None = None
        while self.running or self._start_next():
            ready = [w for b in self.running for w in b.warps if not w.is_done and w.arrived is None]
            if not ready:
                self._release_stuck_barrier()
                continue
            if all(w.turn is not None and w.idle_since == self.launch.writes for w in ready):
                self._unstick(ready)
                continue
            last = self.pick(ready, last)
            self._advance(last)

    def _start_next(self) -> bool:
        number = next(self.waiting_blocks, None)
        if number is None:
            return False
        self.running.append(self.start(number))
        return True

    def _unstick(self, ready: list[Warp]) -> None:
        """Everyone waits in vain: let another block in, or say that nobody can come."""
        if self._start_next():
            return
        warp = ready[0]
        assert warp.turn is not None
        why = "every warp that can run waits for memory that nobody will change"
        warp.team.report(NoProgress(why), warp.turn.op.loc, warp.team.active_lanes())
        raise Abandoned

    def _advance(self, warp: Warp) -> None:
        if warp.turn is not None:
            warp.rounds[warp.turn.op] = self.launch.writes
        answer, warp.answer, warp.turn = warp.answer, None, None
        try:
            request = warp.run.send(answer)
        except StopIteration:
            self._end(warp)
            return
        if isinstance(request, Turn):
            warp.turn = request
            warp.idle_since = warp.rounds.get(request.op, -1) if request.is_idle else -1
            return
        warp.arrived = request
        self._check_whole(warp, request)
        if all(w.arrived is not None for w in warp.block.warps):
            self._release(warp.block)

    def _end(self, warp: Warp) -> None:
        warp.is_done = True
        if warp.block.is_done:
            self.running.remove(warp.block)

    def _check_whole(self, warp: Warp, request: Arrive) -> None:
        if request.present < warp.team.lanes:
            diagnostic = DivergentBarrier(request.present, self.launch.threads)
            warp.team.report(diagnostic, request.op.loc, warp.team.active_lanes())

    def _release_stuck_barrier(self) -> None:
        """Nobody can run: some block waits at a barrier that not all of its warps will reach. Report it and let them go."""
        block = next(b for b in self.running if any(w.arrived for w in b.warps))
        self._report_missing(block)
        self._release(block)

    def _release(self, block: BlockRun) -> None:
        arrived = [w for w in block.warps if w.arrived is not None]
        barriers = {w.arrived.op for w in arrived if w.arrived}
        if len(barriers) > 1:
            self._report_missing(block)
        requests = [w.arrived for w in arrived if w.arrived]
        answer = np.int64(sum(r.holds for r in requests)), np.int64(sum(r.present for r in requests))
        self.launch.order.block_barrier(block.number)
        for warp in arrived:
            warp.arrived, warp.answer = None, answer

    def _report_missing(self, block: BlockRun) -> None:
        first = next(w for w in block.warps if w.arrived)
        assert first.arrived is not None
        op: Op = first.arrived.op
        waiting = sum(1 for w in block.warps if w.arrived and w.arrived.op is op)
        others = "have ended" if any(w.is_done for w in block.warps) else "wait at another barrier"
        diagnostic = BarrierNotReached(waiting, len(block.warps), others)
        key = (diagnostic.id, op.loc)
        if self.launch.sink.is_new(key, 1):
            who = first.team.who(int(np.argmax(first.team.active_lanes())))
            self.launch.sink.add(key, Finding(diagnostic, op.loc, who, (), 1))
