"""Bars as SVG, without a drawing library.

draw(Path("launch.svg"), "Launches", "µs", [Bar("stagekit, 2 arrays", 3.8, is_ours=True), ...])
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROW, _LABELS, _BARS, _FIGURES, _TOP = 22, 330, 420, 90, 40  # pixels
_OURS, _OTHERS = "#2f6fb0", "#b9b9b9"


@dataclass(frozen=True)
class Bar:
    """One row. is_ours: drawn in the colour of stagekit."""

    label: str
    value: float
    is_ours: bool


def draw(path: Path, title: str, unit: str, bars: Sequence[Bar]) -> None:
    """Write the picture; all bars on one scale that begins at 0."""
    most = max((bar.value for bar in bars), default=0.0) or 1.0
    width, height = _LABELS + _BARS + _FIGURES, _TOP + _ROW * len(bars) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="24" font-size="15" font-weight="bold">{html.escape(title)}</text>',
    ]
    for place, bar in enumerate(bars):
        lines += _bar(bar, _TOP + _ROW * place, _BARS * bar.value / most, unit)
    path.write_text("\n".join([*lines, "</svg>", ""]), encoding="utf-8")


def _bar(bar: Bar, top: int, length: float, unit: str) -> list[str]:
    colour, middle = _OURS if bar.is_ours else _OTHERS, top + 14
    return [
        f'<text x="{_LABELS - 8}" y="{middle}" text-anchor="end">{html.escape(bar.label)}</text>',
        f'<rect x="{_LABELS}" y="{top + 2}" width="{max(length, 1):.1f}" height="{_ROW - 6}" fill="{colour}"/>',
        f'<text x="{_LABELS + length + 6:.1f}" y="{middle}">{bar.value:.3g} {html.escape(unit)}</text>',
    ]
