"""When are two arrays equal enough? Tolerances by dtype, and what differs in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit.dtypes import DType, dtype_from_numpy

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Tolerance:
    """`|actual - expected| <= absolute + relative * |expected|`. NaN equals NaN, an infinity equals itself."""

    relative: float
    absolute: float


EXACT = Tolerance(0.0, 0.0)

_UNITS = 16  # in the last place: what some tens of operations in another order leave


def tolerance_of(dtype: DType) -> Tolerance:
    """What `check` allows for this dtype when it is told nothing: integers and bool exact, floats 16 units in the last place."""
    relative = _UNITS * 2.0**-dtype.layout.precision
    return Tolerance(relative, relative * 0.1) if dtype.is_float else EXACT


@dataclass(frozen=True)
class Difference:
    """How two arrays of one shape differ. index: of the first element that does."""

    count: int
    size: int
    index: tuple[int, ...]
    actual: Any
    expected: Any
    largest: float

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        largest = f"; the largest difference is {self.largest:.3g}" if self.count > 1 else ""
        first = f"[{place}] is {self.actual}, expected {self.expected}"
        return f"{self.count} of {self.size} elements differ, the first {first}{largest}"


def difference(actual: Array, expected: Array, tolerance: Tolerance | None) -> Difference | None:
    """None where `actual` is as expected. tolerance: None for that of the dtype."""
    is_equal = _equal(actual, expected, tolerance or _tolerance(actual))
    if is_equal.all():
        return None
    index = tuple(map(int, np.argwhere(~is_equal)[0]))
    with np.errstate(all="ignore"):
        apart = np.abs(_wide(actual) - _wide(expected))[~is_equal]
    largest = float(np.nanmax(apart)) if np.any(~np.isnan(apart)) else float("nan")
    count = int(np.count_nonzero(~is_equal))
    return Difference(count, actual.size, index, actual[index].item(), expected[index].item(), largest)


def _tolerance(array: Array) -> Tolerance:
    dtype = dtype_from_numpy(array.dtype)
    return EXACT if dtype is None else tolerance_of(dtype)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _equal(actual: Array, expected: Array, tolerance: Tolerance) -> Any:
    dtype = dtype_from_numpy(actual.dtype)
    if dtype is None or not dtype.is_float:
        return actual == expected
    a, e = _wide(actual), _wide(expected)
    with np.errstate(all="ignore"):
        is_close = np.abs(a - e) <= tolerance.absolute + tolerance.relative * np.abs(e)
    return np.where(np.isfinite(a) & np.isfinite(e), is_close, (a == e) | (np.isnan(a) & np.isnan(e)))
