"""What is kept under which name: the versions of all that shapes code, which are part of every key, and reading what a key names.

The package is known by the contents of its files rather than by its version, so that work on stagekit itself never meets its own
past, and two copies of it never share what only one of them made.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import ml_dtypes
import numpy as np

from stagekit.cache.store import entry_name, open_store

T = TypeVar("T")
_IMPORTED_AT_S = time.time()


def read_or_make(
    kind: str,
    words: Sequence[str],
    make: Callable[[], T],
    read: Callable[[bytes], T | None],
    write: Callable[[T], bytes | None],
) -> tuple[T, bool]:
    """Return what `make` gives, from disk where it is there; and whether it was.

    kind: the first part of the entry's name. words: all that decides about it, except the versions. read: gives None for what is
    to be made anew. write: gives None for what cannot be kept.
    """
    store = open_store()
    ours = versions() if store else None
    if store is None or ours is None:
        return make(), False
    name = entry_name(kind, ours, *words)
    payload = store.load(name)
    found = None if payload is None else read(payload)
    if found is not None:
        return found, True
    made = make()
    written = write(made)
    if written is not None:
        store.save(name, written)
    return made, False


def kept(kind: str, words: Sequence[str], make: Callable[[], bytes]) -> bytes:
    """Return machine code that follows from a text alone, such as that of launchers."""
    code, _ = read_or_make(kind, words, make, bytes, bytes)
    return code


@functools.cache
def versions() -> str | None:
    """A digest, made when the disk is first used; None where the package's contents cannot be read, so nothing may be kept.

    NumPy counts since constants are folded with it.
    """
    found = hashlib.sha256("\n".join((sys.version, platform.machine(), np.__version__, ml_dtypes.__version__)).encode())
    loader = getattr(__spec__, "loader", None)
    archive = getattr(loader, "archive", None)  # the zip file that the package is imported from
    root = os.path.dirname(archive or os.path.dirname(__file__))
    paths = [archive] if archive else list(_module_files(root))
    try:
        for path in paths:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_mtime > _IMPORTED_AT_S:  # what runs here is not what lies there now
                    return None
                content = file.read()
            found.update(f"\n{path.removeprefix(root)} {len(content)}\n".encode() + content)
    except OSError:
        return None
    return found.hexdigest() if archive or __file__ in paths else None


def _module_files(root: str) -> Iterator[str]:
    """In a fixed order. A module may be there as bytecode only."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n != "__pycache__")
        yield from (os.path.join(folder, file) for file in sorted(files) if file.endswith((".py", ".pyc")))
