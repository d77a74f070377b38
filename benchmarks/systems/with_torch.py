"""torch's own operations that take as many arrays; it makes no kernels at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from systems.arrays import Arrays

NAME = "torch"
STATEMENTS = {2: "torch.add(x0, 1, out=x1)", 4: "torch.addcmul(x0, x1, x2, out=x3)"}


def launches(arrays: Arrays, count: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if arrays.library == "torch" and count in STATEMENTS:
        yield STATEMENTS[count], STATEMENTS[count], {**arrays.names(count), "torch": torch}


def specialisations(target: str) -> dict[str, Callable[[int], None]]:
    return {}
