"""Control flow under masks: both arms where lanes disagree, loops until the last lane has left.

A condition that is one scalar for the whole team simply decides. Where lanes disagree, each arm runs under its part of the
mask, and results are chosen lane by lane. Lanes that have left a loop keep what they left with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stagekit.backends.interp.findings import NoProgress
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import (
    Builders,
    Code,
    Compiler,
    Control,
    Running,
    Turn,
    Values,
    execute,
    scalar_dtype,
)
from stagekit.backends.interp.steps import choose
from stagekit.backends.interp.team import Team
from stagekit.ir import Block, Op, ops, walk

_LOOK_EVERY = 1024  # rounds of a loop between two looks whether it still gets anywhere


class Abandoned(Exception):
    """The launch cannot go on; what is wrong has been reported."""


def _assign(values: Values, targets: Sequence[int], new: Sequence[Any]) -> None:
    for target, value in zip(targets, new):
        values[target] = value


def _read(values: Values, numbers: Sequence[int]) -> list[Any]:
    return [values[n] for n in numbers]


def _merge(lanes: Array, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    return [choose(lanes, a, b) for a, b in zip(new, old)]


# -- if ---------------------------------------------------------------------------------------------------------------


def _if(c: Compiler, op: ops.If) -> Control:
    condition, results = c.number(op.condition), c.numbers(op.results)
    arms = {True: c.block(op.then_body), False: c.block(op.else_body)}
    observe = c.branch_observer(op)
    may_end = c.options.checks.lanes and op in c.tails
    is_empty = {truth: may_end and not _does_anything(body) for truth, body in zip((True, False), op.bodies())}

    def one_arm(arm: Code, values: Values, team: Team) -> Running:
        yield from execute(arm, values, team)
        _assign(values, results, _read(values, arm.yields))

    def both_arms(taken: Array, count: int, values: Values, team: Team) -> Running:
        outer, active = team.mask, team.active
        if is_empty[False]:
            team.end(~taken if outer is None else outer & ~taken)
        team.enter(taken, count)
        yield from execute(arms[True], values, team)
        then_values = _read(values, arms[True].yields)
        if is_empty[True]:
            team.end(taken)
        team.enter(~taken if outer is None else outer & ~taken, active - count)
        yield from execute(arms[False], values, team)
        team.enter(outer, active)
        _assign(values, results, _merge(taken, then_values, _read(values, arms[False].yields)))

    def control(values: Values, team: Team) -> Running:
        flag = values[condition]
        if not isinstance(flag, np.ndarray):
            return one_arm(arms[bool(flag)], values, team)
        taken = flag if team.mask is None else flag & team.mask
        count = int(np.count_nonzero(taken))
        if observe:
            observe(team, taken)
        if count in (0, team.active):
            return one_arm(arms[count > 0], values, team)
        return both_arms(taken, count, values, team)

    return control


def _does_anything(body: Block) -> bool:
    return any(op.effects for op in walk(body))


# -- for --------------------------------------------------------------------------------------------------------------


def _for(c: Compiler, op: ops.For) -> Control:
    bounds, inits, results = c.numbers((op.start, op.stop, op.step)), c.numbers(op.inits), c.numbers(op.results)
    dtype = scalar_dtype(op.start)
    make = dtype.numpy.type
    code = c.block(op.loop_body)
    counter, carried = code.params[0], code.params[1:]

    def together(rounds: range, values: Values, team: Team) -> Running:
        current = _read(values, inits)
        for i in rounds:
            values[counter] = make(i)
            _assign(values, carried, current)
            yield from execute(code, values, team)
            current = _read(values, code.yields)
        _assign(values, results, current)

    def apart(start: Any, step: Any, trips: Array, values: Values, team: Team) -> Running:
        """Lanes have different numbers of rounds: in round k those run that have more than k."""
        outer, active = team.mask, team.active
        current = _read(values, inits)
        i, k = start, 0
        while (count := int(np.count_nonzero(trips > k))) > 0:
            lanes = trips > k
            team.enter(outer if count == active else lanes, count)
            values[counter] = i
            _assign(values, carried, current)
            yield from execute(code, values, team)
            current = _merge(lanes, _read(values, code.yields), current)
            i, k = i + step, k + 1
        team.enter(outer, active)
        _assign(values, results, current)

    def control(values: Values, team: Team) -> Running:
        start, stop, step = _read(values, bounds)
        if not any(isinstance(b, np.ndarray) for b in (start, stop, step)):
            return together(range(int(start), int(stop), int(step)) if step else range(0), values, team)
        trips = _trips(team.spread(start), team.spread(stop), team.spread(step))
        if team.mask is not None:
            trips = np.where(team.mask, trips, np.uint64(0))
        return apart(start, step, trips, values, team)

    return control


def _trips(start: Array, stop: Array, step: Array) -> Array:
    """How many rounds `range(start, stop, step)` has, lane by lane, as uint64; none where `step` is 0."""
    is_up, is_down = step > 0, step < 0
    runs = (is_up & (start < stop)) | (is_down & (start > stop))
    low, high = np.where(is_up, start, stop), np.where(is_up, stop, start)
    distance = high.astype(np.uint64) - low.astype(np.uint64)
    size = np.where(is_down, -step.astype(np.int64), step).astype(np.uint64) | (step == 0)
    return np.where(runs, (distance - np.uint64(1)) // size + np.uint64(1), np.uint64(0))


# -- while ------------------------------------------------------------------------------------------------------------


class _Leaving:
    """What lanes have left a loop with so far."""

    def __init__(self) -> None:
        self.values: list[Any] | None = None

    def add(self, lanes: Array | None, values: list[Any]) -> None:
        """`lanes` leave with `values`; None: all that were left."""
        if self.values is None or lanes is None:
            self.values = values
        else:
            self.values = _merge(lanes, values, self.values)


def _while(c: Compiler, op: ops.While) -> Control:
    inits, results = c.numbers(op.inits), c.numbers(op.results)
    before, after = c.block(op.before), c.block(op.after)
    flag, *forwarded = before.yields
    waits = c.is_scheduled and op in c.waiting
    patience = c.options.max_iterations

    def control(values: Values, team: Team) -> Running:
        outer, active = team.mask, team.active
        left = _Leaving()
        current, rounds = _read(values, inits), 0
        watch = _Watch(op, patience)
        while True:
            _assign(values, before.params, current)
            yield from execute(before, values, team)
            found = _read(values, forwarded)
            going = _still_going(values[flag], team, left, found)
            if not going:
                break
            _assign(values, after.params, found)
            yield from execute(after, values, team)
            following = _read(values, after.yields)
            rounds += 1
            if waits:
                yield Turn(op, _is_same(following, current, team))
            elif rounds % _LOOK_EVERY == 0:
                watch.look(following, current, rounds, team)
            current = following
        team.enter(outer, active)
        _assign(values, results, left.values or [])

    return control


def _still_going(flag: Any, team: Team, left: _Leaving, found: list[Any]) -> bool:
    """Take the lanes whose `flag` is false out of the mask; are there others?"""
    if not isinstance(flag, np.ndarray):
        if not flag:
            left.add(team.mask if left.values is not None else None, found)
        return bool(flag)
    going = flag if team.mask is None else flag & team.mask
    count = int(np.count_nonzero(going))
    if count < team.active:
        left.add(~flag if team.mask is None else team.mask & ~flag, found)
        team.enter(going, count)
    return count > 0


def _is_same(new: list[Any], old: list[Any], team: Team) -> bool:
    """Do the active lanes carry what they carried a round ago?"""
    return all(_equal(a, b, team) for a, b in zip(new, old))


def _equal(a: Any, b: Any, team: Team) -> bool:
    if a is b:
        return True
    if not isinstance(a, np.ndarray | np.generic):
        return False  # pointers: rare enough to say nothing of them
    same = np.asarray(a == b) | (np.asarray(a != a) & np.asarray(b != b))
    return bool(np.all(same if team.mask is None else same | ~team.mask))


class _Watch:
    """Ends a loop that gets nowhere: nothing carried and no memory has changed in a round, or there were too many rounds."""

    def __init__(self, op: Op, patience: int) -> None:
        self.op, self.patience = op, patience

    def look(self, new: list[Any], old: list[Any], rounds: int, team: Team) -> None:
        is_stuck = _is_same(new, old, team) and team.launch.writes == self.writes
        self.writes = team.launch.writes
        if is_stuck:
            self.abandon(f"after {rounds} rounds, nothing that the loop looks at has changed", team)
        if rounds >= self.patience:
            self.abandon(f"still running after {rounds} rounds", team)

    writes = -1

    def abandon(self, why: str, team: Team) -> None:
        team.report(NoProgress(why), self.op.loc, team.active_lanes())
        raise Abandoned


CONTROLS: Builders = {ops.If: _if, ops.For: _for, ops.While: _while}
