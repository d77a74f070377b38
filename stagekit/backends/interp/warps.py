"""Warp operations over rows of 32 lanes: shuffles, votes and matches, and whether the lanes they name are there.

A lane reads another one's value only if that lane is active and named in the mask; else it keeps its own and, when asked
to, the interpreter says so. Masks and results are bit sets, lane 0 lowest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.findings import AbsentLaneRead, LaneNotHere, LaneOutsideMask
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.team import Team
from stagekit.diagnostics import Loc
from stagekit.ir import Native
from stagekit.limits import WARP

_LANES = np.arange(WARP)
_BITS = np.uint32(1) << _LANES.astype(np.uint32)


def pack(flags: Array) -> Array:
    """(warps, 32) bools as one bit set per warp, shape (warps, 1)."""
    return np.packbits(flags, axis=1, bitorder="little").view("<u4")


def active_rows(team: Team) -> Array:
    """Which lanes run, as rows; False in holes."""
    return team.to_warps(team.active_lanes())


# -- votes ------------------------------------------------------------------------------------------------------------


def ballot(team: Team, mask: Any, predicate: Any) -> Array:
    holds = team.to_warps(predicate) & active_rows(team)
    return team.from_warps(pack(holds) & team.to_warps(mask))


def vote_any(team: Team, mask: Any, predicate: Any) -> Array:
    return np.asarray(ballot(team, mask, predicate) != 0)


def vote_all(team: Team, mask: Any, predicate: Any) -> Array:
    return np.asarray(ballot(team, mask, ~predicate) == 0)


def active_mask(team: Team) -> Array:
    return team.from_warps(pack(active_rows(team)))


def match_any(team: Team, mask: Any, value: Any) -> Array:
    rows = team.to_warps(value)
    is_equal = (rows[:, :, None] == rows[:, None, :]) & active_rows(team)[:, None, :]
    bits = np.packbits(is_equal, axis=2, bitorder="little").view("<u4")[:, :, 0]
    return team.from_warps(bits & team.to_warps(mask))


# -- shuffles ---------------------------------------------------------------------------------------------------------


SOURCES: dict[Native, Callable[[Array], Array]] = {
    Native.SHUFFLE_IDX: lambda lane: np.broadcast_to(lane, (len(lane), WARP)),
    Native.SHUFFLE_UP: lambda distance: _LANES - distance,
    Native.SHUFFLE_DOWN: lambda distance: _LANES + distance,
    Native.SHUFFLE_XOR: lambda bits: _LANES ^ bits,
}
"""From the operand of a shuffle to the lane that each lane means, which need not exist."""


class Shuffled(NamedTuple):
    """result: per lane. source: the lane that is meant, per lane. is_absent: per lane, does that one not take part?"""

    result: Array
    source: Array
    is_absent: Array


def shuffle(team: Team, native: Native, mask: Any, value: Any, operand: Any) -> Shuffled:
    """Of an operand that is not 0 to 31 a GPU takes the remainder, as only `shfl_sync` promises."""
    given = team.to_warps(operand)
    source = SOURCES[native](given & (WARP - 1))
    if native in (Native.SHUFFLE_UP, Native.SHUFFLE_DOWN):
        source = np.where((source >= 0) & (source < WARP), source, _LANES)  # at the ends, lanes keep their own
    takes_part = active_rows(team) & ((team.to_warps(mask) & _BITS) != 0)
    is_there = np.take_along_axis(takes_part, source, axis=1)
    rows = team.to_warps(value)
    result = np.where(is_there, np.take_along_axis(rows, source, axis=1), rows)
    is_absent = ~is_there & (source != _LANES)
    if native is not Native.SHUFFLE_IDX:
        is_wild = (given < 0) | (given >= WARP)
        source, is_absent = np.where(is_wild, SOURCES[native](given), source), is_absent | is_wild
    return Shuffled(team.from_warps(result), team.from_warps(source), team.from_warps(is_absent))


# -- checks -----------------------------------------------------------------------------------------------------------


def report_absent(team: Team, shuffled: Shuffled, mask: Any, loc: Loc) -> None:
    """Report the lanes of `mask` that read from a lane that does not take part."""
    at_fault = shuffled.is_absent if mask is None else shuffled.is_absent & mask
    if not at_fault.any():
        return
    lane = int(np.argmax(at_fault))
    source, thread = int(shuffled.source[lane]), int(team.thread[lane])
    is_lane = 0 <= source < WARP
    is_real = is_lane and thread // WARP * WARP + source < team.launch.threads
    where = f"a block of {team.launch.threads} threads" if is_lane else "a warp"
    why = "does not take part" if is_real else f"does not exist in {where}"
    team.report(AbsentLaneRead(thread % WARP, source, why), loc, at_fault)


def check_members(team: Team, mask: Any, loc: Loc) -> None:
    """Report lanes that are not in their own mask, and masks that name lanes which exist but are not here."""
    masks = team.spread(mask)
    outside = team.active_lanes() & ((masks & _BITS[team.lane_id]) == 0)
    if outside.any():
        lane = int(np.argmax(outside))
        team.report(LaneOutsideMask(int(team.lane_id[lane]), int(masks[lane])), loc, outside)
    exists = team.to_warps(np.ones(team.lanes, np.bool_))
    elsewhere = exists & ~active_rows(team)
    if team.ended is not None:
        elsewhere &= ~team.to_warps(team.ended)  # a mask may name lanes that have returned
    absent = masks & team.from_warps(pack(elsewhere))
    at_fault = team.active_lanes() & (absent != 0)
    if at_fault.any():
        lane = int(np.argmax(at_fault))
        team.report(LaneNotHere(int(masks[lane]), int(absent[lane])), loc, at_fault)
