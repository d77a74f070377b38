"""Separable convolution of an image: first along its rows, then along its columns, by tiles with a halo in shared memory.

One factory makes both: the axis is known while the kernel is specialised. Outside the image there is zero.

Source: Podlozhnyuk, Image Convolution with CUDA, 2007; the CUDA sample convolutionSeparable.
"""

from __future__ import annotations

import numpy as np

import stagekit as sk


def make_convolution(weights, axis, block, *, fastmath=False):
    """A kernel that convolves along an axis of a float32 image. weights: an odd number of them. block: threads along the axis."""
    radius = len(weights) // 2

    @sk.jit(fastmath=fastmath)
    def convolve(source, result):
        held = sk.alloc_shared((block + 2 * radius,), sk.float32)
        t, line = sk.cuda.thread_idx("x"), sk.cuda.block_idx("y")
        first = sk.cuda.block_idx("x") * block
        extent = source.shape[axis]

        def at(array, i):
            return array.ptr_to(line, i) if axis == 1 else array.ptr_to(i, line)

        for k in range(t, block + 2 * radius, block):
            i = first + k - radius
            held[k] = sk.load(at(source, i), mask=(i >= 0) & (i < extent))
        sk.syncthreads()
        if first + t < extent:
            total = sk.float32(0)
            for k, weight in enumerate(reversed(weights)):
                total += weight * held[t + k]
            sk.store(at(result, first + t), total)

    return convolve


def example(size, block, place):
    """An image of about `size` pixels, blurred and as NumPy blurs it."""
    height, width = max(size // 40, 1), 37
    image = np.random.default_rng(size).uniform(size=(height, width)).astype(np.float32)
    weights = (0.1, 0.2, 0.4, 0.25, 0.05)
    source, between, result = place(image), place(np.zeros_like(image)), place(np.zeros_like(image))
    make_convolution(weights, 1, block)[(-(-width // block), height), block](source, between)
    make_convolution(weights, 0, block)[(-(-height // block), width), block](between, result)
    wanted = image
    for axis in (1, 0):
        wanted = np.apply_along_axis(lambda line: np.convolve(line, weights)[2:-2], axis, wanted)
    return [result], [wanted], 1e-5
