"""Names: the variables of the traced code, and what it captures from outside."""

from __future__ import annotations

import ast
from typing import Any

from stagekit.frontend.captures import read_free
from stagekit.frontend.errors import UnboundLocal, UnknownName
from stagekit.frontend.frame import Frame
from stagekit.frontend.journal import MISSING
from stagekit.frontend.tracer import suggest


def trace_constant(frame: Frame, node: ast.Constant) -> Any:
    return node.value


def trace_name(frame: Frame, node: ast.Name) -> Any:
    name = node.id
    scope = frame.scope.owner_of(name)
    if scope is not None:
        value = scope.variables.get(name, MISSING)
        if value is MISSING:
            raise frame.error(UnboundLocal(name), node)
    else:
        value = _free(frame, node)
    return frame.read(value, node)


def _free(frame: Frame, node: ast.Name) -> Any:
    """A name from outside the traced code: noted as a capture."""
    function, name = frame.function, node.id
    try:
        value = read_free(function, name)
    except NameError:
        known = [*frame.scope.names.local, *(function.__globals__ if function else ())]
        raise frame.error(UnknownName(name, suggest(name, known)), node) from None
    except ValueError:  # an empty cell
        raise frame.error(UnboundLocal(name), node) from None
    frame.tracer.captures.note_variable(function, name)
    return value
