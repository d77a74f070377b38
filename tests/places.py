"""Where a test runs a kernel: NumPy arrays on the CPU, or device arrays on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk


def on_cpu(array: np.ndarray) -> Any:
    return array.copy()


def on_gpu(array: np.ndarray) -> Any:
    return sk.cuda.to_device(array)


def fetch(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.to_host()


Place = Callable[[np.ndarray], Any]

each_place = pytest.mark.parametrize(
    "place", [pytest.param(on_cpu, id="cpu"), pytest.param(on_gpu, id="gpu", marks=pytest.mark.gpu)]
)


def run(place: Place, launch: Any, arrays: list[np.ndarray], *arguments: Any, **named: Any) -> list[np.ndarray]:
    """Launch on copies of `arrays` and give back what became of them."""
    placed = [place(a) for a in arrays]
    launch(*placed, *arguments, **named)
    return [fetch(a) for a in placed]
