"""Control flow under masks: both arms where lanes disagree, loops until the last lane has left.

A condition that is one scalar for the whole team simply decides. Where lanes disagree, each arm runs under its part of the
mask, and results are chosen lane by lane. Lanes that have left a loop keep what they left with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stagekit.backends.interp.findings import NoProgress, OutOfBounds
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import (
    Builders,
    Code,
    Compiler,
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
_ROUNDS_ASTRAY = 16 * _LOOK_EVERY  # of a loop, once something was read outside an array


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


class _If:
    """The control of one `if`. is_empty: per arm, do lanes that take it have nothing left to do in the kernel?"""

    def __init__(self, c: Compiler, op: ops.If) -> None:
        self.condition, self.results = c.number(op.condition), c.numbers(op.results)
        self.then_code, self.else_code = c.block(op.then_body), c.block(op.else_body)
        self.observe = c.branch_observer(op)
        may_end = c.options.checks.lanes and op in c.tails
        self.then_ends, self.else_ends = (may_end and not _does_anything(body) for body in op.bodies())

    def __call__(self, values: Values, team: Team) -> Running:
        flag = values[self.condition]
        if not isinstance(flag, np.ndarray):
            return self.one_arm(self.then_code if flag else self.else_code, values, team)
        taken = flag if team.mask is None else flag & team.mask
        count = int(np.count_nonzero(taken))
        if self.observe:
            self.observe(team, taken)
        if count in (0, team.active):
            return self.one_arm(self.then_code if count else self.else_code, values, team)
        return self.both_arms(taken, count, values, team)

    def one_arm(self, arm: Code, values: Values, team: Team) -> Running:
        yield from execute(arm, values, team)
        _assign(values, self.results, _read(values, arm.yields))

    def both_arms(self, taken: Array, count: int, values: Values, team: Team) -> Running:
        outer, active = team.mask, team.active
        others = ~taken if outer is None else outer & ~taken
        if self.else_ends:
            team.end(others)
        team.enter(taken, count)
        yield from execute(self.then_code, values, team)
        then_values = _read(values, self.then_code.yields)
        if self.then_ends:
            team.end(taken)
        team.enter(others, active - count)
        yield from execute(self.else_code, values, team)
        team.enter(outer, active)
        _assign(values, self.results, _merge(taken, then_values, _read(values, self.else_code.yields)))


def _does_anything(body: Block) -> bool:
    return any(op.effects for op in walk(body))


# -- for --------------------------------------------------------------------------------------------------------------


class _For:
    """The control of one `for`."""

    def __init__(self, c: Compiler, op: ops.For) -> None:
        self.bounds = c.numbers((op.start, op.stop, op.step))
        self.inits, self.results = c.numbers(op.inits), c.numbers(op.results)
        self.make = scalar_dtype(op.start).numpy.type
        self.code = c.block(op.loop_body)
        self.counter, *self.carried = self.code.params

    def __call__(self, values: Values, team: Team) -> Running:
        start, stop, step = _read(values, self.bounds)
        if not any(isinstance(b, np.ndarray) for b in (start, stop, step)):
            return self.together(range(int(start), int(stop), int(step)) if step else range(0), values, team)
        trips = _trips(team.spread(start), team.spread(stop), team.spread(step))
        if team.mask is not None:
            trips = np.where(team.mask, trips, np.uint64(0))
        return self.apart(start, step, trips, values, team)

    def together(self, rounds: range, values: Values, team: Team) -> Running:
        current = _read(values, self.inits)
        for i in rounds:
            values[self.counter] = self.make(i)
            _assign(values, self.carried, current)
            yield from execute(self.code, values, team)
            current = _read(values, self.code.yields)
        _assign(values, self.results, current)

    def apart(self, start: Any, step: Any, trips: Array, values: Values, team: Team) -> Running:
        """Lanes have different numbers of rounds: in round k those run that have more than k."""
        outer, active = team.mask, team.active
        current = _read(values, self.inits)
        i, k = start, 0
        while (count := int(np.count_nonzero(lanes := trips > k))) > 0:
            team.enter(outer if count == active else lanes, count)
            values[self.counter] = i
            _assign(values, self.carried, current)
            yield from execute(self.code, values, team)
            current = _merge(lanes, _read(values, self.code.yields), current)
            i, k = i + step, k + 1
        team.enter(outer, active)
        _assign(values, self.results, current)


def _trips(start: Array, stop: Array, step: Array) -> Array:
    """How many rounds `range(start, stop, step)` has, lane by lane, as uint64; none where `step` is 0."""
    is_up, is_down = step > 0, step < 0
    runs = (is_up & (start < stop)) | (is_down & (start > stop))
    low, high = np.where(is_up, start, stop), np.where(is_up, stop, start)
    distance = high.astype(np.uint64) - low.astype(np.uint64)
    size = np.where(is_down, (-step.astype(np.int64)).astype(np.uint64), step.astype(np.uint64)) | (step == 0)
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


class _While:
    """The control of one `while`."""

    def __init__(self, c: Compiler, op: ops.While) -> None:
        self.op = op
        self.inits, self.results = c.numbers(op.inits), c.numbers(op.results)
        self.before, self.after = c.block(op.before), c.block(op.after)
        self.flag, *self.forwarded = self.before.yields
        self.waits = c.is_scheduled and op in c.waiting
        self.patience = c.options.max_iterations

    def __call__(self, values: Values, team: Team) -> Running:
        outer, active = team.mask, team.active
        left, watch = _Leaving(), _Watch(self.op, self.patience)
        current = _read(values, self.inits)
        while True:
            _assign(values, self.before.params, current)
            yield from execute(self.before, values, team)
            found = _read(values, self.forwarded)
            if not _still_going(values[self.flag], team, left, found):
                break
            _assign(values, self.after.params, found)
            yield from execute(self.after, values, team)
            following = _read(values, self.after.yields)
            if self.waits:
                yield Turn(self.op, _is_same(following, current, team))
            else:
                watch.round(following, current, team)
            current = following
        team.enter(outer, active)
        _assign(values, self.results, left.values or [])


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
    """Ends a loop that gets nowhere: a round carried on nothing new and no memory was written, or there were too many rounds.

    writes: `launch.writes` at the last look.
    """

    def __init__(self, op: Op, patience: int) -> None:
        self.op, self.patience = op, patience
        self.rounds = 0
        self.writes = -1

    def round(self, new: list[Any], old: list[Any], team: Team) -> None:
        self.rounds += 1
        if self.rounds % _LOOK_EVERY == 0:
            self.look(new, old, team)

    def look(self, new: list[Any], old: list[Any], team: Team) -> None:
        is_stuck = _is_same(new, old, team) and team.launch.writes == self.writes
        self.writes = team.launch.writes
        if is_stuck:
            self.abandon(f"after {self.rounds} rounds, nothing that the loop looks at has changed", team)
        if self.rounds >= _ROUNDS_ASTRAY and team.launch.sink.has(OutOfBounds.id):
            raise Abandoned  # it goes on with what is not there; the finding says so
        if self.rounds >= self.patience:
            self.abandon(f"still running after {self.rounds} rounds", team)

    def abandon(self, why: str, team: Team) -> None:
        team.report(NoProgress(why), self.op.loc, team.active_lanes())
        raise Abandoned


CONTROLS: Builders = {ops.If: _If, ops.For: _For, ops.While: _While}
