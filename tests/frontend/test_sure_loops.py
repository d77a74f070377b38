"""Loops that surely run (R12): what their body sets on every path is set after them, and what surely returns has returned."""

from __future__ import annotations

import pytest

from tests.frontend.agreement import agree, refuse


def set_before_the_break(n):
    i = 0
    while True:
        x = i * 2
        i += 1
        if i > n:
            break
    return x


def returned_out_of_an_endless_loop(n):
    i = 0
    while True:
        i += 1
        if i > n:
            return i * 3


def returned_or_left(n):
    while True:
        n += 1
        if n % 7 == 0:
            return n
        for j in range(4):
            if j + n > 9:
                return j
        if n > 100:
            break
    return -1


def a_constant_range(n):
    for i in range(3):
        t = i * n
    return t


def a_range_that_a_break_leaves(n):
    for i in range(3):
        for j in range(1, 4):
            t = i * n + j
            if t > 5:
                break
    return t


def set_again_by_the_else(n):
    for i in range(5):
        y = i * 2
        if y > n:
            break
    else:
        y = -1
    return y


def read_by_the_else(n):
    for i in range(3):
        y = i + n
        if y > 4:
            break
    else:
        return y * 10
    return y


def returned_in_the_first_iteration(n):
    for i in range(3):
        return i + n


def endless_loops_in_each_other(n):
    while True:
        n += 1
        while True:
            z = n * 2
            n += 3
            if n > 10:
                break
        if n > 20:
            break
    return z, n


def a_tuple_and_a_list(n):
    for i in range(2):
        a = b = i
        a, c = n, [i, n]
    return a + b + c[0] + c[1]


def continued_after_it_was_set(n):
    for i in range(4):
        last = i * n
        if i > n:
            continue
        n += 1
    return last, n


def in_a_branch(n):
    if n > 2:
        for i in range(2):
            v = i + n
    else:
        while True:
            v = n
            n += 1
            if n > 1:
                break
    return v


def widened_by_later_iterations(n):
    for i in range(3):
        if n > 1:
            w = n
        else:
            w = 2**33
        n += 1
    return w


SURE = [
    set_before_the_break,
    returned_out_of_an_endless_loop,
    returned_or_left,
    a_constant_range,
    a_range_that_a_break_leaves,
    set_again_by_the_else,
    read_by_the_else,
    returned_in_the_first_iteration,
    endless_loops_in_each_other,
    a_tuple_and_a_list,
    continued_after_it_was_set,
    in_a_branch,
    widened_by_later_iterations,
]


@pytest.mark.parametrize("program", SURE)
def test_no_path_leaves_it_without_a_value(program):
    for n in (0, 1, 3, 7):
        agree(program, n)


def may_run_no_iteration(n):
    for i in range(n):
        t = i
    return t


def left_before_it_is_set(n):
    while True:
        n += 1
        if n > 5:
            break
        t = n
    return t


def skipped_by_continue(n):
    for i in range(3):
        if i < n:
            continue
        t = i
    return t


def read_before_the_first_iteration_sets_it(n):
    for i in range(3):
        if i > n:
            n += t
        t = i
    return t


@pytest.mark.parametrize(
    "program",
    [may_run_no_iteration, left_before_it_is_set, skipped_by_continue, read_before_the_first_iteration_sets_it],
)
def test_what_a_path_leaves_unset_is_refused(program):
    assert refuse(program, 3).id in ("MAYBE_UNDEFINED", "UNBOUND_LOCAL")


def test_a_value_on_some_paths_out_of_a_loop_that_may_end_is_refused():
    def found(n):
        for i in range(n):
            if i == 2:
                return i

    assert refuse(lambda n: found(n), 3).id == "RETURN_ON_SOME_PATHS"
