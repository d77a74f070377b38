"""The table of planted faults: what a row is, and the decorators that add one.

@fault("OUT_OF_BOUNDS", "reads element 60 of `A`", (1, 64), {"A": zeros(60), "out": zeros(64)})
def read_past_the_end(A, out): ...                    one small kernel, one mistake, and what must be said of it

@clean((1, 64), {"A": zeros(64), "out": zeros(64)})
def read_to_the_end(A, out): ...                      its look-alike, of which nothing may be said
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import stagekit as sk

thread, block = sk.cuda.thread_idx, sk.cuda.block_idx

FULL = 0xFFFFFFFF  # the mask of a whole warp

Arguments = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""By name. A function where arrays must be in a state that no copy has, such as freed."""


@dataclass(frozen=True)
class Planted:
    """A kernel with its launch, the id that it must give (None for a look-alike) and a fragment of the text.

    options: of `sk.sanitize`. also: ids that belong to the fault as much as the one that is expected.
    """

    kernel: Any
    id: str | None
    fragment: str
    brackets: Any
    arguments: Arguments
    options: Mapping[str, Any]
    also: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)

    def fresh_arguments(self) -> dict[str, Any]:
        """Arguments of its own: a case that runs twice starts from the same contents."""
        if callable(self.arguments):
            return dict(self.arguments())
        return {n: _own(v) if isinstance(v, np.ndarray) and v.flags.writeable else v for n, v in self.arguments.items()}


CASES: list[Planted] = []


def fault(
    id: str, fragment: str, brackets: Any, arguments: Arguments, also: Collection[str] = (), **options: Any
) -> Callable[[Callable[..., None]], Any]:
    """Register a kernel with a mistake. options: of `sk.sanitize`."""

    def register(function: Callable[..., None]) -> Any:
        kernel = sk.jit(function)
        CASES.append(Planted(kernel, id, fragment, brackets, arguments, options, frozenset(also)))
        return kernel

    return register


def clean(brackets: Any, arguments: Arguments, **options: Any) -> Callable[[Callable[..., None]], Any]:
    """Register a look-alike without the mistake."""

    def register(function: Callable[..., None]) -> Any:
        kernel = sk.jit(function)
        CASES.append(Planted(kernel, None, "", brackets, arguments, options))
        return kernel

    return register


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def ints(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


def _own(array: Any) -> Any:
    """A view of the same layout in a buffer of its own."""
    if array.base is None:
        return array.copy()
    memory = array.base if array.base.base is None else array.base.base
    offset = array.ctypes.data - memory.ctypes.data
    return np.ndarray(array.shape, array.dtype, memory.copy().data, offset, array.strides)


def raw_bytes(count: int) -> Any:
    return np.zeros(count, np.uint8)
