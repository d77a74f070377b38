"""The CPU target against plain C loops, one core each: saxpy, Mandelbrot, softmax, tiled matrix product; and compile times.

    python benchmarks/cpu.py [--rounds 30] [--blocks 32 256 1024] [--json FILE] [--chart FILE.svg]
    python benchmarks/cpu.py --threads 1 2 4 8      how stagekit's own times fall with threads, by the clock on the wall
    python benchmarks/cpu.py --forms                what the common forms of one loop take against the plainest
    python benchmarks/cpu.py --avx2                 both compilers told that the processor has AVX2 at most, as `x86-64-v3`

Milliseconds of this thread's CPU time, the least of all rounds; a round runs every column once, so that all meet the same
machine. Calls from Python are part of all times, C's by `ctypes` with converted arguments, stagekit's with brackets that are
filled in; results are checked against each other. Columns:

    C            `cc -O3 -march=native`, which contracts `a * b + c` where stagekit does not, and keeps the order of sums
    C fast       the same with `-ffast-math -mprefer-vector-width=512`, which reorders sums and calls a vector `expf`
    Numba        `@njit` of the same loops, where Numba is installed
    32, 256 ...  stagekit with that many threads per block; in brackets how many times faster than C

Matrix tiles: a block of 32 threads computes 8 x 32 elements, one of 256 or 1024 threads 32 x 32.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("STAGEKIT_THREADS", "1")
os.environ["STAGEKIT_CACHE"] = "0" if "--avx2" in sys.argv else os.environ.get("STAGEKIT_CACHE", "0")

import numpy as np
from chart import Bar, draw
from machine import describe

import stagekit as sk
from stagekit.backends.host import compiler, target

VECTOR = sk.Tensor((None,), sk.float32)
MATRIX = sk.Tensor((None, None), sk.float32)
IMAGE = sk.Tensor((None, None), sk.int32)

C_SOURCE = r"""
#include <math.h>
void saxpy(long n, float a, const float *restrict x, float *restrict y) {
    for (long i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}
void mandelbrot(long width, long height, long limit, int *restrict out) {
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
    total = sk.block_reduce(total, lambda a, b: a + b, 0.0, BLOCK, commutative=True)
    for i in range(tid, x.shape[1], BLOCK):
        y[row, i] = y[row, i] / total


TILES = {32: (8, 32, 8), 256: (32, 32, 32), 1024: (32, 32, 32)}  # threads -> rows, columns, depth of a tile


@sk.jit
def matmul(
    a: MATRIX,
    b: MATRIX,
    c: MATRIX,
    THREADS: sk.constexpr,
    ROWS: sk.constexpr,
    COLS: sk.constexpr,
    DEPTH: sk.constexpr,
):
    """A thread computes the elements of a column of the tile that are THREADS // COLS apart."""
    left, right = sk.alloc_shared((ROWS, DEPTH), sk.float32), sk.alloc_shared((DEPTH, COLS), sk.float32)
    t = sk.cuda.thread_idx("x")
    row, col = sk.cuda.block_idx("y") * ROWS, sk.cuda.block_idx("x") * COLS
    step = THREADS // COLS
    totals = [sk.float32(0) for _ in range(ROWS // step)]
    for start in range(0, a.shape[1], DEPTH):
        for i in range(t, ROWS * DEPTH, THREADS):
            left[i // DEPTH, i % DEPTH] = a[row + i // DEPTH, start + i % DEPTH]
        for i in range(t, DEPTH * COLS, THREADS):
            right[i // COLS, i % COLS] = b[start + i // COLS, col + i % COLS]
        sk.syncthreads()
        for k in range(DEPTH):
            x = right[k, t % COLS]
            for r in sk.static_range(len(totals)):
                totals[r] += left[t // COLS + r * step, k] * x
        sk.syncthreads()
    for r in sk.static_range(len(totals)):
        c[row + t // COLS + r * step, col + t % COLS] = totals[r]


try:
    prange = importlib.import_module("numba").prange  # in a loop that is compiled for one thread it is `range`
except ImportError:
    prange = range


def numba_saxpy(n, a, x, y):
    for i in prange(n):
        y[i] = a * x[i] + y[i]


def numba_mandelbrot(width, height, limit, out):
    for r in prange(height):
        for c in range(width):
            cr, ci = np.float32(-2 + 3 * c / width), np.float32(-1.5 + 3 * r / height)
            zr, zi, k = np.float32(0), np.float32(0), 0
            while k < limit and zr * zr + zi * zi < np.float32(4):
                zr, zi = zr * zr - zi * zi + cr, np.float32(2) * zr * zi + ci
                k += 1
            out[r, c] = k


def numba_softmax(rows, n, x, y):
    for r in prange(rows):
        high, total = np.float32(-np.inf), np.float32(0)
        for i in range(n):
            high = max(high, x[r, i])
        for i in range(n):
            y[r, i] = np.exp(x[r, i] - high)
            total += y[r, i]
        for i in range(n):
            y[r, i] /= total


def numba_matmul(n, a, b, c):
    for i in prange(n):
        for j in range(n):
            c[i, j] = 0
        for k in range(n):
            for j in range(n):
                c[i, j] += a[i, k] * b[k, j]


# -- forms of one loop ------------------------------------------------------------------------------------------------


@sk.inline
def first_index():
    return sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")


@sk.inline
def all_threads():
    return sk.cuda.grid_dim("x") * sk.cuda.block_dim("x")


@sk.inline
def add_scaled(x, y, a, i, n):
    if i < n:
        y[i] = a * x[i] + y[i]


@sk.jit
def grid_stride(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    for i in range(first_index(), n, all_threads()):
        y[i] = a * x[i] + y[i]


@sk.jit
def grid_stride_while(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    i = first_index()
    while i < n:
        y[i] = a * x[i] + y[i]
        i += all_threads()


@sk.jit
def uniform_start(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    block = sk.cuda.block_dim("x")
    for start in range(sk.cuda.block_idx("x") * block, n, all_threads()):
        add_scaled(x, y, a, start + sk.cuda.thread_idx("x"), n)


@sk.jit
def two_apart(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    block = sk.cuda.block_dim("x")
    for e in sk.static_range(2):
        add_scaled(x, y, a, (sk.cuda.block_idx("x") * 2 + e) * block + sk.cuda.thread_idx("x"), n)


@sk.jit
def two_adjacent(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    for e in sk.static_range(2):
        add_scaled(x, y, a, first_index() * 2 + e, n)


@sk.jit
def vectors_of_4(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    i = first_index()
    if i * 4 < n:
        y.vector(4)[i] = a * x.vector(4)[i] + y.vector(4)[i]


@sk.jit
def neighbours(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    i = first_index()
    if i < n:
        y[i] = a * (x[max(i - 1, 0)] + x[i] + x[min(i + 1, n - 1)])


@sk.jit
def tile_with_halo(x: VECTOR, y: VECTOR, a: sk.float32, n: sk.int64):
    part = sk.alloc_shared((FORMS_BLOCK + 2,), sk.float32)
    t, i = sk.cuda.thread_idx("x"), first_index()
    part[t + 1] = x[min(i, n - 1)]
    if t == 0:
        part[0] = x[max(i - 1, 0)]
        part[FORMS_BLOCK + 1] = x[min(i + FORMS_BLOCK, n - 1)]
    sk.syncthreads()
    if i < n:
        y[i] = a * (part[t] + part[t + 1] + part[t + 2])


FORMS_BLOCK = 256
FORMS = {  # the plainest first; of each how many elements a thread has
    "a * x + y": {
        saxpy: 1, grid_stride: 8, grid_stride_while: 8, uniform_start: 8, two_apart: 2, two_adjacent: 2, vectors_of_4: 4,
    },
    "three neighbours": {neighbours: 1, tile_with_halo: 1},
}  # fmt: skip


def show_forms(rounds: int, size: int = 69_632) -> None:
    """Microseconds of each form, and how many times as long as the plainest it takes.

    With a power of two, what a thread goes through lies in one set of the cache.
    """
    x, y = np.random.default_rng(0).random((2, size), np.float32)
    for name, forms in FORMS.items():
        calls = {
            kernel: Launch(kernel, (-(-size // (FORMS_BLOCK * each)), FORMS_BLOCK), x, y, 1e-6, size).bound()
            for kernel, each in forms.items()
        }
        best = dict.fromkeys(calls, math.inf)
        for _ in range(rounds + 2):
            for kernel, call in calls.items():
                best[kernel] = min(best[kernel], milliseconds(call, 20))
        print(f"{name}, {size} elements, block {FORMS_BLOCK}, us")
        for kernel, ms in best.items():
            print(f"    {kernel.__name__:20}{ms * 1e3:8.1f} ({ms / best[next(iter(best))]:4.2f}x)")


Call = Callable[[], Any]

IS_NARROW = "--avx2" in sys.argv
ARCHITECTURE = "x86-64-v3" if IS_NARROW else "native"
C_FLAGS = {"C": [], "C fast": ["-ffast-math", *([] if IS_NARROW else ["-mprefer-vector-width=512"])]}


def c_libraries() -> dict[str, Any]:
    """The loops above as shared libraries, by column; none without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return {}
    folder = Path(tempfile.mkdtemp())
    source = folder / "loops.c"
    source.write_text(C_SOURCE)
    made = {}
    for column, flags in C_FLAGS.items():
        library = folder / f"{column.replace(' ', '_')}.so"
        command = [
            compiler,
            "-O3",
            f"-march={ARCHITECTURE}",
            *flags,
            "-shared",
            "-fPIC",
            str(source),
            "-o",
            str(library),
            "-lm",
        ]
        subprocess.run(command, check=True)
        made[column] = ctypes.CDLL(str(library))
    return made


def numba_loops(*, parallel: bool = False) -> dict[str, Any]:
    """The loops above by Numba, by the names that they have in C; none where it is not installed."""
    try:
        njit = importlib.import_module("numba").njit
    except ImportError:
        return {}
    loops = (numba_saxpy, numba_mandelbrot, numba_softmax, numba_matmul)
    return {loop.__name__.removeprefix("numba_"): njit(loop, parallel=parallel) for loop in loops}


@dataclass(frozen=True)
class Case:
    """columns: what is run, by its heading; the key of stagekit's is the block size. check: of what the latest call left."""

    name: str
    columns: dict[str | int, Call]
    check: Callable[[], None]


def peers(name: str, *arguments: Any) -> dict[str | int, Call]:
    """The loop of this name in C, with each set of flags, and by Numba. Ints and floats go to C as long and float."""
    found: dict[str | int, Call] = {}
    for column, library in C_LIBRARIES.items():
        found[column] = CCall(getattr(library, name), arguments)
    if NUMBA:
        loop = NUMBA[name]
        found["Numba"] = lambda: loop(*arguments)
    return found


class CCall:
    """A call with arguments that are converted once, and kept."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self._function, self._kept = function, arguments
        self._native = [_native(a) for a in arguments]

    def __call__(self) -> None:
        self._function(*self._native)


class Launch:
    """A launch of stagekit."""

    def __init__(self, kernel: Any, brackets: Any, *arguments: Any) -> None:
        self._kernel, self._brackets, self._arguments = kernel, brackets, arguments

    def __call__(self) -> None:
        self._kernel[self._brackets](*self._arguments)

    def bound(self) -> Call:
        """The same with its brackets filled in."""
        return functools.partial(self._kernel[self._brackets], *self._arguments)


def _native(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_float(argument) if isinstance(argument, float | np.float32) else ctypes.c_long(argument)


C_LIBRARIES, NUMBA = c_libraries(), numba_loops()


def saxpy_case(blocks: list[int], size: int) -> Case:
    x, y = np.random.default_rng(0).random((2, size), np.float32)
    a, expected = np.float32(1e-6), y + np.float32(1e-6) * x
    ours = {b: Launch(saxpy, (-(-size // b), b), x, y, a, size) for b in blocks}
    check = lambda: np.testing.assert_allclose(y, expected, atol=1e-2)  # noqa: E731
    return Case(f"saxpy {size}", {**peers("saxpy", size, a, x, y), **ours}, check)


def mandelbrot_case(blocks: list[int]) -> Case:
    c, out = np.zeros((512, 512), np.int32), np.zeros((512, 512), np.int32)
    ours = {b: Launch(mandelbrot, (-(-out.size // b), b), out, 256) for b in blocks}

    def check() -> None:
        """A contracted product moves a few pixels at the border."""
        if c.any() and (c != out).mean() > 0.01:
            raise AssertionError("the images differ")

    return Case("Mandelbrot 512x512", {**peers("mandelbrot", 512, 512, 256, c), **ours}, check)


def softmax_case(blocks: list[int]) -> Case:
    x = np.random.default_rng(0).normal(size=(256, 2048)).astype(np.float32)
    y, out = np.zeros_like(x), np.zeros_like(x)
    ours = {b: Launch(softmax, (256, b), x, out, b) for b in blocks}
    exact = np.exp(x - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    check = lambda: np.testing.assert_allclose(out, exact, rtol=1e-4)  # noqa: E731
    return Case("softmax 256x2048", {**peers("softmax", 256, 2048, x, y), **ours}, check)


def matmul_case(blocks: list[int]) -> Case:
    n = 512
    a, b = np.random.default_rng(0).random((2, n, n), np.float32)
    c, out = np.zeros_like(a), np.zeros_like(a)

    def ours(threads: int) -> Call:
        rows, cols, depth = TILES[threads]
        return Launch(matmul, ((n // cols, n // rows), threads), a, b, out, threads, rows, cols, depth)

    calls = {threads: ours(threads) for threads in blocks if threads in TILES}
    check = lambda: np.testing.assert_allclose(out, a @ b, rtol=1e-3)  # noqa: E731
    return Case(f"matmul {n}", {**peers("matmul", n, a, b, c), **calls}, check)


def cases(blocks: list[int]) -> Iterator[Case]:
    yield saxpy_case(blocks, 1 << 16)
    yield saxpy_case(blocks, 1 << 22)
    yield mandelbrot_case(blocks)
    yield softmax_case(blocks)
    yield matmul_case(blocks)


SAMPLE_MS = 0.5  # shorter calls are timed many at a time


def milliseconds(call: Call, times: int) -> float:
    start = time.thread_time_ns()
    for _ in range(times):
        call()
    return (time.thread_time_ns() - start) / times / 1e6


@dataclass(frozen=True)
class Row:
    """ms by column; first_ms: of stagekit's columns, the first call, with tracing and compiling."""

    name: str
    ms: dict[str | int, float]
    first_ms: dict[int, float]

    def ratio(self, column: int) -> float | None:
        return self.ms["C"] / self.ms[column] if "C" in self.ms else None


def measured(case: Case, rounds: int) -> Row:
    first_ms, calls, times = {}, {}, {}
    for column, call in case.columns.items():
        first = milliseconds(call, 1)
        if isinstance(column, int):
            first_ms[column] = first
            case.check()
        call()  # the second call makes the launcher
        calls[column] = call.bound() if isinstance(call, Launch) else call
        times[column] = max(int(SAMPLE_MS / max(milliseconds(calls[column], 1), 1e-6)), 1)
    best = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for column, call in calls.items():
            best[column] = min(best[column], milliseconds(call, times[column]))
    return Row(case.name, best, first_ms)


def show_threads(counts: list[int], block: int, rounds: int) -> None:
    """Wall milliseconds, and how many times faster than with the first count."""
    print(f"{f'ms, block {block}':20}" + "".join(f"{n:>18}" for n in counts))
    for case in cases([block]):
        call, cells = case.columns[block], []
        for count in counts:
            os.environ["STAGEKIT_THREADS"] = str(count)
            call(), call()
            cells.append(min(wall_ms(call) for _ in range(rounds)))
        print(f"{case.name:20}" + "".join(f"{ms:10.4f} ({cells[0] / ms:4.2f}x)" for ms in cells))


def wall_ms(call: Call) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e6


def show(rows: list[Row]) -> None:
    columns = list(rows[0].ms)
    print(f"{'ms':20}" + "".join(f"{c!s:>{18 if isinstance(c, int) else 10}}" for c in columns) + "   first calls")
    for row in rows:
        cells = [_cell(row, column) for column in columns]
        print(f"{row.name:20}{''.join(cells)}   " + " ".join(f"{ms:.0f}" for ms in row.first_ms.values()))


def _cell(row: Row, column: str | int) -> str:
    ms = row.ms.get(column)
    if ms is None:
        return f"{'-':>{18 if isinstance(column, int) else 10}}"
    if isinstance(column, str):
        return f"{ms:10.4f}"
    ratio = row.ratio(column)
    return f"{ms:10.4f} " + (f"({ratio:4.2f}x)" if ratio else " " * 7)


def bars(rows: list[Row]) -> list[Bar]:
    """How many times faster than C."""
    return [
        Bar(
            f"{row.name}, {column if isinstance(column, str) else f'block {column}'}",
            row.ms["C"] / ms,
            isinstance(column, int),
        )
        for row in rows
        for column, ms in row.ms.items()
        if column != "C"
    ]


def with_avx2() -> target.Processor:
    """Return this processor without what it has beyond AVX2."""
    kept = [each for each in target.this_processor().features.split(",") if not each.startswith(("+avx512", "+amx"))]
    return target.Processor("haswell", ",".join([*kept, "-avx512f", "-evex512"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--blocks", type=int, nargs="*", default=[32, 256, 1024])
    parser.add_argument("--threads", type=int, nargs="*", default=[])
    parser.add_argument("--forms", action="store_true")
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    options = parser.parse_args()
    print(describe("cpu") + ", AVX2 at most" * options.avx2)
    if options.avx2:
        compiler.this_processor = with_avx2
    if options.forms:
        show_forms(options.rounds)
        return
    if options.threads:
        for block in options.blocks:
            show_threads(options.threads, block, options.rounds)
        return
    rows = [measured(case, options.rounds) for case in cases(options.blocks)]
    show(rows)
    if options.json:
        found = {"machine": describe("cpu"), "ms": {row.name: row.ms for row in rows}}
        options.json.write_text(json.dumps(found, indent=2))
    if options.chart and C_LIBRARIES:
        draw(options.chart, f"Times faster than C, {describe('cpu').split(',')[0]}", "x", bars(rows))


if __name__ == "__main__":
    main()
