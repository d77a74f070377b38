"""`int`, `float` and `round` of numbers: Python's own of what is known, one documented dtype at run time (R5)."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES, ARITHMETIC_DTYPES

TARGETS = ("interp", "cpu")


def launch(target, kernel, *args, at=(1, 1), **constexprs):
    sk.compile(kernel.specialize(**constexprs), target)[at](*args)


@sk.jit
def static_types(V: sk.constexpr, WANTED: sk.constexpr):
    found = (int(V), float(V))
    sk.static_assert(type(found[0]) is int and type(found[1]) is float)
    sk.static_assert(found == WANTED)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_of_a_typed_number_that_is_known_int_and_float_are_pythons(dtype):
    numbers = [0, 1] if dtype is sk.bool_ else [3, -2.5, 448.0] if dtype.is_float else [dtype.min, 7, dtype.max]
    for number in numbers:
        value = dtype(number)
        static_types.specialize(V=value, WANTED=(int(value), float(value)))[1, 1]()


@sk.jit
def rounded(V: sk.constexpr, WANTED: sk.constexpr, DIGITS: sk.constexpr):
    found = round(V) if DIGITS is None else round(V, DIGITS)
    sk.static_assert(type(found) is type(WANTED) and found == WANTED)


@pytest.mark.parametrize("value", [np.float32(2.5), np.float16(-3.7), np.float64(1e10), np.uint8(250), np.int64(2**62)])
@pytest.mark.parametrize("digits", [None, 0, 1])
def test_round_of_a_typed_number_that_is_known_is_pythons(value, digits):
    wanted = round(value) if digits is None else round(value, digits)

    rounded.specialize(V=value, WANTED=wanted, DIGITS=digits)[1, 1]()


@pytest.mark.parametrize("value", [np.float32("nan"), np.float16("inf"), ml_dtypes.bfloat16("-inf")])
def test_int_of_what_is_no_number_is_refused_as_in_python(value):
    with pytest.raises(sk.StagingError, match="cannot convert float") as caught:
        static_types[1, 1](value, (0, 0.0))

    assert caught.value.id == "STATIC_FAILURE"


@pytest.mark.parametrize("arguments", [("12",), ("ff", 16), ("0x1f", 0), (np.str_("7"),), (np.str_("z"), 36)])
def test_int_of_a_text_is_pythons(arguments):
    @sk.jit
    def kernel(A: sk.constexpr, WANTED: sk.constexpr):
        sk.static_assert(type(int(*A)) is int and int(*A) == WANTED)

    kernel[1, 1](arguments, int(*arguments))


@sk.jit
def run_time_types(out, A, INT: sk.constexpr, FLOAT: sk.constexpr):
    x = A[0]
    sk.static_assert(int(x).dtype is INT)
    sk.static_assert(round(x).dtype is INT)
    sk.static_assert(float(x).dtype is FLOAT)
    out[0] = int(x)


@pytest.mark.parametrize("dtype", ARITHMETIC_DTYPES, ids=lambda d: d.name)
def test_at_run_time_int_and_float_have_one_dtype_for_each(dtype):
    small = (sk.bool_, sk.int8, sk.int16, sk.int32, sk.uint8, sk.uint16)
    whole = sk.int32 if dtype in small else dtype if dtype is sk.uint64 else sk.int64
    real = sk.float64 if dtype is sk.float64 else sk.float32

    for target in TARGETS:
        out = np.zeros(1, whole.numpy)
        launch(target, run_time_types, out, np.ones(1, dtype.numpy), INT=whole, FLOAT=real)
        assert out[0] == 1


# -- the examples, and their kind -----------------------------------------------------------------------------------------


@sk.jit
def absolute_difference(out, a, b):
    out[0] = abs(int(a[0]) - int(b[0]))


@sk.jit
def thousandfold(out, x):
    out[0] = int(x) * 1000


@sk.jit
def five_less(out, V: sk.constexpr):
    out[0] = int(V) - 5


@sk.jit
def trips(out, C: sk.constexpr):
    out[0] = 0
    for _ in range(int(C) - 1):
        out[0] += 1


def test_the_difference_of_small_unsigned_numbers_is_pythons():
    for target in TARGETS:
        out = np.zeros(4, np.int64)
        launch(target, absolute_difference, out, np.array([3], np.uint8), np.array([250], np.uint8))
        launch(target, thousandfold, out[1:], np.int8(100))
        launch(target, five_less, out[2:], V=np.uint8(3))
        launch(target, trips, out[3:], C=np.uint8(0))

        assert out.tolist() == [247, 100_000, -2, 0]


SMALL = [d for d in ARITHMETIC_DTYPES if d.is_integer and d.bits <= 16]


@sk.jit
def sums(out, a, b):
    x, y = int(a[0]), int(b[0])
    out[0] = x - y
    out[1] = abs(x - y)
    out[2] = x * y // 7
    out[3] = round(a[0]) - y


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_arithmetic_on_int_of_small_integers_is_pythons(data):
    one, other = data.draw(st.sampled_from(SMALL)), data.draw(st.sampled_from(SMALL))
    a, b = (data.draw(st.integers(max(d.min, -30000), min(d.max, 30000))) for d in (one, other))

    for target in TARGETS:
        out = np.zeros(4, np.int64)
        launch(target, sums, out, np.array([a], one.numpy), np.array([b], other.numpy))
        assert out.tolist() == [a - b, abs(a - b), a * b // 7, a - b]


@sk.jit
def whole_parts(out, A):
    i = sk.cuda.thread_idx("x")
    out[i] = int(A[i])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([np.float16, np.float32, np.float64, ml_dtypes.bfloat16]), st.lists(st.floats(), min_size=1))
def test_int_of_floats_cuts_and_saturates(dtype, numbers):
    with np.errstate(all="ignore"):
        values = np.array(numbers).astype(dtype)

    for target in TARGETS:
        out = np.zeros(len(values), np.int64)
        launch(target, whole_parts, out, values, at=(1, min(len(values), 1024)))
        assert out.tolist() == [whole(float(v)) for v in values]


def whole(value: float) -> int:
    """Python's `int` where int64 holds it; what is beyond saturates, and NaN gives 0."""
    if math.isnan(value):
        return 0
    return int(max(min(value, 2**63 - 1), -(2**63))) if abs(value) < 2**63 else (2**63 - 1 if value > 0 else -(2**63))


# -- the sanitizer --------------------------------------------------------------------------------------------------------


@sk.jit
def as_float(out, x):
    out[0] = float(x)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([d for d in ARITHMETIC_DTYPES if d.is_integer and d.bits >= 32]), st.data())
def test_an_integer_that_float_rounds_is_found_and_no_other(dtype, data):
    near = st.integers(-4, 4).flatmap(lambda k: st.integers(20, 63).map(lambda e: 2**e + k))
    value = data.draw((near | near.map(lambda v: -v) | st.integers(dtype.min, dtype.max)).filter(dtype.holds))

    watch = sk.sanitize(as_float, collect=True)
    watch[1, 1](np.zeros(1, np.float32), dtype(value))

    is_held = int(np.float32(value)) == value
    assert [f.id for f in watch.report.findings] == ([] if is_held else ["INTEGER_ROUNDED"])
