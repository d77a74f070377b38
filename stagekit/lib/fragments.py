"""Products of tiles by the warp: `mma.sync`, its operands read from shared memory as fragments.

A product of (M, K) by (K, N) is cut among the warps, M by `down` and N by `across`. Each warp cuts its part into the shape of the
instruction, along K too:

    float16, 128 x 128 x 32 by 4 warps: 2 x 2 parts of 64 x 64, each of 4 x 8 instructions, two after the other along K

Sums stay in the registers where the instruction has them, so that in a loop over K nothing moves but the operands. Which lane has
what is the docstring of `stagekit/intrinsics/tensor.py`. Source: PTX ISA, "Matrix Fragments for mma.m16n8k16" and its kin.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import stagekit as sk
from stagekit.lib.layout import WARP, Digit, Layout, Shape, layout_of, quotient_of, recorded, rest_of
from stagekit.lib.shared import COLUMN, ROW, Matrix, new_matrix
from stagekit.lib.tile import Tile, Traced

_ADD, _SUBTRACT, _MULTIPLY, _AND, _OR, _LEFT, _RIGHT = map(sk._operation, ("+", "-", "*", "&", "|", "<<", ">>"))


class Instruction(NamedTuple):
    """How a warp multiplies. function: of `sk.cuda`. rows, depth: of its left factor. total: the dtype of its sums.

    is_widened: the factors are of 8 bits and become float16, which holds all their numbers, so that it takes two steps.
    """

    function: str
    rows: int
    depth: int
    total: str
    is_widened: bool = False


_TF32 = Instruction("mma_m16n8k8_tf32", 16, 8, "float32")
_WIDENED = Instruction("mma_m16n8k16_f16", 16, 32, "float32", is_widened=True)

INSTRUCTIONS = {
    ("float16", "ieee"): Instruction("mma_m16n8k16_f16", 16, 16, "float32"),
    ("bfloat16", "ieee"): Instruction("mma_m16n8k16_bf16", 16, 16, "float32"),
    ("float32", "tf32"): _TF32,
    ("float32", "tf32x3"): _TF32,
    ("int8", "ieee"): Instruction("mma_m16n8k32_s8", 16, 32, "int32"),
    ("uint8", "ieee"): Instruction("mma_m16n8k32_u8", 16, 32, "int32"),
    ("float64", "ieee"): Instruction("mma_m8n8k4_f64", 8, 4, "float64"),
    ("float8_e4m3fn", "ieee"): _WIDENED,
    ("float8_e5m2", "ieee"): _WIDENED,
}
"""By the dtype of the factors and the precision that is asked for."""

_COLUMNS = 8  # of every instruction


class Sharing(NamedTuple):
    """How the warps of a block share a product. threads: of the block; warps that are too many do what others do.

    in_pairs: two instructions that follow one another have every other column, as bytes come whose rows lie along N.
    """

    instruction: Instruction
    shape: Shape
    depth: int
    threads: int
    down: int
    across: int
    precision: str
    in_pairs: bool = False

    @property
    def tiles(self) -> tuple[int, int]:
        """How many instructions a warp has down and across."""
        m, n = self.shape
        return m // (self.down * self.instruction.rows), n // (self.across * _COLUMNS)

    @property
    def layout(self) -> Layout:
        """Where the sums are."""
        down, across = self.tiles
        rows = self.instruction.rows
        width = 4 if self.in_pairs else 2
        registers = (
            Digit(width, 1, 1), Digit(rows // 8, 0, 8), Digit(2 * across // width, 1, 4 * width), Digit(down, 0, rows)
        )  # fmt: skip
        lanes = [Digit(4, 1, width), Digit(8, 0, 1)]
        lanes += [Digit(self.across, 1, across * _COLUMNS), Digit(self.down, 0, down * rows)]
        lanes += [Digit(self.threads // (WARP * self.down * self.across), 0, 0)]
        return layout_of(self.shape, self.threads, registers, lanes, width)

    @property
    def order(self) -> list[int]:
        """For each sum, one instruction after the other, its place in the layout."""
        down, across = self.tiles
        places = range(down * across * self.instruction.rows // 4)
        return [i & ~7 | 2 * (i & 3) | (i >> 2 & 1) for i in places] if self.in_pairs else list(places)

    @property
    def of_left(self) -> Layout | None:
        """Where the left factor has its fragments in registers already: as sums are of which a warp has whole rows."""
        if self.across > 1 or (self.instruction.rows, self.instruction.depth) != (16, 16):
            return None
        return self._replace(shape=(self.shape[0], self.depth)).layout


@functools.cache
def sharing_for(
    dtype: sk.DType, precision: str, shape: tuple[int, int, int], threads: int, *, whole_rows: bool = False
) -> Sharing | None:
    """Return how a block multiplies tiles of (M, K) by (K, N) by instructions of the warp, None where it cannot.

    shape: M, N, K. Of the ways to share it, that in which a warp reads least; of those with whole_rows, where N is not cut.
    """
    instruction = INSTRUCTIONS.get((dtype.name, precision))
    if instruction is None or threads % WARP:
        return None
    m, n, k = shape
    tiles_down, tiles_across = m // instruction.rows, n // _COLUMNS
    if m % instruction.rows or n % _COLUMNS or k % instruction.depth:
        return None
    warps = threads // WARP
    ways = [
        (down, across)
        for down in range(1, warps + 1)
        for across in range(1, 2 if whole_rows else warps // down + 1)
        if warps % (down * across) == 0 and tiles_down % down == 0 and tiles_across % across == 0
    ]
    most = max(down * across for down, across in ways)
    reads = {way: m // way[0] + n // way[1] for way in ways if way[0] * way[1] == most}
    down, across = min(reads, key=lambda way: (reads[way], way))
    return Sharing(instruction, (m, n), k, threads, down, across, precision)


@recorded
@sk._direct
def multiplied(sharing: Sharing, a: Matrix | Tile, b: Matrix, sums: list[Traced]) -> list[Traced]:
    """Return the sums of this thread, to which its part of the product is added.

    Its factors are in shared memory; the left one may be in registers, as `Sharing.of_left` says.
    """
    down, across = sharing.tiles
    thread = sk.cuda.thread_idx("x")
    warp = _RIGHT(thread, 5)
    starts = [
        _MULTIPLY(rest_of(quotient_of(warp, sharing.across), sharing.down), down * sharing.instruction.rows),
        _MULTIPLY(rest_of(warp, sharing.across), across * _COLUMNS),
    ]
    lane = _AND(thread, WARP - 1)
    left: _Factor | _LeftInRegisters = (
        _LeftInRegisters(a, down)
        if isinstance(a, Tile)
        else _Factor(a, 0, starts[0], lane, down * sharing.instruction.rows, sharing)
    )
    right = _Factor(b, 1, starts[1], lane, across * _COLUMNS, sharing)
    count = sharing.instruction.rows // 4
    in_order = [sums[place] for place in sharing.order]
    groups = [in_order[i : i + count] for i in range(0, len(sums), count)]
    steps = range(sharing.depth // sharing.instruction.depth)
    fragments = ((left.fragments(step), right.fragments(step)) for step in steps)
    for rows, columns in _one_ahead(fragments) if sharing.across == 1 else fragments:
        pairs = [(row, column) for row in rows for column in columns]
        groups = [_product(sharing, *pair, group) for pair, group in zip(pairs, groups, strict=True)]
    found = dict(zip(sharing.order, [each for group in groups for each in group], strict=True))
    return [found[place] for place in range(len(sums))]


def _one_ahead(fragments: Iterator[Any]) -> Iterator[Any]:
    """Yield the fragments of each step when those of the next one have been asked for.

    On an H200 attention, whose warps have whole rows, was 2 to 5 % quicker so, and other products 3 % slower.
    """
    held = next(fragments)
    for following in fragments:
        yield held
        held = following
    yield held


def _product(sharing: Sharing, row: list[Traced], column: list[Traced], sums: list[Traced]) -> list[Traced]:
    function = getattr(sk.cuda, sharing.instruction.function)
    if sharing.instruction.is_widened:
        sums = function(*row[:4], *column[:2], *sums)
        return list(function(*row[4:], *column[2:], *sums))
    if sharing.precision == "tf32":
        row, column = [[_bits(_rounded(each)) for each in part] for part in (row, column)]
    if sharing.precision != "tf32x3":
        return list(function(*row, *column, *sums))
    parts = [[_halves(each) for each in part] for part in (row, column)]
    for one, other in ((1, 0), (0, 1), (0, 0)):  # small ones first
        factors = [each[one] for each in parts[0]] + [each[other] for each in parts[1]]
        sums = function(*factors, *sums)
    return list(sums)


def _widened(words: list[Traced], dtype: sk.DType) -> list[Traced]:
    """Return the words of a lane, each of four float8, as those of two instructions of float16 that follow one another.

    Of a word the first two are what the first instruction has along K, the others what it has 8 further on: in both factors, so
    that it makes no difference.
    """
    halves = [_in_halves(word, dtype) for word in words]
    count = len(words) // 2  # of an instruction
    return [half[i] for part in (halves[:count], halves[count:]) for i in range(2) for half in part]


def _in_halves(word: Traced, dtype: sk.DType) -> tuple[Traced, Traced]:
    bytes_ = [sk._view(sk.uint8(_RIGHT(word, 8 * i)), dtype) for i in range(4)]
    (vector,) = sk._in_vectors(bytes_, [4])
    bits = [sk.uint32(sk._view(each, sk.uint16)) for each in sk._lanes(sk.float16(vector))]
    low, high = [_OR(one, _LEFT(other, 16)) for one, other in zip(bits[::2], bits[1::2])]
    return low, high


def _halves(word: Traced) -> tuple[Traced, Traced]:
    """Return a number as tf32, and the rest as tf32."""
    whole = sk._view(word, sk.float32)
    large = sk.cuda.round_tf32(whole)
    return _bits(large), _bits(sk.cuda.round_tf32(_SUBTRACT(whole, large)))


def _rounded(word: Traced) -> Traced:
    return sk.cuda.round_tf32(sk._view(word, sk.float32))


def _bits(number: Traced) -> Traced:
    return sk._view(number, sk.uint32)


# -- factors ----------------------------------------------------------------------------------------------------------------


def in_memory(tile: Tile, axis: int, *, in_pairs: bool = False) -> Matrix:
    """Return a factor as a matrix in shared memory, from which fragments can be read. axis: 0 or 1, that of the result.

    Elements that lie there already stay. in_pairs: as in `Sharing`, of the right factor; else bytes lie along K.
    """
    depth, is_free = 1 - axis, tile.dtype.itemsize > 1 or in_pairs
    matrix = matrix_of(tile)
    if matrix and (is_free or matrix.strides[depth] == COLUMN):
        return matrix
    along = tile.layout.fastest_axis if is_free else depth
    matrix = new_matrix(
        tile.shape[1 - along], tile.shape[along], tile.dtype, tuple([COLUMN if a == along else ROW for a in range(2)])
    )
    matrix.store(tile.elements, tile.layout)
    return matrix


def matrix_of(tile: Tile) -> Matrix | None:
    """Return where the elements of a tile are in shared memory, each once; None for other tiles."""
    return tile.form if isinstance(tile.form, Matrix) and 0 not in tile.form.strides else None


class _LeftInRegisters:
    """The left factor of a warp where its lanes have its fragments: two words for each 8 columns of 16 rows."""

    def __init__(self, tile: Tile, down: int) -> None:
        halves = [sk.uint32(sk._view(each, sk.uint16)) for each in tile.elements]
        words = [_OR(low, _LEFT(high, 16)) for low, high in zip(halves[::2], halves[1::2])]
        count = len(words) // down
        self.rows = [words[i : i + count] for i in range(0, len(words), count)]

    def fragments(self, step: int) -> list[list[Traced]]:
        """Return what this lane has of each 16 rows in the given step of 16 along K."""
        return [row[4 * step : 4 * step + 4] for row in self.rows]


class _Factor:
    """One factor of a warp: `extent` rows of the left one, or columns of the right one, from `start` on.

    axis: 0 or 1, that of the result.
    """

    def __init__(self, matrix: Matrix, axis: int, start: Traced, lane: Traced, extent: int, sharing: Sharing) -> None:
        self.matrix, self.axis, self.start, self.lane, self.extent = matrix, axis, start, lane, extent
        self.depth = sharing.instruction.depth
        self.group = sharing.instruction.rows if axis == 0 else _COLUMNS
        self.is_along = matrix.strides[1 - axis] == COLUMN  # elements along K are neighbours

    def fragments(self, step: int) -> list[list[Traced]]:
        """Return what this lane has of each group of rows, or columns, in the given step along K."""
        found, dtype = self._words(step), self.matrix.dtype
        return [_widened(words, dtype) for words in found] if dtype.is_float and dtype.bits == 8 else found

    def _words(self, step: int) -> list[list[Traced]]:
        if self.is_along and self.matrix.dtype.itemsize <= 4:
            return self._by_matrices(step, is_turned=False)
        if self.matrix.dtype.itemsize == 2:
            return self._by_matrices(step, is_turned=True)
        if self.matrix.dtype.itemsize == 1:
            return self._by_pairs(step)
        return self._by_elements(step)

    def _by_matrices(self, step: int, *, is_turned: bool) -> list[list[Traced]]:
        """Read four matrices of 8 by 16 bytes at once: two groups of 8 rows, or columns, two chunks along K."""
        found: list[list[Traced]] = []
        for at in range(0, self.extent, 16):
            is_whole = at + 16 <= self.extent
            load = sk.cuda.ldmatrix_x4 if is_whole else sk.cuda.ldmatrix_x2
            words = list(load(self._place(step, at, is_turned=is_turned), trans=is_turned))
            found += [words[i : i + self.group // 4] for i in range(0, len(words), self.group // 4)]
        return found

    def _place(self, step: int, at: int, *, is_turned: bool) -> Traced:
        """Return where this lane's row of the matrices is. Those along K follow one another in the right factor, in the left
        one those of 8 rows.
        """
        bits = _AND(_RIGHT(self.lane, 3), 1), _RIGHT(self.lane, 4)
        along, across = bits if self.axis == 1 else bits[::-1]
        if at + 16 > self.extent:
            across = 0  # lanes that nobody asks
        row = _AND(self.lane, 7)
        if not is_turned:
            row = _ADD(_ADD(self.start, row), _MULTIPLY(across, 8))
            return self.matrix.chunk_at(row, along, more_rows=at, more_chunks=2 * step)
        per_chunk = self.matrix.per_chunk
        chunk, more = _ADD(_RIGHT(self.start, per_chunk.bit_length() - 1), across), at // per_chunk
        if self.extent & (self.extent - 1):  # the start may be no multiple of a power of two above `more`
            chunk, more = _ADD(chunk, more), 0
        return self.matrix.chunk_at(
            _ADD(row, _MULTIPLY(along, 8)), chunk, more_rows=step * self.depth, more_chunks=more
        )

    def _by_pairs(self, step: int) -> list[list[Traced]]:
        """Read 32 rows of bytes along K, 16 columns at once, two bytes as an element: a lane gets two columns of two rows.

        Which rows a matrix has is chosen so that two words have four that follow one another, of each column two bytes.
        """
        bit = [_AND(_RIGHT(self.lane, i), 1) for i in range(5)]  # of a row: 0 and 2, 3; of a matrix: 1 and 4
        steps = [_MULTIPLY(each, far) for each, far in zip(bit, (1, 4, 8, 2, 16))]
        row, found = functools.reduce(_ADD, steps), list[list[Traced]]()
        for at in range(0, self.extent, 16):
            chunk = _ADD(_RIGHT(self.start, 4), at // 16)
            words = sk.cuda.ldmatrix_x4(self.matrix.chunk_at(row, chunk, more_rows=step * self.depth), trans=True)
            for bytes_ in (0x6420, 0x7531):
                found.append([sk.byte_perm(words[i], words[i + 1], bytes_) for i in (0, 2)])
        return found

    def _by_elements(self, step: int) -> list[list[Traced]]:
        """Read each of a lane's elements by itself."""
        index, deep = _ADD(self.start, _RIGHT(self.lane, 2)), _AND(self.lane, 3)
        halves = self.group // 8
        return [
            [
                self._element(index, at + 8 * half, deep, step * self.depth + 4 * k)
                for k in range(self.depth // 4)
                for half in range(halves)
            ]
            for at in range(0, self.extent, self.group)
        ]

    def _element(self, index: Traced, more: int, deep: Traced, step: int) -> Traced:
        if self.is_along:
            found = sk.load(self.matrix.at(index, _ADD(deep, step), more_rows=more))
        else:
            near = step % 8
            found = sk.load(self.matrix.at(_ADD(deep, near), _ADD(index, more), more_rows=step - near))
        return found if self.matrix.dtype is sk.float64 else sk._view(found, sk.uint32)
