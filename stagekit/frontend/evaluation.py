"""What the whole front end uses: the value of an expression, a call, Python run at compile time."""

from __future__ import annotations

import ast
import operator
import re
import types
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, ModuleType
from typing import Any

from stagekit.diagnostics import PACKAGE, Diagnostic, InternalError, Loc, StagekitError
from stagekit.frontend.errors import RunTimeValue, StagingError, StaticFailure
from stagekit.frontend.journal import Journal
from stagekit.frontend.numbers import USUAL, is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.state import ATOMIC_TYPES, is_atomic, lookup
from stagekit.frontend.tracer import BecomesRunTime, Frame, TraceAgain, Tracer
from stagekit.frontend.values import (
    STAND_INS,
    Address,
    Array,
    AskedTooEarly,
    is_fixed,
    is_generated,
)
from stagekit.recursion import is_deep

_CHOOSE = "use a run-time `if`, or memory from `alloc_local`, where the choice is made at run time"
UNROLL = "loop by `static_range(...)`, whose index is known; for a choice at run time use memory from `alloc_local`"


# Kind of node -> its function of a frame and a node; `expressions.py` fills it, since those functions need this module.
EVALUATORS: dict[type[ast.expr], Callable[..., Any]] = {}
NO_KEYWORDS: dict[str, Any] = {}

Route = Callable[["Site", Any, list[Any], dict[str, Any]], Any]
# Type of what is called -> how; of `object`, how anything else is called. `calls.py` fills it.
ROUTES: dict[type, Route] = {}


def evaluate(frame: Frame, node: ast.expr) -> Any:
    """Return the value of an expression."""
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
        loc = self.tracer.builder.loc = self.frame.loc(self.node)
        return loc

    def read(self, value: Any) -> Any:
        """Return a value just read from a location: poison raises, a size becomes its run-time number."""
        return self.frame.read(value, self.node)

    def error(self, diagnostic: Diagnostic) -> StagingError:
        return StagingError(diagnostic, self.loc)

    def needs_static(self, what: str, value: Any, hint: str = _CHOOSE) -> StagingError:
        """Return the error for a run-time `value` where Python itself needs to know it."""
        return self.error(RunTimeValue(what, describe(value), hint))

    def invoke(self, fn: Any, args: list[Any], kwargs: dict[str, Any] = NO_KEYWORDS) -> Any:
        """Return `fn(*args, **kwargs)` for anything that can be called."""
        return (ROUTES.get(type(fn)) or ROUTES[object])(self, fn, args, kwargs)

    def static(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return `fn(*args, **kwargs)` by CPython, at compile time; an exception becomes an error at this place.

        Everything that it may read of its arguments is noted as a capture.
        """
        is_native = type(fn) is BuiltinFunctionType and type(fn.__self__) is ModuleType
        captures, journal = self.tracer.captures, self.tracer.journal
        if not is_native or kwargs or not ATOMIC_TYPES.issuperset(map(type, args)):
            is_noted = not (is_native and _reads_no_state(journal, fn, args))
            for value in (fn, None if is_native else getattr(fn, "__self__", None), *args, *kwargs.values()):
                if not is_atomic(value) and (is_noted or not is_fixed(type(value).__module__)):
                    captures.note_given(value, journal.is_born)
        made = self.by_python(fn, args, kwargs)
        if not is_atomic(made) and not (is_native and _reads_no_state(journal, fn, args)):
            captures.note_derived(made)
        return made

    def by_python(self, fn: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return `fn(*args, **kwargs)`; an exception becomes an error at this place, as one of ours without a place does."""
        try:
            return fn(*args, **kwargs)
        except StagekitError as error:
            error.loc = error.loc or self.loc
            raise
        except (InternalError, TraceAgain, BecomesRunTime):
            raise
        except Exception as error:
            if isinstance(error, RecursionError) and not is_deep():
                raise  # it may end with a larger stack
            raise self.error(failure(error)) from error


def _reads_no_state(journal: Journal, fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Return whether a call of Python's function needs no note: the tracer itself reads what it hands out, or it looks up a plain
    key in a table made in the kernel, whose other keys were noted when they came in.
    """
    if fn is operator.contains and type(args[0]) in (dict, set):
        return type(args[1]) in ATOMIC_TYPES and journal.is_born(args[0])
    return fn in _HAND_OUT


_HAND_OUT = frozenset({operator.getitem, iter, next, len})


def is_of_the_user(error: Exception) -> bool:
    """Return whether code outside this package raised `error`, such as a method of a user's object that was only looked at."""
    if isinstance(error, StagekitError | InternalError | RecursionError):
        return False
    here = error.__traceback__
    while here is not None and here.tb_next is not None:
        here = here.tb_next
    return here is not None and not here.tb_frame.f_code.co_filename.startswith(PACKAGE)


def failure(error: Exception) -> Diagnostic:
    """Return the diagnostic for what CPython raised. Where it met a stand-in, that is the mistake, named in the user's words."""
    text = in_users_words(str(error), r"'(?:stagekit\.[\w.]*)?{}'|<{}>")  # what CPython calls a type, and a `repr`
    if text == str(error) and not isinstance(error, AskedTooEarly):
        return StaticFailure(type(error).__name__, text)
    hint = "Python's own code runs while specialising; use operators, `if` and the functions of stagekit"
    return RunTimeValue("a value that Python itself looks at here", text, hint)


def in_users_words(text: str, form: str = "<{}>") -> str:
    """Return a message in which the `repr` of run-time values, or what matches `form`, has given way to words of the language."""
    for kind, name in _STAND_IN_NAMES.items():
        text = re.sub(form.replace("{}", kind), name, text)
    return text


_STAND_IN_NAMES = {
    "Number": "a run-time number",
    "Address": "a run-time pointer",
    "Array": "an array",
    "StagedRange": "a range with run-time bounds",
    "Generator": "an iterator of the kernel",
    "Text": "a text with run-time numbers in it",
}


# -- the methods of tiles -----------------------------------------------------------------------------------------------


# By class and name, those of the library that were found to go by element.
_BY_ELEMENT: dict[tuple[type, str], types.FunctionType] = {}
_BESIDE = frozenset({*USUAL, Address})


def by_element(site: Site, left: Any, right: Any, plain: str, mirrored: str) -> Any:
    """Return what a tile answers beside a number, a pointer or another tile, with fewer questions than of a user's class.

    NotImplemented for any other two values. plain, mirrored: the names of the methods of the left one, and of the right one.
    """
    kind, other = type(left), type(right)
    if (method := _BY_ELEMENT.get((kind, plain))) is not None and (other in _BESIDE or other is kind):
        owner, operand = left, right
    elif (method := _BY_ELEMENT.get((other, mirrored))) is not None and (kind in _BESIDE or _is_plain(left)):
        owner, operand = right, left
    else:
        return NotImplemented
    site.at()
    return site.invoke(method, [owner, operand])


def _is_plain(value: Any) -> bool:
    """Return whether this is an array from whose begin pointers are counted."""
    return type(value) is Array and value.is_contiguous and not value.is_part and bool(value.shape)


# -- the methods of a user's class -------------------------------------------------------------------------------------


def by_method(site: Site, name: str, left: Any, right: Any) -> Any:
    """Return what a user's class answers: `left.__add__(right)`, else `right.__radd__(left)`, or NotImplemented.

    Where both are of one class, only the left one is asked. The right one is asked first where its class derives from the left's
    and has a mirrored method of its own.
    """
    plain, mirrored = (left, right, f"__{name}__"), (right, left, f"__r{name}__")
    if type(left) is type(right):
        return first_answer(site, plain)
    if isinstance(right, type(left)) and _has_its_own(site.tracer, left, right, mirrored[2]):
        return first_answer(site, mirrored, plain)
    return first_answer(site, plain, mirrored)


def _has_its_own(tracer: Tracer, left: Any, right: Any, name: str) -> bool:
    """Return whether the class of `right` stores something else under the name than that of `left`."""
    for each in (left, right):
        tracer.note_lookup(each, name)
    return lookup(type(right), name) is not lookup(type(left), name)


def first_answer(site: Site, *ways: tuple[Any, Any, str]) -> Any:
    """Return the first answer of several methods, each given as (owner, other operand, name); NotImplemented without one."""
    for owner, other, name in ways:
        method = user_method(site.tracer, owner, name)
        if method is not None and not is_generated(method):  # Python runs those itself
            if "__stagekit_stamped__" in method.__dict__:
                _BY_ELEMENT[type(owner), name] = method
            answer = site.invoke(method, [owner, other])
            if answer is not NotImplemented:
                return answer
    return NotImplemented


def user_method(tracer: Tracer, owner: Any, name: str) -> Any:
    """Return the method that the class of `owner` defines in Python; None for built-in types and stand-ins. Either is noted."""
    if isinstance(owner, STAND_INS) or is_numeric(owner):
        return None
    tracer.note_lookup(owner, name)
    for cls in type(owner).__mro__:
        found = cls.__dict__.get(name)
        if found is not None:
            return found if isinstance(found, types.FunctionType) else None
    return None
