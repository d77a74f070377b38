"""Matrix multiplication by tiles in shared memory, from a factory: tile sizes, dtype and what is done at the end are Python's.

A block computes a tile of C, `tile` x `tile`; a thread computes `per_thread` elements of a column of it in registers. Sizes
need not be multiples of the tile.
"""

from __future__ import annotations

import numpy as np
from _device import devices, fetch, place

import stagekit as sk


def make_matmul(dtype=sk.float32, tile=32, per_thread=4, epilogue=lambda x: x):
    """C = epilogue(A @ B), accumulated in float32."""
    m, n, k = sk.dynamic("m"), sk.dynamic("n"), sk.dynamic("k")
    rows = tile // per_thread  # threads along a column of the tile

    @sk.function(name=f"matmul_{dtype.name}_{tile}x{tile}")
    def matmul(A: sk.Tensor((m, k), dtype), B: sk.Tensor((k, n), dtype), C: sk.Tensor((m, n), dtype)):
        grid = (sk.ceildiv(n, tile), sk.ceildiv(m, tile))
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=grid, block=(tile, rows)))
        a_tile = sk.alloc_shared((tile, tile), dtype)
        b_tile = sk.alloc_shared((tile, tile), dtype)
        tx, ty = sk.cuda.thread_idx("x"), sk.cuda.thread_idx("y")
        top, left = sk.cuda.block_idx("y") * tile, sk.cuda.block_idx("x") * tile

        sums = [sk.float32(0) for _ in range(per_thread)]
        for start in range(0, k, tile):
            for r in sk.static_range(per_thread):
                y = ty + r * rows
                a_tile[y, tx] = A[top + y, start + tx] if top + y < m and start + tx < k else 0
                b_tile[y, tx] = B[start + y, left + tx] if start + y < k and left + tx < n else 0
            sk.syncthreads()
            for j in sk.static_range(tile):
                b = sk.float32(b_tile[j, tx])
                for r in sk.static_range(per_thread):
                    sums[r] += sk.float32(a_tile[ty + r * rows, j]) * b
            sk.syncthreads()

        for r in sk.static_range(per_thread):
            y, x = top + ty + r * rows, left + tx
            if y < m and x < n:
                C[y, x] = epilogue(sums[r])

    return matmul


def relu(x):
    return sk.maximum(x, 0)


def main():
    rng = np.random.default_rng(0)
    cases = [
        (make_matmul(), np.float32, (128, 96, 64), lambda c: c),
        (make_matmul(tile=16, per_thread=2, epilogue=relu), np.float32, (45, 70, 33), lambda c: np.maximum(c, 0)),
        (make_matmul(dtype=sk.float16, tile=16), np.float16, (64, 64, 100), lambda c: c),
    ]
    for kernel, dtype, (m, n, k), epilogue in cases:
        # Sums of products of small integers are exact, in whatever order they are added.
        a, b = (rng.integers(-4, 5, size).astype(dtype) for size in ((m, k), (k, n)))
        expected = epilogue(a.astype(np.float32) @ b.astype(np.float32)).astype(dtype)
        for device in devices():
            c = place(np.zeros((m, n), dtype), device)
            kernel(place(a, device), place(b, device), c)
            np.testing.assert_array_equal(fetch(c), expected)
            print(f"{device}: {kernel.name}: ({m} x {k}) @ ({k} x {n}) equals NumPy's product")


if __name__ == "__main__":
    main()
