"""Control flow under masks: both arms run where lanes disagree, and loops run until the last lane has left.

A condition that is one scalar decides for the whole team. Where lanes disagree, each arm runs under its part of the mask, and
results are chosen lane by lane. Lanes that have left a loop keep the values they left with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stagekit.backends.interp.findings import NoProgress, OutOfBounds
from stagekit.backends.interp.memory import Array, choose
from stagekit.backends.interp.program import Builders, Code, Compiler, Running, Turn, execute, scalar_dtype
from stagekit.backends.interp.team import Team, Values
from stagekit.ir import Op, ops, walk

_LOOK_EVERY = 1024  # rounds of a loop between two checks that it makes progress
_ROUNDS_ASTRAY = 16 * _LOOK_EVERY  # of a loop, once something was read outside an array


class Abandoned(Exception):
    """Raised when the launch cannot go on; the reason has been reported."""


def _assign(values: Values, targets: Sequence[int], new: Sequence[Any]) -> None:
    for target, value in zip(targets, new):
        values[target] = value


def _read(values: Values, numbers: Sequence[int]) -> list[Any]:
    return list(map(values.__getitem__, numbers))


def _merge(lanes: Array, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    return [choose(lanes, a, b) for a, b in zip(new, old)]


def _holding(flag: Any, team: Team) -> tuple[Any, int]:
    """Return the active lanes in which `flag` holds (False for none), and their number."""
    if not isinstance(flag, np.ndarray):
        return (team.mask, team.active) if flag else (False, 0)
    lanes = flag if team.mask is None else flag & team.mask
    return lanes, int(np.count_nonzero(lanes))


# -- if ---------------------------------------------------------------------------------------------------------------


class _IfControl:
    """The control of one `if`. then_ends, else_ends: whether lanes that take this arm have nothing left to do in the kernel."""

    def __init__(self, c: Compiler, op: ops.If) -> None:
        self.loc = op.loc
        self.condition, self.results = c.number(op.condition), c.numbers(op.results)
        self.then_code, self.else_code = c.block(op.then_body), c.block(op.else_body)
        may_end = c.options.checks.lanes and op in c.tails
        self.then_ends, self.else_ends = (may_end and not any(o.effects for o in walk(body)) for body in op.bodies())

    def __call__(self, values: Values, team: Team) -> Running:
        flag = values[self.condition]
        taken, count = _holding(flag, team)
        if isinstance(flag, np.ndarray):
            for watcher in team.launch.watchers:
                watcher.branch(team, self.loc, taken)
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


# -- for --------------------------------------------------------------------------------------------------------------


class _ForControl:
    """The control of one `for`."""

    def __init__(self, c: Compiler, op: ops.For) -> None:
        self.bounds = c.numbers((op.start, op.stop, op.step))
        self.inits, self.results = c.numbers(op.inits), c.numbers(op.results)
        self.make = scalar_dtype(op.start).numpy.type
        self.code = c.block(op.loop_body)
        self.counter, *self.carried = self.code.params

    def __call__(self, values: Values, team: Team) -> Running:
        outer, active = team.mask, team.active
        current = _read(values, self.inits)
        team.rounds.append(0)
        for i, lanes in self.rounds(values, team):
            team.rounds[-1] += 1
            values[self.counter] = i
            _assign(values, self.carried, current)
            yield from execute(self.code, values, team)
            following = _read(values, self.code.yields)
            current = following if lanes is None else _merge(lanes, following, current)
        team.rounds.pop()
        team.enter(outer, active)
        _assign(values, self.results, current)

    def rounds(self, values: Values, team: Team) -> Iterator[tuple[Any, Array | None]]:
        """Yield the counter of each round and the lanes that run it (None for all active ones), which the team has entered.

        Where lanes have different numbers of rounds, round k is run by those that have more than k.
        """
        start, stop, step = _read(values, self.bounds)
        if not any(isinstance(bound, np.ndarray) for bound in (start, stop, step)):
            for each in range(int(start), int(stop), int(step)) if step else ():
                yield self.make(each), None
            return
        trips = _trips(team.spread(start), team.spread(stop), team.spread(step))
        if team.mask is not None:
            trips = np.where(team.mask, trips, np.uint64(0))
        i, k, everyone = start, 0, team.active
        while (count := int(np.count_nonzero(lanes := trips > k))) > 0:
            if count < everyone:
                team.enter(lanes, count)
            yield i, None if count == everyone else lanes
            i, k = i + step, k + 1


def _trips(start: Array, stop: Array, step: Array) -> Array:
    """Return how many rounds `range(start, stop, step)` has, lane by lane, as uint64; none where `step` is 0."""
    is_up, is_down = step > 0, step < 0
    runs = (is_up & (start < stop)) | (is_down & (start > stop))
    low, high = np.where(is_up, start, stop), np.where(is_up, stop, start)
    distance = high.astype(np.uint64) - low.astype(np.uint64)
    size = np.where(is_down, (-step.astype(np.int64)).astype(np.uint64), step.astype(np.uint64)) | (step == 0)
    return np.where(runs, (distance - np.uint64(1)) // size + np.uint64(1), np.uint64(0))


# -- while ------------------------------------------------------------------------------------------------------------


class _WhileControl:
    """The control of one `while`. waits: whether it may wait for another thread."""

    def __init__(self, c: Compiler, op: ops.While) -> None:
        self.op = op
        self.inits, self.results = c.numbers(op.inits), c.numbers(op.results)
        self.before, self.after = c.block(op.before), c.block(op.after)
        self.waits = op in c.waiting
        self.patience = c.options.max_iterations

    def __call__(self, values: Values, team: Team) -> Running:
        outer, active = team.mask, team.active
        current = _read(values, self.inits)
        left: list[Any] = []  # per result, the values of the lanes that have left the loop
        watch = _Watch(self.op, self.patience, self.waits)
        team.rounds.append(0)
        while True:
            team.rounds[-1] += 1
            _assign(values, self.before.params, current)
            yield from execute(self.before, values, team)
            flag, *found = _read(values, self.before.yields)
            going, count = _holding(flag, team)
            if count < team.active:
                leaving = team.mask if going is False else ~going if team.mask is None else team.mask & ~going
                left = _merge(leaving, found, left) if left and leaving is not None else found
                team.enter(going, count)
            if not count:
                break
            _assign(values, self.after.params, found)
            yield from execute(self.after, values, team)
            following = _read(values, self.after.yields)
            watch.round(following, current, team)
            if self.waits:
                yield Turn(self.op, _is_same(following, current, team))
            current = following
        team.rounds.pop()
        team.enter(outer, active)
        _assign(values, self.results, left)


def _is_same(new: list[Any], old: list[Any], team: Team) -> bool:
    """Return whether the active lanes carry the values that they carried a round ago."""
    return all(_equal(a, b, team) for a, b in zip(new, old))


def _equal(a: Any, b: Any, team: Team) -> bool:
    if a is b:
        return True
    if not isinstance(a, np.ndarray | np.generic):
        return False  # pointers are rare, and count as changed
    same = np.asarray(a == b) | (np.asarray(a != a) & np.asarray(b != b))
    return bool(np.all(same if team.mask is None else same | ~team.mask))


class _Watch:
    """Ends a loop that makes no progress: a round changed neither a carried value nor memory, or there were too many rounds.

    Of a loop that `waits` for other threads, only the rounds are counted: the scheduler sees whether anybody makes progress.
    writes: `launch.writes` at the last check.
    """

    def __init__(self, op: Op, patience: int, waits: bool) -> None:
        self.op, self.patience, self.waits = op, patience, waits
        self.rounds = 0
        self.writes = -1

    def round(self, new: list[Any], old: list[Any], team: Team) -> None:
        self.rounds += 1
        if self.rounds % _LOOK_EVERY:
            return
        is_stuck = not self.waits and _is_same(new, old, team) and team.launch.writes == self.writes
        self.writes = team.launch.writes
        if is_stuck:
            self.abandon(f"after {self.rounds} rounds, nothing that the loop looks at has changed", team)
        if self.rounds >= _ROUNDS_ASTRAY and team.launch.sink.has(OutOfBounds.id):
            raise Abandoned  # it follows a value read outside an array, as the finding says
        if self.rounds >= self.patience:
            self.abandon(f"still running after {self.rounds} rounds", team)

    def abandon(self, why: str, team: Team) -> None:
        team.report(NoProgress(why), self.op.loc, team.active_lanes())
        raise Abandoned


CONTROLS: Builders = {ops.If: _IfControl, ops.For: _ForControl, ops.While: _WhileControl}
