"""Python's functions on sequences and iterators: `len`, `range`, `zip`, `sorted`, `any`, ...

Parameters are named and ordered as in Python, so that a call binds as it does there.
"""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import Loc, shown
from stagekit.frontend import objects, rangeloop
from stagekit.frontend.conditions import Test, Truth, both, compare, first_or, truth
from stagekit.frontend.errors import BadCall, BadOperands, NotCallable, StaticFailure
from stagekit.frontend.evaluation import Site
from stagekit.frontend.iteration import (
    each,
    forget_position,
    items_of,
    iterator,
    next_item,
    source_of,
    stream,
    thunks_of,
    values_of,
)
from stagekit.frontend.numbers import is_literal, is_numeric
from stagekit.frontend.operators import binary
from stagekit.frontend.parts import describe
from stagekit.frontend.python_calls import OMITTED, Builtin, run_native
from stagekit.frontend.tracer import Thunk, Tracer
from stagekit.frontend.values import Array, Generator, Number, StagedRange, holds_run_time


def _len(site: Site, obj: Any, /) -> Any:
    if isinstance(obj, Array):
        if not obj.shape:
            raise site.error(BadOperands("len", "a zero-dimensional array", ""))
        return obj.shape[0]
    if isinstance(obj, StagedRange):
        return rangeloop.length(site.tracer, obj, site.loc)
    if isinstance(obj, Generator):
        raise site.error(StaticFailure("TypeError", "an iterator has no len()"))
    method = getattr(type(obj), "__len__", None)
    if method is not None and hasattr(method, "__code__"):
        return site.invoke(method, [obj])
    return run_native(site, len, obj)


def _range(site: Site, *args: Any, unroll: int | None = None) -> Any:
    """Make the range that `range(...)` gives; `unroll=` is a hint for its run-time loop."""
    if not 1 <= len(args) <= 3:
        message = f"`range` takes one to three arguments, got {len(args)}"
        raise site.error(BadCall(message, "range(start, stop, step)"))
    args = tuple(int(a) if isinstance(a, np.integer) and is_numeric(a) else a for a in args)
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if len(args) == 3 else 1)
    if unroll is not None and not (type(unroll) is int and 1 <= unroll <= dtypes.int32.max):
        raise site.error(BadCall(f"`unroll` is {shown(unroll)}", "a Python int of at least 1"))
    if unroll is None and all(type(a) in (int, bool) for a in args):
        return run_native(site, range, *args)
    if is_literal(step) and step == 0:
        raise site.error(BadCall("`range` with a step of 0", "range(start, stop, step)"))
    return StagedRange(start, stop, step, unroll)


def _accumulated(site: Site, symbol: str, iterable: Any, total: Any) -> Any:
    """Return `total` combined with each item by the operator."""
    for value in values_of(site, iterable):
        total = binary(site, symbol, total, value)
    return total


def _sorted(site: Site, iterable: Any, /, *, key: Any = None, reverse: bool = False) -> Any:
    """Sort items by keys, which must be known at compile time; the items need not be."""
    values = items_of(site, iterable)
    keys = values if key is None else [site.invoke(key, [v]) for v in values]
    for found in keys:
        if holds_run_time(found):
            hint = "what is sorted by must be known at compile time"
            raise site.error(NotCallable("`sorted` by run-time values", hint))
    order = run_native(site, lambda: sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse))
    return site.tracer.journal.born([values[i] for i in order])


def _quantifier(undecided: bool, combine: Callable[[Tracer, Truth, Test, Loc], Truth]) -> Builtin:
    """Return the meaning of `all` or `any`, which makes items as long as the outcome is `undecided`, or not known."""

    def run(site: Site, iterable: Any, /) -> Truth:
        found: Truth = undecided
        was_known = True
        for thunk in thunks_of(site, iterable):
            found = combine(site.tracer, found, lambda item=thunk: truth(site, item()), site.loc)  # type: ignore[misc]
            was_known = was_known and isinstance(found, bool)
            if isinstance(found, bool) and found is not undecided:
                break
        if not was_known:
            forget_position(site.tracer, iterable)
        return found

    return run


# -- iterators: their items are made as they are asked for ----------------------------------------------------------------


def _iter(site: Site, obj: Any, sentinel: Any = OMITTED, /) -> Any:
    if sentinel is not OMITTED:
        return iterator(site.tracer, lambda: _until(site, obj, sentinel))
    if isinstance(obj, Generator | Iterator):
        return obj
    source = source_of(site, obj)
    return iterator(site.tracer, lambda: each(source()))


def _until(site: Site, fn: Any, sentinel: Any) -> Iterator[Thunk]:
    """Yield the results of `fn()` until one equals the sentinel, which must be known at compile time."""
    while True:
        value = site.invoke(fn, [])
        is_last = truth(site, compare(site, ast.Eq(), value, sentinel))
        if not isinstance(is_last, bool):
            raise site.needs_static("the end of `iter(function, sentinel)`", value)
        if is_last:
            return
        yield lambda value=value: value  # type: ignore[misc]


def _next(site: Site, iterator: Any, default: Any = OMITTED, /) -> Any:
    if not isinstance(iterator, Generator | Iterator):
        name = describe(iterator) if isinstance(iterator, Number) else type(iterator).__name__
        raise site.error(StaticFailure("TypeError", f"{name!r} object is not an iterator"))
    item = next_item(site, iterator, default)
    if item is OMITTED:
        message = "the iterator is exhausted; give `next` a default, as in `next(it, None)`"
        raise site.error(StaticFailure("StopIteration", message))
    return item


def _zipped(site: Site, iterables: Sequence[Any], native: Callable[..., Iterator[Any]] = zip, **options: Any) -> Any:
    """Return a function that iterates over several iterables at once, by `zip` or `zip_longest`."""
    sources = [source_of(site, iterable) for iterable in iterables]
    return lambda: native(*(source() for source in sources), **options)


def _enumerate(site: Site, iterable: Any, start: Any = 0) -> Any:
    values = source_of(site, iterable)
    return stream(site, lambda: ((binary(site, "+", start, index), value) for index, value in enumerate(values())))


def _reversed(site: Site, sequence: Any, /) -> Any:
    method = objects.interpreted_method(site.tracer, sequence, "__reversed__")
    if method is not None:
        return site.invoke(method, [sequence])
    if isinstance(sequence, range):
        return sequence[::-1]
    if isinstance(sequence, StagedRange):
        return rangeloop.reverse(site.tracer, sequence, site.loc)
    if isinstance(sequence, Generator | Array):
        raise site.error(StaticFailure("TypeError", f"{describe(sequence)} is not reversible"))
    found = site.static(reversed, sequence)
    return iterator(site.tracer, lambda: each(found))


def _map(site: Site, func: Any, iterable: Any, /, *iterables: Any, strict: bool = False) -> Any:
    """Make an iterator that calls `func` where an item is needed. strict: as in Python 3.14, here with every version."""
    zipped = _zipped(site, (iterable, *iterables), strict=strict)

    def results() -> Iterator[Thunk]:
        rows = zipped()
        while (row := site.static(next, rows, None)) is not None:
            yield lambda row=row: site.invoke(func, list(row))  # type: ignore[misc]

    return iterator(site.tracer, results)


def _predicate(site: Site, function: Any, what: str) -> Callable[[Any], bool]:
    """Return a condition on items, which must be known at compile time. function: None for the item's own truth."""

    def holds(item: Any) -> bool:
        found = item if function is None else site.invoke(function, [item])
        keep = truth(site, found)
        if not isinstance(keep, bool):
            hint = "which items there are must be known at compile time"
            raise site.error(NotCallable(f"`{what}` with a run-time condition", hint))
        return keep

    return holds


def _reduce(site: Site, function: Any, iterable: Any, initial: Any = OMITTED, /) -> Any:
    values = [] if initial is OMITTED else [initial]
    values += items_of(site, iterable)
    if not values:
        message = "reduce() of empty iterable with no initial value"
        raise site.error(StaticFailure("TypeError", message))
    return functools.reduce(lambda a, b: site.invoke(function, [a, b]), values)


# -- itertools: those that would call a function or look at an item ---------------------------------------------------------


def _count(site: Site, start: Any = 0, step: Any = 1) -> Any:
    def numbers() -> Iterator[Any]:
        number = start
        while True:
            yield number
            number = binary(site, "+", number, step)

    return stream(site, numbers)


def chain_all(site: Site, iterable: Any, /) -> Any:
    """Carry out `chain.from_iterable`."""
    outer = source_of(site, iterable)
    return iterator(site.tracer, lambda: (thunk for inner in outer() for thunk in thunks_of(site, inner)))


def _accumulate(site: Site, iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    values = source_of(site, iterable)

    def combine(a: Any, b: Any) -> Any:
        return binary(site, "+", a, b) if func is None else site.invoke(func, [a, b])

    return stream(site, lambda: itertools.accumulate(values(), combine, initial=initial))


def _starmap(site: Site, function: Any, iterable: Any, /) -> Any:
    rows = source_of(site, iterable)
    return iterator(
        site.tracer,
        lambda: ((lambda row=row: site.invoke(function, items_of(site, row))) for row in rows()),  # type: ignore[misc]
    )


def _islice(site: Site, iterable: Any, /, *bounds: Any) -> Any:
    if holds_run_time(bounds):
        raise site.needs_static("a bound of `islice`", next(b for b in bounds if holds_run_time(b)))
    values = source_of(site, iterable)
    site.static(itertools.islice, (), *bounds)  # refuses bounds that cannot be
    return stream(site, lambda: itertools.islice(values(), *bounds))


def _by_predicate(native: Callable[[Any, Any], Iterator[Any]]) -> Builtin:
    """Return the meaning of `filter`, `takewhile` or their like."""

    def run(site: Site, predicate: Any, iterable: Any, /) -> Any:
        holds = _predicate(site, predicate, native.__name__)
        values = source_of(site, iterable)
        return stream(site, lambda: native(holds, values()))

    return run


ON_SEQUENCES: dict[Any, Builtin] = {
    builtins.sum: lambda site, iterable, /, start=0: _accumulated(site, "+", iterable, start),
    builtins.len: _len,
    builtins.range: _range,
    builtins.list: lambda site, iterable=(), /: site.tracer.journal.born(items_of(site, iterable)),
    builtins.tuple: lambda site, iterable=(), /: tuple(items_of(site, iterable)),
    builtins.iter: _iter,
    builtins.next: _next,
    builtins.zip: lambda site, *iterables, strict=False: stream(site, _zipped(site, iterables, strict=strict)),
    builtins.enumerate: _enumerate,
    builtins.reversed: _reversed,
    builtins.sorted: _sorted,
    builtins.map: _map,
    builtins.any: _quantifier(False, first_or),
    builtins.all: _quantifier(True, both),
    functools.reduce: _reduce,
    math.prod: lambda site, iterable, /, *, start=1: _accumulated(site, "*", iterable, start),
    itertools.count: _count,
    itertools.chain: lambda site, *iterables: chain_all(site, iterables),
    itertools.accumulate: _accumulate,
    itertools.starmap: _starmap,
    itertools.zip_longest: lambda site, *iterables, fillvalue=None: stream(
        site, _zipped(site, iterables, itertools.zip_longest, fillvalue=fillvalue)
    ),
    itertools.islice: _islice,
    **{
        native: _by_predicate(native)
        for native in (filter, itertools.takewhile, itertools.dropwhile, itertools.filterfalse)
    },
}
