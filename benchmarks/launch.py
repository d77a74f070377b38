"""What a launch costs on the host, beside the same call from a C loop and the other systems that are installed.

    python benchmarks/launch.py [--target cpu|cuda] [--rounds 30] [--json FILE] [--chart FILE.svg]

Kernels of 0, 2, 4 and 16 arrays of each library. All rows run in turn in one process; a figure is the median over the rounds of
the mean of a few hundred calls. On a GPU launches are asynchronous: the device is synchronised before each round, outside
of the clock. The last columns say how many times as long the quickest way of another system takes, with as many arrays of
the same library.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import timeit
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import systems
from chart import Bar, draw
from floor import c_loops, loop_of
from machine import describe
from systems.arrays import Arrays, cpu_arrays, cuda_arrays

import stagekit as sk

COUNTS = (0, 2, 4, 16)  # of array arguments
CALLS = {"cpu": 2000, "cuda": 300}  # per round; a GPU's queue holds about a thousand
OURS, FLOOR = "stagekit", "from a C loop"


@dataclass(frozen=True)
class Row:
    """A statement to time, with its names; without a statement, `loop` in the names is called."""

    system: str
    library: str
    count: int
    way: str
    statement: str
    names: Mapping[str, Any]

    @property
    def title(self) -> str:
        kind = f"{self.count} {self.library} arrays" if self.count else "no arrays"
        return f"{self.system}, {kind}, {self.way}"


def rows_for(target: str) -> list[Row]:
    kinds = cuda_arrays() if target == "cuda" else cpu_arrays()
    installed = [systems.load(name) for name in systems.TARGETS[target] if systems.is_installed(name)]
    loops = c_loops()
    rows = [row for count in COUNTS for arrays in kinds for row in _rows(arrays, count, installed, loops)]
    return list({row.title: row for row in rows}.values())  # a kernel without arrays is of no library


def _rows(arrays: Arrays, count: int, installed: list[Any], loops: tuple[Any, Any]) -> Iterator[Row]:
    yield Row(FLOOR, arrays.library, count, "the least", "", {"loop": loop_of(arrays, count, loops)})
    for system in installed:
        try:
            found = [
                Row(system.NAME, arrays.library, count, way, statement, names)
                for way, statement, names in system.launches(arrays, count)
            ]
            for row in found:
                _timer(row)(2)
        except Exception as error:  # of another system: it has no row, and the others are measured all the same
            if system.NAME == OURS:
                raise
            sys.stderr.write(f"{system.NAME}, {count} {arrays.library} arrays: {error!r:.200}\n")
            continue
        yield from found


# Measuring ----------------------------------------------------------------------------------------------------------


def measure(rows: list[Row], calls: int, rounds: int, synchronise: Callable[[], None]) -> dict[str, float]:
    """Microseconds per call by row."""
    timers = {row.title: _timer(row) for row in rows}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for timer in timers.values():
        timer(10)
        synchronise()
    for _ in range(rounds):
        for name, timer in timers.items():
            synchronise()
            samples[name].append(timer(calls) / calls * 1e6)
    synchronise()
    return {name: statistics.median(found) for name, found in samples.items()}


def _timer(row: Row) -> Callable[[int], float]:
    if not row.statement:
        loop = row.names["loop"]
        return lambda calls: timeit.timeit(lambda: loop(calls), number=1)
    return timeit.Timer(row.statement, globals=dict(row.names)).timeit


# Showing ------------------------------------------------------------------------------------------------------------


def table(rows: list[Row], figures: Mapping[str, float]) -> str:
    width = max(len(row.title) for row in rows)
    lines = [f"{'':{width}}  µs per launch  × {FLOOR}   others take"]
    for row in rows:
        floor = next(figures[r.title] for r in rows if (r.system, *_kind(r)) == (FLOOR, *_kind(row)))
        others = "   ".join(f"{name} {ratio:.1f} ×" for name, ratio in _others(row, rows, figures).items())
        lines.append(
            f"{row.title:{width}}  {figures[row.title]:13.3f}  {figures[row.title] / floor:15.2f}   {others}".rstrip()
        )
    return "\n".join(lines)


def _kind(row: Row) -> tuple[str, int]:
    return row.library if row.count else "", row.count


def _others(row: Row, rows: list[Row], figures: Mapping[str, float]) -> dict[str, float]:
    """For a row of ours, by other system: how many times as long its quickest way takes."""
    if row.system != OURS:
        return {}
    best: dict[str, float] = {}
    for other in rows:
        if other.system not in (OURS, FLOOR) and _kind(other) == _kind(row):
            best[other.system] = min(figures[other.title], best.get(other.system, float("inf")))
    return {name: figure / figures[row.title] for name, figure in best.items()}


def slower_rows(rows: list[Row], figures: Mapping[str, float]) -> list[str]:
    """Where another system is quicker."""
    return [
        f"{name} is quicker than: {row.title}"
        for row in rows
        for name, ratio in _others(row, rows, figures).items()
        if ratio < 1
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda" if sk.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    options = parser.parse_args()
    is_cuda = options.target == "cuda"
    rows = rows_for(options.target)
    figures = measure(rows, CALLS[options.target], options.rounds, sk.cuda.synchronize if is_cuda else lambda: None)
    sys.stdout.write(f"{describe(options.target)}\n\n{table(rows, figures)}\n\n")
    sys.stdout.write("\n".join(slower_rows(rows, figures)) + "\n")
    if options.json:
        found = {"machine": describe(options.target), "us_per_launch": figures}
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if options.chart:
        bars = [Bar(row.title, figures[row.title], row.system == OURS) for row in rows]
        draw(options.chart, f"Launches, {describe(options.target).split(',')[0]}", "µs", bars)


if __name__ == "__main__":
    main()
