"""What Python's own functions mean on run-time values, and the familiar names of `math` and NumPy.

Each entry is keyed by the function itself, so shadowing and aliases follow Python's rules.
"""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import difflib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.frontend import expressions, objects
from stagekit.frontend.control import branch, describe, parts_of, remade
from stagekit.frontend.errors import BadCall, BadOperands, NotCallable, StaticFailure
from stagekit.frontend.frame import Closure, Frame
from stagekit.frontend.numbers import COMPARISONS, PYTHON_BINARY, default_dtype, is_literal, is_numeric
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Array, Generator, Number, StagedRange, holds_run_time
from stagekit.intrinsics import registry
from stagekit.ir import Intrinsic, Value

Builtin = Callable[..., Any]
NO_KEYWORDS: Mapping[str, Any] = {}


def find(fn: Any) -> Builtin | None:
    """The staged meaning of a Python builtin, or None. By identity: `fn` may be anything, even unhashable."""
    return _BY_ID.get(id(fn))


# -- familiar names -----------------------------------------------------------------------------------------------------

_OTHER_NAMES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "absolute": "abs", "power": "pow", "rad2deg": "degrees", "deg2rad": "radians", "float_power": "pow",
}  # fmt: skip


def _familiar_table() -> dict[int, Intrinsic]:
    known = {spec.name: spec for spec in registry.all_intrinsics()}
    table: dict[int, Intrinsic] = {}
    for module in (math, np):
        for name in dir(module):
            spec = known.get(_OTHER_NAMES.get(name, name))
            if spec is not None and callable(getattr(module, name)):
                table[id(getattr(module, name))] = spec
    return table


_FAMILIAR = _familiar_table()


def familiar(fn: Any) -> Intrinsic | None:
    """The intrinsic that `math.exp` or `np.exp` means on run-time values."""
    return _FAMILIAR.get(id(fn))


def nearest_intrinsic(name: str) -> str:
    """A hint for a function without counterpart: '; the nearest is `sk.exp`'."""
    names = [spec.name for spec in registry.all_intrinsics()]
    close = difflib.get_close_matches(name, names, n=1)
    return f"; the nearest is `sk.{close[0]}`" if close else ""


# -- numbers ------------------------------------------------------------------------------------------------------------


def _abs(tracer: Tracer, frame: Frame, node: ast.AST, x: Any) -> Any:
    method = objects.users_method(x, "__abs__")
    if method is not None and not _is_mapped(x):
        return _call(tracer, frame, node, method, [x])
    if not isinstance(x, Number | np.generic) and not _is_mapped(x):
        return _python(tracer, frame, node, abs, x)
    return _call(tracer, frame, node, registry.by_name("abs"), [x])


def _is_mapped(value: Any) -> bool:
    return hasattr(type(value), "__stagekit_map__")


def _call(
    tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, args: list[Any], kwargs: Mapping[str, Any] = NO_KEYWORDS
) -> Any:
    from stagekit.frontend.calls import call

    return call(tracer, frame, node, fn, args, dict(kwargs))


def _python(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, *args: Any, **kwargs: Any) -> Any:
    args = tuple(native_argument(tracer, frame, node, a) for a in args)
    kwargs = {name: native_argument(tracer, frame, node, a) for name, a in kwargs.items()}
    if any(isinstance(a, Number) for a in args):
        shown = ", ".join(map(describe, args))
        raise tracer.error(BadCall(f"`{fn.__name__}({shown})`", "it needs compile-time values"), frame, node)
    made = expressions.static(tracer, frame, node, lambda: fn(*args, **kwargs))
    return tracer.journal.born(made) if isinstance(made, list | dict | set) else made


def native_argument(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Any:
    """What CPython gets: of a generator its items, of a function of the kernel one that runs it."""
    if isinstance(value, Generator):
        return expressions.items_of(tracer, frame, node, value)
    if isinstance(value, Closure):
        return lambda *args, **kwargs: _call(tracer, frame, node, value, list(args), kwargs)
    return value


def _extremum(op: ast.cmpop) -> Builtin:
    """Python's `min`/`max`: the first argument unless a later one is strictly smaller/larger."""

    def run(tracer: Tracer, frame: Frame, node: ast.AST, first: Any, *rest: Any, **kwargs: Any) -> Any:
        items = [first, *rest] if rest else list(expressions.items_of(tracer, frame, node, first))
        if not any(map(_needs_staging, items)):
            python = max if isinstance(op, ast.Gt) else min
            return _python(tracer, frame, node, python, items, **kwargs)
        unknown = kwargs.keys() - {"key", "default"}
        if unknown or not items:
            message = f"`{min(unknown)}` is not known here" if unknown else "an empty sequence"
            raise tracer.error(BadCall(message, "min(a, b, ...)"), frame, node)
        key = kwargs.get("key")
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
    return item if key is None else _call(tracer, frame, node, key, [item])


def _needs_staging(value: Any) -> bool:
    return isinstance(value, np.generic) or holds_run_time(value) or _is_mapped(value)


def _better(tracer: Tracer, frame: Frame, node: ast.AST, op: ast.cmpop, best: _Ranked, other: _Ranked) -> _Ranked:
    answer = expressions.compare(tracer, frame, node, op, other.key, best.key)
    if _is_mapped(answer):
        from stagekit.frontend import language

        chosen = _call(tracer, frame, node, language.where, [answer, other.item, best.item])
        return _Ranked(chosen, chosen)
    is_better = expressions.truth(tracer, frame, node, answer)
    if isinstance(is_better, bool):
        return other if is_better else best

    def choose(a: Any, b: Any) -> Any:
        if is_numeric(a) and is_numeric(b):
            return tracer.arithmetic.select(is_better.value, a, b, frame.loc(node))
        joined = branch(tracer, is_better.value, lambda: a, lambda: b, frame.loc(node))
        return tracer.read(joined, frame, node)

    item = choose(other.item, best.item)
    is_own_key = other.key is other.item and best.key is best.item
    return _Ranked(item, item if is_own_key else choose(other.key, best.key))


def _sum(tracer: Tracer, frame: Frame, node: ast.AST, items: Any, start: Any = 0) -> Any:
    total = start
    for item in expressions.items_of(tracer, frame, node, items):
        total = expressions.binary(tracer, frame, node, "+", total, item)
    return total


def _round(tracer: Tracer, frame: Frame, node: ast.AST, x: Any, ndigits: Any = None) -> Any:
    if not isinstance(x, Number | np.generic):
        return _python(tracer, frame, node, round, x, *([ndigits] if ndigits is not None else []))
    if ndigits is not None:
        raise tracer.error(BadCall("`round` of a typed value takes no digits", "round(x)"), frame, node)
    if not default_dtype(x).is_float:
        return x
    nearest = _call(tracer, frame, node, registry.by_name("rint"), [x])
    return tracer.arithmetic.convert(nearest, dtypes.int64)


def _pow(tracer: Tracer, frame: Frame, node: ast.AST, base: Any, exponent: Any, mod: Any = None) -> Any:
    if mod is not None:
        return _python(tracer, frame, node, pow, base, exponent, mod)
    return expressions.binary(tracer, frame, node, "**", base, exponent)


def _divmod(tracer: Tracer, frame: Frame, node: ast.AST, a: Any, b: Any) -> Any:
    return tuple(expressions.binary(tracer, frame, node, symbol, a, b) for symbol in ("//", "%"))


def _int(tracer: Tracer, frame: Frame, node: ast.AST, x: Any = 0, *rest: Any) -> Any:
    """Integers stay; bool becomes int32; floats truncate to int64."""
    method = objects.users_method(x, "__int__") or objects.users_method(x, "__index__")
    if method is not None:
        return _int(tracer, frame, node, _call(tracer, frame, node, method, [x]))
    if isinstance(x, np.generic):
        x = tracer.arithmetic.convert(x, x_dtype := default_dtype(x))
        return (
            x
            if x_dtype.is_integer
            else tracer.arithmetic.convert(x, dtypes.int64 if x_dtype.is_float else dtypes.int32)
        )
    if not isinstance(x, Number):
        return _python(tracer, frame, node, int, x, *rest)
    if x.dtype.is_integer:
        return x
    return tracer.arithmetic.convert(x, dtypes.int64 if x.dtype.is_float else dtypes.int32)


def _float(tracer: Tracer, frame: Frame, node: ast.AST, x: Any = 0.0) -> Any:
    """Floats stay; everything else becomes float32."""
    method = objects.users_method(x, "__float__")
    if method is not None:
        return _float(tracer, frame, node, _call(tracer, frame, node, method, [x]))
    if not isinstance(x, Number | np.generic):
        return _python(tracer, frame, node, float, x)
    return x if default_dtype(x).is_float else tracer.arithmetic.convert(x, dtypes.float32)


def _bool(tracer: Tracer, frame: Frame, node: ast.AST, x: Any = False) -> Any:
    return expressions.truth(tracer, frame, node, x)


def _operator(symbol: str) -> Builtin:
    """`operator.add` and its like."""
    return lambda tracer, frame, node, a, b: expressions.binary(tracer, frame, node, symbol, a, b)


def _sign(op: type[ast.unaryop]) -> Builtin:
    return lambda tracer, frame, node, a: expressions.unary(tracer, frame, node, op, a)


def _not(tracer: Tracer, frame: Frame, node: ast.AST, a: Any) -> Any:
    return expressions.negate_condition(tracer, expressions.truth(tracer, frame, node, a))


def _comparison(op: type[ast.cmpop]) -> Builtin:
    return lambda tracer, frame, node, a, b: expressions.compare(tracer, frame, node, op(), a, b)


# -- sequences ----------------------------------------------------------------------------------------------------------


def _len(tracer: Tracer, frame: Frame, node: ast.AST, x: Any) -> Any:
    if isinstance(x, Array):
        if not x.shape:
            raise tracer.error(BadOperands("len", "a zero-dimensional array", ""), frame, node)
        return x.shape[0]
    if isinstance(x, Generator):
        raise tracer.error(StaticFailure("TypeError", "a generator has no len()"), frame, node)
    method = getattr(type(x), "__len__", None)
    if method is not None and hasattr(method, "__code__"):
        return _call(tracer, frame, node, method, [x])
    return _python(tracer, frame, node, len, x)


def _range(tracer: Tracer, frame: Frame, node: ast.AST, *args: Any, unroll: int | None = None) -> Any:
    """`range(...)`, with `unroll=` as a hint for the run-time loop."""
    if not 1 <= len(args) <= 3:
        raise tracer.error(
            BadCall(f"`range` takes one to three arguments, got {len(args)}", "range(start, stop, step)"), frame, node
        )
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if len(args) == 3 else 1)
    args = tuple(int(a) if isinstance(a, np.integer) else a for a in args)
    if unroll is not None and (type(unroll) is not int or unroll < 1):
        raise tracer.error(BadCall(f"`unroll` is {unroll!r}", "a Python int of at least 1"), frame, node)
    if unroll is None and all(type(a) in (int, bool) for a in args):
        return _python(tracer, frame, node, range, *args)
    if is_literal(step) and step == 0:
        raise tracer.error(BadCall("`range` with a step of 0", "range(start, stop, step)"), frame, node)
    return StagedRange(start, stop, step, unroll)


def _items(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> list[Any]:
    return list(expressions.items_of(tracer, frame, node, value))


def _list(tracer: Tracer, frame: Frame, node: ast.AST, items: Any = ()) -> Any:
    return tracer.journal.born(_items(tracer, frame, node, items))


def _tuple(tracer: Tracer, frame: Frame, node: ast.AST, items: Any = ()) -> Any:
    return tuple(_items(tracer, frame, node, items))


def iterator(tracer: Tracer, thunks: Iterable[Callable[[], Any]]) -> Generator:
    """An iterator as Python's own functions give them: it can be used once."""

    def each(visit: Callable[[Callable[[], Any]], bool]) -> None:
        for thunk in thunks:
            if not visit(thunk):
                return

    return tracer.journal.born(Generator(each))  # type: ignore[no-any-return]


def _over(tracer: Tracer, items: Iterable[Any]) -> Generator:
    return iterator(tracer, [lambda item=item: item for item in items])  # type: ignore[misc]


def _iter(tracer: Tracer, frame: Frame, node: ast.AST, items: Any) -> Any:
    return items if isinstance(items, Generator) else _over(tracer, _items(tracer, frame, node, items))


def _zip(tracer: Tracer, frame: Frame, node: ast.AST, *iterables: Any, strict: bool = False) -> Any:
    rows = [_items(tracer, frame, node, i) for i in iterables]
    return _over(tracer, _python(tracer, frame, node, lambda: list(zip(*rows, strict=strict))))


def _enumerate(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, start: int = 0) -> Any:
    if holds_run_time(start):
        hint = "add it to the index in the loop"
        raise tracer.error(BadCall("`start` of `enumerate` is known only at run time", hint), frame, node)
    return _over(tracer, enumerate(_items(tracer, frame, node, iterable), start))


def _reversed(tracer: Tracer, frame: Frame, node: ast.AST, items: Any) -> Any:
    method = objects.users_method(items, "__reversed__")
    if method is not None:
        return _call(tracer, frame, node, method, [items])
    if isinstance(items, range):
        return items[::-1]
    return _over(tracer, _items(tracer, frame, node, items)[::-1])


def _sorted(tracer: Tracer, frame: Frame, node: ast.AST, items: Any, *, key: Any = None, reverse: bool = False) -> Any:
    """The keys decide, which are known at compile time; the items need not be."""
    values = _items(tracer, frame, node, items)
    keys = values if key is None else [_call(tracer, frame, node, key, [v]) for v in values]
    for each in keys:
        if holds_run_time(each):
            hint = "what is sorted by must be known at compile time"
            raise tracer.error(NotCallable("`sorted` by run-time values", hint), frame, node)
    order = _python(tracer, frame, node, lambda: sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse))
    return tracer.journal.born([values[i] for i in order])


def _map(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, *iterables: Any) -> Any:
    rows = zip(*(_items(tracer, frame, node, i) for i in iterables))
    return iterator(tracer, [lambda row=row: _call(tracer, frame, node, fn, list(row)) for row in rows])  # type: ignore[misc]


def _filter(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, items: Any) -> Any:
    values = _items(tracer, frame, node, items)

    def each(visit: Callable[[Callable[[], Any]], bool]) -> None:
        for value in values:
            if _is_kept(tracer, frame, node, fn, value) and not visit(lambda kept=value: kept):  # type: ignore[misc]
                return

    return tracer.journal.born(Generator(each))


def _is_kept(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, item: Any) -> bool:
    keep = expressions.truth(tracer, frame, node, item if fn is None else _call(tracer, frame, node, fn, [item]))
    if not isinstance(keep, bool):
        hint = "what is kept must be known at compile time"
        raise tracer.error(NotCallable("`filter` with a run-time condition", hint), frame, node)
    return keep


def _reduce(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, items: Any, *start: Any) -> Any:
    values = [*start, *_items(tracer, frame, node, items)]
    if not values:
        raise tracer.error(BadCall("`reduce` of nothing", "reduce(function, items, start)"), frame, node)
    return functools.reduce(lambda a, b: _call(tracer, frame, node, fn, [a, b]), values)


def _any(tracer: Tracer, frame: Frame, node: ast.AST, items: Any) -> Any:
    """Items after the first that holds are not made."""
    found: bool | Number = False

    def visit(item: Callable[[], Any]) -> bool:
        nonlocal found

        def holds() -> bool | Number:
            return expressions.truth(tracer, frame, node, item())

        found = (
            holds() if isinstance(found, bool) else branch(tracer, found.value, lambda: True, holds, frame.loc(node))
        )
        return found is not True

    _visit(tracer, frame, node, items, visit)
    return found


def _all(tracer: Tracer, frame: Frame, node: ast.AST, items: Any) -> Any:
    """Items after the first that does not hold are not made."""
    found: bool | Number = True

    def visit(item: Callable[[], Any]) -> bool:
        nonlocal found
        found = expressions.both(tracer, frame, found, lambda: expressions.truth(tracer, frame, node, item()), node)
        return found is not False

    _visit(tracer, frame, node, items, visit)
    return found


def _visit(tracer: Tracer, frame: Frame, node: ast.AST, items: Any, visit: Callable[[Callable[[], Any]], bool]) -> None:
    generator = _iter(tracer, frame, node, items)
    if expressions.begin(tracer, frame, node, generator):
        generator.each(visit)


# -- objects ------------------------------------------------------------------------------------------------------------


def _stands_for(value: Any) -> Any:
    """A run-time number counts as the Python number it stands for."""
    if isinstance(value, Number):
        return False if value.dtype is dtypes.bool_ else 0.0 if value.dtype.is_float else 0
    return value


def _isinstance(tracer: Tracer, frame: Frame, node: ast.AST, value: Any, cls: Any) -> Any:
    return expressions.static(tracer, frame, node, lambda: isinstance(_stands_for(value), cls))


def _type(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> type:
    return type(_stands_for(value))


def _getattr(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, name: str, *default: Any) -> Any:
    if not isinstance(name, str):
        raise tracer.error(BadCall(f"`getattr` of {describe(name)}", "give the name as a string"), frame, node)
    if default and not _hasattr(tracer, frame, node, owner, name):
        return default[0]
    return objects.attribute(tracer, frame, node, owner, name)


def _setattr(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, name: str, value: Any) -> None:
    objects.put(tracer, frame, node, owner, name, value)


def _plain_setattr(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, name: str, value: Any) -> None:
    objects.put_plainly(tracer, frame, node, owner, name, value)


def _delattr(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, name: str) -> None:
    objects.delete(tracer, frame, node, owner, name)


def _replace(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, **changes: Any) -> Any:
    """`dataclasses.replace`."""
    fields = {f.name: getattr(owner, f.name) for f in dataclasses.fields(owner) if f.init}
    return _call(tracer, frame, node, type(owner), [], {**fields, **changes})


def _copy(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Any:
    """`copy.copy`: a container or object of its own, with the same items."""
    parts = parts_of(value)
    if parts is None or isinstance(value, Array):
        return value if isinstance(value, Number) else _python(tracer, frame, node, copy.copy, value)
    return tracer.journal.born(remade(value, parts))


def _deepcopy(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Any:
    known: dict[int, Any] = {}  # what is met twice is copied once

    def deep(each: Any) -> Any:
        if id(each) not in known:
            parts = parts_of(each)
            is_leaf = parts is None or isinstance(each, Array)
            known[id(each)] = _copy(tracer, frame, node, each) if is_leaf else _deep(each, parts or [])
        return known[id(each)]

    def _deep(each: Any, parts: list[Any]) -> Any:
        return tracer.journal.born(remade(each, [deep(p) for p in parts]))

    return deep(value)


def _attribute_names(owner: Any) -> tuple[str, ...]:
    from stagekit.frontend import arrays

    return tuple(arrays._ATTRIBUTES_OF.get(type(owner), ()))


def _hasattr(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, name: str) -> bool:
    is_known = name in _attribute_names(owner) or objects.in_class(owner, name) is not None
    return is_known or bool(expressions.static(tracer, frame, node, lambda: hasattr(owner, name)))


def _callable(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> bool:
    return callable(value) or isinstance(value, Closure)


def _super(tracer: Tracer, frame: Frame, node: ast.AST, *args: Any) -> Any:
    if args or frame.function is None or "__class__" not in frame.function.__code__.co_freevars:
        return _python(tracer, frame, node, super, *args)
    assert frame.function.__closure__ is not None
    cell = frame.function.__closure__[frame.function.__code__.co_freevars.index("__class__")]
    first = frame.function.__code__.co_varnames[0]
    return super(cell.cell_contents, frame.scope.variables[first])


def _print(
    tracer: Tracer, frame: Frame, node: ast.AST, *args: Any, sep: str | None = " ", end: str | None = "\n"
) -> None:
    """Run-time printing, once per thread that gets here."""
    for name, text in (("sep", sep), ("end", end)):
        if not isinstance(text, str | None):
            raise tracer.error(BadCall(f"`{name}` of `print` is {describe(text)}", "give a string"), frame, node)
    sep, end = " " if sep is None else sep, "\n" if end is None else end
    template, operands = "", list[Value]()
    for position, value in enumerate(args):
        text, values = expressions.shown(tracer, frame, node, value, "what is printed")
        template += (_escaped(sep) if position else "") + text
        operands += values
    tracer.at(frame, node)
    tracer.builder.print_(template + _escaped(end), tuple(operands))


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


_STAGED: dict[Any, Builtin] = {
    builtins.abs: _abs,
    builtins.min: _extremum(ast.Lt()),
    builtins.max: _extremum(ast.Gt()),
    builtins.sum: _sum,
    builtins.round: _round,
    builtins.pow: _pow,
    builtins.divmod: _divmod,
    builtins.int: _int,
    builtins.float: _float,
    builtins.bool: _bool,
    builtins.len: _len,
    builtins.range: _range,
    builtins.list: _list,
    builtins.tuple: _tuple,
    builtins.iter: _iter,
    builtins.zip: _zip,
    builtins.enumerate: _enumerate,
    builtins.reversed: _reversed,
    builtins.sorted: _sorted,
    builtins.map: _map,
    builtins.filter: _filter,
    builtins.any: _any,
    builtins.all: _all,
    builtins.isinstance: _isinstance,
    builtins.type: _type,
    builtins.getattr: _getattr,
    builtins.setattr: _setattr,
    builtins.delattr: _delattr,
    object.__setattr__: _plain_setattr,
    dataclasses.replace: _replace,
    copy.copy: _copy,
    copy.deepcopy: _deepcopy,
    builtins.hasattr: _hasattr,
    builtins.callable: _callable,
    builtins.super: _super,
    builtins.print: _print,
    functools.reduce: _reduce,
    **{python: _operator(symbol) for symbol, python in PYTHON_BINARY.values()},
    operator.not_: _not,
    operator.truth: _bool,
    operator.abs: _abs,
    **{python: _sign(op) for op, (_, python) in expressions.UNARY.items()},
    **{python: _comparison(op) for op, (_, _, python) in COMPARISONS.items()},
}

_BY_ID = {id(fn): staged for fn, staged in _STAGED.items()}
