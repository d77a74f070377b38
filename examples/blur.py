"""A Gaussian blur of a photograph: two one-dimensional passes from one factory. Axis, radius and weights are constexprs.

The loop over the weights is unrolled at specialise time and each weight is a constant in the code. The picture (public domain)
comes with the package PyWavelets; the result is written as `blurred.png`, or where the first argument says.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pywt.data
from _device import devices, fetch, place
from PIL import Image

import stagekit as sk


def gaussian(radius):
    """The weights of a Gaussian of standard deviation radius / 2; they sum to 1."""
    weights = np.exp(-2 * (np.arange(-radius, radius + 1) / radius) ** 2)
    return tuple(float(w) for w in weights / weights.sum())


h, w = sk.dynamic("h"), sk.dynamic("w")


@sk.jit
def blur(
    src: sk.Tensor((h, w), sk.uint8),
    dst: sk.Tensor((h, w), sk.uint8),
    *,
    axis: sk.constexpr[int],
    weights: sk.constexpr[tuple],
):
    """dst = src convolved with `weights` along `axis`; beyond the edge the edge pixel goes on."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=(sk.ceildiv(w, 32), sk.ceildiv(h, 8)), block=(32, 8)))
    x = sk.cuda.block_idx("x") * 32 + sk.cuda.thread_idx("x")
    y = sk.cuda.block_idx("y") * 8 + sk.cuda.thread_idx("y")
    if x < w and y < h:
        total = sk.float32(0)
        for distance, weight in enumerate(weights, start=-(len(weights) // 2)):
            if axis == 0:
                total += weight * src[min(max(y + distance, 0), h - 1), x]
            else:
                total += weight * src[y, min(max(x + distance, 0), w - 1)]
        dst[y, x] = sk.uint8(total + 0.5)


def blur_picture(picture, radius, device):
    weights = gaussian(radius)
    src = place(picture, device)
    for axis in (0, 1):
        dst = place(np.zeros_like(picture), device)
        blur.specialize(axis=axis, weights=weights)(src, dst)
        src = dst
    return fetch(src)


def numpy_blur(picture, radius):
    for axis in (0, 1):
        padding = [(radius, radius) if a == axis else (0, 0) for a in (0, 1)]
        padded = np.pad(picture, padding, mode="edge").astype(np.float32)
        total = np.zeros(picture.shape, np.float32)
        for i, weight in enumerate(gaussian(radius)):
            total += np.float32(weight) * padded.take(range(i, i + picture.shape[axis]), axis)
        picture = (total + np.float32(0.5)).astype(np.uint8)
    return picture


def main():
    picture = pywt.data.ascent()
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "blurred.png")
    for device in devices():
        blurred = blur_picture(picture, radius=6, device=device)
        np.testing.assert_array_equal(blurred, numpy_blur(picture, radius=6))
        print(f"{device}: {picture.shape[1]} x {picture.shape[0]} pixels blurred, each as NumPy has it")
    Image.fromarray(np.hstack([picture, blurred])).save(path)
    print(f"wrote {path}: before and after")


if __name__ == "__main__":
    main()
