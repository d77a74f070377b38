"""The border between the user's Python and ours: what a public function does with a call that makes no sense.

A user's mistake shows the user's frames only: the traceback ends in the user's own call. That holds for a call that does not fit
the function's parameters too, which Python would report with a frame of ours.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar, ParamSpec, TypeVar

from stagekit.diagnostics.diagnostic import Diagnostic
from stagekit.diagnostics.error import StagekitError, conceal

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


class OutsideKernel(Diagnostic):
    title: ClassVar[str] = "Called outside a kernel"
    label: ClassVar[str] = "`{name}` means something only inside a kernel"
    help: ClassVar[str] = "call it in a function decorated with @jit, @function or @inline"


class WrongArguments(Diagnostic):
    title: ClassVar[str] = "Arguments that a function does not take"
    label: ClassVar[str] = "`{name}`: {problem}"
    help: ClassVar[str] = "call it as {signature}"


class CallError(StagekitError, TypeError):
    """A call of a public function with arguments that it does not take."""


def hide_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Make a public entry point: a mistake of the user's shows the user's frames only."""

    @functools.wraps(function)
    def entry(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except StagekitError as error:
            conceal(error)
            raise
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # from inside the function
            try:
                raise wrong_arguments(function, _problem(error)) from None
            except CallError as refused:
                conceal(refused)
                raise

    entry.__stagekit_host__ = True  # type: ignore[attr-defined]  # a kernel does not trace it
    return entry


def public_class(cls: C) -> C:
    """Make the constructor of a class an entry point, as `hide_frames` does for a function."""
    cls.__init__ = hide_frames(cls.__init__)  # type: ignore[misc]
    return cls


def kernel_only(function: Callable[P, R]) -> Callable[P, R]:
    """Make a fragment of the library: expanded where a kernel calls it, refused elsewhere."""

    @functools.wraps(function)
    def refused(*args: P.args, **kwargs: P.kwargs) -> R:
        traced: R = called(function, function.__name__, args, kwargs)
        return traced

    return _in_kernels(function, refused)


def ordinary(function: Callable[P, R]) -> Callable[P, R]:
    """A function that means the same inside and outside: operands that it cannot work on are the caller's mistake."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            raise wrong_arguments(function, _problem(error)) from None

    return _in_kernels(function, checked)


def _in_kernels(function: Callable[P, R], outside: Callable[P, R]) -> Callable[P, R]:
    """Return an entry point that kernels expand as `function`, and that calls `outside` for everybody else."""
    entry = hide_frames(outside)
    entry.__stagekit_fragment__ = function  # type: ignore[attr-defined]
    return entry


language_call: ContextVar[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None] = ContextVar(
    "language_call", default=None
)
"""While CPython runs a function of the library in a trace: what `function(*args, **kwargs)` means for one of the language."""


def called(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Trace a call that CPython makes of a function of the language, where the library makes it; else refuse it."""
    traced = language_call.get()
    if traced is None:
        raise StagekitError(OutsideKernel(name))
    return traced(function, args, kwargs)


def wrong_arguments(function: Callable[..., Any], problem: str) -> CallError:
    """Return the error for a call of a function or class with arguments that do not fit."""
    owner, _, method = function.__qualname__.rpartition(".")
    name = owner if method in ("__init__", "__call__") else method
    # as a call fills the parameters: without `self` and without types
    given = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values() if p.name != "self"]
    return CallError(WrongArguments(name, problem, f"`{name}{inspect.Signature(given)}`"))


def _problem(error: TypeError) -> str:
    """Return what Python says of a call that does not fit, without the function's name before it."""
    name, parentheses, rest = str(error).partition("() ")
    return rest if parentheses and " " not in name else str(error)
