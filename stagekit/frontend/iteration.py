"""Iteration at compile time: the items of a container, an iterator or a generator, one after the other as Python takes them.

An item comes as a *thunk*, which makes it: what comes before it can be under a run-time condition that it must be under too.

    for thunk in thunks_of(tracer, frame, node, value):
        item = thunk()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stagekit.diagnostics import StagekitError
from stagekit.frontend.control import describe
from stagekit.frontend.errors import NotIterable, RunTimeValue, UnrollBudget
from stagekit.frontend.evaluation import Site, user_method
from stagekit.frontend.familiar import SPREAD
from stagekit.frontend.state import BUILT_IN_CONTAINERS, lookup
from stagekit.frontend.tracer import Thunk, Tracer
from stagekit.frontend.values import STAND_INS, Generator, Poison, StagedRange, StaticRange, mapper_of
from stagekit.native_tables import ABSENT

_END: Any = object()


def items_of(site: Site, value: Any) -> list[Any]:
    """The items of a compile-time iterable, all of them, made now."""
    return list(values_of(site, value))


def values_of(site: Site, value: Any) -> Iterator[Any]:
    """The items of a compile-time iterable, each made when it is asked for."""
    return (thunk() for thunk in thunks_of(site, value))


def source_of(site: Site, value: Any) -> Callable[[], Iterator[Any]]:
    """How to go through a compile-time iterable, which it must be already now: called, it gives the items as `values_of` does.

    An iterator that is made over `value` begins each time it is first used: under a run-time `if`, in both arms.
    """
    method = user_method(site.tracer, value, "__iter__")
    if method is not None:
        return source_of(site, _iterated(site, value, method))
    thunks_of(site, value)  # refuses what has no items
    return lambda: values_of(site, value)


def forget_position(tracer: Tracer, value: Any) -> None:
    """How far an iterator has come depends on the run: it was left at a place that is not known at compile time."""
    if isinstance(value, Generator):
        tracer.assign(value, "running", Poison(_unknown_position(), ()), is_attribute=True)
    elif isinstance(value, Iterator):
        tracer.journal.seal(value)


def _unknown_position() -> RunTimeValue:
    hint = "make a list of its items first"
    return RunTimeValue("how far this iterator has come", "it was used under a run-time condition", hint)


def thunks_of(site: Site, value: Any) -> Iterator[Thunk]:
    """The items of a compile-time iterable as they are asked for. What the asking code appends to a list comes too."""
    if isinstance(value, StaticRange):
        return each(value.values)
    if isinstance(value, Generator):
        return _bounded(site, value, _drawn(site, value))
    if isinstance(value, STAND_INS):
        raise site.error(_no_items(value))
    method = user_method(site.tracer, value, "__iter__")
    if method is not None:
        return thunks_of(site, _iterated(site, value, method))
    if not _has(value, "__iter__") and not _has(value, "__getitem__"):
        is_tile = mapper_of(value) is not None
        hint = SPREAD if is_tile else "use a list, a tuple or `range(...)`"
        raise site.error(NotIterable(f"{describe(value)} is not iterable", hint))
    refuse_endless(site, value)
    items = _live(site, value)
    return items if isinstance(value, _IN_MEMORY) else _bounded(site, value, items)


_IN_MEMORY = (*BUILT_IN_CONTAINERS, str, bytes, range)
_MOST_ITEMS = 1 << 20  # of a range, which holds none


def _has(value: Any, name: str) -> bool:
    """Does the class say so? Python does not ask the object for its special methods."""
    return lookup(type(value), name) is not ABSENT


def _no_items(value: Any) -> NotIterable:
    what = "a range with run-time bounds" if isinstance(value, StagedRange) else describe(value)
    hint = "its length is not known at compile time; loop over `range(...)` and index"
    return NotIterable(f"{what} has no compile-time items", hint)


def _iterated(site: Site, value: Any, method: Any) -> Any:
    """What `__iter__` of a user's class gives."""
    found = site.invoke(method, [value])
    if user_method(site.tracer, found, "__next__") is not None:
        what = f"{describe(found)}, whose `__next__` is written in Python, ends by an exception"
        raise site.error(NotIterable(what, "let `__iter__` return a list, or a generator expression"))
    return found


def _bounded(site: Site, value: Any, items: Iterator[Thunk]) -> Iterator[Thunk]:
    """Items of what may have no end: they meet the budget of unrolled iterations."""
    budget = site.tracer.options.unroll_budget
    for count, thunk in enumerate(items, 1):
        if count > budget:
            raise _too_many(site, value, budget)
        yield thunk


def refuse_endless(site: Site, value: Any) -> None:
    """Refuse to take the items of a range one by one that has more than anybody waits for."""
    if isinstance(value, range) and value[_MOST_ITEMS:]:
        raise _too_many(site, value, _MOST_ITEMS)


def _too_many(site: Site, value: Any, budget: int) -> StagekitError:
    return site.error(UnrollBudget(budget + 1, budget, f"the items of {describe(value)}"))


def _live(site: Site, value: Any) -> Iterator[Thunk]:
    """The items of one of Python's own iterables, from the moment of the call."""
    iterator = site.static(iter, value)

    def rest() -> Iterator[Thunk]:
        while (item := next_native(site, iterator, is_own=iterator is not value)) is not _END:
            yield lambda item=item: item  # type: ignore[misc]

    return rest()


def next_native(site: Site, iterator: Any, *, is_own: bool) -> Any:
    """The next item of one of Python's own iterators, `_END` after the last. is_own: nobody else sees this iterator."""
    if is_own:
        return site.static(next, iterator, _END)
    note_use(site, iterator, f"the next item of {describe(iterator)}")
    return own_iterators(site.tracer, site.static(next, iterator, _END))


def note_use(site: Site, iterator: Any, what: str) -> None:
    """Items are about to be taken, for good: a second trace would not find those of a captured iterator."""
    site.tracer.check_mutable(iterator, what, site.loc)
    site.tracer.journal.restructure(iterator, what, _nothing)


def own_iterators(tracer: Tracer, made: Any) -> Any:
    """Python's own iterators that came out of a call (or several, as `tee` gives) belong to the traced program."""
    for part in made if type(made) is tuple else (made,):
        if isinstance(part, Iterator):
            tracer.journal.born(part)
    return made


def _nothing() -> None:
    """An iterator cannot be brought back. Where that would matter, the journal's note refuses the program."""


# -- generators --------------------------------------------------------------------------------------------------------


def each(items: Iterable[Any]) -> Iterator[Thunk]:
    """A thunk for each of some items that exist already."""
    return ((lambda item=item: item) for item in items)  # type: ignore[misc]


def iterator(tracer: Tracer, make: Callable[[], Iterator[Thunk]]) -> Generator:
    """An iterator of the traced program: a new value, which is used up once."""
    return tracer.journal.born(Generator(make))  # type: ignore[no-any-return]


def stream(site: Site, make: Callable[[], Iterator[Any]]) -> Generator:
    """An iterator over the values that one of Python's own iterators gives."""

    def thunks() -> Iterator[Thunk]:
        native = make()
        while (item := site.static(next, native, _END)) is not _END:
            yield lambda item=item: item  # type: ignore[misc]

    return iterator(site.tracer, thunks)


def next_thunk(site: Site, generator: Generator) -> Thunk | None:
    """The next item of a generator; None after the last."""
    running = generator.running
    if isinstance(running, Poison):
        raise site.error(_unknown_position())
    if running is None:
        running = site.tracer.journal.born(generator.make())
        site.tracer.assign(generator, "running", running, is_attribute=True)
    site.tracer.journal.restructure(running, "the next item of an iterator", _nothing)
    return next(running, None)


def _drawn(site: Site, generator: Generator) -> Iterator[Thunk]:
    while (thunk := next_thunk(site, generator)) is not None:
        yield thunk


def next_item(site: Site, value: Any, default: Any) -> Any:
    """`next(value, default)`; `default` is also what tells that there is none."""
    if isinstance(value, Generator):
        thunk = next_thunk(site, value)
        return default if thunk is None else thunk()
    item = next_native(site, value, is_own=False)
    return default if item is _END else item
