"""Displays: `(a, b)`, `[a, *b]`, `{a, b}`, `{k: v, **d}`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from stagekit.frontend.evaluation import Site, evaluate
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import items_of
from stagekit.frontend.values import holds_run_time


def trace_tuple(frame: Frame, node: ast.Tuple) -> Any:
    return tuple(elements(frame, node.elts))


def trace_list(frame: Frame, node: ast.List) -> Any:
    return frame.tracer.journal.born(elements(frame, node.elts))


def trace_set(frame: Frame, node: ast.Set) -> Any:
    return frame.tracer.journal.born(set_of(Site(frame, node), elements(frame, node.elts)))


def trace_dict(frame: Frame, node: ast.Dict) -> Any:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values):
        if key is None:
            made.update(evaluate(frame, value))
        else:
            known = key_of(frame, key)  # before the value, unlike in an assignment
            made[known] = evaluate(frame, value)
    return frame.tracer.journal.born(made)


def elements(frame: Frame, nodes: Sequence[ast.expr]) -> list[Any]:
    found: list[Any] = []
    for each in nodes:
        if isinstance(each, ast.Starred):
            found.extend(items_of(Site(frame, each), evaluate(frame, each.value)))
        else:
            found.append(evaluate(frame, each))
    return found


def set_of(site: Site, elements: list[Any]) -> Any:
    """A set: which elements are equal must be known."""
    for element in elements:
        if holds_run_time(element):
            raise site.needs_static("an element of a set", element)
    return site.static(set, elements)


def key_of(frame: Frame, node: ast.expr) -> Any:
    key = evaluate(frame, node)
    if holds_run_time(key):
        raise Site(frame, node).needs_static("a dict key", key)
    Site(frame, node).static(hash, key)
    return key
