"""Matrices in shared memory on the CPU, as tiles: what `staged` loads there, and what products are made of.

Rows lie one after another, and each begins at a line of the cache. A row has an odd number of lines, so that what lies along a
column is spread over all sets of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import stagekit as sk
from stagekit.lib.axes import held
from stagekit.lib.conversion import wait
from stagekit.lib.layout import WARP, Layout, in_vectors, mask_of
from stagekit.lib.shared import COLUMN, ROW, Matrix
from stagekit.lib.tile import Tile, Traced

_ADD, _MULTIPLY = map(sk._operation, ("+", "*"))
LINE = 64  # bytes that the memory moves at once


@dataclass(frozen=True)
class Panel(Matrix):
    """The form of a tile whose elements are in shared memory, in the dtype in which they are multiplied and added.

    of: the dtype of the tile's elements.
    """

    of: Any = None

    @property
    def dtype(self) -> Any:
        return self.of

    @property
    def pitch(self) -> int:
        return pitch_of(self.columns, self.start.dtype)

    def steps(self) -> tuple[int, ...]:
        """Return how far in memory neighbours along each axis are from each other."""
        return tuple([{ROW: self.pitch, COLUMN: 1}.get(each, 0) for each in self.strides])

    def first(self, layout: Layout, axes: tuple[int, ...] = (0, 1)) -> Traced:
        """Return a pointer to the element of this thread's first place along some axes."""
        start, first, steps = self.start, layout.first(axes), self.steps()
        for axis in axes:
            if type(first[axis]) is not int:
                start = _ADD(start, _MULTIPLY(first[axis], steps[axis]))
        return start

    def elements(self, layout: Layout) -> list[Any]:
        rows = zip(self._pointers(layout), layout.valid())
        return [self.of(sk.load(place, mask=mask_of(exists))) for place, exists in rows]

    def parts(self, layout: Layout) -> list[Any]:
        return in_vectors(self.elements(layout), layout)

    def store(self, elements: list[Any], layout: Layout) -> None:
        """Write this thread's elements."""
        for place, element, is_own in zip(self._pointers(layout), elements, layout.owned()):
            sk.store(place, self.start.dtype(element), mask=mask_of(is_own))

    def _pointers(self, layout: Layout) -> list[Traced]:
        start, steps = self.first(layout), self.steps()
        return [_ADD(start, sum(o * step for o, step in zip(offset, steps))) for offset in layout.offsets]


def pitch_of(columns: int, dtype: sk.DType) -> int:
    """Return the elements from row to row: an odd number of lines, or what is less than one."""
    line = LINE // int(dtype.itemsize)
    return (-(-columns // line) | 1) * line if columns > line else columns


def new_panel(shape: tuple[int, ...], axis: int, of: sk.DType, dtype: sk.DType) -> Panel:
    """Return memory for a tile of a shape and of dtype `of`, in elements of `dtype`, whose rows go along an axis."""
    rows, columns = shape[1 - axis], shape[axis]
    array = sk.alloc_shared((rows * pitch_of(columns, dtype),), dtype, align=LINE)
    return Panel(array, rows, columns, tuple([COLUMN if each == axis else ROW for each in range(2)]), of=of)


def stored(tile: Tile, axis: int, dtype: sk.DType) -> Panel:
    """Return a tile in memory whose rows go along an axis. It is there when the threads have waited for each other."""
    panel, source = new_panel(tile.shape, axis, tile.dtype, dtype), held(tile)
    panel.store(source.elements, source.layout)
    return panel


def kept(tile: Tile, dtype: sk.DType) -> Tile:
    """Return a tile in memory for products with it on the left, whose lanes read it along its columns where these are whole."""
    axis = 1 if tile.shape[0] % WARP else 0
    wait(tile.layout.threads)  # in a loop, for what was read in its last round
    panel = stored(tile, axis, dtype)
    wait(tile.layout.threads)
    return Tile((), tile.layout, panel)
