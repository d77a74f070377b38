"""Numbers as text: the fewest digits that tell them apart in their dtype, as NumPy shows them, the same on every target."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import dtypes
from stagekit.diagnostics import StagekitError


@sk.jit
def printed(a, VALUE: sk.constexpr, SPEC: sk.constexpr = None):
    x = a[0]
    print(f"{x:>12} {x:.12f} {x:e} {x}", x, VALUE, f"{VALUE}")


TARGETS = ("cpu", "interp")


def texts(kernel, *arguments, capsys):
    found = []
    for target in TARGETS:
        sk.compile(kernel, target)[1, 1](*arguments)
        found.append(capsys.readouterr().out)
    assert len(set(found)) == 1, "targets differ"
    return found[0]


@pytest.mark.parametrize("dtype", [sk.float16, sk.float32, sk.float64], ids=repr)
@pytest.mark.parametrize("number", [0.1, 1e10, 3.0, -0.0, 1 / 3, 65504.0, 1e-7, float("inf"), float("nan")])
def test_a_float_is_shown_as_numpy_shows_it(dtype, number, capsys):
    with np.errstate(all="ignore"):
        value = dtype.numpy.type(number)
    wanted = f"{float(value):.12f} {float(value):e}"

    text = texts(printed.specialize(VALUE=value), np.array([value]), capsys=capsys).split()

    assert text[1:3] == wanted.split()
    for shown in (text[0], *text[3:]):
        assert dtype.numpy.type(float(shown)) == value or number != number
        assert float(shown) == float(str(value)) or number != number


def test_a_float_literal_keeps_all_its_digits(capsys):
    assert texts(printed.specialize(VALUE=0.1), np.array([0.1]), capsys=capsys).split()[-1] == "0.1"


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32, allow_nan=False), st.sampled_from([d for d in dtypes.ALL_DTYPES if d.is_float]))
def test_the_text_round_trips_and_no_shorter_one_does(number, dtype):
    with np.errstate(all="ignore"):
        value = float(dtype.numpy.type(number))

    text = f"{dtypes.shown(value, dtype)}"

    assert float(dtype.numpy.type(float(text))) == value or value != value
    if dtype in (sk.float16, sk.float32) and np.isfinite(value):
        assert float(text) == float(str(dtype.numpy.type(value)))


def test_bfloat16_is_shown_like_the_others(capsys):
    value = ml_dtypes.bfloat16(0.1)

    text = texts(printed.specialize(VALUE=value), np.array([value]), capsys=capsys).split()

    assert [text[0], *text[3:]] == ["0.1"] * 5


@sk.jit
def joined(a):
    x = a[0]
    inner = f"<{x}>"
    print("{" + inner + "}", f"{inner}|{inner}", f"{'a'!r} {(1, 2)} {sk.int8(3)!s:>4}")
    assert x > 1, "x is " + f"{x}"


def test_texts_with_run_time_numbers_are_put_together(capsys):
    assert texts(joined, np.array([2.5], np.float32), capsys=capsys) == "{<2.5>} <2.5>|<2.5> 'a' (1, 2)    3\n"
    for target in TARGETS:
        with pytest.raises(AssertionError, match="x is 0.1"):
            sk.compile(joined, target)[1, 1](np.array([0.1], np.float32))


@pytest.mark.parametrize(
    "text",
    [lambda x: f"{[x]}", lambda x: f"{(x, 1)}", lambda x: f"{f'{x}':>9}", lambda x: f"{ {1: x} }"],
)
def test_what_has_no_digits_yet_is_not_shown_by_a_name_of_ours(text):
    @sk.jit
    def kernel(a):
        print(text(a[0]))

    with pytest.raises(StagekitError, match="one by one"):
        kernel[1, 1](np.zeros(1, np.int32))
