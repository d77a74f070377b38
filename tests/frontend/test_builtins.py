"""Python's own functions and those of its library in a kernel: they bind and answer as in Python, or say what is wrong."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import inspect
import math
import operator
import typing

import pytest

from stagekit.frontend import builtins as staged
from tests.frontend.agreement import agree, refuse


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2


@dataclasses.dataclass
class Segment:
    start: Point
    ends: list[Point]


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Holder:
    scale = staticmethod(lambda x: x * 4)


def add_one(x):
    return x + 1


@functools.cache
def doubled(x):
    return x * 2


@functools.singledispatch
def kind(x):
    return 1


@kind.register
def _(x: int):
    return x + 20


@kind.register
def _(x: str):
    return 3


def wrapped(n):
    @functools.wraps(add_one)
    def inner(x):
        return add_one(x) * 2

    return inner(n)


def through_wrappers(n):
    pick, name = operator.itemgetter(1), operator.attrgetter("start.x")
    return (
        doubled(n), doubled(4), kind(n), kind("a"), Holder.scale(n), staticmethod(add_one)(n), typing.cast(int, n),
        pick([5, n]), name(Segment(Point(n), [])), functools.partial(lambda a, b: a - b, n)(2),
        functools.reduce(operator.add, [n, 1, 2], 10), math.prod([n, 2], start=3),
    )  # fmt: skip


def operators_as_functions(n):
    xs = [1, n]
    operator.setitem(xs, 0, n)
    same = operator.iadd(xs, [4])
    return (
        operator.getitem(xs, 0), len(xs), same is xs, operator.contains([1, 2, 3], n), operator.concat([n], [2])[1],
        operator.iadd(n, 2), operator.index(n), operator.inv(n), operator.is_(None, None), operator.is_not(n, None),
    )  # fmt: skip


def dataclasses_taken_apart(n):
    segment = Segment(Point(n), [Point(1, n)])
    return (
        dataclasses.asdict(segment)["ends"][0]["y"], dataclasses.astuple(segment)[0][0], vars(Point(n))["x"],
        dataclasses.replace(Point(1, n), x=n).x, len(dataclasses.fields(Point)),
    )  # fmt: skip


def collections_of(n):
    counts, lists = collections.defaultdict(int), collections.defaultdict(list)
    counts["a"] += n
    lists["a"].append(n)
    lists["a"].append(2)
    last = collections.deque(maxlen=2)
    for x in (n, 2, 3):
        last.append(x)
    return (
        counts["a"],
        len(lists["a"]),
        lists["a"][0],
        last[0],
        dict.fromkeys(["a"], n)["a"],
        collections.Counter("aab")["a"],
    )


def counted_from(n):
    return sum(i * x for i, x in enumerate([n, 2], n)), sum(i * x for i, x in enumerate([n, 2], start=3))


@pytest.mark.parametrize(
    "program",
    [wrapped, through_wrappers, operators_as_functions, dataclasses_taken_apart, collections_of, counted_from],
)
def test_it_answers_as_in_python(program):
    agree(program, 3)


def signatures():
    """Python's own, of those functions that this version of Python tells it of."""
    for fn in staged.STAGED:
        if fn is not print and getattr(fn, "__text_signature__", None):
            with contextlib.suppress(ValueError):
                yield fn, inspect.signature(fn)


PYTHONS = dict(signatures())


@pytest.mark.parametrize("fn", PYTHONS, ids=lambda fn: fn.__name__)
def test_parameters_are_those_of_python(fn):
    """Same kinds and names: what Python lets be given by position only, a kernel gives by position only."""
    kinds = inspect.Parameter
    ours = list(inspect.signature(staged.find(fn)).parameters.values())[1:]
    theirs = [p for p in PYTHONS[fn].parameters.values()]

    by_name = {kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY}
    assert {p.name for p in theirs if p.kind in by_name} <= {p.name for p in ours if p.kind in by_name} | {
        "flush",
        "file",
        "memo",
    }
    newer = {"strict"} if fn is map else set()  # of Python 3.14
    given = {p.name for p in theirs if p.kind in by_name}
    assert {p.name for p in ours if p.kind in by_name} <= given | {"unroll"} | newer
    required = sum(p.kind is kinds.POSITIONAL_ONLY and p.default is p.empty for p in theirs)
    assert required == sum(p.kind is kinds.POSITIONAL_ONLY and p.default is p.empty for p in ours)


WRONG = [
    lambda n: int(n, n), lambda n: int(n, 10), lambda n: int(x=n), lambda n: bool(n, n), lambda n: float(n, n),
    lambda n: getattr(Point(n), "z", 1, 2), lambda n: abs(x=n), lambda n: len(obj=[n]), lambda n: divmod(x=n, y=2),
    lambda n: list([n], [n]), lambda n: sum([n], 1, 2), lambda n: max(n, 2, keys=abs), lambda n: max([n], default=1, base=2),
    lambda n: isinstance(obj=n, class_or_tuple=int), lambda n: sorted(iterable=[1]), lambda n: sorted([1], abs),
    lambda n: reversed(sequence=[n]), lambda n: map(func=abs, x=[n]), lambda n: filter(function=None, iterable=[n]),
    lambda n: operator.add(a=n, b=1), lambda n: any(iterable=[n]), lambda n: iter(object=[n]), lambda n: next(n),
    lambda n: round(n, ndigits=1, x=2), lambda n: zip([n], lax=True), lambda n: setattr(Point(n), "x", 1, 2),
    lambda n: (lambda a, /: a)(a=n), lambda n: (lambda a, /, b=1: a)(n, 2, 3), lambda n: (lambda a, *, b: a)(n, 2),
    lambda n: positional_only(a=n), lambda n: positional_only(n, 2, c=3, b=2), lambda n: positional_only(n, 2, 3),
]  # fmt: skip


def positional_only(a, /, b=1, *, c=2):
    return a + b + c


@pytest.mark.parametrize("position", range(len(WRONG)))
def test_a_call_that_python_refuses_is_refused(position):
    with pytest.raises(TypeError):
        WRONG[position](3)

    for stages in ("r", "c"):
        error = refuse(WRONG[position], 3, stages=stages)
        assert error.id in ("BAD_CALL", "STATIC_FAILURE")
        assert error.loc.file == __file__


AT_RUN_TIME = {
    "str": lambda n: str(n), "format": lambda n: "{}".format(n), "hex": lambda n: hex(n), "percent": lambda n: "%d" % n,
    "hash": lambda n: {1: 2}.get(n), "index": lambda n: [1, n].index(2), "length": lambda n: [0] * n, "text": lambda n: "ab" * n,
    "enum": lambda n: Colour(n), "counter": lambda n: collections.Counter([n]), "sort": lambda n: [n, 1].sort(),
    "sum": lambda n: sum(range(n)), "slice": lambda n: [1, 2, 3][n:],
}  # fmt: skip


@pytest.mark.parametrize("program", AT_RUN_TIME.values(), ids=AT_RUN_TIME)
def test_what_python_would_have_to_know_now_is_refused_in_the_users_words(program):
    """No name of ours, and a way out."""
    error = refuse(program, 3)

    assert error.id in ("RUN_TIME_VALUE", "NOT_CALLABLE", "BAD_OPERANDS", "NOT_ITERABLE")
    assert error.loc.file == __file__
    assert error.diagnostic.help_text().strip()
    for name in ("Number", "StagedRange", "AskedTooEarly", "'Generator'"):
        assert name not in str(error)


@pytest.mark.parametrize(
    "program",
    [
        lambda n: list(map(operator.add, [n, 2], [3], strict=True)),
        lambda n: list(zip([n, 2], [3], strict=True)),
    ],
)
def test_lengths_that_differ_are_refused_where_they_must_not(program):
    assert refuse(program, 3).id == "STATIC_FAILURE"
