"""The checking interpreter on the kernels of `examples/`: operations per second, and the size that takes one second.

    python benchmarks/interpreter.py [--seconds 0.5] [EXAMPLE ...]

An operation is one op of the IR in one thread. "plain" is the interpreter alone, "checked" with everything that `sk.sanitize`
looks for. Sizes are doubled until a launch takes long enough, then carried on in proportion; memory is the most that one
checked launch of that size holds besides its arrays. Times are of the processor: the interpreter keeps to one core.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

import stagekit as sk
from stagekit.backends.interp import engine

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import blur
import constexpr_block
import histogram
import mandelbrot
import matmul_tiled
import metaprogramming
import quickstart
import softmax

MIB = 1 << 20
Launch = Callable[[int], Callable[[], None]]
"""From a size to a launch of that size."""


def streaming(n: int) -> Callable[[], None]:
    x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
    return lambda: constexpr_block.relu_kernel[(sk.ceildiv(n, 256),)](x, out, n, 256)


def adding_in_pairs(n: int) -> Callable[[], None]:
    kernel = quickstart.make_add_one_pairs(sk.float32)
    x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
    return lambda: kernel(x, out)


def pipeline_of_steps(n: int) -> Callable[[], None]:
    kernel = metaprogramming.make_pipeline([metaprogramming.relu, metaprogramming.double, metaprogramming.double])
    x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
    return lambda: kernel(x, out)


def matrix_product(n: int) -> Callable[[], None]:
    kernel = matmul_tiled.make_matmul()
    a, b, c = (np.ones((n, n), np.float32) for _ in range(3))
    return lambda: kernel(a, b, c)


def rows_of_softmax(n: int) -> Callable[[], None]:
    x = np.random.default_rng(0).normal(size=(n, 1000)).astype(np.float32)
    out = np.zeros_like(x)
    return lambda: softmax.softmax_rows(x, out)


def counting(n: int) -> Callable[[], None]:
    kernel, counts = histogram.make_histogram(256), np.zeros(256, np.int32)
    values = np.random.default_rng(0).integers(0, 256, n).astype(np.uint8)
    return lambda: kernel(values, counts)


def picture_of_mandelbrot(n: int) -> Callable[[], None]:
    kernel, picture = mandelbrot.mandelbrot.specialize(most=100), np.zeros((n, n), np.int32)
    return lambda: kernel(picture, -2.2, -1.2, 3.0 / n)


def blurring(n: int) -> Callable[[], None]:
    kernel = blur.blur.specialize(axis=0, weights=blur.gaussian(6))
    picture = np.random.default_rng(0).integers(0, 256, (n, n)).astype(np.uint8)
    out = np.zeros_like(picture)
    return lambda: kernel(picture, out)


@dataclass(frozen=True)
class Example:
    """unit: what the size counts. dimension: how the work grows with it."""

    name: str
    launch: Launch
    start: int
    unit: str
    dimension: int


EXAMPLES = (
    Example("quickstart", adding_in_pairs, 4096, "{} elements", 1),
    Example("metaprogramming", pipeline_of_steps, 4096, "{} elements", 1),
    Example("constexpr_block", streaming, 4096, "{} elements", 1),
    Example("softmax", rows_of_softmax, 4, "{} rows of 1000", 1),
    Example("matmul_tiled", matrix_product, 32, "{0} x {0} x {0}", 3),
    Example("histogram", counting, 4096, "{} values", 1),
    Example("mandelbrot", picture_of_mandelbrot, 16, "{0} x {0}, 100 steps", 2),
    Example("blur", blurring, 32, "{0} x {0} pixels", 2),
)


@contextmanager
def plain() -> Iterator[None]:
    with sk.sanitize(
        races=False, uninitialised=False, lanes=False, overflow=False, division=False, shifts=False, nan=False
    ):
        yield


@contextmanager
def checked() -> Iterator[None]:
    with sk.sanitize():
        yield


def seconds_of(run: Callable[[], None]) -> float:
    """The better of two; the first compiles."""
    run()
    times = []
    for _ in range(2):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def grown(example: Example, way: Any, least_seconds: float) -> tuple[int, float]:
    """A size that takes at least so long, and how long it takes."""
    size = example.start
    with way():
        while True:
            seconds = seconds_of(example.launch(size))
            if seconds >= least_seconds:
                return size, seconds
            size *= 2


class Counter:
    """Counts ops times threads while kernels are compiled and run inside `with`."""

    def __init__(self) -> None:
        self.total = 0
        self._builders = dict(engine.BUILDERS)

    def __enter__(self) -> Self:
        for kind, build in self._builders.items():
            engine.BUILDERS[kind] = functools.partial(self._build, build)
        return self

    def __exit__(self, *_: object) -> None:
        engine.BUILDERS.update(self._builders)

    def _build(self, build: Any, compiler: Any, op: Any) -> Any:
        built = build(compiler, op)
        return (*built, self._count) if isinstance(built, tuple) else built

    def _count(self, values: Any, team: Any) -> None:
        self.total += team.active


_others = itertools.count(20_000_000)  # options never used before, so that the kernel is compiled anew


def operations_of(run: Callable[[], None]) -> int:
    """Ops times threads of one launch."""
    with Counter() as counter, sk.sanitize(max_iterations=next(_others)):
        run()
    return counter.total


def peak_mib(run: Callable[[], None]) -> float:
    with checked():
        run()
        tracemalloc.start()
        run()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak / MIB


def row(example: Example, least_seconds: float) -> tuple[str, ...]:
    cells = [example.name]
    for way in (plain, checked):
        size, seconds = grown(example, way, least_seconds)
        operations = operations_of(example.launch(size))
        in_one_second = int(size * (1 / seconds) ** (1 / example.dimension))
        cells += [f"{operations / seconds / 1e6:.1f}", example.unit.format(in_one_second)]
    return (*cells, f"{peak_mib(example.launch(size)):.1f}", example.unit.format(size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", nargs="*", help="those to measure; all if left out")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a launch must take to be measured")
    options = parser.parse_args()
    form = "{:16} {:>12} {:>24} {:>14} {:>24} {:>8} {:>24}"
    print(form.format("", "plain Mop/s", "one second", "checked Mop/s", "one second", "MiB", "at"))
    for example in EXAMPLES:
        if options.examples and example.name not in options.examples:
            continue
        print(form.format(*row(example, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
