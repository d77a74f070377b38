"""Iterators as Python has them: items are made when they are asked for, once, and never under a condition unseen."""

from __future__ import annotations

import functools
import itertools
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from tests.frontend.agreement import agree, refuse

TABLE = {"xs": [1]}
ITERATOR = iter([1, 2, 3])


@functools.cache
def shared():
    return [1]


class Own:
    def __init__(self, first):
        self.first = first

    def __iter__(self):
        return iter([self.first, 2])


class Counting:
    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration


def next_of_a_list_iterator(n):
    it = iter([n, n + 1, 7])
    return next(it) * 10 + next(it), sum(it), next(it, n), next(iter(()), 5)


def next_of_a_generator(n):
    squares = (i * n for i in (1, 2, 3))
    return next(squares), sum(squares), next(squares, -1)


def next_then_for(n):
    it, total = iter([n, 2, 3]), 0
    total = next(it)
    for x in it:
        total = total * 10 + x
    return total


def what_a_break_leaves(n):
    numbers, rest, last = (i for i in (1, 2, 3, 4)), iter([0, 1, 5, 6]), 0
    for x in numbers:
        if x == 2:
            break
        last = n
    found = any(rest)
    return sum(numbers), found, sum(rest), last


def what_a_break_leaves_of_pythons_own(n):
    chained = itertools.chain([1, 2], [3, n])
    for x in chained:
        if x == 2:
            break
    return sum(chained)


def rows_of_two(n):
    it, scaled, total = iter([n, 2, 3, 4]), (x * n for x in (1, 2, 3, 4)), 0
    for a, b in zip(it, it):
        total = total * 100 + a * 10 + b
    for a, b in zip(*[scaled] * 2):
        total = total * 100 + a * 10 + b
    return total


def effects_come_between_the_items(n):
    xs, total = [1, 2, 3], 0
    for x in (x * 2 for x in xs):
        total += x
        xs[2] = n
    later = (x for x in xs)
    xs.append(7)
    return total, sum(later)


def endless_iterators(n):
    pairs = zip(itertools.count(n), [1, 2])
    first = [i for i in itertools.islice(itertools.count(n, 3), 3)]
    few = itertools.takewhile(lambda x: x < 5, itertools.count())
    cycled = zip(itertools.cycle([n, 2]), (1, 2, 3))
    return sum(i * x for i, x in pairs), first[2], sum(few), sum(a * b for a, b in cycled)


def the_itertools(n):
    a, b = itertools.tee(x * n for x in (1, 2))
    groups = [len(list(g)) for _, g in itertools.groupby([1, 1, 2])]
    return (
        sum(a) * 10 + sum(b), groups[0], groups[1],
        sum(itertools.accumulate([n, 2, 3])), sum(itertools.accumulate([n, 2], operator.mul, initial=2)),
        sum(itertools.chain.from_iterable([[n, 2], (3,)])), sum(itertools.starmap(lambda a, b: a - b, [(n, 2), (3, n)])),
        sum(a * b for a, b in itertools.zip_longest([n, 2], [3], fillvalue=n)),
        sum(itertools.filterfalse(lambda x: x > 1, [1, 2])),
        sum(a * b for a, b in itertools.pairwise(x * n for x in (1, 2, 3))), sum(itertools.repeat(n, 3)),
        sum(a * b for a, b in itertools.product([n, 2], repeat=2)), sum(itertools.dropwhile(lambda x: x < 2, [1, 2, 1])),
    )  # fmt: skip


def in_one_arm(n):
    numbers, total = (i for i in (1, 2, 3)), 0
    if n > 2:
        total = sum(numbers)
    else:
        total = sum(numbers) + 10
    return total


def of_own_classes(n):
    return sum(Own(n)), max(*Own(n)), [*Own(n)][0], sum(a * b for a, b in zip(Own(n), Own(2)))


def until_a_sentinel(n):
    left = [3, 2, 1]
    return sum(iter(lambda: left.pop() * 1, 3)) + n


def ranges_as_sequences(n):
    total = 0
    for i in reversed(range(1, n + 4, 2)):
        total = total * 10 + i
    for i in reversed(range(n + 4, 0, -3)):
        total = total * 10 + i
    return total, len(range(n)), len(range(n, 0, -1)), range(n)[-1], range(n, 9)[1], 2 in range(n), n in range(9, 0, -2)


PROGRAMS = [
    next_of_a_list_iterator, next_of_a_generator, next_then_for, what_a_break_leaves, what_a_break_leaves_of_pythons_own,
    rows_of_two, effects_come_between_the_items, endless_iterators, the_itertools, in_one_arm, of_own_classes,
    until_a_sentinel, ranges_as_sequences,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_iterators_are_used_up_as_in_python(program):
    for n in (3, 1):
        agree(program, n)


@settings(max_examples=30, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-4, 4).filter(bool))
def test_a_range_with_run_time_bounds_is_the_sequence_it_is_in_python(start, stop, step):
    def program(start, stop):
        numbers, total = range(start, stop, step), 0
        for i in reversed(numbers):
            total = total * 3 + i
        return total, len(numbers), 3 in numbers, start in numbers, stop in numbers

    agree(program, start, stop)


REFUSED = {
    "NEXT_OF_NOTHING": (lambda n: next(iter([])), "STATIC_FAILURE", "StopIteration"),
    "NEXT_OF_A_LIST": (lambda n: next([1, 2]), "STATIC_FAILURE", "'list' object is not an iterator"),
    "LENGTH": (lambda n: len(iter([1])), "STATIC_FAILURE", "has no len()"),
    "REVERSED_SET": (lambda n: list(reversed({1, 2})), "STATIC_FAILURE", "not reversible"),
    "STRICT": (lambda n: sum(a * b for a, b in zip([1, n], (3,), strict=True)), "STATIC_FAILURE", "shorter"),
    "OWN_NEXT": (lambda n: sum(Counting()), "NOT_ITERABLE", "__next__"),
    "CAPTURED": (lambda n: next(ITERATOR), "CAPTURED_MUTATION", "outside the kernel"),
    "HANDED_OUT_BY_A_TABLE": (lambda n: TABLE.get("xs").append(n), "CAPTURED_MUTATION", "outside the kernel"),
    "HANDED_OUT_BY_A_CACHE": (lambda n: shared().append(n), "CAPTURED_MUTATION", "outside the kernel"),
    "KEPT_AT_RUN_TIME": (lambda n: list(filter(lambda x: x > 2, [n, 1])), "NOT_CALLABLE", "run-time condition"),
    "TAKEN_AT_RUN_TIME": (lambda n: list(itertools.takewhile(lambda x: x > 2, [n])), "NOT_CALLABLE", "takewhile"),
    "ENDLESS": (lambda n: sum(itertools.count()), "UNROLL_BUDGET", "budget"),
    "ENDLESS_CONDITION": (lambda n: all(itertools.count(1)), "UNROLL_BUDGET", "budget"),
}


@pytest.mark.parametrize(("program", "name", "text"), REFUSED.values(), ids=REFUSED)
def test_what_an_iterator_cannot_do(program, name, text):
    error = refuse(program, 3)

    assert error.id == name
    assert text in str(error)
    assert error.loc.file == __file__


def next_under_a_condition(n):
    it = iter((1, 2, 3))
    total = next(it)
    if n > 2:
        total += next(it)
    return total


def next_of_pythons_own_under_a_condition(n):
    it = itertools.compress([1, 2, 3], [1, 1, 1])
    total = next(it)
    if n > 2:
        total += next(it)
    return total


def next_in_a_loop(n):
    it, total = iter((1, 2, 3)), 0
    for _ in range(n):
        total += next(it)
    return total


def used_after_a_condition(n):
    numbers, total = (i for i in (1, 2, 3)), 0
    if n > 2:
        total = sum(numbers)
    return total + sum(numbers)


def left_by_a_run_time_break(n):
    numbers, total = (i for i in (1, 2, 3)), 0
    for x in numbers:
        if x == n:
            break
        total += x
    return total + sum(numbers)


def left_by_a_run_time_any(n):
    numbers = iter([0, n, 3])
    return any(numbers) + sum(numbers)


def left_by_a_run_time_search(n):
    numbers = itertools.compress([1, 2, 3], [1, 1, 1])
    return (n in numbers) + sum(numbers)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (left_by_a_run_time_break, "RUN_TIME_VALUE"),
        (left_by_a_run_time_any, "RUN_TIME_VALUE"),
        (left_by_a_run_time_search, "SEALED_MUTATION"),
        (next_under_a_condition, "STRUCTURE_CHANGE"),
        (next_of_pythons_own_under_a_condition, "STRUCTURE_CHANGE"),
        (next_in_a_loop, "STRUCTURE_CHANGE"),
        (used_after_a_condition, "RUN_TIME_VALUE"),
    ],
)
def test_how_far_an_iterator_has_come_is_known_at_compile_time(program, name):
    assert refuse(program, 3).id == name


def append_for_ever(n):
    xs = [5]
    for x in xs:
        xs.append(x)
    return n


def keys_for_ever(n):
    table, i = {}, 0
    while True:
        table[i] = i
        i += 1
    return n


def insert_for_ever(n):
    xs = []
    while True:
        xs.insert(0, 1)
    return n


def unrolled_too_far(n):
    for _ in sk.static_range(10**9):
        n = n + 1
    return n


@pytest.mark.parametrize("program", [append_for_ever, keys_for_ever, insert_for_ever, unrolled_too_far])
def test_a_loop_that_does_not_end_meets_the_budget(program):
    error = refuse(program, 3)

    assert error.id == "UNROLL_BUDGET"
    assert error.loc.file == __file__


def changes_taken_back(n):
    """Each change of a container in a trial of a `while`, undone: the last test is at run time."""
    from_the_end, table, kept, queue = [1, 2, 3], {"a": 1}, {1}, [9]
    i = 0
    while i < 2 or n > 100:
        if i < 2:
            i += 1
            from_the_end.append(i)
            from_the_end.insert(1, 7)
            table[f"k{i}"] = i
            kept.add(i + 1)
            queue.extend([i, i])
            queue.pop(0)
        else:
            n -= 50
    return len(from_the_end), from_the_end[1], len(table), len(kept), queue[-1]


def test_changes_are_taken_back_where_a_trial_is():
    for n in (300, 3):
        agree(changes_taken_back, n)
