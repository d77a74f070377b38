"""Assignments: plain, unpacking, augmented, and `del`."""

from __future__ import annotations

import ast
from typing import Any

from stagekit.diagnostics import counted
from stagekit.frontend import objects
from stagekit.frontend.errors import BadIndex, UnboundLocal
from stagekit.frontend.evaluation import evaluate, invoke
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import items_of
from stagekit.frontend.journal import MISSING
from stagekit.frontend.numbers import PYTHON_BINARY
from stagekit.frontend.operators import in_place
from stagekit.frontend.places import binding_scope, place_of
from stagekit.frontend.tracer import Tracer


def trace_assign(tracer: Tracer, frame: Frame, node: ast.Assign) -> None:
    value = evaluate(tracer, frame, node.value)
    for target in node.targets:
        assign(tracer, frame, target, value)


def trace_annotated(tracer: Tracer, frame: Frame, node: ast.AnnAssign) -> None:
    if node.value is None:
        return
    value = evaluate(tracer, frame, node.value)
    assign(tracer, frame, node.target, value)


def assign(tracer: Tracer, frame: Frame, target: ast.expr, value: Any) -> None:
    """Bind `value` to a target: name, tuple, item or attribute."""
    if isinstance(target, ast.Name):
        tracer.at(frame, target)
        tracer.assign(binding_scope(frame, target.id).variables, target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(tracer, frame, target, value)
    else:
        tracer.at(frame, target)
        place_of(tracer, frame, target).put(value)


def _unpack(tracer: Tracer, frame: Frame, target: ast.Tuple | ast.List, value: Any) -> None:
    items = items_of(tracer, frame, target, value)
    starred = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
    wanted = len(target.elts)
    if len(items) < wanted - len(starred) or (not starred and len(items) != wanted):
        message = f"{counted(len(items), 'value')} for {counted(wanted, 'target')}"
        raise tracer.error(BadIndex(message, "the number of values must be known and fit"), frame, target)
    if starred:
        at, after = starred[0], wanted - starred[0] - 1
        middle = tracer.journal.born(list(items[at : len(items) - after]))
        items = [*items[:at], middle, *items[len(items) - after :]]
    for each, item in zip(target.elts, items, strict=True):
        assign(tracer, frame, each.value if isinstance(each, ast.Starred) else each, item)


def trace_augmented(tracer: Tracer, frame: Frame, node: ast.AugAssign) -> None:
    """`target op= value`: the target's object and index are evaluated once."""
    symbol, _ = PYTHON_BINARY[type(node.op)]
    tracer.at(frame, node.target)
    place = place_of(tracer, frame, node.target)
    old = place.get()
    value = evaluate(tracer, frame, node.value)
    loc = tracer.at(frame, node)
    place.put(in_place(tracer, frame, node, symbol, old, value, loc))


def trace_delete(tracer: Tracer, frame: Frame, node: ast.Delete) -> None:
    for target in node.targets:
        _unbind(tracer, frame, target)


def _unbind(tracer: Tracer, frame: Frame, target: ast.expr) -> None:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            _unbind(tracer, frame, each)
    elif isinstance(target, ast.Name):
        variables = binding_scope(frame, target.id).variables
        if variables.get(target.id, MISSING) is MISSING:
            raise tracer.error(UnboundLocal(target.id), frame, target)
        tracer.assign(variables, target.id, MISSING)
    elif isinstance(target, ast.Attribute):
        objects.delete(tracer, frame, target, evaluate(tracer, frame, target.value), target.attr)
    elif isinstance(target, ast.Subscript):
        owner = evaluate(tracer, frame, target.value)
        index = evaluate(tracer, frame, target.slice)
        remove = objects.attribute(tracer, frame, target, owner, "__delitem__")
        invoke(tracer, frame, target, remove, [index])
