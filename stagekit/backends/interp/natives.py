"""Calls of intrinsics: one row per `Native`, and `evaluate` for all the others.

A block barrier is a request to the scheduler, which answers when every team of the block has arrived. Warp operations work on
rows of 32 lanes; their masks and results are bit sets, lane 0 lowest. A lane reads another one's value only if that lane is
active and named in the mask; otherwise it keeps its own, and the check of lanes reports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.asynchronous import build_bulk_commit, build_bulk_copy, build_bulk_wait, build_proxy_fence
from stagekit.backends.interp.atomics import ATOMICS, build_atomic, build_load, build_pair, build_store
from stagekit.backends.interp.clusters import build_cluster_barrier, build_peer
from stagekit.backends.interp.findings import AbsentLaneRead, LaneNotHere, LaneOutsideMask, MasksDiffer
from stagekit.backends.interp.mbarriers import build_mbarrier
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.program import Arrive, Builders, Built, Compiler, Running, Step, native_of
from stagekit.backends.interp.roles import build_named_barrier, build_registers
from stagekit.backends.interp.steps import computed
from stagekit.backends.interp.team import AXES, Team, Values, bit_sets
from stagekit.backends.interp.tensor import build_commit, build_copy, build_fragments, build_product, build_wait
from stagekit.backends.interp.tiles import build_tensor_map, build_tile_copy
from stagekit.backends.interp.warpgroups import build_warpgroup
from stagekit.diagnostics import InternalError, Loc
from stagekit.ir import Native, ops
from stagekit.ir.intrinsic import BARRIERS
from stagekit.limits import WARP

NativeBuilder = Callable[[Compiler, ops.IntrinsicOp, Native], Built]

_LANES = np.arange(WARP)
_BITS = np.uint32(1) << _LANES.astype(np.uint32)


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
    """Return the builder of an operation on the team, compile-time parameters and arguments, of which the first is a mask."""

    def build(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
        result, *args = c.numbers((op.result, *op.args))
        params = op.params

        def step(values: Values, team: Team) -> None:
            values[result] = meaning(team, *params, *map(values.__getitem__, args))

        return (*_member_check(c, op), step)

    return build


def _member_check(c: Compiler, op: ops.IntrinsicOp) -> tuple[Step, ...]:
    """Return the check of the mask that a warp operation takes as its first argument, if it takes one."""
    if not (c.options.checks.lanes and op.args):
        return ()
    mask = c.number(op.args[0])
    return (lambda values, team: _check_members(team, values[mask], op.loc),)


def _of_whole_warps(build: NativeBuilder) -> NativeBuilder:
    """Return the builder of an operation in which every lane of a warp takes part."""

    def built(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
        steps: Any = build(c, op, native)
        if not c.options.checks.lanes:
            return steps  # type: ignore[no-any-return]
        return (lambda values, team: _check_members(team, np.uint32(0xFFFFFFFF), op.loc), *steps)

    return built


def _check_members(team: Team, mask: Any, loc: Loc) -> None:
    """Report lanes that are not in their own mask, and masks that name lanes which are not here or have another mask."""
    masks = team.spread(mask)
    outside = team.active_lanes() & ((masks & _BITS[team.lane_id]) == 0)
    if outside.any():
        lane = int(np.argmax(outside))
        team.report(LaneOutsideMask(int(team.lane_id[lane]), int(masks[lane])), loc, outside)
    elsewhere = team.existing_rows & ~team.active_rows()
    if team.ended is not None:
        elsewhere &= ~team.to_warps(team.ended)  # a mask may name lanes that have returned
    absent = masks & team.from_warps(bit_sets(elsewhere)[:, None])
    at_fault = team.active_lanes() & (absent != 0)
    if at_fault.any():
        lane = int(np.argmax(at_fault))
        team.report(LaneNotHere(int(masks[lane]), int(absent[lane])), loc, at_fault)
    if isinstance(mask, np.ndarray):
        _check_agreement(team, masks, loc)


def _check_agreement(team: Team, masks: Array, loc: Loc) -> None:
    """Report masks that name a lane which runs this with another mask. Groups that do not name each other may differ."""
    rows = team.to_warps(masks)
    if not np.count_nonzero(rows != rows[:, :1]):
        return
    here = team.from_warps(bit_sets(team.active_rows())[:, None])
    strays = masks & here & ~_match_any(team, masks, masks)
    at_fault = team.active_lanes() & (strays != 0)
    if at_fault.any():
        lane = int(np.argmax(at_fault))
        stray = int(strays[lane] & -strays[lane]).bit_length() - 1
        other = masks[lane - int(team.lane_id[lane]) + stray]
        team.report(MasksDiffer(int(masks[lane]), int(team.lane_id[lane]), stray, int(other)), loc, at_fault)


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
        counts = yield Arrive(op, holds, present, tuple(team.rounds))
        if result is not None:
            answer = _ANSWERS[native](*counts)
            values[result] = answer[0] if len(answer) == 1 else answer[team.row]

    return control


_ANSWERS: dict[Native, Callable[[Array, Array], Array]] = {
    Native.BARRIER_COUNT: lambda holds, present: holds.astype(np.int32),
    Native.BARRIER_AND: lambda holds, present: np.asarray(holds == present),
    Native.BARRIER_OR: lambda holds, present: np.asarray(holds > 0),
}
"""The result of a barrier, by the number of threads of a block in which the predicate holds, and of those `present`."""


def _syncwarp(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    mask = c.number(op.args[0])

    def step(values: Values, team: Team) -> None:
        for watcher in team.launch.watchers:
            watcher.syncwarp(team, values[mask])

    return (*_member_check(c, op), step)


def _fence(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    def step(values: Values, team: Team) -> None:
        for watcher in team.launch.watchers:
            watcher.fence(team, op.params[1])

    return (step,)


# -- votes ------------------------------------------------------------------------------------------------------------


def _ballot(team: Team, mask: Any, predicate: Any) -> Array:
    holds = team.to_warps(predicate) & team.active_rows()
    return team.from_warps(bit_sets(holds)[:, None] & team.to_warps(mask))


def _match_any(team: Team, mask: Any, value: Any) -> Array:
    rows = team.to_warps(value)
    is_equal = (rows[:, :, None] == rows[:, None, :]) & team.active_rows()[:, None, :]
    return team.from_warps(bit_sets(is_equal) & team.to_warps(mask))


# -- shuffles ---------------------------------------------------------------------------------------------------------


_SOURCES: dict[Native, Callable[[Array], Array]] = {
    Native.SHUFFLE_IDX: lambda lane: np.broadcast_to(lane, (len(lane), WARP)),  # of the first `width` lanes
    Native.SHUFFLE_UP: lambda distance: _LANES - distance,
    Native.SHUFFLE_DOWN: lambda distance: _LANES + distance,
    Native.SHUFFLE_XOR: lambda bits: _LANES ^ bits,
}
"""From the operand of a shuffle to the lane that each lane reads, which need not exist."""


class _Shuffled(NamedTuple):
    """The outcome of a shuffle, each per lane. source: the lane to read. is_absent: whether that lane does not take part."""

    result: Array
    source: Array
    is_absent: Array


def _shuffle(team: Team, native: Native, width: int, mask: Any, value: Any, operand: Any) -> _Shuffled:
    """Shuffle as a GPU does, which takes an operand modulo 32; only `shfl_sync` promises that, so others count as absent."""
    given = team.to_warps(operand)
    source, first = _SOURCES[native](given & (WARP - 1)), _LANES & -width
    if native is Native.SHUFFLE_IDX:
        source = first | source & (width - 1)
    elif native is not Native.SHUFFLE_XOR:
        source = np.where((source & -width) == first, source, _LANES)  # at the ends, lanes keep their own
    takes_part = team.active_rows() & ((team.to_warps(mask) & _BITS) != 0)
    is_there = np.take_along_axis(takes_part, source, axis=1)
    rows = team.to_warps(value)
    result = np.where(is_there, np.take_along_axis(rows, source, axis=1), rows)
    is_absent = ~is_there & (source != _LANES)
    if native is not Native.SHUFFLE_IDX:
        is_wild = (given < 0) | (given >= (width if native is Native.SHUFFLE_XOR else WARP))
        source, is_absent = np.where(is_wild, _SOURCES[native](given), source), is_absent | is_wild
    return _Shuffled(team.from_warps(result), team.from_warps(source), team.from_warps(is_absent))


def _build_shuffle(c: Compiler, op: ops.IntrinsicOp, native: Native) -> Built:
    result, mask, value, lane = c.numbers((op.result, *op.args))
    (width,) = op.params
    shuffled = c.constant(None)

    def step(values: Values, team: Team) -> None:
        values[shuffled] = _shuffle(team, native, width, values[mask], values[value], values[lane])
        values[result] = values[shuffled].result

    def suspects(values: Values) -> Array:
        absent: Array = values[shuffled].is_absent
        return absent

    def report(values: Values, team: Team, at_fault: Array) -> None:
        _report_absent(team, values[shuffled], at_fault, op.loc)

    later = c.check_where_used(op, c.uses.of(op), suspects, report) if c.options.checks.lanes else ()
    return (*_member_check(c, op), step, *later)


def _report_absent(team: Team, shuffled: _Shuffled, at_fault: Array, loc: Loc) -> None:
    """Report lanes that read from a lane that does not take part."""
    lane = int(np.argmax(at_fault))
    source, thread = int(shuffled.source[lane]), int(team.thread[lane])
    is_lane = 0 <= source < WARP
    is_real = is_lane and thread // WARP * WARP + source < team.launch.threads
    where = f"a block of {team.launch.threads} threads" if is_lane else "a warp"
    why = "does not take part" if is_real else f"does not exist in {where}"
    team.report(AbsentLaneRead(thread % WARP, source, why), loc, at_fault)


NATIVES: dict[Native, NativeBuilder] = {
    Native.THREAD_IDX: _of_team(lambda team, axis: team.thread_idx[AXES.index(axis)]),
    Native.BLOCK_IDX: _of_team(lambda team, axis: team.block_idx[AXES.index(axis)]),
    Native.BLOCK_DIM: _of_team(lambda team, axis: np.int64(team.launch.block[AXES.index(axis)])),
    Native.GRID_DIM: _of_team(lambda team, axis: np.int64(team.launch.grid[AXES.index(axis)])),
    Native.CLUSTER_RANK: _of_team(lambda team: team.cluster_rank),
    Native.CLUSTER_BLOCKS: _of_team(lambda team: np.int64(math.prod(team.launch.cluster))),
    Native.CLUSTER_DIM: _of_team(lambda team, axis: np.int64(team.launch.cluster[AXES.index(axis)])),
    Native.BLOCK_IDX_IN_CLUSTER: _of_team(lambda team, axis: team.block_idx_in_cluster[AXES.index(axis)]),
    Native.CLUSTER_IDX: _of_team(lambda team, axis: team.cluster_idx[AXES.index(axis)]),
    Native.CLUSTER_BARRIER: build_cluster_barrier,
    Native.NAMED_BARRIER: build_named_barrier,
    Native.REGISTERS: build_registers,
    Native.PEER: build_peer,
    Native.LANE_ID: _of_team(lambda team: team.lane_id),
    Native.WARP_ID: _of_team(lambda team: team.warp_id),
    **dict.fromkeys(BARRIERS, _barrier),
    Native.WARP_BARRIER: _syncwarp,
    Native.FENCE: _fence,
    Native.GIVE_WAY: lambda c, op, native: (),
    **dict.fromkeys(_SOURCES, _build_shuffle),
    Native.BALLOT: _of_team(_ballot),
    Native.VOTE_ANY: _of_team(lambda team, mask, predicate: _ballot(team, mask, predicate) != 0),
    Native.VOTE_ALL: _of_team(lambda team, mask, predicate: _ballot(team, mask, ~predicate) == 0),
    Native.MATCH_ANY: _of_team(_match_any),
    Native.ACTIVE_MASK: _of_team(lambda team: team.from_warps(bit_sets(team.active_rows())[:, None])),
    **dict.fromkeys(ATOMICS, build_atomic),
    **dict.fromkeys((Native.ATOMIC_EXCHANGE_PAIR, Native.ATOMIC_CAS_PAIR), build_pair),
    Native.ATOMIC_LOAD: build_load,
    Native.ATOMIC_STORE: build_store,
    Native.WARP_PRODUCT: _of_whole_warps(build_product),
    Native.FRAGMENTS: _of_whole_warps(build_fragments),
    Native.COPY_ASYNC: build_copy,
    Native.COPY_COMMIT: build_commit,
    Native.COPY_WAIT: build_wait,
    Native.MBARRIER: build_mbarrier,
    Native.BULK_COPY: build_bulk_copy,
    Native.BULK_COMMIT: build_bulk_commit,
    Native.BULK_WAIT: build_bulk_wait,
    Native.PROXY_FENCE: build_proxy_fence,
    Native.TENSOR_MAP: build_tensor_map,
    Native.TILE_COPY: build_tile_copy,
    Native.WARPGROUP_PRODUCT: _of_whole_warps(build_warpgroup),
}

CALLS: Builders = {ops.IntrinsicOp: _intrinsic}
