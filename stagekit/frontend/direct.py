"""Functions of the library that CPython runs on run-time values, since interpreting them for each element would take most of
the time of a trace.

    @sk._direct
    def each(self, function, *args):
        return self.like([function(*row) for row in zip(*map(self.elements_of, args))])

What such a function calls of the language (`load`, an intrinsic, `_operation("+")`, a function that it was given) appends IR as
it would anywhere in a kernel. It must not use operators or `if` on values that may be known only at run time, nor change its
arguments. Its ops have the place of its `def`, expanded at the user's call.

A user's function that the library calls again and again is interpreted once, after which its ops are copied:

    sk.reduce(x, lambda a, b: a * b + a + b)     of 18 calls one is interpreted

That is done for run-time numbers, of which nothing but their types can matter. A function that does more than compute with them
(it assigns outside, prints while it is specialised, asks about arguments) is interpreted at each call.
"""

from __future__ import annotations

import ast
import functools
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stagekit.diagnostics import Loc, language_call
from stagekit.frontend import effects
from stagekit.frontend.builtins import STAGED
from stagekit.frontend.evaluation import Site
from stagekit.frontend.language import Staged
from stagekit.frontend.numbers import COMPARISONS, SYMBOLS
from stagekit.frontend.overloads import call_intrinsic
from stagekit.frontend.source import Names, Source
from stagekit.frontend.tracer import Frame, Tracer
from stagekit.frontend.values import Number, Scope, is_open
from stagekit.ir import Block, Intrinsic, Value


class _Recording(NamedTuple):
    """What a function emits, and what it returns: a number, or a tuple of them, the run-time ones those that the block yields."""

    block: Block
    result: Any


class Recorded:
    """A function that is called in one place. recordings: by the types of its arguments; None where it must be interpreted."""

    def __init__(self, site: Site, function: Any) -> None:
        self.site = site
        self.function = function
        self.recordings: dict[Any, _Recording | None] = {}

    def __call__(self, args: tuple[Any, ...]) -> Any:
        numbers = _flat(args)
        if not all(type(each) is Number for each in numbers):
            return self.site.invoke(self.function, list(args))
        key = _types(args)
        if key not in self.recordings:
            self.recordings[key] = self._record(args)
        recording = self.recordings[key]
        if recording is None:
            return self.site.invoke(self.function, list(args))
        values = self.site.tracer.builder.copy(recording.block, [each.value for each in numbers])
        return _replaced(recording.result, iter(values))

    def _record(self, args: tuple[Any, ...]) -> _Recording | None:
        """Interpret a call, of whose numbers only the types are known. Nothing of it remains where it is of no use."""
        tracer = self.site.tracer
        start, params = tracer.checkpoint(), [Value(each.value.type) for each in _flat(args)]
        with tracer.builder.block(params) as opened:
            result = self.site.invoke(self.function, list(_replaced(args, iter(params))))
            leaves = _flat((result,))
            tracer.builder.yield_(*[each.value for each in leaves if type(each) is Number])
        if all(isinstance(each, Number | int | float | np.generic) for each in leaves) and not tracer.has_changed(
            start
        ):
            return _Recording(opened.done(), result)
        tracer.journal.undo(start.journal)
        tracer.facts.withdraw(start.asked)
        tracer.forget(start)
        return None


def _flat(values: Iterable[Any]) -> list[Any]:
    """Return what stands in tuples, and in tuples in them."""
    return [leaf for value in values for leaf in (_flat(value) if type(value) is tuple else (value,))]


def _types(value: Any) -> Any:
    """Return the types of numbers, in tuples as they are."""
    return tuple(map(_types, value)) if type(value) is tuple else (value.value.type, value.is_weak)


def _replaced(value: Any, values: Iterator[Value]) -> Any:
    """Return numbers with other values for those known at run time, in tuples as they are."""
    if type(value) is tuple:
        return tuple([_replaced(each, values) for each in value])
    return Number(next(values), value.is_weak) if type(value) is Number else value


F = TypeVar("F", bound=Callable[..., Any])


def direct(function: F) -> F:
    """Mark a function of the library that CPython runs."""
    function.__stagekit_direct__ = True  # type: ignore[attr-defined]
    return function


def run(site: Site, fn: types.FunctionType, args: list[Any], kwargs: Any) -> Any:
    """Return `fn(*args, **kwargs)`, computed by CPython."""
    source, place = _source_of(fn.__code__)
    inner = Frame(site.tracer, source, Scope(source.names, {}, None), fn, site.loc, site.frame.depth + 1)
    effects.enter(site, inner)
    inside = Site(inner, place)
    inside.at()

    def in_language(function: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if type(function) is Staged:
            return function.run(inside, *given, **named)
        if isinstance(function, Intrinsic):
            return call_intrinsic(inside, function, list(given), named)
        token = language_call.set(None)
        try:
            return function(given) if type(function) is Recorded else inside.invoke(function, list(given), named)
        finally:
            language_call.reset(token)
            inside.at()

    def argument(value: Any) -> Any:
        if not callable(value) or isinstance(value, Intrinsic | Staged):
            return value

        recorded = Recorded(inside, value)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return in_language(recorded if not kwargs else value, args, kwargs)

        wrapper.__wrapped__ = value  # type: ignore[attr-defined]
        return wrapper

    token = language_call.set(in_language)
    try:
        made = site.static(lambda: fn(*map(argument, args), **{k: argument(v) for k, v in kwargs.items()}))
    finally:
        language_call.reset(token)
    site.at()
    return site.tracer.journal.born(made) if isinstance(made, list) or is_open(made) else made


def run_at(tracer: Tracer, loc: Loc, fn: types.FunctionType, *args: Any) -> Any:
    """Return `fn(*args)`, computed by CPython for the line `loc` where no expression calls it: where paths meet."""
    source, place = _source_of(fn.__code__)
    frame = Frame(tracer, source, Scope(source.names, {}, None), fn, loc, 0, is_per_thread=True)
    return run(Site(frame, place), fn, list(args), {})


@functools.cache
def _source_of(code: types.CodeType) -> tuple[Source, ast.stmt]:
    """Return a source for the place of a function, none of which is parsed, and a node at its first line."""
    nothing: frozenset[str] = frozenset()
    place = ast.Pass(lineno=code.co_firstlineno, col_offset=0, end_lineno=code.co_firstlineno, end_col_offset=0)
    node = ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None), lineno=code.co_firstlineno)
    return Source(code.co_filename, code.co_name, node, Names(nothing, nothing)), place


@functools.cache
def operation(symbol: str) -> Staged:
    """Return an operator as a function of one or two values: `operation("+")(a, b)`, `operation("neg")(a)`."""
    return Staged(STAGED[_PYTHONS[symbol]], is_elementwise=True)


_PYTHONS: dict[str, Callable[..., Any]] = {
    **{symbol: each.python for symbol, each in SYMBOLS.items()},
    **{symbol: python for symbol, _, python in COMPARISONS.values()},
    "neg": operator.neg,
    "~": operator.invert,
}
