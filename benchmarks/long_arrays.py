"""Sums and running sums of one long array of float32: the shelf's, torch's and CUB's by way of CuPy, beside a copy.

    python benchmarks/long_arrays.py [--log2 28] [--rounds 25] [--json FILE]

Needs a GPU and torch; CuPy where it is installed. All alternate in one process; before each launch the L2 cache is overwritten,
and CUDA events stand around it. TB/s: of what must be read and written, by the median time. of a copy: the bandwidth against
that of torch's copy in the same round, median and quartiles. Results are compared with sums in float64 first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from blocks import Launch, measure
from machine import describe
from systems import is_installed

import stagekit as sk
from stagekit import kernels

ITEM_BYTES = 4
ARRAYS_MOVED = {"copy": 2, "sum": 1, "cumsum": 2}
BOUND = 1e-4  # of what sums of random numbers of mean 0.5 may be off by, times their size


def launches(x: Any, out: Any) -> dict[str, Launch]:
    """Return by "what, system" what launches it, and returns its result."""
    import torch

    found: dict[str, Launch] = {
        "copy, torch": lambda: out.copy_(x),
        "sum, stagekit": lambda: kernels.sum(x),
        "sum, torch": lambda: torch.sum(x),
        "cumsum, stagekit": lambda: kernels.cumsum(x, out=out),
        "cumsum, torch": lambda: torch.cumsum(x, 0, out=out),
    }
    if is_installed("with_cupy"):
        import cupy

        given, result = cupy.asarray(x), cupy.asarray(out)

        def on_the_same_stream(function: Callable[[], Any]) -> Launch:
            stream = cupy.cuda.Stream.from_external(torch.cuda.current_stream())

            def launch() -> Any:
                with stream:
                    return torch.from_dlpack(function())

            return launch

        found["sum, CuPy"] = on_the_same_stream(lambda: cupy.sum(given, keepdims=True))
        found["cumsum, CuPy"] = on_the_same_stream(lambda: cupy.cumsum(given, out=result))
    return found


def require_near(x: Any, made: Mapping[str, Launch]) -> None:
    """Exit where a result is further from that in float64 than roundings lead."""
    import torch

    exact = torch.cumsum(x, 0, dtype=torch.float64)
    for name, launch in made.items():
        what, result = name.partition(",")[0], launch().double().reshape(-1)
        expected = {"copy": x.double(), "sum": exact[-1:], "cumsum": exact}[what]
        error = ((result - expected).abs() / (1 + expected.abs())).max().item()
        if not error <= BOUND:
            sys.exit(f"{name} is off by {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--log2", type=int, default=28, help="of the number of elements")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (sk.cuda.is_available() and is_installed("with_torch")):
        sys.exit("it needs a GPU and torch")
    import torch

    machine, count = describe("cuda"), 1 << options.log2
    x = torch.rand(count, device="cuda")
    made = launches(x, torch.empty_like(x))
    require_near(x, made)
    times = {name: np.array(each) for name, each in measure(made, options.rounds).items()}
    sys.stdout.write(f"{machine}, 2^{options.log2} float32\n\n{'':20}{'TB/s':>8}{'of a copy':>12}\n")
    rows = {}
    for name, each in times.items():
        moved = ARRAYS_MOVED[name.partition(",")[0]] * ITEM_BYTES * count
        ratios = times["copy, torch"] / (2 * ITEM_BYTES * count) * moved / each
        low, middle, high = np.percentile(ratios, (25, 50, 75))
        rows[name] = {"tb_s": moved / float(np.median(each)) / 1e12, "of_a_copy": [low, middle, high]}
        sys.stdout.write(f"{name:20}{rows[name]['tb_s']:8.2f}{middle:12.3f}  {low:.3f} to {high:.3f}\n")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "count": count, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
