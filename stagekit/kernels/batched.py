"""Many products at once: of pairs of matrices, and of groups of rows, each with a matrix of its own, as tokens of experts."""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import (
    Dtype,
    dtype_of,
    empty,
    factory,
    float_dtype_of,
    gpu_of,
    is_on_cpu,
    is_packed,
    power_of_two,
    require,
    require_array,
)
from stagekit.kernels.matrices import CPU_BLOCKS, Blocks, block_of, blocks_for, cpu_blocks_for
from stagekit.kernels.sharing import checked_out

SMALL_GROUPS = 64  # rows of a group, on average, for which a block has no more
FOR_SMALL = Blocks(64, 128, 64, 128, 3)


MOST_ROWS = 1 << 30  # of matrices that lie below each other, as the TMA unit counts them


@sk.inline
def product_of(a: Any, b: Any, row: Any, column: Any, first: Any, BLOCKS: Blocks) -> Any:
    """Return the block of a product that begins at this row and column, in float32. first: of the rows of b that take part."""
    M, N, K, _, stages = BLOCKS

    def parts(start: Any) -> Any:
        return a.tile((row, start), (M, K)), b.tile((first + start, column), (K, N))

    total = sk.zeros((M, N), sk.float32)
    for x, y in sk.staged(range(0, a.shape[1], K), parts, stages=stages):
        total = sk.dot(x, y, total)
    return total


def is_flat(matrices: Any) -> bool:
    """Return whether matrices lie below each other without gaps."""
    return is_packed(matrices) and matrices.shape[0] * matrices.shape[1] < MOST_ROWS


def flat(matrices: Any) -> Any:
    """Return a view of matrices as one, below each other."""
    count, rows, columns = matrices.shape
    return matrices.reshape((count * rows, columns))


@factory
def batched_matmul_kernel(dtype: Dtype, BLOCKS: tuple[int, ...], FLAT: bool = False) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns, matrices](a, b, out)`.

    FLAT: the matrices of a, and those of b, lie below each other as one, and blocks divide the common axis.
    """
    batch, m, n, k = sk.dynamic("batch"), sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    A = Annotated[sk.Array, sk.Tensor((None, k) if FLAT else (batch, m, k), dtype, (None, None, 1)[FLAT:])]
    B = Annotated[sk.Array, sk.Tensor((None, n) if FLAT else (batch, k, n), dtype, (None, None, 1)[FLAT:])]
    Out = Annotated[sk.Array, sk.Tensor((batch, m, n), dtype, (None, None, 1))]
    blocks = Blocks(*BLOCKS)
    M, N = blocks.rows, blocks.columns

    @sk.jit(threads=blocks.threads)
    def batched_matmul(a: A, b: B, out: Out) -> None:
        row, column, number = sk.program_id(0) * M, sk.program_id(1) * N, sk.program_id(2)
        if FLAT:
            total = product_of(a, b, number * out.shape[1] + row, column, number * a.shape[1], blocks)
        else:
            total = product_of(a[number], b[number], row, column, 0, blocks)
        sk.store(out[number].tile((row, column), (M, N)), total)

    return batched_matmul


def batched_matmul(a: Any, b: Any, *, out: Any = None) -> Any:
    """Return a[i] @ b[i] for each i, of a (batch, m, k) and b (batch, k, n) of one dtype: float32, float16 or bfloat16.

    Sums are float32, rounded once. The last axis has no gaps. torch calls this `bmm`.
    """
    dtype = float_dtype_of(a)
    require_array(b)
    shapes = tuple(a.shape), tuple(b.shape)
    require(
        len(shapes[0]) == len(shapes[1]) == 3 and shapes[0][0] == shapes[1][0],
        f"a has shape {shapes[0]} and b {shapes[1]}: give (batch, m, k) and (batch, k, n)",
    )
    batch, rows, columns = shapes[0][0], shapes[0][1], shapes[1][2]
    out = empty(a, (batch, rows, columns), dtype) if out is None else checked_out(out, apart=(a, b))
    blocks, is_one_each = cpu_blocks_for(rows, columns), False
    if not is_on_cpu(a):
        blocks, is_one_each = _gpu_blocks(dtype, a, b, is_flat(a) and tuple(out.shape) == (batch, rows, columns))
    kernel = batched_matmul_kernel(dtype, blocks, is_one_each)
    a, b = (flat(each) if is_one_each else each for each in (a, b))
    kernel[sk.cdiv(rows, blocks.rows), sk.cdiv(columns, blocks.columns), batch](a, b, out)
    return out


def _gpu_blocks(dtype: Dtype, a: Any, b: Any, can_be_flat: bool) -> tuple[Blocks, bool]:
    """Return what a program multiplies at once on a GPU, and whether factors are to be given as one matrix each.

    The TMA unit copies what is an argument, not what is cut out of one. Then a block has rows of the next matrix too: those of
    the left factor make rows that are not stored, and of the right one there are none where blocks divide the common axis.
    Shapes that do not go together are left to the arguments of a kernel that is given every matrix by itself.
    """
    gpu, (*_, rows, depth), columns = gpu_of(a), a.shape, b.shape[2]
    rows *= a.shape[0] if len(a.shape) == 3 else 1
    blocks = blocks_for(dtype, "ieee", rows, columns, depth, **gpu)
    is_whole = b.shape[1] == depth > 0 and depth % blocks.depth == 0
    if gpu["by_warpgroups"] and dtype.itemsize == 2 and can_be_flat and is_whole and is_flat(b):
        return blocks, True
    return blocks_for(dtype, "ieee", rows, columns, **gpu), False


@sk.inline
def place_of(number: Any, ends: Any, GROUPS: int, M: int) -> tuple[Any, Any]:
    """Return the group that has this block of M rows, and its first row; the count of groups where none has it.

    A group has as many blocks as it needs, and blocks are counted through all groups.
    """
    group = sk.arange(0, GROUPS)
    end = sk.load(ends + group, mask=group < len(ends), other=0)
    begin = sk.load(ends + (group - 1), mask=(group > 0) & (group < len(ends)), other=0)
    blocks = sk.cdiv(sk.maximum(end - begin, 0), M)
    found = sk.reduce_sum((sk.cumsum(blocks) <= number).to(sk.int32))
    before = sk.reduce_sum(sk.where(group < found, blocks, 0))
    first = sk.reduce_max(sk.where(group == found, begin, 0))
    return min(found, len(ends)), first + (number - before) * M


@factory
def grouped_matmul_kernel(dtype: Dtype, GROUPS: int, BLOCKS: tuple[int, ...], FLAT: bool = False) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns](a, b, ends, out)` for up to GROUPS groups, a power of two.

    There are at most `cdiv(rows, BLOCKS.rows) + groups` blocks of rows: a group may begin within the block where another ends.
    FLAT: the matrices of b lie below each other as one, and blocks divide the common axis.
    """
    groups, m, n, k = sk.dynamic("groups"), sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    A = Annotated[sk.Array, sk.Tensor((m, k), dtype, (None, 1))]
    B = Annotated[sk.Array, sk.Tensor((None, n) if FLAT else (groups, k, n), dtype, (None, None, 1)[FLAT:])]
    Ends = Annotated[sk.Array, sk.Tensor((groups,), sk.int32)]
    Out = Annotated[sk.Array, sk.Tensor((m, n), dtype, (None, 1))]
    blocks = Blocks(*BLOCKS)
    M, N = blocks.rows, blocks.columns

    @sk.jit(threads=blocks.threads)
    def grouped_matmul(a: A, b: B, ends: Ends, out: Out) -> None:
        across, down = block_of()
        group, first = place_of(down, ends, GROUPS, M)
        if group < len(ends):
            column, end = across * N, ends[group]
            if FLAT:
                first = sk.minimum(
                    first, end
                )  # which it is: but now one number, whose rows are seen to begin on 16 bytes
                total = product_of(a, b, first, column, group * a.shape[1], blocks)
            else:
                total = product_of(a[first:end], b[group], 0, column, 0, blocks)
            sk.store(out[first:end].tile((0, column), (M, N)), total)

    return grouped_matmul


def grouped_matmul(a: Any, b: Any, ends: Any, *, out: Any = None) -> Any:
    """Return rows of a (m, k) times the matrix of their group in b (groups, k, n), of one dtype: float32, float16 or bfloat16.

    ends: (groups,), int32, ascending: the row behind the last of each group, as torch's `offs`; group i is
    a[ends[i - 1] : ends[i]]. It is read on the device, so that counts may come from another kernel. Rows behind the last group
    are not written. Sums are float32, rounded once. The last axis has no gaps.
    """
    dtype = float_dtype_of(a)
    require_array(b, ends)
    shapes = tuple(a.shape), tuple(b.shape), tuple(ends.shape)
    require(
        len(shapes[0]) == 2 and len(shapes[1]) == 3 and shapes[2] == shapes[1][:1],
        f"a has shape {shapes[0]}, b {shapes[1]} and ends {shapes[2]}: give (m, k), (groups, k, n) and (groups,)",
    )
    require(dtype_of(ends) is sk.int32, f"ends is of {dtype_of(ends).name}: convert it to int32")
    rows, (groups, _, columns) = shapes[0][0], shapes[1]
    out = empty(a, (rows, columns), dtype) if out is None else checked_out(out, apart=(a, b, ends))
    blocks, is_one = CPU_BLOCKS, False
    if not is_on_cpu(a):
        blocks, is_one = _gpu_blocks(dtype, a, b, can_be_flat=True)
        if dtype.itemsize == 2 and rows <= SMALL_GROUPS * groups:
            blocks = FOR_SMALL
    kernel = grouped_matmul_kernel(dtype, power_of_two(groups), blocks, is_one)
    b = flat(b) if is_one else b
    kernel[sk.cdiv(rows, blocks.rows) + groups, sk.cdiv(columns, blocks.columns)](a, b, ends, out)
    return out
