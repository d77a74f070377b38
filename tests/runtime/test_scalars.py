"""Scalar arguments arrive as their parameter's dtype: rounded once, or refused (cases P34, T5, Y4)."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.dtypes import ALL_DTYPES, INTEGER_DTYPES, DType, bool_, float16, float32, float64, int32, uint8
from stagekit.runtime.checks import convert
from stagekit.runtime.errors import ArgumentError
from stagekit.signature import ScalarSpec

NARROW_FLOATS = [d for d in ALL_DTYPES if d.is_float and d is not float64]
FLOATS = [d for d in ALL_DTYPES if d.is_float]
by_name = {"ids": lambda d: d.name}


def value_of(payload: float, dtype: DType) -> float:
    """What a kernel sees for a converted value."""
    if dtype.bits >= 32:
        return payload
    bits = np.array(payload, np.uint16 if dtype.bits == 16 else np.uint8)
    return float(bits.view(dtype.numpy))


def nearest(number: float, dtype: DType) -> float:
    """By definition: of the two neighbours the nearer, of equals the one with an even last bit. Exact arithmetic."""
    info = ml_dtypes.finfo(dtype.numpy)
    exact = Fraction(number)
    exponent = max(_floor_log2(abs(exact)), int(info.minexp)) if exact else 0
    quantum = Fraction(2) ** (exponent - info.nmant)
    rounded = round(exact / quantum) * quantum  # Fraction.__round__ is half to even
    if abs(rounded) <= Fraction(float(info.max)):
        return float(rounded)
    return math.nan if dtype is dtypes.float8_e4m3fn else math.copysign(math.inf, number)


def _floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if x >= Fraction(2) ** guess else guess - 1


@pytest.mark.parametrize("dtype", NARROW_FLOATS, **by_name)
@given(
    number=st.floats(allow_nan=False, allow_infinity=False) | st.floats(-70000, 70000) | st.integers(-(2**80), 2**80)
)
@example(65504.0)
@example(65519.99)
@example(65520)
@example(1e-8)
@example(-1e-8)
@example(-1e-60)
@example(2**-25)
@example(1 / 3)
@example(2**54 + 2**30 + 1)  # through a float64 it would lose the last bit and then tie the wrong way
@example(2**24 + 1 + 2**-20)
@settings(max_examples=60, deadline=None)
def test_floats_are_rounded_once_to_nearest_even(dtype: DType, number: float) -> None:
    got = value_of(convert(ScalarSpec("x", dtype), number), dtype)

    assert number == 0 or math.copysign(1, got) == math.copysign(1, number) or math.isnan(got)
    assert got == nearest(number, dtype) or (math.isnan(got) and math.isnan(nearest(number, dtype)))


@pytest.mark.parametrize("dtype", FLOATS, **by_name)
@pytest.mark.parametrize("number", [0.0, -0.0, math.inf, -math.inf, math.nan])
def test_special_floats_stay_themselves(dtype: DType, number: float) -> None:
    got = value_of(convert(ScalarSpec("x", dtype), number), dtype)

    if dtype is dtypes.float8_e4m3fn and math.isinf(number):
        assert math.isnan(got)
    else:
        assert struct.pack("d", abs(got)) == struct.pack("d", abs(number))
        assert math.copysign(1, got) == math.copysign(1, number) or math.isnan(number)


@pytest.mark.parametrize("dtype", FLOATS, **by_name)
def test_an_integer_beyond_every_float_is_infinite(dtype: DType) -> None:
    got = value_of(convert(ScalarSpec("x", dtype), -(10**400)), dtype)

    assert got == -math.inf or (math.isnan(got) and not dtype.layout.has_infinity)


@pytest.mark.parametrize("dtype", [bool_, *INTEGER_DTYPES], **by_name)
@given(number=st.integers(-(2**65), 2**65) | st.integers(-300, 300))
@settings(max_examples=40, deadline=None)
def test_integers_fit_or_are_refused_with_name_and_value(dtype: DType, number: int) -> None:
    spec = ScalarSpec("count", dtype)

    if dtype.holds(number):
        assert convert(spec, number) == number
    else:
        with pytest.raises(ArgumentError, match=f"`count`: {number} is outside {dtype.name}"):
            convert(spec, number)


@pytest.mark.parametrize("value", [True, np.True_, np.int8(1), np.uint64(1), 1])
@pytest.mark.parametrize("dtype", [bool_, int32, uint8, float32], **by_name)
def test_integers_and_bools_of_any_kind_are_accepted(value: Any, dtype: DType) -> None:
    assert convert(ScalarSpec("x", dtype), value) == 1


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.float16(0.5), ml_dtypes.bfloat16(0.5), np.float64(0.5)])
def test_floats_of_any_kind_are_accepted_for_floats(value: Any) -> None:
    assert convert(ScalarSpec("x", float32), value) == 0.5
    assert convert(ScalarSpec("x", float16), value) == np.float16(0.5).view(np.uint16)


@pytest.mark.parametrize("value", [3.0, 3.5, math.nan, np.float32(3), ml_dtypes.bfloat16(3)])
@pytest.mark.parametrize("dtype", [bool_, *INTEGER_DTYPES], **by_name)
def test_a_float_never_becomes_an_integer(value: Any, dtype: DType) -> None:
    with pytest.raises(ArgumentError, match=r"`n`: expected \w+, got .*\((float|float32|bfloat16)\)"):
        convert(ScalarSpec("n", dtype), value)


@pytest.mark.parametrize("value", ["3", None, 1j, [1], np.array(3), np.complex64(1), object(), np.datetime64("2020")])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match="`n`: expected int32, got"):
        convert(ScalarSpec("n", int32), value)
