"""How a new tile lies over the threads of the block where nothing else decides, and what may be said of its extents."""

from __future__ import annotations

import math
import numbers
from typing import Any

import stagekit as sk
from stagekit.lib.layout import Layout, Shape, blocked, cpu_threads, default_threads, width_for

MAX_AXES = 4
MAX_EXTENT = 1 << 20  # 1024 elements per thread; far above it the unrolled code would not be worth having


@sk._direct
def layout_of(shape: Shape, what: str) -> Layout:
    """Return how a tile of `shape` lies over the block as memory has it. The block gets as many threads as the tile wants."""
    extent = shape[0] if len(shape) == 1 else math.prod(shape)
    threads = sk._block_threads(extent, what, _default_threads)
    if extent > MAX_EXTENT:
        sk.static_assert(False, f"a tile has at most {MAX_EXTENT} elements, and {what} is {extent}")
    return blocked(shape, threads, width_for(shape, threads, sk._vector_width()))


def _default_threads(extent: int) -> int:
    return cpu_threads(extent) if sk._is_for_cpu() else default_threads(extent, sk._vector_width())


@sk._direct
def layout_for(shape: Shape) -> Layout:
    """Return how a tile of `shape` lies over the block where nothing else decides."""
    return layout_of(shape, f"the number of elements of shape {shape}")


def is_int(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def plain_int(value: Any) -> int:
    """Return a Python int: those of NumPy would wrap."""
    plain: int = value if isinstance(value, int) else value.item()
    return plain


def require_dtype(function: str, dtype: Any) -> None:
    if not isinstance(dtype, sk.DType):
        sk.static_assert(False, f"{function}: dtype must be a dtype such as sk.float32, got {dtype!r}")
