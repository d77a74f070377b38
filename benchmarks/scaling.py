"""How launches on the CPU fall with threads, beside gcc's OpenMP and Numba's prange; and what handing a launch over costs.

    python benchmarks/scaling.py [--threads 1 2 4 8 16] [--only saxpy,n-body] [--seconds 0.2] [--rounds 300] [--json FILE]

Milliseconds by the clock on the wall: of each of two turns of a system the median, and of these the better one. Before a turn
comes a pause, in which the threads of the system before fall asleep. --seconds: for how long each is timed. Columns:

    stagekit     how many times faster than with the first number of threads stands in brackets
    OpenMP       `gcc -O3 -march=native -fopenmp`, static schedule, Mandelbrot dynamic; its own speed-up
    fast         the same with `-ffast-math -mprefer-vector-width=512`
    Numba        `@njit(parallel=True)` of the same loops, where Numba is installed
    ratio        OpenMP's time by ours; above 1 ours is faster

Handing over: as many blocks as threads, each of which computes for a while, against one block and one thread; what a launch takes
longer, in launches that follow each other and after a pause: median, worst tenth, and what the block takes. libgomp's threads
look for work for some milliseconds; with `OMP_WAIT_POLICY=passive` in the environment they sleep at once.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cpu
import numpy as np
from machine import describe

import stagekit as sk

PAUSE_SECONDS = 0.005
PAUSES = (0.0, 0.002, 0.05)  # seconds before a launch whose handing over is timed
BUSY_STEPS = 20_000  # some 50 µs
EPSILON = 1e-3  # of the n-body: keeps bodies apart
RATE, VOLATILITY = 0.02, 0.30

C_SOURCE = r"""
#include <math.h>
#include <omp.h>
#define EACH _Pragma("omp parallel for schedule(static)")
void set_threads(long count) { omp_set_num_threads(count); }
void saxpy(long n, float a, const float *restrict x, float *restrict y) {
    EACH for (long i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}
void mandelbrot(long width, long height, long limit, int *restrict out) {
    _Pragma("omp parallel for schedule(dynamic)")
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
void busy(float *restrict out, long blocks, long steps) {
    EACH for (long b = 0; b < blocks; b++) {
        float x = 1;
        for (long i = 0; i < steps; i++) x = x * 0.999f + 1.0f;
        out[b] = x;
    }
}
void softmax(long rows, long n, const float *restrict from, float *restrict to) {
    EACH for (long r = 0; r < rows; r++) {
        const float *x = from + r * n;
        float *y = to + r * n, high = -INFINITY, sum = 0;
        for (long i = 0; i < n; i++) high = x[i] > high ? x[i] : high;
        for (long i = 0; i < n; i++) sum += y[i] = expf(x[i] - high);
        for (long i = 0; i < n; i++) y[i] /= sum;
    }
}
void matmul(long n, const float *restrict a, const float *restrict b, float *restrict c) {
    EACH for (long i = 0; i < n; i++) {
        for (long j = 0; j < n; j++) c[i * n + j] = 0;
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}
void nbody(long n, float epsilon, const float *restrict x, const float *restrict y, const float *restrict z,
           float *restrict force) {
    EACH for (long i = 0; i < n; i++) {
        float fx = 0, fy = 0, fz = 0;
        for (long j = 0; j < n; j++) {
            float dx = x[j] - x[i], dy = y[j] - y[i], dz = z[j] - z[i];
            float near = 1.0f / sqrtf(dx * dx + dy * dy + dz * dz + epsilon), cube = near * near * near;
            fx += dx * cube;
            fy += dy * cube;
            fz += dz * cube;
        }
        force[i] = fx;
        force[n + i] = fy;
        force[2 * n + i] = fz;
    }
}
void black_scholes(long n, float rate, float volatility, const float *restrict price, const float *restrict strike,
                   const float *restrict years, float *restrict call) {
    EACH for (long i = 0; i < n; i++) {
        float spread = volatility * sqrtf(years[i]);
        float d1 = (logf(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / spread;
        float d2 = d1 - spread;
        float n1 = 1.0f / (1.0f + expf(-1.5957691f * d1 * (1.0f + 0.044715f * d1 * d1)));
        float n2 = 1.0f / (1.0f + expf(-1.5957691f * d2 * (1.0f + 0.044715f * d2 * d2)));
        call[i] = price[i] * n1 - strike[i] * expf(-rate * years[i]) * n2;
    }
}
"""
FLAGS = {"OpenMP": [], "fast": ["-ffast-math", "-mprefer-vector-width=512"]}


@sk.jit
def nbody(x: cpu.VECTOR, y: cpu.VECTOR, z: cpu.VECTOR, force: cpu.MATRIX, epsilon: sk.float32):
    """Sum the pulls of all bodies on one; masses are 1."""
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if i < x.shape[0]:
        fx = fy = fz = sk.float32(0)
        for j in range(x.shape[0]):
            dx, dy, dz = x[j] - x[i], y[j] - y[i], z[j] - z[i]
            near = 1.0 / sk.sqrt(dx * dx + dy * dy + dz * dz + epsilon)
            cube = near * near * near
            fx, fy, fz = fx + dx * cube, fy + dy * cube, fz + dz * cube
        force[0, i], force[1, i], force[2, i] = fx, fy, fz


@sk.inline
def normal(d):
    """The normal distribution. Source: Page, Approximations to the Cumulative Normal Function, Applied Statistics 26, 1977."""
    return 1.0 / (1.0 + sk.exp(-1.5957691 * d * (1.0 + 0.044715 * d * d)))


@sk.jit
def black_scholes(
    price: cpu.VECTOR, strike: cpu.VECTOR, years: cpu.VECTOR, call: cpu.VECTOR, rate: sk.float32, volatility: sk.float32
):
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if i < price.shape[0]:
        spread = volatility * sk.sqrt(years[i])
        d1 = (sk.log(price[i] / strike[i]) + (rate + 0.5 * volatility * volatility) * years[i]) / spread
        call[i] = price[i] * normal(d1) - strike[i] * sk.exp(-rate * years[i]) * normal(d1 - spread)


@sk.jit
def busy(out: cpu.VECTOR, steps: sk.int32):
    """Compute for a while, and touch no memory meanwhile."""
    x = sk.float32(1)
    for _ in range(steps):
        x = x * 0.999 + 1.0
    out[sk.cuda.block_idx("x") * 32 + sk.cuda.thread_idx("x")] = x


class Case:
    """One program: what is called, by system. result: the array that ours leaves; expected: the one that C leaves."""

    def __init__(
        self, name: str, ours: Callable[[], Any], loop: str, arguments: tuple[Any, ...], result: Any = None
    ) -> None:
        self.name, self.result, self.expected = name, result, arguments[-1]
        self.calls: dict[str, Callable[[], Any]] = {"stagekit": ours}
        for system, library in LIBRARIES.items():
            self.calls[system] = cpu.CCall(getattr(library, loop), arguments)
        if loop in NUMBA:
            self.calls["Numba"] = lambda: NUMBA[loop](*arguments)

    def require_equal(self) -> None:
        """Exit where ours and C's differ by more than roundings. A contracted product moves a few pixels of an image."""
        if self.result is None or "OpenMP" not in self.calls:
            return
        self.calls["OpenMP"]()
        self.calls["stagekit"]()
        differs = ~np.isclose(self.result.ravel(), self.expected.ravel(), rtol=2e-2, atol=2e-3)
        if differs.mean() > 0.01:
            sys.exit(f"{self.name}: {differs.mean():.1%} of the results differ")


def compiled() -> dict[str, Any]:
    """The C loops as shared libraries, by column; none without gcc."""
    if shutil.which("gcc") is None:
        return {}
    folder, made = Path(tempfile.mkdtemp()), {}
    (folder / "loops.c").write_text(C_SOURCE)
    for system, flags in FLAGS.items():
        library = folder / f"{system}.so"
        options = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", *flags]
        subprocess.run(["gcc", *options, str(folder / "loops.c"), "-o", str(library), "-lm"], check=True)
        made[system] = ctypes.CDLL(str(library))
    return made


def saxpy_case(size: int) -> Case:
    x, y = np.random.default_rng(0).random((2, size), np.float32)
    a = np.float32(1e-6)
    return Case(
        f"saxpy {size >> 20} Mi",
        cpu.Launch(cpu.saxpy, (-(-size // 256), 256), x, y, a, size).bound(),
        "saxpy",
        (size, a, x, y),
    )


def mandelbrot_case(size: int) -> Case:
    c, out = np.zeros((size, size), np.int32), np.zeros((size, size), np.int32)
    ours = cpu.Launch(cpu.mandelbrot, (size * size // 256, 256), out, 256).bound()
    return Case(f"Mandelbrot {size}²", ours, "mandelbrot", (size, size, 256, c), out)


def softmax_case(size: int) -> Case:
    x = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    y, out = np.zeros_like(x), np.zeros_like(x)
    ours = cpu.Launch(cpu.softmax, (size, 256), x, out, 256).bound()
    return Case(f"softmax {size}²", ours, "softmax", (size, size, x, y), out)


def matmul_case(size: int) -> Case:
    a, b = np.random.default_rng(0).random((2, size, size), np.float32)
    c, out = np.zeros_like(a), np.zeros_like(a)
    rows, cols, depth = cpu.TILES[256]
    ours = cpu.Launch(cpu.matmul, ((size // cols, size // rows), 256), a, b, out, 256, rows, cols, depth).bound()
    return Case(f"matmul {size}", ours, "matmul", (size, a, b, c), out)


def nbody_case(size: int) -> Case:
    x, y, z = np.random.default_rng(0).random((3, size), np.float32)
    force, out = np.zeros((3, size), np.float32), np.zeros((3, size), np.float32)
    ours = cpu.Launch(nbody, (-(-size // 128), 128), x, y, z, out, EPSILON).bound()
    return Case(f"n-body {size >> 10} Ki", ours, "nbody", (size, EPSILON, x, y, z, force), out)


def black_scholes_case(size: int) -> Case:
    random = np.random.default_rng(0)
    price, strike, years = (
        random.uniform(*bounds, size).astype(np.float32) for bounds in ((5, 30), (1, 100), (0.25, 10))
    )
    call, out = np.zeros_like(price), np.zeros_like(price)
    ours = cpu.Launch(black_scholes, (-(-size // 256), 256), price, strike, years, out, RATE, VOLATILITY).bound()
    return Case(
        f"Black-Scholes {size >> 20} Mi",
        ours,
        "black_scholes",
        (size, RATE, VOLATILITY, price, strike, years, call),
        out,
    )


CASES: dict[str, tuple[Callable[[int], Case], int, int]] = {
    "saxpy": (saxpy_case, 4 << 20, 1 << 20),
    "saxpy-64": (saxpy_case, 64 << 20, 8 << 20),
    "mandelbrot": (mandelbrot_case, 2048, 512),
    "softmax": (softmax_case, 4096, 1024),
    "matmul": (matmul_case, 2048, 512),
    "n-body": (nbody_case, 16 << 10, 4 << 10),
    "black-scholes": (black_scholes_case, 16 << 20, 2 << 20),
}
"""By name: the case, its size, and its size with --small."""


def set_threads(count: int) -> None:
    os.environ["STAGEKIT_THREADS"] = str(count)
    for library in LIBRARIES.values():
        library.set_threads(ctypes.c_long(count))
    if NUMBA:
        importlib.import_module("numba").set_num_threads(min(count, os.cpu_count() or 1))


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def milliseconds(call: Callable[[], Any], seconds: float) -> float:
    """Return the median of calls that follow each other, after a pause. The first is left out unless it takes all the time."""
    time.sleep(PAUSE_SECONDS)
    times: list[float] = [seconds_of(call)]
    while sum(times) < seconds:
        times.append(seconds_of(call))
    return float(np.median(times[1:] or times)) * 1e3


def measured(case: Case, counts: list[int], seconds: float) -> dict[str, dict[int, float]]:
    """Return milliseconds by system and number of threads: the better of two turns, one before those of the others, one after."""
    case.require_equal()
    for _ in range(2):  # the second launch makes the native launcher
        case.calls["stagekit"]()
    found: dict[str, dict[int, float]] = {system: {} for system in case.calls}
    for count in counts:
        set_threads(count)
        for system in (*case.calls, *reversed(case.calls)):
            taken = milliseconds(case.calls[system], seconds / 2)
            found[system][count] = min(taken, found[system].get(count, math.inf))
    return found


def show(name: str, found: dict[str, dict[int, float]], counts: list[int]) -> None:
    for count in counts:
        cells = ""
        for system in ("stagekit", *FLAGS, "Numba"):
            times = found.get(system)
            cells += f"{times[count]:11.3f} ({times[counts[0]] / times[count]:5.2f}x)" if times else f"{'-':>20}"
        ratio = found["OpenMP"][count] / found["stagekit"][count] if "OpenMP" in found else math.nan
        sys.stdout.write(f"{name if count == counts[0] else '':20}{count:>8}{cells}{ratio:9.2f}\n")
    sys.stdout.flush()


def handing_over(counts: list[int], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return by system, number of threads and pause what a launch of a block for each thread takes longer than a block by itself,
    in µs: the median, the worst tenth, and what the block takes.
    """
    out, found = np.zeros(32 * max(counts), np.float32), {}
    for system in ("stagekit", *(["OpenMP"] if LIBRARIES else [])):
        for count in counts:
            calls = {blocks: busy_call(system, blocks, out) for blocks in {1, count}}
            row = {}
            for pause in PAUSES:
                times = busy_times(calls, pause, rounds if not pause else max(1, rounds // 10))
                median, tenth = np.percentile(times[count], (50, 90)) - np.median(times[1])
                row[f"{pause * 1e3:g} ms"] = [round(float(each), 1) for each in (median, tenth, np.median(times[1]))]
            found[f"{system} {count}"] = row
            cells = "".join(f"{median:9.1f} ({tenth:6.1f}, of {alone:3.0f})" for median, tenth, alone in row.values())
            sys.stdout.write(f"{system:12}{count:>8}{cells}\n")
            sys.stdout.flush()
    return found


def busy_call(system: str, blocks: int, out: Any) -> Callable[[], Any]:
    if system == "stagekit":
        return cpu.Launch(busy, (blocks, 32), out[: 32 * blocks], BUSY_STEPS).bound()
    return cpu.CCall(LIBRARIES[system].busy, (out, blocks, BUSY_STEPS))


def busy_times(calls: dict[int, Callable[[], Any]], pause: float, rounds: int) -> dict[int, list[float]]:
    """Return µs by number of blocks, which is that of threads. Without a pause five calls follow each other."""
    times: dict[int, list[float]] = {blocks: [] for blocks in calls}
    for _ in range(rounds):
        for blocks, call in calls.items():
            set_threads(blocks)
            call()  # counts the threads
            time.sleep(pause)
            times[blocks] += [seconds_of(call) * 1e6 for _ in range(1 if pause else 5)]
    return times


LIBRARIES, NUMBA = compiled(), cpu.numba_loops(parallel=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--only", help=f"comma separated, of {', '.join(CASES)}; empty: handing over alone")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=300, help="of handing over")
    parser.add_argument("--small", action="store_true", help="smaller arrays")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = list(CASES) if options.only is None else options.only.split(",") if options.only else []
    if unknown := set(names) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    machine = describe("cpu")
    sys.stdout.write(
        f"{machine}\n\n{'handing over, µs':12}{'threads':>8}"
        + "".join(f"{f'pause {p * 1e3:g} ms':>26}" for p in PAUSES)
    )
    sys.stdout.write("\n")
    found: dict[str, Any] = {
        "machine": machine,
        "handing over": handing_over(options.threads, options.rounds),
        "ms": {},
    }
    heads = "".join(f"{system:>20}" for system in ("stagekit", *FLAGS, "Numba"))
    sys.stdout.write(f"\n{'ms':20}{'threads':>8}{heads}{'ratio':>9}\n")
    for name in names:
        make, size, small = CASES[name]
        case = make(small if options.small else size)
        found["ms"][case.name] = measured(case, options.threads, options.seconds)
        show(case.name, found["ms"][case.name], options.threads)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
