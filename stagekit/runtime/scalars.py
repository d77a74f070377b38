"""A Python or NumPy number as the native value of a scalar parameter.

    convert(ScalarSpec("n", int32), np.int64(7))      7
    convert(ScalarSpec("eps", float16), 1e-8)         0.0     rounded once, to nearest even
    convert(ScalarSpec("n", int32), 7.0)              refused: floats never become integers
    convert(ScalarSpec("n", uint8), -1)               refused: does not fit

Integers and bools are accepted for every dtype, floats for float dtypes. NumPy scalars count as the Python number of
their kind. The result is what `struct` packs: an int, a float, or the bits of a 16- or 8-bit float.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from stagekit.dtypes import DType, dtype_from_numpy, float32, number_as
from stagekit.runtime.args import describe
from stagekit.runtime.errors import ArgumentError, FloatForInteger, IntegerOutOfRange, NotANumber
from stagekit.signature import ScalarSpec

_BITS = {8: np.uint8, 16: np.uint16}


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
        raise ArgumentError(IntegerOutOfRange(spec.name, number, dtype.name, dtype.min, dtype.max))
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
    rounded = number_as(number, dtype.numpy)
    return float(rounded) if dtype.bits >= float32.bits else int(rounded.view(_BITS[dtype.bits]))
