"""Where the examples run: on the CPU, and on the GPU as well when there is one."""

from __future__ import annotations

from typing import Any

import numpy as np

import stagekit as sk


def devices() -> list[str]:
    """The CPU always, the GPU if one answers."""
    return ["cpu", "gpu"] if sk.cuda.is_available() else ["cpu"]


def place(array: np.ndarray, device: str) -> Any:
    """The array, where kernels on `device` can use it."""
    return sk.cuda.to_device(array) if device == "gpu" else array.copy()


def fetch(array: Any) -> np.ndarray:
    """The array back as NumPy's; waits for the device."""
    return array if isinstance(array, np.ndarray) else array.to_host()
