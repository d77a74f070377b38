"""A team: threads that run as one vector, one array lane per thread, under one mask.

A team is a whole block, several blocks side by side, or one warp of a block that takes turns with the others. `mask` says
which lanes are active (None: all), `ended` which have returned from the kernel. `values` holds every SSA value by number:
a NumPy scalar where it was computed from what all lanes agree on, else an array with one element per lane.

Warps are rows of 32: `to_warps` lays lanes out as (warps, 32), with a hole for every thread that a last warp lacks.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stagekit.backends.interp.findings import Finding, Index3, Who
from stagekit.backends.interp.memory import Allocation, Array
from stagekit.diagnostics import Diagnostic, Loc, Note
from stagekit.ir import Space
from stagekit.limits import WARP

if TYPE_CHECKING:
    from stagekit.backends.interp.launch import Launch

WARP_SHIFT = WARP.bit_length() - 1
AXES = "xyz"


class Team:
    """Some threads of one or more blocks. `first`: number of the first thread of each block that belongs to it.

    blocks: linear block numbers. lanes: threads in all. `block_lanes`: threads per block. Every lane is a real thread.
    memory: shared allocations of these blocks by number. local: as `memory`, of these lanes.
    """

    def __init__(self, launch: Launch, blocks: Array, first: int, block_lanes: int, memory: list[Allocation]) -> None:
        self.launch = launch
        self.blocks = blocks
        self.first = first
        self.block_lanes = block_lanes
        self.lanes = block_lanes * len(blocks)
        self.memory = memory
        self.local: dict[int, Allocation] = {}
        self.mask: Array | None = None
        self.active = self.lanes
        self.ended: Array | None = None
        self.values: list[Any] = launch.program.fresh_values(launch.params)

    # -- who is who ---------------------------------------------------------------------------------------------------

    @cached_property
    def thread(self) -> Array:
        """Number of each lane's thread within its block."""
        return np.tile(np.arange(self.first, self.first + self.block_lanes), len(self.blocks))

    @cached_property
    def row(self) -> Array:
        """Which of the team's blocks each lane belongs to."""
        return np.repeat(np.arange(len(self.blocks)), self.block_lanes)

    @cached_property
    def block(self) -> Any:
        """Linear number of each lane's block: a scalar for one block."""
        return self.blocks[0] if len(self.blocks) == 1 else self.blocks[self.row]

    @cached_property
    def tag(self) -> Array:
        """Each lane's thread, unique within the launch; see `Launch.tag_shift`."""
        return np.asarray(((self.block + 1) << self.launch.tag_shift) | self.thread)

    @cached_property
    def warp_tag(self) -> Array:
        """Each lane's warp, unique within the launch."""
        return self.tag >> WARP_SHIFT

    @cached_property
    def _thread_axes(self) -> tuple[Any, ...]:
        return unravel(self.thread, self.launch.block)

    @cached_property
    def _block_axes(self) -> tuple[Any, ...]:
        return unravel(self.block, self.launch.grid)

    def thread_idx(self, axis: str) -> Any:
        return self._thread_axes[AXES.index(axis)]

    def block_idx(self, axis: str) -> Any:
        return self._block_axes[AXES.index(axis)]

    @cached_property
    def lane_id(self) -> Array:
        return self.thread % WARP

    @cached_property
    def warp_id(self) -> Array:
        return self.thread // WARP

    def who(self, lane: int) -> Who:
        return self.launch.who(int(self.tag[lane]))

    def report(
        self,
        diagnostic: Diagnostic,
        loc: Loc,
        at_fault: Array,
        key: Hashable = None,
        notes: tuple[Note, ...] = (),
        lane: int | None = None,
    ) -> None:
        """Record what is wrong in the lanes `at_fault`: once per kind of fault, place and `key`.

        lane: the one to name; left out, the first.
        """
        sink, count = self.launch.sink, int(np.count_nonzero(at_fault))
        full_key = (diagnostic.id, loc, key)
        if sink.is_new(full_key, count):
            who = self.who(int(np.argmax(at_fault)) if lane is None else lane)
            sink.add(full_key, Finding(diagnostic, loc, who, notes, count))

    # -- masks --------------------------------------------------------------------------------------------------------

    def enter(self, mask: Array | None, active: int) -> None:
        """Go on with the lanes of `mask`, `active` in number."""
        self.mask, self.active = mask, active

    def end(self, lanes: Array) -> None:
        """`lanes` have returned from the kernel."""
        self.ended = lanes if self.ended is None else self.ended | lanes

    def active_lanes(self) -> Array:
        """The mask as an array."""
        return np.ones(self.lanes, np.bool_) if self.mask is None else self.mask

    def spread(self, value: Any) -> Array:
        """`value` with one element per lane."""
        return value if isinstance(value, np.ndarray) else np.full(self.lanes, value)

    # -- warps --------------------------------------------------------------------------------------------------------

    @cached_property
    def warp_rows(self) -> int:
        return len(self.blocks) * -(-self.block_lanes // WARP)

    @cached_property
    def _places(self) -> Array | None:
        """Where each lane stands among the rows of warps; None when rows have no holes."""
        if self.block_lanes % WARP == 0:
            return None
        return np.asarray(self.row * (self.warp_rows // len(self.blocks) * WARP) + self.thread - self.first)

    def to_warps(self, value: Any) -> Array:
        """One row of 32 per warp; holes are 0."""
        spread = self.spread(value)
        if self._places is None:
            return spread.reshape(-1, WARP)
        padded = np.zeros(self.warp_rows * WARP, spread.dtype)
        padded[self._places] = spread
        return padded.reshape(-1, WARP)

    def from_warps(self, rows: Array) -> Array:
        """One element per lane; `rows` has one row per warp, of 32 elements or of one that all lanes share."""
        full = np.broadcast_to(rows, (self.warp_rows, WARP)).reshape(-1)
        return full.copy() if self._places is None else full[self._places]

    # -- memory -------------------------------------------------------------------------------------------------------

    @cached_property
    def _local_rows(self) -> Array:
        return np.arange(self.lanes)

    def copy_of(self, space: Space) -> Array | None:
        """Which copy of an allocation each lane uses; None: there is one."""
        if space is Space.LOCAL:
            return self._local_rows
        return self.row if space is Space.SHARED and len(self.blocks) > 1 else None


def unravel(number: Any, extents: Index3) -> tuple[Any, Any, Any]:
    """The index along x, y, z of a linear number; 0 along an axis of one."""
    x, y, _ = extents
    if extents[1:] == (1, 1):
        return number, np.int64(0), np.int64(0)
    return number % x, number // x % y, number // (x * y)
