"""Arrays of 32 float32, by the library that they are of."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np

SIZE = 32  # elements: one small block, so that a launch is what is measured
MOST = 16


@dataclass(frozen=True)
class Arrays:
    """library: as in tables."""

    library: str
    items: list[Any]

    def names(self, count: int) -> dict[str, Any]:
        return {f"x{i}": array for i, array in enumerate(self.items[:count])}


def cpu_arrays() -> list[Arrays]:
    return [Arrays("NumPy", [np.ones(SIZE, np.float32) for _ in range(MOST)])]


def cuda_arrays() -> list[Arrays]:
    """Of torch and CuPy where they are installed, and stagekit's own."""
    found = []
    if importlib.util.find_spec("torch") is not None:
        import torch

        found.append(Arrays("torch", [torch.ones(SIZE, device="cuda") for _ in range(MOST)]))
    if importlib.util.find_spec("cupy") is not None:
        import cupy

        found.append(Arrays("CuPy", [cupy.ones(SIZE, cupy.float32) for _ in range(MOST)]))
    import stagekit as sk

    return [*found, Arrays("stagekit's", [sk.cuda.to_device(np.ones(SIZE, np.float32)) for _ in range(MOST)])]


def listed(count: int, *more: str) -> str:
    """`x0, x1`, and what else stands in a call."""
    return ", ".join([*(f"x{i}" for i in range(count)), *more])
