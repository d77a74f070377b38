"""Barriers of some warps of a block, by their numbers: how they count, and who waits for whom.

    barrier 1        after                             lacks
                     a warp's barrier_arrive(1, 96)    64 of 96 threads
                     another one's barrier_sync        32, and that warp waits
                     a third one's barrier_sync        nothing: it opens, and is as new

Who comes tells the barrier what is ordered before it; who waits learns that. Source: PTX ISA, "bar, barrier".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagekit.backends.interp.clusters import learn, tell
from stagekit.backends.interp.findings import NamedBarrierMisused, NamedBarrierStuck
from stagekit.backends.interp.mbarriers import Awaited, ended
from stagekit.backends.interp.program import Built, Compiler, Running, Turn
from stagekit.backends.interp.team import Team, Values
from stagekit.diagnostics import Diagnostic, Loc, counted
from stagekit.intrinsics.roles import LIMITS, barrier_sync
from stagekit.ir import Native, ops
from stagekit.limits import WARP


@dataclass(eq=False)
class NamedBarrier:
    """A barrier of a block. threads: that open it, as who came says. warps: that have come. opened: how often."""

    number: int
    threads: int = 0
    warps: set[int] = field(default_factory=set)
    opened: int = 0

    def lacks(self) -> str:
        return f"{self.threads - WARP * len(self.warps)} of {counted(self.threads, 'thread')}"

    def stuck(self, phase: int) -> Diagnostic:
        return NamedBarrierStuck(self.number, self.lacks())

    def awaits(self, phase: int) -> str:
        return f"barrier {self.number}, which lacks {self.lacks()}"


def build_named_barrier(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the arrival of a warp, or its arrival and wait."""
    given = c.numbers(op.args)

    def step(values: Values, team: Team) -> None:
        _come(op.loc, team, *[values[n] for n in given])

    def control(values: Values, team: Team) -> Running:
        barrier = _come(op.loc, team, *[values[n] for n in given])
        opening = barrier.opened + bool(barrier.warps)  # it is open already where this warp was the last one
        while barrier.opened < opening:
            team.awaited = [Awaited(barrier, opening, op.loc, tag) for tag in team.tag[team.active_lanes()].tolist()]
            yield Turn(op, True)
        team.awaited = []
        learn(team, ended(barrier))

    return control if op.spec is barrier_sync else (step,)


def _come(loc: Loc, team: Team, number: Any, threads: Any) -> NamedBarrier:
    """Let a warp arrive. Where something is wrong, which is reported, it counts as far as it can."""
    active = team.active_lanes()
    lane = int(np.argmax(active))
    number, threads = (int(team.spread(each)[lane]) for each in (number, threads))
    barrier: NamedBarrier = team.launch.named_barriers.setdefault((int(team.block), number), NamedBarrier(number))
    for what, hint in _misuses(team, barrier, number, threads):
        team.report(NamedBarrierMisused(what, hint), loc, active, key=what)
    tell(team, barrier)
    barrier.threads = threads
    barrier.warps.add(int(team.warp_tag[lane]))
    team.launch.writes += 1
    if WARP * len(barrier.warps) >= threads:
        barrier.warps.clear()
        barrier.opened += 1
        for watcher in team.launch.watchers:
            watcher.handed_on(barrier, ended(barrier))
    return barrier


def _misuses(team: Team, barrier: NamedBarrier, number: int, threads: int) -> list[tuple[str, str]]:
    """Return what is wrong with an arrival, each with what to do."""
    found = []
    for name, value in (("number", number), ("threads", threads)):
        if not LIMITS[name].allow(value):
            found.append((f"`{name}` is {value}", f"it is {LIMITS[name]}"))
    here = team.active_lanes() if team.ended is None else team.active_lanes() | team.ended
    absent = int(np.count_nonzero(~here))
    if absent:
        found.append((f"{counted(absent, 'lane')} of the warp do not come", "let whole warps come to it"))
    if barrier.warps and barrier.threads != threads:
        what = f"comes to barrier {number} of {threads} threads, to which others came as one of {barrier.threads}"
        found.append((what, "let all say the same number, or use another barrier"))
    if int(team.warp_tag[0]) in barrier.warps:
        what = f"a warp comes to barrier {number} again, which lacks {barrier.lacks()}"
        found.append((what, "let each warp come once before it opens, or use another barrier"))
    return found
