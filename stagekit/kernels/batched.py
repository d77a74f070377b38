"""Products of many small matrices at once."""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import Dtype, empty, factory, float_dtype_of, is_on_cpu, require
from stagekit.kernels.matrices import CPU_BLOCKS, Blocks, blocks_for
from stagekit.kernels.sharing import checked_out


@factory
def batched_matmul_kernel(dtype: Dtype, BLOCKS: tuple[int, ...]) -> sk.JitFunction:
    """Return the kernel `k[blocks of rows, blocks of columns, matrices](a, b, out)`."""
    batch, m, n, k = sk.dynamic("batch"), sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    A = Annotated[sk.Array, sk.Tensor((batch, m, k), dtype, (None, None, 1))]
    B = Annotated[sk.Array, sk.Tensor((batch, k, n), dtype, (None, None, 1))]
    Out = Annotated[sk.Array, sk.Tensor((batch, m, n), dtype, (None, None, 1))]
    M, N, K, threads, stages = Blocks(*BLOCKS)

    @sk.jit(threads=threads)
    def batched_matmul(a: A, b: B, out: Out) -> None:
        row, column, number = sk.program_id(0) * M, sk.program_id(1) * N, sk.program_id(2)
        left, right = a[number], b[number]

        def parts(start: Any) -> Any:
            return left.tile((row, start), (M, K)), right.tile((start, column), (K, N))

        total = sk.zeros((M, N), sk.float32)
        if stages > 1:
            for x, y in sk.staged(range(0, k, K), parts, stages=stages):
                total = sk.dot(x, y, total)
        else:
            for start in range(0, k, K):
                x, y = [sk.load(part) for part in parts(start)]
                total = sk.dot(x, y, total)
        sk.store(out[number].tile((row, column), (M, N)), total)

    return batched_matmul


def batched_matmul(a: Any, b: Any, *, out: Any = None) -> Any:
    """Return a[i] @ b[i] for each i, of a (batch, m, k) and b (batch, k, n) of one dtype: float32, float16 or bfloat16.

    Sums are float32, rounded once. The last axis has no gaps. torch calls this `bmm`.
    """
    dtype = float_dtype_of(a)
    shapes = tuple(a.shape), tuple(b.shape)
    require(
        len(shapes[0]) == len(shapes[1]) == 3 and shapes[0][0] == shapes[1][0],
        f"a has shape {shapes[0]} and b {shapes[1]}: give (batch, m, k) and (batch, k, n)",
    )
    batch, rows, columns = shapes[0][0], shapes[0][1], shapes[1][2]
    out = empty(a, (batch, rows, columns), dtype) if out is None else checked_out(out, apart=(a, b))
    blocks = CPU_BLOCKS if is_on_cpu(a) else blocks_for(dtype, "ieee", rows * batch, columns)
    kernel = batched_matmul_kernel(dtype, blocks)
    kernel[sk.cdiv(rows, blocks.rows), sk.cdiv(columns, blocks.columns), batch](a, b, out)
    return out
