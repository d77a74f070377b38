"""Iteration at compile time: the items of a container, an iterator or a generator, one after the other as Python takes them.

An item comes as a *thunk*, a function that makes it, so that it can be made under the run-time condition under which it is used:

    for thunk in thunks_of(site, value):
        item = thunk()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stagekit.diagnostics import StagekitError
from stagekit.frontend.errors import NotIterable, RunTimeValue, UnrollBudget
from stagekit.frontend.evaluation import Site, user_method
from stagekit.frontend.familiar import SPREAD
from stagekit.frontend.parts import describe
from stagekit.frontend.state import BUILT_IN_CONTAINERS, lookup
from stagekit.frontend.tracer import Thunk, Tracer
from stagekit.frontend.values import STAND_INS, Generator, Poison, StaticRange, mapper_of
from stagekit.native_tables import ABSENT

_END: Any = object()


def items_of(site: Site, value: Any) -> list[Any]:
    """Return all items of a compile-time iterable, made now."""
    return list(value if type(value) in (tuple, list) else values_of(site, value))


def values_of(site: Site, value: Any) -> Iterator[Any]:
    """Return an iterator over a compile-time iterable that makes each item when it is asked for."""
    return (thunk() for thunk in thunks_of(site, value))


def source_of(site: Site, value: Any) -> Callable[[], Iterator[Any]]:
    """Return a function that iterates over `value` as `values_of` does; raise an error now where `value` has no items.

    An iterator over `value` calls it when its first item is taken: under a run-time `if`, in both arms.
    """
    method = user_method(site.tracer, value, "__iter__")
    if method is not None:
        return source_of(site, _iterated(site, value, method))
    thunks_of(site, value)  # raises where it has no items
    return lambda: values_of(site, value)


def forget_position(tracer: Tracer, value: Any) -> None:
    """Note that an iterator was left at a position that is not known at compile time."""
    if isinstance(value, Generator):
        tracer.assign(value, "running", Poison(_unknown_position(), ()), is_attribute=True)
    elif isinstance(value, Iterator):
        tracer.journal.seal(value)


def _unknown_position() -> RunTimeValue:
    hint = "make a list of its items first"
    return RunTimeValue("how far this iterator has come", "it was used under a run-time condition", hint)


def thunks_of(site: Site, value: Any) -> Iterator[Thunk]:
    """Return an iterator of thunks over a compile-time iterable. An item that is appended to a list meanwhile comes too."""
    if isinstance(value, StaticRange):
        return each(value.values)
    if isinstance(value, Generator):
        return _bounded(site, value, iter(lambda: next_thunk(site, value), None))
    if isinstance(value, STAND_INS):
        hint = "its length is not known at compile time; loop over `range(...)` and index"
        raise site.error(NotIterable(f"{describe(value)} has no compile-time items", hint))
    method = user_method(site.tracer, value, "__iter__")
    if method is not None:
        return thunks_of(site, _iterated(site, value, method))
    iterator = lookup(type(value), "__iter__")  # None where a class says that it has none
    if iterator is None or (iterator is ABSENT and lookup(type(value), "__getitem__") is ABSENT):
        is_tile = mapper_of(value) is not None
        hint = SPREAD if is_tile else "use a list, a tuple or `range(...)`"
        raise site.error(NotIterable(f"{describe(value)} is not iterable", hint))
    refuse_endless(site, value)
    items = _live(site, value)
    return items if isinstance(value, _IN_MEMORY) else _bounded(site, value, items)


_IN_MEMORY = (*BUILT_IN_CONTAINERS, str, bytes, range)
_MOST_ITEMS = 1 << 20  # of a range, which holds none


def _iterated(site: Site, value: Any, method: Any) -> Any:
    """Return what `__iter__` of a user's class returns."""
    found = site.invoke(method, [value])
    if user_method(site.tracer, found, "__next__") is not None:
        what = f"{describe(found)}, whose `__next__` is written in Python, ends by an exception"
        raise site.error(NotIterable(what, "let `__iter__` return a list, or a generator expression"))
    return found


def _bounded(site: Site, value: Any, items: Iterator[Thunk]) -> Iterator[Thunk]:
    """Yield items of an iterable that may have no end, as many as the budget of unrolled iterations allows."""
    budget = site.tracer.options.unroll_budget
    for count, thunk in enumerate(items, 1):
        if count > budget:
            raise _too_many(site, value, budget)
        yield thunk


def refuse_endless(site: Site, value: Any) -> None:
    """Refuse to take the items of a very long range one by one."""
    if isinstance(value, range) and value[_MOST_ITEMS:]:
        raise _too_many(site, value, _MOST_ITEMS)


def _too_many(site: Site, value: Any, budget: int) -> StagekitError:
    return site.error(UnrollBudget(budget + 1, budget, f"the items of {describe(value)}"))


def _live(site: Site, value: Any) -> Iterator[Thunk]:
    """Return the items of one of Python's own iterables, whose iterator is made now."""
    iterator = site.static(iter, value)
    return _thunks_until_end(lambda: next_native(site, iterator, is_own=iterator is not value))


def _thunks_until_end(take: Callable[[], Any]) -> Iterator[Thunk]:
    """Yield a thunk for each item that `take` returns, until it returns `_END`."""
    while (item := take()) is not _END:
        yield lambda item=item: item  # type: ignore[misc]


def next_native(site: Site, iterator: Any, *, is_own: bool) -> Any:
    """Return the next item of one of Python's own iterators, `_END` after the last. is_own: nothing else uses the iterator."""
    if is_own:
        return site.static(next, iterator, _END)
    note_use(site, iterator, f"the next item of {describe(iterator)}")
    return own_iterators(site.tracer, site.static(next, iterator, _END))


def note_use(site: Site, iterator: Any, what: str) -> None:
    """Note that items are about to be taken. It is refused for a captured iterator, where a second trace would miss them."""
    site.tracer.check_mutable(iterator, what, site.loc)
    site.tracer.journal.restructure(iterator, what, _nothing)


def own_iterators(tracer: Tracer, made: Any) -> Any:
    """Note that the iterator that a call returned, or a tuple of them, belongs to the traced program; return it."""
    for part in made if type(made) is tuple else (made,):
        if isinstance(part, Iterator):
            tracer.journal.born(part)
    return made


def _nothing() -> None:
    """Undo nothing: an iterator cannot be brought back. Where that would matter, the journal's note refuses the program."""


# -- generators --------------------------------------------------------------------------------------------------------


def each(items: Iterable[Any]) -> Iterator[Thunk]:
    """Return a thunk for each item, of items that exist already."""
    return ((lambda item=item: item) for item in items)  # type: ignore[misc]


def iterator(tracer: Tracer, make: Callable[[], Iterator[Thunk]]) -> Generator:
    """Return a new iterator of the traced program."""
    return tracer.journal.born(Generator(make))  # type: ignore[no-any-return]


def stream(site: Site, make: Callable[[], Iterator[Any]]) -> Generator:
    """Return a new iterator of the traced program, over what the iterator gives that `make` returns."""

    def thunks() -> Iterator[Thunk]:
        native = make()
        return _thunks_until_end(lambda: site.static(next, native, _END))

    return iterator(site.tracer, thunks)


def next_thunk(site: Site, generator: Generator) -> Thunk | None:
    """Return the next item of a generator; None after the last."""
    running = generator.running
    if isinstance(running, Poison):
        raise site.error(_unknown_position())
    if running is None:
        running = site.tracer.journal.born(generator.make())
        site.tracer.assign(generator, "running", running, is_attribute=True)
    site.tracer.journal.restructure(running, "the next item of an iterator", _nothing)
    return next(running, None)


def next_item(site: Site, value: Any, default: Any) -> Any:
    """Return `next(value, default)`."""
    if isinstance(value, Generator):
        thunk = next_thunk(site, value)
        return default if thunk is None else thunk()
    item = next_native(site, value, is_own=False)
    return default if item is _END else item
