"""Numba on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np

from systems.arrays import Arrays, listed

NAME = "Numba"


def _take(count: int) -> Any:
    names = [f"a{i}" for i in range(count)]
    total = " + ".join(f"{name}[i]" for name in names[:-1])
    body = f"for i in range({names[-1]}.size):\n        {names[-1]}[i] = {total}" if count else "pass"
    space: dict[str, Any] = {}
    exec(f"def take({', '.join(names)}):\n    {body}", space)
    return numba.njit(space["take"])


def launches(arrays: Arrays, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    kernel, names = _take(count), arrays.names(count)
    kernel(*names.values())
    yield "positional", f"k({listed(count)})", {**names, "k": kernel}


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    x, y = np.ones(256, np.float32), np.ones(256, np.float32)

    def make(salt: int) -> None:
        @numba.njit
        def add(a, b):
            for i in range(a.size):
                b[i] = a[i] + salt

        add(x, y)

    return {"add": make}
