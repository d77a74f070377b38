"""Python's functions on sequences and iterators: `len`, `range`, `zip`, `sorted`, `any`, ...

Parameters are named and ordered as in Python, so that a call binds as it does there.
"""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import shown
from stagekit.frontend import objects, rangeloop
from stagekit.frontend.comparisons import compare
from stagekit.frontend.conditions import both, truth
from stagekit.frontend.control import branch, describe
from stagekit.frontend.errors import BadCall, BadOperands, NotCallable, StaticFailure
from stagekit.frontend.evaluation import invoke, needs_static, static
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import (
    each,
    forget_position,
    items_of,
    iterator,
    next_item,
    source_of,
    stream,
    thunks_of,
)
from stagekit.frontend.numbers import is_literal, is_numeric
from stagekit.frontend.operators import binary
from stagekit.frontend.python_calls import Builtin, run_native
from stagekit.frontend.tracer import Thunk, Tracer
from stagekit.frontend.values import Array, Generator, Number, StagedRange, holds_run_time

_NONE: Any = object()  # a parameter that was left out


def _len(tracer: Tracer, frame: Frame, node: ast.AST, obj: Any, /) -> Any:
    if isinstance(obj, Array):
        if not obj.shape:
            raise tracer.error(BadOperands("len", "a zero-dimensional array", ""), frame, node)
        return obj.shape[0]
    if isinstance(obj, StagedRange):
        return rangeloop.length(tracer, obj, frame.loc(node))
    if isinstance(obj, Generator):
        raise tracer.error(StaticFailure("TypeError", "an iterator has no len()"), frame, node)
    method = getattr(type(obj), "__len__", None)
    if method is not None and hasattr(method, "__code__"):
        return invoke(tracer, frame, node, method, [obj])
    return run_native(tracer, frame, node, len, obj)


def _range(tracer: Tracer, frame: Frame, node: ast.AST, *args: Any, unroll: int | None = None) -> Any:
    """`range(...)`, with `unroll=` as a hint for the run-time loop."""
    if not 1 <= len(args) <= 3:
        message = f"`range` takes one to three arguments, got {len(args)}"
        raise tracer.error(BadCall(message, "range(start, stop, step)"), frame, node)
    args = tuple(int(a) if isinstance(a, np.integer) and is_numeric(a) else a for a in args)
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if len(args) == 3 else 1)
    if unroll is not None and not (type(unroll) is int and 1 <= unroll <= dtypes.int32.max):
        raise tracer.error(BadCall(f"`unroll` is {shown(unroll)}", "a Python int of at least 1"), frame, node)
    if unroll is None and all(type(a) in (int, bool) for a in args):
        return run_native(tracer, frame, node, range, *args)
    if is_literal(step) and step == 0:
        raise tracer.error(BadCall("`range` with a step of 0", "range(start, stop, step)"), frame, node)
    return StagedRange(start, stop, step, unroll)


def _list(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any = (), /) -> Any:
    return tracer.journal.born(items_of(tracer, frame, node, iterable))


def _tuple(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any = (), /) -> Any:
    return tuple(items_of(tracer, frame, node, iterable))


def _sum(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, /, start: Any = 0) -> Any:
    total = start
    for thunk in thunks_of(tracer, frame, node, iterable):
        total = binary(tracer, frame, node, "+", total, thunk())
    return total


def _prod(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, /, *, start: Any = 1) -> Any:
    """`math.prod`."""
    total = start
    for thunk in thunks_of(tracer, frame, node, iterable):
        total = binary(tracer, frame, node, "*", total, thunk())
    return total


def _sorted(
    tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, /, *, key: Any = None, reverse: bool = False
) -> Any:
    """The keys decide, which are known at compile time; the items need not be."""
    values = items_of(tracer, frame, node, iterable)
    keys = values if key is None else [invoke(tracer, frame, node, key, [v]) for v in values]
    for found in keys:
        if holds_run_time(found):
            hint = "what is sorted by must be known at compile time"
            raise tracer.error(NotCallable("`sorted` by run-time values", hint), frame, node)
    order = run_native(tracer, frame, node, lambda: sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse))
    return tracer.journal.born([values[i] for i in order])


def _any(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, /) -> Any:
    """Items after the first that holds are not made."""

    def after(found: bool | Number, holds: Callable[[], bool | Number]) -> bool | Number:
        if not isinstance(found, Number):
            return found or holds()
        outcome: bool | Number = branch(tracer, found.value, lambda: True, holds, frame.loc(node))
        return outcome

    return _decided(tracer, frame, node, iterable, False, after)


def _all(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, /) -> Any:
    """Items after the first that does not hold are not made."""

    def after(found: bool | Number, holds: Callable[[], bool | Number]) -> bool | Number:
        return both(tracer, frame, found, holds, node)

    return _decided(tracer, frame, node, iterable, True, after)


def _decided(
    tracer: Tracer,
    frame: Frame,
    node: ast.AST,
    iterable: Any,
    undecided: bool,
    after: Callable[[bool | Number, Callable[[], bool | Number]], bool | Number],
) -> bool | Number:
    """Take items as long as the outcome is `undecided`, or not known."""
    found: bool | Number = undecided
    was_known = True
    for thunk in thunks_of(tracer, frame, node, iterable):
        found = after(found, lambda item=thunk: truth(tracer, frame, node, item()))  # type: ignore[misc]
        was_known = was_known and isinstance(found, bool)
        if isinstance(found, bool) and found is not undecided:
            break
    if not was_known:
        forget_position(tracer, iterable)
    return found


# -- iterators: their items are made as they are asked for ----------------------------------------------------------------


def _iter(tracer: Tracer, frame: Frame, node: ast.AST, obj: Any, sentinel: Any = _NONE, /) -> Any:
    if sentinel is not _NONE:
        return iterator(tracer, lambda: _until(tracer, frame, node, obj, sentinel))
    if isinstance(obj, Generator | Iterator):
        return obj
    source = source_of(tracer, frame, node, obj)
    return iterator(tracer, lambda: each(source()))


def _until(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, sentinel: Any) -> Iterator[Thunk]:
    """`iter(fn, sentinel)`: what `fn()` gives until it gives the sentinel, which must be known at compile time."""
    while True:
        value = invoke(tracer, frame, node, fn, [])
        is_last = truth(tracer, frame, node, compare(tracer, frame, node, ast.Eq(), value, sentinel))
        if not isinstance(is_last, bool):
            raise needs_static(tracer, frame, node, "the end of `iter(function, sentinel)`", value)
        if is_last:
            return
        yield lambda value=value: value  # type: ignore[misc]


def _next(tracer: Tracer, frame: Frame, node: ast.AST, iterator: Any, default: Any = _NONE, /) -> Any:
    if not isinstance(iterator, Generator | Iterator):
        message = f"{_type_name(iterator)!r} object is not an iterator"
        raise tracer.error(StaticFailure("TypeError", message), frame, node)
    item = next_item(tracer, frame, node, iterator, default)
    if item is _NONE:
        message = "the iterator is exhausted; give `next` a default, as in `next(it, None)`"
        raise tracer.error(StaticFailure("StopIteration", message), frame, node)
    return item


def _type_name(value: Any) -> str:
    return describe(value) if isinstance(value, Number) else type(value).__name__


def _zip(tracer: Tracer, frame: Frame, node: ast.AST, *iterables: Any, strict: bool = False) -> Any:
    sources = [source_of(tracer, frame, node, i) for i in iterables]
    return stream(tracer, frame, node, lambda: zip(*(source() for source in sources), strict=strict))


def _enumerate(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, start: Any = 0) -> Any:
    values = source_of(tracer, frame, node, iterable)

    def place(index: int) -> Any:
        return binary(tracer, frame, node, "+", start, index)

    return stream(tracer, frame, node, lambda: ((place(index), value) for index, value in enumerate(values())))


def _reversed(tracer: Tracer, frame: Frame, node: ast.AST, sequence: Any, /) -> Any:
    method = objects.users_method(tracer, sequence, "__reversed__")
    if method is not None:
        return invoke(tracer, frame, node, method, [sequence])
    if isinstance(sequence, range):
        return sequence[::-1]
    if isinstance(sequence, StagedRange):
        return rangeloop.reverse(tracer, sequence, frame.loc(node))
    if isinstance(sequence, Generator | Array):
        raise tracer.error(StaticFailure("TypeError", f"{describe(sequence)} is not reversible"), frame, node)
    found = static(tracer, frame, node, reversed, sequence)
    return iterator(tracer, lambda: each(found))


def _map(
    tracer: Tracer, frame: Frame, node: ast.AST, func: Any, iterable: Any, /, *iterables: Any, strict: bool = False
) -> Any:
    """Each call is made where its item is needed. strict: Python 3.14 brought it; here every version takes it."""
    sources = [source_of(tracer, frame, node, i) for i in (iterable, *iterables)]

    def results() -> Iterator[Thunk]:
        rows = zip(*(source() for source in sources), strict=strict)
        while (row := static(tracer, frame, node, next, rows, None)) is not None:
            yield lambda row=row: invoke(tracer, frame, node, func, list(row))  # type: ignore[misc]

    return iterator(tracer, results)


def _filter(tracer: Tracer, frame: Frame, node: ast.AST, function: Any, iterable: Any, /) -> Any:
    values = source_of(tracer, frame, node, iterable)
    return stream(tracer, frame, node, lambda: filter(_predicate(tracer, frame, node, function, "filter"), values()))


def _predicate(tracer: Tracer, frame: Frame, node: ast.AST, function: Any, what: str) -> Callable[[Any], bool]:
    """A condition on items that must be known at compile time. None: the item's own truth."""

    def holds(item: Any) -> bool:
        found = item if function is None else invoke(tracer, frame, node, function, [item])
        keep = truth(tracer, frame, node, found)
        if not isinstance(keep, bool):
            hint = "which items there are must be known at compile time"
            raise tracer.error(NotCallable(f"`{what}` with a run-time condition", hint), frame, node)
        return keep

    return holds


def _reduce(tracer: Tracer, frame: Frame, node: ast.AST, function: Any, iterable: Any, initial: Any = _NONE, /) -> Any:
    values = [] if initial is _NONE else [initial]
    values += items_of(tracer, frame, node, iterable)
    if not values:
        message = "reduce() of empty iterable with no initial value"
        raise tracer.error(StaticFailure("TypeError", message), frame, node)
    return functools.reduce(lambda a, b: invoke(tracer, frame, node, function, [a, b]), values)


# -- itertools: those that would call a function or look at an item ---------------------------------------------------------


def _count(tracer: Tracer, frame: Frame, node: ast.AST, start: Any = 0, step: Any = 1) -> Any:
    def numbers() -> Iterator[Any]:
        number = start
        while True:
            yield number
            number = binary(tracer, frame, node, "+", number, step)

    return stream(tracer, frame, node, numbers)


def _chain(tracer: Tracer, frame: Frame, node: ast.AST, *iterables: Any) -> Any:
    return chain_all(tracer, frame, node, iterables)


def chain_all(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, /) -> Any:
    """`chain.from_iterable`."""
    outer = source_of(tracer, frame, node, iterable)
    return iterator(tracer, lambda: (thunk for inner in outer() for thunk in thunks_of(tracer, frame, node, inner)))


def _accumulate(
    tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, func: Any = None, *, initial: Any = None
) -> Any:
    values = source_of(tracer, frame, node, iterable)

    def combine(a: Any, b: Any) -> Any:
        return binary(tracer, frame, node, "+", a, b) if func is None else invoke(tracer, frame, node, func, [a, b])

    return stream(tracer, frame, node, lambda: itertools.accumulate(values(), combine, initial=initial))


def _starmap(tracer: Tracer, frame: Frame, node: ast.AST, function: Any, iterable: Any, /) -> Any:
    rows = source_of(tracer, frame, node, iterable)

    def result_of(row: Any) -> Thunk:
        return lambda: invoke(tracer, frame, node, function, items_of(tracer, frame, node, row))

    return iterator(tracer, lambda: (result_of(row) for row in rows()))


def _zip_longest(tracer: Tracer, frame: Frame, node: ast.AST, *iterables: Any, fillvalue: Any = None) -> Any:
    sources = [source_of(tracer, frame, node, i) for i in iterables]
    return stream(
        tracer, frame, node, lambda: itertools.zip_longest(*(source() for source in sources), fillvalue=fillvalue)
    )


def _islice(tracer: Tracer, frame: Frame, node: ast.AST, iterable: Any, /, *bounds: Any) -> Any:
    if holds_run_time(bounds):
        raise needs_static(tracer, frame, node, "a bound of `islice`", next(b for b in bounds if holds_run_time(b)))
    values = source_of(tracer, frame, node, iterable)
    static(tracer, frame, node, itertools.islice, (), *bounds)  # refuses bounds that cannot be
    return stream(tracer, frame, node, lambda: itertools.islice(values(), *bounds))


def _by_predicate(native: Callable[[Any, Any], Iterator[Any]]) -> Builtin:
    """`takewhile` and its like."""

    def run(tracer: Tracer, frame: Frame, node: ast.AST, predicate: Any, iterable: Any, /) -> Any:
        holds = _predicate(tracer, frame, node, predicate, native.__name__)
        values = source_of(tracer, frame, node, iterable)
        return stream(tracer, frame, node, lambda: native(holds, values()))

    return run


ON_SEQUENCES: dict[Any, Builtin] = {
    builtins.sum: _sum,
    builtins.len: _len,
    builtins.range: _range,
    builtins.list: _list,
    builtins.tuple: _tuple,
    builtins.iter: _iter,
    builtins.next: _next,
    builtins.zip: _zip,
    builtins.enumerate: _enumerate,
    builtins.reversed: _reversed,
    builtins.sorted: _sorted,
    builtins.map: _map,
    builtins.filter: _filter,
    builtins.any: _any,
    builtins.all: _all,
    functools.reduce: _reduce,
    math.prod: _prod,
    itertools.count: _count,
    itertools.chain: _chain,
    itertools.accumulate: _accumulate,
    itertools.starmap: _starmap,
    itertools.zip_longest: _zip_longest,
    itertools.islice: _islice,
    **{native: _by_predicate(native) for native in (itertools.takewhile, itertools.dropwhile, itertools.filterfalse)},
}
