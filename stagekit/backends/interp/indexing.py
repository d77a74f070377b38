"""What an access was written as: `A[i, j]`, so that each index can be held against its own axis, and be shown.

    axes = axes_of(compiler, pointer)        None for a pointer that no indexing made
    axes.outside(team.values)                lanes with an index that leaves its axis
    axes.read(team, lane)                    ((3, 70), (8, 64)): what one lane meant, and the sizes of the axes

An index that leaves its axis may still hit the array, in another row. A row of the whole of an array of one axis cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stagekit.backends.interp.team import Team
from stagekit.ir import Function, Value, ops, walk

if TYPE_CHECKING:
    from stagekit.backends.interp.program import Compiler

Row = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Axes:
    """Numbers of values. is_view: does the array begin inside another? checked: index and size of each axis worth a look."""

    indices: Row
    shape: Row
    is_view: bool
    checked: tuple[tuple[int, int], ...]

    def outside(self, values: list[Any]) -> Any:
        """Which lanes leave an axis: one bool for all, or one per lane. A negative index is a very large one without sign."""
        found: Any = np.False_
        for index, size in self.checked:
            found = found | (values[index].view(np.uint64) >= values[size].view(np.uint64))
        return found

    def read(self, team: Team, lane: int) -> tuple[Row, Row]:
        """Indices and shape as one lane sees them."""
        indices, shape = (
            tuple(int(team.spread(team.values[n])[lane]) for n in row) for row in (self.indices, self.shape)
        )
        return indices, shape


class Indexings:
    """The offsets of a function that came from an indexing, by the pointer that they made."""

    def __init__(self, fn: Function) -> None:
        offsets = [op for op in walk(fn.body) if isinstance(op, ops.Offset)]
        self._of = {op.result: op for op in offsets}

    def axes_of(self, c: Compiler, pointer: Value) -> Axes | None:
        """None where `pointer` was made in another way, or from sizes that this function does not have."""
        op = self._of.get(pointer)
        if op is None or op.indexed is None:
            return None
        written = (*op.indexed.indices, *op.indexed.shape)
        if not all(isinstance(each, int) or c.is_known(each) for each in written):
            return None
        numbers = tuple(c.constant(each) if isinstance(each, int) else c.number(each) for each in written)
        rank, is_view = len(op.indexed.indices), op.pointer in self._of
        indices, shape = numbers[:rank], numbers[rank:]
        checked = tuple(zip(indices, shape)) if (rank > 1 or is_view) and c.options.checks.axes else ()
        return Axes(indices, shape, is_view, checked)
