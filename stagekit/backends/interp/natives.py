"""Calls of intrinsics: one row per `Native`, and `evaluate` for all the others.

Barriers are settled on the spot where the team is a whole block; where warps take turns they are a request to the
scheduler, which answers when every warp of the block is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.backends.interp import atomics, warps
from stagekit.backends.interp.access import Place, places
from stagekit.backends.interp.checks import checks_of
from stagekit.backends.interp.findings import DivergentBarrier
from stagekit.backends.interp.meaning import native_of
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import Arrive, Builders, Built, Compiler, Control, Running, Step, Values
from stagekit.backends.interp.team import Team
from stagekit.diagnostics import InternalError
from stagekit.ir import Native, ops


def _intrinsic(c: Compiler, op: ops.IntrinsicOp) -> Built:
    native = native_of(op)
    if native is None:
        return _evaluated(c, op)
    return NATIVES[native](c, op, native)


def _evaluated(c: Compiler, op: ops.IntrinsicOp) -> Built:
    evaluate = op.spec.evaluate
    if evaluate is None:
        raise InternalError(f"the interpreter has no meaning for `{op.spec.name}`")
    result, args = c.number(op.result), c.numbers(op.args)
    dtype = op.result.type.dtype.numpy

    def step(values: Values, team: Team) -> None:
        found = np.asarray(evaluate(*(values[a] for a in args)), dtype)
        values[result] = found if found.ndim else found[()]

    return (step, *checks_of(c, op))


# -- who am I ---------------------------------------------------------------------------------------------------------


def _index(read: Callable[[Team, tuple[Any, ...]], Any]) -> Callable[..., Built]:
    def build(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
        result, params = c.number(op.result), op.params

        def step(values: Values, team: Team) -> None:
            values[result] = read(team, params)

        return (step,)

    return build


def _extent(extents: tuple[int, int, int], params: tuple[Any, ...]) -> Any:
    return np.int64(extents["xyz".index(params[0])])


# -- barriers ---------------------------------------------------------------------------------------------------------


def _barrier(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    result = c.number(op.result) if op.results else None
    predicate = c.number(op.args[0]) if op.args else None
    if c.is_scheduled:
        return _requesting(op, native, result, predicate)

    def step(values: Values, team: Team) -> None:
        counts = _block_counts(team, team.active_lanes())
        _check_present(team, counts, op)
        team.launch.order.barrier(team)
        if result is not None and predicate is not None:
            holds = _block_counts(team, team.active_lanes() & values[predicate])
            answer = _answer(native, holds, counts)
            values[result] = answer[0] if len(answer) == 1 else answer[team.row]

    return (step,)


def _block_counts(team: Team, flags: Array) -> Array:
    return np.asarray(np.count_nonzero(flags.reshape(len(team.blocks), -1), axis=1))


def _check_present(team: Team, present: Array, op: ops.IntrinsicOp) -> None:
    is_partial = (present > 0) & (present < team.block_lanes)
    if is_partial.any():
        first = int(present[np.argmax(is_partial)])
        at_fault = team.active_lanes() & is_partial[team.row]
        team.report(DivergentBarrier(first, team.launch.threads), op.loc, at_fault)


def _answer(native: Native, holds: Any, present: Any) -> Any:
    """What a barrier tells: of `present` threads, the predicate holds in `holds`."""
    if native is Native.BARRIER_COUNT:
        return np.asarray(holds, np.int32)
    return np.asarray(holds == present if native is Native.BARRIER_AND else holds > 0)


def _requesting(op: ops.IntrinsicOp, native: Native, result: int | None, predicate: int | None) -> Control:
    def control(values: Values, team: Team) -> Running:
        flags = team.active_lanes() if predicate is None else team.active_lanes() & values[predicate]
        holds, present = yield Arrive(op, int(np.count_nonzero(flags)), team.active)
        if result is not None:
            values[result] = _answer(native, holds, present)[()]

    return control


def _syncwarp(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    mask = c.number(op.args[0])
    is_checked = c.options.checks.lanes

    def step(values: Values, team: Team) -> None:
        if is_checked:
            warps.check_members(team, values[mask], op.loc)
        team.launch.order.syncwarp(team, values[mask])

    return (step,)


def _fence(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    scope = op.params[0]
    return (lambda values, team: team.launch.order.fence(team, scope),)


# -- warps ------------------------------------------------------------------------------------------------------------


def _vote(meaning: Callable[[Team, Any, Any], Array]) -> Callable[..., Built]:
    def build(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
        result, mask, value = c.numbers((op.result, *op.args))

        def step(values: Values, team: Team) -> None:
            values[result] = meaning(team, values[mask], values[value])

        return (*_member_check(c, op), step)

    return build


def _member_check(c: Compiler, op: ops.IntrinsicOp) -> tuple[Step, ...]:
    if not c.options.checks.lanes:
        return ()
    mask = c.number(op.args[0])
    return (lambda values, team: warps.check_members(team, values[mask], op.loc),)


def _shuffle(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    result, mask, value, lane = c.numbers((op.result, *op.args))
    if not c.options.checks.lanes:

        def step(values: Values, team: Team) -> None:
            values[result] = warps.shuffle(team, native, values[mask], values[value], values[lane]).result

        return (step,)
    return _checked_shuffle(c, op, native)


def _checked_shuffle(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    result, mask, value, lane = c.numbers((op.result, *op.args))
    kept = c.scratch()

    def step(values: Values, team: Team) -> None:
        values[kept] = warps.shuffle(team, native, values[mask], values[value], values[lane])
        values[result] = values[kept].result

    def check(values: Values, team: Team, used: Any) -> None:
        warps.report_absent(team, values[kept], used, op.loc)

    later = c.check_where_used(op, check)
    return (*_member_check(c, op), step, *((later,) if later else ()))


# -- atomics ----------------------------------------------------------------------------------------------------------


def _atomic(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    access = c.access(op, "atomic", op.args[0])
    result, pointer, *operands = c.numbers((op.result, *op.args))
    apply = _without_results if atomics.ATOMICS[native].add_up and not c.guards.is_used(op.result) else _with_results
    observers = c.observers

    def step(values: Values, team: Team) -> None:
        found: Any = np.zeros(team.lanes, access.dtype.numpy)
        given = [team.spread(values[n]) for n in operands]
        operand = given[0] if len(given) == 1 else np.stack(given, axis=1)
        for place in places(team, values[pointer], team.mask, access):
            for observe in observers:
                observe(team, access, place, place.pick(given[-1]))
            old = apply(atomics.ATOMICS[native], team, place, place.pick(operand))
            found[... if place.lanes is None else place.lanes] = old
        values[result] = found

    return (step,)


def _with_results(atomic: atomics.Atomic, team: Team, place: Place, operand: Array) -> Any:
    elements, index = place.view.elements, place.indices(team)
    old = atomics.update(atomic, elements, index, operand)
    team.launch.writes += int(np.any(elements[index] != old))
    return old


def _without_results(atomic: atomics.Atomic, team: Team, place: Place, operand: Array) -> Any:
    team.launch.writes += 1
    if atomic.add_up:
        atomic.add_up(place.view.elements, place.indices(team), operand)
    return 0


NATIVES: dict[Native, Callable[[Compiler, Any, Native], Built]] = {
    Native.THREAD_IDX: _index(lambda team, params: team.thread_idx(params[0])),
    Native.BLOCK_IDX: _index(lambda team, params: team.block_idx(params[0])),
    Native.BLOCK_DIM: _index(lambda team, params: _extent(team.launch.block, params)),
    Native.GRID_DIM: _index(lambda team, params: _extent(team.launch.grid, params)),
    Native.LANE_ID: _index(lambda team, params: team.lane_id),
    Native.WARP_ID: _index(lambda team, params: team.warp_id),
    Native.BARRIER: _barrier,
    Native.BARRIER_COUNT: _barrier,
    Native.BARRIER_AND: _barrier,
    Native.BARRIER_OR: _barrier,
    Native.WARP_BARRIER: _syncwarp,
    Native.FENCE: _fence,
    **dict.fromkeys(warps.SOURCES, _shuffle),
    Native.BALLOT: _vote(warps.ballot),
    Native.VOTE_ANY: _vote(warps.vote_any),
    Native.VOTE_ALL: _vote(warps.vote_all),
    Native.MATCH_ANY: _vote(warps.match_any),
    Native.ACTIVE_MASK: _index(lambda team, params: warps.active_mask(team)),
    **dict.fromkeys(atomics.ATOMICS, _atomic),
}

CALLS: Builders = {ops.IntrinsicOp: _intrinsic}

__all__ = ["CALLS", "NATIVES"]
