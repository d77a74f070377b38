"""Compiling before a launch: a kernel bound to a target, and many kernels at once by any `concurrent.futures.Executor`.

    compile(k.specialize(BLOCK=64), "cpu")[4](x, n)
    compile_all([k.specialize(BLOCK=b) for b in (64, 128, 256)], "cuda", executor=ProcessPoolExecutor())

Threads gain little, since LLVM and the tracer hold locks. Processes are told which kernel it is, by module and name, put what
they compile into the disk cache, and answer with plain data; this process then reads it from there. A kernel that another
process could not find by name, and one that failed there, is compiled here, where its error can be raised.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from stagekit.diagnostics import StagekitError, hide_frames, wrong_arguments
from stagekit.frontend.errors import NotAFunction, SpecializeError
from stagekit.frontend.traced import trace_target
from stagekit.jit.compilation import capability_at_hand
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.launchable import ForwardingKernel, Resolved, specializes
from stagekit.jit.options import check_compile, check_target
from stagekit.jit.specialization import Specialization
from stagekit.runtime import driver
from stagekit.runtime.args import describe

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

Progress = Callable[[int, int], None]
_BAR_WIDTH = 30


class BoundKernel(ForwardingKernel):
    """A kernel tied to one target, compiled as far as its types are known. Launched like the kernel itself."""

    _kernel: Specialization

    def __init__(self, kernel: Specialization, target: str) -> None:
        super().__init__(kernel)
        self.target = target

    def __reduce__(self) -> Any:
        return BoundKernel, (self._kernel, self.target)

    @specializes
    def specialize(self, /, **values: Any) -> Any:
        """Specialise again, on the same target."""
        return BoundKernel(self._kernel.specialize(**values), self.target)

    def _resolve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Resolved:
        kernel, values, _ = self._kernel._resolve(args, kwargs)
        return kernel, values, self.target

    def _named_target(self, switch: str) -> str:
        return self.target

    def __repr__(self) -> str:
        return f"{self._kernel!r} on {self.target}"


def specialization_of(kernel: Any, asked_by: str) -> Specialization:
    """Return the specialisation that an object with brackets stands for. asked_by: a function, for the error."""
    kind = type(kernel)  # `isinstance` would ask the object
    if issubclass(kind, JitFunction):
        return kernel.specialization()  # type: ignore[no-any-return]
    if issubclass(kind, BoundKernel):
        return kernel._kernel  # type: ignore[no-any-return]
    if issubclass(kind, Specialization):
        return kernel  # type: ignore[no-any-return]
    hint = "give a kernel made with @function, or by `.specialize(...)` of one made with @jit"
    raise SpecializeError(NotAFunction(asked_by, describe(kernel), hint))


@hide_frames
def compile(kernel: Any, target: str | None = None) -> Any:
    """Compile a specialised kernel for `target` ("cpu", "cuda", "interp"; left out: where its arrays live); callable.

    Where argument types, or on cpu the block, are not known yet, the first call compiles.
    """
    found = specialization_of(kernel, "compile")
    if target is not None:
        check_target(target)
    if found.has_known_types and (target == "cuda" or (target == "cpu" and found.fixed_block)):
        found.compile(target)
    return found if target is None else BoundKernel(found, target)


@hide_frames
def compile_all(
    kernels: Iterable[JitFunction | Specialization | BoundKernel],
    target: str | None = None,
    *,
    block: int | tuple[int, ...] | None = None,
    executor: Executor | None = None,
    progress: Progress | bool | None = None,
) -> list[Specialization]:
    """Compile specialised kernels, all entries of each, and return them in order; the first error is raised when all are done.

    target: "cuda" or "cpu"; left out, cuda where there is a device. block: cpu, where the kernels do not fix it.
    executor: left out, one after the other. progress: called with how many are done, and of how many; True draws a bar.
    """
    if isinstance(kernels, str) or not isinstance(kernels, Iterable):
        hint = "give a list of kernels, such as `[k.specialize(BLOCK=b) for b in (64, 128)]`"
        raise SpecializeError(NotAFunction("compile_all", describe(kernels), hint))
    wanted = [specialization_of(kernel, "compile_all") for kernel in kernels]
    present = driver.capability_if_present()
    where = target or ("cuda" if present else "cpu")
    capability = present if where == "cuda" else None
    check_compile(where, capability, block)
    if executor is not None and not hasattr(executor, "submit"):
        raise wrong_arguments(compile_all, f"`executor` is {describe(executor)}, not an executor of concurrent.futures")
    tell = _teller(progress)
    attempt = functools.partial(_error_of, target=where, capability=capability, block=block)
    sent = set() if executor is None else _compile_in(executor, wanted, attempt, tell)
    errors, done = [], len(sent)
    for place, kernel in enumerate(wanted):
        errors.append(attempt(kernel))
        if place not in sent:
            done += 1
            tell(done, len(wanted))
    if failed := list(filter(None, errors)):
        raise failed[0]
    return wanted


def _error_of(
    kernel: Specialization, target: str, capability: int | None, block: int | tuple[int, ...] | None
) -> StagekitError | None:
    """Compile all entries of a kernel; return the error where that fails. block: for a kernel that fixes none."""
    try:
        axes = check_compile(target, capability, block)
        for variant in kernel.every_entry(trace_target(target, capability or capability_at_hand())):
            variant.artifact(target, capability, None if variant.traced.block else axes)
    except StagekitError as error:
        return error
    return None


def _compile_in(
    executor: Executor, kernels: Sequence[Specialization], attempt: Callable[[Specialization], Any], tell: Progress
) -> set[int]:
    """Let the executor compile what it can, and wait for it. Return the places of the kernels that it was given.

    The caller compiles all of them again: from the cache, or where the executor failed.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed  # here, since it brings `logging`

    sent: dict[Future[Any], int] = {}
    with contextlib.suppress(RuntimeError):  # it is shut down, or its processes died
        for place, kernel in enumerate(kernels):
            if isinstance(executor, ThreadPoolExecutor) or _is_found_elsewhere(kernel):
                sent[executor.submit(_try, attempt, kernel)] = place
    for done, _ in enumerate(as_completed(sent), 1):
        tell(done, len(kernels))
    return set(sent.values())


def _try(attempt: Callable[[Specialization], Any], kernel: Specialization) -> None:
    """Compile in a worker. Its error stays there: the caller meets it again, and raises it."""
    attempt(kernel)


def _is_found_elsewhere(kernel: Specialization) -> bool:
    """Return whether a pickle leads to this very kernel, in this process at least."""
    try:
        return pickle.loads(pickle.dumps(kernel)) is kernel
    except (pickle.PicklingError, AttributeError, ImportError, TypeError, StagekitError):
        return False


def _teller(progress: Any) -> Progress:
    """Return the function to call whenever a kernel is done."""
    if progress is None or isinstance(progress, bool):
        return _bar if progress else lambda done, total: None
    if not callable(progress):
        raise wrong_arguments(compile_all, f"`progress` is {describe(progress)}, not True or a function of two numbers")
    return cast("Progress", progress)


def _bar(done: int, total: int) -> None:
    filled = _BAR_WIDTH * done // max(total, 1)
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {done}/{total}{end}")
    sys.stderr.flush()
