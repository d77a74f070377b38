"""The largest elements of rows, in order: `topk`. One program for each row."""

from __future__ import annotations

from typing import Annotated, Any

import stagekit as sk
from stagekit.kernels.host import Dtype, as_rows, dtype_of, empty, factory, power_of_two, require
from stagekit.kernels.options import int_of
from stagekit.kernels.reducing import MAX

TILE = 2048  # elements that are put in order at once, at most: those found so far, and new ones
MOST = 1024  # elements that can be asked for


@factory
def topk_kernel(dtype: Dtype, K: int, BLOCK: int) -> sk.JitFunction:
    """Return the kernel `k[rows](x, values, indices)`, the K largest of each row; K is below BLOCK.

    A program sorts the first BLOCK elements and keeps the best K; then it sorts these with the next BLOCK - K, and so on to the
    end of the row. Of equal elements the earlier one stays in front.
    """
    require(K < BLOCK, "K is {}: it is below BLOCK, which is {}", K, BLOCK)
    rows, columns = sk.dynamic("rows"), sk.dynamic("columns")
    Rows = Annotated[sk.Array, sk.Tensor((rows, columns), dtype, strides=(None, 1))]
    Values = Annotated[sk.Array, sk.Tensor((rows, K), dtype, strides=(None, 1))]
    Indices = Annotated[sk.Array, sk.Tensor((rows, K), sk.int64, strides=(None, 1))]
    lowest = MAX.identity_of(dtype)

    @sk.jit(threads=max(BLOCK // 32, 32))  # a warp sorts 1,024 elements without a barrier
    def topk(x: Rows, values: Values, indices: Indices) -> None:
        row, i, k = sk.program_id(0), sk.arange(0, BLOCK), sk.arange(0, K)
        best, places = sk.topk(sk.load(x[row] + i, mask=i < columns, other=lowest), K)
        for start in range(BLOCK, columns, BLOCK - K):
            is_old, old, new = i < K, sk.minimum(i, K - 1), start + i - K
            numbers = sk.load(x[row] + new, mask=~is_old & (new < columns), other=lowest)
            best, order = sk.topk(sk.where(is_old, sk.gather(best, old), numbers), K)
            places = sk.where(order < K, sk.gather(places, sk.minimum(order, K - 1)), start + order - K)
        sk.store(values[row] + k, best)
        sk.store(indices[row] + k, places)

    return topk


def topk(x: Any, k: int) -> tuple[Any, Any]:
    """Return the k largest elements along the last axis, the largest first, and where they are, int64.

    k: from 1 to 1024, and at most as many as a row has. NaN is larger than all numbers; of equal elements the first comes first.
    x: any dtype.
    """
    k = int_of("k", k, 0)
    source = as_rows(x)
    rows, columns = source.shape
    if not 1 <= k <= min(MOST, columns):
        raise ValueError(f"k is {k}: rows have {columns} elements, of which 1 to {min(MOST, columns)} can be asked for")
    values, indices = empty(x, (rows, k), dtype_of(x)), empty(x, (rows, k), sk.int64)
    block = max(power_of_two(2 * k), min(TILE, power_of_two(columns)))
    topk_kernel(dtype_of(x), k, block)[rows](source, values, indices)
    if len(x.shape) == 2:
        return values, indices
    shape = (*x.shape[:-1], k)
    return values.reshape(shape), indices.reshape(shape)
