"""Calls of intrinsics: one row per `Native`, and `evaluate` for all the others.

A block barrier is a request to the scheduler, which answers when every team of the block is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.backends.interp import warps
from stagekit.backends.interp.analysis import native_of
from stagekit.backends.interp.atomics import ATOMICS, build_atomic
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import Arrive, Builders, Built, Compiler, Running, Step
from stagekit.backends.interp.steps import computed
from stagekit.backends.interp.team import AXES, Team, Values
from stagekit.diagnostics import InternalError
from stagekit.ir import Native, ops

NativeBuilder = Callable[[Compiler, ops.IntrinsicOp, Native], Built]


def _intrinsic(c: Compiler, op: ops.IntrinsicOp) -> Built:
    native = native_of(op)
    if native is None:
        return _build_evaluated(c, op)
    c.natives.add((native, op.params))
    return NATIVES[native](c, op, native)


def _evaluated(op: ops.IntrinsicOp) -> Callable[..., Any]:
    evaluate = op.spec.evaluate
    if evaluate is None:
        raise InternalError(f"the interpreter has no meaning for `{op.spec.name}`")
    dtype = op.result.type.dtype.numpy

    def meaning(*args: Any) -> Any:
        found = np.asarray(evaluate(*args), dtype)
        return found if found.ndim else found[()]

    return meaning


_build_evaluated = computed(_evaluated)


def _of_team(meaning: Callable[..., Any]) -> NativeBuilder:
    """The builder of what depends on the team, compile-time parameters and arguments, of which the first is a mask."""

    def build(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
        result, *args = c.numbers((op.result, *op.args))
        params = op.params

        def step(values: Values, team: Team) -> None:
            values[result] = meaning(team, *params, *map(values.__getitem__, args))

        return (*_member_check(c, op), step)

    return build


def _member_check(c: Compiler, op: ops.IntrinsicOp) -> tuple[Step, ...]:
    """The check of the mask that a warp operation takes as its first argument, if it takes one."""
    if not (c.options.checks.lanes and op.args):
        return ()
    mask = c.number(op.args[0])
    return (lambda values, team: warps.check_members(team, values[mask], op.loc),)


def _extent(extents: tuple[int, int, int], axis: str) -> Any:
    return np.int64(extents[AXES.index(axis)])


# -- synchronisation --------------------------------------------------------------------------------------------------


def _barrier(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    result = c.number(op.result) if op.results else None
    predicate = c.number(op.args[0]) if op.args else None

    def per_block(team: Team, flags: Array) -> Array:
        return np.asarray(flags.reshape(len(team.blocks), -1).sum(axis=1))

    def control(values: Values, team: Team) -> Running:
        here = team.active_lanes()
        present = per_block(team, here)
        holds = present if predicate is None else per_block(team, here & values[predicate])
        counts = yield Arrive(op, holds, present)
        if result is not None:
            answer = _ANSWERS[native](*counts)
            values[result] = answer[0] if len(answer) == 1 else answer[team.row]

    return control


_ANSWERS: dict[Native, Callable[[Array, Array], Array]] = {
    Native.BARRIER_COUNT: lambda holds, present: holds.astype(np.int32),
    Native.BARRIER_AND: lambda holds, present: np.asarray(holds == present),
    Native.BARRIER_OR: lambda holds, present: np.asarray(holds > 0),
}
"""What a barrier tells: of the threads of a block that are `present`, the predicate holds in so many."""


def _syncwarp(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    mask = c.number(op.args[0])

    def step(values: Values, team: Team) -> None:
        for watcher in team.launch.watchers:
            watcher.syncwarp(team, values[mask])

    return (*_member_check(c, op), step)


def _fence(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    def step(values: Values, team: Team) -> None:
        for watcher in team.launch.watchers:
            watcher.fence(team, op.params[0])

    return (step,)


# -- warps ------------------------------------------------------------------------------------------------------------


def _shuffle(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    result, mask, value, lane = c.numbers((op.result, *op.args))
    kept = c.constant(None)

    def step(values: Values, team: Team) -> None:
        values[kept] = warps.shuffle(team, native, values[mask], values[value], values[lane])
        values[result] = values[kept].result

    def check(values: Values, team: Team, used: Any) -> None:
        warps.report_absent(team, values[kept], used, op.loc)

    later = c.check_where_used(op, check) if c.options.checks.lanes else ()
    return (*_member_check(c, op), step, *later)


NATIVES: dict[Native, NativeBuilder] = {
    Native.THREAD_IDX: _of_team(lambda team, axis: team.thread_idx[AXES.index(axis)]),
    Native.BLOCK_IDX: _of_team(lambda team, axis: team.block_idx[AXES.index(axis)]),
    Native.BLOCK_DIM: _of_team(lambda team, axis: _extent(team.launch.block, axis)),
    Native.GRID_DIM: _of_team(lambda team, axis: _extent(team.launch.grid, axis)),
    Native.LANE_ID: _of_team(lambda team: team.lane_id),
    Native.WARP_ID: _of_team(lambda team: team.warp_id),
    Native.BARRIER: _barrier,
    Native.BARRIER_COUNT: _barrier,
    Native.BARRIER_AND: _barrier,
    Native.BARRIER_OR: _barrier,
    Native.WARP_BARRIER: _syncwarp,
    Native.FENCE: _fence,
    **dict.fromkeys(warps.SOURCES, _shuffle),
    Native.BALLOT: _of_team(warps.ballot),
    Native.VOTE_ANY: _of_team(warps.vote_any),
    Native.VOTE_ALL: _of_team(warps.vote_all),
    Native.MATCH_ANY: _of_team(warps.match_any),
    Native.ACTIVE_MASK: _of_team(warps.active_mask),
    **dict.fromkeys(ATOMICS, build_atomic),
}

CALLS: Builders = {ops.IntrinsicOp: _intrinsic}
