"""Matrices: their product, with what is to be done with it at the end, and their transposition."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import stagekit as sk
from stagekit.kernels import splitting
from stagekit.kernels.host import (
    Dtype,
    device_of,
    dtype_of,
    empty,
    factory,
    float_dtype_of,
    gpu_numbered,
    is_array,
    is_on_cpu,
    numbers_beside,
    remembered,
    require,
    require_array,
    settled,
)
from stagekit.kernels.options import Precision, require_multiple
from stagekit.kernels.sharing import checked_out

MAX_OPERANDS = 4  # of an epilogue
Kind = tuple[Dtype, int] | None  # of an operand: dtype and axes; None for a number
Strides = tuple[tuple[int | None, int | None], ...]  # of a and b: 1 for the axis along which elements lie side by side
GROUP = 8  # blocks of rows whose programs follow one another, so that those at work share columns of b in the cache


class Blocks(NamedTuple):
    """What a program multiplies at once, and its threads. stages: rounds that have memory; 1 where a round loads for the next."""

    rows: int
    columns: int
    depth: int
    threads: int
    stages: int = 1

    def divide(self, rows: int, columns: int, depth: int) -> bool:
        """Return whether all blocks of a product are whole."""
        return rows % self.rows == columns % self.columns == depth % self.depth == 0

    def bytes(self, itemsize: int) -> int:
        """Return how much shared memory the factors of all stages take."""
        return (self.rows + self.columns) * self.depth * self.stages * itemsize


BlockSizes = Annotated[tuple[int, ...], Blocks]
"""The numbers of `Blocks`, with stages or without."""


# -- product --------------------------------------------------------------------------------------------------------------


@sk.inline
def operand_of(x: Any, row: Any, column: Any, total: Any) -> Any:
    """Return what goes with a block of the product: a block of x, a part of it if it has one axis, or x as a number.

    A block is loaded as the sums lie, since there may be no shared memory left to move it through.
    """
    if not hasattr(x, "shape"):
        return x
    M, N = total.shape
    tile = sk.load(x.tile(column, N)) if x.ndim == 1 else x.tile((row, column), (M, N)).load_like(total)
    return tile.to(sk.float32) if tile.dtype.is_float and tile.dtype.bits < 32 else tile


@sk.inline
def by_groups(number: Any, across: Any, down: Any, most: int) -> Any:
    """Return the column and the row of a number of a table: `most` rows go through all columns together, then the next ones."""
    first = number // (most * across) * most
    size = min(down - first, most)
    place = number - first * across
    return place // size, first + place % size


@sk.inline
def block_of() -> tuple[Any, Any]:
    """Return which block of columns, and of rows, this program has: a few blocks of rows go through all columns together."""
    down, across = sk.num_programs(0), sk.num_programs(1)
    column, row = by_groups(sk.program_id(1) * down + sk.program_id(0), across, down, GROUP)
    return column, row


@factory
def matmul_kernel(
    dtype: Dtype,
    out_dtype: Dtype,
    strides: Strides,
    epilogue: Callable[..., Any] | None,
    kinds: tuple[Kind, ...],
    BLOCKS: BlockSizes,
    precision: Precision = "ieee",
    WHOLE: bool = False,
) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns](a, b, out, *operands)`.

    epilogue: of the block of the product in the dtype of its sums, and of the operands, whose dtypes and axes are `kinds`. WHOLE:
    all blocks of a and b are whole.
    """
    m, n, k = sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    M, N, K, threads, stages = Blocks(*BLOCKS)
    sums, count = _SUMS.get(dtype, sk.float32), pieces_for(Blocks(*BLOCKS), kinds)
    A = Annotated[sk.Array, sk.Tensor((m, k), dtype, strides[0])]
    B = Annotated[sk.Array, sk.Tensor((k, n), dtype, strides[1])]
    Out = Annotated[sk.Array, sk.Tensor((m, n), out_dtype, (None, 1))]
    of = operand_types(kinds, m, n)
    C = Annotated[Any, of[0]]
    D = Annotated[Any, of[1]]
    E = Annotated[Any, of[2]]
    F = Annotated[Any, of[3]]

    @sk.jit(threads=threads)
    def matmul(a: A, b: B, out: Out, c: C = None, d: D = None, e: E = None, f: F = None) -> None:
        across, down = block_of() if stages > 1 else (sk.program_id(1), sk.program_id(0))
        row, column = down * M, across * N

        def parts(start: Any) -> Any:
            return a.tile((row, start), (M, K)), b.tile((start, column), (K, N))

        total = sk.zeros((M, N), sums)
        if stages > 1:
            for x, y in sk.staged(range(0, k, K), parts, stages=stages, whole=WHOLE):
                total = sk.dot(x, y, total, precision=precision)
        else:
            x, y = [sk.load(part) for part in parts(0)]
            for start in range(K, k + K, K):
                later = [sk.load(part) for part in parts(start)]
                total = sk.dot(x, y, total, precision=precision)
                x, y = later
        for first, piece in total.pieces(count):
            shape = piece.shape
            if epilogue is not None:
                others = [operand_of(each, row, column + first, piece) for each in (c, d, e, f)[: len(kinds)]]
                piece = piece.of_each(epilogue, piece, *others)
            sk.store(out.tile((row, column + first), shape), piece)

    return matmul


def operand_types(kinds: tuple[Kind, ...], m: Any, n: Any) -> list[sk.Tensor | None]:
    """Return what each of the operands is that a kernel may have; None for a number, and for one that is not there."""
    return [
        None if kind is None else sk.Tensor((m, n)[-kind[1] :], kind[0], (None, 1)[-kind[1] :])
        for kind in (*kinds, *[None] * MAX_OPERANDS)[:MAX_OPERANDS]
    ]


def kinds_of(operands: tuple[Any, ...], epilogue: Any) -> tuple[Kind, ...]:
    """Return what the operands of an epilogue are. Refused: too many, and what is no epilogue."""
    given = len(operands)
    require(given <= MAX_OPERANDS, "{} operands, and an epilogue takes {} at most", given, MAX_OPERANDS)
    require(epilogue is not None or not operands, "operands are for an epilogue, and there is none")
    require(epilogue is None or callable(epilogue), "an epilogue is a function, got {!r}", epilogue)
    return tuple([(dtype_of(x), len(x.shape)) if is_array(x) else None for x in operands])


def pieces_for(blocks: Blocks, kinds: tuple[Kind, ...]) -> int:
    """Return in how many pieces an epilogue takes the sums, so that they stay in registers, and what goes with a piece."""
    sums = blocks.rows * blocks.columns // blocks.threads
    words = sum(
        [sums * dtype.bits // (32 if axes > 1 else 64) for dtype, axes in filter(None, kinds)]
    )  # of a row, half
    return next((count for count in (1, 2, 4) if sums + words // count <= _ROOM_OF_EPILOGUES), 8)


def matmul(
    a: Any, b: Any, *operands: Any, epilogue: Callable[..., Any] | None = None, out: Any = None, precision: str = "ieee"
) -> Any:
    """Return epilogue(a @ b, *operands), element by element, of matrices a (m, k) and b (k, n) of one dtype.

    a, b: float32, float16, bfloat16, int8, uint8, float64, float8_e4m3fn or float8_e5m2, either of them also as the
    transposition of such a matrix. Products and sums are in float32, int32, uint32 or float64, and rounded once, behind the
    epilogue. operands: at most 4: arrays of shape (m, n), of shape (n,), numbers. epilogue: a function of tiles, as `lambda x,
    bias: sk.maximum(x + bias, 0)`. out: any dtype; left out, that of a, or of the sums of integers and of float8. precision: of
    float32 on a GPU, as in `sk.dot`: "ieee", "tf32" or "tf32x3".
    """
    dtype = dtype_of(a)
    require_array(b)
    sums = _SUMS.get(dtype)
    if sums is None:
        dtype = float_dtype_of(a)
    of_a, of_b = matrix_shapes(a, b)
    kinds = kinds_of(operands, epilogue)
    precisions = tuple(_KINDS_OF_FLOAT32) if dtype is sk.float32 else ("ieee",)
    require(precision in precisions, "precision={!r} of {}: it is one of {}", precision, dtype.name, precisions)
    sizes = of_a[0], of_b[1], of_a[1]
    out = (
        empty(a, sizes[:2], sums or dtype)
        if out is None
        else checked_out(out, *filter(is_array, operands), apart=(a, b))
    )
    strides, types = (_strides(a), _strides(b)), (dtype, sums or sk.float32, dtype_of(out))
    gpu = None if is_on_cpu(a) else device_of(a)
    if epilogue is None and gpu is not None:
        split = _split_for(types, strides, precision, sizes, gpu)
        if split is not None and splitting.multiply(split, a, b, out):
            return out
    if operands:
        operands = numbers_beside((dtype, *[kind[0] for kind in kinds if kind]), operands)
    finish = None if epilogue is None else settled(epilogue)
    kernel, grid = _kernel_for(types, strides, finish, kinds, precision, sizes, gpu)
    kernel[grid](a, b, out, *operands)
    return out


@remembered
def _split_for(
    types: tuple[Dtype, Dtype, Dtype], strides: Strides, precision: str, sizes: tuple[int, int, int], gpu: int
) -> splitting.SharedProduct | None:
    """Return how a product is shared along its common axis, if it is. types: of a, of sums and of out. sizes: m, n, k."""
    known = known_blocks(types[0], precision, are_masked=True, **gpu_numbered(gpu))
    return splitting.plan_for(types, strides, precision, known, *sizes)


@remembered
def _kernel_for(
    types: tuple[Dtype, Dtype, Dtype],
    strides: Strides,
    finish: Callable[..., Any] | None,
    kinds: tuple[Kind, ...],
    precision: str,
    sizes: tuple[int, int, int],
    gpu: int | None,
) -> tuple[sk.JitFunction, tuple[int, int]]:
    """Return the kernel of a product and its grid. gpu: its number; None for the CPU. All else: as of `_split_for`."""
    rows, columns, _ = sizes
    if gpu is None:
        blocks = cpu_blocks_for(rows, columns)
    else:
        blocks = blocks_for(types[0], precision, *sizes, **gpu_numbered(gpu))
        if blocks.stages == 1 and strides[1][0] == 1:
            blocks = blocks._replace(threads=min(blocks.threads, _BY_COLUMNS))
    is_whole = blocks.divide(*sizes) and gpu is not None
    kernel = matmul_kernel(types[0], types[2], strides, finish, kinds, blocks, precision, WHOLE=is_whole)
    return kernel, (int(sk.cdiv(rows, blocks.rows)), int(sk.cdiv(columns, blocks.columns)))


def matrix_shapes(a: Any, b: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of two matrices. Refused: other arrays."""
    of_a, of_b = a.shape, b.shape
    if len(of_a) != 2 or len(of_b) != 2:
        require(False, "a has shape {} and b {}: give two matrices", tuple(of_a), tuple(of_b))
    return of_a, of_b


_SUMS: dict[Dtype, Dtype] = {
    sk.int8: sk.int32, sk.uint8: sk.uint32, sk.float64: sk.float64,
    sk.float8_e4m3fn: sk.float32, sk.float8_e5m2: sk.float32,
}  # fmt: skip
"""The dtype of sums, which is that of the result too, of factors whose sums are not rounded to their own."""


def _strides(matrix: Any) -> tuple[int | None, int | None]:
    """Return 1 for the axis along which the elements of a matrix lie side by side, None for the other."""
    return (None, 1) if is_by_rows(matrix) else (1, None)


def is_by_rows(matrix: Any) -> bool:
    """Return whether the elements of each row of a matrix lie side by side, and not those of its columns alone."""
    if isinstance(matrix, sk.cuda.DeviceArray):
        return True
    if callable(getattr(matrix, "stride", None)):  # torch, in elements
        return bool(matrix.stride(1) == 1 or matrix.stride(0) != 1)
    return bool(matrix.strides[1] == matrix.itemsize or matrix.strides[0] != matrix.itemsize)


CPU_BLOCKS = Blocks(16, 32, 32, 32)
MIDDLE_CPU_BLOCKS = Blocks(128, 64, 128, 512, 2)  # a warp has 8 rows; both factors fit the second cache
LARGE_CPU_BLOCKS = Blocks(128, 128, 128, 1024, 2)  # of which each element that is copied is multiplied more often
_MANY = 64  # large blocks: enough for as many cores

BLOCKS = {
    "bytes": [Blocks(128, 256, 64, 256, 3), Blocks(128, 128, 64, 128, 3), Blocks(64, 64, 64, 128, 3)],
    "halves": [Blocks(128, 256, 64, 256, 3), Blocks(128, 128, 32, 128, 4), Blocks(64, 64, 64, 128, 3)],
    "warpgroups": [Blocks(128, 256, 64, 256, 4), Blocks(128, 128, 64, 128, 3), Blocks(64, 64, 64, 128, 3)],
    "words": [Blocks(128, 128, 32, 128, 3), Blocks(64, 64, 32, 128, 3)],
    "doubles": [Blocks(128, 64, 16, 128, 4), Blocks(64, 64, 16, 128, 4)],
    "by threads": [Blocks(128, 128, 16, 256), Blocks(64, 64, 16, 64), Blocks(32, 32, 16, 64)],
}
"""By what tensor cores multiply, or that they do not, from large blocks to small ones."""

_PARTS_BY_THREADS = [Blocks(128, 128, 32, 256), *BLOCKS["by threads"][1:]]  # where the common axis is shared

_BY_COLUMNS = 128  # threads at most that multiply by a factor by columns: 256 need more registers than two blocks have
_FEW = 128  # blocks, about as many as a GPU has multiprocessors: with fewer, smaller ones are quicker
_ALONE = 256  # threads of a block of which a multiprocessor has one or two: the last of them leave others idle
_FULL = 0.9  # share of the multiprocessors that has work then
_DEEP = 1024  # of the common axis, from which on it does not matter that such a block begins and ends by itself
_UNIT = 8  # elements of 16 bytes: rows of so many begin where the TMA unit can copy, which masks nothing


_ROOM_OF_EPILOGUES = 200  # words of a thread, of 255 registers, with what it knows of places

_KINDS_OF_FLOAT32 = {"ieee": "by threads", "tf32": "words", "tf32x3": "words"}  # of blocks, by precision


@functools.cache
def known_blocks(
    dtype: Dtype, precision: str, room: int = sys.maxsize, *, by_warpgroups: bool = False, are_masked: bool = False
) -> list[Blocks]:
    """Return blocks for a GPU, from large to small.

    room: the bytes of shared memory that a block may have. by_warpgroups: whether they multiply there. are_masked: those for
    programs that have a part of the common axis, whose copies are masked, so that they do not go on between products: two blocks
    of a multiprocessor are quicker than one.
    """
    halves = "warpgroups" if by_warpgroups else "halves"
    kind = {1: "bytes", 2: halves, 8: "doubles"}.get(dtype.itemsize) or _KINDS_OF_FLOAT32[precision]
    known = _PARTS_BY_THREADS if are_masked and kind == "by threads" else BLOCKS[kind]
    return [
        each
        for each in known
        if each.bytes(dtype.itemsize) <= room and not (are_masked and each.stages > 1 and each.threads >= _ALONE)
    ]


def blocks_for(dtype: Dtype, precision: str, rows: int, columns: int, depth: int = 0, **gpu: Any) -> Blocks:
    """Return what a program multiplies at once on a GPU: the largest blocks of which there are enough; else the smallest.

    depth: of the common axis; 0 for kernels whose copies are masked. gpu: `room` and `by_warpgroups`, as `gpu_of` says.
    """
    known, is_masked = known_blocks(dtype, precision, **gpu), True
    if gpu.get("by_warpgroups") and dtype.itemsize == 2:
        is_masked = any(size % _UNIT for size in (rows, columns, depth))
    return next((each for each in known if _is_worth_it(each, rows, columns, depth, is_masked)), known[-1])


def _is_worth_it(blocks: Blocks, rows: int, columns: int, depth: int, is_masked: bool) -> bool:
    count = sk.cdiv(rows, blocks.rows) * sk.cdiv(columns, blocks.columns)
    if count < _FEW or blocks.threads < _ALONE:
        return bool(count >= _FEW)
    if count < _FULL * splitting.MULTIPROCESSORS * sk.cdiv(count, splitting.MULTIPROCESSORS):
        return False
    is_whole = not is_masked or blocks.divide(rows, columns, depth)
    return blocks.stages == 1 or (depth >= _DEEP and is_whole)


def cpu_blocks_for(rows: int, columns: int) -> Blocks:
    """Return the same for the CPU, where a product of few rows or columns would leave most of a large block idle."""
    large, middle = LARGE_CPU_BLOCKS, MIDDLE_CPU_BLOCKS
    if min(rows, columns) >= large.columns and rows * columns >= _MANY * large.rows * large.columns:
        return large
    return middle if min(rows, columns) > middle.columns else CPU_BLOCKS


# -- transposition ----------------------------------------------------------------------------------------------------------


@factory
def transpose_kernel(dtype: Dtype, SIDE: int, STRIP: int | None = None, THREADS: int = 256) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns](x, out)`, which turns squares of SIDE by SIDE.

    STRIP: columns of the strips in which it does that. All are read before the first is turned.
    """
    require_multiple("SIDE", SIDE, STRIP or SIDE)
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    X = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, (None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((columns, rows), dtype, (None, 1))]
    width = STRIP or SIDE
    starts = range(0, SIDE, width)

    @sk.jit(threads=THREADS)
    def transpose(x: X, out: Out) -> None:
        row, column = sk.program_id(0) * SIDE, sk.program_id(1) * SIDE
        strips = [sk.load(x.tile((row, column + start), (SIDE, width))) for start in starts]
        for start, strip in zip(starts, strips):
            sk.store(out.tile((column + start, row), (width, SIDE)), strip.T)

    return transpose


_STRIPS: dict[int, int] = {1: 64, 2: 64, 4: 32, 8: 16}
"""Columns of a strip on a GPU, by the bytes of an element: eight lanes read a row, so that a warp writes to each bank once."""


def transpose(x: Any, *, out: Any = None) -> Any:
    """Return a matrix with its axes exchanged, as an array of its own: any dtype; its rows, and those of out, may be apart."""
    require(is_array(x) and len(x.shape) == 2, "a matrix is needed, got {!r}", x)
    out = empty(x, (x.shape[1], x.shape[0]), dtype_of(x)) if out is None else checked_out(out, apart=(x,))
    size = dtype_of(x).itemsize
    side = 64 if size > 1 else 128  # rows of at least 128 bytes
    is_wide = size <= 2 and x.shape[0] % 8 == x.shape[1] % 8 == 0  # few vectors, where 512 threads were slower
    threads = 256 if is_wide or is_on_cpu(x) else 512
    kernel = transpose_kernel(dtype_of(x), side, None if is_on_cpu(x) else _STRIPS[size], threads)
    kernel[sk.cdiv(x.shape[0], side), sk.cdiv(x.shape[1], side)](x, out)
    return out
