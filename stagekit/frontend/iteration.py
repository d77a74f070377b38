"""Iteration at compile time: the items of a container, an iterator or a generator."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from stagekit.frontend.control import describe
from stagekit.frontend.errors import NotIterable, RunTimeValue, UnrollBudget
from stagekit.frontend.evaluation import invoke, static
from stagekit.frontend.frame import Frame
from stagekit.frontend.methods import user_method
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import STAND_INS, Generator, StagedRange, StaticRange


def items_of(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Sequence[Any]:
    """The items of a compile-time iterable, as a list."""
    if isinstance(value, StaticRange):
        return list(value.values)
    if isinstance(value, Generator):
        return all_of(value) if begin(tracer, frame, node, value) else []
    if isinstance(value, STAND_INS):
        what = "a range with run-time bounds" if isinstance(value, StagedRange) else describe(value)
        hint = "its length is not known at compile time; loop over `range(...)` and index"
        raise tracer.error(NotIterable(f"{what} has no compile-time items", hint), frame, node)
    method = user_method(value, "__iter__")
    if method is not None:
        return items_of(tracer, frame, node, invoke(tracer, frame, node, method, [value]))
    if not hasattr(value, "__iter__") and not hasattr(value, "__getitem__"):
        raise tracer.error(
            NotIterable(f"{describe(value)} is not iterable", "use a list, a tuple or `range(...)`"), frame, node
        )
    return _listed(tracer, frame, node, value)


def _listed(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> list[Any]:
    """The items of an ordinary iterable; one without a length may have no end, and meets the budget."""
    budget = tracer.options.unroll_budget
    most = None if hasattr(value, "__len__") else budget + 1
    items: list[Any] = static(tracer, frame, node, lambda: list(itertools.islice(iter(value), most)))
    if most is not None and len(items) == most:
        raise tracer.error(UnrollBudget(most, budget, f"the items of {describe(value)}"), frame, node)
    return items


def one_by_one(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Iterator[Any]:
    """The items of an ordinary iterable as Python's `for` takes them: what the body appends comes too."""
    iterator, end = static(tracer, frame, node, lambda: iter(value)), object()
    while (item := static(tracer, frame, node, lambda: next(iterator, end))) is not end:
        yield item


# -- generators --------------------------------------------------------------------------------------------------------


def all_of(generator: Generator) -> list[Any]:
    """Every item of a generator."""
    found: list[Any] = []

    def visit(item: Callable[[], Any]) -> bool:
        found.append(item())
        return True

    generator.each(visit)
    return found


def begin(tracer: Tracer, frame: Frame, node: ast.AST, generator: Generator) -> bool:
    """Is a generator still fresh? It can be used once."""
    if generator.is_spent is False:
        tracer.assign(generator, "is_spent", True, is_attribute=True)
        return True
    if generator.is_spent is True:
        return False
    what = "whether the generator was used already"
    raise tracer.error(RunTimeValue(what, describe(generator.is_spent), "make a list of its items first"), frame, node)


def iterator(tracer: Tracer, thunks: Iterable[Callable[[], Any]]) -> Generator:
    """An iterator as Python's own functions give them: it can be used once."""

    def each(visit: Callable[[Callable[[], Any]], bool]) -> None:
        for thunk in thunks:
            if not visit(thunk):
                return

    return tracer.journal.born(Generator(each))  # type: ignore[no-any-return]


def over(tracer: Tracer, items: Iterable[Any]) -> Generator:
    """An iterator over what is there already."""
    return iterator(tracer, [lambda item=item: item for item in items])  # type: ignore[misc]
