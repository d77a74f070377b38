"""Charts of what was measured, by matplotlib, which is the extra `bench`: a roofline, and what a search tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stagekit.diagnostics import hide_frames, shown, wrong_arguments
from stagekit.extras import require_extra
from stagekit.tuning.measuring import Measurement, duration_text, prefixed

_CHOSEN, _OTHER, _ROOF = "#2f6fb0", "#b9b9b9", "#444444"


@hide_frames
def roofline(
    measurements: Mapping[str, Measurement], *, bandwidth: float, operation_rate: float, path: str | Path | None = None
) -> Any:
    """Draw measurements below what a machine can do, and return matplotlib's figure.

    measurements: by name, each made with `bytes_moved` and `operations`. bandwidth: the machine's, in bytes per second.
    operation_rate: its operations per second. path: where to write the picture too, in the form that its ending says.
    """
    for name, each in measurements.items():
        if not each.bytes_moved or not each.operations:
            raise wrong_arguments(roofline, f"{shown(name)} was measured without `bytes_moved` or `operations`")
    figure, axes = _figure("a roofline", (7, 5))
    rows: Any = measurements.items()
    points = [(name, each.operations / each.bytes_moved, each.operation_rate) for name, each in rows]
    marked = [
        operation_rate / bandwidth,
        *(intensity for _, intensity, _ in points),
    ]  # the ridge of the roof, and the points
    along = np.geomspace(min(marked) / 8, max(marked) * 8, 200)
    axes.loglog(along, np.minimum(along * bandwidth, operation_rate), color=_ROOF)
    for name, intensity, rate in points:
        axes.loglog(intensity, rate, "o", color=_CHOSEN)
        share = rate / min(intensity * bandwidth, operation_rate)
        axes.annotate(f"{name}, {share:.0%}", (intensity, rate), xytext=(6, -10), textcoords="offset points")
    title = f"below {prefixed(bandwidth)}B/s and {prefixed(operation_rate)}FLOP/s"
    axes.set(xlabel="operations per byte", ylabel="operations per second", title=title)
    return _written(figure, path)


def draw_trials(title: str, trials: Sequence[Any], best: Any, path: str | Path | None) -> Any:
    """Draw the time of each trial, the quickest first, with its quartiles. best: the configuration that stands out."""
    timed = sorted((each for each in trials if each.times_s), key=lambda each: each.median_s)
    figure, axes = _figure("a chart of a search", (9, 0.9 + 0.24 * max(len(timed), 3)))
    rows = range(len(timed))
    colours = [_CHOSEN if each.config == best else _OTHER for each in timed]
    bars = axes.barh(rows, [each.median_s for each in timed], color=colours, xerr=_errors(timed))
    axes.bar_label(bars, [duration_text(each.median_s) for each in timed], padding=4)
    axes.set_yticks(rows, [each.text for each in timed])
    axes.set(title=title, xlabel="seconds")
    axes.margins(x=0.15)
    axes.invert_yaxis()
    return _written(figure, path)


def _errors(timed: Sequence[Any]) -> Any:
    """Return the distances of the quartiles from the medians, two rows."""
    quartiles = [np.percentile(each.times_s, (25, 75)) for each in timed]
    return np.array([[each.median_s - low, high - each.median_s] for each, (low, high) in zip(timed, quartiles)]).T


def _figure(what: str, size: tuple[float, float]) -> tuple[Any, Any]:
    figures = require_extra(what, "matplotlib.figure", "bench")
    figure = figures.Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def _written(figure: Any, path: str | Path | None) -> Any:
    if path is not None:
        figure.savefig(path)
    return figure
