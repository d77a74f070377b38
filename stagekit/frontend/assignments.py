"""Assignments: plain, unpacking, augmented, and `del`."""

from __future__ import annotations

import ast
from typing import Any

from stagekit.diagnostics import counted
from stagekit.frontend import objects
from stagekit.frontend.errors import BadIndex, UnboundLocal
from stagekit.frontend.evaluation import Site, evaluate
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import items_of
from stagekit.frontend.journal import MISSING
from stagekit.frontend.numbers import PYTHON_BINARY
from stagekit.frontend.operators import in_place
from stagekit.frontend.places import binding_scope, place_of


def trace_assign(frame: Frame, node: ast.Assign) -> None:
    value = evaluate(frame, node.value)
    for target in node.targets:
        assign(frame, target, value)


def trace_annotated(frame: Frame, node: ast.AnnAssign) -> None:
    if node.value is None:
        return
    value = evaluate(frame, node.value)
    assign(frame, node.target, value)


def assign(frame: Frame, target: ast.expr, value: Any) -> None:
    """Bind `value` to a target: name, tuple, item or attribute."""
    if isinstance(target, ast.Name):
        frame.at(target)
        frame.tracer.assign(binding_scope(frame, target.id).variables, target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(frame, target, value)
    else:
        frame.at(target)
        place_of(frame, target).put(value)


def _unpack(frame: Frame, target: ast.Tuple | ast.List, value: Any) -> None:
    items = items_of(Site(frame, target), value)
    starred = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
    wanted = len(target.elts)
    if len(items) < wanted - len(starred) or (not starred and len(items) != wanted):
        message = f"{counted(len(items), 'value')} for {counted(wanted, 'target')}"
        raise frame.error(BadIndex(message, "the number of values must be known and fit"), target)
    if starred:
        at, after = starred[0], wanted - starred[0] - 1
        middle = frame.tracer.journal.born(list(items[at : len(items) - after]))
        items = [*items[:at], middle, *items[len(items) - after :]]
    for each, item in zip(target.elts, items, strict=True):
        assign(frame, each.value if isinstance(each, ast.Starred) else each, item)


def trace_augmented(frame: Frame, node: ast.AugAssign) -> None:
    """`target op= value`: the target's object and index are evaluated once."""
    symbol, _ = PYTHON_BINARY[type(node.op)]
    frame.at(node.target)
    place = place_of(frame, node.target)
    old = place.get()
    value = evaluate(frame, node.value)
    loc = frame.at(node)
    place.put(in_place(Site(frame, node), symbol, old, value, loc))


def trace_delete(frame: Frame, node: ast.Delete) -> None:
    for target in node.targets:
        _unbind(frame, target)


def _unbind(frame: Frame, target: ast.expr) -> None:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            _unbind(frame, each)
    elif isinstance(target, ast.Name):
        variables = binding_scope(frame, target.id).variables
        if variables.get(target.id, MISSING) is MISSING:
            raise frame.error(UnboundLocal(target.id), target)
        frame.tracer.assign(variables, target.id, MISSING)
    elif isinstance(target, ast.Attribute):
        objects.delete(Site(frame, target), evaluate(frame, target.value), target.attr)
    elif isinstance(target, ast.Subscript):
        owner = evaluate(frame, target.value)
        index = evaluate(frame, target.slice)
        remove = objects.attribute(Site(frame, target), owner, "__delitem__")
        Site(frame, target).invoke(remove, [index])
