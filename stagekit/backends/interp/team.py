"""Who runs, what they touch, and who is told: a launch, its teams of threads, their accesses of memory, and its watchers.

A team is a whole block, several blocks side by side, or one warp of a block that takes turns with the others. `Team.mask`
says which lanes are active (None: all), `ended` which have returned from the kernel. `values` holds every SSA value by number:
a NumPy scalar where it was computed from what all lanes agree on, else an array with one element per lane.

Warps are rows of 32: `to_warps` lays lanes out as (warps, 32), with a hole for every thread that a last warp lacks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from stagekit.backends.interp.findings import FindingSink, Index3, Message, Who
from stagekit.backends.interp.memory import Allocation, Array, View, in_lane
from stagekit.backends.interp.options import Options
from stagekit.diagnostics import Diagnostic, Loc, Note
from stagekit.dtypes import DType
from stagekit.ir import Space
from stagekit.limits import WARP

WARP_SHIFT = WARP.bit_length() - 1
AXES = "xyz"

Values = list[Any]
Role = Literal["read", "write", "atomic"]
Scope = Literal["block", "device", "system"]


# -- a launch ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Launch:
    """One launch while it runs: its extents, its arrays, and where everything that is seen goes.

    grid: blocks, block: threads, along x, y, z. params: the value of each parameter. prints, failures: in order.
    writes: counts accesses that changed memory; as long as it stands still, a waiting warp waits in vain.
    tag_shift: a thread's *tag* is one more than its block's number, shifted left by this, or its number in the block: so
    0 is nobody, and block and warp are a shift away.
    """

    grid: Index3
    block: Index3
    dynamic_shared_bytes: int
    params: tuple[Any, ...]
    allocations: tuple[Allocation, ...]
    options: Options
    sink: FindingSink
    watchers: tuple[Watcher, ...] = ()
    prints: list[Message] = field(default_factory=list)
    failures: list[Message] = field(default_factory=list)
    writes: int = 0

    def __post_init__(self) -> None:
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.warps = -(-self.threads // WARP)
        self.blocks = self.grid[0] * self.grid[1] * self.grid[2]
        self.tag_shift = max((self.threads - 1).bit_length(), WARP_SHIFT)

    def who(self, tag: int) -> Who:
        """The thread that a tag stands for."""
        block, thread = (tag >> self.tag_shift) - 1, tag & ((1 << self.tag_shift) - 1)
        (bx, by, bz), (tx, ty, tz) = unravel(block, self.grid), unravel(thread, self.block)
        return Who((int(bx), int(by), int(bz)), (int(tx), int(ty), int(tz)))


def unravel(number: Any, extents: Index3) -> tuple[Any, Any, Any]:
    """The index along x, y, z of a linear number; 0 along an axis of one."""
    x, y, _ = extents
    if extents[1:] == (1, 1):
        return number, np.int64(0), np.int64(0)
    return number % x, number // x % y, number // (x * y)


# -- threads that run as one ------------------------------------------------------------------------------------------


class Team:
    """Some threads of one or more blocks. `first`: number of the first thread of each block that belongs to it.

    blocks: linear block numbers. lanes: threads in all. `block_lanes`: threads per block. Every lane is a real thread.
    memory: shared allocations of these blocks by number. local: as `memory`, of these lanes.
    """

    def __init__(
        self, launch: Launch, blocks: Array, first: int, block_lanes: int, memory: list[Allocation], values: Values
    ) -> None:
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
        self.values = values

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
        return self.blocks[0] if len(self.blocks) == 1 else np.repeat(self.blocks, self.block_lanes)

    @cached_property
    def tag(self) -> Array:
        """Each lane's thread, unique within the launch; see `Launch.tag_shift`."""
        return np.asarray(((self.block + 1) << self.launch.tag_shift) | self.thread)

    @cached_property
    def warp_tag(self) -> Array:
        """Each lane's warp, unique within the launch."""
        return self.tag >> WARP_SHIFT

    @cached_property
    def thread_idx(self) -> tuple[Any, ...]:
        """Along x, y, z."""
        return unravel(self.thread, self.launch.block)

    @cached_property
    def block_idx(self) -> tuple[Any, ...]:
        return unravel(self.block, self.launch.grid)

    @cached_property
    def lane_id(self) -> Array:
        return self.thread % WARP

    @cached_property
    def warp_id(self) -> Array:
        return self.thread // WARP

    @cached_property
    def lane_numbers(self) -> Array:
        return np.arange(self.lanes)

    def copy_of(self, space: Space) -> Array | None:
        """Which copy of an allocation each lane uses; None: there is one."""
        if space is Space.LOCAL:
            return self.lane_numbers
        return self.row if space is Space.SHARED and len(self.blocks) > 1 else None

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
        named = int(np.argmax(at_fault)) if lane is None else lane
        count = int(np.count_nonzero(at_fault))
        self.launch.sink.report(
            diagnostic, loc, count, key=key, who=lambda: self.launch.who(int(self.tag[named])), notes=notes
        )

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


# -- what they touch --------------------------------------------------------------------------------------------------


class LaneIndexing(NamedTuple):
    """`A[i, j]` as one lane sees it. An index is None where a slice stands; is_view: the array begins inside another."""

    indices: tuple[int | None, ...]
    shape: tuple[int, ...]
    is_view: bool

    @property
    def missed(self) -> tuple[int, ...]:
        """Axes that their index leaves."""
        pairs = enumerate(zip(self.indices, self.shape))
        return tuple(axis for axis, (index, size) in pairs if index is not None and not 0 <= index < size)

    @property
    def is_whole_row(self) -> bool:
        """Is this an element of the whole of an array of one axis? An index that leaves it leaves the array."""
        return len(self.shape) == 1 and not self.is_view


@dataclass(frozen=True, eq=False)
class Axes:
    """What an access was written as, so that each index can be held against its own axis: one that leaves it may hit another row.

    links: from the first view to the element, each with numbers of values. checked: index and size of axes worth a look.
    """

    links: tuple[LaneIndexing, ...]
    checked: tuple[tuple[int, int], ...]

    def outside(self, values: Values) -> Any:
        """Which lanes leave an axis: one bool for all, or one per lane. A negative index is a very large one without sign."""
        found: Any = np.False_
        for index, size in self.checked:
            found = found | (values[index].view(np.uint64) >= values[size].view(np.uint64))
        return found

    def missed(self, values: Values, lane: int) -> LaneIndexing | None:
        """The first indexing in which a lane leaves an axis; None for an array of one axis, where its end says as much."""
        for link in self.links:
            indices = tuple(None if n is None else in_lane(values[n], lane) for n in link.indices)
            meant = LaneIndexing(indices, tuple(in_lane(values[n], lane) for n in link.shape), link.is_view)
            if meant.missed and not meant.is_whole_row:
                return meant
        return None


@dataclass(frozen=True, eq=False)
class Access:
    """A place in the kernel that touches memory. number: its position among all of them, from 1. axes: of `A[i, j]`."""

    number: int
    role: Role
    dtype: DType
    space: Space
    loc: Loc
    axes: Axes | None


class Touch(NamedTuple):
    """Lanes of a team touch elements of one allocation, by one access.

    lanes: a mask of those lanes, None for all. index: into `view.elements`, one per such lane, or a scalar for all of them.
    """

    team: Team
    access: Access
    allocation: Allocation
    view: View
    index: Any
    lanes: Array | None
    phase: int

    @property
    def lane_numbers(self) -> Array:
        return self.team.lane_numbers if self.lanes is None else np.flatnonzero(self.lanes)

    def indices(self) -> Array:
        """`index` with one element per lane."""
        return self.index if isinstance(self.index, np.ndarray) else np.full(len(self.lane_numbers), self.index)

    def pick(self, value: Any) -> Any:
        """Of a value per lane of the team, those of the lanes that touch."""
        return value if self.lanes is None or not isinstance(value, np.ndarray) else value[self.lanes]

    def element(self, lane: int) -> int:
        """Which element of its copy of the allocation the lane touches. lane: counts those that touch."""
        return int(self.indices()[lane]) % max(self.view.pitch, 1)

    def at_fault(self, lanes: Any) -> Array:
        """Some of the lanes that touch as a mask of the team."""
        found = np.zeros(self.team.lanes, np.bool_)
        found[self.lane_numbers[lanes]] = True
        return found


class Watcher:
    """Is told what threads of a launch do, before they do it; a kind of watcher overrides what it wants to know."""

    def access(self, touch: Touch, value: Any) -> None:
        """Lanes touch memory. value: what they store, one per such lane or a scalar; None for a read."""

    def barrier(self, blocks: Array) -> None:
        """Every thread of these blocks is at a block barrier."""

    def syncwarp(self, team: Team, mask: Any) -> None:
        """The active lanes synchronise with those that their masks name."""

    def fence(self, team: Team, scope: Scope) -> None:
        """The active lanes pass a fence."""

    def branch(self, team: Team, loc: Loc, taken: Array) -> None:
        """Of the active lanes, those that are `taken` go into the first arm of an `if`."""

    def forget(self, memory: Iterable[Allocation]) -> None:
        """The blocks that had this memory have ended."""
