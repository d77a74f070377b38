"""Displays: `(a, b)`, `[a, *b]`, `{a, b}`, `{k: v, **d}`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from stagekit.frontend.evaluation import evaluate, needs_static, static
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import items_of
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import holds_run_time


def trace_tuple(tracer: Tracer, frame: Frame, node: ast.Tuple) -> Any:
    return tuple(elements(tracer, frame, node.elts))


def trace_list(tracer: Tracer, frame: Frame, node: ast.List) -> Any:
    return tracer.journal.born(elements(tracer, frame, node.elts))


def trace_set(tracer: Tracer, frame: Frame, node: ast.Set) -> Any:
    return tracer.journal.born(set_of(tracer, frame, node, elements(tracer, frame, node.elts)))


def trace_dict(tracer: Tracer, frame: Frame, node: ast.Dict) -> Any:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values):
        if key is None:
            made.update(evaluate(tracer, frame, value))
        else:
            known = key_of(tracer, frame, key)  # before the value, unlike in an assignment
            made[known] = evaluate(tracer, frame, value)
    return tracer.journal.born(made)


def elements(tracer: Tracer, frame: Frame, nodes: Sequence[ast.expr]) -> list[Any]:
    found: list[Any] = []
    for each in nodes:
        if isinstance(each, ast.Starred):
            found.extend(items_of(tracer, frame, each, evaluate(tracer, frame, each.value)))
        else:
            found.append(evaluate(tracer, frame, each))
    return found


def set_of(tracer: Tracer, frame: Frame, node: ast.AST, elements: list[Any]) -> Any:
    """A set: which elements are equal must be known."""
    for element in elements:
        if holds_run_time(element):
            raise needs_static(tracer, frame, node, "an element of a set", element)
    return static(tracer, frame, node, set, elements)


def key_of(tracer: Tracer, frame: Frame, node: ast.expr) -> Any:
    key = evaluate(tracer, frame, node)
    if holds_run_time(key):
        raise needs_static(tracer, frame, node, "a dict key", key)
    static(tracer, frame, node, hash, key)
    return key
