"""Python's recursion limit while kernels are traced and compiled: what nests in a kernel is nested calls here."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_LIMIT = 12_000  # the tracer's own budget of nested calls ends far below it

_lock = threading.Lock()
_users = 0
_before = 0


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise the limit until the last thread that needs it has left."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_LIMIT, _before))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setrecursionlimit(_before)
