"""The decorators, and `compile`."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from stagekit.diagnostics import hide_frames
from stagekit.frontend.calls import keep_snapshot
from stagekit.frontend.errors import SpecializeError, UnsupportedSyntax
from stagekit.frontend.parameters import outer_names
from stagekit.frontend.source import Snapshot
from stagekit.frontend.tracer import OP_BUDGET, UNROLL_BUDGET
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.launcher import General
from stagekit.jit.native import NativeLaunchers, NativelyLaunchable
from stagekit.jit.options import Options, check_target, read_options
from stagekit.jit.specialization import Specialization

P = ParamSpec("P")
R = TypeVar("R")


@hide_frames
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    fastmath: bool = False,
    debug: bool = False,
    max_registers: int | None = None,
    name: str | None = None,
    target: str | None = None,
    unroll_budget: int = UNROLL_BUDGET,
    op_budget: int = OP_BUDGET,
    **unknown: Any,
) -> Any:
    """Make a kernel that is not parsed until `.specialize(...)` or its first call fixes its constexprs.

    fastmath: allow contraction, approximate division and functions. debug: keep `assert` on the GPU. max_registers: per thread.
    name: the symbol that profilers show. target: "cpu" or "cuda" whatever the arrays. unroll_budget: iterations of static loops
    in all. op_budget: operations in all.
    """
    given = {
        "fastmath": fastmath,
        "debug": debug,
        "max_registers": max_registers,
        "name": name,
        "target": target,
        "unroll_budget": unroll_budget,
        "op_budget": op_budget,
    }
    options = read_options("jit", given, unknown)
    frame = sys._getframe(2)  # of the caller: the first is `hide_frames`

    @hide_frames
    def define(given: Callable[..., Any]) -> JitFunction:
        return _kernel(given, "jit", options, frame)

    return define if fn is None else define(fn)


@hide_frames
def function(
    fn: Callable[..., Any] | None = None,
    *,
    fastmath: bool = False,
    debug: bool = False,
    max_registers: int | None = None,
    name: str | None = None,
    target: str | None = None,
    unroll_budget: int = UNROLL_BUDGET,
    op_budget: int = OP_BUDGET,
    **unknown: Any,
) -> Any:
    """Make a kernel that is traced at once: everything it captures is fixed now, and errors show at the definition.

    Options as for `jit`. Every parameter is annotated, none is constexpr.
    """
    given = {
        "fastmath": fastmath,
        "debug": debug,
        "max_registers": max_registers,
        "name": name,
        "target": target,
        "unroll_budget": unroll_budget,
        "op_budget": op_budget,
    }
    options = read_options("function", given, unknown)
    frame = sys._getframe(2)

    @hide_frames
    def define(given: Callable[..., Any]) -> Specialization:
        kernel = _kernel(given, "function", options, frame).with_values({})
        kernel.trace()
        return kernel

    return define if fn is None else define(fn)


def _kernel(fn: Any, decorator: str, options: Options, frame: types.FrameType) -> JitFunction:
    checked = _checked(fn, decorator)
    return JitFunction(checked, options, outer_names(checked, frame))


class InlineFunction:
    """A fragment: in a kernel its body is expanded at every call; outside, it is the Python function it was made from."""

    def __init__(self, fn: types.FunctionType) -> None:
        self.__stagekit_fragment__ = fn
        keep_snapshot(Snapshot.take(fn))
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__stagekit_fragment__(*args, **kwargs)

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __repr__(self) -> str:
        return f"<stagekit inline {self.__stagekit_fragment__.__qualname__}>"


@hide_frames
def inline(fn: Callable[P, R]) -> Callable[P, R]:
    """Mark a fragment. Plain functions called from a kernel are staged the same; `inline` says so and keeps the source text."""
    return InlineFunction(_checked(fn, "inline"))


def _checked(fn: Any, decorator: str) -> types.FunctionType:
    if not isinstance(fn, types.FunctionType):
        hint = f"decorate a Python function: `@{decorator}` above its `def`"
        raise SpecializeError(UnsupportedSyntax(f"`{decorator}` of a {type(fn).__name__}", hint))
    return fn


class BoundKernel(NativelyLaunchable):
    """A kernel tied to one target, compiled as far as its types are known. Launched like the kernel itself."""

    def __init__(self, kernel: Specialization, target: str) -> None:
        self._kernel = kernel
        self.target = target
        self._native = NativeLaunchers(kernel.name, functools.partial(General, lambda: self))
        functools.update_wrapper(self, kernel.__stagekit_fragment__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        launched = self._kernel.launch_generally(key, args, kwargs, self.target)
        if launched is not None:
            self._native.offer(key, launched[1], self._kernel.call_shape)

    def _prepare(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], None]:
        return self._kernel._prepare(key, args, kwargs, self.target)

    def __repr__(self) -> str:
        return f"{self._kernel!r} on {self.target}"


def _compile_now(kernel: Specialization, target: str | None) -> None:
    """As far as possible without arguments: a cpu kernel whose block the launch gives waits for it."""
    block = kernel.trace().block
    if target == "cuda" or (target == "cpu" and block):
        kernel.compile(target)


@hide_frames
def compile(kernel: Any, target: str | None = None) -> Any:
    """Compile a specialised kernel for `target` ("cpu", "cuda", "interp"; left out: where its arrays live); callable.

    Where argument types are not known yet, the first call compiles.
    """
    if isinstance(kernel, JitFunction):
        kernel = kernel.specialize()
    if not isinstance(kernel, Specialization):
        what = f"`compile` of a {type(kernel).__name__}"
        raise SpecializeError(UnsupportedSyntax(what, "give a kernel made with @function or by `.specialize(...)`"))
    if target is not None:
        check_target(target)
    if kernel.has_known_types:
        _compile_now(kernel, target)
    if target is None:
        return kernel
    return BoundKernel(kernel, target)
