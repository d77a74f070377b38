"""Python's functions on numbers: `abs`, `min`, `round`, `int`, `operator.add`, ..."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.frontend import language, objects
from stagekit.frontend.conditions import compare, contains, negate_condition, truth
from stagekit.frontend.control import branch
from stagekit.frontend.errors import BadCall, StaticFailure
from stagekit.frontend.evaluation import Site
from stagekit.frontend.iteration import items_of
from stagekit.frontend.numbers import COMPARISONS, SYMBOLS, default_dtype, is_literal, is_numeric
from stagekit.frontend.operators import UNARY, binary, in_place, unary
from stagekit.frontend.python_calls import Builtin, run_native
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Number, holds_run_time, mapper_of
from stagekit.intrinsics import registry

_NONE: Any = object()  # a parameter that was left out


def _abs(site: Site, x: Any, /) -> Any:
    method = objects.users_method(site.tracer, x, "__abs__")
    if method is not None and mapper_of(x) is None:
        return site.invoke(method, [x])
    if not isinstance(x, Number | np.generic) and mapper_of(x) is None:
        return run_native(site, abs, x)
    return site.invoke(registry.by_name("abs"), [x])


def _elementwise(python: Any, run: Builtin) -> Builtin:
    """`run`, which is what `python` means on one value; of a tile it is done to each element."""

    @functools.wraps(run)
    def mapped(site: Site, /, *args: Any, **kwargs: Any) -> Any:
        mapper = mapper_of(args[0]) if args else None
        if mapper is None:
            return run(site, *args, **kwargs)
        return site.invoke(mapper, [args[0], python, args, kwargs])

    mapped.__signature__ = inspect.signature(run)  # type: ignore[attr-defined]  # which calls are checked against
    return mapped


def _round(site: Site, number: Any, ndigits: Any = None) -> Any:
    if not isinstance(number, Number):
        return run_native(site, round, number, *([ndigits] if ndigits is not None else []))
    if ndigits is not None:
        hint = "round(x), or for two digits round(x * 100) / 100"
        raise site.error(BadCall("`round` of a run-time number takes no digits", hint))
    is_float = number.dtype.is_float
    return _int(site, site.invoke(registry.by_name("rint"), [number]) if is_float else number)


def _pow(site: Site, base: Any, exp: Any, mod: Any = None) -> Any:
    if mod is not None:
        return run_native(site, pow, base, exp, mod)
    return binary(site, "**", base, exp)


def _divmod(site: Site, x: Any, y: Any, /) -> Any:
    return tuple(binary(site, symbol, x, y) for symbol in ("//", "%"))


def _int(site: Site, x: Any = 0, /, base: Any = _NONE) -> Any:
    """Python's own of what is known. At run time int32 where that holds every value of the dtype, else int64."""
    if base is not _NONE:
        if isinstance(x, Number):
            raise site.error(StaticFailure("TypeError", "int() can't convert non-string with explicit base"))
        return run_native(site, int, x, base)
    name = "__index__" if objects.in_class(site.tracer, x, "__int__") is None else "__int__"
    method = objects.users_method(site.tracer, x, name)
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


def _float(site: Site, x: Any = 0.0, /) -> Any:
    """Python's own of what is known. At run time float32, float64 of a float64."""
    method = objects.users_method(site.tracer, x, "__float__")
    if method is not None:
        return _float(site, site.invoke(method, [x]))
    if not isinstance(x, Number):
        return run_native(site, float, x)
    if x.dtype in (dtypes.float32, dtypes.float64):
        return x
    return Number(site.tracer.builder.cast(x.value, dtypes.float32, is_exact=x.dtype.is_integer))


def _bool(site: Site, x: Any = False, /) -> Any:
    return truth(site, x)


def _truth(site: Site, obj: Any, /) -> Any:
    """`operator.truth`."""
    return truth(site, obj)


def _np_where(site: Site, condition: Any, /, *values: Any) -> Any:
    """`np.where(c, a, b)` of run-time values means `sk.where`."""
    if len(values) == 2 and any(map(_needs_staging, (condition, *values))):
        return site.invoke(language.where, [condition, *values])
    return run_native(site, np.where, condition, *values)


def _np_clip(site: Site, a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    """`np.clip`: NaN stays NaN, and the upper bound wins."""
    if not any(map(_needs_staging, (a, a_min, a_max))):
        return run_native(site, np.clip, a, a_min, a_max)
    for name, bound in (("maximum", a_min), ("minimum", a_max)):
        a = a if bound is None else site.invoke(registry.by_name(name), [a, bound])
    return a


# -- operators as functions --------------------------------------------------------------------------------------------


def _operator(symbol: str) -> Builtin:
    """`operator.add` and its like."""

    def run(site: Site, a: Any, b: Any, /) -> Any:
        return binary(site, symbol, a, b)

    return run


def _operator_in_place(symbol: str) -> Builtin:
    """`operator.iadd` and its like: what `a += b` would bind."""

    def run(site: Site, a: Any, b: Any, /) -> Any:
        return in_place(site, symbol, a, b)

    return run


def _contains(site: Site, a: Any, b: Any, /) -> Any:
    return contains(site, b, a)


def _sign(op: type[ast.unaryop]) -> Builtin:
    def run(site: Site, a: Any, /) -> Any:
        return unary(site, op, a)

    return run


def _not(site: Site, a: Any, /) -> Any:
    return negate_condition(site.tracer, truth(site, a))


def _comparison(op: type[ast.cmpop]) -> Builtin:
    def run(site: Site, a: Any, b: Any, /) -> Any:
        return compare(site, op(), a, b)

    return run


# -- the least and the greatest ----------------------------------------------------------------------------------------


def _extremum(op: ast.cmpop) -> Builtin:
    """Python's `min`/`max`: the first argument unless a later one is strictly smaller/larger."""
    python = max if isinstance(op, ast.Gt) else min

    def run(site: Site, first: Any, /, *rest: Any, key: Any = None, default: Any = _NONE) -> Any:
        items = [first, *rest] if rest else items_of(site, first)
        if not any(map(_needs_staging, items)) or (rest and default is not _NONE):
            given = {} if default is _NONE else {"default": default}
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
    """The better of two items, each with what it is compared by."""
    answer = compare(site, op, other[1], best[1])
    if mapper_of(answer) is not None:
        chosen = site.invoke(language.where, [answer, other[0], best[0]])
        return chosen, chosen
    is_better = truth(site, answer)
    if isinstance(is_better, bool):
        return other if is_better else best

    def choose(a: Any, b: Any) -> Any:
        if is_numeric(a) and is_numeric(b):
            pair = _fitting(site.tracer, a, b), _fitting(site.tracer, b, a)
            return site.tracer.arithmetic.select(is_better.value, *pair)
        return site.read(branch(site.tracer, is_better.value, lambda: a, lambda: b, site.loc))

    item = choose(other[0], best[0])
    is_own_key = other[1] is other[0] and best[1] is best[0]
    return item, item if is_own_key else choose(other[1], best[1])


def _fitting(tracer: Tracer, value: Any, beside: Any) -> Any:
    """An integer literal that the other number's dtype does not hold counts as one of its own dtype, as where paths meet."""
    strong, own = default_dtype(beside), default_dtype(value)
    fits = not (is_literal(value) and own.is_integer and strong.is_integer) or is_literal(beside) or strong.holds(value)
    return value if fits else Number(tracer.arithmetic.to_value(value, own))


ON_NUMBERS: dict[Any, Builtin] = {
    builtins.abs: _abs,
    builtins.min: _extremum(ast.Lt()),
    builtins.max: _extremum(ast.Gt()),
    builtins.round: _elementwise(round, _round),
    builtins.pow: _pow,
    builtins.divmod: _divmod,
    builtins.int: _elementwise(int, _int),
    builtins.float: _elementwise(float, _float),
    builtins.bool: _bool,
    **{each.python: _operator(symbol) for symbol, each in SYMBOLS.items()},
    operator.not_: _not,
    operator.inv: _sign(ast.Invert),
    operator.is_: _comparison(ast.Is),
    operator.is_not: _comparison(ast.IsNot),
    operator.contains: _contains,
    operator.concat: _operator("+"),
    **{getattr(operator, f"i{each.method}"): _operator_in_place(symbol) for symbol, each in SYMBOLS.items()},
    operator.truth: _truth,
    np.where: _np_where,
    np.clip: _np_clip,
    operator.abs: _abs,
    **{python: _sign(op) for op, (_, python) in UNARY.items()},
    **{python: _comparison(op) for op, (_, _, python) in COMPARISONS.items()},
}
