"""BLOCK as a constexpr: each value is a kernel of its own, with its own number of threads and no argument for it.

One thread per element: with BLOCK fixed at 64, a softmax of 16 elements would launch 48 idle threads.
"""

from __future__ import annotations

import numpy as np
from _device import devices, fetch, place

import stagekit as sk


@sk.jit
def relu_kernel(src, dst, N, BLOCK: sk.constexpr):
    offs = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)  # arithmetic on BLOCK is as good inside as outside
    mask = offs < N
    sk.store(dst + offs, sk.maximum(sk.load(src + offs, mask=mask), 0), mask=mask)


@sk.jit
def fused_softmax_kernel(src, dst, N, BLOCK: sk.constexpr):
    tid = sk.arange(0, BLOCK)
    mask = tid < N
    x = sk.load(src + tid, mask=mask, other=-float("inf"))
    mx = sk.reduce_max(x)
    e = sk.exp(x - mx)
    s = sk.reduce_sum(e)
    sk.store(dst + tid, e / s, mask=mask)


@sk.jit
def relu_literal(src, dst, N):
    """Without a constexpr the size of the tile is written down."""
    offs = sk.arange(0, 64)
    sk.store(dst + offs, sk.maximum(sk.load(src + offs, mask=offs < N), 0), mask=offs < N)


def numpy_softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def check(launch, device, x, expected, *arguments):
    out = place(np.zeros_like(x), device)
    launch(place(x, device), out, len(x), *arguments)
    np.testing.assert_allclose(fetch(out), expected, rtol=1e-5, atol=1e-7)


def main():
    rng = np.random.default_rng(0)
    for device in devices():
        for N, BLOCK in [(4, 4), (4, 16), (27, 27), (64, 64), (1000, 96)]:  # N below, at and far above BLOCK
            x = rng.uniform(-5, 5, N).astype(np.float32)
            check(relu_kernel[(sk.ceildiv(N, BLOCK),)], device, x, np.maximum(x, 0), BLOCK)
        for N in (4, 16, 27, 1000):
            x = rng.normal(size=N).astype(np.float32)
            check(fused_softmax_kernel[(1,)], device, x, numpy_softmax(x), N)
        x = rng.uniform(-5, 5, 3).astype(np.float32)
        check(relu_literal[(1,)], device, x, np.maximum(x, 0))
        print(f"{device}: relu at 5 sizes of BLOCK, softmax at 4, a literal block: as NumPy has them")

    types = {"src": sk.Pointer(sk.float32), "dst": sk.Pointer(sk.float32), "N": sk.int32}
    for BLOCK in (16, 64):
        kernel = fused_softmax_kernel.specialize(BLOCK=BLOCK, **types)
        print(f"{kernel!r}: {kernel.trace().block[0]} threads, run-time parameters {kernel.signature}")
    assert fused_softmax_kernel.specialize(BLOCK=64, **types) is kernel
    assert "BLOCK" not in str(kernel.signature)


if __name__ == "__main__":
    main()
