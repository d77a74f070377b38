"""The table of meaning against Python's exact integers and fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.dtypes import (
    ALL_DTYPES,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint64,
)
from stagekit.ir import BinaryKind, CompareKind, UnaryKind, semantics
from tests.numerics import exact

FEW = settings(max_examples=25, deadline=None)
FLOATS = [d for d in ALL_DTYPES if d.is_float]


def integers_of(dtype: DType) -> st.SearchStrategy[int]:
    near = st.sampled_from([dtype.min, dtype.min + 1, dtype.max, dtype.max - 1, 0, 1, 2])
    return st.integers(dtype.min, dtype.max) | near


def numbers_of(dtype: DType) -> st.SearchStrategy[float]:
    """Floats that `dtype` holds."""
    wide = st.floats() | st.floats(-4, 4) | st.sampled_from(exact.EDGE_FLOATS)
    return wide.map(lambda x: float(semantics.round_to(x, dtype)))


def wrapped(value: int, dtype: DType) -> int:
    return (value - dtype.min) % (1 << dtype.bits) + dtype.min


def _shifted(a: int, amount: int, dtype: DType, *, left: bool) -> int:
    """By Python's unbounded integers, the amount read as unsigned."""
    distance = min(amount % (1 << dtype.bits), dtype.bits)
    return a << distance if left else a >> distance


ON_INTEGERS = {
    BinaryKind.ADD: lambda a, b, _: a + b,
    BinaryKind.SUB: lambda a, b, _: a - b,
    BinaryKind.MUL: lambda a, b, _: a * b,
    BinaryKind.FLOORDIV: lambda a, b, _: a // b if b else 0,
    BinaryKind.MOD: lambda a, b, _: a % b if b else 0,
    BinaryKind.AND: lambda a, b, _: a & b,
    BinaryKind.OR: lambda a, b, _: a | b,
    BinaryKind.XOR: lambda a, b, _: a ^ b,
    BinaryKind.SHL: lambda a, b, d: _shifted(a, b, d, left=True),
    BinaryKind.SHR: lambda a, b, d: _shifted(a, b, d, left=False),
}


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("kind", ON_INTEGERS, ids=lambda k: k.value)
@FEW
@given(data=st.data())
def test_integers_are_pythons_wrapped(kind: BinaryKind, dtype: DType, data: st.DataObject) -> None:
    a = data.draw(integers_of(dtype))
    b = data.draw(integers_of(dtype) | st.integers(0, dtype.bits + 1))

    result = semantics.binary(kind, dtype, semantics.typed(a, dtype), semantics.typed(b, dtype))

    assert result.dtype == dtype.numpy
    assert wrapped(ON_INTEGERS[kind](a, b, dtype), dtype) == result


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=lambda d: d.short)
def test_integers_negate_and_invert(dtype: DType) -> None:
    values = exact.edges(dtype)

    assert [wrapped(-int(v), dtype) for v in values] == list(semantics.unary(UnaryKind.NEG, dtype, values))
    assert [wrapped(~int(v), dtype) for v in values] == list(semantics.unary(UnaryKind.NOT, dtype, values))


ON_FRACTIONS = {
    BinaryKind.ADD: lambda a, b: a + b,
    BinaryKind.SUB: lambda a, b: a - b,
    BinaryKind.MUL: lambda a, b: a * b,
    BinaryKind.DIV: lambda a, b: a / b,
}


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("kind", ON_FRACTIONS, ids=lambda k: k.value)
@FEW
@given(data=st.data())
def test_floats_are_rounded_once(kind: BinaryKind, dtype: DType, data: st.DataObject) -> None:
    """Also float16 and bfloat16, whose operation is one of float32, rounded again."""
    a, b = data.draw(numbers_of(dtype)), data.draw(numbers_of(dtype))
    if not (math.isfinite(a) and math.isfinite(b)) or (kind is BinaryKind.DIV and b == 0):
        return

    result = float(semantics.binary(kind, dtype, semantics.typed(a, dtype), semantics.typed(b, dtype)))

    assert exact.rounded(ON_FRACTIONS[kind](Fraction(a), Fraction(b)), dtype) == result


@pytest.mark.parametrize("dtype", [float32, float64, float16], ids=lambda d: d.short)
def test_float_floor_division_is_numpys(dtype: DType) -> None:
    a, b = (exact.samples(dtype, 2000, seed) for seed in (1, 2))
    with np.errstate(all="ignore"):
        quotient, rest = np.floor_divide(a, b), np.remainder(a, b)

    assert exact.same_numbers(quotient, semantics.binary(BinaryKind.FLOORDIV, dtype, a, b), dtype).all()
    assert exact.same_numbers(rest, semantics.binary(BinaryKind.MOD, dtype, a, b), dtype).all()


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda d: d.short)
def test_only_not_equal_holds_for_nan(dtype: DType) -> None:
    nan, one = semantics.typed(math.nan, dtype), semantics.typed(1.0, dtype)

    held = {
        k for k in CompareKind for pair in ((nan, nan), (nan, one), (one, nan)) if semantics.compare(k, dtype, *pair)
    }

    assert {CompareKind.NE} == held


@pytest.mark.parametrize("source", INTEGER_DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("target", FLOATS, ids=lambda d: d.short)
@FEW
@given(data=st.data())
def test_integer_to_float_rounds_once(source: DType, target: DType, data: st.DataObject) -> None:
    value = data.draw(integers_of(source) | st.integers(0, source.bits - 2).map(lambda n: (1 << n) + 1))

    result = float(semantics.cast(semantics.typed(value, source), source, target))

    assert repr(exact.rounded(Fraction(value), target)).lstrip("-") == repr(result).lstrip("-")
    assert math.isnan(result) or (value < 0) == (result < 0)


@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.short)
@pytest.mark.parametrize("target", FLOATS, ids=lambda d: d.short)
@FEW
@given(data=st.data())
def test_float_to_float_rounds_once(source: DType, target: DType, data: st.DataObject) -> None:
    value = data.draw(numbers_of(source))

    result = float(semantics.cast(semantics.typed(value, source), source, target))

    if math.isfinite(value):
        expected = exact.rounded(Fraction(value), target)
        assert expected == result or (math.isnan(expected) and math.isnan(result))
        assert math.copysign(1, value) == math.copysign(1, result) or math.isnan(result)
    elif math.isinf(value) and target.name != "float8_e4m3fn":
        assert value == result
    else:
        assert math.isnan(result)


@pytest.mark.parametrize("target", [float16, bfloat16], ids=lambda d: d.short)
@FEW
@given(upper=st.integers(0, (1 << 15) - 1), tilt=st.sampled_from([-(2**-40), 0.0, 2**-40]))
def test_float64_beside_a_tie_is_not_rounded_twice(target: DType, upper: int, tilt: float) -> None:
    """Just off the middle of two neighbours, where going through float32 would land on the tie."""
    with np.errstate(invalid="ignore"):
        low, high = np.array([upper, upper + 1], dtype=np.uint16).view(target.numpy).astype(np.float64)
    if not (math.isfinite(low) and math.isfinite(high)):
        return
    value = (low + high) / 2 + (high - low) * tilt

    assert exact.rounded(Fraction(value), target) == float(semantics.cast(np.float64(value), float64, target))


@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.short)
@pytest.mark.parametrize("target", INTEGER_DTYPES, ids=lambda d: d.short)
@FEW
@given(data=st.data())
def test_float_to_integer_saturates(source: DType, target: DType, data: st.DataObject) -> None:
    near = st.sampled_from([target.min, target.max]).map(float) | st.floats(-300, 300)
    value = float(semantics.round_to(data.draw(numbers_of(source) | near), source))

    result = semantics.cast(semantics.typed(value, source), source, target)

    if math.isfinite(value):
        expected = min(max(int(value), target.min), target.max)
    else:
        expected = 0 if math.isnan(value) else (target.max if value > 0 else target.min)
    assert expected == result


@pytest.mark.parametrize("source", INTEGER_DTYPES, ids=lambda d: d.short)
def test_integer_to_integer_keeps_the_low_bits(source: DType) -> None:
    values = exact.edges(source)
    for target in INTEGER_DTYPES:
        kept = [int(v) for v in semantics.cast(values, source, target)]
        assert [wrapped(int(v), target) for v in values] == kept, target


def test_scalars_stay_scalars_and_arrays_arrays() -> None:
    for source, target in itertools.product(ALL_DTYPES, ALL_DTYPES):
        one = semantics.typed(1, source)
        array = np.array([0, 1]).astype(source.numpy)

        scalar, zero_d, many = (semantics.cast(v, source, target) for v in (one, np.asarray(one), array))

        assert (np.ndarray, (), np.ndarray, (2,)) == (type(zero_d), zero_d.shape, type(many), many.shape)
        assert target.numpy == scalar.dtype == zero_d.dtype == many.dtype, (source, target)
        assert not isinstance(scalar, np.ndarray)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.short)
@FEW
@given(value=st.integers() | st.floats() | st.booleans() | st.integers(-300, 300))
def test_round_to_gives_a_payload_that_stays(dtype: DType, value: Any) -> None:
    payload = semantics.round_to(value, dtype)

    assert type(payload) is {"bool": bool, "int": int, "uint": int, "float": float}[dtype.kind]
    assert repr(payload) == repr(semantics.round_to(payload, dtype))
    assert repr(payload) == repr(semantics.to_python(semantics.typed(payload, dtype), dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.short)
@FEW
@given(value=st.integers(-(2**1100), 2**1100) | st.integers(-(2**70), 2**70))
def test_round_to_reads_an_integer_exactly(dtype: DType, value: int) -> None:
    """A literal of any size, and no way through float64."""
    expected, actual = exact.rounded(Fraction(value), dtype), semantics.round_to(value, dtype)

    assert expected == actual or (math.isnan(expected) and math.isnan(actual))


def test_examples_of_the_module() -> None:
    assert -4 == semantics.binary(BinaryKind.FLOORDIV, int32, np.int32(-7), np.int32(2))
    assert int32.max == semantics.cast(np.float32(3e9), float32, int32)
    assert (44, -1, 0) == (
        semantics.round_to(300, uint8),
        semantics.binary(BinaryKind.SHR, int8, np.int8(-1), np.int8(100)),
        semantics.binary(BinaryKind.MOD, int64, np.int64(int64.min), np.int64(-1)),
    )
    assert uint64.max == semantics.cast(np.float64(1e30), float64, uint64)
