"""Numba-CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import cuda

from systems.arrays import SIZE, Arrays, listed

NAME = "Numba-CUDA"


def _take(count: int) -> Any:
    names = [f"a{i}" for i in range(count)]
    total = " + ".join(f"{name}[i]" for name in names[:-1])
    body = f"i = cuda.threadIdx.x\n    if i < {names[-1]}.size:\n        {names[-1]}[i] = {total}" if count else "pass"
    space: dict[str, Any] = {"cuda": cuda}
    exec(f"def take({', '.join(names)}):\n    {body}", space)
    return cuda.jit(space["take"])


def launches(arrays: Arrays, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Numba's own arrays, since it reads others by an interface that costs it far more."""
    if arrays.library != "stagekit's":
        return
    own = [cuda.to_device(np.ones(SIZE, np.float32)) for _ in range(count)]
    kernel = _take(count)
    kernel[1, SIZE](*own)
    names = {f"x{i}": array for i, array in enumerate(own)}
    yield "positional, its own arrays", f"k[1, {SIZE}]({listed(count)})", {**names, "k": kernel}


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    x, y = (cuda.to_device(np.ones(256, np.float32)) for _ in range(2))
    cuda.synchronize()

    def make(salt: int) -> None:
        @cuda.jit
        def add(a, b):
            i = cuda.grid(1)
            if i < a.size:
                b[i] = a[i] + salt

        add[1, 256](x, y)
        cuda.synchronize()

    return {"add": make}
