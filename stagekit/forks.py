"""Locks that survive a fork: in the child the other threads are gone, and what they held would stay held.

    lock = new_lock()             reentrant; free in a child, unless the thread that forks holds it itself
    table = Once()                entries that are made when they are first asked for
    hold_while_forking(lock)      no thread holds it when the child starts: for code that a fork must not stop half-way
    with importing: import x      a module that a function imports, which a child would wait for if it were half imported
    @cached_property              a property that is computed once

What these locks guard is changed in one step at the end, so the child finds it whole, and does unfinished work anew.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> Any:
    """Return a reentrant lock that a forked child can take."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


class Once(dict[K, V]):
    """A table whose entries are made when they are first asked for: one thread makes an entry, the others wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = new_lock()

    def of(self, key: K, make: Callable[[], V]) -> V:
        """Return the entry of `key`. A failure of `make` leaves nothing behind."""
        found = self.get(key)
        if found is None:
            with self._lock:
                found = self.get(key)
                if found is None:
                    found = self[key] = make()
        return found


class cached_property(functools.cached_property[V]):  # as the standard library spells it
    """The standard library's, without the lock that Python 3.11 holds while any object's property of this name is computed: a
    child would wait for it. Two threads may compute the same value.
    """

    def __set_name__(self, owner: type[Any], name: str) -> None:
        super().__set_name__(owner, name)
        self.lock = nullcontext()


def _free_locks() -> None:
    for lock in _locks:
        if not lock._is_owned():
            lock._at_fork_reinit()  # as the `logging` of the standard library does with its own


def hold_while_forking(lock: AbstractContextManager[Any]) -> None:
    """Have every fork take this lock before, behind those that were given earlier, and release it after, in both processes."""
    _held_by_forks.append(lock)


_held_by_forks: list[AbstractContextManager[Any]] = []
_taken: list[AbstractContextManager[Any]] = []  # by the fork that is under way, which has the first of all


def _take_all() -> None:
    for lock in _held_by_forks:  # one may be added by a thread that this waits for
        lock.__enter__()
        _taken.append(lock)


def _release_all() -> None:
    while _taken:
        _taken.pop().__exit__(None, None, None)


importing = threading.RLock()
"""Held while a function of this package imports a module: CPython does not free the locks of modules in a child. A fork takes it
before any other, as a module may call what these guard.
"""

hold_while_forking(importing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)
    os.register_at_fork(before=_take_all, after_in_parent=_release_all, after_in_child=_release_all)
