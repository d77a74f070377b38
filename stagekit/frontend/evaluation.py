"""The way into every other part: the value of an expression, a call, Python run at compile time.

Which function evaluates which kind of node is a table in `expressions.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from stagekit.diagnostics import InternalError, StagekitError
from stagekit.frontend.control import describe
from stagekit.frontend.errors import RunTimeValue, StaticFailure
from stagekit.frontend.frame import Frame
from stagekit.frontend.numbers import describe_type, is_numeric
from stagekit.frontend.tracer import NeedMoreThreads, Tracer

# Kind of node -> its function; `expressions.py` fills it, since those functions need this module.
EVALUATORS: dict[type[ast.expr], Callable[..., Any]] = {}
NO_KEYWORDS: Mapping[str, Any] = {}


def evaluate(tracer: Tracer, frame: Frame, node: ast.expr) -> Any:
    """The value of an expression."""
    return EVALUATORS[type(node)](tracer, frame, node)


def invoke(
    tracer: Tracer,
    frame: Frame,
    node: ast.AST,
    fn: Any,
    args: list[Any],
    kwargs: Mapping[str, Any] = NO_KEYWORDS,
) -> Any:
    """`fn(*args, **kwargs)` for whatever can be called."""
    from stagekit.frontend.calls import call  # expressions and calls need each other, as in the language

    return call(tracer, frame, node, fn, args, dict(kwargs))


def static(tracer: Tracer, frame: Frame, node: ast.AST, compute: Callable[[], Any]) -> Any:
    """Run Python at compile time; what it raises becomes an error at `node`."""
    try:
        return compute()
    except (StagekitError, InternalError, NeedMoreThreads):
        raise
    except Exception as error:
        raise tracer.error(StaticFailure(type(error).__name__, str(error)), frame, node) from error


def needs_static(tracer: Tracer, frame: Frame, node: ast.AST, what: str, value: Any) -> StagekitError:
    """The error for a run-time `value` where Python itself needs to know it."""
    hint = "use a run-time `if`, or memory from `alloc_local`, where the choice is made at run time"
    shown = describe_type(value) if is_numeric(value) else describe(value)
    return tracer.error(RunTimeValue(what, shown, hint), frame, node)
