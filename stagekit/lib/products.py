"""Products of tiles: `acc = sk.dot(a, b, acc)`.

Where tensor cores can, they multiply (`fragments`). Else both operands go to shared memory, row by row of the common axis. Each
thread holds a block of the result, some rows by some columns: of each row of an operand it reads what its block needs, in
vectors, and adds products of all pairs.
"""

from __future__ import annotations

import math
from typing import Any

import stagekit as sk
from stagekit.lib.axes import held
from stagekit.lib.conversion import Scratch, best_gap, is_pointer, strides_of, wait
from stagekit.lib.cpu_products import cpu_product
from stagekit.lib.fragments import Sharing, in_memory, matrix_of, multiplied, sharing_for
from stagekit.lib.layout import WARP, Digit, Layout, layout_of, mask_of
from stagekit.lib.panels import kept
from stagekit.lib.placing import layout_for
from stagekit.lib.reductions import sum_dtype
from stagekit.lib.shared import COLUMN, ROW, Matrix, new_matrix
from stagekit.lib.tile import Tile, Traced
from stagekit.lib.warpgroups import Warpgroups, multiplied_by_groups, warpgroups_for

_ADD, _MULTIPLY, _LESS = map(sk._operation, ("+", "*", "<"))

PRECISIONS = ("ieee", "tf32", "tf32x3")
_VECTOR_BYTES = 16  # of an access of shared memory
_MOST_PRODUCTS = 1024  # of a thread that are instructions of their own: `ptxas` took 45 s for 8,192


@sk._kernel_only
@sk._direct
def dot(a: Tile, b: Tile, acc: Tile | None = None, precision: str = "ieee", whole_rows: bool = False) -> Tile:
    """Return the product of matrices `a @ b`, added to `acc`, a tile of shape (M, N) for `a` of (M, K) and `b` of (K, N).

    Both have one dtype. Floats of up to 32 bits are multiplied and added in float32, float64 in float64, integers below 64
    bits in int32 or uint32, and wrap. `acc` has the dtype of the result. On a GPU tensor cores multiply, where M, N and K are
    multiples of their shapes (16, 8, and 32 bytes; of float64 8, 8, and 4), in an order of additions of their own; else, and on
    the CPU, fused multiply-adds in the order of K. precision: of float32; "ieee" (multiply-adds), "tf32" (on tensor cores with
    factors rounded to 11 bits), or "tf32x3" (with the sum of two such, an error near that of float32). The CPU rounds no factor.
    whole_rows: each warp has rows of the result from end to end, so that they are reduced, and become the left factor of another
    product, without other warps.
    """
    dtype = _checked(a, b, acc, precision)
    (m, k), n = a.shape, b.shape[1]
    memory = layout_for((m, n))
    total = sk.zeros((m, n), dtype) if acc is None else acc
    if sk._is_for_cpu():
        return cpu_product(a, b, total, whole_rows=whole_rows)
    if (groups := _groups_for(a, b, memory.threads, whole_rows=whole_rows)) is not None:
        sums = total.at(groups.layout)
        return sums.like(multiplied_by_groups(groups, matrix_of(a), matrix_of(b), sums.elements))
    sharing = _sharing(a, b, (m, n, k), precision, memory.threads, whole_rows=whole_rows)
    if sharing is not None:
        return _by_warps(sharing, a, b, total)
    layout = _layout_for(a, b, memory, dtype)
    total = total.at(layout)
    sources = [_kept_rows(each, layout, axis, dtype) for axis, each in enumerate((a, b))]
    left, right = [
        kept or _Rows(each, layout, axis, dtype) for axis, (kept, each) in enumerate(zip(sources, (a.trans(), b)))
    ]
    is_new = None in sources
    if is_new:
        wait(layout.threads)
    parts = _HeldBlock(total, left, right).after(k)
    if is_new:
        wait(layout.threads)  # in a loop, the next round writes to the same memory
    return total.like(parts)


def _groups_for(a: Tile, b: Tile, threads: int, *, whole_rows: bool) -> Warpgroups | None:
    """Return how warpgroups share a product; None where its factors do not lie as they read them."""
    if not all(matrix is not None and matrix.is_in_panels for matrix in (matrix_of(a), matrix_of(b))):
        return None
    found = warpgroups_for(a.dtype, (a.shape[0], b.shape[1], a.shape[1]), threads)
    return None if found is None or (whole_rows and found.across > 1) else found


def _sharing(
    a: Tile, b: Tile, shape: tuple[int, int, int], precision: str, threads: int, *, whole_rows: bool
) -> Sharing | None:
    """Return how warps share a product: by whole rows also where the left factor is so already."""
    if b.dtype.itemsize == 1:
        sharing = sharing_for(a.dtype, precision, shape, threads, whole_rows=whole_rows)
        return sharing and sharing._replace(in_pairs=_is_by_rows(b) and sharing.tiles[1] % 2 == 0)
    by_rows = sharing_for(a.dtype, precision, shape, threads, whole_rows=True)
    if by_rows is not None and (whole_rows or (not a.form and a.layout == by_rows.of_left)):
        return by_rows
    return sharing_for(a.dtype, precision, shape, threads)


def _is_by_rows(tile: Tile) -> bool:
    """Return whether elements of a row lie side by side, in shared memory or as threads have them."""
    matrix = matrix_of(tile)
    return matrix.strides[1] == COLUMN if matrix else tile.layout.fastest_axis == 1


def _by_warps(sharing: Sharing, a: Tile, b: Tile, total: Tile) -> Tile:
    """Return a product by tensor cores. An operand that is in shared memory already needs no barrier here."""
    dtype = total.dtype
    sums = total.at(sharing.layout).view(getattr(sk, sharing.instruction.total))
    is_at_hand = not a.form and a.layout == sharing.of_left
    left, right = a if is_at_hand else in_memory(a, 0), in_memory(b, 1, in_pairs=sharing.in_pairs)
    is_new = (not is_at_hand and left is not a.form) or right is not b.form
    if is_new:
        wait(sharing.threads)
    found = sums.like(multiplied(sharing, left, right, sums.elements))
    if is_new:
        wait(sharing.threads)  # in a loop, the next round writes to the same memory
    return found.view(dtype)


@sk._kernel_only
@sk._direct
def shared(tile: Tile) -> Tile:
    """Return the same tile with its elements in shared memory, for products that read them again and again.

    Of one axis: numbers of rows or of columns, which each thread of a GPU reads where it needs them, so that they need not move.
    On a GPU matrices of bytes and of bool, and on the CPU what has one axis, stay the tile itself.
    """
    if not isinstance(tile, Tile):
        sk.static_assert(False, f"shared takes a tile, got {tile!r}")
    is_factor = tile.ndim == 2 and tile.dtype.itemsize > 1 and not is_pointer(tile.elements[0])
    if sk._is_for_cpu() and tile.ndim == 2 and tile.dtype is not sk.bool_:
        return kept(tile, sum_dtype(tile.dtype))
    is_row = tile.ndim == 1 and not sk._is_for_cpu() and not is_pointer(tile.elements[0])
    if not (is_factor or is_row) or isinstance(tile.form, Matrix):
        return tile
    strides = (COLUMN,) if tile.ndim == 1 else (ROW, COLUMN) if tile.layout.fastest_axis == 1 else (COLUMN, ROW)
    *rows, columns = tile.shape if strides[0] == ROW else tile.shape[::-1]
    matrix = new_matrix(math.prod(rows), columns, tile.dtype, strides)
    wait(tile.layout.threads)  # in a loop, for what was read in its last round
    matrix.store(tile.elements, tile.layout)
    wait(tile.layout.threads)
    return Tile((), tile.layout, matrix)


def _checked(a: Any, b: Any, acc: Any, precision: Any) -> sk.DType:
    """Return the dtype of a product. Refused: what is no tile, and shapes and dtypes that do not fit each other."""
    given = [each for each in (a, b, acc) if each is not None]
    if not all(isinstance(each, Tile) for each in given):
        sk.static_assert(False, "dot takes two tiles, and a third one that the product is added to")
    shapes = " and ".join(str(each.shape) for each in (a, b))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        sk._refuse_shape(f"dot of tiles of shapes {shapes}", "give tiles of shapes (M, K) and (K, N)")
    if a.dtype is not b.dtype or a.dtype is sk.bool_:
        kinds = "a float or an integer"
        text = f"dot of {a.dtype.name} and {b.dtype.name}: both are of one dtype, {kinds}"
        sk.static_assert(False, text)
    if precision not in PRECISIONS or (precision != "ieee" and a.dtype is not sk.float32):
        choices = ", ".join(map(repr, PRECISIONS))
        sk.static_assert(
            False, f"dot of {a.dtype.name} with precision={precision!r}: of float32 it is one of {choices}"
        )
    dtype = sum_dtype(a.dtype)
    if acc is not None and (acc.shape != (a.shape[0], b.shape[1]) or acc.dtype is not dtype):
        text = f"dot of shapes {shapes} added to {acc.dtype.name} of shape {acc.shape}"
        sk._refuse_shape(text, f"start with `sk.zeros({(a.shape[0], b.shape[1])}, sk.{dtype.name})`")
    return dtype


def of_product(shape: tuple[int, ...], threads: int, most: int, *, is_apart: bool = False) -> Layout:
    """Return the layout in which each thread holds a block of a matrix, about as high as wide, whose rows are vectors.

    most: elements of a vector; 1 where the lanes of a warp are one, which hold neighbours of a row then. is_apart: the rows of a
    thread are not neighbours, but its lane's are: so they are read from a matrix by rows without bank conflicts.
    """
    rows, columns = shape
    height, width = (math.gcd(extent, most) for extent in shape)
    height = 1 if is_apart else height
    ideal = WARP if most == 1 else 1 << max(round(math.log2(threads * columns / rows) / 2), 0)
    most_threads = 1 << (-(-columns // width) - 1).bit_length()
    across = math.gcd(threads, 1 << (min(ideal, most_threads).bit_length() - 1))
    down = threads // across
    registers = (
        Digit(width, 1, 1), Digit(-(-columns // (across * width)), 1, across * width),
        Digit(height, 0, 1), Digit(-(-rows // (down * height)), 0, down * height),
    )  # fmt: skip
    return layout_of(shape, threads, registers, (Digit(across, 1, width), Digit(down, 0, height)), width)


class _Rows:
    """An operand in shared memory: a row for each index of the common axis. axis: of the result, along which its columns are."""

    def __init__(self, tile: Tile, layout: Layout, axis: int, dtype: sk.DType) -> None:
        source = held(tile).to(dtype)
        self.width = math.gcd(tile.shape[1], max(_VECTOR_BYTES // dtype.itemsize, 1)) if layout.width > 1 else 1
        gap = best_gap((source.layout,), dtype.itemsize, self.width)
        self.pitch = strides_of(tile.shape, gap)[0]
        self.align = self.width * dtype.itemsize
        scratch = Scratch(tile.shape, gap, dtype)
        scratch.store(source.elements, source.layout)
        first = layout.first([axis])[axis]
        self.start = _ADD(scratch.array, first)
        self.offsets = list(dict.fromkeys(offset[axis] for offset in layout.offsets))
        self.masks = self._masks(first, layout, axis)

    def _masks(self, first: Traced, layout: Layout, axis: int) -> list[Traced]:
        """Return for each vector whether it exists; True itself where it does in every thread."""
        last = sum((digit.radix - 1) * digit.stride for digit in layout.lanes if digit.axis == axis)
        extent = layout.shape[axis]
        return [True if o + last < extent else _LESS(_ADD(first, o), extent) for o in self.offsets[:: self.width]]

    def row(self, first: Traced, number: int) -> list[Traced]:
        """Return this thread's part of row `first + number`, as vectors."""
        start = _ADD(self.start, _MULTIPLY(first, self.pitch))
        places = [_ADD(start, number * self.pitch + offset) for offset in self.offsets[:: self.width]]
        masks = [*map(mask_of, self.masks)]
        if self.width == 1:
            return [sk.load(place, mask=mask) for place, mask in zip(places, masks)]
        return [sk._load_vector(place, self.width, self.align, mask=mask) for place, mask in zip(places, masks)]


def _layout_for(a: Tile, b: Tile, memory: Layout, dtype: sk.DType) -> Layout:
    """Return the layout of a product by threads: with rows apart where those of the left operand can be read so."""
    most = max(_VECTOR_BYTES // dtype.itemsize, 1)
    left = matrix_of(a)
    if left is not None and left.strides[1] == COLUMN:
        layout = of_product(memory.shape, memory.threads, most, is_apart=True)
        if _can_read(a, layout, dtype):
            return layout
    return of_product(memory.shape, memory.threads, most)


def _kept_rows(tile: Tile, layout: Layout, axis: int, dtype: sk.DType) -> _KeptRows | None:
    """Return the rows of an operand that is in shared memory as its product needs it; None of others."""
    matrix = matrix_of(tile)
    return _KeptRows(matrix, layout, axis) if matrix and _can_read(tile, layout, dtype) else None


def _can_read(tile: Tile, layout: Layout, dtype: sk.DType) -> bool:
    """Return whether threads can read an operand where it is: by vectors, of which none is cut off."""
    matrix = matrix_of(tile)
    is_even = layout.count * layout.threads == layout.extent
    return (
        matrix is not None and tile.dtype is dtype and layout.width > 1 and is_even
        and matrix.columns % layout.width == 0
    )  # fmt: skip


class _KeptRows:
    """An operand that is in shared memory, a row of it for each index of the common axis. axis: as in `_Rows`.

    Where elements along the common axis lie side by side, a vector has those of some rows, which are kept until they are wanted.
    """

    def __init__(self, matrix: Matrix, layout: Layout, axis: int) -> None:
        self.matrix, self.width = matrix, layout.width
        self.align = layout.width * matrix.dtype.itemsize
        self.is_along = matrix.strides[1 - axis] == COLUMN
        self.first = layout.first([axis])[axis]
        self.offsets = list(dict.fromkeys(offset[axis] for offset in layout.offsets))
        self.known: list[list[Traced]] = []

    def row(self, first: Traced, number: int) -> list[Traced]:
        """Return this thread's part of row `first + number`, as vectors, or as numbers. first: a multiple of the width."""
        row = _ADD(first, number)
        if not self.is_along:
            return [self._vector(row, _ADD(self.first, o)) for o in self.offsets[:: self.width]]
        if number % self.width == 0:
            self.known = [sk._lanes(self._vector(_ADD(self.first, o), row)) for o in self.offsets]
        return [lanes[number % self.width] for lanes in self.known]

    def _vector(self, row: Traced, column: Traced) -> Traced:
        return sk._load_vector(self.matrix.at(row, column), self.width, self.align)


class _HeldBlock:
    """The block of the result that a thread holds. It begins as `total`; `after` adds rows of the operands."""

    def __init__(self, total: Tile, left: _Rows | _KeptRows, right: _Rows | _KeptRows) -> None:
        self.left, self.right = left, right
        self.parts = list(total.vectors_of(total)) if total.layout.width > 1 else total.elements
        self.is_float, self.count = total.dtype.is_float, len(total.layout.offsets)

    def after(self, rows: int) -> list[Traced]:
        """Return the block after so many rows: in rounds of some, if all of them would be very many instructions."""
        size = max(_MOST_PRODUCTS // self.count // _VECTOR_BYTES, 1) * _VECTOR_BYTES
        whole = rows // size * size if rows >= 2 * size else 0
        parts = _in_rounds(self, whole, size, self.parts) if whole else self.parts
        return self.with_rows(0, range(whole, rows), parts)

    @sk._direct
    def with_rows(self, first: Traced, numbers: range, parts: list[Traced]) -> list[Traced]:
        """Return parts to which the products of rows `first + number` are added."""
        for number in numbers:
            column = [each for part in self.left.row(first, number) for each in sk._lanes(part)]
            row = self._in_parts(self.right.row(first, number))
            pairs = [(x, y) for x in column for y in row]
            parts = [self.added(x, y, sum_) for (x, y), sum_ in zip(pairs, parts, strict=True)]
        return parts

    def _in_parts(self, row: list[Traced]) -> list[Traced]:
        """Return a row as the vectors that the sums are held in."""
        width = self.right.width
        return (
            row if len(row) * width == len(self.right.offsets) else sk._in_vectors(row, [width] * (len(row) // width))
        )

    def added(self, x: Traced, y: Traced, sum_: Traced) -> Traced:
        return sk.fma(y, x, sum_) if self.is_float else _ADD(_MULTIPLY(y, x), sum_)


@sk._kernel_only
def _in_rounds(block: _HeldBlock, rows: int, size: int, parts: list[Traced]) -> list[Traced]:
    """Return parts to which the products of rows are added, so many of them in each round of a loop at run time."""
    for first in range(0, rows, size):
        parts = block.with_rows(first, range(size), parts)
    return parts
