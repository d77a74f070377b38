"""Changes of Python's containers: allowed for those made in the kernel, and noted so that they can be undone.

A change that adds or takes one item notes that item alone, so that a loop of a thousand appends does not hold a thousand copies.
Other changes note the whole contents of the container.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.diagnostics import shown
from stagekit.frontend.evaluation import Site
from stagekit.frontend.python_calls import native_argument, restorer
from stagekit.frontend.values import BoundMethod

_MUTATORS: tuple[tuple[type, str], ...] = (
    (list, "append extend insert pop remove clear reverse sort __setitem__ __delitem__ __iadd__ __imul__"),
    (dict, "pop popitem clear update subtract setdefault __setitem__ __delitem__ __ior__ move_to_end"),
    (set, "add discard remove pop clear update difference_update intersection_update symmetric_difference_update"),
    (deque, "append appendleft extend extendleft insert pop popleft remove rotate clear reverse __iadd__ __imul__"),
    (bytearray, "append extend insert pop remove clear reverse __iadd__ __imul__"),
    (np.ndarray, "fill sort partition put itemset resize setfield setflags byteswap"),
)
_CHANGES = frozenset(name for _, names in _MUTATORS for name in names.split())

Undo = Callable[[], None]


def changes(owner: Any, name: str) -> bool:
    """Return whether `owner.name` is a method that changes a container."""
    return name in _CHANGES and any(name in names.split() for kind, names in _MUTATORS if isinstance(owner, kind))


def container_method(site: Site, owner: Any, name: str) -> BoundMethod:
    """Return a method that changes a container, and that checks and notes the change in the journal first."""

    def run(*args: Any, **kwargs: Any) -> Any:
        what = f"`.{name}(...)` of a {type(owner).__name__}"
        site.tracer.check_mutable(owner, what, site.loc)
        given = [native_argument(site, a) for a in args]
        named = {key: native_argument(site, a) for key, a in kwargs.items()}
        site.tracer.journal.restructure(owner, what, _undo(owner, name, given))
        return getattr(owner, name)(*given, **named)

    return BoundMethod(owner, name, run)


def put_key(site: Site, owner: dict[Any, Any], key: Any, value: Any) -> None:
    """Put a new key into a dict, and note it in the journal."""
    what = f"a new key {shown(key)}"
    site.tracer.check_mutable(owner, what, site.loc)
    site.tracer.journal.restructure(owner, what, lambda: owner.__delitem__(key))
    site.static(lambda: owner.__setitem__(key, value))


# -- undoing changes ------------------------------------------------------------------------------------------------------


def _undo(owner: Any, name: str, args: list[Any]) -> Undo:
    """Return a function that undoes `owner.name(*args)`, which is about to happen."""
    single = _OF_ONE_ITEM.get((type(owner), name))
    return (single(owner, args) if single is not None else None) or restorer(owner)


def _shorten(owner: Any, args: list[Any]) -> Undo:
    return functools.partial(owner.__delitem__, slice(len(owner), None))


def _put_back(owner: list[Any], args: list[Any]) -> Undo | None:
    place = args[0] if args else -1
    if type(place) is not int or not -len(owner) <= place < len(owner):
        return None
    place %= len(owner)
    return functools.partial(owner.insert, place, owner[place])


def _take_out(owner: list[Any], args: list[Any]) -> Undo | None:
    if len(args) != 2 or type(args[0]) is not int:
        return None
    length, place = len(owner), args[0]
    at = max(place + length, 0) if place < 0 else min(place, length)
    return lambda: owner.__delitem__(at)


def _deque_end(method: str) -> Callable[[Any, list[Any]], Undo | None]:
    """Return how an `append` is undone: by a `pop` at the same end, unless an item falls out at the other end."""
    return lambda owner, args: None if len(owner) == owner.maxlen else getattr(owner, method)


def _deque_put_back(method: str, end: int) -> Callable[[Any, list[Any]], Undo | None]:
    """Return how a `pop` at one end is undone: by an `append` of that item."""
    return lambda owner, args: functools.partial(getattr(owner, method), owner[end]) if owner else None


# Changes of one item: (container, method) -> a function of the container and the arguments that returns how to undo the change,
# or None where that needs the whole contents.
_OF_ONE_ITEM: dict[tuple[type, str], Callable[[Any, list[Any]], Undo | None]] = {
    (list, "append"): _shorten,
    (list, "extend"): _shorten,
    (list, "__iadd__"): _shorten,
    (list, "pop"): _put_back,
    (list, "insert"): _take_out,
    (set, "add"): lambda owner, args: (
        None if len(args) != 1 or args[0] in owner else functools.partial(owner.discard, args[0])
    ),
    (deque, "append"): _deque_end("pop"),
    (deque, "appendleft"): _deque_end("popleft"),
    (deque, "pop"): _deque_put_back("append", -1),
    (deque, "popleft"): _deque_put_back("appendleft", 0),
}
