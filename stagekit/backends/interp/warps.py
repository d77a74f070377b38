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


def _from_above(distance: Array) -> Array:
    source = _LANES + distance
    return np.where(source < WARP, source, _LANES)


def _from_below(distance: Array) -> Array:
    source = _LANES - distance
    return np.where(source >= 0, source, _LANES)


SOURCES: dict[Native, Callable[[Array], Array]] = {
    Native.SHUFFLE_IDX: lambda lane: np.broadcast_to(lane, (len(lane), WARP)),
    Native.SHUFFLE_UP: _from_below,
    Native.SHUFFLE_DOWN: _from_above,
    Native.SHUFFLE_XOR: lambda bits: _LANES ^ bits,
}
"""From the operand of a shuffle (rows, 0 to 31) to the lane that each lane reads."""


_STEPS: dict[Native, Callable[[Array], Array]] = {
    Native.SHUFFLE_UP: lambda distance: _LANES - distance,
    Native.SHUFFLE_DOWN: lambda distance: _LANES + distance,
    Native.SHUFFLE_XOR: lambda bits: _LANES ^ bits,
}
"""The lane that is meant, also where the operand is not 0 to 31: a GPU takes the remainder, as only `shfl_sync` promises."""


class Shuffled(NamedTuple):
    """result: per lane. source: the lane that is meant, per lane. is_absent: per lane, does that one not take part?"""

    result: Array
    source: Array
    is_absent: Array


def shuffle(team: Team, native: Native, mask: Any, value: Any, operand: Any) -> Shuffled:
    given = team.to_warps(operand)
    source = SOURCES[native](given & (WARP - 1))
    takes_part = active_rows(team) & ((team.to_warps(mask) & _BITS) != 0)
    is_there = np.take_along_axis(takes_part, source, axis=1)
    rows = team.to_warps(value)
    result = np.where(is_there, np.take_along_axis(rows, source, axis=1), rows)
    is_absent = ~is_there & (source != _LANES)
    if native in _STEPS:
        is_wild = (given < 0) | (given >= WARP)
        source, is_absent = np.where(is_wild, _STEPS[native](given), source), is_absent | is_wild
    return Shuffled(team.from_warps(result), team.from_warps(source), team.from_warps(is_absent))


# -- checks -----------------------------------------------------------------------------------------------------------


def report_absent(team: Team, shuffled: Shuffled, mask: Any, loc: Loc) -> None:
    """Report the lanes of `mask` that read from a lane that does not take part."""
    at_fault = shuffled.is_absent if mask is None else shuffled.is_absent & mask
    if not at_fault.any():
        return
    lane = int(np.argmax(at_fault))
    source = int(shuffled.source[lane])
    thread = int(team.thread[lane])
    is_real = 0 <= source < WARP and thread // WARP * WARP + source < team.launch.threads
    where = f"a block of {team.launch.threads} threads" if 0 <= source < WARP else "a warp"
    why = "does not take part" if is_real else f"does not exist in {where}"
    team.report(AbsentLaneRead(thread % WARP, source, why), loc, at_fault)


def check_members(team: Team, mask: Any, loc: Loc) -> None:
    """Report lanes that are not in their own mask, and masks that name lanes which exist but are not here."""
    own = team.active_lanes() & ((team.spread(mask) & _BITS[team.lane_id]) == 0)
    if own.any():
        lane = int(np.argmax(own))
        team.report(LaneOutsideMask(int(team.lane_id[lane]), int(team.spread(mask)[lane])), loc, own)
    exists = team.to_warps(np.ones(team.lanes, np.bool_))
    elsewhere = team.from_warps(pack(exists & ~active_rows(team)))
    absent = team.spread(mask) & elsewhere & ~_ended(team)
    at_fault = team.active_lanes() & (absent != 0)
    if at_fault.any():
        lane = int(np.argmax(at_fault))
        team.report(LaneNotHere(int(team.spread(mask)[lane]), int(absent[lane])), loc, at_fault)


def _ended(team: Team) -> Any:
    """Lanes that have returned: a mask may name them."""
    if team.ended is None:
        return np.uint32(0)
    return team.from_warps(pack(team.to_warps(team.ended)))
