"""A launch, its teams of threads, their accesses of memory, and the watchers that are told of them.

A team is a whole block, several blocks side by side, or one warp of a block that takes turns with the others. `Team.mask`
says which lanes are active (None: all), `ended` which have returned from the kernel. `values` holds every SSA value by number:
a NumPy scalar where it was computed from what all lanes agree on, else an array with one element per lane.

Warps are rows of 32: `to_warps` lays lanes out as (warps, 32), with a hole for every thread that a last warp lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from stagekit.backends.interp.findings import FindingSink, Index3, Message, Who
from stagekit.backends.interp.memory import Allocation, Array, View, in_lane
from stagekit.backends.interp.options import Options
from stagekit.diagnostics import Diagnostic, Loc, Note
from stagekit.dtypes import DType
from stagekit.forks import cached_property
from stagekit.frozen import frozen
from stagekit.intrinsics.order import acquires, releases
from stagekit.ir import Space
from stagekit.limits import WARP

WARP_SHIFT = WARP.bit_length() - 1
AXES = "xyz"

Values = list[Any]
Role = Literal["read", "write", "atomic"]
Scope = Literal["block", "gpu", "sys"]


# -- a launch ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class LaunchState:
    """The state of one launch while it runs: its extents, its arrays, and what has been seen so far.

    grid: blocks, block: threads, cluster: blocks of each, along x, y, z. params: the value of each parameter. prints, failures:
    in order. writes: how many accesses have changed memory; while the number stands still, a waiting warp waits in vain.
    flights, products: what is under way, bulk copies and products of warpgroups, in the order of their beginning. mbarriers: by
    allocation and the byte where they begin. tensor_maps: by number. named_barriers: by block and number. register_files: by
    block. meetings: products that some of their warps have begun.
    stop: what a `breakpoint()` calls with the number of its scene and a `StoppedBlock`, None where nobody looks.
    tag_shift: a thread's *tag* is `(block number + 1) << tag_shift | number in the block`, so that 0 stands for no thread,
    and shifting a tag right gives its block or its warp.
    """

    grid: Index3
    block: Index3
    dynamic_shared_bytes: int
    params: tuple[Any, ...]
    allocations: tuple[Allocation, ...]
    options: Options
    sink: FindingSink
    watchers: list[Watcher] = field(default_factory=list)
    prints: list[Message] = field(default_factory=list)
    failures: list[Message] = field(default_factory=list)
    writes: int = 0
    flights: list[Any] = field(default_factory=list)
    tensor_maps: dict[int, Any] = field(default_factory=dict)
    products: list[Any] = field(default_factory=list)
    products_begun: int = 0
    meetings: dict[Any, Any] = field(default_factory=dict)
    mbarriers: dict[Allocation, dict[int, Any]] = field(default_factory=dict)
    named_barriers: dict[tuple[int, int], Any] = field(default_factory=dict)
    register_files: dict[int, Any] = field(default_factory=dict)
    stop: Callable[[int, Any], None] | None = None
    cluster: Index3 = (1, 1, 1)

    def __post_init__(self) -> None:
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.warps = -(-self.threads // WARP)
        self.blocks = self.grid[0] * self.grid[1] * self.grid[2]
        self.tag_shift = max((self.threads - 1).bit_length(), WARP_SHIFT)

    def who(self, tag: int) -> Who:
        """Return the thread that a tag stands for."""
        block, thread = (tag >> self.tag_shift) - 1, tag & ((1 << self.tag_shift) - 1)
        (bx, by, bz), (tx, ty, tz) = unravel(block, self.grid), unravel(thread, self.block)
        return Who((int(bx), int(by), int(bz)), (int(tx), int(ty), int(tz)))


def unravel(number: Any, extents: Index3) -> tuple[Any, Any, Any]:
    """Return the index along x, y, z of a linear number, where x counts fastest."""
    x, y, _ = extents
    if extents[1:] == (1, 1):
        return number, np.int64(0), np.int64(0)
    return number % x, number // x % y, number // (x * y)


# -- threads that run as one ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Team:
    """Some threads of one or more blocks: `block_lanes` of each block, from its thread `first` on. Every lane is a real thread.

    blocks: linear block numbers. memory: the blocks' shared allocations, by number. local: those of the lanes, by the number
    of the pointer. rounds: the present ones of the loops that it runs, the outermost first. copies: those under way. lanes,
    active: how many threads there are, and how many of them are active. closed: of each, how many groups of copies it has closed;
    bulk_closed: of bulk copies. warpgroups: what each warp has multiplied, by its row. cluster, rank: of a block whose warps take
    turns, the cluster and the block's number in it.
    awaited: the phases for which its last wait, of those that are in phases, waited in vain.
    """

    launch: LaunchState
    blocks: Array
    first: int
    block_lanes: int
    memory: list[Allocation]
    values: Values
    local: dict[int, Allocation] = field(default_factory=dict)
    mask: Array | None = None
    ended: Array | None = None
    rounds: list[int] = field(default_factory=list)
    copies: list[Any] = field(default_factory=list)
    cluster: Any = None
    rank: int = 0
    warpgroups: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lanes = self.active = self.block_lanes * len(self.blocks)
        self.closed, self.bulk_closed = np.zeros((2, self.lanes), np.int64)
        self.awaited: list[Any] = []

    @cached_property
    def thread(self) -> Array:
        """The number of each lane's thread within its block."""
        return np.tile(np.arange(self.first, self.first + self.block_lanes), len(self.blocks))

    @cached_property
    def row(self) -> Array:
        """The place in `blocks` of each lane's block."""
        return np.repeat(np.arange(len(self.blocks)), self.block_lanes)

    @cached_property
    def block(self) -> Any:
        """The linear number of each lane's block, a scalar where there is one block."""
        return self.blocks[0] if len(self.blocks) == 1 else np.repeat(self.blocks, self.block_lanes)

    @cached_property
    def tag(self) -> Array:
        """The tag of each lane's thread; see `LaunchState.tag_shift`."""
        return np.asarray(((self.block + 1) << self.launch.tag_shift) | self.thread)

    @cached_property
    def warp_tag(self) -> Array:
        """The number of each lane's warp, unique within the launch."""
        return self.tag >> WARP_SHIFT

    @cached_property
    def thread_idx(self) -> tuple[Any, ...]:
        return unravel(self.thread, self.launch.block)

    @cached_property
    def block_idx(self) -> tuple[Any, ...]:
        return unravel(self.block, self.launch.grid)

    @cached_property
    def block_idx_in_cluster(self) -> tuple[Any, ...]:
        return tuple([index % size for index, size in zip(self.block_idx, self.launch.cluster)])

    @cached_property
    def cluster_idx(self) -> tuple[Any, ...]:
        return tuple([index // size for index, size in zip(self.block_idx, self.launch.cluster)])

    @cached_property
    def cluster_rank(self) -> Any:
        (x, y, z), (width, height, _) = self.block_idx_in_cluster, self.launch.cluster
        return np.int64(0) + x + width * (y + height * z)

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
        """Return which copy of an allocation each lane uses; None where there is one copy."""
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
        """Report a fault of the lanes `at_fault`, once per kind, place and `key`. lane: the one to name, else the first."""
        named = int(np.argmax(at_fault)) if lane is None else lane
        count, tag = int(np.count_nonzero(at_fault)), int(self.tag[named])
        self.launch.sink.report(diagnostic, loc, count, key=key, who=lambda: self.launch.who(tag), notes=notes)

    # -- masks --------------------------------------------------------------------------------------------------------

    def enter(self, mask: Array | None, active: int) -> None:
        """Make the lanes of `mask` the active ones; there are `active` of them."""
        self.mask, self.active = mask, active

    def end(self, lanes: Array) -> None:
        """Note that `lanes` have returned from the kernel."""
        self.ended = lanes if self.ended is None else self.ended | lanes

    def active_lanes(self) -> Array:
        """Return the mask as an array."""
        return np.ones(self.lanes, np.bool_) if self.mask is None else self.mask

    def spread(self, value: Any) -> Array:
        """Return `value` with one element per lane."""
        return value if isinstance(value, np.ndarray) else np.full(self.lanes, value)

    # -- warps --------------------------------------------------------------------------------------------------------

    @cached_property
    def warp_rows(self) -> int:
        """How many warps the team has."""
        return len(self.blocks) * -(-self.block_lanes // WARP)

    @cached_property
    def _places(self) -> Array | None:
        """The place of each lane in the rows of all warps; None where rows have no holes."""
        if self.block_lanes % WARP == 0:
            return None
        return np.asarray(self.row * (self.warp_rows // len(self.blocks) * WARP) + self.thread - self.first)

    def to_warps(self, value: Any) -> Array:
        """Return one row of 32 per warp; holes are 0."""
        spread = self.spread(value)
        if self._places is None:
            return spread.reshape(-1, WARP)
        padded = np.zeros(self.warp_rows * WARP, spread.dtype)
        padded[self._places] = spread
        return padded.reshape(-1, WARP)

    def from_warps(self, rows: Array) -> Array:
        """Return one element per lane. rows: one row per warp, of 32 elements or of one that all its lanes share."""
        full = np.broadcast_to(rows, (self.warp_rows, WARP)).reshape(-1)
        return full.copy() if self._places is None else full[self._places]

    @cached_property
    def existing_rows(self) -> Array:
        """Which places of the rows are threads, as rows of 32 bools; False in holes."""
        return self.to_warps(np.True_)

    def active_rows(self) -> Array:
        """Return which lanes are active, as rows of 32 bools; False in holes."""
        return self.existing_rows if self.mask is None else self.to_warps(self.mask)


def bit_sets(rows: Array) -> Array:
    """Return each row of 32 bools as one uint32, lane 0 in the lowest bit: shape (..., 32) becomes (...)."""
    return np.asarray(np.packbits(rows, axis=-1, bitorder="little").view("<u4")[..., 0])


# -- accesses of memory -----------------------------------------------------------------------------------------------


class LaneIndexing(NamedTuple):
    """`A[i, j]` in one lane. An index is None where a slice stands. is_view: the array is a part of another."""

    indices: tuple[int | None, ...]
    shape: tuple[int, ...]
    is_view: bool

    @property
    def missed(self) -> tuple[int, ...]:
        """The axes whose index is out of range."""
        pairs = enumerate(zip(self.indices, self.shape))
        return tuple(axis for axis, (index, size) in pairs if index is not None and not 0 <= index < size)

    @property
    def is_whole_row(self) -> bool:
        """Whether this indexes an array of one axis that is no view: an index out of range is then outside the array."""
        return len(self.shape) == 1 and not self.is_view


@frozen(eq=False, slots=False)
class Axes:
    """The indexing that an access was written as. Each index is compared with its own axis: one past its end may hit another row.

    links: the indexings from the first view to the element, in numbers of values. checked: (index, size) of each axis to check.
    """

    links: tuple[LaneIndexing, ...]
    checked: tuple[tuple[int, int], ...]

    def outside(self, values: Values) -> Any:
        """Return which lanes leave an axis: one bool for all, or one per lane. Seen as uint64, a negative index is very large."""
        found: Any = np.False_
        for index, size in self.checked:
            found = found | (values[index].view(np.uint64) >= values[size].view(np.uint64))
        return found

    def missed(self, values: Values, lane: int) -> LaneIndexing | None:
        """Return the first indexing in which a lane leaves an axis; None for an array of one axis, where its end says as much."""
        for link in self.links:
            indices = tuple(None if n is None else in_lane(values[n], lane) for n in link.indices)
            meant = LaneIndexing(indices, tuple(in_lane(values[n], lane) for n in link.shape), link.is_view)
            if meant.missed and not meant.is_whole_row:
                return meant
        return None


@frozen(eq=False, slots=False)
class Access:
    """An op of the kernel that accesses memory.

    number: its position among all of them, from 1. axes: of `A[i, j]`. is_seen: whether the kernel uses what is read. align,
    covers: as the op states them. order, scope: of an atomic, or of a load or store that has them; "" and "gpu" for plain ones.
    """

    number: int
    role: Role
    dtype: DType
    space: Space
    loc: Loc
    axes: Axes | None
    is_seen: bool
    align: int | None = None
    covers: int = 1
    order: str = ""
    scope: Scope = "gpu"

    @property
    def is_arrival(self) -> bool:
        """Whether it is an arrival at an mbarrier, whose word covers no element (`mbarriers.word`)."""
        return self.role == "atomic" and self.covers == 0

    @property
    def acquires(self) -> bool:
        return acquires(self.order)

    @property
    def releases(self) -> bool:
        return releases(self.order)


class Touch(NamedTuple):
    """One access by lanes of a team to elements of one allocation.

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
        """Return `index` with one element per lane that touches."""
        return self.index if isinstance(self.index, np.ndarray) else np.full(len(self.lane_numbers), self.index)

    def pick(self, value: Any) -> Any:
        """Return the values of the lanes that touch, out of one value per lane of the team or a scalar."""
        return value if self.lanes is None or not isinstance(value, np.ndarray) else value[self.lanes]

    def element(self, lane: int) -> int:
        """Return which element of its copy of the allocation a lane touches. lane: its position among those that touch."""
        return int(self.indices()[lane]) % max(self.view.pitch, 1)

    def at_fault(self, lanes: Any) -> Array:
        """Return some of the lanes that touch, as a mask of the team. lanes: positions or a mask among those that touch."""
        mask = np.zeros(self.team.lanes, np.bool_)
        mask[self.lane_numbers[lanes]] = True
        return mask


class Run(Touch):
    """An access by one lane to many elements, as a rule side by side. lanes: the number of that lane, once for each element."""

    __slots__ = ()

    @property
    def lane_numbers(self) -> Array:
        return np.asarray(self.lanes)

    @property
    def span(self) -> tuple[int, int]:
        """The bytes of the arena from the first one on, and before the second one."""
        itemsize, origin = self.access.dtype.itemsize, self.allocation.arena_start + self.phase
        return int(self.index.min()) * itemsize + origin, (int(self.index.max()) + 1) * itemsize + origin

    def overlaps(self, starts: Array, size: int) -> Array:
        """Return which ranges of `size` bytes of the arena hold some of its bytes. starts: of each range."""
        itemsize, origin = self.access.dtype.itemsize, self.allocation.arena_start + self.phase
        low, high = self.span
        if high - low == len(self.index) * itemsize:
            return np.asarray((starts < high) & (starts + size > low))
        own = np.sort(self.index) * itemsize + origin
        before = np.searchsorted(own, starts + size) - 1  # the last element that begins in front of the range's end
        return np.asarray((before >= 0) & (own[before] + itemsize > starts))

    def places(self) -> Array:
        """Return the bytes of the arena, each by its number."""
        itemsize, origin = self.access.dtype.itemsize, self.allocation.arena_start + self.phase
        return np.asarray((self.index[:, None] * itemsize + origin + np.arange(itemsize)).reshape(-1))

    def now(self) -> Array:
        """Return a copy of the elements as they are now."""
        return np.array(self.view.elements[self.index])


class Watcher:
    """An observer of a launch, called before threads do something. A subclass overrides the methods that it needs."""

    def access(self, touch: Touch, value: Any) -> None:
        """Observe lanes that touch memory. value: what they store, one per such lane or a scalar; None for a read."""

    def copying(self, touch: Touch, value: Any) -> None:
        """Observe lanes begin to write to memory, which is done when they have waited for it."""

    def landed(self, touch: Touch) -> None:
        """Observe that what `copying` observed is in memory now."""

    def sent(self, touch: Touch, positions: Sequence[int], key: Hashable, *, only_reads: bool) -> None:
        """Observe lanes tell what is ordered before they go on. positions: among those that touch. key: who keeps it.

        only_reads: they tell that reads are over, and nothing of what was written.
        """

    def handed_on(self, key: Hashable, other: Hashable) -> None:
        """Observe that what `key` keeps is kept by `other` from now on."""

    def received(self, touch: Touch, positions: Sequence[int], key: Hashable) -> None:
        """Observe lanes learn what `key` keeps. positions: among those that touch."""

    def proxy_fence(self, team: Team, memory: Iterable[Allocation]) -> None:
        """Observe the active lanes order what they know of this memory before copies that are begun later."""

    def updated(self, touch: Touch, is_written: Any) -> None:
        """Observe that lanes have accessed memory with an order. is_written: whether they stored, one for all or one per lane."""

    def begin(self, team: Team, allocation: Allocation) -> None:
        """Observe the active lanes begin a new array in shared memory, in the place that the allocation always has."""

    def barrier(self, teams: Sequence[Team], here: Array) -> None:
        """Observe a block barrier that the threads of `teams` reach. here: for each block of theirs, whether its threads do."""

    def syncwarp(self, team: Team, mask: Any) -> None:
        """Observe the active lanes synchronise with those that their masks name."""

    def fence(self, team: Team, scope: Scope) -> None:
        """Observe the active lanes pass a fence."""

    def branch(self, team: Team, loc: Loc, taken: Array) -> None:
        """Observe an `if`, whose first arm the active lanes `taken` run."""

    def end(self, team: Team, is_last: bool) -> None:
        """Observe that a team has ended. is_last: no other team of its blocks runs."""

    def forget(self, memory: Iterable[Allocation]) -> None:
        """Drop what is known of memory whose blocks have ended."""
