"""How an object of a user's class answers for an operator: by its own methods, which are staged."""

from __future__ import annotations

import ast
import types
from typing import Any

from stagekit.frontend.evaluation import invoke
from stagekit.frontend.frame import Frame
from stagekit.frontend.numbers import is_numeric
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import STAND_INS


def by_method(tracer: Tracer, frame: Frame, node: ast.AST, name: str, left: Any, right: Any) -> Any:
    """The answer of a user's class: `left.__add__(right)`, else `right.__radd__(left)`."""
    return first_answer(tracer, frame, node, (left, right, f"__{name}__"), (right, left, f"__r{name}__"))


def first_answer(
    tracer: Tracer, frame: Frame, node: ast.AST, plain: tuple[Any, Any, str], mirrored: tuple[Any, Any, str]
) -> Any:
    """Two ways to ask, each (owner, other, method). The right side is asked first where its class derives from the left's."""
    is_derived = type(plain[1]) is not type(plain[0]) and isinstance(plain[1], type(plain[0]))
    for owner, other, name in (mirrored, plain) if is_derived else (plain, mirrored):
        method = user_method(owner, name)
        if method is not None and _has_source(method):
            answer = invoke(tracer, frame, node, method, [owner, other])
            if answer is not NotImplemented:
                return answer
    return NotImplemented


def user_method(owner: Any, name: str) -> Any:
    """A method written in Python in the class of `owner`; None for built-in types and stand-ins."""
    if isinstance(owner, STAND_INS) or is_numeric(owner):
        return None
    for cls in type(owner).__mro__:
        found = cls.__dict__.get(name)
        if found is not None:
            return found if isinstance(found, types.FunctionType) else None
    return None


def _has_source(method: types.FunctionType) -> bool:
    """Dataclasses generate methods without source; Python runs those itself."""
    return not method.__code__.co_filename.startswith("<")
