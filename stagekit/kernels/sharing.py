"""Whether arrays share memory: what a program of a kernel writes, another one may still have to read.

checked_out(x[:], x)           x[:]: each program writes what it alone has read
checked_out(x[1:], x[:-1])     refused
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from stagekit.kernels.host import is_array, remembered, require, require_shape


class Footprint(NamedTuple):
    """Where the elements of an array lie. start: the address of the first; strides and itemsize in bytes."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


def checked_out(
    out: Any, *inputs: Any, apart: tuple[Any, ...] = (), shape: tuple[int, ...] | None = None, name: str = "out"
) -> Any:
    """Return `out`, an array to write. Refused: one that shares memory with an array that other programs may still read.

    inputs: of which each program reads what it then writes: `out` may have the very same elements. apart: it may not, of these,
    which may be None. shape: which `out` has, where the kernel sees its rows alone. name: what the caller calls it.
    """
    require(is_array(out), "{} is {!r}: it is an array", name, out)
    if shape is not None:
        require_shape(name, out, shape)
    strides = out.stride() if hasattr(out, "data_ptr") else getattr(out, "strides", None)
    if strides and _is_folded(tuple(out.shape), strides):
        require(False, "{} has several elements at one place in memory: give another array", name)
    ends = ends_of(out)
    others = [each for each in inputs if each is not out and not _is_outside(ends, each, out)]
    apart = tuple([each for each in apart if each is not None and not _is_outside(ends, each, out)])
    if not others and not apart:
        return out
    written = footprint_of(out)
    is_shared = any(share_memory(written, footprint_of(each), or_are_same=True) for each in others)
    is_shared |= any(share_memory(written, footprint_of(each)) for each in apart)
    require(not is_shared, "{} shares memory with an array that other programs still read: give another array", name)
    return out


@remembered
def _is_folded(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether steps along one axis, or along two, lead to the same place: elements there are written more than once."""
    axes = [(size, abs(stride)) for size, stride in zip(shape, strides) if size > 1]
    pairs = [(one, other, math.gcd(one[1], other[1])) for one, other in itertools.combinations(axes, 2)]
    return 0 not in shape and (
        any(stride == 0 for _, stride in axes)
        or any(other[1] // step < one[0] and one[1] // step < other[0] for one, other, step in pairs)
    )


def ends_of(array: Any) -> tuple[int, int] | None:
    """Return the addresses of the first byte of an array of torch, whose strides are not negative, and of the one past the last;
    None for others.
    """
    if not hasattr(array, "data_ptr"):
        return None
    first = array.data_ptr()
    if array.is_contiguous():
        return first, first + array.nbytes
    elements = 1
    for size, stride in zip(array.shape, array.stride()):
        elements += (size - 1) * stride
    return first, first + elements * array.element_size()


def _is_outside(ends: tuple[int, int] | None, array: Any, out: Any) -> bool:
    """Return whether an array is seen at once to share no memory with `out`, as most: all its bytes are outside of those ends."""
    if ends is None:
        return type(array) is type(out) is np.ndarray and not np.may_share_memory(array, out)
    own = ends_of(array)
    return own is not None and (own[1] <= ends[0] or ends[1] <= own[0])


def footprint_of(array: Any) -> Footprint | None:
    """Return where an array of NumPy, CuPy, torch or stagekit lies; None for one that does not say it."""
    if hasattr(array, "data_ptr"):  # torch, whose strides count elements
        itemsize = array.element_size()
        return Footprint(array.data_ptr(), tuple(array.shape), tuple([s * itemsize for s in array.stride()]), itemsize)
    interface = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None)
    if interface is None:
        return None
    shape, itemsize = tuple(interface["shape"]), int(interface["typestr"][2:])
    in_c_order = tuple([math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape))])
    return Footprint(interface["data"][0], shape, interface.get("strides") or in_c_order, itemsize)


def share_memory(one: Footprint | None, other: Footprint | None, *, or_are_same: bool = False) -> bool:
    """Return whether arrays share memory; also True for some that interleave without a common period.

    or_are_same: False for arrays of the very same elements.
    """
    if one is None or other is None or (or_are_same and one == other):
        return False
    (first, end), (other_first, other_end) = _bounds(one), _bounds(other)
    if end <= other_first or other_end <= first or 0 in (*one.shape, *other.shape):
        return False
    a, b = _plain(one), _plain(other)
    if or_are_same and a == b:
        return False
    distance = other_first - first
    return not any(_interleave(a, b, distance, period) for period in {*map(abs, (*a.strides, *b.strides))} - {0})


def _bounds(footprint: Footprint) -> tuple[int, int]:
    """Return the addresses of the first byte, and of the one past the last."""
    first = last = footprint.start
    for size, stride in zip(footprint.shape, footprint.strides):
        if stride > 0:
            last += (size - 1) * stride
        else:
            first += (size - 1) * stride
    return first, last + footprint.itemsize


def _plain(footprint: Footprint) -> Footprint:
    """Return the same with the stride 0 along axes of one element, where it means nothing."""
    steps = tuple([stride if size > 1 else 0 for size, stride in zip(footprint.shape, footprint.strides)])
    return footprint._replace(strides=steps)


def _interleave(a: Footprint, b: Footprint, distance: int, period: int) -> bool:
    """Return whether both repeat with a period, in bytes, of which they use different parts."""
    width, other_width = _width(a, period), _width(b, period)
    offset = distance % period
    return width <= offset and offset + other_width <= period


def _width(footprint: Footprint, period: int) -> int:
    """Return how many bytes lie between the first and the last that are used of each period, strides by whole ones apart."""
    steps = zip(footprint.shape, footprint.strides)
    return footprint.itemsize + sum([(size - 1) * abs(stride) for size, stride in steps if stride % period])
