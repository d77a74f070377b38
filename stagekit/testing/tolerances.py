"""When two arrays are equal enough: tolerances by dtype, and what differs, in words."""

from __future__ import annotations

from collections.abc import Iterator
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

_PIECE = 1 << 18  # elements
_UNITS = 16  # in the last place: some tens of operations in another order differ by as much


def tolerance_of(dtype: DType) -> Tolerance:
    """Return what `check` allows by default: nothing for integers and bool, 16 units in the last place for floats."""
    relative = _UNITS * 2.0**-dtype.layout.precision
    return Tolerance(relative, relative * 0.1) if dtype.is_float else EXACT


def difference(actual: Array, expected: Array, tolerance: Tolerance | None) -> str | None:
    """Say how two arrays of one shape differ; None where `actual` is as expected. tolerance: None for that of the dtype."""
    if all(_agree(*pair, tolerance) for pair in zip(pieces(actual), pieces(expected))):
        return None
    is_equal = _is_equal(actual, expected, tolerance)
    count, index = int(np.count_nonzero(~is_equal)), tuple(map(int, np.argwhere(~is_equal)[0]))
    text = (
        f"{count} of {actual.size} elements differ, the first [{', '.join(map(str, index))}] is {actual[index].item()}"
    )
    text += f", expected {expected[index].item()}"
    with np.errstate(all="ignore"):
        apart = np.abs(actual[~is_equal].astype(np.float64) - expected[~is_equal].astype(np.float64))
    known = apart[~np.isnan(apart)]
    largest = float(known.max()) if known.size else float("nan")
    return text if count == 1 else f"{text}; the largest difference is {largest:.3g}"


def pieces(array: Array) -> Iterator[Array]:
    """Yield an array in pieces, flat, of which what is made of them stays in the caches."""
    flat = array.reshape(-1)
    return (flat[first : first + _PIECE] for first in range(0, flat.size, _PIECE))


def _agree(actual: Array, expected: Array, tolerance: Tolerance | None) -> bool:
    """Return whether all elements are as expected. Only those of other bits, most often few, are looked at one by one."""
    if actual.dtype == expected.dtype and actual.itemsize in (1, 2, 4, 8):
        bits = f"u{actual.itemsize}"
        differ = actual.view(bits) != expected.view(bits)
        actual, expected = actual[differ], expected[differ]
    return bool(_is_equal(actual, expected, tolerance).all())


def _is_equal(actual: Array, expected: Array, tolerance: Tolerance | None) -> Array:
    """Return for each element whether it is as expected."""
    dtype = dtype_from_numpy(actual.dtype)
    if dtype is None or not dtype.is_float:
        return np.asarray(actual == expected)
    allowed = tolerance or tolerance_of(dtype)
    wide, wanted = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        is_close = np.abs(wide - wanted) <= allowed.absolute + allowed.relative * np.abs(wanted)
    is_same = (wide == wanted) | (np.isnan(wide) & np.isnan(wanted))
    return np.where(np.isfinite(wide) & np.isfinite(wanted), is_close, is_same)
