"""How an object of a user's class answers for an operator: by its own methods, which are staged."""

from __future__ import annotations

import types
from typing import Any

from stagekit.frontend.evaluation import Site
from stagekit.frontend.numbers import is_numeric
from stagekit.frontend.state import lookup
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import STAND_INS, is_generated


def by_method(site: Site, name: str, left: Any, right: Any) -> Any:
    """The answer of a user's class: `left.__add__(right)`, else `right.__radd__(left)`. Two of one class are asked once.

    The right one is asked first where its class derives from the left's and has a mirrored method of its own.
    """
    plain, mirrored = (left, right, f"__{name}__"), (right, left, f"__r{name}__")
    if type(left) is type(right):
        return first_answer(site, plain)
    if isinstance(right, type(left)) and _has_its_own(site.tracer, left, right, mirrored[2]):
        return first_answer(site, mirrored, plain)
    return first_answer(site, plain, mirrored)


def _has_its_own(tracer: Tracer, left: Any, right: Any, name: str) -> bool:
    """Does the class of `right` store something else under the name than that of `left`?"""
    for each in (left, right):
        tracer.note_lookup(each, name)
    return lookup(type(right), name) is not lookup(type(left), name)


def first_answer(site: Site, *ways: tuple[Any, Any, str]) -> Any:
    """The first answer of several ways to ask, each (owner, other, method)."""
    for owner, other, name in ways:
        method = user_method(site.tracer, owner, name)
        if method is not None and not is_generated(method):  # Python runs those itself
            answer = site.invoke(method, [owner, other])
            if answer is not NotImplemented:
                return answer
    return NotImplemented


def user_method(tracer: Tracer, owner: Any, name: str) -> Any:
    """A method written in Python in the class of `owner`; None for built-in types and stand-ins. That there is none is noted."""
    if isinstance(owner, STAND_INS) or is_numeric(owner):
        return None
    tracer.note_lookup(owner, name)
    for cls in type(owner).__mro__:
        found = cls.__dict__.get(name)
        if found is not None:
            return found if isinstance(found, types.FunctionType) else None
    return None
