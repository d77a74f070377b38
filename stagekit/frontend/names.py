"""Names: the variables of the traced code, and what it captures from outside."""

from __future__ import annotations

import ast
from typing import Any

from stagekit.frontend.errors import UnboundLocal, UnknownName
from stagekit.frontend.frame import Frame, read_free
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
    function, name = frame.function, node.id
    try:
        value = read_free(function, name)
    except NameError:
        known = [*frame.scope.names.local, *(function.__globals__ if function else ())]
        raise tracer.error(UnknownName(name, suggest(name, known)), frame, node) from None
    except ValueError:  # an empty cell
        raise tracer.error(UnboundLocal(name), frame, node) from None
    tracer.captures.note_variable(function, name)
    return value
