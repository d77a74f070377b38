"""The Mandelbrot set: every thread leaves its loop when its own point escapes. The number of steps is a constexpr."""

from __future__ import annotations

import numpy as np
from _device import devices, fetch, place

import stagekit as sk

h, w = sk.dynamic("h"), sk.dynamic("w")


@sk.jit
def mandelbrot(
    steps_taken: sk.Tensor((h, w), sk.int32),
    left: sk.float32,
    top: sk.float32,
    scale: sk.float32,
    *,
    most: sk.constexpr[int],
):
    """steps_taken[y, x]: steps until the point leaves the circle of radius 2, at most `most`."""
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=(sk.ceildiv(w, 32), sk.ceildiv(h, 8)), block=(32, 8)))
    x = sk.cuda.block_idx("x") * 32 + sk.cuda.thread_idx("x")
    y = sk.cuda.block_idx("y") * 8 + sk.cuda.thread_idx("y")
    if x < w and y < h:
        c_re, c_im = left + x * scale, top + y * scale
        re, im, taken = sk.float32(0), sk.float32(0), 0
        while taken < most and re * re + im * im <= 4:
            re, im = re * re - im * im + c_re, 2 * re * im + c_im
            taken += 1
        steps_taken[y, x] = taken


def numpy_mandelbrot(height, width, left, top, scale, most):
    """The same steps in the same order, so the counts are equal to the last one."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    c_re = np.float32(left) + x.astype(np.float32) * np.float32(scale)
    c_im = np.float32(top) + y.astype(np.float32) * np.float32(scale)
    re, im = np.zeros_like(c_re), np.zeros_like(c_re)
    taken, inside = np.zeros(c_re.shape, np.int32), np.ones(c_re.shape, bool)
    for _ in range(most):
        with np.errstate(over="ignore", invalid="ignore"):
            inside &= re * re + im * im <= 4
            taken += inside
            re, im = re * re - im * im + c_re, 2 * re * im + c_im
    return taken


def main():
    height, width, most = 48, 100, 100
    view = {"left": -2.2, "top": -1.2, "scale": 0.03}
    kernel = mandelbrot.specialize(most=most)
    expected = numpy_mandelbrot(height, width, view["left"], view["top"], view["scale"], most)
    for device in devices():
        picture = place(np.zeros((height, width), np.int32), device)
        kernel(picture, **view)
        steps = fetch(picture)
        np.testing.assert_array_equal(steps, expected)
        inside = np.count_nonzero(steps == most)
        print(f"{device}: {inside} of {steps.size} points are in the set, as NumPy counts them")
    shades = " .:-=+*#%@"
    for row in steps[::2]:
        print("".join(shades[min(int(n) * len(shades) // (most + 1), 9)] for n in row))


if __name__ == "__main__":
    main()
