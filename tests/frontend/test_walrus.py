"""A walrus that a condition may not reach: its variable is there wherever the condition says that it was reached."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontend.agreement import agree, refuse


def f(x):
    return x * 2 - 3


def behind_and(n):
    s = 0
    if n > 1 and (y := f(n)) > 2:
        s = y
    return s


def behind_two_ands(n):
    s = 0
    if n > 1 and (y := f(n)) > 2 and (z := y + n) < 100:
        s = y * z
    return s


def behind_or(n):
    s = 0
    if n < 0 or (y := f(n)) > 20:
        s = 1
    else:
        s = y
    return s


def negated(n):
    if not (n > 1 and (y := f(n)) > 2):
        return -1
    else:
        return y


def in_a_ternary(n):
    return y if n > 1 and (y := f(n)) > 2 else -1


def in_a_ternary_with_or(n):
    return -1 if n < 1 or (y := f(n)) < 2 else y


def in_a_loops_test(n):
    i = 0
    s = 0
    while i < n and (x := i * i) < 20:
        s += x
        i += 1
    return s


def in_the_test_of_a_loop_that_breaks(n):
    i = 0
    s = 0
    while i < n and (x := i * i) < 20:
        s += x
        i += 1
        if s > 5:
            break
    return s


def in_a_negated_test(n):
    i = 0
    s = 0
    while not (i >= n or (x := i * i) > 20):
        s += x
        i += 1
    return s


def nested(n):
    s = 0
    if n > 0 and (n > 1 and (y := f(n)) > 2):
        s = y
    return s


def nested_in_or(n):
    s = 0
    if n > 0 and (n > 10 or (y := f(n)) > 2):
        s = 1
    return s


def in_a_chain(n):
    return y if 0 < (y := n - 1) < 5 else -y


def defined_before(n):
    y = 7
    if n > 1 and (y := f(n)) > 2:
        return y
    return y


def in_an_elif(n):
    if n > 5 and (y := f(n)) > 2:
        return y
    elif n > 1 and (z := n + 1) > 2:
        return z
    return 0


def of_a_tuple(n):
    if n > 1 and (p := (n, f(n)))[1] > 2:
        return p[0] + p[1]
    return 0


def of_a_literal(n):
    if n > 1 and (y := 5):
        return y
    return 0


def in_front(n):
    if (y := f(n)) > 2 and n > 1:
        return y
    return y + 1


def in_a_guard(n):
    match n:
        case 3 if n > 0 and (y := n) > 1:
            return y
        case _:
            return 0


PROGRAMS = [
    behind_and,
    behind_two_ands,
    behind_or,
    negated,
    in_a_ternary,
    in_a_ternary_with_or,
    in_a_loops_test,
    in_the_test_of_a_loop_that_breaks,
    in_a_negated_test,
    nested,
    nested_in_or,
    in_a_chain,
    defined_before,
    in_an_elif,
    of_a_tuple,
    of_a_literal,
    in_front,
    in_a_guard,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_what_a_walrus_assigned_is_found(program):
    for n in (-1, 0, 1, 3, 9, 12):
        agree(program, n)


@settings(max_examples=12, deadline=None)
@given(st.integers(-4, 9), st.integers(-4, 9), st.integers(-4, 9))
def test_conditions_of_several_walruses(a, b, c):
    def program(a, b, c):
        total, i = 0, 0
        if a > b and ((x := a * b) > c or (y := b - c) > 0):
            total += x
        if a < b or not ((z := a - b) < c and (w := z * 2) < 9):
            total += 5
        else:
            total += z + w
        while i < 6 and (v := i * a) < c and (u := v + b) < 8:
            total += v - u
            i += 1
        return total, i

    agree(program, a, b, c)


def used_after_the_branch(n):
    if n > 1 and (y := f(n)) > 2:
        pass
    return y


def used_where_it_was_not_reached(n):
    if n > 1 or (y := f(n)) > 2:
        return y
    return 1


def used_after_the_loop(n):
    i = 0
    while i < n and (x := i * i) < 20:
        i += 1
    return x


@pytest.mark.parametrize("program", [used_after_the_branch, used_where_it_was_not_reached, used_after_the_loop])
def test_where_it_may_not_have_been_reached_it_has_no_value(program):
    assert refuse(program, 3).id == "MAYBE_UNDEFINED"
