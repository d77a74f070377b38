"""Functions of the library that CPython runs, on run-time values: to interpret them for each element would take most of a trace.

    @sk._direct
    def each(self, function, *args):
        return self.like([function(*row) for row in zip(*map(self.spread, args))])

What such a function calls of the language (`load`, an intrinsic, `_operation("+")`, a function that it was given) appends IR as
it would anywhere in a kernel. It must not use operators or `if` on values that may be known only at run time, nor change what it
was given. Its ops have the place of its `def`, expanded at the user's call.
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

from stagekit.diagnostics import language_call
from stagekit.frontend.comparisons import compare
from stagekit.frontend.evaluation import Site
from stagekit.frontend.frame import Frame
from stagekit.frontend.language import Staged
from stagekit.frontend.numbers import COMPARISONS
from stagekit.frontend.operators import binary, unary
from stagekit.frontend.overloads import call_intrinsic
from stagekit.frontend.source import Names, Source
from stagekit.frontend.values import Scope, is_open
from stagekit.ir import Intrinsic

F = TypeVar("F", bound=Callable[..., Any])
Route = Callable[[Site, Any, list[Any], dict[str, Any]], Any]


def direct(function: F) -> F:
    """Mark a function of the library that CPython runs."""
    function.__stagekit_direct__ = True  # type: ignore[attr-defined]
    return function


def is_direct(function: Any) -> bool:
    return type(function) is types.FunctionType and "__stagekit_direct__" in function.__dict__


def run(site: Site, fn: types.FunctionType, args: list[Any], kwargs: Any, call: Route) -> Any:
    """`fn(*args, **kwargs)` by CPython. call: how functions of the traced program are called."""
    source, place = _source_of(fn.__code__)
    inner = Frame(site.tracer, source, Scope(source.names, {}, None), fn, site.loc, site.frame.depth + 1)
    inner.at(place)

    def in_language(function: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if isinstance(function, Intrinsic):
            return call_intrinsic(Site(inner, place), function, list(given), named)
        if isinstance(function, Staged):
            return function.run(Site(inner, place), *given, **named)
        token = language_call.set(None)
        try:
            return call(Site(inner, place), function, list(given), named)
        finally:
            language_call.reset(token)
            inner.at(place)

    def handed(value: Any) -> Any:
        is_ours = isinstance(value, Intrinsic | Staged)
        return functools.partial(_lead, in_language, value) if callable(value) and not is_ours else value

    token = language_call.set(in_language)
    try:
        made = site.static(lambda: fn(*map(handed, args), **{k: handed(v) for k, v in kwargs.items()}))
    finally:
        language_call.reset(token)
    site.at()
    return site.tracer.journal.born(made) if isinstance(made, list) or is_open(made) else made


def _lead(in_language: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
    return in_language(function, args, kwargs)


@functools.cache
def _source_of(code: types.CodeType) -> tuple[Source, ast.stmt]:
    """Where the function stands: nothing of it is parsed."""
    nothing: frozenset[str] = frozenset()
    place = ast.Pass(lineno=code.co_firstlineno, col_offset=0, end_lineno=code.co_firstlineno, end_col_offset=0)
    node = ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Constant(None), lineno=code.co_firstlineno)
    return Source(code.co_filename, code.co_name, node, Names(nothing, nothing)), place


# -- Python's operators as functions of the language ---------------------------------------------------------------------


@functools.cache
def operation(symbol: str) -> Staged:
    """The function of one or two values that an operator is: `operation("+")(a, b)`, `operation("neg")(a)`."""
    if symbol in _SIGNS:
        return Staged(_one(_SIGNS[symbol]), is_elementwise=False)
    return Staged(_comparison(_ORDERS[symbol]) if symbol in _ORDERS else _two(symbol), is_elementwise=False)


_SIGNS: dict[str, type[ast.unaryop]] = {"neg": ast.USub, "~": ast.Invert}
_ORDERS = {symbol: op() for op, (symbol, _, _) in COMPARISONS.items()}


def _two(symbol: str) -> Callable[..., Any]:
    def operate(site: Site, left: Any, right: Any) -> Any:
        return binary(site, symbol, left, right)

    return operate


def _comparison(op: ast.cmpop) -> Callable[..., Any]:
    def operate(site: Site, left: Any, right: Any) -> Any:
        return compare(site, op, left, right)

    return operate


def _one(op: type[ast.unaryop]) -> Callable[..., Any]:
    def operate(site: Site, operand: Any) -> Any:
        return unary(site, op, operand)

    return operate
