"""Values that are wrong in lanes that do not use them, and in lanes that do: uses under conditions, in nested bodies."""

from __future__ import annotations

import math

import numpy as np

import stagekit as sk

from .table import clean, fault, ints, thread, zeros

FAR = 2**31 - 8  # 8 more wrap
NUMBERS = np.array([4, 1, 0, -1], np.float32)


@clean((1, 16), {"A": zeros(16), "start": FAR, "n": 8})
def an_index_that_is_used_under_its_guard(A, start, n):
    i = thread("x").to(sk.int32)
    at = start + i
    if i < n:
        A[at - FAR] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 16), {"A": zeros(16), "start": FAR, "n": 9}, also=["OUT_OF_BOUNDS"])
def index_whose_guard_is_off_by_one(A, start, n):
    i = thread("x").to(sk.int32)
    at = start + i
    if i < n:
        A[at // 1] = 1.0 if at > 0 else 2.0


@clean((1, 4), {"A": zeros(4), "row": 70_000, "n": 4})
def an_index_behind_an_early_return(A, row, n):
    i = thread("x").to(sk.int32)
    at = row * row * i
    if i > 0:
        return
    A[at] = 1.0


@clean((1, 4), {"A": zeros(4), "row": 70_000})
def an_index_in_a_loop_that_does_not_run(A, row):
    i = thread("x").to(sk.int32)
    at = row * (row * i)
    for k in range(i, 1):
        A[at + k] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 4), {"A": zeros(4), "row": 70_000}, also=["OUT_OF_BOUNDS"])
def index_in_a_loop_that_runs_once(A, row):
    i = thread("x").to(sk.int32)
    at = row * (row * i)
    for k in range(i, 2):
        A[at + k] = 1.0


@clean((1, 4), {"A": zeros(4), "row": 70_000})
def an_index_in_a_while_that_all_but_one_skip(A, row):
    i = thread("x").to(sk.int32)
    at, left = row * (row * i), i
    while left < 1:
        A[at] = 1.0
        left += 1


@clean((1, 4), {"A": zeros(4), "out": zeros(4), "row": 70_000}, outputs=["out"])
def an_index_of_one_arm(A, out, row):
    i = thread("x").to(sk.int32)
    at = row * (row * i)
    out[i] = A[at] if i == 0 else 0.0


@clean(1, {"A": zeros(8), "step": 2**29, "n": 4, "BLOCK": 8})
def tile_offsets_under_the_mask_of_the_store(A, step, n, BLOCK: sk.constexpr):
    j = sk.arange(0, BLOCK)
    at = (j.to(sk.int32) * step) // step
    sk.store(A + at, 1.0, mask=j < n)


@clean((1, 1), {"A": zeros(4), "out": ints(1), "row": 70_000}, outputs=["out"])
def a_product_that_is_data(A, out, row):
    """What wraps is stored; the index is another."""
    at = row * row
    out[0] = at
    if at == 4:
        A[at] = 1.0


@clean((1, 4), {"A": zeros(4), "x": np.uint32(0)})
def a_bound_check_in_unsigned(A, x):
    """0 - 1 is more than any bound."""
    at = x + thread("x").to(sk.uint32) - np.uint32(1)
    if at < np.uint32(3):
        A[at] = 1.0


# -- NaN --------------------------------------------------------------------------------------------------------------


@clean((1, 4), {"x": NUMBERS, "out": zeros(4)})
def a_root_that_is_stored_under_its_guard(x, out):
    i = thread("x")
    root = math.sqrt(x[i])
    if x[i] >= 0:
        out[i] = root


@fault("NAN_PRODUCED", "sqrt of (-1.0)", (1, 4), {"x": NUMBERS, "out": zeros(4)})
def root_under_a_guard_that_lets_it_through(x, out):
    i = thread("x")
    root = math.sqrt(x[i])
    if x[i] != 0:
        out[i] = root


@clean((1, 4), {"x": NUMBERS, "out": zeros(4)})
def a_quotient_in_two_nested_guards(x, out):
    i = thread("x")
    share = x[i] / (x[i] * x[i] * 0.0 if x[i] < 0 else x[i])
    logarithm = sk.log(x[i])
    if i < 3:
        out[i] = 0.0
        if x[i] > 0:
            out[i] = share + logarithm


@fault("NAN_PRODUCED", "log of", (1, 4), {"x": NUMBERS, "out": zeros(4)})
def logarithm_in_the_inner_of_two_guards(x, out):
    i = thread("x")
    logarithm = sk.log(x[i])
    if i > 1:
        out[i] = 0.0
        if x[i] != 0:
            out[i] = logarithm


@clean((1, 4), {"x": NUMBERS, "out": zeros(4)}, outputs=["out"])
def a_mean_of_what_there_is(x, out):
    """0/0 where there is nothing, chosen away by a branch."""
    i = thread("x")
    count, total = sk.float32(0), sk.float32(0)
    for k in range(i):
        count += 1.0
        total += x[k]
    mean = total / count
    result = sk.float32(0)
    if count > 0:
        result = mean
    out[i] = result


@fault("NAN_PRODUCED", "div of (0.0, 0.0)", (1, 4), {"x": NUMBERS, "out": zeros(4)})
def mean_of_nothing_in_a_loop(x, out):
    i = thread("x")
    count, total = sk.float32(0), sk.float32(0)
    for k in range(i):
        count += 1.0
        total += x[k]
    mean = total / count
    for _ in range(2):
        out[i] += mean


@clean((1, 4), {"x": NUMBERS, "out": zeros(4)}, outputs=["out"])
def a_nan_that_is_looked_for(x, out):
    i = thread("x")
    root = math.sqrt(x[i])
    out[i] = 0.0 if root != root else root


@clean((1, 4), {"x": NUMBERS, "out": zeros(4)}, outputs=["out"])
def a_nan_that_is_asked_for(x, out):
    i = thread("x")
    root = math.sqrt(x[i])
    if math.isnan(root):
        root = 0.0
    out[i] = root if math.isfinite(root) else -1.0


@clean((1, 4), {"x": NUMBERS, "out": zeros(4)})
def a_root_in_a_loop_with_continue(x, out):
    for k in range(4):
        root = math.sqrt(x[k])
        if x[k] < 0:
            continue
        out[k] = root


# -- divisions and shifts ---------------------------------------------------------------------------------------------


@clean((1, 4), {"out": ints(4)})
def a_division_whose_quotient_is_used_elsewhere(out):
    i = thread("x").to(sk.int32)
    share, bit = 12 // i, sk.int32(1) << (i - 1)
    if i > 0:
        for _ in range(2):
            out[i] += share + bit


@fault("DIVISION_BY_ZERO", "12 // 0", (1, 4), {"out": ints(4)})
def division_whose_quotient_is_used_in_a_loop(out):
    i = thread("x").to(sk.int32)
    share = 12 // i
    if i < 2:
        for _ in range(2):
            out[i] += share


@fault("SHIFT_OUT_OF_RANGE", "by -1", (1, 4), {"out": ints(4)})
def shift_that_is_used_in_the_first_lane(out):
    i = thread("x").to(sk.int32)
    bit = sk.int32(1) << (i - 1)
    if i < 2:
        out[i] = bit
