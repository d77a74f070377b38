"""Comprehensions and generator expressions: they run at compile time, over compile-time items."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from stagekit.frontend.assignments import assign
from stagekit.frontend.conditions import condition
from stagekit.frontend.displays import key_of, set_of
from stagekit.frontend.evaluation import evaluate, needs_static
from stagekit.frontend.frame import Frame, Scope
from stagekit.frontend.iteration import all_of, items_of
from stagekit.frontend.source import names_of
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Generator

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def trace_comprehension(tracer: Tracer, frame: Frame, node: ast.ListComp | ast.SetComp | ast.DictComp) -> Any:
    """Comprehensions run at compile time, over compile-time items; their variables are their own."""
    found = all_of(_generator(tracer, frame, node))
    if isinstance(node, ast.DictComp):
        return tracer.journal.born(dict(found))
    return tracer.journal.born(set_of(tracer, frame, node, found) if isinstance(node, ast.SetComp) else found)


def trace_generator_expression(tracer: Tracer, frame: Frame, node: ast.GeneratorExp) -> Generator:
    return tracer.journal.born(_generator(tracer, frame, node))  # type: ignore[no-any-return]


def _generator(tracer: Tracer, frame: Frame, node: Comprehension) -> Generator:
    """The items of a comprehension, made when they are asked for; the first iterable is evaluated now, as Python has it."""
    outer = frame.scope
    first = items_of(tracer, frame, node.generators[0].iter, evaluate(tracer, frame, node.generators[0].iter))

    def each(visit: Callable[[Callable[[], Any]], bool]) -> None:
        around, frame.scope = frame.scope, Scope(_comprehension_names(node), tracer.journal.born({}), outer)
        try:
            _level(tracer, frame, node, 0, first, visit)
        finally:
            frame.scope = around

    return Generator(each)


def _level(
    tracer: Tracer,
    frame: Frame,
    node: Comprehension,
    depth: int,
    items: Sequence[Any],
    visit: Callable[[Callable[[], Any]], bool],
) -> bool:
    """One `for` of a comprehension, and those inside it; says whether to go on."""
    generator, is_last = node.generators[depth], depth + 1 == len(node.generators)
    for value in items:
        assign(tracer, frame, generator.target, value)
        tracer.count_unrolled(frame.loc(node))
        if not all(_static_condition(tracer, frame, test) for test in generator.ifs):
            continue
        if is_last:
            goes_on = visit(lambda: _comprehended(tracer, frame, node))
        else:
            inner = node.generators[depth + 1].iter
            goes_on = _level(
                tracer, frame, node, depth + 1, items_of(tracer, frame, inner, evaluate(tracer, frame, inner)), visit
            )
        if not goes_on:
            return False
    return True


def _comprehension_names(node: Comprehension) -> Any:
    targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    names = names_of(node)
    return type(names)(frozenset(targets), names.nonlocal_, names.global_)


def _comprehended(tracer: Tracer, frame: Frame, node: Any) -> Any:
    if isinstance(node, ast.DictComp):
        return key_of(tracer, frame, node.key), evaluate(tracer, frame, node.value)
    return evaluate(tracer, frame, node.elt)


def _static_condition(tracer: Tracer, frame: Frame, node: ast.expr) -> bool:
    outcome = condition(tracer, frame, node)
    if not isinstance(outcome, bool):
        raise needs_static(tracer, frame, node, "the condition of a comprehension", outcome)
    return outcome
