"""Ordinary Python in small programs, of aliases, loops and numbers: each gives in a kernel what CPython gives."""

from __future__ import annotations

import collections
import dataclasses
import math
import typing

import numpy as np
import pytest

from tests.frontend.agreement import agree


class Box:
    def __init__(self, v):
        self.v = v
        self.items = [v]

    def bump(self, k=1):
        self.v += k
        return self

    def __eq__(self, o):
        return isinstance(o, Box) and self.v == o.v

    def __hash__(self):
        return 1


def uses_alias(n):
    a = [1, 2]
    b = a
    if n > 2:
        b[0] = n
    return a[0], b[0]


def uses_alias_choose(n):
    a, b = [1], [2]
    c = a if n > 2 else b
    return c[0]


def uses_chain_method(n):
    return Box(n).bump().bump(3).v


def uses_obj_in_loop(n):
    b = Box(0)
    for i in range(n):
        b.bump(i)
    return b.v


def uses_obj_swap_in_loop(n):
    a, b = Box(1), Box(2)
    for i in range(n):
        a, b = b, a
    return a.v


def uses_list_of_obj_loop(n):
    bs = [Box(1), Box(2)]
    for i in range(n):
        for b in bs:
            b.bump(i)
    return bs[0].v * 100 + bs[1].v


def uses_list_swap_loop(n):
    xs = [1, 2, 3]
    for i in range(n):
        xs[0], xs[1], xs[2] = xs[2], xs[0], xs[1]
    return xs[0] * 100 + xs[1] * 10 + xs[2]


def uses_list_rebind_loop(n):
    xs = [1, 2]
    for i in range(n):
        xs = [xs[1], xs[0] + xs[1]]
    return xs[0], xs[1]


def uses_alias_rebind_loop(n):
    xs = [1, 2]
    ys = xs
    for i in range(n):
        xs = [xs[1], xs[0] + xs[1]]
    return ys[0], xs[1]


def uses_alias_in_loop(n):
    xs = [0, 0]
    for i in range(n):
        ys = xs
        ys[1] += i
    return xs[1]


def uses_tuple_rebind_loop(n):
    t = (0, 1)
    for i in range(n):
        t = (t[1], t[0] + t[1])
    return t[0]


def uses_fib_while(n):
    a, b = 0, 1
    while a < n * 10:
        a, b = b, a + b
    return a


def uses_nested_list_loop(n):
    m = [[0, 1], [1, 1]]
    for _ in range(n):
        m = [[sum(m[i][k] * [[0, 1], [1, 1]][k][j] for k in range(2)) for j in range(2)] for i in range(2)]
    return m[0][1]


def uses_default_dict_rt(n):
    d = collections.defaultdict(int)
    for k in ("a", "b", "a"):
        d[k] += n
    return d["a"], len(d)


def uses_in_arm_new_key(n):
    d = {"a": 1}
    if n > 2:
        d["a"] = 5
    return d["a"]


def uses_closure_cell_arm(n):
    c = 0

    def f():
        nonlocal c
        c = c + 5

    if n > 2:
        f()
    return c


def uses_closure_in_loop(n):
    c = 0

    def f(i):
        nonlocal c
        c += i
        return c > 4

    for i in range(10):
        if f(i):
            break
    return c


def uses_short_circuit_effect(n):
    log = [0]

    def f(x):
        log[0] += 1
        return x

    r = f(n) > 2 and f(n) < 5 or f(n) > 100
    return log[0], r + 0


def uses_ternary_effect(n):
    log = [0]

    def f(x):
        log[0] += x
        return x

    r = f(1) if n > 2 else f(10)
    return log[0], r


def uses_early_in_static_loop(n):
    for i in [1, 2, 3]:
        if n == i:
            return i * 10
    return 0


def uses_continue_static(n):
    s = 0
    for i in [1, 2, 3, 4]:
        if i == n:
            continue
        s += i
    return s


def uses_break_static_then(n):
    s = 0
    for i in [1, 2, 3, 4]:
        if i > n:
            break
        s += i
    s = s * 2
    return s, i


def uses_nested_fn_return_in_loop(n):
    def first(xs):
        for x in xs:
            if x > n:
                return x
        return -1

    return first([1, 4, 7]), first([0])


def uses_while_two_vars(n):
    lo, hi = 0, 100
    while hi - lo > 1:
        mid = (lo + hi) // 2
        if mid * mid <= n * 100:
            lo = mid
        else:
            hi = mid
    return lo


def uses_gcd(n):
    a, b = n * 12, 18
    while b:
        a, b = b, a % b
    return a


def uses_int_float_mix(n):
    x = n / 2
    return int(x * 4), int(x // 1), int(x % 1 * 10)


def uses_neg_mod(n):
    return -7 % n, 7 % -n, -7 // n


def uses_round_half(n):
    return round(n + 0.5), round(n - 0.5), round(-n / 2)


def uses_bool_arith(n):
    return (n > 2) + (n > 1), (n > 2) * 5, True + n, sum([n > 1, n > 5])


def uses_tuple_cmp(n):
    return ((n, 1) < (3, 2)) + 0, ((n,) == (3,)) + 0, ((1, n) > (1, 2)) + 0


def uses_list_eq(n):
    return ([1, n] == [1, 3]) + 0, ([1] == [1, n]) + 0


def uses_box_eq(n):
    return (Box(n) == Box(3)) + 0, (Box(n) != Box(3)) + 0, (Box(n) in [Box(3)]) + 0


def uses_list_index_box(n):
    return [Box(1), Box(n)].index(Box(1))


def uses_str_ops(n):
    return len("a" * 3), "abc"[1] == "b", "a" in "abc", len("x,y".split(","))


def uses_set_ops(n):
    s = {1, 2}
    s.add(5)
    return len(s | {7}), (n in s) + 0, sorted(s)[2]


def uses_deque(n):
    d = collections.deque([1, n], maxlen=3)
    d.append(7)
    d.append(8)
    d.rotate()
    return d[0], len(d), sum(d)


def uses_nt(n):
    P = NT(n, 2)
    a, b = P
    return a, P.y, P._replace(x=9).x, P == (n, 2)


class NT(typing.NamedTuple):
    x: int
    y: int


def uses_nt_branch(n):
    p = NT(1, 2) if n > 2 else NT(3, 4)
    return p.x + p.y


def uses_nt_loop(n):
    p = NT(0, 1)
    for i in range(n):
        p = p._replace(x=p.x + i)
    return p.x


def uses_dc_loop(n):
    s = S(0, 1)
    for i in range(n):
        s = dataclasses.replace(s, a=s.b, b=s.a + s.b)
    return s.a


@dataclasses.dataclass(frozen=True)
class S:
    a: int
    b: int


def uses_swap_in_if(n):
    a, b = 1, n
    if b > a:
        a, b = b, a
    return a, b


def uses_min_max_loop(n):
    lo, hi = 100, -100
    for i in range(n):
        v = (i * 7) % 5
        lo, hi = min(lo, v), max(hi, v)
    return lo, hi


def uses_accumulate_float(n):
    s = 0
    for i in range(n):
        s += i * 0.5
    return int(s * 2)


def uses_uninit_in_loop(n):
    for i in range(n):
        if i == 0:
            first = i
        last = i
    return n


def uses_flag_again(n):
    found = False
    for i in range(10):
        if i * i == n * 3:
            found = True
    return found + 0


def uses_count_while_continue(n):
    i = c = 0
    while i < n * 3:
        i += 1
        if i % 2:
            continue
        c += i
    return c


def uses_multi_target(n):
    a = b = [n]
    b.append(2)
    return len(a)


def uses_global_fn_reassign(n):
    f = len
    g = max
    return f([1, 2]) + g(n, 1)


def uses_comp_scope(n):
    x = n
    ys = [x for x in (1, 2)]
    return x, ys[1]


def uses_comp_cond_static(n):
    return sum(n for i in range(5) if i % 2)


def uses_lambda_default_mut(n):
    xs = []
    f = lambda v, acc=xs: acc.append(v)
    f(1)
    f(n)
    return len(xs)


def uses_star_kw(n):
    def g(*a, **k):
        return len(a) * 10 + len(k)

    return g(*range(3), **{"x": n}), g(*[n], 2, y=1)


def uses_fn_name(n):
    def g():
        return 1

    return len(g.__name__)


def uses_type_name(n):
    return len(type(Box(n)).__name__)


def uses_isinstance_num(n):
    return isinstance(n, (int, float)) + 0, isinstance(n > 1, bool) + 0, isinstance(n / 2, float) + 0


def uses_np_funcs(n):
    return int(np.sqrt(n * n)), int(np.maximum(n, 2)), int(np.abs(-n)), int(np.where(n > 2, 1, 2))


def uses_np_const(n):
    return int(np.pi) + int(np.float32(2.5)) + np.int64(3)


def uses_np_array_cap(n):
    return ARR[1] + n, ARR.shape[0], len(ARR), sum(ARR)


ARR = np.array([1, 2, 3])


def uses_np_arr_op(n):
    return (ARR * 2)[1]


def uses_math_const(n):
    return int(math.pi * n), math.floor(n / 2), math.ceil(n / 2), int(math.sqrt(n * n)), math.isqrt(16)


def uses_math_floor_type(n):
    return math.floor(n / 2) + 1, math.trunc(-n / 2)


def uses_int_methods(n):
    return (5).bit_length(), int("7"), int(2.9)


def uses_abs_neg(n):
    return abs(-n), abs(n - 10)


def uses_pow(n):
    return n**2, 2**n, pow(n, 3), n**0, (-2) ** n


def uses_pow_half(n):
    return int((n * n) ** 0.5)


def uses_shift_big(n):
    return 1 << 40, n << 35


def uses_mod_float(n):
    return int((n + 0.5) % 2 * 10), int(-(n + 0.5) // 2)


def uses_np_clip(n):
    return int(np.clip(n, 0, 2)), int(np.clip(-n, 0, 2)), int(np.clip(5, 0, n))


def uses_fn_doc(n):
    def g(a=n):
        "doc"
        return 1

    return len(g.__doc__), g.__defaults__[0], g.__call__()


PROGRAMS = [
    uses_alias, uses_alias_choose, uses_chain_method, uses_obj_in_loop, uses_obj_swap_in_loop, uses_list_of_obj_loop,
    uses_list_swap_loop, uses_list_rebind_loop, uses_alias_rebind_loop, uses_alias_in_loop, uses_tuple_rebind_loop,
    uses_fib_while, uses_nested_list_loop, uses_default_dict_rt, uses_in_arm_new_key, uses_closure_cell_arm,
    uses_closure_in_loop, uses_short_circuit_effect, uses_ternary_effect, uses_early_in_static_loop, uses_continue_static,
    uses_break_static_then, uses_nested_fn_return_in_loop, uses_while_two_vars, uses_gcd, uses_int_float_mix, uses_neg_mod,
    uses_round_half, uses_bool_arith, uses_tuple_cmp, uses_list_eq, uses_box_eq, uses_list_index_box, uses_str_ops,
    uses_set_ops, uses_deque, uses_nt, uses_nt_branch, uses_nt_loop, uses_dc_loop, uses_swap_in_if, uses_min_max_loop,
    uses_accumulate_float, uses_uninit_in_loop, uses_flag_again, uses_count_while_continue, uses_multi_target,
    uses_global_fn_reassign, uses_comp_scope, uses_comp_cond_static, uses_lambda_default_mut, uses_star_kw, uses_fn_name,
    uses_type_name, uses_isinstance_num, uses_np_funcs, uses_np_const, uses_np_array_cap, uses_np_arr_op, uses_math_const,
    uses_math_floor_type, uses_int_methods, uses_abs_neg, uses_pow, uses_pow_half, uses_shift_big, uses_mod_float,
    uses_np_clip, uses_fn_doc,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.removeprefix("uses_"))
def test_it_means_what_it_means_in_python(program):
    agree(program, 3)
