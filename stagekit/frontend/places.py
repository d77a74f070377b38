"""Places: what can be assigned to, with its object and index evaluated once."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit.frontend import arrays, containers, objects
from stagekit.frontend.control import describe
from stagekit.frontend.errors import BadIndex, StaticFailure, UnsupportedSyntax
from stagekit.frontend.evaluation import UNROLL, Site, evaluate
from stagekit.frontend.frame import Frame
from stagekit.frontend.items import item, refuse_index
from stagekit.frontend.iteration import items_of
from stagekit.frontend.methods import user_method
from stagekit.frontend.names import trace_name
from stagekit.frontend.values import Array, Scope, holds_run_time


@dataclass(frozen=True)
class AssignmentTarget:
    """Something that can be assigned to, its object and index already evaluated."""

    get: Callable[[], Any]
    put: Callable[[Any], None]


def place_of(frame: Frame, target: ast.expr) -> AssignmentTarget:
    """Evaluate the object and index of an assignment target, once."""
    if isinstance(target, ast.Name):
        scope = binding_scope(frame, target.id)
        return AssignmentTarget(
            lambda: trace_name(frame, target), lambda value: frame.tracer.assign(scope.variables, target.id, value)
        )
    if isinstance(target, ast.Attribute):
        owner = evaluate(frame, target.value)
        return AssignmentTarget(
            lambda: frame.read(objects.attribute(Site(frame, target), owner, target.attr), target),
            lambda value: objects.put(Site(frame, target), owner, target.attr, value),
        )
    if isinstance(target, ast.Subscript):
        owner = evaluate(frame, target.value)
        index = evaluate(frame, target.slice)
        return item_place(Site(frame, target), owner, index)
    raise frame.error(UnsupportedSyntax("this assignment target", "assign to a name, an item or an attribute"), target)


def binding_scope(frame: Frame, name: str) -> Scope:
    """The scope that an assignment to `name` binds in: this call's, or an outer one for `nonlocal`."""
    scope = frame.scope.owner_of(name)
    return scope if scope is not None else frame.scope


def item_place(site: Site, owner: Any, index: Any) -> AssignmentTarget:
    """`owner[index]` as a place."""
    loc = site.loc
    if isinstance(owner, Array):
        pointer = arrays.element_pointer(site.tracer, loc, owner, index)
        return AssignmentTarget(
            lambda: arrays.load(site.tracer, pointer), lambda value: arrays.store(site.tracer, loc, pointer, value)
        )
    refuse_index(site, owner, index)
    method = user_method(site.tracer, owner, "__setitem__")
    if method is not None:
        return AssignmentTarget(
            lambda: item(site, owner, index),
            lambda value: site.invoke(method, [owner, index, value]),
        )
    if holds_run_time(index):
        raise site.needs_static("the index of a Python container", index, UNROLL)
    return AssignmentTarget(
        lambda: site.read(item(site, owner, index)),
        lambda value: _put_item(site, owner, index, value),
    )


_ASSIGNABLE = "items of lists, dicts and array arguments can be assigned"


def _put_item(site: Site, owner: Any, index: Any, value: Any) -> None:
    if not isinstance(owner, list | dict):
        is_array = isinstance(owner, np.ndarray)
        hint = "it is known at compile time only: use `sk.alloc_local(shape, dtype)`" if is_array else _ASSIGNABLE
        raise site.error(BadIndex(f"an item of {describe(owner)} cannot be assigned", hint))
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
