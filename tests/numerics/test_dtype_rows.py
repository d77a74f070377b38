"""The row of a dtype says what NumPy, ml_dtypes and DLPack say of it; what a new row lacks is named here."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES, DType, number_as
from stagekit.native_tables import dlpack_dtype
from tests.numerics import exact

FLOATS = [dtype for dtype in ALL_DTYPES if dtype.is_float]
DOCS = Path(__file__).parents[2] / "docs"
by_name = {"ids": lambda dtype: dtype.name}


@pytest.mark.parametrize("dtype", ALL_DTYPES, **by_name)
def test_a_dtype_is_public(dtype: DType) -> None:
    assert getattr(sk, dtype.name, None) is dtype, f"`stagekit/__init__.py` does not export {dtype.name}"
    assert dtype.name in sk.__all__


@pytest.mark.parametrize("dtype", ALL_DTYPES, **by_name)
def test_a_dtype_has_its_row_in_the_docs(dtype: DType) -> None:
    table = (DOCS / "language.md").read_text(encoding="utf-8")

    assert f"`{dtype.name}`" in table or dtype is sk.bool_, (
        f"{dtype.name} is missing in the table of dtypes of docs/language.md"
    )


def test_numbers_of_dlpack_tell_dtypes_apart() -> None:
    codes = [dlpack_dtype(dtype) for dtype in ALL_DTYPES]

    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("dtype", FLOATS, **by_name)
@given(
    number=st.floats(allow_nan=False, allow_infinity=False) | st.floats(-500, 500) | st.integers(-(2**63), 2**63 - 1)
)
@example(1.8789062500017089)  # a bfloat16 would lose the last bits in a float32, and then tie
@example(2**62 + 2**54 + 1)
@settings(deadline=None)
def test_a_dtype_called_outside_a_kernel_rounds_once(dtype: DType, number: float) -> None:
    """As in a kernel; alone and in an array."""
    expected = exact.rounded(Fraction(number), dtype)

    for got in (dtype(number), dtype(np.array([number]))[0]):
        assert float(got) == expected or (np.isnan(float(got)) and np.isnan(expected))


@pytest.mark.parametrize("dtype", FLOATS, **by_name)
def test_the_layout_of_a_float_is_the_one_of_its_numbers(dtype: DType) -> None:
    layout, limits = dtype.layout, ml_dtypes.finfo(dtype.numpy)
    bits = np.dtype(f"uint{dtype.bits}")

    def number(code: int) -> np.generic:
        return np.array(code, bits).view(dtype.numpy)[()]

    assert layout.fraction_bits == limits.nmant
    assert number(1 << layout.fraction_bits) == limits.smallest_normal
    assert number(layout.bias << layout.fraction_bits) == 1
    assert number(layout.overflow - 1) == limits.max
    assert np.isnan(number(layout.nan))
    assert np.isinf(number(layout.infinity)) == layout.has_infinity


@pytest.mark.parametrize("dtype", [dtype for dtype in FLOATS if dtype.bits <= 16], **by_name)
def test_a_format_rounds_and_spells_numbers_as_numpy_and_ml_dtypes_do(dtype: DType) -> None:
    """All numbers of the format, the middles between neighbours, and what is next to these."""
    layout, codes = dtype.layout, np.arange(1 << dtype.bits).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        numbers = codes.view(dtype.numpy).astype(np.float64)
    ordered = np.unique(numbers[np.isfinite(numbers)])
    middles = (ordered[1:] + ordered[:-1]) / 2
    beyond = np.array([ordered[-1] * 1.01, ordered[-1] * 1.1, 1e300, 5e-324, 0.0, -0.0, np.inf, np.nan])
    asked = np.concatenate([ordered, middles, np.nextafter(middles, 1e9), np.nextafter(middles, -1e9), beyond, -beyond])
    if len(asked) > 20_000:
        asked = np.concatenate([asked[:: len(asked) // 20_000], beyond, -beyond])

    for number in asked.tolist():
        expected, nearest = number_as(number, dtype.numpy), layout.nearest(number)
        np.testing.assert_equal(nearest, float(expected))
        if not np.isnan(nearest):
            assert layout.bits(nearest) == expected.view(codes.dtype), number
