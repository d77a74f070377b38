"""Kernels of the shelf on the CPU beside torch's and NumPy's: rows, running sums, matrix products and attention.

    python benchmarks/blocks_cpu.py [--threads 1 2] [--only softmax,cumsum] [--rounds 15] [--json FILE]

Needs torch. Ours and torch's alternate in one process, with the same number of threads and the same memory; NumPy's follows, with
one, or in matrix products with as many as OPENBLAS_NUM_THREADS says. With one thread, times are the thread's own, else those of
the clock, of a call that follows one that is not counted. ms: medians. ratio: torch's time by ours in the same round, median and
quartiles; above 1 ours is faster. Results are compared with torch's first.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # NumPy's bfloat16
import numpy as np
import torch
import torch.nn.functional as functional
from machine import describe

from stagekit import kernels

SHAPES = ((2048, 1024), (512, 4096), (256, 8192), (256, 8190))
OWN_SHAPES = {
    "cumsum": ((1 << 24,),),  # of one axis
    "matmul": ((1024, 1024), (2048, 2048)),
    **dict.fromkeys(("attention", "causal"), ((16, 1024, 64), (16, 1024, 128))),  # heads, places, dimensions
}
BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 2.0**-6}
SUMS_BOUND = 10  # times as far off: small sums of thousands of products
PAUSE_SECONDS = 0.02  # torch's threads look for work for some milliseconds
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

Launch = Callable[[], Any]
Systems = dict[str, Launch]


def softmax(x: Any) -> Systems:
    out, taken, given = torch.empty_like(x), as_numpy(x), as_numpy(torch.empty_like(x))

    def by_numpy() -> None:
        e = np.exp(taken - taken.max(-1, keepdims=True))
        np.divide(e, e.sum(-1, keepdims=True), out=given)

    return {
        "stagekit": lambda: kernels.softmax(x, out=out),
        "torch": lambda: torch.softmax(x, -1),
        "NumPy": by_numpy,
    }


def layernorm(x: Any) -> Systems:
    weight, bias = torch.randn(2, x.shape[1]).to(x.dtype)
    out, taken, given = torch.empty_like(x), as_numpy(x), as_numpy(torch.empty_like(x))

    def by_numpy() -> None:
        distance = taken - taken.mean(-1, keepdims=True)
        spread = np.sqrt((distance * distance).mean(-1, keepdims=True) + taken.dtype.type(1e-5))
        given[:] = distance / spread * as_numpy(weight) + as_numpy(bias)

    return {
        "stagekit": lambda: kernels.layernorm(x, weight, bias, out=out),
        "torch": lambda: functional.layer_norm(x, x.shape[1:], weight, bias),
        "NumPy": by_numpy,
    }


def cross_entropy(x: Any) -> Systems:
    targets, gradient, logits = torch.randint(x.shape[1], x.shape[:1]), torch.empty_like(x), x.detach().requires_grad_()
    taken, rows = as_numpy(x), np.arange(x.shape[0])

    def ours() -> Any:
        kernels.cross_entropy(x, targets, gradient=gradient)
        return gradient

    def by_numpy() -> None:
        e = np.exp(taken - taken.max(-1, keepdims=True))
        e /= e.sum(-1, keepdims=True)
        e[rows, targets.numpy()] -= e.dtype.type(1)

    return {
        "stagekit": ours,
        "torch": lambda: torch.autograd.grad(functional.cross_entropy(logits, targets, reduction="sum"), logits)[0],
        "NumPy": by_numpy,
    }


def cumsum(x: Any) -> Systems:
    x = (x.reshape(-1) * 1e-3).contiguous()
    out, taken = torch.empty_like(x), as_numpy(x)
    return {
        "stagekit": lambda: kernels.cumsum(x, out=out),
        "torch": lambda: torch.cumsum(x, 0),
        "NumPy": lambda: np.cumsum(taken, out=as_numpy(out)),
    }


def matmul(x: Any) -> Systems:
    other, out = torch.randn(x.shape).to(x.dtype), torch.empty_like(x)
    systems = {"stagekit": lambda: kernels.matmul(x, other, out=out), "torch": lambda: torch.mm(x, other)}
    given = as_numpy(out)
    return (
        systems
        if x.dtype is torch.bfloat16
        else {**systems, "NumPy": lambda: np.matmul(as_numpy(x), as_numpy(other), out=given)}
    )


def attention(x: Any, *, causal: bool = False) -> Systems:
    q, k, v = torch.randn((3, 1, *x.shape)).to(x.dtype)
    out = torch.empty_like(q)
    return {
        "stagekit": lambda: kernels.attention(q, k, v, causal=causal, out=out),
        "torch": lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
    }


def as_numpy(x: Any) -> Any:
    """Return a view of a tensor's memory."""
    return x.view(torch.int16).numpy().view("bfloat16") if x.dtype is torch.bfloat16 else x.numpy()


CASES: dict[str, Callable[[Any], Systems]] = {
    "softmax": softmax,
    "layernorm": layernorm,
    "cross-entropy": cross_entropy,
    "cumsum": cumsum,
    "matmul": matmul,
    "attention": attention,
    "causal": functools.partial(attention, causal=True),
}


def require_equal(name: str, systems: Systems, dtype: Any) -> None:
    """Exit where our result differs from torch's by more than roundings."""
    got, expected = (systems[system]().float() for system in ("stagekit", "torch"))
    error = ((got - expected).abs() / (1 + expected.abs())).max().item()
    if not error <= BOUNDS[dtype] * (SUMS_BOUND if name == "matmul" else 1):
        sys.exit(f"{name}, {tuple(got.shape)}, {dtype}: off by {error}")


def measure(systems: Systems, rounds: int, threads: int) -> dict[str, list[float]]:
    """Time ours and torch's in turns, then NumPy's; return milliseconds. Before a turn the threads of the other fall asleep."""
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    times: dict[str, list[float]] = {name: [] for name in systems}
    turns = [*("stagekit", "torch") * rounds, *("NumPy",) * (rounds // 3 * ("NumPy" in systems))]
    for name in turns:
        if threads > 1:
            time.sleep(PAUSE_SECONDS)
            systems[name]()
        before = clock()
        systems[name]()
        times[name].append((clock() - before) / 1e6)
    return times


def run(name: str, shape: tuple[int, ...], dtype: Any, threads: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    systems = CASES[name](torch.randn(shape).to(dtype))
    if dtype is torch.bfloat16 and name == "cumsum":
        systems.pop("NumPy")  # which takes seconds
    for _ in range(2):  # the second launch makes the native launcher
        require_equal(name, systems, dtype)
    times = {name: each for name, each in measure(systems, rounds, threads).items() if each}
    ratios = np.array(times["torch"]) / np.array(times["stagekit"])
    row = {"kernel": name, "shape": shape, "dtype": str(dtype).rpartition(".")[2], "threads": threads}
    row["ms"] = {system: float(np.median(each)) for system, each in times.items()}
    row["ratio"] = [float(each) for each in np.percentile(ratios, (50, 25, 75))]
    return row


def text(row: dict[str, Any]) -> str:
    speeds = "".join(f"{row['ms'].get(system, float('nan')):10.3f}" for system in ("stagekit", "torch", "NumPy"))
    shape = "×".join(map(str, row["shape"]))
    middle, low, high = row["ratio"]
    return f"{row['kernel']:24}{shape:>12}  {row['dtype']:9}{row['threads']:8}{speeds}{middle:9.3f}  {low:.3f} to {high:.3f}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--only", help=f"comma separated, of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CASES)
    if unknown := set(names) - set(CASES):
        parser.error(f"no kernel {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    # memory that torch frees stays in the process: else each new result is cleared page by page
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
    machine = describe("cpu")
    heads = "".join(f"{head:>10}" for head in ("stagekit", "torch", "NumPy", "ms    ratio"))
    sys.stdout.write(f"{machine}\n\n{'threads':>55}{heads}\n")
    rows = []
    for threads in options.threads:
        os.environ["STAGEKIT_THREADS"] = str(threads)
        torch.set_num_threads(threads)
        for name in names:
            for shape in OWN_SHAPES.get(name, SHAPES):
                for dtype in BOUNDS:
                    rows.append(run(name, shape, dtype, threads, options.rounds))
                    sys.stdout.write(text(rows[-1]))
                    sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
