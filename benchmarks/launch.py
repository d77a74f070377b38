"""What a launch costs on the host, beside the same call from a C loop and the other systems that are installed.

    python benchmarks/launch.py [--target cpu|cuda] [--rounds 40] [--json FILE]

All rows of a target run in turn in one process; each figure is the median over the rounds of the mean of a few hundred
calls. On a GPU launches are asynchronous: the device is synchronised before and after each round, outside of the clock.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stagekit as sk

COUNTS = (0, 2, 4, 16)  # of array arguments
SIZE = 32  # elements: one small block, so that a launch is what is measured
CALLS = {"cpu": 2000, "cuda": 300}  # per round; a GPU's queue holds about a thousand

n = sk.dynamic("n")
ARRAY = sk.Tensor((n,), sk.float32)


@sk.jit
def take0():
    sk.cuda.thread_idx("x")


@sk.jit
def take2(a0: ARRAY, a1: ARRAY):
    i = sk.cuda.thread_idx("x")
    if i < n:
        a1[i] = a0[i]


@sk.jit
def take4(a0: ARRAY, a1: ARRAY, a2: ARRAY, a3: ARRAY):
    i = sk.cuda.thread_idx("x")
    if i < n:
        a3[i] = a0[i] + a1[i] + a2[i]


@sk.jit
def take16(a0: ARRAY, a1: ARRAY, a2: ARRAY, a3: ARRAY, a4: ARRAY, a5: ARRAY, a6: ARRAY, a7: ARRAY,
           a8: ARRAY, a9: ARRAY, a10: ARRAY, a11: ARRAY, a12: ARRAY, a13: ARRAY, a14: ARRAY, a15: ARRAY):  # fmt: skip
    i = sk.cuda.thread_idx("x")
    if i < n:
        first = a0[i] + a1[i] + a2[i] + a3[i] + a4[i] + a5[i] + a6[i] + a7[i]
        a15[i] = first + a8[i] + a9[i] + a10[i] + a11[i] + a12[i] + a13[i] + a14[i]


@sk.function
def own_grid(a0: ARRAY, a1: ARRAY):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=sk.ceildiv(n, SIZE), block=SIZE))
    i = sk.cuda.block_idx("x") * SIZE + sk.cuda.thread_idx("x")
    if i < n:
        a1[i] = a0[i]


@sk.jit
def take2_constexpr(a0: ARRAY, a1: ARRAY, LIMIT: sk.constexpr):
    i = sk.cuda.thread_idx("x")
    if i < LIMIT:
        a1[i] = a0[i]


KERNELS = {0: take0, 2: take2, 4: take4, 16: take16}


def kernel_of(count: int, target: str) -> Any:
    """For so many arrays; one without arrays must be told where to run."""
    kernel = KERNELS[count].specialize()
    return kernel if count else sk.compile(kernel, target=target)


@dataclass(frozen=True)
class Row:
    """A statement to time, with its names. base: the row it is compared with."""

    name: str
    statement: str
    names: Mapping[str, Any]
    base: str


# C ------------------------------------------------------------------------------------------------------------------

C_SOURCE = r"""
#include <stdint.h>
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
void gpu_loop(long calls, launch_t launch, void *function, unsigned threads, void *stream, void **parameters) {
  for (long i = 0; i < calls; i++) launch(function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, 0);
}
typedef int (*entry_t)(const void *, const void *, int64_t, int64_t, void *);
void cpu_loop(long calls, entry_t entry, const void *slots, const void *grid) {
  for (long i = 0; i < calls; i++) entry(slots, grid, 0, 1, 0);
}
"""


def c_loops() -> Any:
    """The loops in C, or None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp())
    (folder / "loops.c").write_text(C_SOURCE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "loops.so", folder / "loops.c"], check=True)
    return ctypes.CDLL(str(folder / "loops.so"))


def machine_kernel(kernel: Any) -> Any:
    """What launches in the end; the benchmark looks inside to call the same code from C."""
    (variant,) = kernel._variants.values()
    (found,) = variant._kernels.values()
    return found


class CLoop:
    """Calls from C: `loop(calls)`."""

    def __init__(self, function: Any, *args: int) -> None:
        self._function = function
        self._args = [ctypes.c_void_p(a) for a in args]

    def __call__(self, calls: int) -> None:
        self._function(ctypes.c_long(calls), *self._args)


# Rows ---------------------------------------------------------------------------------------------------------------


def stagekit_rows(target: str, arrays: list[Any], base: Callable[[int], str]) -> list[Row]:
    """Each way to call, with two arrays; and the shortest, with each number of arrays."""
    rows = []
    for count in COUNTS:
        kernel, given = kernel_of(count, target), ", ".join(f"x{i}" for i in range(count))
        names = {"k": kernel, "launch": None, **{f"x{i}": a for i, a in enumerate(arrays)}}
        for _ in range(3):
            kernel[1, SIZE](*arrays[:count])
        names["launch"] = kernel[1, SIZE]
        names["prepared"] = kernel.prepare[1, SIZE](*arrays[:count])
        rows.append(Row(f"stagekit, {count} arrays", f"launch({given})", names, base(count)))
        rows.append(Row(f"stagekit, {count} arrays, prepared", "prepared()", names, base(count)))
        if count == 2:
            rows.append(Row("stagekit, k[grid, block](x, y)", f"k[1, {SIZE}](x0, x1)", names, base(2)))
            rows.append(Row("stagekit, keywords", "launch(a1=x1, a0=x0)", names, base(2)))
    for _ in range(3):
        own_grid(*arrays[:2])
        take2_constexpr[1, SIZE](*arrays[:2], SIZE)
    names = {"k": own_grid, "j": take2_constexpr, "x0": arrays[0], "x1": arrays[1]}
    rows.append(Row("stagekit, its own grid", "k(x0, x1)", names, base(2)))
    rows.append(Row("stagekit, constexpr at the call", f"j[1, {SIZE}](x0, x1, {SIZE})", names, base(2)))
    return rows


def cpu_rows() -> list[Row]:
    arrays = [np.ones(SIZE, np.float32) for _ in range(max(COUNTS))]
    rows, loops = stagekit_rows("cpu", arrays, lambda count: "the machine code from a C loop, 2 arrays"), c_loops()
    if loops is not None:
        kernel = machine_kernel(take2.specialize())
        slots = (ctypes.c_uint64 * 3)(arrays[0].ctypes.data, SIZE, arrays[1].ctypes.data)
        grid = (ctypes.c_int64 * 3)(1, 1, 1)
        loop = CLoop(loops.cpu_loop, kernel._address, ctypes.addressof(slots), ctypes.addressof(grid))
        rows.insert(0, Row("the machine code from a C loop, 2 arrays", "", {"loop": loop, "keep": (slots, grid)}, ""))
    names = {"np": np, "x": arrays[0], "y": arrays[1], "z": arrays[2]}
    rows.append(Row("numpy.add(x, y, out=z)", "np.add(x, y, z)", names, ""))
    return rows


def cuda_rows() -> list[Row]:
    arrays = device_arrays()
    rows = stagekit_rows("cuda", arrays, lambda count: f"the driver's call from a C loop, {count} arrays")
    return [*driver_rows(arrays), *rows, *peer_rows(arrays)]


def device_arrays() -> list[Any]:
    if importlib.util.find_spec("torch") is None:
        return [sk.cuda.to_device(np.ones(SIZE, np.float32)) for _ in range(max(COUNTS))]
    import torch

    return [torch.ones(SIZE, device="cuda") for _ in range(max(COUNTS))]


def driver_rows(arrays: list[Any]) -> list[Row]:
    from stagekit.runtime import driver

    loops = c_loops()
    if loops is None:
        return []
    rows, launch = [], driver.function_address("cuLaunchKernel")
    for count in COUNTS:
        given = kernel_of(count, "cuda")
        given[1, SIZE](*arrays[:count])
        kernel = machine_kernel(given)
        function = next(iter(kernel._modules.values())).function
        wanted = kernel.artifact.signature.slots
        slots = (ctypes.c_uint64 * 32)(*(_address(arrays[s.argument]) if s.kind == "address" else SIZE for s in wanted))
        pointers = (ctypes.c_void_p * 32)(*(ctypes.addressof(slots) + 8 * i for i in range(32)))
        loop = CLoop(loops.gpu_loop, launch, int(function), SIZE, 0, ctypes.addressof(pointers))
        rows.append(
            Row(f"the driver's call from a C loop, {count} arrays", "", {"loop": loop, "keep": (slots, pointers)}, "")
        )
    return rows


def _address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.__cuda_array_interface__["data"][0])


PEER_SOURCE = """
import triton
import triton.language as tl

@triton.jit
def take2(a0, a1, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(a1 + i, tl.load(a0 + i, mask=i < n), mask=i < n)

@triton.jit
def take4(a0, a1, a2, a3, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < n
    tl.store(a3 + i, tl.load(a0 + i, mask=m) + tl.load(a1 + i, mask=m) + tl.load(a2 + i, mask=m), mask=m)
"""


CUPY_SOURCE = """
extern "C" __global__ void take2(const float *a, float *b, long long n) {
    int i = threadIdx.x;
    if (i < n) b[i] = a[i];
}
"""


def peer_rows(arrays: list[Any]) -> list[Row]:
    """Those that are installed."""
    base, rows = "the driver's call from a C loop, 2 arrays", []
    if importlib.util.find_spec("torch") is not None:
        import torch

        names = {"torch": torch, "x0": arrays[0], "x1": arrays[1]}
        rows.append(Row("torch.add(x, 1, out=y)", "torch.add(x0, 1, out=x1)", names, base))
        if importlib.util.find_spec("triton") is not None:
            rows += triton_rows(arrays)
    if importlib.util.find_spec("cupy") is not None:
        import cupy

        kernel, given = cupy.RawKernel(CUPY_SOURCE, "take2"), [cupy.ones(SIZE, cupy.float32) for _ in range(2)]
        names = {"k": kernel, "x0": given[0], "x1": given[1]}
        rows.append(Row("CuPy RawKernel, 2 arrays", f"k((1,), ({SIZE},), (x0, x1, {SIZE}))", names, base))
        for _ in range(3):
            take2.specialize()[1, SIZE](*given)
        names = {"launch": take2.specialize()[1, SIZE], "x0": given[0], "x1": given[1]}
        rows.append(Row("stagekit, 2 CuPy arrays", "launch(x0, x1)", names, base))
    return rows


def triton_rows(arrays: list[Any]) -> list[Row]:
    folder = Path(tempfile.mkdtemp())  # Triton reads source from files
    (folder / "triton_kernels.py").write_text(PEER_SOURCE)
    sys.path.insert(0, str(folder))
    import triton_kernels as kernels

    rows = []
    for count, kernel in ((2, kernels.take2), (4, kernels.take4)):
        given = ", ".join(f"x{i}" for i in range(count))
        names = {"k": kernel, **{f"x{i}": arrays[i] for i in range(count)}}
        statement = f"k[(1,)]({given}, {SIZE}, BLOCK={SIZE})"
        rows.append(
            Row(f"Triton, {count} arrays", statement, names, f"the driver's call from a C loop, {count} arrays")
        )
    return rows


# Measuring ----------------------------------------------------------------------------------------------------------


def measure(rows: list[Row], calls: int, rounds: int, synchronise: Callable[[], None]) -> dict[str, float]:
    """Microseconds per call by row."""
    timers = {row.name: _timer(row) for row in rows}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for timer in timers.values():
        timer(10)
    for _ in range(rounds):
        for name, timer in timers.items():
            synchronise()
            samples[name].append(timer(calls) / calls * 1e6)
    synchronise()
    return {name: statistics.median(found) for name, found in samples.items()}


def _timer(row: Row) -> Callable[[int], float]:
    if "loop" in row.names:
        loop = row.names["loop"]
        return lambda calls: timeit.timeit(lambda: loop(calls), number=1)
    return timeit.Timer(row.statement, globals=dict(row.names)).timeit


def table(rows: list[Row], figures: dict[str, float]) -> str:
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}}  µs per launch   × driver's or C loop"]
    for row in rows:
        ratio = f"{figures[row.name] / figures[row.base]:18.2f}" if row.base in figures else ""
        lines.append(f"{row.name:{width}}  {figures[row.name]:13.3f}{ratio}")
    return "\n".join(lines)


def machine(target: str) -> str:
    """Processor or GPU, and versions."""
    packages = ["numpy", "llvmlite", "torch", "triton", "cupy"]
    versions = [f"{p} {sys.modules[p].__version__}" for p in packages if p in sys.modules]
    if target == "cuda":
        from stagekit.runtime import driver

        return ", ".join([driver.device_name(0), f"Python {platform.python_version()}", *versions])
    return ", ".join([f"{platform.machine()}", f"Python {platform.python_version()}", *versions])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda" if sk.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    is_cuda = options.target == "cuda"
    rows = cuda_rows() if is_cuda else cpu_rows()
    figures = measure(rows, CALLS[options.target], options.rounds, sk.cuda.synchronize if is_cuda else lambda: None)
    print(machine(options.target), table(rows, figures), sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(options.target), "us_per_launch": figures}, indent=2))


if __name__ == "__main__":
    main()
