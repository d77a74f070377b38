"""A histogram: each block counts in shared memory, then adds its counts to the result. Bins and dtype are constexprs."""

from __future__ import annotations

import numpy as np
from _device import devices, fetch, place

import stagekit as sk


def make_histogram(bins, dtype=sk.uint8, block=256, per_thread=16):
    """A kernel that adds to `counts[b]` how often b occurs in `values`; other values are not counted."""
    n = sk.dynamic("n")

    @sk.function(name=f"histogram_{bins}")
    def histogram(values: sk.Tensor((n,), dtype), counts: sk.Tensor((bins,), sk.int32)):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, block * per_thread), block=block))
        mine = sk.alloc_shared((bins,), sk.int32)
        t = sk.cuda.thread_idx("x")
        for b in range(t, bins, block):
            mine[b] = 0
        sk.syncthreads()

        start = sk.cuda.block_idx("x") * block * per_thread
        for i in range(start + t, min(start + block * per_thread, n), block):
            value = sk.int64(values[i])
            if 0 <= value < bins:
                sk.atomic_add(mine.ptr_to(value), 1)
        sk.syncthreads()

        for b in range(t, bins, block):
            if mine[b] > 0:
                sk.atomic_add(counts.ptr_to(b), mine[b])

    return histogram


def main():
    rng = np.random.default_rng(0)
    cases = [
        (256, make_histogram(256), rng.integers(0, 256, 100_000).astype(np.uint8)),
        (10, make_histogram(10, dtype=sk.int16, block=96), rng.integers(-5, 15, 12_345).astype(np.int16)),
    ]
    for bins, kernel, values in cases:
        expected = np.bincount(values[(values >= 0) & (values < bins)], minlength=bins)
        for device in devices():
            counts = place(np.zeros(bins, np.int32), device)
            kernel(place(values, device), counts)
            np.testing.assert_array_equal(fetch(counts), expected)
            print(f"{device}: {kernel.name} of {len(values)} values: {expected[:6]} ... as NumPy counts them")


if __name__ == "__main__":
    main()
