"""Comprehensions and generator expressions: they run at compile time, over compile-time items."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stagekit.frontend.assignments import assign
from stagekit.frontend.conditions import condition
from stagekit.frontend.displays import key_of, set_of
from stagekit.frontend.evaluation import Site, evaluate
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import each, iterator, source_of, thunks_of
from stagekit.frontend.source import names_of
from stagekit.frontend.tracer import Thunk
from stagekit.frontend.values import Generator, Scope

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def trace_comprehension(frame: Frame, node: ast.ListComp | ast.SetComp | ast.DictComp) -> Any:
    """Comprehensions run at compile time, over compile-time items; their variables are their own."""
    found = [thunk() for thunk in _items(frame, node)()]
    if isinstance(node, ast.DictComp):
        return frame.tracer.journal.born(dict(found))
    return frame.tracer.journal.born(set_of(Site(frame, node), found) if isinstance(node, ast.SetComp) else found)


def trace_generator_expression(frame: Frame, node: ast.GeneratorExp) -> Generator:
    return iterator(frame.tracer, _items(frame, node))


def _items(frame: Frame, node: Comprehension) -> Callable[[], Iterator[Thunk]]:
    """What gives the items of a comprehension. The first iterable is evaluated now, as Python has it."""
    outer, first = frame.scope, node.generators[0].iter
    source = source_of(Site(frame, first), evaluate(frame, first))

    def make() -> Iterator[Thunk]:
        scope = Scope(_comprehension_names(node), frame.tracer.journal.born({}), outer)
        return _level(frame, node, scope, 0, each(source()))

    return make


def _level(frame: Frame, node: Comprehension, scope: Scope, depth: int, outer: Iterator[Thunk]) -> Iterator[Thunk]:
    """One `for` of a comprehension, and those inside it."""
    generator, is_last = node.generators[depth], depth + 1 == len(node.generators)
    for thunk in outer:
        with _inside(frame, scope):
            assign(frame, generator.target, thunk())
            frame.tracer.count_unrolled(frame.loc(node))
            is_kept = all(_static_condition(frame, test) for test in generator.ifs)
            inner = None if is_last or not is_kept else _next_iterable(frame, node, depth)
        if inner is not None:
            yield from _level(frame, node, scope, depth + 1, inner)
        elif is_kept:
            yield lambda: _comprehended(frame, node, scope)


def _next_iterable(frame: Frame, node: Comprehension, depth: int) -> Iterator[Thunk]:
    inner = node.generators[depth + 1].iter
    return thunks_of(Site(frame, inner), evaluate(frame, inner))


@contextmanager
def _inside(frame: Frame, scope: Scope) -> Iterator[None]:
    """Names mean those of the comprehension. Only while it runs: between two items the code that asks for them does."""
    around, frame.scope = frame.scope, scope
    try:
        yield
    finally:
        frame.scope = around


def _comprehension_names(node: Comprehension) -> Any:
    targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    names = names_of(node)
    return type(names)(frozenset(targets), names.nonlocal_)


def _comprehended(frame: Frame, node: Any, scope: Scope) -> Any:
    with _inside(frame, scope):
        if isinstance(node, ast.DictComp):
            return key_of(frame, node.key), evaluate(frame, node.value)
        return evaluate(frame, node.elt)


def _static_condition(frame: Frame, node: ast.expr) -> bool:
    outcome = condition(frame, node)
    if not isinstance(outcome, bool):
        raise Site(frame, node).needs_static("the condition of a comprehension", outcome)
    return outcome
