"""Loops that surely run (R12): what their body sets on every path is set after them, and what surely returns has returned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from tests.frontend.agreement import agree, refuse
from tests.frontend.sources import module_of


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


def found_by_a_search(n):
    for i in range(n):
        if i * n > 6:
            break
    else:
        return -1
    return i


def found_or_returned(n):
    for i in reversed(range(n)):
        if i > 5:
            return i
        if i * n < 6:
            break
    else:
        i = -1
    return i * 2


def searched_in_each_iteration(n):
    total = 0
    for j in range(3):
        for i in range(j, n):
            if i * n > 6 + j:
                break
        else:
            continue
        total += i
    return total


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


def set_on_the_way_out(n):
    while True:
        if n > 5:
            best = n
            break
        n += 1
    return best


def found_or_else(n):
    for i in range(n):
        if i * i > 5:
            found = i
            break
    else:
        found = -1
    return found


def set_or_returned(n):
    if n > 2:
        t = 1
    else:
        return 5
    return t + n


def set_or_continued(n):
    for i in range(4):
        if i > n:
            q = 1
        else:
            continue
        n += q
    return n


def two_ways_out(n):
    while True:
        n += 1
        if n > 9:
            way, size = 1, n
            break
        elif n % 4 == 0:
            way, size = 2, [n][0] * 2
            break
        elif n % 7 == 0:
            return -n, 0
    return way, size


def set_or_left_in_an_unrolled_loop(n):
    for k in (1, 2, 3):
        if n > k:
            v = n * k
        else:
            break
        n -= v % 2
    return n


def in_a_match(n):
    match n:
        case 0:
            m = 10
        case 3:
            return 4
        case _:
            m = n
    return m


SURE = [
    set_on_the_way_out,
    found_or_else,
    set_or_returned,
    set_or_continued,
    two_ways_out,
    set_or_left_in_an_unrolled_loop,
    in_a_match,
    set_before_the_break,
    returned_out_of_an_endless_loop,
    found_by_a_search,
    found_or_returned,
    searched_in_each_iteration,
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


def set_on_one_way_out_of_two(n):
    while True:
        n += 1
        if n > 9:
            best = n
            break
        if n % 4 == 0:
            break
    return best


def set_on_the_path_that_leaves(n):
    if n > 2:
        t = 1
        return t
    return t


def unset_where_a_called_function_left(n):
    def change():
        nonlocal z
        if n > 2:
            return
        z = 5

    change()
    return z
    z = 1


def continued_without_it(n):
    for i in range(3):
        if i < n:
            continue
        t = i
    return t


@pytest.mark.parametrize(
    "program",
    [
        set_on_one_way_out_of_two,
        set_on_the_path_that_leaves,
        unset_where_a_called_function_left,
        continued_without_it,
        may_run_no_iteration,
        left_before_it_is_set,
        skipped_by_continue,
        read_before_the_first_iteration_sets_it,
    ],
)
def test_what_a_path_leaves_unset_is_refused(program):
    assert refuse(program, 3).id in ("MAYBE_UNDEFINED", "UNBOUND_LOCAL")


def test_a_value_on_some_paths_out_of_a_loop_that_may_end_is_refused():
    def found(n):
        for i in range(n):
            if i == 2:
                return i

    assert refuse(lambda n: found(n), 3).id == "RETURN_ON_SOME_PATHS"


@st.composite
def blocks(draw, indent: int, depth: int, is_in_loop: bool) -> list[str]:
    """Statements of which any may leave `x` or `y` without a value. Loops end: each counts in `c`."""
    pad, lines = "    " * indent, []
    for _ in range(draw(st.integers(1, 3))):
        name, number = draw(st.sampled_from("xy")), draw(st.integers(0, 6))
        kinds = ["set", "set", "read", "step", *(["break", "continue"] if is_in_loop else []), "return"]
        kind = draw(st.sampled_from(kinds + ["if", "if", "for", "while"] * (depth < 3)))
        simple = {
            "set": f"{name} = n + {number}",
            "read": f"n = (n + {name}) % 50",
            "step": "n += 1",
            "return": f"return {name}",
        }
        if kind in ("if", "for", "while"):
            head = {
                "if": f"if n > {number}:",
                "for": f"for i{depth} in range({draw(st.sampled_from(['3', 'n % 3']))}):",
            }
            lines.append(pad + head.get(kind, "while True:"))
            if kind == "while":
                way = draw(st.sampled_from(["break", f"{name} = c; break", "return c"]))
                lines += [f"{pad}    c += 1", f"{pad}    if c > {number + 3}: {way}"]
            lines += draw(blocks(indent + 1, depth + 1, is_in_loop or kind != "if"))
            if draw(st.booleans()):
                lines += [f"{pad}else:", *draw(blocks(indent + 1, depth + 1, is_in_loop))]
        else:
            lines.append(pad + simple.get(kind, kind))
    return lines


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_program_that_is_accepted_reads_no_variable_without_a_value(data, tmp_path_factory):
    last = data.draw(st.sampled_from(["x", "y", "0"]))
    text = (
        "def program(n):\n    c = 0\n"
        + "\n".join(data.draw(blocks(1, 0, False)))
        + f"\n    return n + {last}\n    x = y = 0\n"
    )
    program = module_of(tmp_path_factory.mktemp("unset"), text).program

    @sk.jit
    def kernel(out, n):
        out[0] = program(n)

    made = sk.compile(kernel, data.draw(st.sampled_from(["interp", "interp", "cpu"])))
    for n in range(8):
        out = np.zeros(1, np.int64)
        try:
            made[1, 1](out, n)
        except sk.StagingError as error:
            assert error.id in ("MAYBE_UNDEFINED", "UNBOUND_LOCAL", "RETURN_ON_SOME_PATHS")
            return
        assert out[0] == program(n)
