"""Barriers of some warps of a block, by their numbers: how they count, and who waits for whom. And registers that move.

    barrier 1        after                             lacks
                     a warp's barrier_arrive(1, 96)    64 of 96 threads
                     another one's barrier_sync        32, and that warp waits
                     a third one's barrier_sync        nothing: it opens, and is as new

Who comes tells the barrier what is ordered before it; who waits learns that.

A block begins with as many registers for each thread as there are, in steps of 8. The first warp of a warpgroup that asks for
another number changes it for all four, and waits where they are not free yet. Source: PTX ISA, "bar, barrier", "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagekit.backends.interp.clusters import learn, tell
from stagekit.backends.interp.findings import NamedBarrierMisused, NamedBarrierStuck, RegistersMisused, RegistersStuck
from stagekit.backends.interp.mbarriers import Awaited, ended
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import Built, Compiler, Running, Turn
from stagekit.backends.interp.team import LaunchState, Team, Values, Watcher
from stagekit.diagnostics import Diagnostic, Loc, counted
from stagekit.intrinsics.roles import LIMITS, REGISTER_COUNTS, barrier_sync, setmaxnreg_inc
from stagekit.ir import Native, ops
from stagekit.limits import REGISTERS, WARP, WARPGROUP

_WARPS = WARPGROUP // WARP


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
    found = _absent(team.active_lanes() if team.ended is None else team.active_lanes() | team.ended)
    for name, value in (("number", number), ("threads", threads)):
        if not LIMITS[name].allow(value):
            found.append((f"`{name}` is {value}", f"it is {LIMITS[name]}"))
    if barrier.warps and barrier.threads != threads:
        what = f"comes to barrier {number} of {threads} threads, to which others came as one of {barrier.threads}"
        found.append((what, "let all say the same number, or use another barrier"))
    if int(team.warp_tag[0]) in barrier.warps:
        what = f"a warp comes to barrier {number} again, which lacks {barrier.lacks()}"
        found.append((what, "let each warp come once before it opens, or use another barrier"))
    return found


def _absent(here: Array) -> list[tuple[str, str]]:
    """Return what is wrong where not all lanes of a warp are here."""
    absent = int(np.count_nonzero(~here))
    return [(f"{counted(absent, 'lane')} of the warp do not come", "let whole warps come")] if absent else []


# -- registers --------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RegisterFile:
    """The registers of a block of so many threads. held: of each, by warpgroup. asked: by warp, for how many, in order."""

    threads: int
    held: dict[int, int] = field(default_factory=dict)
    asked: dict[int, list[tuple[int, Loc]]] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """How many each thread has when the block begins."""
        return min(REGISTERS // self.threads // 8 * 8, REGISTER_COUNTS[-1])

    @property
    def total(self) -> int:
        return self.first * self.threads

    @property
    def free(self) -> int:
        return sum((self.first - each) * WARPGROUP for each in self.held.values())

    def of(self, group: int) -> int:
        return self.held.get(group, self.first)

    def stuck(self, phase: int) -> Diagnostic:
        return RegistersStuck(phase, self.free, self.total)

    def awaits(self, phase: int) -> str:
        return f"{phase} registers of each thread, with {self.free} of the block's {self.total} free"


def build_registers(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    """Build the request of a warp for more or fewer registers."""
    (count,) = op.params

    def control(values: Values, team: Team) -> Running:
        registers = team.launch.register_files.setdefault(int(team.block), RegisterFile(team.launch.threads))
        warp = int(team.warp_id[0])
        group, asked = warp // _WARPS, registers.asked.setdefault(warp, [])
        asked.append((count, op.loc))
        others = [
            registers.asked[each] for each in _warps_of(group) if len(registers.asked.get(each, ())) >= len(asked)
        ]
        for what, hint in _register_misuses(team, registers, op, [each[len(asked) - 1][0] for each in others]):
            team.report(RegistersMisused(what, hint), op.loc, team.active_lanes(), key=what)
        if len(others) > 1:  # one of the warps was here before
            return
        while registers.free < (count - registers.of(group)) * WARPGROUP:
            team.awaited = [Awaited(registers, count, op.loc, int(team.tag[0]))]
            yield Turn(op, True)
        team.awaited = []
        registers.held[group] = count
        team.launch.writes += 1

    return control


def _warps_of(group: int) -> range:
    return range(_WARPS * group, _WARPS * (group + 1))


def _register_misuses(
    team: Team, registers: RegisterFile, op: ops.IntrinsicOp, counts: Sequence[int]
) -> list[tuple[str, str]]:
    """Return what is wrong with a request, each with what to do. counts: for how many the warps of its group ask at it."""
    found, count, held = _absent(team.active_lanes()), counts[-1], registers.of(int(team.warp_id[0]) // _WARPS)
    if registers.threads % WARPGROUP:
        found.append(
            (f"a block of {registers.threads} threads", f"registers move between groups of {WARPGROUP} threads")
        )
    if len(set(counts)) > 1:
        found.append(
            (f"warps of a warpgroup ask for {' and for '.join(map(str, counts))}", "let all four ask for one number")
        )
    is_more = op.spec is setmaxnreg_inc
    if len(counts) == 1 and (count < held if is_more else count > held):
        what = f"asks for {count} registers where each thread has {held}"
        found.append((what, "use `setmaxnreg_inc` for more, `setmaxnreg_dec` for fewer"))
    return found


class WholeWarpgroups(Watcher):
    """Finds warpgroups of which some warps have asked for registers more often than others, when their block ends."""

    def __init__(self, launch: LaunchState) -> None:
        self.launch = launch

    def end(self, team: Team, is_last: bool) -> None:
        if not is_last or int(team.block) not in self.launch.register_files:
            return
        asked = self.launch.register_files.pop(int(team.block)).asked
        for group in {warp // _WARPS for warp in asked}:
            requests = [asked.get(warp, []) for warp in _warps_of(group)]
            longest = max(requests, key=len)
            absent = sum(len(each) < len(longest) for each in requests)
            if absent:
                what = f"{counted(absent, 'warp')} of warpgroup {group} did not ask for {longest[-1][0]} registers"
                hint = "let all four warps of a warpgroup come to it"
                team.report(RegistersMisused(what, hint), longest[-1][1], team.active_lanes(), key=group)
