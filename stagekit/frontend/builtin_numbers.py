"""Python's functions on numbers: `abs`, `min`, `round`, `int`, `operator.add`, ..."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import Loc
from stagekit.frontend import language, objects
from stagekit.frontend.comparisons import compare, contains
from stagekit.frontend.conditions import negate_condition, truth
from stagekit.frontend.control import branch
from stagekit.frontend.errors import BadCall, StaticFailure
from stagekit.frontend.evaluation import invoke
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import items_of
from stagekit.frontend.numbers import COMPARISONS, PYTHON_BINARY, default_dtype, is_literal, is_numeric, strong_dtype
from stagekit.frontend.operators import METHODS, UNARY, binary, in_place, unary
from stagekit.frontend.python_calls import Builtin, run_native
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Number, holds_run_time, mapper_of
from stagekit.intrinsics import registry

_NONE: Any = object()  # a parameter that was left out


def _abs(tracer: Tracer, frame: Frame, node: ast.AST, x: Any, /) -> Any:
    method = objects.users_method(tracer, x, "__abs__")
    if method is not None and mapper_of(x) is None:
        return invoke(tracer, frame, node, method, [x])
    if not isinstance(x, Number | np.generic) and mapper_of(x) is None:
        return run_native(tracer, frame, node, abs, x)
    return invoke(tracer, frame, node, registry.by_name("abs"), [x])


def _elementwise(python: Any, run: Builtin) -> Builtin:
    """`run`, which is what `python` means on one value; of a tile it is done to each element."""

    @functools.wraps(run)
    def mapped(tracer: Tracer, frame: Frame, node: ast.AST, /, *args: Any, **kwargs: Any) -> Any:
        mapper = mapper_of(args[0]) if args else None
        if mapper is None:
            return run(tracer, frame, node, *args, **kwargs)
        return invoke(tracer, frame, node, mapper, [args[0], python, args, kwargs])

    mapped.__signature__ = inspect.signature(run)  # type: ignore[attr-defined]  # which calls are checked against
    return mapped


def _round(tracer: Tracer, frame: Frame, node: ast.AST, number: Any, ndigits: Any = None) -> Any:
    if not isinstance(number, Number):
        return run_native(tracer, frame, node, round, number, *([ndigits] if ndigits is not None else []))
    if ndigits is not None:
        hint = "round(x), or for two digits round(x * 100) / 100"
        raise tracer.error(BadCall("`round` of a run-time number takes no digits", hint), frame, node)
    is_float = number.dtype.is_float
    return _int(
        tracer, frame, node, invoke(tracer, frame, node, registry.by_name("rint"), [number]) if is_float else number
    )


def _pow(tracer: Tracer, frame: Frame, node: ast.AST, base: Any, exp: Any, mod: Any = None) -> Any:
    if mod is not None:
        return run_native(tracer, frame, node, pow, base, exp, mod)
    return binary(tracer, frame, node, "**", base, exp)


def _divmod(tracer: Tracer, frame: Frame, node: ast.AST, x: Any, y: Any, /) -> Any:
    return tuple(binary(tracer, frame, node, symbol, x, y) for symbol in ("//", "%"))


def _int(tracer: Tracer, frame: Frame, node: ast.AST, x: Any = 0, /, base: Any = _NONE) -> Any:
    """Python's own of what is known. At run time int32 where that holds every value of the dtype, else int64."""
    if base is not _NONE:
        if isinstance(x, Number):
            raise tracer.error(
                StaticFailure("TypeError", "int() can't convert non-string with explicit base"), frame, node
            )
        return run_native(tracer, frame, node, int, x, base)
    name = "__index__" if objects.in_class(tracer, x, "__int__") is None else "__int__"
    method = objects.users_method(tracer, x, name)
    if method is not None:
        return _int(tracer, frame, node, invoke(tracer, frame, node, method, [x]))
    if not isinstance(x, Number):
        dtype = strong_dtype(x)
        known = float(x) if dtype is not None and dtype.is_float else x  # ml_dtypes would make a number of infinity
        return run_native(tracer, frame, node, int, known)
    if x.dtype.is_integer and x.dtype.bits == 64:
        return x
    fits = not x.dtype.is_float and dtypes.promote(x.dtype, dtypes.int32) is dtypes.int32
    target = dtypes.int32 if fits else dtypes.int64
    return x if x.dtype is target else tracer.arithmetic.convert(x, target)


def _float(tracer: Tracer, frame: Frame, node: ast.AST, x: Any = 0.0, /) -> Any:
    """Python's own of what is known. At run time float32, float64 of a float64."""
    method = objects.users_method(tracer, x, "__float__")
    if method is not None:
        return _float(tracer, frame, node, invoke(tracer, frame, node, method, [x]))
    if not isinstance(x, Number):
        return run_native(tracer, frame, node, float, x)
    if x.dtype in (dtypes.float32, dtypes.float64):
        return x
    return Number(tracer.builder.cast(x.value, dtypes.float32, is_exact=x.dtype.is_integer))


def _bool(tracer: Tracer, frame: Frame, node: ast.AST, x: Any = False, /) -> Any:
    return truth(tracer, frame, node, x)


def _truth(tracer: Tracer, frame: Frame, node: ast.AST, obj: Any, /) -> Any:
    """`operator.truth`."""
    return truth(tracer, frame, node, obj)


def _np_where(tracer: Tracer, frame: Frame, node: ast.AST, condition: Any, /, *values: Any) -> Any:
    """`np.where(c, a, b)` of run-time values means `sk.where`."""
    if len(values) == 2 and any(map(_needs_staging, (condition, *values))):
        return invoke(tracer, frame, node, language.where, [condition, *values])
    return run_native(tracer, frame, node, np.where, condition, *values)


def _np_clip(tracer: Tracer, frame: Frame, node: ast.AST, a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    """`np.clip`: NaN stays NaN, and the upper bound wins."""
    if not any(map(_needs_staging, (a, a_min, a_max))):
        return run_native(tracer, frame, node, np.clip, a, a_min, a_max)
    for name, bound in (("maximum", a_min), ("minimum", a_max)):
        a = a if bound is None else invoke(tracer, frame, node, registry.by_name(name), [a, bound])
    return a


# -- operators as functions --------------------------------------------------------------------------------------------


def _operator(symbol: str) -> Builtin:
    """`operator.add` and its like."""

    def run(tracer: Tracer, frame: Frame, node: ast.AST, a: Any, b: Any, /) -> Any:
        return binary(tracer, frame, node, symbol, a, b)

    return run


def _operator_in_place(symbol: str) -> Builtin:
    """`operator.iadd` and its like: what `a += b` would bind."""

    def run(tracer: Tracer, frame: Frame, node: ast.AST, a: Any, b: Any, /) -> Any:
        return in_place(tracer, frame, node, symbol, a, b, frame.loc(node))

    return run


def _contains(tracer: Tracer, frame: Frame, node: ast.AST, a: Any, b: Any, /) -> Any:
    return contains(tracer, frame, node, b, a)


def _sign(op: type[ast.unaryop]) -> Builtin:
    def run(tracer: Tracer, frame: Frame, node: ast.AST, a: Any, /) -> Any:
        return unary(tracer, frame, node, op, a)

    return run


def _not(tracer: Tracer, frame: Frame, node: ast.AST, a: Any, /) -> Any:
    return negate_condition(tracer, truth(tracer, frame, node, a))


def _comparison(op: type[ast.cmpop]) -> Builtin:
    def run(tracer: Tracer, frame: Frame, node: ast.AST, a: Any, b: Any, /) -> Any:
        return compare(tracer, frame, node, op(), a, b)

    return run


# -- the least and the greatest ----------------------------------------------------------------------------------------


def _extremum(op: ast.cmpop) -> Builtin:
    """Python's `min`/`max`: the first argument unless a later one is strictly smaller/larger."""
    python = max if isinstance(op, ast.Gt) else min

    def run(
        tracer: Tracer, frame: Frame, node: ast.AST, first: Any, /, *rest: Any, key: Any = None, default: Any = _NONE
    ) -> Any:
        items = [first, *rest] if rest else items_of(tracer, frame, node, first)
        if not any(map(_needs_staging, items)) or (rest and default is not _NONE):
            given = {} if default is _NONE else {"default": default}
            return run_native(tracer, frame, node, python, *([first, *rest] if rest else [items]), key=key, **given)
        best = _Ranked(items[0], _key_of(tracer, frame, node, key, items[0]))
        for item in items[1:]:
            best = _better(tracer, frame, node, op, best, _Ranked(item, _key_of(tracer, frame, node, key, item)))
        return best.item

    return run


@dataclass(frozen=True)
class _Ranked:
    """An item and what it is compared by."""

    item: Any
    key: Any


def _key_of(tracer: Tracer, frame: Frame, node: ast.AST, key: Any, item: Any) -> Any:
    return item if key is None else invoke(tracer, frame, node, key, [item])


def _needs_staging(value: Any) -> bool:
    return isinstance(value, np.generic) or holds_run_time(value) or mapper_of(value) is not None


def _better(tracer: Tracer, frame: Frame, node: ast.AST, op: ast.cmpop, best: _Ranked, other: _Ranked) -> _Ranked:
    answer = compare(tracer, frame, node, op, other.key, best.key)
    if mapper_of(answer) is not None:
        chosen = invoke(tracer, frame, node, language.where, [answer, other.item, best.item])
        return _Ranked(chosen, chosen)
    is_better = truth(tracer, frame, node, answer)
    if isinstance(is_better, bool):
        return other if is_better else best

    def choose(a: Any, b: Any) -> Any:
        if is_numeric(a) and is_numeric(b):
            loc = frame.loc(node)
            return tracer.arithmetic.select(
                is_better.value, _fitting(tracer, a, b, loc), _fitting(tracer, b, a, loc), loc
            )
        joined = branch(tracer, is_better.value, lambda: a, lambda: b, frame.loc(node))
        return tracer.read(joined, frame, node)

    item = choose(other.item, best.item)
    is_own_key = other.key is other.item and best.key is best.item
    return _Ranked(item, item if is_own_key else choose(other.key, best.key))


def _fitting(tracer: Tracer, value: Any, beside: Any, loc: Loc) -> Any:
    """An integer literal that the other number's dtype does not hold counts as one of its own dtype, as where paths meet."""
    strong, own = default_dtype(beside), default_dtype(value)
    fits = not (is_literal(value) and own.is_integer and strong.is_integer) or is_literal(beside) or strong.holds(value)
    return value if fits else Number(tracer.arithmetic.to_value(value, own, loc))


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
    **{python: _operator(symbol) for symbol, python in PYTHON_BINARY.values()},
    operator.not_: _not,
    operator.inv: _sign(ast.Invert),
    operator.is_: _comparison(ast.Is),
    operator.is_not: _comparison(ast.IsNot),
    operator.contains: _contains,
    operator.concat: _operator("+"),
    **{getattr(operator, f"i{name}"): _operator_in_place(symbol) for symbol, name in METHODS.items()},
    operator.truth: _truth,
    np.where: _np_where,
    np.clip: _np_clip,
    operator.abs: _abs,
    **{python: _sign(op) for op, (_, python) in UNARY.items()},
    **{python: _comparison(op) for op, (_, _, python) in COMPARISONS.items()},
}
