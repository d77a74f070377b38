"""Calls that CPython carries out, at compile time."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from stagekit.frontend.control import describe
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import invoke, static
from stagekit.frontend.frame import Closure, Frame
from stagekit.frontend.iteration import items_of
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Generator, Number

Builtin = Callable[..., Any]  # (tracer, frame, node, *args, **kwargs): the staged meaning of a Python function


def run_native(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, *args: Any, **kwargs: Any) -> Any:
    """What `fn` gives; its arguments must be known."""
    args = tuple(native_argument(tracer, frame, node, a) for a in args)
    kwargs = {name: native_argument(tracer, frame, node, a) for name, a in kwargs.items()}
    if any(isinstance(a, Number) for a in args):
        shown = ", ".join(map(describe, args))
        raise tracer.error(BadCall(f"`{fn.__name__}({shown})`", "it needs compile-time values"), frame, node)
    made = static(tracer, frame, node, lambda: fn(*args, **kwargs))
    return tracer.journal.born(made) if isinstance(made, list | dict | set) else made


def native_argument(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Any:
    """What CPython gets: of a generator its items, of a function of the kernel one that runs it."""
    if isinstance(value, Generator):
        return items_of(tracer, frame, node, value)
    if isinstance(value, Closure):
        return lambda *args, **kwargs: invoke(tracer, frame, node, value, list(args), kwargs)
    return value
