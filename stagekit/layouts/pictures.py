"""Pictures of layouts, in text and as SVG: which thread holds each element, and in which bank of shared memory it lies."""

from __future__ import annotations

import math
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from stagekit.diagnostics import hide_frames, wrong_arguments
from stagekit.layouts.index_map import IndexMap
from stagekit.layouts.placement import BANK_BYTES, BANKS
from stagekit.lib.layout import Layout, enumerated

_MOST = 4096  # elements of a picture
_CELL, _HEIGHT = 52, 26
_INK, _FONT = "#24292f", "system-ui, Segoe UI, Helvetica, Arial, sans-serif"


@hide_frames
def layout_text(layout: Layout) -> str:
    """Return a line for each row of a tile, of one or two axes: the thread and the register of each element, as `t5.2`.

    Of copies the first thread is named.
    """
    cells = [[f"t{thread}.{register}" for thread, register in row] for row in _holders(layout_text, layout)]
    width = max(len(cell) for row in cells for cell in row)
    return "\n".join(" ".join(cell.ljust(width) for cell in row).rstrip() for row in cells)


@hide_frames
def layout_svg(layout: Layout, title: str = "") -> str:
    """Return the picture of a tile, of one or two axes, as SVG: each element in the colour of its thread."""
    rows = _holders(layout_svg, layout)
    cells = [[(f"t{thread}.{register}", _colour(thread, layout.threads)) for thread, register in row] for row in rows]
    return _drawing(cells, title or f"threads and registers of {layout.shape} in {layout.threads} threads")


@hide_frames
def banks_svg(places: IndexMap, itemsize: int, title: str = "") -> str:
    """Return the picture of the banks of a map of one or two places: rows of its first place, the bank of each element."""
    table = places.table.reshape(places.table.shape[0], -1, order="F")
    if table.size > _MOST:
        raise wrong_arguments(banks_svg, f"{table.size} elements: a picture has {_MOST} at most")
    banks = table * itemsize // BANK_BYTES % BANKS
    cells = [[(f"{bank}", _colour(int(bank), BANKS)) for bank in row] for row in banks]
    return _drawing(cells, title or f"banks of {places}, {itemsize} bytes an element")


def _holders(function: Any, layout: Layout) -> list[list[tuple[int, int]]]:
    """Return thread and register of each element, row by row."""
    if len(layout.shape) > 2 or layout.extent > _MOST:
        problem = f"a tile of shape {layout.shape}: a picture has two axes, and {_MOST} elements at most"
        raise wrong_arguments(function, problem)
    held = enumerated(layout)
    holders = np.full((layout.extent, 2), -1)
    threads, registers = np.nonzero(held >= 0)
    order = np.lexsort((registers, threads))[::-1]  # the first thread comes last, and stays
    holders[held[threads[order], registers[order]]] = np.stack([threads[order], registers[order]], axis=1)
    columns = layout.shape[-1]
    return [[(int(t), int(r)) for t, r in holders[i : i + columns]] for i in range(0, layout.extent, columns)]


def _colour(number: int, count: int) -> str:
    """Return a light colour, of which numbers that follow one another have different ones."""
    hue = number * 360 // 8 % 360
    return f"hsl({hue},{45 + 35 * (number // 8 % 2)}%,{88 - 18 * (number // 16) // max(math.ceil(count / 16), 1)}%)"


def _drawing(cells: list[list[tuple[str, str]]], title: str) -> str:
    width, height = 20 + _CELL * max(map(len, cells)), 44 + _HEIGHT * len(cells)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<g font-size="12" font-family="{_FONT}" fill="{_INK}"><text x="10" y="22">{escape(title)}</text></g>',
        f'<g font-size="11" font-family="{_FONT}" fill="{_INK}" text-anchor="middle">',
    ]
    for row, line in enumerate(cells):
        for column, (text, colour) in enumerate(line):
            x, y = 10 + column * _CELL, 34 + row * _HEIGHT
            lines.append(f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_HEIGHT}" fill="{colour}" stroke="white"/>')
            lines.append(f'<text x="{x + _CELL // 2}" y="{y + 17}">{text}</text>')
    return "\n".join([*lines, "</g>", "</svg>"]) + "\n"
