"""What a specialisation keeps: resident memory of the process, and of the GPU.

    python benchmarks/memory.py [--target cpu|cuda] [--many 10000] [--kept 500] [--json FILE]

made and dropped: growth per specialisation that was compiled and let go. kept: growth per specialisation that is held, compiled
only (cuda without a GPU: its PTX) and launched. Resident memory needs /proc. Nothing is read from disk.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["STAGEKIT_CACHE"] = "0"

import numpy as np
from machine import describe

import stagekit as sk

_WARM = 300


def new_kernel() -> Any:
    @sk.jit
    def fill(out: sk.Tensor((None,), sk.float32), V: sk.constexpr):
        sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=32))
        out[sk.cuda.thread_idx("x")] = V

    return fill


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def gpu_bytes() -> int:
    """In use on the current GPU, by anybody."""
    from stagekit.runtime import driver

    sk.cuda.synchronize()
    with driver.on_device(0):
        free, total = driver.call("cuMemGetInfo")
    return int(total - free)


def growth(make: Callable[[range], Any], count: int, used: Callable[[], int]) -> float:
    """Bytes per specialisation."""
    gc.collect()
    before = used()
    kept = make(range(_WARM, _WARM + count))
    gc.collect()
    found = (used() - before) / count
    del kept
    return found


def made_and_dropped(target: str, count: int, arguments: tuple[Any, ...] | None) -> tuple[float, float]:
    """Growth of the process and of the GPU; of the second 0 without launches."""
    kernel = new_kernel()

    def make(values: range) -> None:
        for value in values:
            use(kernel.specialize(V=value), target, arguments)
            kernel._specializations.clear()

    make(range(min(_WARM, count)))
    before_gpu = gpu_bytes() if arguments is not None and target == "cuda" else 0
    resident = growth(make, count, resident_bytes)
    return resident, (gpu_bytes() - before_gpu) / count if before_gpu else 0.0


def use(kernel: Any, target: str, arguments: tuple[Any, ...] | None) -> Any:
    """Compile it, and launch it often enough to have a native launcher."""
    kernel.compile(target)
    for _ in range(3 if arguments is not None else 0):
        kernel(*arguments)
    return kernel


def kept(target: str, count: int, arguments: tuple[Any, ...] | None, used: Callable[[], int]) -> float:
    kernel = new_kernel()
    for value in range(3):
        use(kernel.specialize(V=-value - 1), target, arguments)
    return growth(lambda values: [use(kernel.specialize(V=v), target, arguments) for v in values], count, used)


def measure(target: str, many: int, held: int) -> dict[str, float]:
    """Bytes by row."""
    has_device = target == "cpu" or sk.cuda.is_available()
    out: Any = np.zeros(32, np.float32)
    arguments = ((out if target == "cpu" else sk.cuda.to_device(out)),) if has_device else None
    resident, on_gpu = made_and_dropped(target, many, arguments)
    found = {
        f"{many:,} made and dropped: process": resident,
        f"{held:,} kept, compiled: process": kept(target, held, None, resident_bytes),
    }
    if arguments is not None:
        found[f"{held:,} kept, launched: process"] = kept(target, held, arguments, resident_bytes)
    if arguments is not None and target == "cuda":
        found[f"{many:,} made and dropped: GPU"] = on_gpu
        found[f"{held:,} kept, launched: GPU"] = kept(target, held, arguments, gpu_bytes)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda" if sk.cuda.is_available() else "cpu")
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--kept", type=int, default=500)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.target, options.many, options.kept)
    where = "cuda, without a GPU" if options.target == "cuda" and not sk.cuda.is_available() else options.target
    machine = describe("cpu" if where != "cuda" else "cuda")
    rows = "\n".join(f"{name:40}{value / 1e3:10.2f} KB" for name, value in found.items())
    sys.stdout.write(f"{machine}; {where}\n\n{'per specialisation':40}\n{rows}\n")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "target": where, "bytes": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
