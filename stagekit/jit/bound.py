"""A kernel bound to a target, and what `compile` takes for a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagekit.diagnostics import hide_frames
from stagekit.frontend.errors import NotAFunction, SpecializeError
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.launchable import ForwardingKernel
from stagekit.jit.options import check_target
from stagekit.jit.specialization import Specialization
from stagekit.runtime.args import describe


class BoundKernel(ForwardingKernel):
    """A kernel tied to one target, compiled as far as its types are known. Launched like the kernel itself."""

    _kernel: Specialization

    def __init__(self, kernel: Specialization, target: str) -> None:
        super().__init__(kernel)
        self.target = target

    def __reduce__(self) -> Any:
        return BoundKernel, (self._kernel, self.target)

    @hide_frames
    def specialize(self, /, **values: Any) -> Any:
        """Specialise again, on the same target."""
        return BoundKernel(self._kernel.specialize(**values), self.target)

    def _resolve(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Specialization, tuple[Any, ...], str | None]:
        kernel, values, _ = self._kernel._resolve(args, kwargs)
        return kernel, values, self.target

    def __repr__(self) -> str:
        return f"{self._kernel!r} on {self.target}"


def specialization_of(kernel: Any, asked_by: str) -> Specialization:
    """The kernel with its constexprs fixed that any object with brackets stands for. asked_by: a function, for the error."""
    kind = type(kernel)  # `isinstance` would ask the object
    if issubclass(kind, JitFunction):
        return kernel.only()  # type: ignore[no-any-return]
    if issubclass(kind, BoundKernel):
        return kernel._kernel  # type: ignore[no-any-return]
    if issubclass(kind, Specialization):
        return kernel  # type: ignore[no-any-return]
    hint = "give a kernel made with @function, or by `.specialize(...)` of one made with @jit"
    raise SpecializeError(NotAFunction(asked_by, describe(kernel), hint))


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
