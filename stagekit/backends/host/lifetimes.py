"""When each slot of a plan is in use, so that values whose times do not meet share memory.

    piece 1: spill a       a: 1..2
    piece 2: needs a       b: 2..3, beside a
    piece 2: spill b       c: 3..4, in the place of a
    piece 3: needs b; spill c

What is alive when a loop begins and is touched in it stays alive to its end: the loop comes back to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stagekit.backends.host.pieces import Once, Piece, Plan, Region, Split
from stagekit.backends.host.slots import ALIGN, Layout, warp_bytes
from stagekit.ir import Value, ops


def place_slots(plan: Plan, warps: int, layout: Layout) -> dict[Value, int]:
    """An offset in the scratch memory for each slot."""
    times = _Times(plan)
    times.region(plan.region)
    free: dict[int, list[int]] = {}  # by size in bytes
    busy: list[tuple[int, int, int]] = []  # (last time, size, offset)
    offsets: dict[Value, int] = {}
    for value in sorted(times.first, key=times.first.__getitem__):
        for ended in [entry for entry in busy if entry[0] < times.first[value]]:
            busy.remove(ended)
            free.setdefault(ended[1], []).append(ended[2])
        size = warp_bytes(value.type) * warps
        reusable = free.get(size)
        offsets[value] = reusable.pop() if reusable else layout.take(size, ALIGN)
        busy.append((times.last[value], size, offsets[value]))
    return offsets


@dataclass
class _Times:
    """A step of the plan is one tick of the clock."""

    plan: Plan
    first: dict[Value, int] = field(default_factory=dict)
    last: dict[Value, int] = field(default_factory=dict)
    now: int = 0
    slots: frozenset[Value] = frozenset()

    def __post_init__(self) -> None:
        self.slots = frozenset(self.plan.slots)

    def touch(self, values: Iterable[Value]) -> None:
        for value in values:
            owner = self.plan.owner(value)
            if owner in self.slots:
                self.first.setdefault(owner, self.now)
                self.last[owner] = self.now

    def region(self, region: Region) -> None:
        for step in region:
            self.now += 1
            if isinstance(step, Piece):
                self.touch((*step.needs, *step.spills))
                self.touch(value for pair in step.copies for value in pair)
                self._touch_sources(step.needs)
            elif isinstance(step, Split):
                self._split(step)
            else:
                assert isinstance(step, Once)

    def _touch_sources(self, values: Iterable[Value]) -> None:
        """A value that is computed again reads what it is made of."""
        for value in values:
            maker = self.plan.makers.get(value)
            if maker is not None and self.plan.owner(value) not in self.slots:
                self.touch(maker.operands())
                self._touch_sources(maker.operands())

    def _split(self, split: Split) -> None:
        op, began = split.op, self.now
        self.touch(op.operands())
        self.touch(op.results)
        self.touch(param for body in op.bodies() for param in body.params)
        for region in split.bodies:
            self.region(region)
            self.now += 1
            self.touch(split.read_after(region))
        self.touch(op.results)
        if isinstance(op, ops.For | ops.While):
            self.touch(param for body in op.bodies() for param in body.params)
            self.touch([v for v in self.first if self.first[v] < began <= self.last[v]])
