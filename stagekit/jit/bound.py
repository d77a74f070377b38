"""A kernel bound to a target, and what `compile` takes for a kernel."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

from stagekit.diagnostics import hide_frames
from stagekit.frontend.errors import NotAFunction, SpecializeError
from stagekit.jit.inspection import Inspectable
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.launcher import General
from stagekit.jit.native import NativeLaunchers
from stagekit.jit.options import check_target
from stagekit.jit.specialization import Specialization
from stagekit.jit.variant import Variant
from stagekit.runtime.args import describe


class BoundKernel(Inspectable):
    """A kernel tied to one target, compiled as far as its types are known. Launched like the kernel itself."""

    def __init__(self, kernel: Specialization, target: str) -> None:
        self._kernel = kernel
        self.target = target
        self._native = NativeLaunchers(kernel.name, functools.partial(General, lambda: self))
        functools.update_wrapper(self, kernel.__stagekit_fragment__)

    def __reduce__(self) -> Any:
        return BoundKernel, (self._kernel, self.target)

    @property
    def name(self) -> str:
        return self._kernel.name

    @property
    def constexprs(self) -> Mapping[str, Any]:
        return self._kernel.constexprs

    @property
    def __stagekit_fragment__(self) -> types.FunctionType:
        return self._kernel._owner.function

    @property
    def __stagekit_fixed__(self) -> Mapping[str, Any]:
        return self._kernel.__stagekit_fixed__

    @hide_frames
    def specialize(self, /, **values: Any) -> Any:
        """Specialise again, on the same target."""
        return BoundKernel(self._kernel.specialize(**values), self.target)

    @hide_frames
    def explain(self) -> str:
        """Why the last call, or the last look, compiled: one line per step."""
        return self._kernel.explain()

    def _shown(self) -> Variant:
        return self._kernel._shown()

    def _launch(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        launched = self._kernel.launch_generally(key, args, kwargs, self.target)
        if launched is not None:
            self._native.offer(key, launched[1], self._kernel.call_shape)

    def _prepare(self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], None]:
        return self._kernel._prepare(key, args, kwargs, self.target)

    def __repr__(self) -> str:
        return f"{self._kernel!r} on {self.target}"


def specialization_of(kernel: Any, asked_by: str) -> Specialization:
    """The kernel with its constexprs fixed that any object with brackets stands for. asked_by: a function, for the error."""
    if not issubclass(type(kernel), (JitFunction, BoundKernel, Specialization)):  # `isinstance` would ask the object
        hint = "give a kernel made with @function, or by `.specialize(...)` of one made with @jit"
        raise SpecializeError(NotAFunction(asked_by, describe(kernel), hint))
    if isinstance(kernel, JitFunction):
        return kernel.only()
    if isinstance(kernel, BoundKernel):
        return kernel._kernel
    assert isinstance(kernel, Specialization)
    return kernel


def _compile_now(kernel: Specialization, target: str | None) -> None:
    """As far as possible without arguments: a cpu kernel whose block the launch gives waits for it."""
    if target == "cuda" or (target == "cpu" and kernel.fixed_block):
        kernel.compile(target)


@hide_frames
def compile(kernel: Any, target: str | None = None) -> Any:
    """Compile a specialised kernel for `target` ("cpu", "cuda", "interp"; left out: where its arrays live); callable.

    Where argument types are not known yet, the first call compiles.
    """
    found = specialization_of(kernel, "compile")
    if target is not None:
        check_target(target)
    if found.has_known_types:
        _compile_now(found, target)
    return found if target is None else BoundKernel(found, target)
