"""Calls that CPython carries out, at compile time: what it is handed, and what becomes of what it gives back."""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from stagekit.frontend.control import describe
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import invoke, static
from stagekit.frontend.frame import Closure, Frame
from stagekit.frontend.iteration import note_use, own_iterators, values_of
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Generator, Number, is_open

Builtin = Callable[..., Any]  # (tracer, frame, node, *args, **kwargs): the staged meaning of a Python function


def run_native(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What `fn` gives; its arguments must be known."""
    if any(isinstance(a, Number) for a in args):
        shown = ", ".join(map(describe, args))
        raise tracer.error(BadCall(f"`{fn.__name__}({shown})`", "it needs compile-time values"), frame, node)
    return carry_out(tracer, frame, node, fn, args, kwargs)


def carry_out(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, args: Any, kwargs: Any) -> Any:
    """`fn(*args, **kwargs)` by CPython. A container that it makes belongs to the traced program, which may change it."""
    _use_up(tracer, frame, node, getattr(fn, "__self__", None))
    given = [native_argument(tracer, frame, node, a) for a in args]
    named = {name: native_argument(tracer, frame, node, a) for name, a in kwargs.items()}
    made = static(tracer, frame, node, lambda: fn(*given, **named))
    if fn not in _OF_CLASSES:
        for value in (getattr(fn, "__self__", None), *args, *kwargs.values()):
            note_state(tracer, value)
    is_new = references(made) <= FRESH  # and not what somebody else holds too, as `table.get("key")` hands out
    if is_new and type(made) is tuple:
        return own_iterators(tracer, made)
    return tracer.journal.born(made) if is_new and _can_change(made) else made


def note_state(tracer: Tracer, value: Any) -> None:
    """CPython, or the tracer itself, may have read anything of an object from outside the kernel."""
    if not isinstance(value, (*_SEEN, *_BY_CONTENT)) and not tracer.journal.is_born(value):
        tracer.captures.note_state(value)


_OF_CLASSES = (isinstance, issubclass, type, id, callable)  # which see nothing of an object but its class
_SEEN: tuple[Any, ...] = (int, float, str, bytes, type, ModuleType, FunctionType, Closure, Generator, type(None))
_BY_CONTENT: tuple[Any, ...] = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    deque,
)  # what is in them was noted when they were read


def _can_change(made: Any) -> bool:
    return isinstance(made, list | dict | set | deque | bytearray | Iterator) or is_open(made)


def references(value: Any) -> int:
    """How many references there are to what the caller holds in one variable."""
    return sys.getrefcount(value)


def _to_a_new_list() -> int:
    made: list[Any] = []
    return references(made)


FRESH = _to_a_new_list()


class HandedOut:
    """A function of the traced program as CPython gets it: to call, or to hand back.

    Its own fields are slots: `functools.wraps` copies one function's `__dict__` into another's.
    """

    __slots__ = ("__dict__", "closure", "run")

    def __init__(self, closure: Closure, run: Callable[..., Any]) -> None:
        self.closure = closure
        self.run = run

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


def native_argument(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Any:
    """What CPython gets: of a generator what gives its items, of a function of the kernel what runs it."""
    if isinstance(value, Generator):
        return values_of(tracer, frame, node, value)
    if isinstance(value, Closure):
        return HandedOut(value, lambda *args, **kwargs: invoke(tracer, frame, node, value, list(args), kwargs))
    _use_up(tracer, frame, node, value)
    return value


def _use_up(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> None:
    """CPython may take the items of an iterator (a file too): it must be the traced program's own."""
    if isinstance(value, Iterator):
        note_use(tracer, frame, node, value, f"the items of {describe(value)}")
