"""Product of a sparse matrix in CSR form and a vector: a group of lanes for each row, as wide as rows are long.

Source: Bell and Garland, Implementing Sparse Matrix-Vector Multiplication on Throughput-Oriented Processors, 2009 (CSR vector).
"""

from __future__ import annotations

import numpy as np

import stagekit as sk


def make_spmv(lanes, block, *, fastmath=False):
    """A kernel `y = A @ x`. lanes: for each row, a power of two up to 32 that divides block."""
    rows_per_block = block // lanes

    @sk.jit(fastmath=fastmath)
    def spmv(y, starts, columns, values, x):
        group = sk.tiled_partition(lanes)
        row = sk.cuda.block_idx("x") * rows_per_block + sk.cuda.thread_idx("x") // lanes
        if row < len(y):  # a group is here as a whole or not at all
            total = sk.float32(0)
            for k in range(starts[row] + group.rank, starts[row + 1], lanes):
                total += values[k] * x[columns[k]]
            total = group.reduce(total, lambda a, b: a + b, commutative=True)
            if group.rank == 0:
                y[row] = total

    return spmv


def example(size, block, place):
    """A random matrix of about `size` elements, some rows empty."""
    rng = np.random.default_rng(size)
    dense = rng.normal(size=(max(size // 40, 1), 50)) * (rng.uniform(size=(max(size // 40, 1), 50)) < 0.2)
    dense = dense.astype(np.float32)
    rows, columns = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(len(dense) + 1)).astype(np.int32)
    x = rng.normal(size=50).astype(np.float32)
    lanes = min(8, block & -block)
    y = place(np.zeros(len(dense), np.float32))
    arrays = (starts, columns.astype(np.int32), dense[rows, columns], x)
    make_spmv(lanes, block)[-(-len(dense) * lanes // block), block](y, *map(place, arrays))
    return [y], [dense @ x], 1e-5
