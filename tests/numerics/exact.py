"""Independent references in exact arithmetic: rounding to a float format, and samples that reach its edges."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from stagekit.dtypes import ALL_DTYPES, DType, bfloat16, bool_, float8_e4m3fn, float8_e5m2, float16, float32, float64

# name -> (precision in bits, smallest exponent of a normal number, largest finite number)
FORMATS: dict[DType, tuple[int, int, Fraction]] = {
    float64: (53, -1022, Fraction(2**53 - 1) * 2**971),
    float32: (24, -126, Fraction(2**24 - 1) * 2**104),
    float16: (11, -14, Fraction(65504)),
    bfloat16: (8, -126, Fraction(2**8 - 1) * 2**120),
    float8_e4m3fn: (4, -6, Fraction(448)),
    float8_e5m2: (3, -14, Fraction(57344)),
}
EDGE_FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 7.0, 1e-3, 255.5, 256.0, 464.0, 464.5, 480.0, 61440.0, 65504.0),
    *(65519.999, 65520.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 3e38, 1e-38, 1e-45, 5e-324),
    *(2.0**-9, 2.0**-10, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25, 2.0**-133, 2.0**-134, 2.0**-149, 2.0**-150, 1.79e308),
    *(math.inf, -math.inf, math.nan),
)


def rounded(value: Fraction, dtype: DType) -> float:
    """`value` to nearest even in the format of `dtype`, by integer arithmetic alone."""
    precision, lowest, largest = FORMATS[dtype]
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, lowest) - precision + 1)
    nearest = round(magnitude / unit) * unit  # round() of a Fraction is to even
    if nearest > largest:
        return math.copysign(math.nan if dtype is float8_e4m3fn else math.inf, 1 if value > 0 else -1)
    return math.copysign(float(nearest), 1 if value > 0 else -1)


def edges(dtype: DType) -> np.ndarray[Any, Any]:
    """Values of `dtype` where something changes."""
    with np.errstate(all="ignore"):
        if dtype.is_float:
            return np.array(EDGE_FLOATS).astype(dtype.numpy)
        near = (
            0,
            1,
            2,
            3,
            5,
            7,
            dtype.max,
            dtype.max - 1,
            dtype.min,
            dtype.min + 1,
            dtype.max // 2,
            dtype.max // 2 + 1,
        )
        return np.array([dtype.min + (n - dtype.min) % (1 << dtype.bits) for n in near]).astype(dtype.numpy)


def samples(dtype: DType, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Every value of a dtype of 8 bits; else random bit patterns, numbers of usual size, and edges."""
    if dtype is bool_:
        return np.array([False, True])
    rng = np.random.default_rng(seed)
    raw = f"u{dtype.itemsize}"
    if dtype.bits == 8:
        return np.arange(256).astype(raw).view(dtype.numpy)
    top = (1 << dtype.bits) - 1
    bits = rng.integers(0, top, count, dtype=np.uint64, endpoint=True).astype(raw).view(dtype.numpy)
    with np.errstate(all="ignore"):
        usual = (rng.standard_normal(count) * 10 ** rng.uniform(-3, 5, count)).astype(dtype.numpy)
    every = np.concatenate([bits, usual, np.tile(edges(dtype), 4)])
    return rng.permutation(every)


def every_float16(dtype: DType) -> np.ndarray[Any, Any]:
    """All 65536 values of a 16-bit float."""
    return np.arange(1 << 16).astype(np.uint16).view(dtype.numpy)


def same_numbers(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Lane by lane: the same bits, or both NaN."""
    if not dtype.is_float:
        return np.asarray(expected == actual)
    raw = f"u{dtype.itemsize}"
    return np.asarray((expected.view(raw) == actual.view(raw)) | (_is_nan(expected) & _is_nan(actual)))


def _is_nan(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return np.isnan(x.astype(np.float64))


def ulp_distance(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """How many floats lie between; 0 for two NaN, infinite for one."""
    is_nan = _is_nan(expected), _is_nan(actual)
    places = [_place(x, dtype).astype(object) for x in (expected, actual)]
    distance = np.abs(places[0] - places[1]).astype(np.float64)
    return np.where(is_nan[0] | is_nan[1], np.where(is_nan[0] & is_nan[1], 0.0, np.inf), distance)


def _place(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """The number of a float in the order of floats; both zeros have the number 0."""
    bits = x.view(f"i{dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (dtype.bits - 1))
    return np.where(bits < 0, lowest - bits, bits)


_LACKING = {d for d in ALL_DTYPES if d.is_float} - FORMATS.keys()
assert not _LACKING, f"tests/numerics/exact.py: FORMATS has no row of {_LACKING}"
