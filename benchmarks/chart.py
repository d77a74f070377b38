"""Bars as a picture, by matplotlib: SVG, PNG or whatever the name of the file says.

draw(Path("launch.svg"), "Launches", "µs", [Bar("stagekit, 2 arrays", 3.8, is_ours=True), ...])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_OURS, _OTHERS = "#2f6fb0", "#b9b9b9"


@dataclass(frozen=True)
class Bar:
    """One row. is_ours: drawn in the colour of stagekit."""

    label: str
    value: float
    is_ours: bool


def draw(path: Path, title: str, unit: str, bars: Sequence[Bar]) -> None:
    """Write the picture; all bars on one scale that begins at 0."""
    from matplotlib.figure import Figure  # who asks for no chart needs no matplotlib

    figure = Figure(figsize=(9, 0.8 + 0.28 * len(bars)), layout="constrained")
    axes = figure.subplots()
    colours = [_OURS if bar.is_ours else _OTHERS for bar in bars]
    drawn = axes.barh(range(len(bars)), [bar.value for bar in bars], color=colours)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.bar_label(drawn, [f"{bar.value:.3g} {unit}" for bar in bars], padding=4)
    axes.set(title=title, xticks=[])
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    figure.savefig(path)
