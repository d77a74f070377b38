"""Loops: at run time, unrolled, and what they carry. CPython is the judge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import stagekit as sk
from tests.frontend.agreement import agree, refuse

# -- for ------------------------------------------------------------------------------------------------------------------


def test_ranges_with_every_kind_of_bound():
    def program(a, b, c):
        s, last = 0, -1
        for i in range(a):
            s += i
            last = i
        for i in range(b, a):
            s = s * 3 + i
        for i in range(a, b, c):
            s = s * 3 - i
        for i in range(b, -b, -c):
            s = s * 2 + i
        return s, last

    for a, b, c in [(5, 2, 1), (0, 3, 2), (4, 9, 3), (-2, 2, 5)]:
        agree(program, a, b, c)


def test_the_loop_variable_after_the_loop_is_pythons():
    def program(a, b):
        i = 100
        for i in range(a):
            pass
        j = 7
        for j in range(b, 10, 4):
            j = j * 2
        for k in range(3):
            pass
        return i, j, k

    for a, b in [(0, 10), (3, 1), (1, 9)]:
        agree(program, a, b)


def test_changing_the_loop_variable_does_not_change_the_trips():
    def program(a):
        trips = 0
        for i in range(a):
            i += 5
            trips += 1
            if i > 7:
                i = 0
        return trips

    for a in (0, 3, 6):
        agree(program, a)


def test_bounds_are_evaluated_once_before_the_loop():
    def program(a):
        n, s, calls = a, 0, [0]

        def bound():
            calls[0] += 1
            return n

        for i in range(bound()):
            n += 10
            s += i
        return s, n, calls[0]

    for a in (0, 3):
        agree(program, a)


def test_a_loop_variable_of_an_empty_loop_is_poison():
    def program(a):
        for i in range(a):
            pass
        return i

    error = refuse(program, 3)
    assert error.id == "MAYBE_UNDEFINED"
    assert "`i`" in str(error)
    agree(lambda: program(3))


def test_break_continue_return_in_run_time_loops():
    def find(xs, n, wanted):
        for i in range(n):
            x = xs[0] * i % 7
            if x == 3:
                continue
            if x == wanted:
                return i
            if i == 9:
                break
        return -1

    def program(a, b):
        return find([a], 12, b), find([b], a, 1), find((a,), 3, 100)

    for a, b in itertools.product((0, 2, 5), (1, 4)):
        agree(program, a, b)


def test_nested_run_time_loops_with_exits():  # Y10
    def program(a, b):
        s = 0
        for i in range(a):
            for j in range(b):
                if j > i:
                    break
                if (i + j) % 3 == 0:
                    continue
                k = 0
                while True:
                    k += 1
                    if k > j:
                        break
                    s += k
                s = s * 2 % 997 + j
            if s > 500:
                break
        return s

    for a, b in itertools.product((0, 3, 6), (0, 2, 5)):
        agree(program, a, b)


def test_a_compile_time_exit_of_a_run_time_loop():
    def program(a):
        s = 0
        for i in range(a):
            s += 10
            break
        for i in range(a):
            s += 1
            continue
            s += 1000
        return s

    for a in (0, 3):
        agree(program, a)


def test_a_return_inside_a_loop_of_a_fragment_is_not_the_callers():
    def first(n, k):
        for i in range(n):
            if i * i >= k:
                return i
        return 50

    def program(a, b):
        s = 0
        for i in range(a):
            s += first(i, b)
        return s, first(b, 4)

    for a, b in [(0, 3), (4, 3), (3, 9)]:
        agree(program, a, b)


# -- unrolled -------------------------------------------------------------------------------------------------------------


def test_unrolled_loops_over_anything():
    def program(a, b):
        s = 0
        for x in (a, b, 3):
            s = s * 7 + x
        for i, x in enumerate([b, a]):
            s = s * 7 + i * x
        for k, v in {"p": a, "qq": b}.items():
            s = s * 7 + len(k) * v
        for c in "xyz":
            s = s * 2 + (c == "y")
        for (p, q), r in [((1, a), 2), ((b, 3), 4)]:
            s = s * 3 + p * q + r
        for x in np.array([1, 2]):
            s = s + int(x)
        for x in reversed((a, b)):
            s = s * 2 - x
        for x in ():
            s = -1
        return s

    agree(program, 2, 5)


def test_static_names_are_rebound_in_every_copy():  # P3
    def program(trips):
        def run(x):
            acc = x
            for i in [0, 1, 2][:trips]:
                w = i * i
                acc += w
            return acc

        return run

    for trips in range(4):
        agree(program(trips), 5)


def test_an_unrolled_loop_meets_what_its_body_appends():
    def program(a):
        todo, s = [3], 0
        for n in todo:
            s = s * 10 + n + a
            if n > 0:
                todo.append(n - 1)
        return s, len(todo)

    agree(program, 2)


def test_an_iterator_without_end_is_read_as_far_as_needed():
    def program(a):
        s = 0
        for n in itertools.count():
            if n == 4:
                break
            s = s * 10 + n + a
        return s

    agree(program, 2)


def test_an_iterator_without_end_meets_the_budget():
    @sk.jit(unroll_budget=10)
    def loop(out):
        for n in itertools.count():
            out[0] = n

    @sk.jit(unroll_budget=10)
    def comprehension(out):
        out[0] = sum(n for n in [n for n in itertools.count()])

    for kernel in (loop, comprehension):
        with pytest.raises(sk.StagekitError, match="UNROLL_BUDGET"):
            kernel[1, 1](np.zeros(1, np.int64))


def test_a_dict_that_grows_under_its_own_loop_is_refused():
    def program(a):
        d = {1: a}
        for key in d:
            d[key + 1] = a
        return len(d)

    assert refuse(program, 1).id == "STATIC_FAILURE"


def test_break_under_a_run_time_if_in_an_unrolled_loop():  # P4
    def program(t, u):
        s, n = 0, 0
        for x in (3, 1, 4, 1, 5):
            n += 1
            if x > t:
                break
            if x == u:
                continue
            s = s * 10 + x
        return s, n

    for t, u in itertools.product((0, 2, 3, 4, 9), (1, 7)):
        agree(program, t, u)


def test_compile_time_break_and_continue():
    def program(a):
        s = 0
        for i in (1, 2, 3, 4, 5):
            if i == 2:
                continue
            if i == 4:
                break
            s = s * 10 + i + a
        return s

    agree(program, 7)


def test_a_list_changed_while_it_is_looped_over_has_the_items_of_the_start():
    def program(a):
        xs = [1, 2]
        s = 0
        for x in list(xs):
            xs.append(x + a)
            s += x
        return s, len(xs), xs[3]

    agree(program, 7)


# -- while ----------------------------------------------------------------------------------------------------------------


def test_while_reads_its_condition_anew():  # T2
    def program(a, b):
        i, s = 0, 0
        while i < a:
            s += i * b
            i += 1
        while s > 10 and b:
            s -= b
        return i, s

    for a, b in [(4, 2), (0, 3), (5, 0)]:
        agree(program, a, b)


def test_while_with_walrus_and_short_circuit():
    def program(a, b):
        n, seen, k = a, 0, 0
        while (m := n * 2) < 40 and (k := m + b) < 30:
            n += 3
            seen += k
        return n, m, seen

    for a, b in [(1, 2), (30, 1), (5, 25)]:
        agree(program, a, b)


def test_while_true_with_breaks():
    def program(a):
        n, steps = a, 0
        while True:
            if n <= 1:
                break
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
            if steps > 50:
                return -1
        return steps

    for a in (0, 1, 7, 12):
        agree(program, a)


def test_a_while_over_compile_time_values_runs_at_compile_time():
    def program(a):
        names, n = [], 1
        while n < 20:
            names.append(n)
            n *= 3
        total = 0
        while names:
            total = total * 5 + names.pop() + a
        return total, n

    agree(program, 7)


def test_while_that_starts_static_and_becomes_run_time():
    def program(a):
        n = 0
        s = 1
        while n < 5:
            n += 1 if s < 10 else a
            s += n * 4
        return n, s

    for a in (1, 2, 9):
        agree(program, a)


# -- what loops carry -----------------------------------------------------------------------------------------------------


def test_literal_starts_take_the_type_that_the_body_gives():
    def program(x):
        acc, count, low, ok = 0, 0, 1, True
        for i in range(5):
            acc += x
            count += 1
            low = min(low, x - i)
            ok = ok and x > i
        return acc, count, low, ok

    for x in (0.25, -3.5):
        agree(program, x)


def test_simultaneous_updates_fibonacci():
    def program(n):
        a, b = 0, 1
        for _ in range(n):
            a, b = b, a + b
        return a, b

    for n in (0, 1, 10):
        agree(program, n)


def test_lists_dicts_and_objects_are_carried_in_place():
    class Box:
        def __init__(self, x):
            self.x = x
            self.rows = [[0, 0], [0, 0]]

        def step(self, k):
            self.x = self.x * 2 + k
            self.rows[k % 2 if isinstance(k, int) and False else 1][0] += k

    def program(n, m):
        xs, d, box = [0, m, 5], {"k": 0, "fixed": 3}, Box(m)
        alias = xs
        for i in range(n):
            xs[0] += i
            xs[1], xs[0] = xs[0], xs[1]
            d["k"] += xs[0]
            box.step(i)
            box.rows[0][1] -= d["fixed"]
        return *xs, alias[0], d["k"], box.x, *box.rows[0], *box.rows[1]

    for n, m in [(0, 3), (1, 3), (5, 2)]:
        agree(program, n, m)


def test_tuples_and_nested_tuples_are_carried():
    def program(n, m):
        state = (0, (m, 1), [m, 2])
        for i in range(n):
            state = (state[0] + i, (state[1][1], state[1][0] + 1), [state[2][1], state[0]])
        return state[0], *state[1], *state[2]

    for n, m in [(0, 3), (1, 3), (4, 2)]:
        agree(program, n, m)


def test_nested_objects_are_carried_by_rebinding():
    class Vec:
        def __init__(self, x, y):
            self.x, self.y = x, y

        def __add__(self, other):
            return Vec(self.x + other.x, self.y + other.y)

        def scaled(self, k):
            return Vec(self.x * k, self.y * k)

    def program(n, m):
        p, v = Vec(0, m), Vec(1, 2)
        for i in range(n):
            p = p + v.scaled(i)
            v = Vec(v.y, v.x)
        return p.x, p.y, v.x, v.y

    for n, m in [(0, 3), (1, 3), (5, 2)]:
        agree(program, n, m)


def test_a_variable_of_the_body_alone_is_poison_after_the_loop():
    def program(n):
        for i in range(n):
            t = i * 2
            u = t + 1
        return u

    error = refuse(program, 3)
    assert error.id == "MAYBE_UNDEFINED"
    assert "`u`" in str(error)
    assert f"line {program.__code__.co_firstlineno + 1}" in str(error)


def test_a_variable_that_outlives_an_iteration_is_carried():
    def program(n):
        prev, cur = -1, -1
        for i in range(n):
            if i > 1:
                prev = cur
            cur = i * i
        return prev, cur

    for n in (0, 1, 5):
        agree(program, n)


def test_a_type_change_names_both_types_and_the_line():  # P8
    def program(n):
        acc = sk.int32(0)
        for i in range(n):
            acc = acc + sk.float32(i)
        return acc

    error = refuse(program, 3)
    text = str(error)
    assert error.id == "LOOP_TYPE_CHANGE"
    assert "`acc`" in text
    assert "int32" in text
    assert "float32" in text
    assert error.loc.line == program.__code__.co_firstlineno + 2


def test_a_bool_start_is_carried_as_bool():  # P8
    def program(a, b):
        seen, every = False, True
        for i in range(a):
            seen = seen or i * 2 == b
            every = every and i != b
        return int(seen), int(every)

    for a, b in [(0, 2), (3, 2), (5, 7), (9, 8)]:
        agree(program, a, b)


def test_the_structure_of_a_list_does_not_change_in_a_run_time_loop():
    def program(n):
        xs = []
        for i in range(n):
            xs.append(i)
        return len(xs)

    assert refuse(program, 3).id == "STRUCTURE_CHANGE"


def test_nonlocal_variables_are_carried():
    def program(n, m):
        total, calls = 0, 0

        def add(k):
            nonlocal total, calls
            calls += 1
            if k % 2:
                total += k * m

        for i in range(n):
            add(i)
            add(i + 1)
        return total, calls

    for n, m in [(0, 3), (4, 3)]:
        agree(program, n, m)


def noted_by():
    """Return a function that CPython calls, as it has no source, and the list that gets its arguments."""
    traced: list[object] = []
    plain: dict[str, object] = {"traced": traced}
    exec("def note(k): traced.append(k); return k", plain)
    return plain["note"], traced


def test_a_body_is_traced_up_to_the_first_number_that_it_changes_and_then_once():
    note, traced = noted_by()

    @sk.jit
    def kernel(x: sk.Tensor((None,), sk.float32), n):
        total = 0.0
        for i in range(n):
            for k in sk.static_range(3):
                total += x[i + note(k)]
        x[0] = total

    kernel.specialize(n=sk.int32).trace()

    assert traced == [0, 0, 1, 2]


def test_a_body_is_traced_up_to_the_last_tuple_that_it_changes_and_then_once():
    note, traced = noted_by()

    @sk.jit
    def kernel(x: sk.Tensor((None,), sk.float32), n):
        low, high = (0.0, 1), (0.0, 2)
        for i in range(n):
            low = low[0] + x[i], low[1]
            note("low")
            high = high[0] + x[i], high[1]
            note("high")
        x[0] = low[0] * high[0] + note(low[1]) + note(high[1])

    kernel.specialize(n=sk.int32).trace()

    assert traced == ["low", "low", "high", 1, 2]


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_tuple_that_only_the_last_call_changes_does_not_end_the_round(is_nested):
    """There is nothing to be saved, unless a loop of many rounds is left; what changes behind it would be found in one more."""
    note, traced = noted_by()

    @sk.jit
    def kernel(x: sk.Tensor((None,), sk.float32), n):
        pair, turns = (0.0, 1), 0
        for i in range(n):
            note("body")
            for k in range(n if is_nested else 1):
                pair = sk.maximum(pair[0], x[i]), pair[1]
                turns += 1
        x[0] = pair[0] + turns

    kernel.specialize(n=sk.int32).trace()

    assert traced == ["body"] * 2


def test_a_tuple_that_is_known_again_at_the_end_is_not_carried():
    def program(a, n):
        pair, total = (0, 1), 0
        for i in range(n):
            pair = a + i, 1
            total += pair[0]
            pair = 0, 1
            total += range(3)[pair[0]]
        return total, pair[0]

    for a, n in [(3, 4), (2, 0)]:
        agree(program, a, n)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_numbers_that_each_branch_of_a_loop_changes_another_of_are_carried(depth):
    """The round ends in the branch of the last one, where what the others changed is undone."""

    def program(a, n, depth):
        values = first, second, third = [2], 3, 4
        for i in range(n):
            if (a + i) % 2 == 0:
                second = a + i
            elif depth > 1 and (a + i) % 3 == 0:
                third = a - i
                if depth > 2 and a > i:
                    continue
            else:
                first[0] = a * i
                a = a + 1
        return first[0], second, third, a, values[1]

    for a, n in [(3, 4), (2, 1), (0, 9), (7, 0)]:
        agree(program, a, n, depth)


def test_none_becoming_a_number_in_a_loop_is_refused():
    def program(n):
        best = None
        for i in range(n):
            best = i
        return 0 if best is None else best

    error = refuse(program, 3)
    assert error.id in ("LOOP_TYPE_CHANGE", "JOIN_MISMATCH")
    assert "`best`" in str(error)
    assert "None" in str(error)


def test_deep_nests_of_everything():  # Q23
    def helper(n, k):
        s = k
        while n > 0:
            n -= 1
            if n % 2:
                for i in range(n):
                    if i == k:
                        break
                    s += i * n
            else:
                s ^= n
        return s

    def program(a, b):
        total = 0
        for i in range(a):
            if i % 2 == b % 2:
                total += helper(i, b)
                if total > 40:
                    continue
                total += helper(b, i)
            else:
                j = 0
                while j < 3:
                    j += 1
                    total -= helper(j, 1) if total > 5 else -1
        return total

    for a, b in [(0, 1), (5, 2), (6, 3)]:
        agree(program, a, b)


# -- hints and refusals ---------------------------------------------------------------------------------------------------


def test_range_takes_an_unroll_hint():
    @sk.jit
    def kernel(out, n):
        s = 0
        for i in range(0, n, unroll=4):
            s += i
        out[0] = s

    out = np.zeros(1, np.int64)
    kernel[1, 1](out, 10)
    assert out[0] == 45
    assert "unroll" in kernel.specialize(out=sk.Tensor((None,), sk.int64), n=sk.int32).ir


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda a: _loop(range(a * 0.5)), "BAD_OPERANDS"),
        (lambda a: _loop(range(0, a, 0)), "BAD_CALL"),
        (lambda a: _loop(range(0.5)), "BAD_OPERANDS"),
        (lambda a: _loop(range(0, 5, 0)), "STATIC_FAILURE"),
        (lambda a: _loop(range()), "BAD_CALL"),
        (lambda a: _loop(range(0, a, unroll=0)), "BAD_CALL"),
        (lambda a: _loop(a), "NOT_ITERABLE"),
        (lambda a: _loop(None), "NOT_ITERABLE"),
        (lambda a: _loop(sk.static_range(a)), "RUN_TIME_VALUE"),
    ],
)
def test_what_is_no_loop(program, expected):  # T7
    assert refuse(program, 3).id == expected


def _loop(items):
    s = 0
    for i in items:
        s += 1
    return s
