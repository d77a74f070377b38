"""NumPy's own operations that take as many arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from systems.arrays import Arrays

NAME = "NumPy"
STATEMENTS = {2: "np.positive(x0, x1)", 4: "np.clip(x0, x1, x2, x3)"}


def launches(arrays: Arrays, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if count in STATEMENTS:
        yield STATEMENTS[count], STATEMENTS[count], {**arrays.names(count), "np": np}


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    return {}
