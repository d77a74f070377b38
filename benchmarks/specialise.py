"""How long a specialisation takes: tracing, PTX and host code, for three kernels; and growth with the size of the body.

    python benchmarks/specialise.py [--rounds 15]

Medians in milliseconds over fresh specialisations in one process, after one that is not counted. Nothing is cached: every
round has another constexpr value. The last lines are of new processes that find `add` in the disk cache.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import stagekit as sk

n = sk.dynamic("n")
ARRAY = sk.Tensor((None,), sk.float32)


@sk.jit
def add(A: sk.Tensor((n,), sk.float32), B: sk.Tensor((n,), sk.float32), VALUE: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, 256), block=256))
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    if i < n:
        B[i] = A[i] + VALUE


@sk.jit
def softmax(src: ARRAY, dst: ARRAY, N: sk.int32, BLOCK: sk.constexpr, SALT: sk.constexpr = 0):
    tid = sk.arange(0, BLOCK)
    mask = tid < N
    x = sk.load(src + tid, mask=mask, other=-float("inf"))
    e = sk.exp(x - sk.reduce_max(x))
    sk.store(dst + tid, e / sk.reduce_sum(e) + SALT, mask=mask)


@sk.jit
def matmul(A: sk.Tensor((None, None), sk.float32), B: sk.Tensor((None, None), sk.float32),
           C: sk.Tensor((None, None), sk.float32), TILE: sk.constexpr, SALT: sk.constexpr = 0):  # fmt: skip
    sk.device_entry(
        launch=sk.cuda.LaunchConfig(
            grid=(sk.ceildiv(C.shape[1], TILE), sk.ceildiv(C.shape[0], TILE)), block=(TILE, TILE)
        )
    )
    a, b = sk.alloc_shared((TILE, TILE), sk.float32), sk.alloc_shared((TILE, TILE), sk.float32)
    tx, ty = sk.cuda.thread_idx("x"), sk.cuda.thread_idx("y")
    row, col = sk.cuda.block_idx("y") * TILE + ty, sk.cuda.block_idx("x") * TILE + tx
    total = sk.float32(SALT)
    for start in range(0, A.shape[1], TILE):
        a[ty, tx] = A[row, start + tx] if row < A.shape[0] and start + tx < A.shape[1] else 0.0
        b[ty, tx] = B[start + ty, col] if start + ty < B.shape[0] and col < B.shape[1] else 0.0
        sk.syncthreads()
        for k in sk.static_range(TILE):
            total += a[ty, k] * b[k, tx]
        sk.syncthreads()
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = total


@sk.jit
def straight(A: ARRAY, OPS: sk.constexpr, SALT: sk.constexpr = 0):
    x, y = A[0], A[1]
    for i in sk.static_range(OPS // 2):
        x = x * y + (i + SALT)
    A[2] = x


KERNELS: dict[str, Callable[[int], Any]] = {
    "add": lambda r: add.specialize(VALUE=r),
    "softmax, 256 threads": lambda r: softmax.specialize(BLOCK=256, SALT=r),
    "matmul, 16 x 16 tiles": lambda r: matmul.specialize(TILE=16, SALT=r),
}


def steps(kernel: Any) -> tuple[float, float, float]:
    """Milliseconds for tracing, for PTX after it, and for host code after it."""
    marks = [time.perf_counter()]
    for step in (kernel.trace, lambda: kernel.compile("cuda", capability=90), lambda: kernel.compile("cpu", block=256)):
        step()
        marks.append(time.perf_counter())
    return tuple(1e3 * (b - a) for a, b in itertools.pairwise(marks))  # type: ignore[return-value]


def rows(rounds: int) -> Iterator[tuple[str, list[float]]]:
    for name, make in KERNELS.items():
        steps(make(-1))
        measured = [steps(make(r)) for r in range(rounds)]
        yield name, [statistics.median(column) for column in zip(*measured)]
    for size in (100, 1_000, 10_000):
        yield f"straight line, {size:,} ops", list(steps(straight.specialize(OPS=size)))


def import_ms() -> float:
    """Milliseconds of `import stagekit` beyond numpy, in fresh processes."""
    code = "import numpy, time; t = time.perf_counter(); import stagekit; print(1e3 * (time.perf_counter() - t))"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(7)]
    return statistics.median(float(r.stdout) for r in runs)


WARM = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import specialise
import stagekit.backends.host.loader, stagekit.backends.toolchain
start = time.perf_counter()
specialise.add.specialize(VALUE=1).compile("cpu")
first = time.perf_counter()
specialise.add.specialize(VALUE=2).compile("cpu")
print(1e3 * (first - start), 1e3 * (time.perf_counter() - first))
"""


def warm_ms(runs: int = 7) -> tuple[float, float]:
    """Milliseconds for the first and the second kernel of a process that finds both on disk; LLVM is imported already."""
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", WARM, here]
        environment = {**os.environ, "STAGEKIT_CACHE": folder}
        found = [
            subprocess.run(command, capture_output=True, text=True, check=True, env=environment) for _ in range(runs)
        ]
    first, second = zip(*(map(float, run.stdout.split()) for run in found[1:]))
    return statistics.median(first), statistics.median(second)


def main() -> None:
    os.environ["STAGEKIT_CACHE"] = "0"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(f"import stagekit beyond numpy: {import_ms():.0f} ms")
    print(f"{'kernel':28}{'trace':>9}{'PTX':>9}{'to PTX':>9}{'host code':>11}   ms, median of {rounds}")
    for name, (trace, ptx, host) in rows(rounds):
        print(f"{name:28}{trace:9.2f}{ptx:9.2f}{trace + ptx:9.2f}{host:11.2f}")
    print("from disk in a new process: {:.1f} ms for the first kernel, {:.1f} ms for the second".format(*warm_ms()))


if __name__ == "__main__":
    main()
