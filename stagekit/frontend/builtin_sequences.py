"""Python's functions on sequences and iterators: `len`, `range`, `zip`, `sorted`, `any`, ..."""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.frontend import objects
from stagekit.frontend.conditions import both, truth
from stagekit.frontend.control import branch
from stagekit.frontend.errors import BadCall, BadOperands, NotCallable, StaticFailure
from stagekit.frontend.evaluation import invoke
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import begin, items_of, iterator, over
from stagekit.frontend.native import Builtin, run_native
from stagekit.frontend.numbers import is_literal
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Array, Generator, Number, StagedRange, holds_run_time


def _len(tracer: Tracer, frame: Frame, node: ast.AST, x: Any) -> Any:
    if isinstance(x, Array):
        if not x.shape:
            raise tracer.error(BadOperands("len", "a zero-dimensional array", ""), frame, node)
        return x.shape[0]
    if isinstance(x, Generator):
        raise tracer.error(StaticFailure("TypeError", "a generator has no len()"), frame, node)
    method = getattr(type(x), "__len__", None)
    if method is not None and hasattr(method, "__code__"):
        return invoke(tracer, frame, node, method, [x])
    return run_native(tracer, frame, node, len, x)


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
        return run_native(tracer, frame, node, range, *args)
    if is_literal(step) and step == 0:
        raise tracer.error(BadCall("`range` with a step of 0", "range(start, stop, step)"), frame, node)
    return StagedRange(start, stop, step, unroll)


def _items(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> list[Any]:
    return list(items_of(tracer, frame, node, value))


def _list(tracer: Tracer, frame: Frame, node: ast.AST, items: Any = ()) -> Any:
    return tracer.journal.born(_items(tracer, frame, node, items))


def _tuple(tracer: Tracer, frame: Frame, node: ast.AST, items: Any = ()) -> Any:
    return tuple(_items(tracer, frame, node, items))


def _iter(tracer: Tracer, frame: Frame, node: ast.AST, items: Any) -> Any:
    return items if isinstance(items, Generator) else over(tracer, _items(tracer, frame, node, items))


def _zip(tracer: Tracer, frame: Frame, node: ast.AST, *iterables: Any, strict: bool = False) -> Any:
    rows = [_items(tracer, frame, node, i) for i in iterables]
    return over(tracer, run_native(tracer, frame, node, lambda: list(zip(*rows, strict=strict))))


def _enumerate(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, start: int = 0) -> Any:
    if holds_run_time(start):
        hint = "add it to the index in the loop"
        raise tracer.error(BadCall("`start` of `enumerate` is known only at run time", hint), frame, node)
    return over(tracer, enumerate(_items(tracer, frame, node, iterable), start))


def _reversed(tracer: Tracer, frame: Frame, node: ast.AST, items: Any) -> Any:
    method = objects.users_method(items, "__reversed__")
    if method is not None:
        return invoke(tracer, frame, node, method, [items])
    if isinstance(items, range):
        return items[::-1]
    return over(tracer, _items(tracer, frame, node, items)[::-1])


def _sorted(tracer: Tracer, frame: Frame, node: ast.AST, items: Any, *, key: Any = None, reverse: bool = False) -> Any:
    """The keys decide, which are known at compile time; the items need not be."""
    values = _items(tracer, frame, node, items)
    keys = values if key is None else [invoke(tracer, frame, node, key, [v]) for v in values]
    for each in keys:
        if holds_run_time(each):
            hint = "what is sorted by must be known at compile time"
            raise tracer.error(NotCallable("`sorted` by run-time values", hint), frame, node)
    order = run_native(tracer, frame, node, lambda: sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse))
    return tracer.journal.born([values[i] for i in order])


def _map(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, *iterables: Any) -> Any:
    rows = zip(*(_items(tracer, frame, node, i) for i in iterables))
    return iterator(tracer, [lambda row=row: invoke(tracer, frame, node, fn, list(row)) for row in rows])  # type: ignore[misc]


def _filter(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, items: Any) -> Any:
    values = _items(tracer, frame, node, items)

    def each(visit: Callable[[Callable[[], Any]], bool]) -> None:
        for value in values:
            if _is_kept(tracer, frame, node, fn, value) and not visit(lambda kept=value: kept):  # type: ignore[misc]
                return

    return tracer.journal.born(Generator(each))


def _is_kept(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, item: Any) -> bool:
    keep = truth(tracer, frame, node, item if fn is None else invoke(tracer, frame, node, fn, [item]))
    if not isinstance(keep, bool):
        hint = "what is kept must be known at compile time"
        raise tracer.error(NotCallable("`filter` with a run-time condition", hint), frame, node)
    return keep


def _reduce(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, items: Any, *start: Any) -> Any:
    values = [*start, *_items(tracer, frame, node, items)]
    if not values:
        raise tracer.error(BadCall("`reduce` of nothing", "reduce(function, items, start)"), frame, node)
    return functools.reduce(lambda a, b: invoke(tracer, frame, node, fn, [a, b]), values)


def _any(tracer: Tracer, frame: Frame, node: ast.AST, items: Any) -> Any:
    """Items after the first that holds are not made."""
    found: bool | Number = False

    def visit(item: Callable[[], Any]) -> bool:
        nonlocal found

        def holds() -> bool | Number:
            return truth(tracer, frame, node, item())

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
        found = both(tracer, frame, found, lambda: truth(tracer, frame, node, item()), node)
        return found is not False

    _visit(tracer, frame, node, items, visit)
    return found


def _visit(tracer: Tracer, frame: Frame, node: ast.AST, items: Any, visit: Callable[[Callable[[], Any]], bool]) -> None:
    generator = _iter(tracer, frame, node, items)
    if begin(tracer, frame, node, generator):
        generator.each(visit)


ON_SEQUENCES: dict[Any, Builtin] = {
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
    functools.reduce: _reduce,
}
