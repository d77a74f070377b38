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
from stagekit.frontend.evaluation import UNROLL, evaluate, invoke, needs_static, static
from stagekit.frontend.frame import Frame, Scope
from stagekit.frontend.items import item, refuse_index
from stagekit.frontend.iteration import items_of
from stagekit.frontend.methods import user_method
from stagekit.frontend.names import trace_name
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Array, holds_run_time


@dataclass(frozen=True)
class AssignmentTarget:
    """Something that can be assigned to, its object and index already evaluated."""

    get: Callable[[], Any]
    put: Callable[[Any], None]


def place_of(tracer: Tracer, frame: Frame, target: ast.expr) -> AssignmentTarget:
    """Evaluate the object and index of an assignment target, once."""
    if isinstance(target, ast.Name):
        scope = binding_scope(frame, target.id)
        return AssignmentTarget(
            lambda: trace_name(tracer, frame, target), lambda value: tracer.assign(scope.variables, target.id, value)
        )
    if isinstance(target, ast.Attribute):
        owner = evaluate(tracer, frame, target.value)
        return AssignmentTarget(
            lambda: tracer.read(objects.attribute(tracer, frame, target, owner, target.attr), frame, target),
            lambda value: objects.put(tracer, frame, target, owner, target.attr, value),
        )
    if isinstance(target, ast.Subscript):
        owner = evaluate(tracer, frame, target.value)
        index = evaluate(tracer, frame, target.slice)
        return item_place(tracer, frame, target, owner, index)
    raise tracer.error(
        UnsupportedSyntax("this assignment target", "assign to a name, an item or an attribute"), frame, target
    )


def binding_scope(frame: Frame, name: str) -> Scope:
    """The scope that an assignment to `name` binds in: this call's, or an outer one for `nonlocal`."""
    scope = frame.scope.owner_of(name)
    return scope if scope is not None else frame.scope


def item_place(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, index: Any) -> AssignmentTarget:
    """`owner[index]` as a place."""
    loc = frame.loc(node)
    if isinstance(owner, Array):
        pointer = arrays.element_pointer(tracer, loc, owner, index)
        return AssignmentTarget(
            lambda: arrays.load(tracer, pointer), lambda value: arrays.store(tracer, loc, pointer, value)
        )
    refuse_index(tracer, frame, node, owner, index)
    method = user_method(tracer, owner, "__setitem__")
    if method is not None:
        return AssignmentTarget(
            lambda: item(tracer, frame, node, owner, index),
            lambda value: invoke(tracer, frame, node, method, [owner, index, value]),
        )
    if holds_run_time(index):
        raise needs_static(tracer, frame, node, "the index of a Python container", index, UNROLL)
    return AssignmentTarget(
        lambda: tracer.read(item(tracer, frame, node, owner, index), frame, node),
        lambda value: _put_item(tracer, frame, node, owner, index, value),
    )


_ASSIGNABLE = "items of lists, dicts and array arguments can be assigned"


def _put_item(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, index: Any, value: Any) -> None:
    if not isinstance(owner, list | dict):
        is_array = isinstance(owner, np.ndarray)
        hint = "it is known at compile time only: use `sk.alloc_local(shape, dtype)`" if is_array else _ASSIGNABLE
        raise tracer.error(BadIndex(f"an item of {describe(owner)} cannot be assigned", hint), frame, node)
    shown = ast.unparse(node) if isinstance(node, ast.Subscript) else f"[{index!r}]"
    tracer.check_mutable(owner, f"`{shown} = ...`", frame.loc(node))
    if isinstance(owner, dict) and not static(tracer, frame, node, operator.contains, owner, index):
        containers.put_key(tracer, frame, node, owner, index, value)
        return
    if isinstance(owner, list):
        if isinstance(index, slice):
            put_slice = containers.container_method(tracer, frame, node, owner, "__setitem__")
            static(tracer, frame, node, lambda: put_slice.run(index, items_of(tracer, frame, node, value)))
            return
        if not isinstance(index, int | np.integer):
            message = f"list indices must be integers or slices, not {type(index).__name__}"
            raise tracer.error(StaticFailure("TypeError", message), frame, node)
        position = int(index) + (len(owner) if index < 0 else 0)
        if not 0 <= position < len(owner):
            raise tracer.error(StaticFailure("IndexError", "list assignment index out of range"), frame, node)
        index = position
    tracer.assign(owner, index, value)
