"""Containers made on the paths of a run-time `if` become one that may be changed, where no other place holds them (R16)."""

from __future__ import annotations

import bisect
import heapq
import operator
import types
from dataclasses import dataclass

import pytest

from tests.frontend.agreement import agree, refuse


@dataclass
class Point:
    x: int
    rest: list


def in_both_arms(c):
    if c:
        v = [1, 2]
    else:
        v = [c, 4]
    v[0] += 5
    return v[0], v[1]


def in_a_ternary(c):
    v = [1, 2] if c > 2 else [3, c]
    v[1] += 9
    return v[0], v[1]


def made(c):
    if c:
        return [1, c]
    return [3, 4]


def named(c):
    found = [c, 1]
    if c > 2:
        found = [0, c]
    return found


def in_two_returns(c):
    v, w = made(c), named(c)
    v[0] += 10
    w[1] -= 1
    return v[0], v[1], w[0], w[1]


def in_one_arm(c):
    v = [1, 2]
    if c:
        v = [3, c]
    v[0] += 1
    return v[0], v[1]


def one_after_the_other(c):
    if c > 5:
        v = [1, 2]
    elif c > 2:
        v = [3, 4]
    else:
        v = [c, c]
    v[0] += 1
    if c:
        v[1] = 0
    return v[0], v[1]


def lists_in_dicts(c):
    if c:
        v = {"a": 1, "b": [1, 2]}
    else:
        v = {"a": c, "b": [3, c]}
    v["a"] += 2
    v["b"][1] = 7
    return v["a"], v["b"][0], v["b"][1]


def lists_in_tuples(c):
    if c:
        v = ([1], 2)
    else:
        v = ([c], 3)
    v[0][0] += 4
    return v[0][0], v[1]


def objects(c):
    if c:
        p, q = Point(1, [2]), types.SimpleNamespace(a=c)
    else:
        p, q = Point(c, [3]), types.SimpleNamespace(a=5)
    p.x += 4
    p.rest[0] -= 1
    q.a += 1
    return p.x, p.rest[0], q.a


def in_the_body_of_a_loop(c):
    for i in range(3):
        if c > i:
            v = [i, 1]
        else:
            v = [c, 2]
        v[0] += 10
        c = c + v[0] % 2
    return v[0], v[1], c


def where_the_other_path_is_left(c):
    if c > 1:
        v = [c, 2]
    else:
        return 0, 0
    v[0] += 4
    return v[0], v[1]


def made_anew_by_each_iteration(c):
    a = [0, 0]
    for i in range(c):
        a = [a[1], a[0] + i]
        a[0] += 1
    a[0] += 5
    return a[0], a[1]


def the_one_before_kept(c):
    a, b = [0, 0], [5, 6]
    for i in range(c):
        b = a
        a = [a[1], a[0] + i]
    a[0] += 5
    b[1] = 3
    return a[0], b[1], b[0]


def exchanged_by_each_iteration(c):
    a, b = [0, 0], [1, 1]
    for _ in range(c):
        a, b = b, a
    a[0] = 7
    return a[0], b[0]


def set_by_an_endless_loop(c):
    while True:
        b = {"x": [c, c + 1]}
        c += 1
        if c > 5:
            break
    b["x"][0] += 2
    return b["x"][0], b["x"][1]


MERGED = [
    made_anew_by_each_iteration,
    the_one_before_kept,
    exchanged_by_each_iteration,
    set_by_an_endless_loop,
    in_both_arms,
    in_a_ternary,
    in_two_returns,
    in_one_arm,
    one_after_the_other,
    lists_in_dicts,
    lists_in_tuples,
    objects,
    in_the_body_of_a_loop,
    where_the_other_path_is_left,
]


@pytest.mark.parametrize("program", MERGED)
def test_what_nobody_else_holds_may_be_changed(program):
    for c in (0, 1, 3, 7):
        agree(program, c)


def held_by_another_name(c):
    w = [7, 8]
    if c:
        v = w
    else:
        v = [1, 2]
    v[0] = 3
    return v[0], w[0]


def named_twice_in_one_arm(c):
    if c:
        v = [1, 2]
        w = v
    else:
        v, w = [3, 4], [5, 6]
    v[0] = 9
    return v[0], w[0]


def an_item_held_elsewhere(c):
    t = [0]
    if c:
        v = [t]
    else:
        v = [[5]]
    v[0][0] = 4
    return v[0][0], t[0]


def chosen_from_a_list(c):
    k = [[1, 2], [3, 4]]
    r = k[0] if c else k[1]
    r[0] = 9
    return k[0][0], k[1][0]


def gone_through_by_a_loop(c):
    v, s = [1, 2], 0
    for x in v:
        s += x
        if c:
            v = [5, 6]
        v[1] = 7
    return s, v[1]


def gone_through_by_a_comprehension(c):
    v = [1, 2]

    def change(k):
        nonlocal v
        if c:
            v = [5, 6]
        v[1] = 7
        return k

    s = [change(x) for x in v]
    return s[0], s[1]


def in_a_tuple(c):
    v = [1, 2]
    t = (v, 1)
    if c:
        v = [c, c]
    v[0] = 5
    return v[0], t[0][0]


def by_a_default(c):
    v = [1, 2]

    def first(held=v):
        return held[0]

    if c:
        v = [c, c]
    v[0] = 5
    return v[0], first()


def by_a_method(c):
    v = [1, 2]
    pop = v.pop
    if c:
        v = [c, c]
    v[0] = 5
    return v[0], pop(0)


def by_an_iterator(c):
    v = [1, 2]
    items = iter(v)
    if c:
        v = [c, c]
    v[0] = 5
    return v[0], next(items)


def gone_through_by_enumerate(c):
    v, s = [1, 2], 0
    for k, x in enumerate(v):
        s += x * k
        if c:
            v = [5, 6]
        v[1] = 7
    return s, v[1]


def named_before_the_loop(c):
    a = [0, 0]
    w = a
    for i in range(c):
        a = [a[1], a[0] + i]
    a[0] += 5
    return a[0], w[0]


def named_twice_by_each_iteration(c):
    a, b = [0, 0], [5, 6]
    for i in range(c):
        a = [i, i]
        b = a
    a[0] += 5
    return a[0], b[0]


HELD = [
    named_before_the_loop,
    named_twice_by_each_iteration,
    by_an_iterator,
    gone_through_by_enumerate,
    held_by_another_name,
    named_twice_in_one_arm,
    an_item_held_elsewhere,
    chosen_from_a_list,
    gone_through_by_a_loop,
    gone_through_by_a_comprehension,
    in_a_tuple,
    by_a_default,
    by_a_method,
]


@pytest.mark.parametrize("program", HELD)
def test_what_another_place_holds_may_not(program):
    assert refuse(program, 1).id == "SEALED_MUTATION"


def an_item_of_what_two_names_hold(c):
    if c:
        s = [[1]]
        t = s
    else:
        s, t = [[3]], [[5]]
    t[0][0] = 9
    return s[0][0], t[0][0]


def an_attribute_of_what_two_names_hold(c):
    if c:
        s = Point(1, [2])
        t = s
    else:
        s, t = Point(3, [4]), Point(5, [6])
    t.rest[0] = 9
    return s.rest[0], t.rest[0]


def changed_under_its_other_name(c):
    a = [1]
    s = a if c else [2]
    a[0] = 5
    return s[0], a[0]


def made_longer_under_its_other_name(c):
    a = [1]
    if c:
        s = (a, 3)
    else:
        s = ([2], 4)
    a.append(c)
    return len(s[0]), len(a)


def an_object_changed_under_its_other_name(c):
    a = Point(1, [2])
    s = a
    if c > 5:
        s = Point(3, [4])
    a.rest[0] = 7
    return s.rest[0], a.rest[0]


def changed_before_the_loop_lets_go(c):
    a = [0]
    b, total = a, 0
    for i in range(c):
        b[0] = 7
        total += a[0]
        a = [i]
    return total, b[0]


def changed_after_an_iteration_took_it(c):
    a, k, total = [0], [1], 0
    for _ in range(c):
        k[0] += 1
        total += a[0]
        a = k
    return total, k[0]


def changed_after_an_iteration_took_one_of_two(c):
    a, k, m, total = [0], [1], [2], 0
    for i in range(c):
        k[0] += 1
        total += a[0]
        a = k if i % 2 == 0 else m
    return total, k[0]


def the_best_is_not_copied(c):
    best, now = [0, 0], [0, 0]
    for i in range(c):
        now[0], now[1] = i, i * (4 - i)
        if now[1] > best[1]:
            best = now
    return best[0], best[1]


def changed_after_the_loop_took_it(c):
    a, k = [0], [c]
    for _ in range(c):
        a = k
    k[0] += 1
    return a[0], k[0]


def changed_while_an_argument_waits(c):
    def first(items, _):
        return items[0]

    a = [1]
    return first(a if c else [2], a.append(3)), len(a)


def changed_while_a_tuple_is_made(c):
    a = [1]
    s, _ = (a if c else [2]), a.__setitem__(0, 5)
    return s[0], a[0]


def changed_by_a_function_while_an_argument_waits(c):
    def first(items, _):
        return items[0]

    def change(items):
        items[0] = 9
        return 1

    def deeper(items):
        done = change(items)
        return done

    a = [5]
    return first(a if c else [2], deeper(a)), a[0]


STALE = [
    changed_by_a_function_while_an_argument_waits,
    changed_while_an_argument_waits,
    changed_while_a_tuple_is_made,
    an_item_of_what_two_names_hold,
    an_attribute_of_what_two_names_hold,
    changed_under_its_other_name,
    made_longer_under_its_other_name,
    an_object_changed_under_its_other_name,
    changed_before_the_loop_lets_go,
    changed_after_an_iteration_took_it,
    changed_after_an_iteration_took_one_of_two,
    the_best_is_not_copied,
    changed_after_the_loop_took_it,
]


@pytest.mark.parametrize("program", STALE)
def test_no_container_changes_behind_a_name_that_may_mean_it(program):
    """After the join, such a name reads a copy of the items (a twin of R16, silently wrong before)."""
    assert refuse(program, 3).id == "SEALED_MUTATION"


def the_other_name_is_gone(c):
    a = [c]
    s = a if c else [2]
    found = s[0]
    s = None
    a[0] = 9
    return found, a[0]


def the_other_name_was_a_parameter(c):
    def first(items):
        return items[0]

    a = [c]
    found = first(a if c else [2])
    a[0] = 9
    return found, a[0]


def each_iteration_changes_and_then_chooses(c):
    a, b, total = [1], [2], 0
    for i in range(c):
        a[0] += 1
        s = a if i > 1 else b
        total += s[0]
    return total, a[0]


def the_best_is_copied(c):
    best, now = [0, 0], [0, 0]
    for i in range(c):
        now[0], now[1] = i, i * (4 - i)
        if now[1] > best[1]:
            best = list(now)
    now[0] = 3
    return best[0], best[1], now[0]


@pytest.mark.parametrize(
    "program",
    [
        the_other_name_is_gone,
        the_other_name_was_a_parameter,
        each_iteration_changes_and_then_chooses,
        the_best_is_copied,
    ],
)
def test_a_container_changes_where_no_name_is_left_that_may_mean_it(program):
    for c in (0, 1, 3, 7):
        agree(program, c)


def an_item_on_one_path(c):
    v = [c, 2]
    if c > 2:
        v[0] = c + 9
    else:
        v = [5, 6]
    return v[0], v[1]


def an_entry_on_the_other_path(c):
    v = {"a": c, "b": 2}
    if c > 2:
        v = {"a": 5, "b": 6}
    else:
        v["b"] = c + 9
    return v["a"], v["b"]


def attributes_of_an_object(c):
    p = Point(c, [c])
    if c > 2:
        p.x += 9
        p.rest[0] = 4
    else:
        p = Point(5, [6])
    return p.x, p.rest[0]


def an_attribute_that_is_gone(c):
    p = Point(c, [c])
    if c > 2:
        del p.rest
    else:
        p = Point(5, [6])
    return p.x


def after_two_exchanged_names(c):
    v, w = [c], [c + 1]
    if c > 2:
        v, w = w, v
        v[0] = 50
    return v[0], w[0]


def beside_another_name(c):
    v = [c]
    w = v
    if c > 2:
        v[0] = 9
    else:
        v = [5]
    return v[0], w[0]


def in_an_arm_of_an_arm(c):
    v = [[c]]
    if c > 1:
        v[0][0] = 9
        if c > 3:
            v[0] = [c]
        else:
            v[0][0] += 1
    else:
        v = [[6]]
    return v[0][0]


def by_an_iteration(c):
    v = [c]
    for i in range(c):
        if i == 2:
            v[0] = 30
        else:
            v = [v[0] + 1]
    return v[0]


def before_a_return(c):
    v = [c]

    def found():
        if c > 2:
            v[0] = 8
            return v
        return [c + 1]

    return found()[0]


def by_a_call_in_a_ternary(c):
    v = [c]

    def changed():
        v[0] = 8
        return v

    return (changed() if c > 2 else [c + 1])[0], v[0]


@pytest.mark.parametrize(
    "program",
    [
        an_item_on_one_path,
        an_entry_on_the_other_path,
        attributes_of_an_object,
        an_attribute_that_is_gone,
        after_two_exchanged_names,
        beside_another_name,
        in_an_arm_of_an_arm,
        by_an_iteration,
        before_a_return,
        by_a_call_in_a_ternary,
    ],
)
def test_a_path_gives_a_container_as_it_changed_it(program):
    """Where the other path put another container in its place, the items from before the `if` were taken (silently wrong)."""
    for c in (0, 2, 3, 7):
        agree(program, c)


# -- changes that CPython's own functions make ----------------------------------------------------------------------------

NATIVE_CHANGES = {
    "heapq.heappush": lambda items: heapq.heappush(items, 0),
    "bisect.insort": lambda items: bisect.insort(items, 0),
    "list.append": lambda items: list.append(items, 3),
    "list.sort": lambda items: list.sort(items, reverse=True),
    "list.__setitem__": lambda items: list.__setitem__(items, 0, 7),
    "operator.delitem": lambda items: operator.delitem(items, 0),
}
OUTER = [1, 2, 3]


@pytest.mark.parametrize("name", NATIVE_CHANGES)
def test_a_change_that_pythons_own_function_makes_is_a_change(name):
    change = NATIVE_CHANGES[name]

    def under_a_condition(c):
        items = [1, 2, 3]
        if c > 0:
            change(items)
        return items[0], len(items)

    def behind_another_name(c):
        items = [1, 2, 3]
        other = items if c > 0 else [4, 5, 6]
        change(items)
        return other[0], len(items)

    def of_a_captured_one(c):
        change(OUTER)
        return c + OUTER[0]

    def of_its_own(c):
        items = [1, 2, 3]
        change(items)
        total = 0
        for _ in range(3):
            fresh = [5, 6]
            change(fresh)
            total += fresh[0] + c
        return items[0], len(items), total

    assert refuse(under_a_condition, 1).id in ("STRUCTURE_CHANGE", "SEALED_MUTATION")
    assert refuse(behind_another_name, 1).id == "SEALED_MUTATION"
    assert refuse(of_a_captured_one, 1).id == "CAPTURED_MUTATION"
    assert OUTER == [1, 2, 3]
    agree(of_its_own, 2)
