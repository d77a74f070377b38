"""A Python or NumPy number as the native value of a scalar parameter.

    convert(ScalarSpec("n", int32), np.int64(7))      7
    convert(ScalarSpec("eps", float16), 1e-8)         0.0     rounded once, to nearest even
    convert(ScalarSpec("n", int32), 7.0)              refused: floats never become integers
    convert(ScalarSpec("n", uint8), -1)               refused: does not fit

Integers and bools are accepted for every dtype, floats for float dtypes. NumPy scalars count as the Python number of
their kind. The result is what `struct` packs: an int, a float, or the bits of a 16- or 8-bit float.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import ml_dtypes
import numpy as np

from stagekit.dtypes import DType, dtype_from_numpy, float64
from stagekit.runtime.args import describe
from stagekit.runtime.errors import ArgumentError, FloatForInteger, IntegerOutOfRange, NotANumber
from stagekit.signature import ScalarSpec

_BITS = {8: np.uint8, 16: np.uint16}
_FLOAT64_DIGITS = 53


def convert(spec: ScalarSpec, value: Any) -> int | float:
    """The native value of `value`, or an `ArgumentError` that names the parameter."""
    dtype = spec.dtype
    try:
        number = python_number(value)
    except Exception:  # a subclass of int or float may answer as it likes
        number = None
    if number is None:
        is_in_array = type(value) is np.ndarray and value.ndim == 0
        hint = f"pass the number in the array: `{spec.name}[()]`" if is_in_array else ""
        raise ArgumentError(NotANumber(spec.name, dtype.name, describe(value), hint))
    if dtype.is_float:
        return float_payload(number, dtype)
    if isinstance(number, float):
        raise ArgumentError(FloatForInteger(spec.name, dtype.name, describe(value)))
    if not dtype.holds(number):
        raise ArgumentError(IntegerOutOfRange(spec.name, dtype.name, number, dtype.min, dtype.max))
    return number


def python_number(value: Any) -> int | float | None:
    """`value` as an exact int or float; None where it is neither a real number of Python nor a NumPy scalar."""
    if isinstance(value, (bool, np.bool_, numbers.Integral)):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.generic):
        dtype = dtype_from_numpy(value.dtype)
        return float(value) if dtype is not None and dtype.is_float else None
    return None


def float_payload(number: float, dtype: DType) -> int | float:
    """`number` rounded to a float dtype: a float for 32 and 64 bits, the bits for narrower ones."""
    rounded = round_to(number, dtype)
    if dtype.bits >= 32:
        return rounded
    with np.errstate(all="ignore"):
        return int(dtype.numpy.type(rounded).view(_BITS[dtype.bits]))


def round_to(number: float, dtype: DType) -> float:
    """The float of `dtype` nearest to `number`, ties to even; beyond the largest one infinity, or NaN where there is none."""
    value = _float64_rounded_to_odd(number) if isinstance(number, int) and dtype is not float64 else number
    try:
        value = float(value)
    except OverflowError:
        return -math.inf if number < 0 else math.inf
    if dtype is float64 or value == 0 or not math.isfinite(value):
        return value
    largest, digits, least_exponent = _float_format(dtype)
    if abs(value) >= 2 * largest:
        return math.copysign(math.inf, value)
    exponent = max(math.frexp(value)[1] - 1, least_exponent) - digits + 1
    rounded = math.ldexp(round(math.ldexp(abs(value), -exponent)), exponent)
    return math.copysign(rounded if rounded <= largest else math.inf, value)


def _float64_rounded_to_odd(number: int) -> int:
    """A long integer cut to the digits of a float64, the last one set where any was lost: rounding it again is exact."""
    excess = number.bit_length() - _FLOAT64_DIGITS
    if excess <= 0:
        return number
    kept = abs(number) >> excess
    kept |= (kept << excess) != abs(number)
    return (-kept if number < 0 else kept) << excess


def _float_format(dtype: DType) -> tuple[float, int, int]:
    """Largest value, digits with the leading one, and exponent of the smallest normal value."""
    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return float(info.max), info.nmant + 1, int(info.minexp)
