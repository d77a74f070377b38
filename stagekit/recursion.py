"""Room for recursion while kernels are traced, compiled and interpreted: what nests in a kernel is nested calls here.

Work runs in the caller's thread first, under a limit that the usual C stack of 8 MB bears whatever the user's code calls (a
recursion through `list.sort` takes most: 2.5 KB a call in CPython 3.11, 5.2 in 3.13). Work that needs more is done again from the
start in a thread with a large stack. So no recursion, ours or the user's, ends in a crash, and only deep kernels pay.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from stagekit.forks import new_lock

P = ParamSpec("P")
R = TypeVar("R")

_LIMIT = 1_500
_DEEP_LIMIT = 60_000
_DEEP_STACK_BYTES = 512 << 20  # address space; only what is touched takes memory

_lock = new_lock()
_work: list[tuple[int, int, bool]] = []  # of all that runs: its thread, its limit, whether it pauses the collector
_limit_before = 0  # the limit before any work began
_was_collecting = False  # whether the collector was on before any work paused it
_here = threading.local()


def repeated_deeply(function: Callable[P, R]) -> Callable[P, R]:
    """For tracing and compiling: begin `function` again, with a large stack, where it recurses too deeply the first time."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with recursion_limit(pauses_collector=True):
            try:
                return function(*args, **kwargs)
            except RecursionError:
                if is_deep():
                    raise
            return deeply(functools.partial(function, *args, **kwargs))

    return run


def is_deep() -> bool:
    """Return whether this thread has the large stack already."""
    return getattr(_here, "is_deep", False)


def deeply(work: Callable[[], R]) -> R:
    """Return what `work()` returns, or raise what it raises, with a large stack.

    What a handler of a signal raises meanwhile is raised in the work too, and here once the work has ended.
    """
    if is_deep():
        return work()
    from queue import SimpleQueue  # here, since few kernels are deep

    runs = dict[str, bool]()  # decided once: by the thread, or False by the caller, who could not wait for it to start
    ended = SimpleQueue[tuple[list[R], BaseException | None]]()

    def attempt() -> None:
        _here.is_deep = runs.setdefault("work", True)
        found, failure = list[R](), None
        while _here.is_deep:
            try:
                if not found and failure is None:
                    with recursion_limit(_DEEP_LIMIT):
                        found.append(work())
                ended.put((found, failure))
                return
            except BaseException as error:  # of the work, or one from the caller that came too late for it
                failure = error

    run = functools.partial(contextvars.copy_context().run, attempt)
    thread = threading.Thread(target=run, name="stagekit-deep", daemon=True)
    interruption: BaseException | None = None
    try:
        with _lock:  # the stack size is one for all threads that are started
            before = threading.stack_size(_DEEP_STACK_BYTES)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
    except BaseException as error:
        if not (runs.setdefault("work", False) and _raise_in(thread, type(error))):
            raise
        interruption = error
    while True:
        try:
            found, failure = ended.get()
            break
        except BaseException as error:
            interruption = error
        if not _raise_in(thread, type(interruption)):
            raise interruption
    if interruption or failure:
        raise interruption or failure  # type: ignore[misc]
    return found[0]


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> bool:
    """Raise an error in the Python code of another thread; return whether it still runs."""
    ident = ctypes.c_ulong(thread.ident or 0)
    return bool(ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(error)))


@contextlib.contextmanager
def recursion_limit(limit: int = _LIMIT, *, pauses_collector: bool = False) -> Iterator[None]:
    """Raise the limit of the process to at least `limit`, until the last thread that needs it has left.

    pauses_collector: also pause the garbage collector. A trace makes hundreds of thousands of objects that live until it ends:
    looking through them, again and again, takes a third of the time and finds nothing.
    """
    global _limit_before, _was_collecting
    entry = threading.get_ident(), limit, pauses_collector
    with _lock:
        if not _work:
            _limit_before = sys.getrecursionlimit()
        if pauses_collector and not any(pauses for _, _, pauses in _work):
            _was_collecting = gc.isenabled()
        _set([*_work, entry])
    try:
        yield
    finally:
        with _lock:
            rest = _work.copy()
            rest.remove(entry)
            _set(rest)


def _set(work: list[tuple[int, int, bool]]) -> None:
    """Set the limit and the collector as this work needs them."""
    was_paused = any(pauses for _, _, pauses in _work)
    _work[:] = work
    sys.setrecursionlimit(max([_limit_before, *(limit for _, limit, _ in work)]))
    if any(pauses for _, _, pauses in work):
        gc.disable()
    elif was_paused and _was_collecting:
        gc.enable()


def _forget_other_threads() -> None:
    """In a forked child, drop what the other threads asked for: they are gone."""
    if _work:
        _set([entry for entry in _work if entry[0] == threading.get_ident()])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
