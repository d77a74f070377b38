"""When two arrays are equal enough: tolerances by dtype, and what differs, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stagekit.dtypes import DType, dtype_from_numpy
from stagekit.testing.launching import Array


@dataclass(frozen=True)
class Tolerance:
    """`|actual - expected| <= absolute + relative * |expected|`. NaN equals NaN, an infinity equals itself."""

    relative: float
    absolute: float


EXACT = Tolerance(0.0, 0.0)

_UNITS = 16  # in the last place: some tens of operations in another order differ by as much


def tolerance_of(dtype: DType) -> Tolerance:
    """Return what `check` allows by default: nothing for integers and bool, 16 units in the last place for floats."""
    relative = _UNITS * 2.0**-dtype.layout.precision
    return Tolerance(relative, relative * 0.1) if dtype.is_float else EXACT


def difference(actual: Array, expected: Array, tolerance: Tolerance | None) -> str | None:
    """Say how two arrays of one shape differ; None where `actual` is as expected. tolerance: None for that of the dtype."""
    dtype = dtype_from_numpy(actual.dtype)
    wide, wanted = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.abs(wide - wanted)
        if dtype is None or not dtype.is_float:
            is_equal = actual == expected
        else:
            allowed = tolerance or tolerance_of(dtype)
            is_close = apart <= allowed.absolute + allowed.relative * np.abs(wanted)
            is_same = (wide == wanted) | (np.isnan(wide) & np.isnan(wanted))
            is_equal = np.where(np.isfinite(wide) & np.isfinite(wanted), is_close, is_same)
    if is_equal.all():
        return None
    count, index = int(np.count_nonzero(~is_equal)), tuple(map(int, np.argwhere(~is_equal)[0]))
    text = (
        f"{count} of {actual.size} elements differ, the first [{', '.join(map(str, index))}] is {actual[index].item()}"
    )
    text += f", expected {expected[index].item()}"
    known = apart[~is_equal & ~np.isnan(apart)]
    largest = float(known.max()) if known.size else float("nan")
    return text if count == 1 else f"{text}; the largest difference is {largest:.3g}"
