"""Arithmetic: indices that overflow, division by zero, shifts, NaN, integers that `float` rounds."""

from __future__ import annotations

import math

import numpy as np

import stagekit as sk

from .table import clean, fault, ints, thread, zeros


@fault(
    "INDEX_OVERFLOW",
    "does not fit int32",
    (1, 1),
    {"A": zeros(4), "row": 319, "stride": 7864320},
    also=["OUT_OF_BOUNDS"],
)
def index_that_wraps_in_a_product(A, row, stride):
    A[row * stride] = 1.0


@clean((1, 1), {"A": zeros(4), "row": np.int64(319), "stride": np.int64(7864320)})
def an_index_in_64_bits(A, row, stride):
    if row * stride < 4:
        A[row * stride] = 1.0


@fault(
    "INDEX_OVERFLOW",
    "does not fit int32",
    (1, 1),
    {"A": zeros(4), "start": 2**31 - 1, "step": 2},
    also=["OUT_OF_BOUNDS"],
)
def index_that_wraps_in_a_sum(A, start, step):
    A[start + step] = 1.0


@fault(
    "INDEX_OVERFLOW",
    "does not fit int32",
    (1, 1),
    {"A": zeros(4), "start": -(2**31), "step": 2},
    also=["OUT_OF_BOUNDS"],
)
def index_that_wraps_in_a_difference(A, start, step):
    A[start - step] = 1.0


@fault(
    "INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "far": np.int64(2**32 + 1)}, also=["OUT_OF_BOUNDS"]
)
def index_cut_to_32_bits(A, far):
    A[far.to(sk.int32)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit", (1, 1), {"A": zeros(4), "n": np.int64(2**32)}, also=["OUT_OF_BOUNDS"])
def index_that_wraps_in_64_bits(A, n):
    A[n * n] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int8", (1, 20), {"A": zeros(256), "step": np.int8(10)}, also=["OUT_OF_BOUNDS"])
def index_in_a_narrow_dtype(A, step):
    A[thread("x").to(sk.int8) * step + step] = 1.0


@fault("DIVISION_BY_ZERO", "// 0 gives 0 here", (1, 8), {"out": ints(8)})
def floor_division_by_a_thread_number(out):
    i = thread("x")
    out[i] = 60 // i


@fault("DIVISION_BY_ZERO", "% 0 gives 0 here", (1, 1), {"out": ints(1), "n": 0})
def remainder_by_an_argument(out, n):
    out[0] = 7 % n


@fault("DIVISION_BY_ZERO", "0 gives 0 here", (1, 1), {"out": ints(2), "n": 0})
def divmod_by_an_argument(out, n):
    out[0], out[1] = divmod(7, n)


@clean((1, 8), {"out": ints(8)})
def a_division_behind_its_guard(out):
    i = thread("x")
    out[i] = 60 // i if i != 0 else 0
    if i > 0 and 60 % i == 0:
        out[i] += 1


@fault("SHIFT_OUT_OF_RANGE", "shift of int32 by 32", (1, 1), {"out": ints(1), "n": 32})
def shift_by_the_width(out, n):
    out[0] = sk.int32(1) << n


@fault("SHIFT_OUT_OF_RANGE", "shift of int32 by -1", (1, 1), {"out": ints(1), "n": -1})
def shift_by_a_negative_amount(out, n):
    out[0] = sk.int32(8) >> n


@fault("SHIFT_OUT_OF_RANGE", "shift of uint8 by", (1, 16), {"out": zeros(16, dtype=np.uint8)})
def shift_of_a_narrow_dtype(out):
    i = thread("x").to(sk.uint8)
    out[thread("x")] = sk.uint8(1) << i


@fault("NAN_PRODUCED", "is NaN", (1, 1), {"out": zeros(1), "x": 0.0})
def zero_by_zero(out, x):
    out[0] = x / x


@fault("NAN_PRODUCED", "is NaN", (1, 1), {"out": zeros(1), "x": math.inf})
def difference_of_infinities(out, x):
    out[0] = x - x


@fault("NAN_PRODUCED", "is NaN", (1, 1), {"out": zeros(1), "x": math.inf})
def infinity_times_zero(out, x):
    out[0] = x * 0.0


@fault("NAN_PRODUCED", "sqrt of", (1, 4), {"out": zeros(4)})
def root_of_a_negative_number(out):
    i = thread("x")
    out[i] = math.sqrt(1.5 - i)


@fault("NAN_PRODUCED", "log of", (1, 1), {"out": zeros(1), "x": -1.0})
def logarithm_of_a_negative_number(out, x):
    out[0] = sk.log(x)


@fault("NAN_PRODUCED", "is NaN", 1, {"A": np.full(8, -np.inf, np.float32), "BLOCK": 8})
def softmax_of_a_masked_row(A, BLOCK: sk.constexpr):
    """Every element is -inf: the largest is, too, and -inf - -inf is NaN."""
    i = sk.arange(0, BLOCK)
    x = sk.load(A + i)
    e = sk.exp(x - sk.reduce_max(x))
    sk.store(A + i, e / sk.reduce_sum(e))


@clean((1, 4), {"A": np.full(4, np.nan, np.float32)})
def nan_that_was_there_before(A):
    i = thread("x")
    A[i] = sk.exp(A[i] + 1.0)


@fault("INTEGER_ROUNDED", "16777217 becomes 16777216", (1, 1), {"A": zeros(4), "n": 2**24 + 1})
def float_of_an_integer_with_25_bits(A, n):
    A[0] = float(n)


@clean((1, 1), {"A": zeros(4), "n": -(2**25)})
def integers_that_float_holds_or_that_are_rounded_by_name(A, n):
    A[0] = float(n)
    A[1] = sk.float32(n + 1)
    if n > 0:
        A[2] = float(n + 1)
