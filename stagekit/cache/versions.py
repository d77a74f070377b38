"""What shapes code besides the kernel: the state of this package, of Python and of NumPy. Part of every key.

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
from collections.abc import Iterator

import ml_dtypes
import numpy as np

_IMPORTED_AT_S = time.time()


@functools.cache
def versions() -> str | None:
    """A digest, made when the disk is first used; None where the package's contents cannot be read, so nothing may be kept.

    NumPy counts since constants are folded with it.
    """
    found = hashlib.sha256("\n".join((sys.version, platform.machine(), np.__version__, ml_dtypes.__version__)).encode())
    archive = getattr(
        getattr(__spec__, "loader", None), "archive", None
    )  # the zip file that the package is imported from
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
