"""Numbers in float dtypes, rounded once, to nearest even: for `float16(x)`, folding, the interpreter, and arguments of launches.

    number_as(0.1, np.dtype("float16"))      np.float16(0.1)
    number_as(2**24 + 1, bfloat16.numpy)     an int of any size is read exactly; what is too large becomes infinite

NumPy and ml_dtypes reach narrow floats through a float64 or a float32 that is itself rounded. Rounded to odd (towards zero, then
the last bit set where anything was lost), the wide float rounds again as if once, if it has two bits more than the narrow one.
Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def number_as(value: float, dtype: np.dtype[Any]) -> Any:
    """A Python int or float as a NumPy scalar of a float dtype."""
    if isinstance(value, int):
        value = _float_of(value, dtype)
    with np.errstate(all="ignore"):
        return rounded(np.asarray(value, np.float64), dtype)[()]


def rounded(value: Array, dtype: np.dtype[Any]) -> Array:
    """Integers or floats as a float dtype."""
    if dtype.itemsize < _FLOAT32.itemsize:
        if value.dtype.kind in "iu":
            value = to_odd_float64(value)
        if value.dtype == _FLOAT64:
            value = to_odd_float32(value)
    return value.astype(dtype)


def to_odd_float32(value: Array) -> Array:
    """float64 as float32, rounded to odd: good for rounding again to 22 bits or fewer."""
    near = value.astype(np.float32)
    toward_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(value), np.nextafter(near, np.float32(0)), near)
    is_inexact = (toward_zero.astype(np.float64) != value) & ~np.isnan(value)
    bits = toward_zero.astype(np.float32).view(np.uint32) | is_inexact.astype(np.uint32)
    return np.asarray(bits).view(np.float32)


def to_odd_float64(value: Array) -> Array:
    """An integer as float64 in which any lost bit is kept as a sticky low bit: good for rounding again to 24 bits.

    The low 12 bits of a number of 53 bits or more lie below every narrower rounding point: one bit can stand for all.
    """
    if value.dtype.itemsize < _FLOAT64.itemsize:
        return value.astype(np.float64)
    low = value.dtype.type(0xFFF)
    sticky = (value & ~low) | np.where(value & low, value.dtype.type(0x800), value.dtype.type(0))
    magnitude = np.abs(value.astype(np.float64))
    return np.where(magnitude < 2.0**53, value, sticky).astype(np.float64)


def _float_of(value: int, dtype: np.dtype[Any]) -> float:
    """An int as float64: rounded to nearest if that is what is wanted, else to odd; infinite where it is too large."""
    excess = value.bit_length() - sys.float_info.mant_dig
    if dtype != _FLOAT64 and excess > 0:
        kept = abs(value) >> excess
        kept |= kept << excess != abs(value)
        value = (-kept if value < 0 else kept) << excess
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
