"""Draw which thread of a block holds which element of a tile: the pictures of the tutorial's steps with blocks.

    python -m tools.placement

A kernel tells who holds what, on the checking interpreter, which has the placement of a GPU. A test fails when a picture is not
what `pictures()` gives.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

import stagekit as sk
from stagekit.layouts import IndexMap, banks_svg, layout_svg, tile_layout
from stagekit.lib.fragments import sharing_for
from stagekit.lib.layout import blocked, enumerated
from stagekit.lib.products import of_product
from stagekit.lib.shared import turns

STEPS = Path(__file__).parents[1] / "benchmarks" / "results" / "steps-h200.json"
UNITS = ("TB/s", "TFLOP/s, float32", "TFLOP/s, 16 bits")
FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLOURS = ("#b6d7f5", "#f9d9a7", "#bfe3c0", "#e3c6ec")  # of threads 0 to 3
THREADS, EXTENT, LENGTH = len(COLOURS), 16, 13
_INK, _PALE, _FONT = "#24292f", "#f6f8fa", "system-ui, Segoe UI, Helvetica, Arial, sans-serif"
_CELL = 44


@sk.inline(per_thread=True)
def sign(owner: Any, places: Any, extent: Any) -> None:
    """Write this thread's number to the places of its elements."""
    for place in places.elements:
        sk.store(owner + place, sk.cuda.thread_idx("x"), mask=place < extent)


@sk.jit(target="interp", threads="COUNT")
def tell_owners(zeros: Any, owner: Any, SIZE: sk.constexpr[int], COUNT: sk.constexpr[int]) -> None:
    """Tell which thread holds each element of a tile that is loaded."""
    i = sk.arange(0, SIZE)
    sign(owner, i + sk.load(zeros + i), SIZE)


def owners(extent: int, threads: int) -> list[int]:
    """Return the thread that holds each element of a tile."""
    owner = np.full(extent, -1, np.int32)
    tell_owners[1](np.zeros(extent, np.int64), owner, extent, threads)
    return [int(thread) for thread in owner]


class Drawing:
    """An SVG picture, line by line."""

    def __init__(self, title: str, width: int, height: int) -> None:
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="white"/>',
        ]

    def box(self, x: int, y: int, text: str, colour: str, width: int = _CELL) -> None:
        """Draw a box with a text in its middle."""
        self.lines.append(
            f'<rect x="{x}" y="{y}" width="{width - 4}" height="30" rx="4" fill="{colour}" stroke="{_INK}"/>'
        )
        self.text(x + (width - 4) // 2, y + 20, text, "middle")

    def text(self, x: int, y: int, text: str, anchor: str = "start") -> None:
        """Write a text."""
        style = f'font-size="13" font-family="{_FONT}" text-anchor="{anchor}" fill="{_INK}"'
        self.lines.append(f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>')

    def line(self, x1: int, y1: int, x2: int, y2: int) -> None:
        """Draw a line."""
        self.lines.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_INK}"/>')

    def done(self) -> str:
        """Return the text of the picture."""
        return "\n".join([*self.lines, "</svg>"]) + "\n"


def placement() -> str:
    """Draw the elements of a tile in the colours of their threads; those past the end of the array are pale."""
    drawing = Drawing("Which thread holds which element of a tile", 840, 150)
    drawing.text(20, 24, f"i = sk.arange(0, {EXTENT}) in {THREADS} threads; i < {LENGTH} masks the last elements")
    for element, thread in enumerate(owners(EXTENT, THREADS)):
        drawing.box(20 + element * 50, 40, str(element), COLOURS[thread] if element < LENGTH else _PALE)
        drawing.text(40 + element * 50, 90, f"t{thread}", "middle")
    drawing.text(20, 130, "below each element: the thread that loads it, computes with it and stores it")
    return drawing.done()


def reduction() -> str:
    """Draw how a tile is summed: each thread its own elements, then threads in pairs."""
    holders = owners(EXTENT, THREADS)
    drawing = Drawing("How a tile is reduced", 840, 220)
    drawing.text(20, 24, "each thread adds up what it holds")
    for thread in range(THREADS):
        held = [element for element, holder in enumerate(holders) if holder == thread]
        drawing.box(20 + thread * 205, 36, " + ".join(f"x{element}" for element in held), COLOURS[thread], 190)
    for level, count in ((0, 2), (1, 1)):
        span = 205 * 4 // count
        for k in range(count):
            middle, y = 20 + k * span + span // 2 - 10, 96 + level * 64
            for side in (-1, 1):
                drawing.line(middle + side * span // 4, y - 30, middle, y)
            drawing.box(middle - 93, y, "sum of two threads" if count == 2 else "the sum, in every thread", _PALE, 190)
    drawing.text(
        20, 212, "threads exchange registers by shuffles; warps meet in shared memory, and wait for each other there"
    )
    return drawing.done()


def scan() -> str:
    """Draw running sums of a row of two tiles, and the number that carries on from the first to the second."""
    values = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])
    drawing = Drawing("Running sums of a row, tile by tile", 840, 190)
    for tile in range(2):
        begin = tile * 8
        before = int(values[:begin].sum())
        drawing.text(20 + tile * 410, 24, f"tile {tile}: {before} before it")
        sums = before + values[begin : begin + 8].cumsum()
        for k, (value, total) in enumerate(zip(values[begin : begin + 8], sums)):
            drawing.box(20 + tile * 410 + k * 48, 36, str(value), COLOURS[tile])
            drawing.line(40 + tile * 410 + k * 48, 66, 40 + tile * 410 + k * 48, 96)
            drawing.box(20 + tile * 410 + k * 48, 96, str(total), _PALE)
    drawing.text(
        20, 160, "within a tile all threads work at once; from tile to tile one number goes on, the sum so far"
    )
    return drawing.done()


def fragments() -> str:
    """Draw which lane of a warp has which sum of an instruction, and where chunks of a matrix lie in shared memory."""
    sharing = sharing_for(sk.bfloat16, "ieee", (16, 8, 16), 32)
    if sharing is None:
        raise ValueError("tensor cores have no such product")
    held, drawing = enumerated(sharing.layout), Drawing("Sums of a warp, and chunks in shared memory", 860, 590)
    lane_of = {int(element): lane for lane, row in enumerate(held) for element in row}
    drawing.text(20, 24, "sums of 16 by 8: the lane that has each")
    drawing.text(450, 24, "8 rows of 128 bytes: the chunk at each place")
    for row in range(16):
        for column in range(8):
            lane = lane_of[8 * row + column]
            drawing.box(20 + column * 48, 36 + row * 34, str(lane), COLOURS[lane % 4])
    for row in range(8):
        turned = sum([((row >> shift) & mask) << back for shift, mask, back in turns(8)])
        for place in range(8):
            chunk = place ^ turned
            drawing.box(450 + place * 48, 36 + row * 34, str(chunk), COLOURS[chunk // 2])
    return drawing.done()


def of_memory() -> str:
    """Draw a tile as a load of a matrix has it."""
    return layout_svg(blocked((8, 16), 32, 4))


def by_rows() -> str:
    """Draw the tile of which neighbours in a row are in other threads."""
    return layout_svg(tile_layout((8, 16), IndexMap((8, 4), (16, 1)), IndexMap(4, 4)))


def of_transposition() -> str:
    """Draw the transposition of that tile as a store of it has it."""
    return layout_svg(blocked((16, 8), 32, 4))


def of_sums() -> str:
    """Draw the result of a product by threads."""
    return layout_svg(of_product((8, 16), 32, 4))


def banks() -> str:
    """Draw the banks of rows of 32 bytes."""
    return banks_svg(IndexMap((8, 8), (8, 1)), 4)


def steps(page: str) -> str:
    """Draw which share of the GPU's peak each step of a page reaches, as measured by `benchmarks/steps.py`."""
    measured = json.loads(STEPS.read_text(encoding="utf-8"))
    rows = [row for row in measured["steps"] if row["page"] == page]
    drawing = Drawing("The share of the peak that each step reaches", 860, 60 + 34 * len(rows))
    drawing.text(20, 24, f"share of the peak: {measured['machine'].partition(',')[0]}")
    for number, row in enumerate(rows):
        y, width = 40 + 34 * number, max(round(400 * row["share"]), 6)
        drawing.text(20, y + 20, row["step"])
        drawing.box(290, y, "", COLOURS[UNITS.index(row["unit"])], width)
        drawing.text(296 + width, y + 20, f"{row['share']:.0%}, {row['figure']:.3g} {row['unit']}")
    return drawing.done()


def pictures() -> dict[Path, str]:
    """Return the text of each picture by its place."""
    drawn: dict[str, Callable[[], str]] = {
        "tile-placement": placement,
        "tile-reduction": reduction,
        "tile-scan": scan,
        "fragments": fragments,
        "layout-of-memory": of_memory,
        "layout-by-rows": by_rows,
        "layout-of-transposition": of_transposition,
        "layout-of-sums": of_sums,
        "banks": banks,
    }
    for number, name in (("08", "matrices"), ("09", "attention"), ("10", "hopper")):
        drawn[f"steps-{name}"] = functools.partial(steps, f"{number}-{name}.md")
    return {FOLDER / f"{name}.svg": draw() for name, draw in drawn.items()}


if __name__ == "__main__":
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")
