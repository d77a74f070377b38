"""Machine code that is made from a text alone, such as that of launchers: from disk, or made now and put there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagekit.cache.store import entry_name, open_store
from stagekit.cache.versions import versions


def kept(kind: str, words: Sequence[str], make: Callable[[], bytes]) -> bytes:
    """What `make` gives. words: all that decides about it, except the versions. kind: the first part of the entry's name."""
    store = open_store()
    ours = versions() if store else None
    if store is None or ours is None:
        return make()
    name = entry_name(kind, ours, *words)
    code = store.load(name)
    if code is None:
        code = make()
        store.save(name, code)
    return code
