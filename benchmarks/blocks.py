"""Row kernels of the shelf beside Triton's and torch's: add, softmax, rmsnorm, layernorm, cross-entropy with its gradient.

    python benchmarks/blocks.py [--quick] [--only softmax,rmsnorm] [--rounds 25] [--compilers 12] [--json FILE]

Needs a GPU, torch and Triton. All three alternate in one process; before each launch the L2 cache is overwritten, and CUDA events
stand around it. Triton runs with the best of 1 to 16 warps, found for each row before, ours without choices. TB/s: of what must
be read and written, by the median time. ratio: Triton's time by ours in the same round, median and quartiles over all rounds;
above 1 ours is faster. mean: the geometric mean of the ratios of a kernel, when it is measured; its interval is the 95 % of a
bootstrap over rounds. Results are compared with torch's first. What it prints is a table in Markdown. compilers: how many
processes first compile all of Triton's kernels, into its cache, which takes most of the time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe
from systems import is_installed

import stagekit as sk
from stagekit.kernels import losses, normalizing, pointwise
from stagekit.kernels.host import dtype_of, tile_for
from stagekit.tuning.clocks import clock_for, time_in_turns

SHAPES = ((32_768, 1024), (16_384, 4096), (8192, 8192), (4096, 32_768), (8191, 8190))
QUICK_SHAPES = SHAPES[::2]
WARPS = (1, 2, 4, 8, 16)
TUNING_ROUNDS = 5
ARRAYS_MOVED = {"add": 3, "softmax": 2, "rmsnorm": 2, "layernorm": 2, "cross-entropy": 2}

Launch = Callable[[], Any]
Case = tuple[str, tuple[int, int], str]
"""Kernel, rows and columns, and dtype."""
Times = dict[str, list[float]]
"""By system, the seconds of each round."""


@dataclass
class Data:
    """The arrays of one row of the table: torch tensors on the GPU."""

    x: Any
    y: Any
    out: Any
    weight: Any
    bias: Any
    targets: Any
    losses: Any
    eps: float = 1e-5


def make_data(rows: int, columns: int, dtype: str) -> Data:
    import torch

    options = {"device": "cuda", "dtype": getattr(torch, dtype)}
    x, y = torch.randn(rows, columns, **options), torch.randn(rows, columns, **options)
    weight, bias = torch.randn(columns, **options), torch.randn(columns, **options)
    targets = torch.randint(columns, (rows,), device="cuda")
    return Data(x, y, torch.empty_like(x), weight, bias, targets, torch.empty(rows, device="cuda"))


def added(x: Any, y: Any) -> Any:
    return x + y


def our_launch(kernel: str, data: Data) -> Launch:
    """Return a prepared launch of a kernel of the shelf."""
    rows, columns = data.x.shape
    dtype, tile = dtype_of(data.x), tile_for(columns)
    if kernel == "add":
        count, piece = data.x.numel(), pointwise.PIECE
        made = pointwise.elementwise_kernel(added, ((dtype, 1),) * 2, (dtype, 1), False, piece)
        flat = [each.reshape(count) for each in (data.out, data.x, data.y)]
        return made.prepare[sk.cdiv(count, piece)](*flat)
    if kernel == "softmax":
        return normalizing.softmax_kernel(dtype, *tile).prepare[rows](data.x, data.out)
    if kernel == "rmsnorm":
        made = normalizing.rmsnorm_kernel(dtype, dtype, *tile)
        return made.prepare[rows](data.x, None, data.weight, data.out, data.eps)
    if kernel == "layernorm":
        made = normalizing.layernorm_kernel(dtype, dtype, *tile)
        return made.prepare[rows](data.x, None, data.weight, data.bias, data.out, data.eps)
    made = losses.cross_entropy_kernel(dtype, dtype_of(data.targets), *tile)
    return made.prepare[rows](data.x, data.targets, data.losses, data.out, 1.0, -100)


def torch_launch(kernel: str, data: Data) -> Launch:
    """Return what computes the same by torch; it returns the result."""
    import torch
    import torch.nn.functional as functional

    columns = (data.x.shape[1],)
    logits = data.x.detach().requires_grad_()

    def cross_entropy() -> Any:
        loss = functional.cross_entropy(logits, data.targets, reduction="sum")
        return torch.autograd.grad(loss, logits)[0]

    return {
        "add": lambda: torch.add(data.x, data.y, out=data.out),
        "softmax": lambda: torch.softmax(data.x, -1, dtype=data.x.dtype),
        "rmsnorm": lambda: functional.rms_norm(data.x, columns, data.weight, data.eps),
        "layernorm": lambda: functional.layer_norm(data.x, columns, data.weight, data.bias, data.eps),
        "cross-entropy": cross_entropy,
    }[kernel]


def require_equal(kernel: str, data: Data, launches: Mapping[str, Launch]) -> None:
    """Exit where a system's result differs from torch's by more than roundings."""
    import torch

    expected = launches["torch"]().clone()
    bound = 2.0**-6 if expected.dtype is torch.bfloat16 else 1e-4
    for name, launch in launches.items():
        if name == "torch":
            continue
        data.out.zero_()
        launch()
        error = ((data.out - expected).abs() / (1 + expected.abs())).max().item()
        if not error <= bound:
            sys.exit(f"{kernel}, {tuple(data.x.shape)}, {expected.dtype}: {name} is off by {error}")


def measure(launches: Mapping[str, Launch], rounds: int) -> Times:
    """Time each launch once a round, in turns, from an L2 cache that holds nothing of it."""
    return time_in_turns(launches, clock_for("cuda"), rounds)


def best_warps(kernel: str, data: Data) -> int:
    """Return the number of warps with which Triton's kernel takes the least time."""
    from systems import rows_with_triton

    launches = {str(warps): rows_with_triton.launches(data, warps)[kernel] for warps in WARPS}
    for launch in launches.values():
        launch()
    times = measure(launches, TUNING_ROUNDS)
    return int(min(times, key=lambda name: float(np.median(times[name]))))


@dataclass
class Row:
    """What was measured of one kernel, shape and dtype."""

    kernel: str
    shape: tuple[int, int]
    dtype: str
    warps: int
    times: Times

    @property
    def ratios(self) -> Any:
        return np.array(self.times["Triton"]) / np.array(self.times["stagekit"])

    def terabytes(self, name: str) -> float:
        itemsize = 4 if self.dtype == "float32" else 2
        moved = ARRAYS_MOVED[self.kernel] * self.shape[0] * self.shape[1] * itemsize
        return moved / float(np.median(self.times[name])) / 1e12

    def text(self) -> str:
        low, middle, high = np.percentile(self.ratios, (25, 50, 75))
        speeds = " | ".join(f"{self.terabytes(name):.2f}" for name in ("stagekit", "Triton", "torch"))
        what = f"{self.kernel} {self.shape[0]}×{self.shape[1]} {self.dtype}"
        return f"| {what} | {speeds} | {self.warps} | {middle:.3f} | {low:.3f} to {high:.3f} |\n"


def run(kernel: str, shape: tuple[int, int], dtype: str, rounds: int) -> Row:
    from systems import rows_with_triton

    data = make_data(*shape, dtype)
    warps = best_warps(kernel, data)
    launches = {
        "stagekit": our_launch(kernel, data),
        "Triton": rows_with_triton.launches(data, warps)[kernel],
        "torch": torch_launch(kernel, data),
    }
    require_equal(kernel, data, launches)
    return Row(kernel, shape, dtype, warps, measure(launches, rounds))


def mean_with_interval(ratios: Sequence[Any], draws: int = 1000) -> tuple[float, float, float]:
    """Return the geometric mean of the medians of several rows of ratios, and the 95 % interval of a bootstrap over rounds."""
    random = np.random.default_rng(0)

    def mean(rows: Sequence[Any]) -> float:
        return float(np.exp(np.mean([np.log(np.median(row)) for row in rows])))

    found = [mean([random.choice(row, len(row)) for row in ratios]) for _ in range(draws)]
    low, high = np.percentile(found, (2.5, 97.5))
    return mean(ratios), float(low), float(high)


def compile_with_triton(case: Case) -> None:
    """Run one row with every number of warps, so that its kernels are in Triton's cache."""
    from systems import rows_with_triton

    kernel, shape, dtype = case
    data = make_data(*shape, dtype)
    for warps in WARPS:
        rows_with_triton.launches(data, warps)[kernel]()


def compile_in_processes(cases: Sequence[Case], processes: int) -> None:
    """Compile what `cases` need of Triton. A case with another row length of the same tile needs the same kernels."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        list(pool.map(compile_with_triton, sorted(cases, key=lambda case: -case[1][1])))


def mean_text(name: str, rows: Sequence[Row]) -> str:
    """Return the geometric mean of the ratios of some rows, its interval, and the least of them."""
    middle, low, high = mean_with_interval([row.ratios for row in rows])
    least = min(rows, key=lambda row: float(np.median(row.ratios)))
    where = f"least {np.median(least.ratios):.3f}, {least.kernel} {least.shape[0]}×{least.shape[1]} {least.dtype}"
    return f"| **{name}**, mean; {where} | | | | | **{middle:.3f}** | interval {low:.3f} to {high:.3f} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="three of the five shapes, fewer rounds")
    parser.add_argument("--only", help=f"kernels, comma separated, of {', '.join(ARRAYS_MOVED)}")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--compilers", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kernels = options.only.split(",") if options.only else list(ARRAYS_MOVED)
    if unknown := set(kernels) - set(ARRAYS_MOVED):
        parser.error(f"no kernel {', '.join(sorted(unknown))}; there are {', '.join(ARRAYS_MOVED)}")
    if not (sk.cuda.is_available() and is_installed("with_torch") and is_installed("with_triton")):
        sys.exit("it needs a GPU, torch and Triton")
    rounds = options.rounds or (15 if options.quick else 25)
    shapes = QUICK_SHAPES if options.quick else SHAPES
    cases = [(kernel, shape, dtype) for kernel in kernels for shape in shapes for dtype in ("float32", "bfloat16")]
    if options.compilers:
        compile_in_processes(cases, options.compilers)
    machine = describe("cuda")
    sys.stdout.write(f"{machine}\n\n| | stagekit | Triton | torch | warps | ratio | quartiles |\n{'|---' * 7}|\n")
    rows = list[Row]()
    for kernel, of_kernel in itertools.groupby(cases, key=lambda case: case[0]):
        for case in of_kernel:
            rows.append(run(*case, rounds))
            sys.stdout.write(rows[-1].text())
            sys.stdout.flush()
        sys.stdout.write(mean_text(kernel, [row for row in rows if row.kernel == kernel]))
        sys.stdout.flush()
    sys.stdout.write(mean_text("all", rows))
    if options.json:
        found = [{**vars(row), "ratio": float(np.median(row.ratios))} for row in rows]
        options.json.write_text(json.dumps({"machine": machine, "rows": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
