"""Names: the variables of the traced code, and what it captures from outside."""

from __future__ import annotations

import ast
import functools
from typing import Any

from stagekit.frontend.errors import UnboundLocal, UnknownName
from stagekit.frontend.frame import Frame, free_variable, name_of_free, read_free
from stagekit.frontend.journal import MISSING
from stagekit.frontend.tracer import Tracer, suggest


def trace_constant(tracer: Tracer, frame: Frame, node: ast.Constant) -> Any:
    return node.value


def trace_name(tracer: Tracer, frame: Frame, node: ast.Name) -> Any:
    name = node.id
    scope = frame.scope.owner_of(name)
    if scope is not None:
        value = scope.variables.get(name, MISSING)
        if value is MISSING:
            raise tracer.error(UnboundLocal(name), frame, node)
    else:
        value = _free(tracer, frame, node)
    return tracer.read(value, frame, node)


def _free(tracer: Tracer, frame: Frame, node: ast.Name) -> Any:
    """A name from outside the traced code: noted as a capture."""
    if frame.function is None or free_variable(frame.function, node.id) is None:
        known = [*frame.scope.names.local, *(frame.function.__globals__ if frame.function else ())]
        raise tracer.error(UnknownName(node.id, suggest(node.id, known)), frame, node)
    try:
        value = read_free(frame.function, node.id)
    except ValueError:  # an empty cell
        raise tracer.error(UnboundLocal(node.id), frame, node) from None
    again = functools.partial(read_free, frame.function, node.id)
    tracer.captures.note(frame.function, node.id, name_of_free(frame.function, node.id), again, value)
    return value
