"""The digest of what a kernel can read: equal content, equal digest; any difference that tracing could see, another."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import math
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import stagekit as sk
from stagekit.frontend.reading import Reading, Unstable


def digest_of(value: Any) -> str:
    reading = Reading()
    reading.visit(value)
    return reading.digest()


def function(text: str, **names: Any) -> Callable[..., Any]:
    """The function `f` that `text` defines in a module of its own, with these globals."""
    space = {"__name__": "a_module", **names}
    exec(text, space)
    found: Callable[..., Any] = space["f"]
    return found


def dataclass(**fields: Any) -> Any:
    made: Any = dataclasses.make_dataclass("Config", [(n, type(v), v) for n, v in fields.items()], frozen=True)
    made.__module__ = "a_module"
    return made


def plain_class(**members: Any) -> Any:
    return type("Plain", (), {"__module__": "a_module", **members})


def an_object(cls: Any, **attributes: Any) -> Any:
    made = cls()
    made.__dict__.update(attributes)
    return made


def an_enum(**members: Any) -> Any:
    return enum.Enum("Mode", members, module="a_module")  # type: ignore[misc]


class Point(NamedTuple):
    x: int
    y: int = 3


def twice_the_same() -> Any:
    n = sk.dynamic("n")
    return (n, n)


DIFFERENT: dict[str, tuple[Any, ...]] = {
    "numbers": (1, True, 1.0, np.int32(1), np.int64(1), np.float32(1), 2, "1", b"1", 1 + 0j),
    "zeros": (0.0, -0.0, 0, False, None, "", ()),
    "nan": (math.nan, math.inf),
    "containers": ((1, 2), [1, 2], (2, 1), ((1, 2),), {1: 2}, {2: 1}, {1, 2}, frozenset({1, 2})),
    "order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "arrays": (np.arange(3), np.arange(3, dtype=np.int32), np.arange(4)[1:], np.arange(3)[:, None]),
    "dtypes": (sk.float32, sk.float64, np.dtype(np.float32)),
    "functions": (sk.load, sk.exp, sk.exp2, math.exp, np.exp, len, list.append),
    "sizes": (twice_the_same(), (sk.dynamic("n"), sk.dynamic("n")), (sk.dynamic("n"), sk.dynamic("m"))),
    "bodies": (function("def f(x): return x"), function("def f(x): return x + 1"), function("def f(y): return y")),
    "globals": (function("def f(): return A", A=1), function("def f(): return A", A=2), function("def f(): return A")),
    "nested": (
        function("def f():\n    def g(): return A\n    return g", A=1),
        function("def f():\n    def g(): return A\n    return g", A=2),
    ),
    "defaults": (function("def f(x=1): return x"), function("def f(x=A): return x", A=2), function("def f(x): return x")),
    "keyword defaults": (function("def f(*, x=A): return x", A=1), function("def f(*, x=A): return x", A=2)),
    "called": tuple(
        function("def f(): return g()", g=function(f"def f(): return {v}")) for v in (1, 2)
    ),
    "module attributes": tuple(
        function("def f(): return m.inner.A", m=types.SimpleNamespace(inner=types.SimpleNamespace(A=v))) for v in (1, 2)
    ),
    "dataclasses": (dataclass(a=1)(), dataclass(a=2)(), dataclass(b=1)(), dataclass(a=1.0)()),
    "classes": (plain_class(A=1), plain_class(A=2), plain_class(B=1)),
    "methods": tuple(plain_class(f=function(f"def f(self): return {v}")) for v in (1, 2)),
    "objects": tuple(an_object(plain_class(A=1), x=v) for v in (1, 2)),
    "their classes": tuple(an_object(plain_class(A=v), x=1) for v in (1, 2)),
    "enums": (an_enum(A=1, B=2).A, an_enum(A=1, B=2).B, an_enum(A=3, B=2).A),
    "named tuples": (Point(1), Point(1, 4), (1, 3)),
    "partials": (functools.partial(max, 1), functools.partial(max, 2), functools.partial(min, 1)),
}  # fmt: skip


@pytest.mark.parametrize("kind", DIFFERENT)
def test_what_differs_has_another_digest(kind: str) -> None:
    values = DIFFERENT[kind]

    assert len(values) == len({digest_of(v) for v in values})


EQUAL: dict[str, Callable[[], Any]] = {
    "lambda": lambda: function("f = lambda x: x"),
    "function": lambda: function("def f(x): return A[x] + B.c", A=[1, 2], B=an_object(plain_class(), c=3)),
    "comment": lambda: function("# a comment\n" * len(seen) + "def f(x): return x"),
    "dataclass": lambda: dataclass(a=(1, 2.5), b="x"),
    "dataclass object": lambda: dataclass(a=(1, 2.5), b="x")(),
    "enum": lambda: an_enum(A=1, B=(2, 3)),
    "object": lambda: an_object(plain_class(A=1, f=function("def f(self): return self.x")), x=[1]),
    "array": lambda: np.arange(6).reshape(2, 3).astype(np.float16),
    "set": lambda: {"a", "b", "c", 1},
    "tensor": lambda: sk.Tensor((sk.dynamic("n"), 3), sk.float32),
    "named tuple": lambda: Point(1),
    "size": lambda: 2 * sk.dynamic("n") + 1,
    "kernel": lambda: sk.inline(function("def f(x): return x")),
}
seen: list[int] = []


@pytest.mark.parametrize("kind", EQUAL)
def test_what_is_made_twice_has_one_digest(kind: str) -> None:
    digests = set()
    for _ in range(2):
        seen.append(1)
        digests.add(digest_of(EQUAL[kind]()))

    assert 1 == len(digests)


def test_cycles_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    text = "def f(n): return f(n - 1) + g(n)\ndef g(n): return f(n)"

    assert digest_of(loop) != digest_of([1, [1]])
    assert digest_of(function(text)) == digest_of(function(text))


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), {object()}, iter([1]), np.array([object()]), np.random.default_rng(0)],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_what_has_no_content_to_go_by_is_unstable(value: Any) -> None:
    with pytest.raises(Unstable):
        digest_of(value)


def test_a_slot_with_a_private_name_counts() -> None:
    space: dict[str, Any] = {"__name__": "a_module"}
    exec("class Kept:\n    __slots__ = ('__x',)\n    def __init__(self, x): self.__x = x", space)

    assert digest_of(space["Kept"](1)) != digest_of(space["Kept"](2))


def test_an_object_that_answers_attributes_itself_is_unstable() -> None:
    with pytest.raises(Unstable):
        digest_of(an_object(plain_class(__getattr__=lambda self, name: 1)))


def test_a_reading_notices_changes_in_this_process() -> None:
    config = an_object(plain_class(A=1), x=[1])
    reading = Reading()
    reading.visit(function("def f(): return config.x[0] + config.A", config=config))
    assert reading.captures.is_current()

    type(config).A = 2
    assert not reading.captures.is_current()
    type(config).A = 1
    config.x[0] = 5
    assert not reading.captures.is_current()
    config.x = [1]
    assert reading.captures.is_current()


def test_a_large_table_is_still_read() -> None:
    table = {i: (i, float(i)) for i in range(1000)}

    assert digest_of(table) == digest_of(dict(table)) != digest_of(collections.OrderedDict(table))
