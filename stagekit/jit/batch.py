"""Many kernels compiled at once, by any `concurrent.futures.Executor`.

    compile_all([k.specialize(BLOCK=b) for b in (64, 128, 256)], "cuda", executor=ProcessPoolExecutor())

Threads gain little, since LLVM and the tracer hold locks. Processes are told which kernel it is, by module and name, put what
they compile into the disk cache, and answer with plain data; this process then reads it from there. A kernel that another
process could not find by name, and one that failed there, is compiled here, where its error can be raised.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from stagekit.diagnostics import StagekitError, hide_frames, wrong_arguments
from stagekit.frontend.errors import NotAFunction, SpecializeError
from stagekit.jit.bound import BoundKernel, specialization_of
from stagekit.jit.jitfunction import JitFunction
from stagekit.jit.options import check_compile
from stagekit.jit.specialization import Specialization
from stagekit.runtime import driver
from stagekit.runtime.args import describe

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

Progress = Callable[[int, int], None]
_BAR_WIDTH = 30


@hide_frames
def compile_all(
    kernels: Iterable[JitFunction | Specialization | BoundKernel],
    target: str | None = None,
    *,
    block: int | tuple[int, ...] | None = None,
    executor: Executor | None = None,
    progress: Progress | bool | None = None,
) -> list[Specialization]:
    """Compile specialised kernels and return them in order; the first error is raised when all are done.

    target: "cuda" or "cpu"; left out, cuda where there is a device. block: cpu, where the kernels do not fix it.
    executor: left out, one after the other. progress: called with how many are done, and of how many; True draws a bar.
    """
    wanted = _specializations(kernels)
    present = driver.capability_if_present()
    where = target or ("cuda" if present else "cpu")
    capability = present if where == "cuda" else None
    check_compile(where, capability, block)
    _check_executor(executor)
    tell = _teller(progress)
    sent = _send(wanted, where, capability, block, executor, tell) if executor is not None else set()
    errors: list[StagekitError] = []
    done = len(sent)
    for place, kernel in enumerate(wanted):
        try:
            _compile(kernel, where, capability, block)
        except StagekitError as error:
            errors.append(error)
        if place not in sent:
            done += 1
            tell(done, len(wanted))
    if errors:
        raise errors[0]
    return wanted


def _specializations(kernels: Any) -> list[Specialization]:
    if isinstance(kernels, str) or not isinstance(kernels, Iterable):
        hint = "give a list of kernels, such as `[k.specialize(BLOCK=b) for b in (64, 128)]`"
        raise SpecializeError(NotAFunction("compile_all", describe(kernels), hint))
    return [specialization_of(kernel, "compile_all") for kernel in kernels]


def _check_executor(executor: Any) -> None:
    if executor is not None and not hasattr(executor, "submit"):
        raise wrong_arguments(compile_all, f"`executor` is {describe(executor)}, not an executor of concurrent.futures")


def _teller(progress: Any) -> Progress:
    if progress is None or isinstance(progress, bool):
        return _bar if progress else _silent
    if not callable(progress):
        raise wrong_arguments(compile_all, f"`progress` is {describe(progress)}, not True or a function of two numbers")
    return cast("Progress", progress)


def _send(
    kernels: Sequence[Specialization],
    target: str,
    capability: int | None,
    block: int | tuple[int, ...] | None,
    executor: Executor,
    tell: Progress,
) -> set[int]:
    """Let the executor compile what it can; whatever it could not is compiled by the caller. Gives the places of what it got."""
    from concurrent.futures import ThreadPoolExecutor, as_completed  # here, since it brings `logging`

    sent: dict[Future[bool], int] = {}
    with contextlib.suppress(RuntimeError):  # it is shut down, or its processes died
        for place, kernel in enumerate(kernels):
            if isinstance(executor, ThreadPoolExecutor) or _is_found_elsewhere(kernel):
                sent[executor.submit(_try_compile, kernel, target, capability, block)] = place
    for done, _ in enumerate(as_completed(sent), 1):
        tell(done, len(kernels))
    return set(sent.values())


def _compile(kernel: Specialization, target: str, capability: int | None, block: int | tuple[int, ...] | None) -> None:
    """block: for a kernel that fixes none."""
    kernel.compile(target, capability=capability, block=None if kernel.fixed_block else block)


def _is_found_elsewhere(kernel: Specialization) -> bool:
    """Does a pickle lead to this very kernel, here at least?"""
    try:
        return pickle.loads(pickle.dumps(kernel)) is kernel
    except (pickle.PicklingError, AttributeError, ImportError, TypeError, StagekitError):
        return False


def _try_compile(
    kernel: Specialization, target: str, capability: int | None, block: int | tuple[int, ...] | None
) -> bool:
    """What a worker does. False where it failed: the error is found again, and raised, by who asked."""
    try:
        _compile(kernel, target, capability, block)
    except StagekitError:
        return False
    return True


def _silent(done: int, total: int) -> None:
    pass


def _bar(done: int, total: int) -> None:
    filled = _BAR_WIDTH * done // max(total, 1)
    sys.stderr.write(
        f"\r[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {done}/{total}{chr(10) if done == total else ''}"
    )
    sys.stderr.flush()
