"""Ordinary Python in small programs, of patterns, objects and functions: each gives in a kernel what CPython gives."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import typing

import pytest

from tests.frontend.agreement import agree


def uses_match_int(n):
    match n:
        case 1:
            return 10
        case 2 | 3:
            return 20
        case _:
            return 30


def uses_match_seq(n):
    match (n, 2, 3):
        case (3, *rest):
            return sum(rest)
        case _:
            return -1


def uses_match_map(n):
    match {"a": n, "b": 2}:
        case {"a": x, **rest}:
            return x + len(rest)


def uses_match_str(n):
    match "add":
        case "add":
            return n + 1
        case "sub":
            return n - 1


@dataclasses.dataclass
class P:
    x: int
    y: int = 0

    def norm(self):
        return self.x * self.x + self.y * self.y

    @property
    def total(self):
        return self.x + self.y

    @classmethod
    def of(cls, v):
        return cls(v, v)

    @staticmethod
    def zero():
        return P(0, 0)

    def __add__(self, o):
        return P(self.x + o.x, self.y + o.y)

    def __lt__(self, o):
        return self.x < o.x

    def __bool__(self):
        return self.x != 0

    def __len__(self):
        return 5

    def __contains__(self, v):
        return v == self.x

    def __call__(self, k):
        return self.x * k

    def __getitem__(self, i):
        return (self.x, self.y)[i]

    def __iter__(self):
        return iter((self.x, self.y))


def uses_match_class(n):
    match P(n, 2):
        case P(3, y):
            return y
        case P(x=x):
            return x


def uses_match_guard(n):
    match n:
        case x if x > 2:
            return x * 10
        case x:
            return x


def uses_match_nested(n):
    match [(1, n), (2, 4)]:
        case [(1, a), (2, b)] if a > b:
            return 1
        case [(_, a), (_, b)]:
            return a * 10 + b


def uses_match_or_bind(n):
    match ("k", n):
        case ("k", v) | ("j", v):
            return v


def uses_match_as(n):
    match (n, 1):
        case (1 | 3 as v, w):
            return v * 2 + w
        case _:
            return 0


class E(enum.Enum):
    A = 1
    B = 2


class F(enum.Flag):
    R = 1
    W = 2


def uses_match_enum(n):
    e = E.B
    match e:
        case E.A:
            return 1
        case E.B:
            return 2


def uses_enum_iter(n):
    return sum(e.value * n for e in E), len(E), E["A"].value, E(2).name == "B"


def uses_flag(n):
    return (F.R | F.W).value, bool(F.R & F.W) + 0, (F.R in (F.R | F.W)) + 0


def uses_dc(n):
    p = P(n, 2) + P.of(1) + P.zero()
    return p.x, p.y, p.norm(), p.total, p(3), p[0], len(p), (n in p) + 0, sum(p)


def uses_dc_lt(n):
    return (P(n) < P(5)) + 0, (P(n) > P(5)) + 0, max(P(n), P(2)).x


def uses_dc_bool(n):
    if P(n):
        return 1
    return 0


def uses_dc_unpack(n):
    a, b = P(n, 4)
    return a * b


def uses_dc_mutate(n):
    p = P(n)
    if n > 2:
        p.x = 7
    p.y += n
    return p.x, p.y


def uses_dc_eq(n):
    return (P(n, 2) == P(3, 2)) + 0


def uses_dc_in_list(n):
    ps = [P(i, n) for i in range(3)]
    ps[1].x = n
    return sum(p.x * p.y for p in ps)


@dataclasses.dataclass(frozen=True, order=True)
class Fz:
    a: int
    b: int = dataclasses.field(default=3)
    c: list = dataclasses.field(default_factory=list)


def uses_frozen(n):
    return Fz(n).b, dataclasses.replace(Fz(n), b=n).b, len(Fz(n).c)


class Base:
    k = 3

    def __init__(self, v):
        self.v = v
        self._cache = {}

    def f(self, x):
        return self.v * x

    def template(self, x):
        return self.f(x) + self.k

    def __enter__(self):
        return self

    def __exit__(self, *a):
        return False


class Derived(Base):
    k = 5

    def __init__(self, v):
        super().__init__(v)
        self.w = v + 1

    def f(self, x):
        return super().f(x) + self.w


def uses_inherit(n):
    return Derived(n).template(2), isinstance(Derived(n), Base) + 0, Derived.k, Derived.__mro__[1] is Base


def uses_dynattr(n):
    b = Base(n)
    b.extra = n * 2
    setattr(b, "more", 4)
    return b.extra + getattr(b, "more") + hasattr(b, "nope")


def uses_method_ref(n):
    g = Base(n).f
    h = Base.f
    return g(2), h(Base(n), 3)


class Meta(type):
    def __call__(cls, *a):
        return super().__call__(*a)


class WithMeta(metaclass=Meta):
    def __init__(self, v):
        self.v = v


def uses_meta(n):
    return WithMeta(n).v


class Abs(abc.ABC):
    @abc.abstractmethod
    def go(self): ...


class Conc(Abs):
    def go(self):
        return 4


def uses_abc(n):
    return Conc().go() + n


class G(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, v):
        self.v = v


def uses_generic(n):
    return G(n).v, G[int](n).v


class Slots:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


def uses_slots(n):
    s = Slots(n)
    if n > 2:
        s.a = 9
    return s.a


def helper(a, b=2, *args, c=3, **kw):
    return a + b * 10 + sum(args) * 100 + c * 1000 + sum(kw.values()) * 10000


def uses_args(n):
    return (
        helper(n),
        helper(n, 3),
        helper(n, 3, 4, 5),
        helper(n, c=1),
        helper(n, z=2, y=n),
        helper(*[1, 2, n], **{"c": n, "q": 1}),
    )


def kwonly(*, a, b=1):
    return a - b


def uses_kwonly(n):
    return kwonly(a=n), kwonly(b=2, a=n)


def posonly(a, b, /, c):
    return a * 100 + b * 10 + c


def uses_posonly(n):
    return posonly(n, 2, c=1)


def uses_nested_closure(n):
    total = 0

    def add(k):
        nonlocal total
        total += k * n

        def deeper(j):
            nonlocal total
            total = total + j

        deeper(k)

    add(1)
    add(2)
    return total


def uses_counter_factory(n):
    def make():
        c = 0

        def inc():
            nonlocal c
            c += n
            return c

        return inc

    f, g = make(), make()
    f()
    f()
    return f(), g()


def uses_late_binding(n):
    fs = [lambda: i * n for i in (1, 2, 3)]
    return fs[0](), fs[2]()


def uses_default_binding(n):
    fs = [lambda i=i: i * n for i in (1, 2, 3)]
    return fs[0](), fs[2]()


def uses_recursion(n):
    def fact(k):
        return 1 if k == 0 else k * fact(k - 1)

    return fact(5) + n


def uses_mutual(n):
    def even(k):
        return True if k == 0 else odd(k - 1)

    def odd(k):
        return False if k == 0 else even(k - 1)

    return even(4) + n


def deco(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k) * 2

    return inner


def deco_args(m):
    def d(f):
        def inner(x):
            return f(x) * m

        return inner

    return d


@deco
@deco_args(5)
def decorated(x):
    return x + 1


def uses_decorated(n):
    return decorated(n)


def uses_local_deco(n):
    @deco
    def g(x):
        return x + 3

    return g(n)


def uses_lambda_iife(n):
    return (lambda a, b=2, *c, **d: a + b + len(c) + len(d))(n, 1, 2, 3, z=1)


def uses_early_return(n):
    def clip(x):
        if x < 0:
            return 0
        if x > 10:
            return 10
        return x

    return clip(n * 5), clip(-n), clip(n)


def uses_early_return_loop(n):
    def find(xs, k):
        for i, x in enumerate(xs):
            if x == k:
                return i
        return -1

    return find([5, 3, 1], n)


def uses_early_return_nested(n):
    def g(x):
        for i in range(4):
            for j in range(4):
                if i * j == x:
                    return i * 10 + j
        return -1

    return g(n * 2)


def uses_return_none(n):
    def g(x):
        if x > 2:
            return x

    v = g(5)
    return v + n


def uses_compare_chain(n):
    return (0 < n < 5) + 0, (0 < n > 1 <= 3) + 0, (1 == n != 3) + 0, (n < 5 < n) + 0


def uses_del(n):
    a = n
    del a
    return n


def uses_del_item(n):
    xs = [1, n, 3]
    del xs[0]
    d = {"a": 1, "b": n}
    del d["a"]
    return xs[0], len(xs), len(d)


def uses_del_slice(n):
    xs = [1, 2, 3, n]
    del xs[1:3]
    return xs[1]


def uses_assert_static(n):
    assert 1 + 1 == 2, "no"
    return n


def uses_while_else(n):
    i = 0
    while i < 2:
        i += 1
    else:
        i = 9
    return i


def uses_for_else(n):
    for i in [1, 2]:
        pass
    else:
        n = n + 1
    return n


def uses_star_assign(n):
    a, *b, c = [1, n, 3, 4]
    (d, e), f = (n, 2), 3
    [g, h] = n, 1
    return a, b[0], len(b), c, d, e, f, g, h


def uses_swap(n):
    a, b = n, 2
    a, b = b, a
    xs = [1, n]
    xs[0], xs[1] = xs[1], xs[0]
    return a, b, xs[0]


def uses_aug(n):
    xs = [n]
    ys = xs
    ys += [2]
    t = (1,)
    u = t
    u += (n,)
    s = "a"
    s += "b"
    d = {"a": 1}
    d |= {"b": n}
    return len(xs), len(t), len(u), len(s), d["b"]


def uses_slices(n):
    xs = [0, 1, 2, 3, n]
    return xs[-1], xs[1:3][0], xs[::-1][0], xs[::2][1], len(xs[:-1]), xs[-3:][0]


def uses_slice_assign(n):
    xs = [0, 1, 2, 3]
    xs[1:3] = [n, n, n]
    return len(xs), xs[2]


def uses_dictcomp(n):
    return {k: n * v for k, v in {"a": 1, "b": 2}.items()}["b"]


def uses_setcomp(n):
    return len({x % 2 for x in (1, 2, 3)})


def uses_fstring(n):
    return len(f"{1}{'a'!r}{2.5:.2f}")


def uses_ternary_chain(n):
    return 1 if n > 5 else 2 if n > 2 else 3


def uses_bool_ops(n):
    return (n or 5), (n and 5), (0 or n), (not n) + 0, (n > 1 and n < 5) + 0


def uses_none_check(n):
    x = None
    if x is None:
        x = n
    return x


def uses_is_rt(n):
    return (n is None) + 0, (n is not None) + 0


def uses_in_tuple(n):
    return (n in (1, 3)) + 0, (n not in [5]) + 0, ("a" in "abc") + 0


def uses_string_cmp(n):
    return ("a" < "b") + n


def uses_bits(n):
    return n & 1, n | 8, n ^ 3, ~n, n << 2, n >> 1, -n, +n, n // 2, -n // 2, -n % 2, n % -2, divmod(-n, 2)[0]


def uses_bigint(n):
    return (1 << 70) >> 68


def uses_bigint_rt(n):
    return n + (1 << 40)


def uses_float_int(n):
    return int(n / 2), int(-n / 2), n // 2


def uses_const_fold(n):
    return 2**10, 7 // 2, -7 // 2, 7 % -3


def uses_global_list(n):
    return XS[1] + len(XS)


XS = [1, 2, 3]


def uses_global_dict(n):
    return D["a"] + n


D = {"a": 1}


def uses_walrus_list(n):
    return [y := n, y * 2][1] + y


def uses_unary_not_chain(n):
    return (not not n) + 0


def uses_pass_loop(n):
    for _ in range(n):
        pass
    return n


def uses_loop_continue(n):
    s = 0
    for i in range(n * 3):
        if i % 2:
            continue
        if i > 6:
            break
        s += i
    return s


def uses_nested_break(n):
    s = 0
    for i in range(4):
        for j in range(4):
            if j > i:
                break
            if (i + j) % 2:
                continue
            s += i * j
    return s


def uses_while_true(n):
    i = 0
    while True:
        i += 1
        if i * i > n * 4:
            break
    return i


def uses_list_in_loop(n):
    xs = [0, 0, 0]
    for i in range(n):
        xs[1] += i
    return xs[1]


def uses_dict_in_loop(n):
    d = {"s": 0}
    for i in range(n):
        d["s"] += i
    return d["s"]


def uses_shadow_builtin(n):
    max = min
    return max(n, 2)


def uses_shadow_param(n):
    def g(len):
        return len + 1

    return g(n)


def uses_type_switch(n):
    return 1 if type(n) is int else 2


def uses_isinstance(n):
    return isinstance(n, int) + isinstance(2.5, float) + isinstance([n], list)


def uses_str_key_build(n):
    table = {f"k{i}": i * n for i in (1, 2)}
    return table["k2"]


def uses_zip_dict(n):
    return dict(zip("ab", (n, 2)))["a"]


def uses_sorted_key(n):
    return sorted([(2, n), (1, 5)], key=lambda t: t[0])[0][1], sorted([3, 1, 2], reverse=True)[0]


def uses_enumerate_unpack(n):
    return sum(i * a * b for i, (a, b) in enumerate([(1, n), (n, 2)]))


def uses_any_all(n):
    return any(x > n for x in (1, 5)) + 0, all(x < n for x in (1, 5)) + 0


def uses_minmax_key(n):
    return min([(n, 1), (2, 5)], key=lambda t: t[1])[0], max([3, -n], key=abs)


def uses_partial_method(n):
    return functools.partial(Base(n).f, 4)()


def uses_reduce_lambda(n):
    return functools.reduce(lambda a, b: a * 10 + b, [n, 2, 3])


def uses_cached_prop(n):
    return CP(n).v + CP(n).v


class CP:
    def __init__(self, a):
        self.a = a

    @functools.cached_property
    def v(self):
        return self.a * 2


def uses_setter(n):
    s = Setter()
    s.v = n
    return s.v


class Setter:
    @property
    def v(self):
        return self._v

    @v.setter
    def v(self, x):
        self._v = x * 2


def uses_getattr_dyn(n):
    return Dyn(n).anything


class Dyn:
    def __init__(self, a):
        self.a = a

    def __getattr__(self, name):
        return self.a + len(name)


def uses_op_overload(n):
    v = V(n) * 2 + 1 - V(1)
    v += 3
    return v.a, (-v).a, abs(V(-n)).a, (2 + V(n)).a, (V(n) @ V(2))


class V:
    def __init__(self, a):
        self.a = a

    def __mul__(self, o):
        return V(self.a * (o.a if isinstance(o, V) else o))

    def __add__(self, o):
        return V(self.a + (o.a if isinstance(o, V) else o))

    __radd__ = __add__

    def __sub__(self, o):
        return V(self.a - o.a)

    def __neg__(self):
        return V(-self.a)

    def __abs__(self):
        return V(abs(self.a))

    def __matmul__(self, o):
        return self.a * o.a

    def __iadd__(self, o):
        self.a += o
        return self


def uses_complex_obj(n):
    tree = {"l": {"v": n, "kids": [1, {"v": 2}]}}
    tree["l"]["kids"][1]["v"] += n
    return tree["l"]["kids"][1]["v"]


def uses_obj_in_branch(n):
    if n > 2:
        o = P(1, n)
    else:
        o = P(n, 1)
    return o.x + o.y * 10


def uses_type_in_branch(n):
    x = 1 if n > 2 else 2.5
    return int(x * 2)


PROGRAMS = [
    uses_match_int, uses_match_seq, uses_match_map, uses_match_str, uses_match_class, uses_match_guard, uses_match_nested,
    uses_match_or_bind, uses_match_as, uses_match_enum, uses_enum_iter, uses_flag, uses_dc, uses_dc_lt, uses_dc_bool,
    uses_dc_unpack, uses_dc_mutate, uses_dc_eq, uses_dc_in_list, uses_frozen, uses_inherit, uses_dynattr, uses_method_ref,
    uses_meta, uses_abc, uses_generic, uses_slots, uses_args, uses_kwonly, uses_posonly, uses_nested_closure,
    uses_counter_factory, uses_late_binding, uses_default_binding, uses_recursion, uses_mutual, uses_decorated,
    uses_local_deco, uses_lambda_iife, uses_early_return, uses_early_return_loop, uses_early_return_nested, uses_return_none,
    uses_compare_chain, uses_del, uses_del_item, uses_del_slice, uses_assert_static, uses_while_else, uses_for_else,
    uses_star_assign, uses_swap, uses_aug, uses_slices, uses_slice_assign, uses_dictcomp, uses_setcomp, uses_fstring,
    uses_ternary_chain, uses_bool_ops, uses_none_check, uses_is_rt, uses_in_tuple, uses_string_cmp, uses_bits, uses_bigint,
    uses_bigint_rt, uses_float_int, uses_const_fold, uses_global_list, uses_global_dict, uses_walrus_list,
    uses_unary_not_chain, uses_pass_loop, uses_loop_continue, uses_nested_break, uses_while_true, uses_list_in_loop,
    uses_dict_in_loop, uses_shadow_builtin, uses_shadow_param, uses_type_switch, uses_isinstance, uses_str_key_build,
    uses_zip_dict, uses_sorted_key, uses_enumerate_unpack, uses_any_all, uses_minmax_key, uses_partial_method,
    uses_reduce_lambda, uses_cached_prop, uses_setter, uses_getattr_dyn, uses_op_overload, uses_complex_obj,
    uses_obj_in_branch, uses_type_in_branch,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.removeprefix("uses_"))
def test_it_means_what_it_means_in_python(program):
    agree(program, 3)
