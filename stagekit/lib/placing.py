"""How a new tile lies over the threads of the block where nothing else decides, and what may be said of its extents."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

import stagekit as sk
from stagekit.lib import layout as layouts
from stagekit.lib.layout import Digit, Layout, Shape, blocked, cpu_threads, default_threads, enumerated, width_for

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
    return layout_of(shape, _size_of(shape))


@functools.cache
def _size_of(shape: Shape) -> str:
    return f"the number of elements of shape {shape}"


@functools.cache
def regrouped(layout: Layout, shape: Shape, most: int) -> Layout | None:
    """Return the layout of a tile of another shape in which each thread has the same elements; None where digits cannot say it.

    most: elements of a vector.
    """
    steps = [math.prod(layout.shape[axis + 1 :]) for axis in range(len(layout.shape))]
    found = [_split_up([(d.radix, d.stride * steps[d.axis]) for d in digits], shape) for digits in _digits(layout)]
    if None in found:
        return None
    registers, lanes = [_merged(digits or ()) for digits in found]
    width = math.gcd(registers[0].radix, most) if registers and registers[0].stride == 1 else 1
    other = layouts.layout_of(shape, layout.threads, registers, lanes, width)
    return other if np.array_equal(enumerated(other), enumerated(layout)) else None


def _digits(layout: Layout) -> tuple[tuple[Digit, ...], ...]:
    return layout.registers, layout.lanes


def _split_up(counts: Iterable[tuple[int, int]], shape: Shape) -> list[Digit] | None:
    """Return digits along the axes of a shape for numbers that count elements in C order, each a radix and a stride."""
    found = list[Digit]()
    for radix, stride in counts:
        for axis in reversed(range(len(shape))):
            step = math.prod(shape[axis + 1 :])
            if stride % step == 0 and stride < step * shape[axis] and radix > 1:
                here = min(radix, max(shape[axis] * step // stride, 1)) if stride else radix
                if radix % here:
                    return None
                found.append(Digit(here, axis if stride else 0, stride // step))
                radix, stride = radix // here, stride * here
        if radix > 1:
            return None
    return found


def _merged(digits: Iterable[Digit]) -> list[Digit]:
    """Return digits of which those that count on along an axis where the one before ends are one with it."""
    found = list[Digit]()
    for digit in digits:
        if found and digit.axis == found[-1].axis and digit.stride == found[-1].stride * found[-1].radix:
            found[-1] = found[-1]._replace(radix=found[-1].radix * digit.radix)
        else:
            found.append(digit)
    return found


def is_int(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def plain_int(value: Any) -> int:
    """Return a Python int: those of NumPy would wrap."""
    plain: int = value if isinstance(value, int) else value.item()
    return plain


def require_dtype(function: str, dtype: Any) -> None:
    if not isinstance(dtype, sk.DType) or dtype.part is not None:
        sk.static_assert(False, f"{function}: dtype must be one of real numbers, such as sk.float32, got {dtype!r}")
