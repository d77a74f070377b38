"""Where CuPy keeps an array's address, sizes and strides: read from the object, a launch saves 0.2 µs per array.

CuPy promises no layout, so it is tried on arrays whose answers are known before anything relies on it; they stand on an
address that is never used. Where it differs, launchers ask for attributes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from stagekit import native_tables as tables

_SHAPES = ((), (7,), (3, 5), (2, 3, 4, 5))
_ADDRESS, _OFFSET, _DEVICE = 0x7F0000000000, 48, 3


def has_layout(cupy: Any) -> bool:
    """Do CuPy's objects have their fields where `native_tables` says, as far as known arrays tell?"""
    try:
        return all(_agrees(probe) for probe in _probes(cupy))
    except (AttributeError, TypeError, ValueError, RuntimeError):  # another CuPy than those that were looked at
        return False


def _probes(cupy: Any) -> Iterator[Any]:
    memory = cupy.cuda.UnownedMemory(_ADDRESS, 4096, None, device_id=_DEVICE)
    pointer = cupy.cuda.MemoryPointer(memory, _OFFSET)
    for shape in _SHAPES:
        whole = cupy.ndarray(shape, "float32", memptr=pointer)
        yield whole
        yield whole.T
        yield cupy.ndarray(
            shape, "float64", memptr=pointer, strides=tuple(16 * (axis + 1) for axis in range(len(shape)))
        )


def _agrees(array: Any) -> bool:
    """The objects first: with another layout the words of the vectors may be anything."""
    fields, rank = tables.CUPY, array.ndim
    if type(array).__basicsize__ < max(fields.values()) + tables.WORD:
        return False
    data, shape, end, strides = (_word(array, fields[name]) for name in ("data", "shape", "shape_end", "strides"))
    return (
        _word(array, fields["dtype"]) == id(array.dtype)
        and data == id(array.data)
        and end - shape == tables.WORD * rank
        and _word(array, fields["strides"] + tables.WORD) - strides == tables.WORD * rank
        and _words(shape, rank) == array.shape
        and _words(strides, rank) == array.strides
        and _points_right(array.data)
    )


def _points_right(pointer: Any) -> bool:
    """Of `data`: address and device."""
    fields = tables.CUPY_POINTER
    if type(pointer).__basicsize__ < max(fields.values()) + tables.WORD:
        return False
    device = ctypes.c_int32.from_address(id(pointer) + fields["device"]).value
    return (_word(pointer, fields["ptr"]), device) == (pointer.ptr, pointer.device_id)


def _word(value: Any, offset: int) -> int:
    return ctypes.c_uint64.from_address(id(value) + offset).value


def _words(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address)) if count else ()
