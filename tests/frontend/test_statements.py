"""Statements: assignment, branches, matches, early exits, nested functions. CPython is the judge."""

from __future__ import annotations

import enum
import functools
import itertools
from typing import NamedTuple

import pytest

import stagekit as sk
from tests.frontend.agreement import agree, refuse

# -- run-time ifs ---------------------------------------------------------------------------------------------------------


def test_rebinding_in_one_arm_happens_there_only():  # Q16
    def program(p, q):
        s = 1
        if p:
            s = 2
        t = 10
        if p > q:
            t = s
        elif q:
            t, s = s, t
        else:
            t += 100
        return s, t

    for p, q in itertools.product((0, 1, 2), repeat=2):
        agree(program, p, q)


def test_bools_ints_and_floats_join():
    def program(p, q):
        flag, number, real = False, 1, 0.5
        if p:
            flag, number, real = True, 2, 1.5
        if q:
            number = number + p
            real = 2
        return int(flag), number, int(real * 4)

    for p, q in itertools.product((0, 1), repeat=2):
        agree(program, p, q)


def test_nested_ifs_and_else_less_ones():
    def program(p, q, r):
        out = 0
        if p:
            out += 1
            if q:
                out += 10
                if r:
                    out = -out
            elif r:
                out += 100
        else:
            if q:
                pass
            else:
                out = 7
        return out

    for p, q, r in itertools.product((0, 1), repeat=3):
        agree(program, p, q, r)


def test_a_compile_time_condition_leaves_the_other_arm_unlooked_at():
    def program(a):
        mode = "x"
        if mode == "y":
            nonsense.attribute[3] = a  # noqa: F821
        elif a is None:
            return "no"
        return a + 1 if mode == "x" else undefined

    agree(program, 3)


def test_containers_change_in_the_arm_that_runs():
    def program(p, q):
        xs, d = [1, 2], {"k": 3}
        ys = xs
        if p:
            xs[0] = 10
            d["k"] += q
        else:
            xs[1] = 20
        xs[0], xs[1] = xs[1], xs[0]
        return *xs, ys[0], d["k"]

    for p, q in itertools.product((0, 1), (0, 5)):
        agree(program, p, q)


def test_containers_of_one_structure_join_item_by_item():  # Q5
    def program(p, q):
        xs, t, d = [1, q], (1, (2, q)), {"a": 1, "b": q}
        if p:
            xs, t, d = [q, 7], (q, (q, 3)), {"a": q, "b": 4}
        return *xs, t[0], *t[1], d["a"], d["b"]

    for p, q in itertools.product((0, 1), (0, 5)):
        agree(program, p, q)


def test_two_lists_joined_read_the_right_one_and_cannot_be_changed():
    def program(p, q):
        xs, ys = [1, 2], [3, 4]
        zs = xs if p else ys
        return zs[0] + zs[1]

    def changing(p, q):
        xs, ys = [1, 2], [3, 4]
        zs = xs if p else ys
        zs[0] = q
        return xs[0], ys[0]

    for p in (0, 1):
        agree(program, p, 5)
    assert refuse(changing, 1, 5).id == "SEALED_MUTATION"
    agree(lambda q: changing(1, q), 5)


def test_a_joined_list_copied_may_be_changed():
    def program(p, q):
        zs = list([1, 2] if p else [3, 4])
        zs[0] = q
        return zs[0], zs[1]

    for p in (0, 1):
        agree(program, p, 5)


# -- poison ---------------------------------------------------------------------------------------------------------------


def test_a_variable_of_one_path_is_an_error_only_when_used():
    def unused(p):
        if p:
            v = 3
        return p + 1

    def used(p):
        if p:
            v = 3
        return v

    def repaired(p):
        if p:
            v = 3
        v = 4
        return v

    agree(unused, 1)
    agree(repaired, 0)
    error = refuse(used, 1)
    assert error.id == "MAYBE_UNDEFINED"
    assert "`v`" in str(error)
    assert [n.loc.line for n in error.notes] == [used.__code__.co_firstlineno + 1]


def test_lists_of_different_length_say_both_lengths_and_the_line():  # Q5
    def program(p):
        xs = [1, 2]
        if p:
            xs = [1, 2, 3]
        return xs[0]

    error = refuse(program, 1)
    text = str(error)
    assert error.id == "JOIN_MISMATCH"
    assert "`xs`" in text
    assert "length 2" in text
    assert "length 3" in text
    assert error.loc.line == program.__code__.co_firstlineno + 4
    assert error.notes[0].loc.line == program.__code__.co_firstlineno + 2


def test_different_types_say_both_types_and_the_line():  # P8
    def program(p):
        v = sk.int32(1)
        if p:
            v = sk.float32(2)
        return v

    error = refuse(program, 1)
    assert error.id == "JOIN_MISMATCH"
    assert "int32" in str(error)
    assert "float32" in str(error)
    assert error.notes[0].loc.line == program.__code__.co_firstlineno + 2


def test_functions_and_strings_cannot_be_chosen_at_run_time():
    def functions(p):
        f = min
        if p:
            f = max
        return f(p, 2)

    def strings(p):
        mode = "a" if p else "b"
        return 1 if mode == "a" else 2

    for program in (functions, strings):
        assert refuse(program, 1).id == "JOIN_MISMATCH"
        agree(lambda: program(1))


# -- structure under run-time control -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda xs, d: xs.append(1),
        lambda xs, d: xs.pop(),
        lambda xs, d: xs.extend([1]),
        lambda xs, d: xs.clear(),
        lambda xs, d: xs.insert(0, 1),
        lambda xs, d: d.update(z=1),
        lambda xs, d: d.pop("a"),
        lambda xs, d: d.setdefault("z", 1),
        lambda xs, d: d.clear(),
    ],
)
def test_structure_does_not_change_under_run_time_control(change):
    def program(p):
        xs, d = [1, 2], {"a": 1}
        if p:
            change(xs, d)
        return len(xs) + len(d)

    assert refuse(program, 1).id == "STRUCTURE_CHANGE"
    agree(lambda: program(1))


def test_a_container_made_and_grown_inside_an_arm_is_free():
    def program(p, q):
        total = 0
        if p:
            xs = []
            for i in (1, 2, 3):
                xs.append(i * q)
            d = {}
            d["k"] = xs
            total = sum(d["k"])
        return total

    for p in (0, 1):
        agree(program, p, 4)


def test_new_keys_and_attributes_under_run_time_control_are_refused_or_poison():
    def key(p):
        d = {}
        if p:
            d["new"] = 1
        return 0

    assert refuse(key, 1).id == "STRUCTURE_CHANGE"


# -- assignment forms -----------------------------------------------------------------------------------------------------


def test_unpacking_in_every_form():
    def program(a, b):
        x, y = a, b
        [z, w] = [b, a]
        (p, (q, *r)), *s = (a, (b, 1, 2)), 3, 4
        *t, u = range(3)
        first, *_, last = (a, 9, 9, b)
        i = j = a + b
        k: int = a
        m: float
        return x, y, z, w, p, q, *r, *s, *t, u, first, last, i, j, k

    agree(program, 2, 5)


def test_every_augmented_operator():
    def program(a, b):
        x = a
        x += b
        x -= 1
        x *= 3
        x //= 2
        x %= 7
        x **= 2
        x <<= 1
        x >>= 1
        x |= 8
        x &= 13
        x ^= b
        return x

    for a, b in [(2, 5), (-3, 2), (9, 9)]:
        agree(program, a, b)


def test_the_number_of_values_must_fit():
    assert refuse(lambda a: (lambda p, q: p)(*(a, a, a)), 1).id == "BAD_CALL"

    def program(a):
        x, y = a, a, a
        return x

    def from_number(a):
        x, y = a
        return x

    assert refuse(program, 1).id == "BAD_INDEX"
    assert refuse(from_number, 1).id == "NOT_ITERABLE"


def test_del_unbinds():
    def program(a):
        x = a
        del x
        return x

    error = refuse(program, 1)
    assert error.id == "UNBOUND_LOCAL"
    assert "`x`" in str(error)


def test_a_local_used_before_its_assignment_is_not_the_global():
    def program(a):
        y = some_global + a
        some_global = 3
        return y + some_global

    error = refuse(program, 1)
    assert error.id == "UNBOUND_LOCAL"
    assert "`some_global`" in str(error)


some_global = 100


# -- match ----------------------------------------------------------------------------------------------------------------


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def test_match_on_run_time_numbers():
    def program(a, b):
        match a:
            case 0:
                r = 10
            case 1 | 2:
                r = 20
            case 3 if b > 2:
                r = 30
            case n if n > 5:
                r = n * 2
            case _:
                r = -1
        return r

    for a, b in itertools.product((0, 1, 2, 3, 4, 7), (1, 5)):
        agree(program, a, b)


def test_match_on_structures():
    def classify(value, b):
        match value:
            case []:
                return 1
            case [x]:
                return 100 + x
            case (0, y) | (y, 0):
                return 200 + y
            case [x, *rest] if len(rest) == 2:
                return 300 + x + rest[1]
            case {"kind": "circle", "r": r, **others}:
                return 400 + r + len(others)
            case Point(x=0, y=y):
                return 500 + y
            case Point(x, y):
                return 600 + x + y
            case Color.RED:
                return 700
            case "text":
                return 800
            case None:
                return 900
            case True:
                return 950
            case [[x, _], [_, y]] as whole:
                return 1000 + x + y + len(whole)
            case _:
                return b

    def program(a, b):
        return (
            classify([], b),
            classify([a], b),
            classify((0, a), b),
            classify((b, 0), b),
            classify([a, b, 3], b),
            classify({"kind": "circle", "r": a, "z": 1}, b),
            classify({"kind": "square", "r": a}, b),
            classify(Point(a, b), b),
            classify(Point(0, b), b),
            classify(Color.RED, b),
            classify(Color.BLUE, b),
            classify("text", b),
            classify(None, b),
            classify([[a, 1], [2, b]], b),
        )

    for a, b in ((2, 5), (0, 5), (0, 0)):
        agree(program, a, b)


def test_a_guard_with_side_effects_runs_only_if_its_pattern_matches():
    def program(a, b):
        count = [0]

        def guard(n):
            count[0] += 1
            return n > 2

        match a:
            case 1 if guard(b):
                r = 1
            case 1 | 2:
                r = 2
            case _ if guard(a):
                r = 3
            case _:
                r = 4
        return r, count[0]

    for a, b in itertools.product((1, 2, 3, 0), (1, 5)):
        agree(program, a, b)


# -- nested functions -----------------------------------------------------------------------------------------------------


def test_nonlocal_changes_under_run_time_control():
    def program(a, b):
        count, log = 0, 0

        def bump(n):
            nonlocal count, log
            count += n
            if n > 2:
                log = log * 10 + n
            return count

        x = bump(a)
        if b > 3:
            bump(b)
        y = bump(1)
        return x, y, count, log

    for a, b in itertools.product((1, 4), (1, 5)):
        agree(program, a, b)


def test_closures_over_closures():
    def program(a, b):
        def outer(x):
            y = x * 2

            def middle(z):
                def inner():
                    nonlocal y
                    y += z
                    return x + y + z + a

                return inner() + y

            return middle

        m = outer(b)
        return m(1), m(2), outer(a)(3)

    agree(program, 2, 5)


def test_recursion_that_ends_at_compile_time():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def program(a):
        def power(x, k):
            if k == 0:
                return 1
            half = power(x, k // 2)
            return half * half * (x if k % 2 else 1)

        return power(a, 5) + fib(7)

    agree(program, 3)


def test_mutual_recursion():
    def even(k, x):
        return x if k == 0 else odd(k - 1, x + 1)

    def odd(k, x):
        return -x if k == 0 else even(k - 1, x * 2)

    agree(lambda a: (even(4, a), odd(4, a)), 3)


def test_endless_recursion_is_refused_with_the_chain():  # P28
    def down(n):
        return down(n - 1) + 1 if n else 0

    error = refuse(lambda a: down(a), 3)
    assert error.id == "RECURSION_BUDGET"
    text = str(error)
    assert text.count("`down` inlined at") >= 2
    assert "more" in text or "..." in text or "times" in text


# -- hygiene and returns --------------------------------------------------------------------------------------------------


def test_a_callee_does_not_touch_the_callers_names():  # P28
    def helper(a):
        a = a + 1
        t = a * 2
        return t

    def program(a, b):
        t = 100
        x = helper(b) + helper(a) * helper(helper(a))
        for a in (1, 2):
            t += helper(a)
        return a, t, x

    agree(program, 2, 5)


@pytest.mark.parametrize("decorate", [lambda f: f, sk.inline], ids=["plain", "inline"])
def test_early_returns_in_every_position(decorate):  # T1
    def early(x, y):
        if x > 3:
            return x
        if y:
            for i in range(4):
                if i == y:
                    return 100 + i
                if x == 1:
                    if i == 2:
                        return 200
        else:
            return -1
        return 7

    fragment = decorate(early)
    for x, y in itertools.product((0, 1, 5), (0, 1, 3, 9)):
        agree(lambda x, y: (fragment(x, y), fragment(y, x) + 1), x, y)


def test_nothing_runs_after_a_return():
    def program(a, b):
        log = [0]

        def f(x):
            log[0] += 1
            if x:
                return x
            log[0] += 10
            return 5

        return f(a), f(b), log[0]

    for a, b in itertools.product((0, 2), repeat=2):
        agree(program, a, b)


def test_return_of_tuples_and_objects_from_both_arms():
    class Pair(NamedTuple):
        left: int
        right: int

    def both(p, q):
        if p > q:
            return Pair(p, q)
        return Pair(q, p + 1)

    def program(p, q):
        pair = both(p, q)
        return pair.left, pair.right, sum(pair), len(pair)

    agree(program, 1, 2)
    agree(program, 2, 1)


def test_a_value_on_some_paths_only_is_refused():
    def half(x):
        if x:
            return 1

    error = refuse(lambda a: half(a), 1)
    assert error.id == "RETURN_ON_SOME_PATHS"
    agree(lambda: half(1))


def test_bare_returns_and_none():
    def program(a):
        log = [0]

        def f(x):
            if x > 1:
                log[0] += 1
                return
            log[0] += 10

        r = f(a)
        return log[0], r is None

    for a in (0, 3):
        agree(program, a)


def test_code_after_a_taken_compile_time_return_is_not_looked_at():  # P4
    def program(a, mode=0):
        if mode == 0:
            return a + 1
        return a.no_such_attribute

    agree(program, 3)


# -- wrappers -------------------------------------------------------------------------------------------------------------


def _one_more(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) + 1

    return wrapper


class _Scaled:
    factor = 3

    @_one_more
    def apply(self, value):
        return value * self.factor


@_one_more
@_one_more
def _squared(value):
    return value * value


def test_a_wrapped_helper_is_its_wrapper():
    def program(p):
        return _squared(p), _Scaled().apply(p)

    agree(program, 5)


# -- which of several ---------------------------------------------------------------------------------------------------

TEN, TWENTY = 10, 20


class _Pair:
    left, right = 3, 4


# fmt: off
ON_ONE_LINE = [lambda p: TEN * p, lambda p: TWENTY * p, lambda p: p + _Pair.left, lambda p: p + _Pair.right, lambda p: p + 1, lambda p: p + 2]  # noqa: E501
# fmt: on


@pytest.mark.parametrize("chosen", range(len(ON_ONE_LINE)))
def test_lambdas_of_one_line_are_told_apart(chosen):
    agree(ON_ONE_LINE[chosen], 5)


def test_lambdas_of_one_line_with_closures_are_told_apart():
    one, two = 1, 2
    # fmt: off
    programs = [lambda p: p * 10 + one, lambda p: p * 10 + two, lambda p: one - two * p, lambda p: two - one * p]
    # fmt: on

    for program in programs:
        agree(program, 5)
