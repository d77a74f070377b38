"""Cases about what a kernel reads from outside: other ways to change it between two launches, and other kinds of value."""

from __future__ import annotations

import array
import collections
import copy
import enum
import functools
import operator
import pickle
import types
from typing import NamedTuple

import numpy as np
import pytest

import stagekit as sk

NUMBER = 17
DEQUE = collections.deque([1, 2])
COUNTER = collections.Counter("aab")
ORDERED = collections.OrderedDict(a=1)
BYTES = bytearray(b"ab")
ARRAY = array.array("i", [5, 6])


class Pair(NamedTuple):
    x: object
    y: object


PAIR = Pair([1], 2)


def _run(kernel, *args):
    out = np.zeros(4, np.int64)
    kernel[1, 1](out, *args)
    return int(out[0])


CHANGES = [
    (lambda: DEQUE[0] + len(DEQUE), lambda: DEQUE.append(7)),
    (lambda: COUNTER["a"], lambda: COUNTER.update("aaa")),
    (lambda: ORDERED["a"], lambda: ORDERED.update(a=9)),
    (lambda: BYTES[0], lambda: BYTES.__setitem__(0, 3)),
    (lambda: ARRAY[1], lambda: ARRAY.__setitem__(1, 60)),
    (lambda: PAIR[0][0], lambda: PAIR.x.__setitem__(0, 5)),
]


@pytest.mark.parametrize(
    ("read", "change"), CHANGES, ids=["deque", "Counter", "OrderedDict", "bytearray", "array", "namedtuple"]
)
def test_a_change_inside_any_container_is_seen(read, change):  # P12
    @sk.jit
    def kernel(out):
        out[0] = read()

    assert _run(kernel) == read()
    change()
    assert _run(kernel) == read()


def test_a_name_that_is_gone_is_an_error_and_not_a_crash():  # P12
    scope = globals()

    @sk.jit
    def kernel(out):
        out[0] = NUMBER

    assert _run(kernel) == 17
    del scope["NUMBER"]
    try:
        with pytest.raises(sk.StagingError, match="UNKNOWN_NAME"):
            _run(kernel)
    finally:
        scope["NUMBER"] = 18
    assert _run(kernel) == 18


def test_a_global_that_hides_a_builtin_is_seen():  # P12
    scope = globals()

    @sk.jit
    def kernel(out):
        out[0] = len((1, 2, 3))

    assert _run(kernel) == 3
    scope["len"] = lambda values: 100
    try:
        assert _run(kernel) == 100
    finally:
        del scope["len"]
    assert _run(kernel) == 3


def _methods():
    class Scale:
        def plain(self, v):
            return v + 5

        @classmethod
        def of_class(cls, v):
            return v + 5

        @staticmethod
        def static(v):
            return v + 5

        @property
        def constant(self):
            return 5

        def __add__(self, v):
            return v + 5

        __radd__ = __add__

        def __getitem__(self, v):
            return v + 5

        def __call__(self, v):
            return v + 5

    return Scale


USES = {
    "plain": lambda s, v: s.plain(v),
    "of_class": lambda s, v: s.of_class(v),
    "static": lambda s, v: s.static(v),
    "constant": lambda s, v: v + s.constant,
    "__add__": lambda s, v: s + v,
    "__radd__": lambda s, v: v + s,
    "__getitem__": lambda s, v: s[v],
    "__call__": lambda s, v: s(v),
}


def _replacement(name):
    if name == "constant":
        return property(lambda self: 60)
    if name == "of_class":
        return classmethod(lambda cls, v: v + 60)
    return staticmethod(lambda v: v + 60) if name == "static" else lambda self, v: v + 60


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("place", ["captured", "constexpr", "made in the kernel", "inherited"])
def test_a_method_that_is_replaced_is_seen(name, place):  # P10
    cls = base = _methods()
    if place == "inherited":
        cls = type("Derived", (base,), {})
    use, held = USES[name], cls()

    @sk.jit
    def kernel(out, v, given: sk.constexpr = None):
        if place == "made in the kernel":
            out[0] = use(cls(), v)
        elif place == "constexpr":
            out[0] = use(given, v)
        else:
            out[0] = use(held, v)

    given = (held,) if place == "constexpr" else ()
    for _ in range(3):  # the third is a native launch
        assert _run(kernel, 10, *given) == 15
    setattr(base, name, _replacement(name))
    assert _run(kernel, 10, *given) == 70
    if place == "inherited":
        setattr(cls, name, _replacement(name))
        assert _run(kernel, 10, *given) == 70


def test_an_object_that_comes_to_hide_a_method_is_seen():  # P10
    held = _methods()()

    @sk.jit
    def kernel(out, v):
        out[0] = held.plain(v)

    for _ in range(3):
        assert _run(kernel, 10) == 15
    held.plain = lambda v: v * 3
    assert _run(kernel, 10) == 30


def _with_defaults(a, b=2, *, c=3):
    return a + b + c


def test_defaults_that_are_replaced_are_seen(monkeypatch):  # P10
    @sk.jit
    def kernel(out, v):
        out[0] = _with_defaults(v)

    assert _run(kernel, 10) == 15
    monkeypatch.setattr(_with_defaults, "__defaults__", (20,))
    assert _run(kernel, 10) == 33
    monkeypatch.setattr(_with_defaults, "__kwdefaults__", {"c": 30})
    assert _run(kernel, 10) == 60


def test_what_an_object_of_the_kernel_has_from_its_class_is_seen():  # P12
    class Setting:
        scale = 4

        def __init__(self, v):
            self.v = v

    @sk.jit
    def kernel(out, v):
        out[0] = Setting(v).scale * v

    for _ in range(3):
        assert _run(kernel, 10) == 40
    Setting.scale = 5
    assert _run(kernel, 10) == 50


class Level(enum.IntEnum):
    HIGH = 5


class Whole(int):
    pass


class Real(float):
    pass


def test_equal_values_of_any_kind_share_one_kernel():  # P15
    @sk.jit
    def kernel(out, value: sk.constexpr):
        out[0] = 1

    for make in (
        lambda: Pair(1, (2, 3)),
        lambda: range(0, 8, 2),
        lambda: Whole(7),
        lambda: Real(0.5),
        lambda: frozenset({1, 2}),
        lambda: float("nan"),
        lambda: (float("nan"), np.float32(1)),
    ):
        assert kernel.specialize(value=make()) is kernel.specialize(value=make())


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Pair(1, 2), Pair(True, 2)),
        (Pair(1, 2), (1, 2)),
        (Whole(1), 1),
        (Real(0.0), Real(-0.0)),
        (Level.HIGH, 5),
        (range(0, 3, 2), range(0, 4, 2)),
        (frozenset([1]), frozenset([True])),
    ],
)
def test_values_of_another_kind_are_other_kernels(left, right):  # P15
    @sk.jit
    def kernel(out, value: sk.constexpr):
        out[0] = 1

    assert kernel.specialize(value=left) is not kernel.specialize(value=right)


class WithoutText:
    def __repr__(self):
        raise ValueError("no text")


def test_a_constexpr_whose_repr_fails_works_and_can_be_shown():  # P15
    @sk.jit
    def kernel(out, value: sk.constexpr):
        out[0] = value.missing

    with pytest.raises(sk.StagingError, match="WithoutText without a repr"):
        _run(kernel, WithoutText())


def test_items_whose_repr_fails_can_be_looped_over():  # P27
    @sk.jit
    def kernel(out, values: sk.constexpr):
        for _ in values:
            out[0] = out[0] + 1

    assert _run(kernel, (WithoutText(), WithoutText())) == 2


@pytest.mark.parametrize("number", [Level.HIGH, Whole(5), Real(5.0)])
def test_numbers_of_derived_classes_are_numbers(number):  # P1
    @sk.jit
    def kernel(out, n):
        out[0] = n * 3

    assert _run(kernel, number) == 15
    assert _run(kernel, type(5)(number)) == 15


def _stored(call):
    return [call][0]


def test_functions_of_the_kernel_may_be_kept_in_any_container():  # P14
    @sk.jit
    def kernel(out, v):
        kept = []
        for k in sk.static_range(3):
            kept.append(lambda a, k=k: a + k)
        kept.insert(0, lambda a: a * 100)
        table = {}
        table.setdefault("f", lambda a: a * 1000)
        pair = Pair(lambda a: a * 10_000, 2)
        out[0] = kept[0](v) + kept[3](v) + table["f"](v) + pair.x(v) + _stored(lambda a: a)(v)

    assert _run(kernel, 3) == 300 + 5 + 3000 + 30_000 + 3


KERNEL_FACTOR = 2


@sk.jit
def _module_kernel(out, v, N: sk.constexpr):
    out[0] = v * N * KERNEL_FACTOR


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k))])
def test_copies_of_a_kernel_are_the_kernel(again):  # P18
    assert again(_module_kernel) is _module_kernel
    fixed = _module_kernel.specialize(N=3)
    assert again(fixed) is fixed
    assert again({"kernels": [fixed]})["kernels"][0] is fixed


def test_a_partial_of_a_kernel_is_another_matter():  # P18
    assert functools.partial(_module_kernel.specialize, N=3)() is _module_kernel.specialize(N=3)


class _Held:
    def __init__(self, v):
        self.v = v
        self.items = [v]

    def __str__(self):
        return "a" * self.v

    def __hash__(self):
        return self.v

    def __eq__(self, other):
        return self.v == other


HELD = _Held(1)
MAP = types.MappingProxyType(SOURCE := {"a": 1})
VIEW = SOURCE.values()
CHAIN = collections.ChainMap({}, SOURCE)
USER_LIST = collections.UserList([1, 2])
PARTIAL = functools.partial(lambda row, v: row["a"] + v, SOURCE)

UNSEEN = {
    "str": (lambda: len(str(HELD)), lambda: setattr(HELD, "v", HELD.v + 1)),
    "hash": (lambda: hash(HELD), lambda: setattr(HELD, "v", HELD.v + 1)),
    "attrgetter": (lambda: operator.attrgetter("v")(HELD), lambda: setattr(HELD, "v", HELD.v + 1)),
    "vars": (lambda: vars(HELD)["v"], lambda: setattr(HELD, "v", HELD.v + 1)),
    "copy": (lambda: copy.copy(HELD).items[0], lambda: HELD.items.__setitem__(0, HELD.items[0] + 1)),
    "hasattr": (lambda: 1 if hasattr(HELD, "more") else 0, lambda: setattr(HELD, "more", 1)),
    "getattr": (lambda: getattr(HELD, "other", 5), lambda: setattr(HELD, "other", 1)),
    "mappingproxy": (lambda: MAP["a"], lambda: SOURCE.update(a=SOURCE["a"] + 1)),
    "view": (lambda: sum(VIEW), lambda: SOURCE.update(a=SOURCE["a"] + 1)),
    "ChainMap": (lambda: CHAIN["a"], lambda: SOURCE.update(a=SOURCE["a"] + 1)),
    "UserList": (lambda: USER_LIST[0], lambda: USER_LIST.__setitem__(0, USER_LIST[0] + 1)),
    "partial": (lambda: PARTIAL(2), lambda: SOURCE.update(a=SOURCE["a"] + 1)),
}


@pytest.mark.parametrize("way", UNSEEN)
def test_what_only_cpython_reads_of_an_object_is_seen_to_change(way):  # P12
    read, change = UNSEEN[way]

    @sk.jit
    def kernel(out):
        out[0] = read()

    for _ in range(3):
        assert _run(kernel) == read()
    count = kernel.history.text().count("traced")
    change()
    assert _run(kernel) == read()
    assert _run(kernel) == read()
    assert kernel.history.text().count("traced") <= count + 1


def test_an_object_of_which_only_the_class_is_asked_may_change():  # P12
    held = _Held(1)

    @sk.jit
    def kernel(out):
        out[0] = 1 if isinstance(held, _Held) and callable(held.__str__) else 0

    _run(kernel)
    first = kernel.specialize()
    held.v = 2
    assert _run(kernel) == 1
    assert kernel.specialize() is first


@pytest.mark.parametrize(
    "call", [lambda: globals()["NUMBER"], lambda: len(locals()), lambda: eval("1"), lambda: len(dir())]
)
def test_functions_that_look_at_the_callers_names_are_refused(call):  # P6
    @sk.jit
    def kernel(out):
        out[0] = call()

    with pytest.raises(sk.StagingError, match="NOT_CALLABLE"):
        _run(kernel)
