"""The CPU target against plain C loops, one core each: saxpy, Mandelbrot, softmax, tiled matrix product; and compile times.

    python benchmarks/cpu.py [--rounds 30] [--blocks 32 256 1024]

Milliseconds, the least of all rounds, results checked against each other. C is compiled by `cc -O3 -march=native` if there
is one, which contracts `a * b + c` where stagekit does not. The launch is part of stagekit's time.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("STAGEKIT_THREADS", "1")

import numpy as np

import stagekit as sk

VECTOR = sk.Tensor((None,), sk.float32)
MATRIX = sk.Tensor((None, None), sk.float32)
IMAGE = sk.Tensor((None, None), sk.int32)

C_SOURCE = r"""
#include <math.h>
void saxpy(long n, float a, const float *restrict x, float *restrict y) {
    for (long i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}
void mandelbrot(long width, long height, int limit, int *restrict out) {
    for (long r = 0; r < height; r++) for (long c = 0; c < width; c++) {
        float cr = -2.0f + 3.0f * c / width, ci = -1.5f + 3.0f * r / height, zr = 0, zi = 0;
        int k = 0;
        for (; k < limit && zr * zr + zi * zi < 4.0f; k++) {
            float t = zr * zr - zi * zi + cr;
            zi = 2.0f * zr * zi + ci;
            zr = t;
        }
        out[r * width + c] = k;
    }
}
void softmax(long rows, long n, const float *restrict x, float *restrict y) {
    for (long r = 0; r < rows; r++, x += n, y += n) {
        float high = -INFINITY, sum = 0;
        for (long i = 0; i < n; i++) high = x[i] > high ? x[i] : high;
        for (long i = 0; i < n; i++) sum += y[i] = expf(x[i] - high);
        for (long i = 0; i < n; i++) y[i] /= sum;
    }
}
void matmul(long n, const float *restrict a, const float *restrict b, float *restrict c) {
    for (long i = 0; i < n; i++) {
        for (long j = 0; j < n; j++) c[i * n + j] = 0;
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}
"""


@sk.jit
def saxpy(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if i < n:
        y[i] = a * x[i] + y[i]


@sk.jit
def mandelbrot(out: IMAGE, limit: sk.int32):
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    height, width = out.shape
    if i < width * height:
        row, col = i // width, i % width
        cr, ci = -2.0 + 3.0 * sk.float32(col) / width, -1.5 + 3.0 * sk.float32(row) / height
        zr, zi, k = sk.float32(0), sk.float32(0), sk.int32(0)
        while k < limit and zr * zr + zi * zi < 4.0:
            zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
            k += 1
        out[row, col] = k


@sk.jit
def softmax(x: MATRIX, y: MATRIX, BLOCK: sk.constexpr):
    row, tid = sk.cuda.block_idx("x"), sk.cuda.thread_idx("x")
    high, total = sk.float32(-math.inf), sk.float32(0)
    for i in range(tid, x.shape[1], BLOCK):
        high = sk.maximum(high, x[row, i])
    high = sk.block_reduce(high, sk.maximum, -math.inf, BLOCK)
    for i in range(tid, x.shape[1], BLOCK):
        e = sk.exp(x[row, i] - high)
        y[row, i] = e
        total += e
    total = sk.block_reduce(total, lambda a, b: a + b, 0.0, BLOCK)
    for i in range(tid, x.shape[1], BLOCK):
        y[row, i] = y[row, i] / total


TILES = {32: (4, 8, 8), 256: (16, 16, 16), 1024: (32, 32, 32)}  # threads -> rows, columns, depth of a tile


@sk.jit
def matmul(a: MATRIX, b: MATRIX, c: MATRIX, ROWS: sk.constexpr, COLS: sk.constexpr, DEPTH: sk.constexpr):
    left, right = sk.alloc_shared((ROWS, DEPTH), sk.float32), sk.alloc_shared((DEPTH, COLS), sk.float32)
    t = sk.cuda.thread_idx("x")
    row, col = sk.cuda.block_idx("y") * ROWS, sk.cuda.block_idx("x") * COLS
    total = sk.float32(0)
    for start in range(0, a.shape[1], DEPTH):
        for i in range(t, ROWS * DEPTH, ROWS * COLS):
            left[i // DEPTH, i % DEPTH] = a[row + i // DEPTH, start + i % DEPTH]
        for i in range(t, DEPTH * COLS, ROWS * COLS):
            right[i // COLS, i % COLS] = b[start + i // COLS, col + i % COLS]
        sk.syncthreads()
        for k in range(DEPTH):
            total += left[t // COLS, k] * right[k, t % COLS]
        sk.syncthreads()
    c[row + t // COLS, col + t % COLS] = total


Call = Callable[[], Any]


def c_library() -> Any:
    """The loops above as a shared library, or None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "loops.c", folder / "loops.so"
    source.write_text(C_SOURCE)
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def least_ms(call: Call, rounds: int) -> float:
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


Case = tuple[str, Call | None, dict[int, Call], Callable[[], None]]


def saxpy_case(loops: Any, blocks: list[int], size: int) -> Case:
    x, y = np.random.default_rng(0).random((2, size), np.float32)
    a, expected = float(np.float32(1e-6)), y + np.float32(1e-6) * x
    in_c = (lambda: loops.saxpy(ctypes.c_long(size), ctypes.c_float(a), address(x), address(y))) if loops else None
    ours = {b: lambda b=b: saxpy[-(-size // b), b](x, y, a, size) for b in blocks}
    return f"saxpy {size}", in_c, ours, lambda: np.testing.assert_allclose(y, expected, atol=1e-3)


def mandelbrot_case(loops: Any, blocks: list[int]) -> Case:
    c, out = np.zeros((512, 512), np.int32), np.zeros((512, 512), np.int32)
    n = ctypes.c_long(512)
    in_c = (lambda: loops.mandelbrot(n, n, ctypes.c_int(256), address(c))) if loops else None
    ours = {b: lambda b=b: mandelbrot[-(-out.size // b), b](out, 256) for b in blocks}

    def check() -> None:
        """A contracted product moves a few pixels at the border."""
        if loops and (c != out).mean() > 0.01:
            raise AssertionError("the images differ")

    return "Mandelbrot 512x512", in_c, ours, check


def softmax_case(loops: Any, blocks: list[int]) -> Case:
    x = np.random.default_rng(0).normal(size=(256, 2048)).astype(np.float32)
    y, out = np.zeros_like(x), np.zeros_like(x)
    sizes = (ctypes.c_long(256), ctypes.c_long(2048))
    in_c = (lambda: loops.softmax(*sizes, address(x), address(y))) if loops else None
    ours = {b: lambda b=b: softmax[256, b](x, out, b) for b in blocks}
    exact = np.exp(x - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    return "softmax 256x2048", in_c, ours, lambda: np.testing.assert_allclose(out, exact, rtol=1e-4)


def matmul_case(loops: Any, blocks: list[int]) -> Case:
    n = 512
    a, b = np.random.default_rng(0).random((2, n, n), np.float32)
    c, out = np.zeros_like(a), np.zeros_like(a)
    in_c = (lambda: loops.matmul(ctypes.c_long(n), address(a), address(b), address(c))) if loops else None

    def ours(threads: int) -> Call:
        rows, cols, depth = TILES[threads]
        return lambda: matmul[(n // cols, n // rows), threads](a, b, out, rows, cols, depth)

    calls = {threads: ours(threads) for threads in blocks if threads in TILES}
    return f"matmul {n}", in_c, calls, lambda: np.testing.assert_allclose(out, a @ b, rtol=1e-3)


def cases(loops: Any, blocks: list[int]) -> Iterator[Case]:
    yield saxpy_case(loops, blocks, 1 << 16)
    yield saxpy_case(loops, blocks, 1 << 22)
    yield mandelbrot_case(loops, blocks)
    yield softmax_case(loops, blocks)
    yield matmul_case(loops, blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--blocks", type=int, nargs="*", default=[32, 256, 1024])
    options = parser.parse_args()
    print(f"{'':20} {'C':>9}" + "".join(f"{f'block {b}':>12}{'first call':>12}" for b in options.blocks))
    for name, in_c, ours, check in cases(c_library(), options.blocks):
        row = f"{name:20} " + (f"{least_ms(in_c, options.rounds):9.3f}" if in_c else f"{'-':>9}")
        for call in ours.values():
            start = time.perf_counter()
            call()
            first_ms = (time.perf_counter() - start) * 1e3
            row += f"{least_ms(call, options.rounds):12.3f}{first_ms:12.1f}"
            check()
        print(row)


if __name__ == "__main__":
    main()
