"""Matrices in shared memory, as tiles: what `staged` reads ahead, and what products are made of.

Elements lie in rows, a row in chunks of 16 bytes, and in each row the chunks are in another order, so that lanes which read one
chunk of neighbouring rows, or neighbouring elements of some rows, find them in different banks:

    row 0   0 1 2 3 4 5 6 7        chunk c of row r is at place c ^ turn(r) of its row: with rows of 128 bytes, each
    row 1   2 3 0 1 6 7 4 5        column of chunks has every bank once in 8 rows, and each pair of columns in 4
    row 2   4 5 6 7 0 1 2 3
    ...

Where the number of chunks in a row is no power of two, rows are made longer by a chunk if it is even, which does the same.

Products by warpgroups read *panels*: columns of 128 bytes one behind the other, in whose rows chunk c is at c ^ row % 8.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import stagekit as sk
from stagekit.lib.layout import Layout, Shape, in_vectors, mask_of

_ADD, _MULTIPLY, _AND, _OR, _XOR, _LEFT, _RIGHT = map(sk._operation, ("+", "*", "&", "|", "^", "<<", ">>"))
CHUNK_BYTES = 16
_MOST_TURNED = 8  # chunks whose order differs from row to row
PANEL_CHUNKS = 8  # of a row of a panel; also the rows after which the order of chunks repeats
_PANEL_BITS = 3
PANEL_ALIGN = CHUNK_BYTES * PANEL_CHUNKS**2
ROW, COLUMN = "row", "column"


@sk._frozen(held=True)
class Matrix:
    """The form of a tile whose elements are in shared memory. start: a pointer to memory of its own, or of several matrices.

    rows, columns: how many of each; a row is what lies side by side. strides: for each axis of the tile what counts along it:
    ROW, COLUMN, or 0 for an axis along which the tile repeats. origin: how far behind `start` the first element is. shift: the
    order of chunks changes every 2**shift rows; None for the order above, which suits products. is_in_panels: whether rows are
    cut into panels.
    """

    start: Any
    rows: int
    columns: int
    strides: tuple[Any, ...] = (ROW, COLUMN)
    origin: Any = 0
    shift: int | None = None
    is_in_panels: bool = False

    is_address = False

    @property
    def dtype(self) -> Any:
        return self.start.dtype

    @property
    def per_chunk(self) -> int:
        """How many elements a chunk has."""
        return max(CHUNK_BYTES // int(self.dtype.itemsize), 1)

    @property
    def pitch(self) -> int:
        """How many elements one row begins after another, within a panel where there are such."""
        return PANEL_CHUNKS * self.per_chunk if self.is_in_panels else int(pitch_of(self.columns, self.dtype))

    @property
    def size(self) -> int:
        """How many elements there is memory for."""
        return self.rows * (self.columns if self.is_in_panels else self.pitch)

    def at(self, row: Any, column: Any, *, more_rows: int = 0) -> Any:
        """Return a pointer to an element. more_rows: a multiple of 8, added to the row."""
        count = self.per_chunk
        chunk, rest = _RIGHT(column, count.bit_length() - 1), _AND(column, count - 1)
        return _ADD(self.chunk_at(row, chunk, more_rows=more_rows), rest)

    def chunk_at(self, row: Any, chunk: Any, *, more_rows: int = 0, more_chunks: int = 0) -> Any:
        """Return a pointer to the first element of a chunk. more_chunks: added to it, a number of bits that are 0 in it.

        What differs from chunk to chunk is one operation on the place of the first, for which no number is carried round a loop.
        """
        if self.is_in_panels:
            return self._chunk_in_panel(row, chunk, more_rows, more_chunks)
        chunks = self.pitch // self.per_chunk
        place = _MULTIPLY(_XOR(chunk, turn(row, chunks, self.shift)), self.per_chunk)
        first = _ADD(_ADD(self.origin, _MULTIPLY(row, self.pitch)), place)
        turned = more_chunks & (min(chunks, _MOST_TURNED) - 1) if turns(chunks, self.shift) else 0
        rest = (more_chunks - turned) * self.per_chunk + more_rows * self.pitch
        return _ADD(_ADD(self.start, _XOR(first, turned * self.per_chunk) if turned else first), rest)

    def _chunk_in_panel(self, row: Any, chunk: Any, more_rows: int, more_chunks: int) -> Any:
        panel, within = 0, chunk
        if self.columns > self.pitch:
            panel, within = _RIGHT(chunk, _PANEL_BITS), _AND(chunk, PANEL_CHUNKS - 1)
        more_panels, turned = divmod(more_chunks, PANEL_CHUNKS)
        place = _XOR(_XOR(within, _AND(row, PANEL_CHUNKS - 1)), turned)
        rows = _ADD(_ADD(row, more_rows), _MULTIPLY(_ADD(panel, more_panels), self.rows))
        return _ADD(self.start, _ADD(self.origin, _ADD(_MULTIPLY(rows, self.pitch), _MULTIPLY(place, self.per_chunk))))

    def elements(self, layout: Layout) -> list[Any]:
        """Return this thread's elements, by loads."""
        found = []
        for at, width, (row, column) in self._places(layout):
            place, mask = self.at(row, column), mask_of(layout.valid()[at])
            if width == 1:
                found.append(sk.load(place, mask=mask))
            else:
                found += sk._lanes(sk._load_vector(place, width, width * self.dtype.itemsize, mask=mask))
        return found

    def parts(self, layout: Layout) -> list[Any]:
        return in_vectors(self.elements(layout), layout)

    def store(self, elements: list[Any], layout: Layout) -> None:
        """Write this thread's elements."""
        masks = layout.owned()
        for at, width, (row, column) in self._places(layout):
            place, mask = self.at(row, column), mask_of(masks[at])
            if width == 1:
                sk.store(place, elements[at], mask=mask)
            else:
                (vector,) = sk._in_vectors(elements[at : at + width], [width])
                sk._store_vector(place, vector, width * self.dtype.itemsize, mask=mask)

    def _places(self, layout: Layout) -> list[tuple[int, int, list[Any]]]:
        """Return for each access the number of its first register, how many it has, and the row and the column."""
        row, column = [self.strides.index(each) if each in self.strides else None for each in (ROW, COLUMN)]
        width = self.per_chunk if layout.width > 1 and layout.vector_axis == column else 1
        width = math.gcd(width, layout.width, layout.shape[layout.vector_axis])
        first = layout.first()

        def index(axis: int | None, offset: Shape) -> Any:
            return 0 if axis is None else _ADD(first[axis], offset[axis])

        offsets = enumerate(layout.offsets[::width])
        return [(i * width, width, [index(row, offset), index(column, offset)]) for i, offset in offsets]


def pitch_of(columns: int, dtype: Any) -> int:
    """Return the elements from row to row: whole chunks, of which there is a power of two, or an odd number."""
    count = max(CHUNK_BYTES // int(dtype.itemsize), 1)
    chunks = -(-columns // count)
    return count * (chunks if chunks & (chunks - 1) == 0 else chunks | 1)


def turns(chunks: int, shift: int | None = None) -> tuple[tuple[int, int, int], ...]:
    """Return what the places of chunks are exclusive-ored with, as fields of the number of their row: (shift, mask, shift back).

    chunks: how many a row has. shift: as of a `Matrix`.
    """
    if chunks & (chunks - 1) or chunks == 1:
        return ()
    if shift is not None:
        return ((shift, min(chunks, _MOST_TURNED) - 1, 0),)
    return {2: ((2, 1, 0),), 4: ((1, 3, 0),)}.get(chunks, ((0, 3, 1), (2, 1, 0)))


def turn(row: Any, chunks: int, shift: int | None = None) -> Any:
    """Return that of a row, known at run time."""
    fields = [_LEFT(_AND(_RIGHT(row, by), mask), back) for by, mask, back in turns(chunks, shift)]
    return functools.reduce(_OR, fields) if fields else 0


def new_matrix(
    rows: int,
    columns: int,
    dtype: sk.DType,
    strides: tuple[Any, ...] = (ROW, COLUMN),
    copies: int = 1,
    shift: int | None = None,
    *,
    is_in_panels: bool = False,
) -> Matrix:
    """Return a matrix in new memory; the first one of several that follow one another."""
    size = copies * rows * (columns if is_in_panels else pitch_of(columns, dtype))
    array = sk.alloc_shared((size,), dtype, align=PANEL_ALIGN if is_in_panels else 128)
    return Matrix(array, rows, columns, strides, shift=shift, is_in_panels=is_in_panels)
