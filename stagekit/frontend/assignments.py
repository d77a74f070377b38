"""Assignments: plain, unpacking, augmented, and `del`; and targets, whose object and index are evaluated once."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stagekit.diagnostics import counted
from stagekit.frontend import arrays, containers, objects
from stagekit.frontend.errors import BadIndex, StaticFailure, TableStore, UnboundLocal, UnsupportedSyntax
from stagekit.frontend.evaluation import UNROLL, Site, evaluate, user_method
from stagekit.frontend.iteration import items_of
from stagekit.frontend.journal import MISSING
from stagekit.frontend.numbers import OPERATORS
from stagekit.frontend.operators import in_place
from stagekit.frontend.parts import describe
from stagekit.frontend.tracer import Frame
from stagekit.frontend.values import Array, Scope, holds_run_time
from stagekit.frozen import frozen


def trace_assign(frame: Frame, node: ast.Assign) -> None:
    value = evaluate(frame, node.value)
    for target in node.targets:
        assign(frame, target, value)


def trace_annotated(frame: Frame, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assign(frame, node.target, evaluate(frame, node.value))


def assign(frame: Frame, target: ast.expr, value: Any) -> None:
    """Bind `value` to a target: name, tuple, item or attribute."""
    if isinstance(target, ast.Name):
        frame.at(target)
        frame.tracer.assign(binding_scope(frame, target.id).variables, target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(frame, target, value)
    else:
        frame.at(target)
        target_of(frame, target).put(value)


def _unpack(frame: Frame, target: ast.Tuple | ast.List, value: Any) -> None:
    items = items_of(Site(frame, target), value)
    fitting = one_per_target(frame, items, target.elts)
    if fitting is None:
        message = f"{counted(len(items), 'value')} for {counted(len(target.elts), 'target')}"
        raise frame.error(BadIndex(message, "the number of values must be known and fit"), target)
    for each, item in zip(target.elts, fitting, strict=True):
        assign(frame, each.value if isinstance(each, ast.Starred) else each, item)


def one_per_target(frame: Frame, items: Sequence[Any], targets: Sequence[ast.AST]) -> list[Any] | None:
    """Return an item for each target; for a starred one, a list of those left over. None where they do not fit."""
    starred = [i for i, target in enumerate(targets) if isinstance(target, ast.Starred | ast.MatchStar)]
    fixed = len(targets) - len(starred)
    if len(items) < fixed or (not starred and len(items) != fixed):
        return None
    if not starred:
        return list(items)
    first, end = starred[0], len(items) - fixed + starred[0]
    return [*items[:first], frame.tracer.journal.born(list(items[first:end])), *items[end:]]


def trace_augmented(frame: Frame, node: ast.AugAssign) -> None:
    """Trace `target op= value`; the target's object and index are evaluated once."""
    symbol = OPERATORS[type(node.op)].symbol
    frame.at(node.target)
    target = target_of(frame, node.target)
    old = target.get()
    value = evaluate(frame, node.value)
    frame.at(node)
    target.put(in_place(Site(frame, node), symbol, old, value))


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


# -- targets ----------------------------------------------------------------------------------------------------------------


@frozen(slots=False)
class Assignable:
    """Something that can be assigned to, its object and index already evaluated."""

    get: Callable[[], Any]
    put: Callable[[Any], None]


def target_of(frame: Frame, target: ast.expr) -> Assignable:
    """Evaluate the object and index of an assignment target, once."""
    if isinstance(target, ast.Name):
        variables, assign = binding_scope(frame, target.id).variables, frame.tracer.assign
        return Assignable(lambda: evaluate(frame, target), lambda value: assign(variables, target.id, value))
    if isinstance(target, ast.Attribute):
        owner, site, name = evaluate(frame, target.value), Site(frame, target), target.attr
        return Assignable(
            lambda: site.read(objects.attribute(site, owner, name)), lambda value: objects.put(site, owner, name, value)
        )
    if isinstance(target, ast.Subscript):
        owner = evaluate(frame, target.value)
        index = evaluate(frame, target.slice)
        return target_item(Site(frame, target), owner, index)
    raise frame.error(UnsupportedSyntax("this assignment target", "assign to a name, an item or an attribute"), target)


def binding_scope(frame: Frame, name: str) -> Scope:
    """Return the scope that an assignment to `name` binds in: this call's, or an outer one for `nonlocal`."""
    scope = frame.scope
    return scope if name in scope.names.local else scope.owner_of(name) or scope


def target_item(site: Site, owner: Any, index: Any) -> Assignable:
    """Return `owner[index]` as something that can be assigned to."""
    if isinstance(owner, Array):
        pointer = arrays.element_pointer(site, owner, index)
        return Assignable(lambda: arrays.load(site, pointer), lambda value: arrays.store(site, pointer, value))
    objects.refuse_index(site, owner, index)
    item, method = objects.item, user_method(site.tracer, owner, "__setitem__")
    if method is not None:
        return Assignable(lambda: item(site, owner, index), lambda value: site.invoke(method, [owner, index, value]))
    if holds_run_time(index) and not isinstance(owner, np.ndarray):
        raise site.needs_static("the index of a Python container", index, UNROLL)
    return Assignable(lambda: site.read(item(site, owner, index)), lambda value: _put_item(site, owner, index, value))


_ASSIGNABLE = "items of lists, dicts and array arguments can be assigned"


def _put_item(site: Site, owner: Any, index: Any, value: Any) -> None:
    if not isinstance(owner, list | dict):
        if isinstance(owner, np.ndarray):
            raise site.error(TableStore())
        raise site.error(BadIndex(f"an item of {describe(owner)} cannot be assigned", _ASSIGNABLE))
    shown = ast.unparse(site.node) if isinstance(site.node, ast.Subscript) else f"[{index!r}]"
    site.tracer.check_mutable(owner, f"`{shown} = ...`", site.loc)
    if isinstance(owner, dict) and not site.static(operator.contains, owner, index):
        containers.put_key(site, owner, index, value)
        return
    if isinstance(owner, list):
        if isinstance(index, slice):
            put_slice = containers.container_method(site, owner, "__setitem__")
            site.static(lambda: put_slice.run(index, items_of(site, value)))
            return
        if not isinstance(index, int | np.integer):
            message = f"list indices must be integers or slices, not {type(index).__name__}"
            raise site.error(StaticFailure("TypeError", message))
        position = int(index) + (len(owner) if index < 0 else 0)
        if not 0 <= position < len(owner):
            raise site.error(StaticFailure("IndexError", "list assignment index out of range"))
        index = position
    site.tracer.assign(owner, index, value)
