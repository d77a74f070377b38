"""One launch while it runs: its extents, its arrays, and where everything that is seen goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stagekit.backends.interp.findings import FindingSink, Index3, Who
from stagekit.backends.interp.memory import Allocation
from stagekit.backends.interp.options import Options
from stagekit.backends.interp.report import Message
from stagekit.backends.interp.team import WARP_SHIFT, unravel
from stagekit.limits import WARP

if TYPE_CHECKING:
    from stagekit.backends.interp.order import NoOrder
    from stagekit.backends.interp.program import Program
    from stagekit.backends.interp.races import Races
    from stagekit.backends.interp.statistics import Measured
    from stagekit.backends.interp.written import WrittenBytes


@dataclass(eq=False)
class Launch:
    """grid: blocks, block: threads, along x, y, z. params: the value of each parameter. prints, failures: in order.

    tag_shift: a thread's *tag* is one more than its block's number, shifted left by this, or its number in the block: so
    0 is nobody, and block and warp are a shift away.
    writes: counts accesses that changed memory; as long as it stands still, a waiting warp waits in vain.
    order, races, written, measured: what the run was asked to watch.
    """

    program: Program
    grid: Index3
    block: Index3
    dynamic_shared_bytes: int
    params: tuple[Any, ...]
    allocations: tuple[Allocation, ...]
    options: Options
    sink: FindingSink
    prints: list[Message] = field(default_factory=list)
    failures: list[Message] = field(default_factory=list)
    writes: int = 0
    order: NoOrder = field(init=False)
    races: Races = field(init=False)
    written: WrittenBytes = field(init=False)
    measured: Measured = field(init=False)

    def __post_init__(self) -> None:
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.warps = -(-self.threads // WARP)
        self.blocks = self.grid[0] * self.grid[1] * self.grid[2]
        self.tag_shift = max((self.threads - 1).bit_length(), WARP_SHIFT)

    def who(self, tag: int) -> Who:
        """The thread that a tag stands for."""
        block, thread = (tag >> self.tag_shift) - 1, tag & ((1 << self.tag_shift) - 1)
        return Who(_plain(unravel(block, self.grid)), _plain(unravel(thread, self.block)))


def _plain(index: tuple[Any, Any, Any]) -> Index3:
    x, y, z = index
    return int(x), int(y), int(z)
