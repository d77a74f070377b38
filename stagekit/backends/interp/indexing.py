"""What an access was written as: `A[i, j]`, so that each index can be held against its own axis, and be shown.

    axes = Indexings(fn).axes_of(compiler, pointer)      None for a pointer that no indexing made
    axes.outside(team.values)                            lanes with an index that leaves its axis
    axes.missed(team, lane)                              what one lane meant, if an index of it does

An index that leaves its axis may still hit the array, in another row. That of the whole of an array of one axis cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stagekit.backends.interp.team import Team
from stagekit.ir import Function, Value, ops, walk

if TYPE_CHECKING:
    from stagekit.backends.interp.program import Compiler

Row = tuple[int, ...]


class LaneIndexing(NamedTuple):
    """One indexing as one lane sees it. An index is None where a slice stands; is_view: the array begins inside another."""

    indices: tuple[int | None, ...]
    shape: Row
    is_view: bool

    @property
    def missed(self) -> Row:
        """Axes that their index leaves."""
        pairs = enumerate(zip(self.indices, self.shape))
        return tuple(axis for axis, (index, size) in pairs if index is not None and not 0 <= index < size)

    @property
    def is_whole_row(self) -> bool:
        """Is this an element of the whole of an array of one axis?"""
        return len(self.shape) == 1 and not self.is_view


@dataclass(frozen=True, eq=False)
class Axes:
    """links: from the first view to the element, each with numbers of values. checked: index and size of axes worth a look."""

    links: tuple[LaneIndexing, ...]
    checked: tuple[tuple[int, int], ...]

    def outside(self, values: list[Any]) -> Any:
        """Which lanes leave an axis: one bool for all, or one per lane. A negative index is a very large one without sign."""
        found: Any = np.False_
        for index, size in self.checked:
            found = found | (values[index].view(np.uint64) >= values[size].view(np.uint64))
        return found

    def missed(self, team: Team, lane: int) -> LaneIndexing | None:
        """The first indexing in which a lane leaves an axis; None for an array of one axis, where its end says as much."""
        for link in self.links:
            row = [None if n is None else int(team.spread(team.values[n])[lane]) for n in (*link.indices, *link.shape)]
            rank = len(link.shape)
            written = LaneIndexing(tuple(row[:rank]), tuple(size or 0 for size in row[rank:]), link.is_view)
            if written.missed and not written.is_whole_row:
                return written
        return None


class Indexings:
    """The offsets of a function that came from an indexing, by the pointer that they made."""

    def __init__(self, fn: Function) -> None:
        offsets = [op for op in walk(fn.body) if isinstance(op, ops.Offset)]
        self._of = {op.result: op for op in offsets}

    def axes_of(self, c: Compiler, pointer: Value) -> Axes | None:
        """None where `pointer` was made in another way, or from sizes that this function does not have."""
        links: list[LaneIndexing] = []
        op = self._of.get(pointer)
        while op is not None:
            link = self._link(c, op)
            if link is not None:
                links.insert(0, link)
            op = self._of.get(op.pointer)
        if not links:
            return None
        worth = [link for link in links if c.options.checks.axes and not link.is_whole_row]
        pairs = (pair for link in worth for pair in zip(link.indices, link.shape))
        return Axes(tuple(links), tuple((index, size) for index, size in pairs if index is not None))

    def _link(self, c: Compiler, op: ops.Offset) -> LaneIndexing | None:
        """The numbers of what `op` was written as."""
        if op.indexed is None:
            return None
        written = (*op.indexed.indices, *op.indexed.shape)
        if not all(each is None or isinstance(each, int) or c.is_known(each) for each in written):
            return None
        numbers = [None if e is None else c.constant(e) if isinstance(e, int) else c.number(e) for e in written]
        rank = len(op.indexed.shape)
        return LaneIndexing(
            tuple(numbers[:rank]), tuple(n for n in numbers[rank:] if n is not None), op.pointer in self._of
        )
