"""Python's functions on numbers: `abs`, `min`, `round`, `int`, `operator.add`, ..."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.frontend import language, objects
from stagekit.frontend.complexes import ComplexLibrary, in_parts
from stagekit.frontend.conditions import compare, contains, negate_condition, truth
from stagekit.frontend.control import branch
from stagekit.frontend.errors import BadCall, StaticFailure
from stagekit.frontend.evaluation import Site
from stagekit.frontend.iteration import items_of
from stagekit.frontend.numbers import COMPARISONS, SYMBOLS, converted, default_dtype, is_literal, is_numeric
from stagekit.frontend.operators import UNARY, binary, in_place, unary
from stagekit.frontend.overloads import chosen
from stagekit.frontend.python_calls import OMITTED, Builtin, run_native
from stagekit.frontend.values import Number, holds_run_time, mapper_of
from stagekit.intrinsics import registry


def _abs(site: Site, x: Any, /) -> Any:
    method = objects.interpreted_method(site.tracer, x, "__abs__")
    if method is not None and mapper_of(x) is None:
        return site.invoke(method, [x])
    x = in_parts(x) if isinstance(x, np.generic) else x
    if not isinstance(x, Number | np.generic) and mapper_of(x) is None:
        return run_native(site, abs, x)
    return site.invoke(registry.by_name("abs"), [x])


def _round(site: Site, number: Any, ndigits: Any = None) -> Any:
    if not isinstance(number, Number):
        return run_native(site, round, number, *([ndigits] if ndigits is not None else []))
    if ndigits is not None:
        hint = "round(x), or for two digits round(x * 100) / 100"
        raise site.error(BadCall("`round` of a run-time number takes no digits", hint))
    is_float = number.dtype.is_float
    return _int(site, site.invoke(registry.by_name("rint"), [number]) if is_float else number)


def _pow(site: Site, base: Any, exp: Any, mod: Any = None) -> Any:
    return binary(site, "**", base, exp) if mod is None else run_native(site, pow, base, exp, mod)


def _int(site: Site, x: Any = 0, /, base: Any = OMITTED) -> Any:
    """Convert to Python's int what is known; at run time to int32 where that holds every value of the dtype, else to int64."""
    if base is not OMITTED:
        if isinstance(x, Number):
            raise site.error(StaticFailure("TypeError", "int() can't convert non-string with explicit base"))
        return run_native(site, int, x, base)
    name = "__index__" if objects.in_class(site.tracer, x, "__int__") is None else "__int__"
    method = objects.interpreted_method(site.tracer, x, name)
    if method is not None:
        return _int(site, site.invoke(method, [x]))
    if not isinstance(x, Number):
        dtype = dtypes.dtype_from_numpy(x.dtype) if isinstance(x, np.generic) else None
        known = float(x) if dtype is not None and dtype.is_float else x  # ml_dtypes would make a number of infinity
        return run_native(site, int, known)
    if x.dtype.is_integer and x.dtype.bits == 64:
        return x
    fits = not x.dtype.is_float and dtypes.promote(x.dtype, dtypes.int32) is dtypes.int32
    target = dtypes.int32 if fits else dtypes.int64
    return x if x.dtype is target else site.tracer.arithmetic.convert(x, target)


def _complex(site: Site, real: Any = 0, imag: Any = OMITTED) -> Any:
    """Make a complex number: Python's of what is known, at run time a pair of floats."""
    given = (real,) if imag is OMITTED else (real, imag)
    if not any(map(_needs_staging, given)):
        return run_native(site, complex, *given)
    return site.invoke(ComplexLibrary.converted, [None, *given])


def _float(site: Site, x: Any = 0.0, /) -> Any:
    """Convert to Python's float what is known; at run time to float32, except that a float64 stays one."""
    method = objects.interpreted_method(site.tracer, x, "__float__")
    if method is not None:
        return _float(site, site.invoke(method, [x]))
    if not isinstance(x, Number):
        return run_native(site, float, x)
    if x.dtype in (dtypes.float32, dtypes.float64):
        return x
    return Number(site.tracer.builder.cast(x.value, dtypes.float32, is_exact=x.dtype.is_integer))


def _np_where(site: Site, condition: Any, /, *values: Any) -> Any:
    """Carry out `np.where(c, a, b)`, which means `sk.where` on run-time values."""
    if len(values) == 2 and any(map(_needs_staging, (condition, *values))):
        return site.invoke(language.where, [condition, *values])
    return run_native(site, np.where, condition, *values)


def _np_clip(site: Site, a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    """Carry out `np.clip`: NaN stays NaN, and the upper bound wins."""
    if not any(map(_needs_staging, (a, a_min, a_max))):
        return run_native(site, np.clip, a, a_min, a_max)
    for name, bound in (("maximum", a_min), ("minimum", a_max)):
        a = a if bound is None else site.invoke(registry.by_name(name), [a, bound])
    return a


# -- operators as functions --------------------------------------------------------------------------------------------


def _operator(symbol: str, run: Callable[..., Any] = binary) -> Builtin:
    """Return the meaning of `operator.add` or its like; by `in_place` that of `iadd`: the value that `a += b` would bind."""
    return lambda site, a, b, /: run(site, symbol, a, b)


def _sign(op: type[ast.unaryop]) -> Builtin:
    return lambda site, a, /: unary(site, op, a)


def _comparison(op: type[ast.cmpop]) -> Builtin:
    operator_ = op()
    return lambda site, a, b, /: compare(site, operator_, a, b)


# -- the least and the greatest ----------------------------------------------------------------------------------------


def _extremum(op: ast.cmpop) -> Builtin:
    """Return the meaning of `min` or `max`: the first argument, unless a later one is strictly smaller or larger."""
    python = max if isinstance(op, ast.Gt) else min

    def run(site: Site, first: Any, /, *rest: Any, key: Any = None, default: Any = OMITTED) -> Any:
        items = [first, *rest] if rest else items_of(site, first)
        if not any(map(_needs_staging, items)) or (rest and default is not OMITTED):
            given = {} if default is OMITTED else {"default": default}
            return run_native(site, python, *([first, *rest] if rest else [items]), key=key, **given)
        key_of: Callable[[Any], Any] = (lambda item: item) if key is None else (lambda item: site.invoke(key, [item]))
        best, best_key = items[0], key_of(items[0])
        for item in items[1:]:
            best, best_key = _better(site, op, (best, best_key), (item, key_of(item)))
        return best

    return run


def _needs_staging(value: Any) -> bool:
    return isinstance(value, np.generic) or holds_run_time(value) or mapper_of(value) is not None


def _better(site: Site, op: ast.cmpop, best: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the better of two items, each with the key that it is compared by."""
    answer = compare(site, op, other[1], best[1])
    if mapper_of(answer) is not None:
        both = site.invoke(language.where, [answer, other[0], best[0]])
        return both, both
    is_better = truth(site, answer)

    def choose(a: Any, b: Any) -> Any:
        are_numbers = is_numeric(a) and is_numeric(b)
        if are_numbers:
            a, b = _fitting(a, b), _fitting(b, a)
        if isinstance(is_better, bool):
            pair = (a, b) if is_better else (b, a)
            return chosen(site, *pair) if are_numbers else pair[0]
        if are_numbers:
            return site.tracer.arithmetic.select(is_better.value, a, b)
        return site.read(branch(site.tracer, is_better.value, lambda: a, lambda: b, site.loc))

    item = choose(other[0], best[0])
    is_own_key = other[1] is other[0] and best[1] is best[0]
    return item, item if is_own_key else choose(other[1], best[1])


def _fitting(value: Any, beside: Any) -> Any:
    """Return `value` as an operand beside another number: an integer literal that the other's dtype does not hold becomes a
    number of its own dtype, as where two paths meet.
    """
    strong, own = default_dtype(beside), default_dtype(value)
    fits = not (is_literal(value) and own.is_integer and strong.is_integer) or is_literal(beside) or strong.holds(value)
    return value if fits else converted(value, own)


ON_NUMBERS: dict[Any, Builtin] = {
    builtins.abs: _abs,
    builtins.min: _extremum(ast.Lt()),
    builtins.max: _extremum(ast.Gt()),
    builtins.round: _round,
    builtins.pow: _pow,
    builtins.divmod: lambda site, x, y, /: (binary(site, "//", x, y), binary(site, "%", x, y)),
    builtins.int: _int,
    builtins.float: _float,
    builtins.complex: _complex,
    builtins.bool: lambda site, x=False, /: truth(site, x),
    **{each.python: _operator(symbol) for symbol, each in SYMBOLS.items()},
    operator.not_: lambda site, a, /: negate_condition(site.tracer, truth(site, a)),
    operator.inv: _sign(ast.Invert),
    operator.is_: _comparison(ast.Is),
    operator.is_not: _comparison(ast.IsNot),
    operator.contains: lambda site, a, b, /: contains(site, b, a),
    operator.concat: _operator("+"),
    **{getattr(operator, f"i{each.method}"): _operator(symbol, in_place) for symbol, each in SYMBOLS.items()},
    operator.truth: lambda site, obj, /: truth(site, obj),
    np.where: _np_where,
    np.clip: _np_clip,
    operator.abs: _abs,
    **{python: _sign(op) for op, (_, python) in UNARY.items()},
    **{python: _comparison(op) for op, (_, _, python) in COMPARISONS.items()},
}
