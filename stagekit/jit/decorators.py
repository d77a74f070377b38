"""The decorators `jit`, `function` and `inline`, and what they refuse to decorate."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from stagekit.diagnostics import hide_frames
from stagekit.frontend.annotations import outer_names
from stagekit.frontend.calls import keep_snapshot
from stagekit.frontend.errors import MissingConstexpr, NotAFunction, SpecializeError
from stagekit.frontend.python_calls import HandedOut
from stagekit.frontend.source import Snapshot
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.launchable import Launchable
from stagekit.jit.options import (
    DEFAULTS,
    FLAG,
    FragmentOptions,
    KernelOptions,
    check_options,
    read_options,
    show_options,
)
from stagekit.jit.specialization import Specialization
from stagekit.runtime.args import OF_AN_OBJECT, describe

P = ParamSpec("P")
R = TypeVar("R")


@overload
def jit(fn: Callable[..., Any], **options: Unpack[KernelOptions]) -> JitFunction: ...
@overload
def jit(fn: None = None, **options: Unpack[KernelOptions]) -> Callable[[Callable[..., Any]], JitFunction]: ...
@hide_frames
def jit(fn: Callable[..., Any] | None = None, **options: Unpack[KernelOptions]) -> Any:
    """Make a kernel that is not parsed until `.specialize(...)` or its first call fixes its constexprs.

    fastmath: what floats may give up: True, or some of the names that `docs/arithmetic.md` lists. debug: keep `assert` on the
    GPU, and wait after each launch. lineinfo: say in PTX which line each instruction comes from, for profilers. max_registers:
    per thread. min_blocks: how many blocks must fit on a multiprocessor of the GPU at once. threads: how many carry out a
    block-level kernel, a power of two up to 32 or a multiple of 32 up to 1024, or the name of a constexpr parameter that is
    one; left out, the tiles decide. name: what profilers show. target: "cpu" or "cuda" whatever the arrays. unroll_budget:
    iterations of static loops in all. op_budget: operations in all.
    """
    return _decorate(fn, "jit", options, lambda kernel: kernel)


@overload
def function(fn: Callable[..., Any], **options: Unpack[KernelOptions]) -> Specialization: ...
@overload
def function(fn: None = None, **options: Unpack[KernelOptions]) -> Callable[[Callable[..., Any]], Specialization]: ...
@hide_frames
def function(fn: Callable[..., Any] | None = None, **options: Unpack[KernelOptions]) -> Any:
    """Make a kernel that is traced at once: everything it captures is fixed now, and errors show at the definition.

    Options as for `jit`. Every parameter is annotated, and every constexpr has a default.
    """

    def traced(whole: JitFunction) -> Specialization:
        names = ", ".join(f"`{p.name}`" for p in whole.parameters.constexprs if p.default is ...)
        if names:  # what is traced at its definition meets no later value
            hint = "`@function` is traced where it is defined: give a default, or use `@jit`"
            raise SpecializeError(MissingConstexpr(whole.name, names, hint), whole.loc)
        kernel = whole.with_values({})
        if untyped := kernel.untyped_parameters():
            if untyped[0] == "self":
                raise kernel.types_unknown(f"a kernel is not bound to an object: {OF_AN_OBJECT}")
            example = f"`{untyped[0]}: sk.Tensor((None,), sk.float32)`"
            raise kernel.types_unknown(
                f"annotate every parameter, as in {example}, or use `@jit`, which waits for a call"
            )
        kernel.trace()
        return kernel

    return _decorate(fn, "function", options, traced)


show_options(jit, KernelOptions, DEFAULTS)
show_options(function, KernelOptions, DEFAULTS)


def _decorate(fn: Any, decorator: str, given: Mapping[str, Any], finish: Callable[[JitFunction], Launchable]) -> Any:
    """Return the kernel, or where the decorator was called with options alone, what makes one of the function below it."""
    options = read_options(decorator, given)
    frame = sys._getframe(3)  # of the caller: between are the decorator and its `hide_frames`

    @hide_frames
    def define(given: Callable[..., Any]) -> Launchable:
        checked = _checked(given, decorator)
        return finish(JitFunction(checked, options, outer_names(checked, frame)))

    return define if fn is None else define(fn)


class InlineFunction:
    """A fragment: in a kernel its body is expanded at every call; outside, it is the Python function it was made from."""

    def __init__(self, fn: types.FunctionType, per_thread: bool = False) -> None:
        self.__stagekit_fragment__ = fn
        self.__stagekit_per_thread__ = per_thread
        keep_snapshot(Snapshot.take(fn))
        functools.update_wrapper(self, fn)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.__stagekit_fragment__(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this frame
            raise

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __reduce__(self) -> str:
        """Pickled by name, as functions are."""
        return self.__stagekit_fragment__.__qualname__

    def __repr__(self) -> str:
        fragment = self.__stagekit_fragment__
        return f"<stagekit inline {fragment.__qualname__}{inspect.signature(fragment)}>"


@overload
def inline(fn: Callable[P, R]) -> Callable[P, R]: ...
@overload
def inline(*, per_thread: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@hide_frames
def inline(fn: Any = None, **options: Unpack[FragmentOptions]) -> Any:
    """Mark a fragment. Plain functions called from a kernel are staged the same; `inline` says so and keeps the source text.

    per_thread: each thread acts for itself in it, also where a block-level kernel calls it. It may then use thread indices,
    warp functions and barriers, and `Tile.elements` are those of its thread.
    """
    check_options("@inline", options, {"per_thread": FLAG})
    per_thread = options.get("per_thread", False)

    @hide_frames
    def define(given: Any) -> Any:
        if type(given) is HandedOut and not per_thread:  # a `def` inside a kernel is a fragment already
            return given
        return InlineFunction(_checked(given, "inline"), per_thread)

    return define if fn is None else define(fn)


show_options(inline, FragmentOptions, {"per_thread": False})


def _checked(fn: Any, decorator: str) -> types.FunctionType:
    """Return the function to stage. Raises SpecializeError for anything else."""
    if type(fn) is not types.FunctionType:
        hint = _INSTEAD.get(type(fn), f"put `@{decorator}` above the `def` of a function")
        if issubclass(type(fn), Launchable):
            hint = "it is a kernel already; kernels call it as a fragment"
        what = f"`{fn.closure.name}`, defined inside a kernel" if type(fn) is HandedOut else describe(fn)
        raise SpecializeError(NotAFunction(decorator, what, hint))
    for is_suspended, what in _SUSPENDED:
        if is_suspended(fn):
            hint = "write it with `def` and without `yield`; results go into arrays, or are returned by a fragment"
            raise SpecializeError(NotAFunction(decorator, f"`{fn.__name__}`, {what}", hint), Snapshot.take(fn).loc)
    return fn


_SUSPENDED: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (inspect.isasyncgenfunction, "an asynchronous generator"),
    (inspect.iscoroutinefunction, "a coroutine"),
    (inspect.isgeneratorfunction, "a generator"),
)

_BELOW = "put the decorator of stagekit below this one, directly above the `def`"
_INSTEAD: dict[type, str] = {
    InlineFunction: "it is a fragment already; decorate the function that it was made from",
    functools.partial: "decorate the function itself, and fix what is fixed by `constexpr` parameters or a closure",
    types.MethodType: "decorate the function in its class; `self` is then an argument, or use a closure",
    staticmethod: _BELOW,
    classmethod: _BELOW,
    property: _BELOW,
    HandedOut: "a kernel defines fragments only: a nested `def`, with or without `@inline`; one with options stands outside",
}
