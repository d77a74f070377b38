"""What the fuzzers have found, each for its whole kind; the programs themselves are in the corpus."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagekit as sk


@sk.jit
def rotate(out, rounds, N: sk.constexpr):
    """What is new moves on by one variable in each iteration; the loop's body must be traced as often."""
    values = [0] * N
    for i in range(rounds):
        for k in sk.static_range(N - 1, 0, -1):
            values[k] = values[k - 1]
        values[0] = i + 1
    for k in sk.static_range(N):
        out[k] = values[k]


@pytest.mark.parametrize("length", [1, 2, 11, 12, 13, 40])
def test_a_loop_settles_however_many_variables_change_one_after_the_other(length: int) -> None:
    out = np.full(length, -1, np.int64)

    rotate[1, 1](out, 50, N=length)

    np.testing.assert_array_equal(out, 50 - np.arange(length))


@sk.jit
def widen(out, rounds, x, N: sk.constexpr):
    """Every variable meets a wider type at a `continue` of its own."""
    values = [0] * N
    for i in range(rounds):
        for k in sk.static_range(N):
            if i % N == k:
                values[k] = values[k] + x
                continue
    for k in sk.static_range(N):
        out[k] = values[k]


@pytest.mark.parametrize("length", [1, 13, 30])
def test_a_loop_settles_however_many_variables_widen(length: int) -> None:
    out = np.full(length, -1, np.float64)

    widen[1, 1](out, 2 * length, np.float64(0.5), N=length)

    np.testing.assert_array_equal(out, 1.0)


def three_loops(out, n):
    """The one in the middle is left early; what the inner one leaves in `i` is nobody's business."""
    total = n * 0
    for i in range(3):
        total += i
        for turn in range(9):
            if turn >= n:
                break
            for i in range(n & 3):
                total += i
    out[0] = total


def read_afterwards(out, n):
    for i in range(3):
        for turn in range(9):
            if turn >= n:
                break
            for i in range(n & 3):
                out[0] = i
        out[0] += i


@pytest.mark.parametrize("function", [three_loops, read_afterwards])
@pytest.mark.parametrize("n", [0, 1, 5, 7])
def test_an_inner_loop_over_the_same_name_stays_in_a_loop_that_is_left_early(function: Any, n: int) -> None:
    out, expected = np.full(1, -1, np.int64), np.full(1, -1, np.int64)

    function(expected, n)
    sk.jit(function)[1, 1](out, np.int64(n))

    np.testing.assert_array_equal(out, expected)


@sk.jit
def seen_by_a_closure(out, n):
    i = n

    def inner():
        nonlocal i
        for i in range(n):
            out[0] = i

    inner()
    out[0] += i


def test_a_loop_variable_of_the_function_around_is_seen_there() -> None:
    out = np.full(1, -1, np.int64)

    seen_by_a_closure[1, 1](out, np.int64(4))

    assert 6 == out[0]


def own_range(out, n):
    """The range of the inner loop reads what the inner loop left behind."""
    swaps = 0
    for i in range(n):
        for _ in (1, 2):
            for i in range(1, i, -1):  # noqa: B007, B020
                swaps += 1
    out[0] = swaps


@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_range_that_reads_its_own_loop_variable(n: int) -> None:
    out, expected = np.full(1, -1, np.int64), np.full(1, -1, np.int64)

    own_range(expected, n)
    sk.jit(own_range)[1, 1](out, np.int64(n))

    np.testing.assert_array_equal(out, expected)


def back_to_the_start(out, n):
    """What the test assigns is seen in the body, though every iteration ends as it began."""
    seen, v = 0, 2
    while seen < n and (v := seen + 5):
        seen += v
        v = 2
    out[0], out[1] = seen, v


@pytest.mark.parametrize("n", [-1, 0, 1, 30])
def test_a_variable_that_a_loop_test_assigns_and_the_body_puts_back(n: int) -> None:
    out, expected = np.full(2, -1, np.int64), np.full(2, -1, np.int64)

    back_to_the_start(expected, n)
    sk.jit(back_to_the_start)[1, 1](out, np.int64(n))

    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.int64])
@pytest.mark.parametrize("length", [2, 3, 5, 7])
def test_converted_keys_of_few_elements_are_sorted(dtype: Any, length: int) -> None:
    """On some processors LLVM could select no machine code for interleaved halves of 64 bits, and ended the process."""

    @sk.jit(threads=16)
    def order(x, out):
        i = sk.arange(0, length)
        sk.store(out + i, sk.argsort(sk.float32(sk.load(x + i))))

    x, out = (np.arange(length) % 2 == 0).astype(dtype), np.zeros(length, np.int64)
    order[1,](x, out)

    np.testing.assert_array_equal(out, np.argsort(x, kind="stable"))
