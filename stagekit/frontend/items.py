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
from stagekit.frontend.evaluation import UNROLL, Site, evaluate
from stagekit.frontend.familiar import ONE_AXIS, SPREAD
from stagekit.frontend.frame import Frame
from stagekit.frontend.methods import user_method
from stagekit.frontend.numbers import is_numeric
from stagekit.frontend.state import lookup
from stagekit.frontend.values import STAND_INS, Address, Array, StagedRange, holds_run_time, mapper_of
from stagekit.native_tables import ABSENT


def trace_attribute(frame: Frame, node: ast.Attribute) -> Any:
    owner = evaluate(frame, node.value)
    return frame.read(objects.attribute(Site(frame, node), owner, node.attr), node)


def trace_subscript(frame: Frame, node: ast.Subscript) -> Any:
    owner = evaluate(frame, node.value)
    index = evaluate(frame, node.slice)
    frame.at(node)
    return frame.read(item(Site(frame, node), owner, index), node)


def item(site: Site, owner: Any, index: Any) -> Any:
    """`owner[index]`."""
    if isinstance(owner, Array):
        return arrays.load_item(site.tracer, site.loc, owner, index)
    refuse_index(site, owner, index)
    if lookup(type(owner), "__stagekit_fixed__") is not ABSENT:
        hint = "a kernel cannot launch another; called without brackets, the other's body becomes part of this one"
        raise site.error(NotCallable(f"`{owner.name}[...]` is a launch", hint))
    method = user_method(site.tracer, owner, "__getitem__")
    if method is not None:
        return site.invoke(method, [owner, index])
    if isinstance(owner, StagedRange):
        return rangeloop.item(site.tracer, owner, index, site.loc)
    if holds_run_time(index):
        if isinstance(owner, np.ndarray):
            hint = "pass the array to the kernel as an argument: a captured one is known at compile time only"
            raise site.error(BadIndex("a captured NumPy array with an index known at run time", hint))
        raise site.needs_static("the index of a Python container", index, UNROLL)
    if isinstance(owner, STAND_INS):
        raise site.error(BadIndex(f"{describe(owner)} cannot be indexed", ""))
    if isinstance(owner, defaultdict) and site.static(lambda: containers.lacks_key(owner, index)):
        made = site.invoke(owner.default_factory, [])
        containers.put_key(site, owner, index, made)
        return made
    found = site.static(operator.getitem, owner, index)
    return site.tracer.journal.born(found) if isinstance(index, slice) and isinstance(found, list) else found


def refuse_index(site: Site, owner: Any, index: Any) -> None:
    """What has no items, whatever the index."""
    if isinstance(owner, Address):
        hint = "use `load(pointer + i)`, or take the parameter as a Tensor"
        raise site.error(BadIndex("a pointer cannot be indexed", hint))
    if is_numeric(owner) or owner is None:
        raise site.error(BadIndex(f"{describe(owner)} cannot be indexed", "index an array or a container"))
    if mapper_of(owner) is not None and not hasattr(type(owner), "__getitem__"):
        makes_axes = isinstance(index, tuple) and None in index
        hint = ONE_AXIS if index is None or makes_axes else SPREAD
        raise site.error(BadIndex(f"{describe(owner)} cannot be indexed", hint))


def trace_slice(frame: Frame, node: ast.Slice) -> Any:
    parts = [evaluate(frame, p) if p is not None else None for p in (node.lower, node.upper, node.step)]
    return slice(*parts)
