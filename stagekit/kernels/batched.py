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
    power_of_two,
    require,
    require_array,
)
from stagekit.kernels.matrices import CPU_BLOCKS, Blocks, BlockSizes, block_of, blocks_for, cpu_blocks_for
from stagekit.kernels.sharing import checked_out

SMALL_GROUPS = 64  # rows of a group, on average, for which a block has no more
FOR_SMALL = Blocks(64, 128, 64, 128, 3)


@sk.inline
def product_of(a: Any, b: Any, row: Any, column: Any, BLOCKS: Blocks) -> Any:
    """Return the block of a @ b that begins at this row and column, in float32."""
    M, N, K, _, stages = BLOCKS

    def parts(start: Any) -> Any:
        return a.tile((row, start), (M, K)), b.tile((start, column), (K, N))

    total = sk.zeros((M, N), sk.float32)
    for x, y in sk.staged(range(0, b.shape[0], K), parts, stages=stages):
        total = sk.dot(x, y, total)
    return total


@factory
def batched_matmul_kernel(dtype: Dtype, BLOCKS: BlockSizes) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns, matrices](a, b, out)`."""
    batch, m, n, k = sk.dynamic("batch"), sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    A = Annotated[sk.Array, sk.Tensor((batch, m, k), dtype, (None, None, 1))]
    B = Annotated[sk.Array, sk.Tensor((batch, k, n), dtype, (None, None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((batch, m, n), dtype, (None, None, 1))]
    blocks = Blocks(*BLOCKS)
    M, N = blocks.rows, blocks.columns

    @sk.jit(threads=blocks.threads)
    def batched_matmul(a: A, b: B, out: Out) -> None:
        row, column, number = sk.program_id(0) * M, sk.program_id(1) * N, sk.program_id(2)
        total = product_of(a[number], b[number], row, column, blocks)
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
    blocks = (
        cpu_blocks_for(rows, columns) if is_on_cpu(a) else blocks_for(dtype, "ieee", rows * batch, columns, **gpu_of(a))
    )
    kernel = batched_matmul_kernel(dtype, blocks)
    kernel[sk.cdiv(rows, blocks.rows), sk.cdiv(columns, blocks.columns), batch](a, b, out)
    return out


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
def grouped_matmul_kernel(dtype: Dtype, GROUPS: int, BLOCKS: BlockSizes) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns](a, b, ends, out)` for up to GROUPS groups, a power of two.

    There are at most `cdiv(rows, BLOCKS.rows) + groups` blocks of rows: a group may begin within the block where another ends.
    """
    groups, m, n, k = sk.dynamic("groups"), sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    A = Annotated[sk.Array, sk.Tensor((m, k), dtype, (None, 1))]
    B = Annotated[sk.Array, sk.Tensor((groups, k, n), dtype, (None, None, 1))]
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
            total = product_of(a[first:end], b[group], 0, column, blocks)
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
    is_small = dtype.itemsize == 2 and rows <= SMALL_GROUPS * groups
    blocks = (
        CPU_BLOCKS if is_on_cpu(a) else FOR_SMALL if is_small else blocks_for(dtype, "ieee", rows, columns, **gpu_of(a))
    )
    kernel = grouped_matmul_kernel(dtype, power_of_two(groups), blocks)
    kernel[sk.cdiv(rows, blocks.rows) + groups, sk.cdiv(columns, blocks.columns)](a, b, ends, out)
    return out
