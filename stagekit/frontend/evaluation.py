"""The way into every other part: the value of an expression, a call, Python run at compile time.

Which function evaluates which kind of node is a table in `expressions.py`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any

from stagekit.diagnostics import Diagnostic, InternalError, Loc, StagekitError
from stagekit.frontend.control import describe
from stagekit.frontend.errors import RunTimeValue, StagingError, StaticFailure
from stagekit.frontend.frame import Frame
from stagekit.frontend.journal import Journal
from stagekit.frontend.state import ATOMIC_TYPES, is_atomic
from stagekit.frontend.tracer import NeedMoreThreads
from stagekit.frontend.values import AskedTooEarly, is_fixed
from stagekit.recursion import is_deep

_CHOOSE = "use a run-time `if`, or memory from `alloc_local`, where the choice is made at run time"
UNROLL = "loop by `static_range(...)`, whose index is known; for a choice at run time use memory from `alloc_local`"


# Kind of node -> its function of a frame and a node; `expressions.py` fills it, since those functions need this module.
EVALUATORS: dict[type[ast.expr], Callable[..., Any]] = {}
NO_KEYWORDS: Mapping[str, Any] = {}


def evaluate(frame: Frame, node: ast.expr) -> Any:
    """The value of an expression."""
    return EVALUATORS[type(node)](frame, node)


class Site:
    """Where the traced program does something to values: a node of its text, in the frame of a call."""

    __slots__ = ("frame", "node", "tracer")

    def __init__(self, frame: Frame, node: ast.AST) -> None:
        self.frame = frame
        self.node = node
        self.tracer = frame.tracer

    @property
    def loc(self) -> Loc:
        return self.frame.loc(self.node)

    def at(self) -> Loc:
        """Move the builder to this place and return it."""
        return self.frame.at(self.node)

    def read(self, value: Any) -> Any:
        """A value just read from a location: poison raises, a size becomes its run-time number."""
        return self.frame.read(value, self.node)

    def error(self, diagnostic: Diagnostic) -> StagingError:
        return StagingError(diagnostic, self.loc)

    def needs_static(self, what: str, value: Any, hint: str = _CHOOSE) -> StagingError:
        """The error for a run-time `value` where Python itself needs to know it."""
        return self.error(RunTimeValue(what, describe(value), hint))

    def invoke(self, fn: Any, args: list[Any], kwargs: Mapping[str, Any] = NO_KEYWORDS) -> Any:
        """`fn(*args, **kwargs)` for whatever can be called."""
        from stagekit.frontend.calls import call  # expressions and calls need each other, as in the language

        return call(self, fn, args, dict(kwargs))

    def static(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`fn(*args, **kwargs)` by CPython, at compile time; what it raises becomes an error here.

        All that it may read of its arguments is noted.
        """
        is_native = type(fn) is BuiltinFunctionType and type(fn.__self__) is ModuleType
        captures, journal = self.tracer.captures, self.tracer.journal
        is_noted = not (is_native and (fn in _READ_NO_STATE or _is_own_lookup(journal, fn, args)))
        if not is_native or kwargs or not ATOMIC_TYPES.issuperset(map(type, args)):
            for value in (fn, None if is_native else getattr(fn, "__self__", None), *args, *kwargs.values()):
                if not is_atomic(value) and (is_noted or not is_fixed(type(value).__module__)):
                    captures.note_given(value, journal.is_born)
        try:
            made = fn(*args, **kwargs)
        except (StagekitError, InternalError, NeedMoreThreads):
            raise
        except Exception as error:
            if isinstance(error, RecursionError) and not is_deep():
                raise  # it may end with a larger stack
            raise self.error(failure(error)) from error
        if is_noted and not is_atomic(made):
            captures.note_derived(made)
        return made


def _is_own_lookup(journal: Journal, fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Is a plain key looked up in a table that the kernel made? What its other keys run was noted when they came in."""
    if fn is not operator.contains or type(args[0]) not in (dict, set):
        return False
    return type(args[1]) in ATOMIC_TYPES and journal.is_born(args[0])


_READ_NO_STATE = frozenset({operator.getitem, iter, next, len})
"""Of a container of Python's own, these hand out what the tracer then reads itself."""


_PACKAGE = str(Path(__file__).parents[1])


def is_of_the_user(error: Exception) -> bool:
    """Did code outside this package raise it, such as a method of a user's object that was only looked at?"""
    if isinstance(error, StagekitError | InternalError | RecursionError):
        return False
    here = error.__traceback__
    while here is not None and here.tb_next is not None:
        here = here.tb_next
    return here is not None and not here.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def failure(error: Exception) -> Diagnostic:
    """What CPython raised. Where it met one of our stand-ins, that is what is wrong, and its name is nobody's business."""
    text = str(error)
    for kind, name in _STAND_IN_NAMES.items():
        text = re.sub(rf"'(?:stagekit\.[\w.]*)?{kind}'|<{kind}>", name, text)
    if text == str(error) and not isinstance(error, AskedTooEarly):
        return StaticFailure(type(error).__name__, text)
    hint = "Python's own code runs while specialising; use operators, `if` and the functions of stagekit"
    return RunTimeValue("a value that Python itself looks at here", text, hint)


_STAND_IN_NAMES = {
    "Number": "a run-time number",
    "Address": "a run-time pointer",
    "Array": "an array",
    "StagedRange": "a range with run-time bounds",
    "Generator": "an iterator of the kernel",
    "Text": "a text with run-time numbers in it",
}
