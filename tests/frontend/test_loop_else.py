"""The `else` of a loop runs where no `break` or `return` ended the loop; exits inside it belong to the loop around."""

from __future__ import annotations

import pytest

from tests.frontend.agreement import agree


def of_a_range(n):
    found = 0
    for i in range(6):
        if i * i == n:
            found = i
            break
    else:
        found = -1
    return found


def of_a_list(n):
    for x in [1, 4, 9]:
        if x == n:
            break
    else:
        n = n + 100
    return n


def of_a_while(n):
    i = 0
    while i < n:
        i += 1
        if i == 5:
            break
    else:
        i = i * 10
    return i


def without_a_break(n):
    total = 0
    for i in range(n):
        total += i
    else:
        total += 1000
    while total > 1000:
        total -= 7
    else:
        total -= 1
    return total


def inside_a_loop(n):
    total = 0
    for i in range(1, 8):
        for j in range(2, i):
            if i % j == 0:
                break
        else:
            total += i
            if i == n:
                break
            continue
        total += 100
    return total


def returning(n):
    for i in range(4):
        if i == n:
            return i + 50
    else:
        if n > 6:
            return 7
    return 1


def of_nothing(n):
    for _ in []:
        n = 0
    else:
        n += 1
    for _ in range(0):
        n = 0
    else:
        n += 1
    return n


@pytest.mark.parametrize(
    "program", [of_a_range, of_a_list, of_a_while, without_a_break, inside_a_loop, returning, of_nothing]
)
def test_it_runs_as_in_python(program):
    for n in (0, 1, 3, 4, 5, 9):
        agree(program, n)
