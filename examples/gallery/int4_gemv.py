"""Product of a matrix of 4-bit weights and a vector: eight weights in each uint32, one scale for each 32 of a row.

A warp computes a row: each of its lanes takes every thirty-second word. A weight w is stored as w + 8.

Source: Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, 2022; Lin et al.,
AWQ: Activation-aware Weight Quantization, 2023.
"""

from __future__ import annotations

import numpy as np

import stagekit as sk

LANES, WEIGHTS = 32, 8  # of a word
GROUP = 32  # weights that share a scale


def make_int4_gemv(block=128, *, fastmath=False):
    """A kernel `y = (scales * weights) @ x`. words: (rows, columns / 8); scales: (rows, columns / 32). block: warps of rows."""

    @sk.jit(fastmath=fastmath)
    def gemv(y, words, scales, x: sk.Tensor((None,), sk.float32, align=16)):
        row = sk.cuda.block_idx("x") * (block // LANES) + sk.cuda.thread_idx("x") // LANES
        if row < len(y):
            total = sk.float32(0)
            k = sk.int32(sk.lane_id())
            while k < sk.int32(words.shape[1]):
                word, part = words[row, k], sk.float32(0)
                for place in sk.static_range(WEIGHTS):
                    weight = sk.int32(word >> (4 * place) & 0xF) - 8
                    part += weight * x[k * WEIGHTS + place]
                total += part * scales[row, k * WEIGHTS // GROUP]
                k += LANES
            total = sk.warp_reduce(total, lambda a, b: a + b, commutative=True)
            if sk.lane_id() == 0:
                y[row] = total

    return gemv


def packed(weights):
    """Weights from -8 to 7 as words of eight."""
    fields = (weights + 8).astype(np.uint32).reshape(len(weights), -1, WEIGHTS)
    return (fields << np.arange(0, 32, 4, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)


def example(size, block, place):
    """A random matrix with 96 columns."""
    block = max(block // LANES, 1) * LANES
    rng = np.random.default_rng(size)
    rows, columns = max(size // 40, 1), 96
    weights = rng.integers(-8, 8, (rows, columns))
    scales = rng.uniform(0.01, 0.1, (rows, columns // GROUP)).astype(np.float32)
    x, y = rng.normal(size=columns).astype(np.float32), place(np.zeros(rows, np.float32))
    make_int4_gemv(block)[-(-rows * LANES // block), block](y, *map(place, (packed(weights), scales, x)))
    return [y], [(weights * np.repeat(scales, GROUP, axis=1)) @ x], 1e-4
