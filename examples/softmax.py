"""Softmax of the rows of a matrix, one block per row: rows of any length, held in registers or streamed.

A row that fits a tile is read once. A longer one is read twice: the first pass keeps a running maximum and a running sum
that is rescaled whenever the maximum grows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
Which of the two is compiled is decided by an ordinary `if` on compile-time values.
"""

from __future__ import annotations

import numpy as np
from _device import devices, fetch, place

import stagekit as sk


@sk.inline
def softmax_resident(src, dst, N, BLOCK):
    tid = sk.arange(0, BLOCK)
    x = sk.load(src + tid, mask=tid < N, other=-float("inf"))
    e = sk.exp(x - sk.reduce_max(x))
    sk.store(dst + tid, e / sk.reduce_sum(e), mask=tid < N)


@sk.inline
def softmax_streamed(src, dst, N, BLOCK):
    tid = sk.arange(0, BLOCK)
    largest, total = sk.float32(-float("inf")), sk.float32(0)
    for start in range(0, N, BLOCK):
        x = sk.load(src + start + tid, mask=start + tid < N, other=-float("inf"))
        now = sk.maximum(largest, sk.reduce_max(x))
        total = total * sk.exp(largest - now) + sk.reduce_sum(sk.exp(x - now))
        largest = now
    for start in range(0, N, BLOCK):
        x = sk.load(src + start + tid, mask=start + tid < N)
        sk.store(dst + start + tid, sk.exp(x - largest) / total, mask=start + tid < N)


@sk.jit
def softmax(src, dst, N, *, BLOCK: sk.constexpr[int], fits: sk.constexpr[bool]):
    row = sk.program_id(0) * N
    if fits:
        softmax_resident(src + row, dst + row, N, BLOCK)
    else:
        softmax_streamed(src + row, dst + row, N, BLOCK)


def softmax_rows(matrix, out, BLOCK=1024):
    rows, N = matrix.shape
    softmax[rows](matrix, out, N, BLOCK=min(N, BLOCK), fits=N <= BLOCK)


def numpy_softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def main():
    rng = np.random.default_rng(0)
    for device in devices():
        for shape in [(3, 1), (8, 27), (16, 1000), (4, 1024), (5, 5000)]:
            x = rng.normal(scale=4, size=shape).astype(np.float32)
            out = place(np.zeros_like(x), device)
            softmax_rows(place(x, device), out)
            error = np.abs(fetch(out) - numpy_softmax(x)).max()
            assert error < 1e-6, (device, shape, error)
            print(f"{device}: softmax of {shape[0]} rows of {shape[1]}: largest difference from NumPy {error:.1e}")


if __name__ == "__main__":
    main()
