"""Attributes and items that are read: `a.b`, `a[i]`, `a[i:j]`."""

from __future__ import annotations

import ast
import operator
from collections import defaultdict
from typing import Any

import numpy as np

from stagekit.frontend import arrays, containers, objects, rangeloop
from stagekit.frontend.control import describe
from stagekit.frontend.errors import BadIndex, NotCallable
from stagekit.frontend.evaluation import UNROLL, evaluate, invoke, needs_static, static
from stagekit.frontend.familiar import ONE_AXIS, SPREAD
from stagekit.frontend.frame import Frame
from stagekit.frontend.methods import user_method
from stagekit.frontend.numbers import is_numeric
from stagekit.frontend.state import lookup
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import STAND_INS, Address, Array, StagedRange, holds_run_time, mapper_of
from stagekit.native_tables import ABSENT


def trace_attribute(tracer: Tracer, frame: Frame, node: ast.Attribute) -> Any:
    owner = evaluate(tracer, frame, node.value)
    return tracer.read(objects.attribute(tracer, frame, node, owner, node.attr), frame, node)


def trace_subscript(tracer: Tracer, frame: Frame, node: ast.Subscript) -> Any:
    owner = evaluate(tracer, frame, node.value)
    index = evaluate(tracer, frame, node.slice)
    tracer.at(frame, node)
    return tracer.read(item(tracer, frame, node, owner, index), frame, node)


def item(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, index: Any) -> Any:
    """`owner[index]`."""
    if isinstance(owner, Array):
        return arrays.load_item(tracer, frame.loc(node), owner, index)
    refuse_index(tracer, frame, node, owner, index)
    if lookup(type(owner), "__stagekit_fixed__") is not ABSENT:
        hint = "a kernel cannot launch another; called without brackets, the other's body becomes part of this one"
        raise tracer.error(NotCallable(f"`{owner.name}[...]` is a launch", hint), frame, node)
    method = user_method(tracer, owner, "__getitem__")
    if method is not None:
        return invoke(tracer, frame, node, method, [owner, index])
    if isinstance(owner, StagedRange):
        return rangeloop.item(tracer, owner, index, frame.loc(node))
    if holds_run_time(index):
        if isinstance(owner, np.ndarray):
            hint = "pass the array to the kernel as an argument: a captured one is known at compile time only"
            raise tracer.error(BadIndex("a captured NumPy array with an index known at run time", hint), frame, node)
        raise needs_static(tracer, frame, node, "the index of a Python container", index, UNROLL)
    if isinstance(owner, STAND_INS):
        raise tracer.error(BadIndex(f"{describe(owner)} cannot be indexed", ""), frame, node)
    if isinstance(owner, defaultdict) and static(tracer, frame, node, lambda: containers.lacks_key(owner, index)):
        made = invoke(tracer, frame, node, owner.default_factory, [])
        containers.put_key(tracer, frame, node, owner, index, made)
        return made
    found = static(tracer, frame, node, operator.getitem, owner, index)
    return tracer.journal.born(found) if isinstance(index, slice) and isinstance(found, list) else found


def refuse_index(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, index: Any) -> None:
    """What has no items, whatever the index."""
    if isinstance(owner, Address):
        hint = "use `load(pointer + i)`, or take the parameter as a Tensor"
        raise tracer.error(BadIndex("a pointer cannot be indexed", hint), frame, node)
    if is_numeric(owner) or owner is None:
        raise tracer.error(
            BadIndex(f"{describe(owner)} cannot be indexed", "index an array or a container"), frame, node
        )
    if mapper_of(owner) is not None and not hasattr(type(owner), "__getitem__"):
        makes_axes = isinstance(index, tuple) and None in index
        hint = ONE_AXIS if index is None or makes_axes else SPREAD
        raise tracer.error(BadIndex(f"{describe(owner)} cannot be indexed", hint), frame, node)


def trace_slice(tracer: Tracer, frame: Frame, node: ast.Slice) -> Any:
    parts = [evaluate(tracer, frame, p) if p is not None else None for p in (node.lower, node.upper, node.step)]
    return slice(*parts)
