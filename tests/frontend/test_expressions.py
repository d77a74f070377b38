"""Every expression of the language has Python's meaning, whatever is known at compile time."""

from __future__ import annotations

import itertools
import math
import operator
from functools import partial, reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from tests.frontend.agreement import agree, refuse

small = st.integers(-9, 9)


# -- operators ------------------------------------------------------------------------------------------------------------


def test_integer_operators_agree_with_python():
    def program(a, b):
        return a + b, a - b, a * b, a // b, a % b, a & b, a | b, a ^ b, a << 2, a >> 1, -a, +a, ~a, a**3, a**0

    for a, b in [(7, 3), (-7, 3), (7, -3), (-7, -3), (0, 5)]:
        agree(program, a, b)


def test_float_operators_agree_with_python():
    def program(a, b):
        return a + b, a - b, a * b, a / b, a // b, a % b, -a, +a, abs(a), a**2

    for a, b in [(7.5, 3.25), (-7.5, 3.25), (7.5, -3.25), (-7.5, -3.25), (0.0, 0.1)]:
        agree(program, a, b)


def test_divmod_pow_round_int_float_bool_min_max_sum():
    def program(a, b):
        q, r = divmod(a, b)
        return q, r, pow(a, 2), round(a), int(a), bool(a), min(a, b), max(a, b, 3), sum([a, b, 1]), sum((a, b), 10)

    for a, b in [(7, 3), (-7, 2), (0, -4)]:
        agree(program, a, b)


def test_precedence_and_association_are_pythons():
    def program(a, b, c):
        return a - b - c, a - (b - c), -(a**2), 2**3**2, a + b * c, (a + b) * c, a // b // 2, a if b else c if a else b

    agree(program, 5, 3, 2)


# -- comparisons ----------------------------------------------------------------------------------------------------------


def test_comparisons_give_bools_that_count():
    def program(a, b):
        return a < b, a <= b, a == b, a != b, a >= b, a > b, (a < b) + (a > b), (a < b) * 3, -(a < b), int(a == b) + 1

    for a, b in [(1, 2), (2, 1), (2, 2)]:
        agree(program, a, b)


@settings(max_examples=15, deadline=None)
@given(a=st.sampled_from([1, 3, 5]), b=st.sampled_from([1, 3, 5]), c=st.sampled_from([1, 3, 5]))
def test_chains_of_comparisons(a, b, c):
    def program(a, b, c):
        return int(a < b < c), a <= b <= c, a < b > c, a == b == c, a != b != c, a < b <= c != 3, not a < b < c

    agree(program, a, b, c)


def test_the_middle_of_a_chain_is_evaluated_once_and_the_end_only_if_reached():
    def program(a, b):
        count = [0, 0]

        def middle():
            count[0] += 1
            return b

        def end():
            count[1] += 1
            return 4

        holds = a < middle() < end()
        return holds, count[0], count[1]

    agree(program, 1, 2)
    agree(program, 3, 2)


def test_in_and_not_in_over_run_time_elements():
    def program(a, b):
        return a in (1, b, 4), a not in [b, 2], a in {}, (a, b) in [(1, 2), (3, 4)], a in {1: 2, 3: 4}

    def ranges(a, b):
        return a in range(3), b not in range(1, 9, 3), a in range(7, 0, -2), a in range(0), a in range(10**9)

    for a, b in [(1, 2), (2, 2), (3, 4), (0, 0), (-3, 7), (7, 1)]:
        agree(ranges, a, b)
        agree(program, a, b)


def test_is_and_is_not():
    def program(a, b):
        nothing = None
        return nothing is None, nothing is not None, a is None, a is not None, (a, b) is not None

    agree(program, 1, 2)


def test_sequences_compare_item_by_item():
    def program(a, b):
        return (a, b) == (1, 2), [a, b] != [1, 2], (a, (b, 1)) == (1, (2, 1)), (a, b) == (1,), [a] == (a,)

    for a, b in [(1, 2), (1, 3), (2, 2)]:
        agree(program, a, b)


def test_tuples_order_as_python_does():
    def program(a, b):
        return (a, b) < (1, 2), (a, b) <= (1, 2), (a, b) > (1, 2), (a, b) >= (1, 2)

    for a, b in [(1, 2), (1, 1), (0, 5), (2, 0)]:
        agree(program, a, b)


# -- and, or, not, ternary ------------------------------------------------------------------------------------------------


def test_and_or_give_their_operands():
    def program(a, b):
        return a and b, a or b, a and b or 3, (a or b) and 4, not a, not (a and b), a and 0, 0 or a, 1 and a

    for a, b in itertools.product((0, 2), (0, 5)):
        agree(program, a, b)


def test_right_sides_run_only_if_reached():
    def program(a, b):
        seen = [0, 0, 0, 0]

        def touch(k, value):
            seen[k] += 1
            return value

        x = a and touch(0, b)
        y = a or touch(1, b)
        z = touch(2, 1) if a else touch(3, 2)
        return x, y, z, seen[0], seen[1], seen[2], seen[3]

    for a, b in itertools.product((0, 2), (0, 5)):
        agree(program, a, b)


def test_a_long_chain_of_and_and_or():
    def program(a, b, c):
        r1 = a and b and c and 7
        r2 = a or b or c or 7
        return r1, r2, bool(a or b and c), (a or b) and c, not a or not b

    for a, b, c in itertools.product((0, 1), repeat=3):
        agree(program, a, b, c)


def test_ternaries_nest_and_mix_kinds_of_number():
    def program(a, b):
        return a if a > b else b if b > 3 else -1, (1 if a else 2) + (b if b else 9)

    for a, b in [(1, 2), (0, 0), (5, 4), (2, 7)]:
        agree(program, a, b)


def test_a_ternary_over_tuples_gives_a_tuple():
    def program(a, b):
        x, y = (a, b) if a > b else (b, a)
        return x, y

    agree(program, 1, 2)
    agree(program, 2, 1)


# -- names, walrus, lambda, comprehensions --------------------------------------------------------------------------------


def test_walrus_binds_in_the_function():
    def program(a, b):
        if (n := a + b) > 3:
            n += 10
        xs = [(last := i) for i in (a, b, 3)]
        return n, last, xs[0], (m := n) + m

    agree(program, 1, 2)
    agree(program, 3, 2)


def test_walrus_in_a_short_circuit_happens_only_if_reached():
    def program(a, b):
        n = 100
        if a and (n := b):
            pass
        return n

    for a, b in itertools.product((0, 1), (0, 5)):
        agree(program, a, b)


def test_comprehensions_have_their_own_scope():
    def program(a, b):
        i = 7
        xs = [i * a for i in range(3)]
        ys = [x + y for x in (a, b) for y in (1, 2) if y != 1]
        d = {k: a + k for k in range(3) if k}
        s = {1, 2, 2}
        t = tuple(x * 2 for x in xs)
        return (
            i,
            xs[2],
            ys[0],
            ys[1],
            len(ys),
            d[1],
            d[2],
            len(d),
            len(s),
            t[1],
            sum(x for x in xs),
            max(x for x in (a, b)),
        )

    agree(program, 2, 5)


def test_nested_comprehensions_see_outer_variables():
    def program(a, b):
        rows = [[a * i + b * j for j in range(2)] for i in range(3)]
        flat = [x for row in rows for x in row]
        return rows[2][1], sum(flat), len(flat), sum([sum(r) for r in rows])

    agree(program, 2, 5)


def test_lambdas_capture_variables_not_values():
    def program(a, b):
        fs = [lambda x: x + i for i in range(3)]
        gs = [lambda x, i=i: x + i for i in range(3)]
        k = 1
        late = lambda: k + a
        k = 5
        return fs[0](a), gs[0](a), gs[2](b), late(), (lambda *xs, **ys: sum(xs) + ys["z"])(a, b, z=3)

    agree(program, 2, 5)


def test_calls_with_stars_defaults_and_keywords():
    def helper(a, b=2, *rest, c=3, **more):
        return a * 1000 + b * 100 + c * 10 + sum(rest) + sum(more.values())

    def program(a, b):
        args, named = (a, b), {"c": 7, "d": a}
        return helper(a), helper(a, b), helper(*args, 4, 5), helper(*args, **named), helper(b=a, a=b), helper(a, c=b)

    agree(program, 1, 4)


def test_positional_only_and_keyword_only_parameters():
    def helper(a, /, b, *, c):
        return a * 100 + b * 10 + c

    def program(a, b):
        return helper(a, b, c=1), helper(a, b=b, c=2)

    agree(program, 1, 4)
    assert "positional-only" in str(refuse(lambda a: helper(a=a, b=1, c=1), 1))
    assert refuse(lambda a: helper(a, 1), 1).id == "BAD_CALL"


def test_mutable_defaults_of_a_nested_function_are_shared_between_its_calls():
    def program(a, b):
        def add(x, acc=[]):
            acc.append(x)
            return sum(acc)

        return add(a), add(b), add(1)

    agree(program, 2, 5)


# -- containers -----------------------------------------------------------------------------------------------------------


def test_displays_unpack_and_index():
    def program(a, b):
        xs = [a, *(b, 3), *[4]]
        d = {"x": a, **{"y": b, "x": 9}}
        t = (*xs, a)
        return xs[-1], xs[1:3][0], t[::2][1], len(t), d["x"], d["y"], d.get("z", 5), xs[::-1][0], (a, b)[1], *xs

    agree(program, 2, 5)


def test_list_methods():
    def program(a, b):
        xs = [a]
        xs.append(b)
        xs.extend([3, a])
        xs.insert(1, 8)
        last = xs.pop()
        xs += (1, 2)
        xs[0] += 10
        xs.reverse()
        ys = xs + [b] * 2
        zs = xs.copy()
        zs.append(0)
        del zs[0]
        return last, len(xs), *xs, ys[-1], len(ys), len(zs), zs[0]

    agree(program, 2, 5)


def test_dict_methods():
    def program(a, b):
        d = {"x": a}
        d["y"] = b
        d.update({"z": 3})
        d["x"] += 1
        w = d.pop("z")
        e = dict(x=a, y=d["y"])
        total = 0
        for k, v in d.items():
            total = total * 10 + v + len(k)
        return w, total, len(d), "x" in d, "z" in d, d.setdefault("q", a), e["x"], sum(e.values()), len(list(d.keys()))

    agree(program, 2, 5)


def test_two_names_for_one_list_see_each_others_changes():
    def program(a, b):
        xs = [a, b]
        ys = xs
        ys[0] = 9
        zs = list(xs)
        zs[1] = 7

        def change(them):
            them[1] += 1
            them = [0, 0]

        change(xs)
        return xs[0], ys[1], zs[0], zs[1]

    agree(program, 2, 5)


def test_nested_lists_and_aliasing_rows():
    def program(a, b):
        grid = [[0] * 2 for _ in range(2)]
        alias = [[0] * 2] * 2
        grid[0][1] = a
        alias[0][1] = b
        return grid[0][1], grid[1][1], alias[0][1], alias[1][1]

    agree(program, 2, 5)


def test_zip_enumerate_reversed_map_filter_any_all_sorted():
    def program(a, b):
        xs = [a, b, 3]
        t = 0
        for i, (x, y) in enumerate(zip(xs, reversed(xs)), 1):
            t = t * 5 + i * x - y
        m = list(map(lambda x, y: x * y, xs, (1, 2, 3)))
        f = list(filter(lambda i: i % 2, range(5)))
        return t, *m, *f, any([a > 2, b > 2]), all([a > 2, b > 2]), any([]), all([]), sorted([3, 1, 2])[0]

    agree(program, 2, 5)
    agree(program, 4, 5)


def test_any_and_all_stop_as_soon_as_they_know():
    def program(a, b):
        seen = [0, 0]

        def see(k, value):
            seen[k] += 1
            return value

        x = any(see(0, v) > 2 for v in (a, 1, b, 4))
        y = all(see(1, v) > 2 for v in (a, b, 5) if v is not None)
        return x, y, seen[0], seen[1], any(map(lambda v: v > 3, (a, b))), all([])

    for a, b in itertools.product((1, 3), (1, 5)):
        agree(program, a, b)


def test_generators_are_lazy_and_can_be_used_once():
    def program(a, b):
        k = 1
        g = (v * k for v in (a, b))
        k = 10
        first, second = sum(g), sum(g)
        z = zip((a, b), (1, 2))
        pairs = list(z)
        m = map(lambda v: v + k, [a])
        k = 100
        return first, second, len(pairs), len(list(z)), *m, *m, [*filter(None, (0, 3))][0], list(iter((a,)))[0]

    agree(program, 2, 5)
    assert refuse(lambda a: len(v for v in (a, a)), 1).id == "STATIC_FAILURE"


def test_sorting_and_choosing_by_compile_time_keys():
    def program(a, b):
        rows = [(3, a), (1, b), (2, 7)]
        xs = sorted(rows, key=lambda row: row[0])
        rows.sort(key=lambda row: -row[0])
        return xs[0][1], rows[0][1], min((3, 1), key=lambda v: -v), sorted((2, 3), reverse=True)[0]

    agree(program, 2, 5)


def test_familiar_reductions():
    def program(a, b):
        return (
            reduce(lambda x, y: x * 10 + y, [a, b, 3]),
            reduce(operator.add, [a, b], 7),
            partial(max, a)(b),
            operator.mul(a, b),
        )

    agree(program, 2, 5)


def test_min_max_keep_pythons_choice_among_equals():
    def program(a):
        return min(a, 0.0), max(a, 0.0), max(-1.0, a, 2.5), min([a, 3.0]), abs(-a)

    for a in (0.0, -3.5, 2.25, math.inf):
        agree(program, a)


def test_strings_and_formatting_are_compile_time():
    def program(a):
        mode = "ad" + "d"
        text = f"{mode!r}:{3:02d}"
        picked = {"add": 1, "mul": 2}[mode]
        return picked + a, len(text), mode.startswith("a"), "dd" in mode, mode == "add", len("x" * 3)

    agree(program, 4)


# -- order of evaluation --------------------------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(a=small, b=small)
def test_operands_are_evaluated_left_to_right_and_once(a, b):
    def program(a, b):
        log = []

        def see(k, v):
            log.append(k)
            return v

        def f(*xs, **ys):
            return sum(xs) + sum(ys.values())

        t = see(1, a) + see(2, b) * see(3, 2)
        u = f(see(4, 1), *[see(5, 2)], k=see(6, b))
        xs = [see(7, 0), see(8, 1)]
        xs[see(9, 0)] = see(10, a)
        d = {see(11, "k"): see(12, a), see(13, "l"): see(14, b)}
        xs[see(15, 1)] += see(16, a)
        order = 0
        for k in log:
            order = order * 3 + k
        return t, u, xs[0], xs[1], d["k"] + d["l"], order, len(log)

    agree(program, a, b)


def test_right_side_first_then_targets_left_to_right():
    def program(a, b):
        xs = [a, b, 0]
        i = 0
        i, xs[i] = 1, 50
        xs[0], xs[1] = xs[1], xs[0]
        c = d = xs[2] = a + b
        (p, q), *r = (a, b), 1, 2
        return i, *xs, c, d, p, q, r[0], len(r)

    agree(program, 2, 5)


def test_augmented_assignment_evaluates_its_target_once():
    def program(a, b):
        calls = [0]
        xs = [a, b]

        def index():
            calls[0] += 1
            return 1

        xs[index()] += 3
        xs[index()] **= 2
        return calls[0], xs[1]

    agree(program, 2, 5)


def test_conditions_through_variables_tuples_helpers_and_lambdas_are_the_same_code():
    def direct(a, b):
        if a < b:
            return 1
        return 2

    def through(wrap):
        def program(a, b):
            flag = wrap(a < b)
            if flag:
                return 1
            return 2

        return program

    def same(x):
        return x

    for wrap in (same, lambda x: x, lambda x: (0, x)[1], lambda x: [x][0], lambda x: {"k": x}["k"], sk.inline(same)):
        for a, b in ((1, 2), (2, 1)):
            agree(through(wrap), a, b)
    agree(direct, 1, 2)


# -- what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda a: [1, 2][a], "RUN_TIME_VALUE"),
        (lambda a: {a: 1}, "RUN_TIME_VALUE"),
        (lambda a: a.shape, "NO_ATTRIBUTE"),
        (lambda a: a[0], "BAD_INDEX"),
        (lambda a: a(), "NOT_CALLABLE"),
        (lambda a: a @ a, "BAD_OPERANDS"),
        (lambda a: a + "x", "BAD_OPERANDS"),
        (lambda a: a + None, "BAD_OPERANDS"),
        (lambda a: a < "x", "BAD_OPERANDS"),
        (lambda a: [i for i in range(a)], "NOT_ITERABLE"),
        (lambda a: [i for i in (1, 2) if a], "RUN_TIME_VALUE"),
        (lambda a: len(a), "BAD_CALL"),
        (lambda a: undefined_name + a, "UNKNOWN_NAME"),
        (lambda a: math.comb(a, 2), "NOT_CALLABLE"),
        (lambda a: np.linalg.norm(a), "NOT_CALLABLE"),
        (lambda a: "%d" % a, "BAD_OPERANDS"),
        (lambda a: 1 // 0 + a, "STATIC_FAILURE"),
        (lambda a: (1, 2)[5] + a, "STATIC_FAILURE"),
        (lambda a: (1, 2).nope + a, "NO_ATTRIBUTE"),
        (lambda a: f"{a}"[0], "RUN_TIME_VALUE"),
        (lambda a: "%s" % (a,), "RUN_TIME_VALUE"),
        (lambda a: "{}".format(a), "NOT_CALLABLE"),
        (lambda a: len({a, 1}), "RUN_TIME_VALUE"),
        (lambda a: len(set([a, 1])), "NOT_CALLABLE"),
        (lambda a: len({x for x in (a, 1)}), "RUN_TIME_VALUE"),
        (lambda a: [a, 1].index(1), "RUN_TIME_VALUE"),
        (lambda a: str(a), "NOT_CALLABLE"),
        (lambda a: hash(a), "NOT_CALLABLE"),
        (lambda a: sorted([a, 1]), "NOT_CALLABLE"),
        (lambda a: list(range(1.5)), "NOT_ITERABLE"),
        (lambda a: a if a else (a, a), "JOIN_MISMATCH"),
    ],
)
def test_what_has_no_meaning_is_refused(program, expected):
    assert refuse(program, 3).id == expected
