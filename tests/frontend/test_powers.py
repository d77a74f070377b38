"""Integer powers of every dtype: known exponents and run-time ones give what NumPy gives, a negative one what `pow` gives."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import dtypes
from tests.frontend.agreement import agree, refuse


@sk.jit
def powers(out, bases, exponents):
    for i in range(len(out)):
        out[i] = bases[i] ** exponents[i]


@sk.jit
def folded(out, BASE: sk.constexpr, EXPONENT: sk.constexpr):
    out[0] = BASE**EXPONENT


def values(dtype):
    edges = [v for v in (0, 1, 2, 3, -1, -2, dtype.max, dtype.min, 10) if dtype.holds(v)]
    return st.lists(st.sampled_from(edges) | st.integers(dtype.min, dtype.max), min_size=8, max_size=8)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(dtypes.INTEGER_DTYPES), st.sampled_from(dtypes.INTEGER_DTYPES))
def test_a_run_time_exponent_gives_numpys_power(data, base_dtype, exponent_dtype):
    met = dtypes.promote(base_dtype, exponent_dtype)
    if met is None:
        return
    bases = np.array(data.draw(values(base_dtype)), base_dtype.numpy)
    exponents = np.array(data.draw(values(exponent_dtype)), exponent_dtype.numpy)
    is_negative = exponents < 0
    with np.errstate(all="ignore"):
        wanted = bases.astype(met.numpy) ** np.where(is_negative, 0, exponents).astype(met.numpy)
    inverse = np.where(exponents & 1, bases, 1) * np.isin(bases, (1, -1))  # 1 and -1 are their own inverses
    wanted = np.where(is_negative, inverse, wanted).astype(met.numpy)

    for target in ("interp", "cpu"):
        out = np.zeros(8, met.numpy)
        sk.compile(powers, target)[1, 1](out, bases, exponents)
        np.testing.assert_array_equal(out, wanted, err_msg=target)
    for base, exponent, result in zip(bases, exponents, wanted):
        if exponent >= 0:  # known at compile time
            out = np.zeros(1, met.numpy)
            sk.compile(folded.specialize(BASE=base, EXPONENT=exponent), "interp")[1, 1](out)
            assert out[0] == result


@settings(max_examples=30, deadline=None)
@given(st.integers(-6, 6), st.integers(0, 12))
def test_it_is_pythons_power_where_it_fits(base, exponent):
    agree(lambda a, b: (a**b, pow(a, b), 2**b, a**2, a**0, True**b), base, exponent)


def test_what_a_power_of_bools_is():
    agree(lambda a, b: ((a > 0) ** b, (a > 5) ** b, (a > 0) ** (b > 1), (a > 0) ** 0), 3, 2)


@pytest.mark.parametrize(
    "program", [lambda n: n**-1, lambda n: n ** np.int32(-2), lambda n: pow(n, -3), lambda n: sk.int8(2) ** sk.int8(-1)]
)
def test_a_negative_power_known_at_compile_time_is_refused(program):
    error = refuse(program, 3)

    assert error.id == "BAD_OPERANDS"
    assert "float" in error.diagnostic.help_text()
    assert "and a negative exponent, -" in str(error)


@sk.jit
def known_powers(out, x):
    for i in range(len(x)):
        out[i, 0], out[i, 1], out[i, 2] = x[i] ** -1, x[i] ** 2.0, x[i] ** 3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_small_known_powers_of_floats_are_products(dtype):
    x = np.array([0.0, -0.0, 1.5, -3.7, 1e-3, np.inf, -np.inf, np.nan], dtype)
    out = np.zeros((len(x), 3), dtype)

    for target in ("interp", "cpu"):
        sk.compile(known_powers, target)[1, 1](out, x)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out.T, [1 / x, x * x, x * x * x], err_msg=target)
    ptx = known_powers.specialize(out=sk.Tensor((None, 3), dtype), x=sk.Tensor((None,), dtype)).ptx
    assert not re.search("ex2|lg2", ptx)
