"""What is set in Python while kernels are traced and compiled: a higher recursion limit, and no search for garbage cycles."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator

_LIMIT = 12_000  # the tracer's own budget of nested calls ends far below it

Undo = Callable[[], None]


def _while_in_use(change: Callable[[], Undo]) -> Callable[[], contextlib._GeneratorContextManager[None]]:
    """A context manager that changes a setting of the process until the last thread that needs it has left."""
    lock = threading.Lock()
    undo: list[Undo] = []  # one for each thread inside; the first brings back what was

    @contextlib.contextmanager
    def inside() -> Iterator[None]:
        with lock:
            undo.append(change() if not undo else undo[0])
        try:
            yield
        finally:
            with lock:
                last = undo.pop()
                if not undo:
                    last()

    return inside


def _raise_limit() -> Undo:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(_LIMIT, before))
    return lambda: sys.setrecursionlimit(before)


def _pause_collector() -> Undo:
    was_enabled = gc.isenabled()
    gc.disable()
    return gc.enable if was_enabled else lambda: None


deep_recursion = _while_in_use(_raise_limit)  # what nests in a kernel is nested calls of ours
_uncollected = _while_in_use(_pause_collector)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """For tracing and compiling. A trace makes hundreds of thousands of objects that live until it ends: looking through them
    for garbage, again and again, takes a third of the time and finds nothing.
    """
    with deep_recursion(), _uncollected():
        yield
