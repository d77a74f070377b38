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

from stagekit.diagnostics import Diagnostic, InternalError, StagekitError
from stagekit.frontend.control import describe
from stagekit.frontend.errors import RunTimeValue, StaticFailure
from stagekit.frontend.frame import Frame
from stagekit.frontend.numbers import describe_type, is_numeric
from stagekit.frontend.state import ATOMIC_TYPES, is_atomic
from stagekit.frontend.tracer import NeedMoreThreads, Tracer
from stagekit.frontend.values import AskedTooEarly, is_fixed
from stagekit.recursion import is_deep

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


_MOST_CHARACTERS = 1 << 20


def bounded_format(spec: Any) -> Any:
    """Return a format as it is, or raise ValueError where its width or precision would fill the memory."""
    if isinstance(spec, str) and any(int(number) > _MOST_CHARACTERS for number in re.findall("[0-9]{7,}", spec)):
        raise ValueError(f"a format of more than {_MOST_CHARACTERS} characters")
    return spec


def static(tracer: Tracer, frame: Frame, node: ast.AST, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """`fn(*args, **kwargs)` by CPython, at compile time; what it raises becomes an error at `node`.

    All that it may read of its arguments is noted.
    """
    is_native = type(fn) is BuiltinFunctionType and type(fn.__self__) is ModuleType
    is_noted = not (is_native and (fn in _READ_NO_STATE or _is_own_lookup(tracer, fn, args)))
    if not is_native or kwargs or not ATOMIC_TYPES.issuperset(map(type, args)):
        for value in (fn, None if is_native else getattr(fn, "__self__", None), *args, *kwargs.values()):
            if not is_atomic(value) and (is_noted or not is_fixed(type(value).__module__)):
                tracer.captures.note_given(value, tracer.journal.is_born)
    try:
        made = fn(*args, **kwargs)
    except (StagekitError, InternalError, NeedMoreThreads):
        raise
    except Exception as error:
        if isinstance(error, RecursionError) and not is_deep():
            raise  # it may end with a larger stack
        raise raised_by_python(tracer, frame, node, error) from error
    if is_noted and not is_atomic(made):
        tracer.captures.note_derived(made)
    return made


def _is_own_lookup(tracer: Tracer, fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Is a plain key looked up in a table that the kernel made? What its other keys run was noted when they came in."""
    if fn is not operator.contains or type(args[0]) not in (dict, set):
        return False
    return type(args[1]) in ATOMIC_TYPES and tracer.journal.is_born(args[0])


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


def raised_by_python(tracer: Tracer, frame: Frame, node: ast.AST, error: Exception) -> StagekitError:
    return tracer.error(_failure(error), frame, node)


def _failure(error: Exception) -> Diagnostic:
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


_CHOOSE = "use a run-time `if`, or memory from `alloc_local`, where the choice is made at run time"
UNROLL = "loop by `static_range(...)`, whose index is known; for a choice at run time use memory from `alloc_local`"


def needs_static(
    tracer: Tracer, frame: Frame, node: ast.AST, what: str, value: Any, hint: str = _CHOOSE
) -> StagekitError:
    """The error for a run-time `value` where Python itself needs to know it."""
    shown = describe_type(value) if is_numeric(value) else describe(value)
    return tracer.error(RunTimeValue(what, shown, hint), frame, node)
