"""What shapes code besides the kernel: the state of this package, of Python and of NumPy. Part of every key.

The package is known by its files rather than by its version, so that work on stagekit itself never meets its own past.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np


@functools.cache
def versions() -> str:
    """A digest; NumPy counts since constants are folded with it."""
    words = (sys.version, platform.machine(), np.__version__, ml_dtypes.__version__, *_package_files())
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _package_files() -> Iterator[str]:
    """Name, size and time of every module of this package."""
    root = Path(__file__).parents[1]
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n != "__pycache__")
        for file in sorted(f for f in files if f.endswith(".py")):
            found = os.stat(os.path.join(folder, file))
            yield f"{folder.removeprefix(str(root))}/{file} {found.st_size} {found.st_mtime_ns}"
