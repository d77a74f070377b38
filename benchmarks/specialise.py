"""How long a specialisation takes, beside the other systems that are installed; and growth with the size of the body.

    python benchmarks/specialise.py [--target cpu|cuda] [--rounds 9] [--json FILE] [--chart FILE.svg]
    python benchmarks/specialise.py --tiles           # of stagekit alone, what a tile operation takes to be traced

Of stagekit alone, in one process: tracing, PTX and host code, medians over fresh specialisations. Nothing is cached: every
round has another constexpr value, or, of the shelf's kernels of rows, another function. Of each system, in processes of their
own, until a kernel has run once: the first kernel of a process without and with what is on disk (the driver's own cache of
machine code too), and the next ones. The import is apart, and so is what makes a GPU's context.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import systems
from chart import Bar, draw
from machine import describe

ROW_KERNELS = ("softmax", "rmsnorm", "layernorm", "cross-entropy", "cumsum")
KERNELS = ("add", "softmax", "matmul", *(f"rows: {name}" for name in ROW_KERNELS), "attention")
CACHE_FOLDERS = ("STAGEKIT_CACHE", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR", "CUDA_CACHE_PATH")
PROCESSES = 3  # with a warm disk
PEER_ROUNDS = 3

# Of stagekit alone --------------------------------------------------------------------------------------------------


def steps(kernel: Any, block: int | None = None) -> list[float]:
    """Milliseconds for tracing, for PTX after it, and for host code after a trace of its own, if it has one."""
    marks = [time.perf_counter()]
    for step in (kernel.trace, lambda: kernel.compile("cuda", capability=90)):
        step()
        marks.append(time.perf_counter())
    kernel.compile("cpu", block=block)
    compiled = re.findall(r"^compiled for cpu: .* \(([\d.]+) ms\)$", kernel.explain(), re.MULTILINE)
    return [*(1e3 * (b - a) for a, b in itertools.pairwise(marks)), float(compiled[-1])]


def step_rows(rounds: int) -> Iterator[tuple[str, list[float]]]:
    from systems.ours import SPECIALISATIONS, straight

    for name, make in SPECIALISATIONS.items():
        steps(make(-1))
        measured = [steps(make(r)) for r in range(rounds)]
        yield name, [statistics.median(column) for column in zip(*measured)]
    for size in (100, 1_000, 10_000):
        yield f"straight line, {size:,} ops", steps(straight.specialize(OPS=size), 256)


def tile_rows(rounds: int) -> Iterator[tuple[str, list[float], int]]:
    """Yield tile operations with the microseconds of tracing one of 1,024, and of 4,096 elements, and its ops of the IR."""
    from systems.ours import TILE_OPERATIONS, nothing

    empty = [_traced(nothing, extent, rounds)[0] for extent in EXTENTS]
    for name, operate in TILE_OPERATIONS.items():
        found = [_traced(operate, extent, rounds) for extent in EXTENTS]
        yield name, [us - base for (us, _), base in zip(found, empty)], found[0][1]


EXTENTS = (1_024, 4_096)
_salts = itertools.count()


def _traced(operate: Any, extent: int, rounds: int) -> tuple[float, int]:
    """Return the microseconds, least of all rounds, and the ops that one more of a tile operation in a kernel takes."""
    from systems.ours import tile_operations

    from stagekit.ir import walk

    def measure(count: int) -> tuple[float, int]:
        kernel = tile_operations.specialize(OPERATE=operate, COUNT=count, EXTENT=extent, SALT=next(_salts))
        start = time.thread_time()
        traced = kernel.trace()
        return 1e6 * (time.thread_time() - start), len(walk(traced.function.body))

    measure(1)
    few, many = ([measure(count) for _ in range(rounds)] for count in (2, 6))
    return (min(many)[0] - min(few)[0]) / 4, (many[0][1] - few[0][1]) // 4


def tile_table(rows: Iterable[tuple[str, list[float], int]]) -> str:
    lines = [f"{'tracing a tile operation, us':32}{'1,024':>8}{'4,096':>8}{'ops':>8}"]
    lines += [f"{name:32}{few:8.0f}{many:8.0f}{count:8}" for name, (few, many), count in rows]
    return "\n".join(lines)


def import_ms() -> float:
    """Milliseconds of `import stagekit` beyond numpy, in fresh processes."""
    code = "import numpy, time; t = time.perf_counter(); import stagekit; print(1e3 * (time.perf_counter() - t))"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(7)]
    return statistics.median(float(r.stdout) for r in runs)


def step_table(rows: Mapping[str, list[float]]) -> str:
    lines = [f"{'stagekit':28}{'trace':>9}{'PTX':>9}{'to PTX':>9}{'host code':>11}"]
    for name, (trace, ptx, host) in rows.items():
        lines.append(f"{name:28}{trace:9.2f}{ptx:9.2f}{trace + ptx:9.2f}{host:11.2f}")
    return "\n".join(lines)


# Beside others ------------------------------------------------------------------------------------------------------


def child(system: str, target: str, rounds: int) -> dict[str, Any]:
    """In a process of its own: milliseconds until kernels have run."""
    start = time.perf_counter()
    module = systems.load(system)
    imported = time.perf_counter()
    makers = module.specialisations(target)
    found: dict[str, Any] = {"import": 1e3 * (imported - start), "next": {}}
    for name, make in makers.items():
        if "first" not in found:
            found["first"] = _timed(make, 1000)
        if rounds:
            found["next"][name] = statistics.median(_timed(make, salt) for salt in range(1, rounds + 1))
    return found


def _timed(make: Any, salt: int) -> float:
    start = time.perf_counter()
    make(salt)
    return 1e3 * (time.perf_counter() - start)


def of_system(system: str, target: str) -> dict[str, float]:
    """Medians by what was done; the disk is cold in the first process only."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **{name: os.path.join(folder, name) for name in CACHE_FOLDERS}}
        cold = _run_child(system, target, 0, environment)
        warm = [_run_child(system, target, 0, environment) for _ in range(PROCESSES)]
        uncached = {"STAGEKIT_CACHE": "0", "CUDA_CACHE_DISABLE": "1"}  # the driver would know the PTX of equal kernels
        following = _run_child(system, target, PEER_ROUNDS, environment | uncached)
    return {
        "import": statistics.median(run["import"] for run in warm),
        "first": cold["first"],
        "first, from disk": statistics.median(run["first"] for run in warm),
        **{f"next: {name}": following["next"][name] for name in KERNELS if name in following["next"]},
    }


def _run_child(system: str, target: str, rounds: int, environment: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", system, "--target", target, "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def beside_others(target: str) -> dict[str, dict[str, float]]:
    """By system. Those that make no kernels at run time are left out."""
    found = {}
    for system in systems.TARGETS[target]:
        if not systems.is_installed(system) or system in ("with_torch", "with_numpy"):
            continue
        try:
            found[systems.NAMES[system]] = of_system(system, target)
        except RuntimeError as error:
            if system == "stagekit":
                raise
            sys.stderr.write(f"{systems.NAMES[system]}: {error}\n")
    return found


def others_table(found: Mapping[str, Mapping[str, float]]) -> str:
    names = list(dict.fromkeys(what for figures in found.values() for what in figures))
    lines = [f"{'until it has run once':28}" + "".join(f"{system:>16}" for system in found)]
    for what in names:
        cells = [f"{figures[what]:16.2f}" if what in figures else f"{'-':>16}" for figures in found.values()]
        if what in found.get("Triton", {}):
            cells.append(f"   {found['stagekit'][what] / found['Triton'][what]:.2f} of Triton's")
        lines.append(f"{what:28}{''.join(cells)}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--target", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        sys.stdout.write(json.dumps(child(options.child, options.target, options.rounds)) + "\n")
        return
    os.environ["STAGEKIT_CACHE"] = "0"
    import stagekit as sk

    if options.tiles:
        sys.stdout.write(f"{describe('cpu')}; least of {options.rounds}\n\n{tile_table(tile_rows(options.rounds))}\n")
        return
    target = options.target or ("cuda" if sk.cuda.is_available() else "cpu")
    imported, rows, others = import_ms(), dict(step_rows(options.rounds)), beside_others(target)
    sys.stdout.write(f"{describe(target)}; ms, medians\n\nimport stagekit beyond NumPy: {imported:.0f}\n")
    sys.stdout.write(f"\n{step_table(rows)}\n\n{others_table(others)}\n")
    if options.json:
        parts = {"machine": describe(target), "import": imported, "steps": rows, "systems": others}
        options.json.write_text(json.dumps(parts, indent=2, ensure_ascii=False) + "\n")
    if options.chart:
        bars = [
            Bar(f"{system}, {what}", figures[what], system == "stagekit")
            for what in ("first", "first, from disk", *(f"next: {name}" for name in KERNELS))
            for system, figures in others.items()
            if what in figures
        ]
        draw(options.chart, f"From a specialisation to a kernel that has run, {target}", "ms", bars)


if __name__ == "__main__":
    main()
