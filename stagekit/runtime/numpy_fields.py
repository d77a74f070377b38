"""Where NumPy keeps the address and the flags of an array, read without a call: half of what a launch costs otherwise.

    fields = fields_of(array)       # `fields.data`, `fields.flags`, valid as long as the array

The layout is that of `PyArrayObject_fields` in NumPy's headers, whose macros every extension module compiles in, so it
cannot change within an ABI. It is tried on import, on arrays whose answers are known; should one differ, `fields_of`
reads the documented `__array_struct__` instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

C_CONTIGUOUS = 0x1
WRITEABLE = 0x400
"""Bits of `flags`, in both structs."""

_Array = np.ndarray[Any, Any]


class _Object(ctypes.Structure):
    _fields_ = (
        ("header", ctypes.c_byte * object.__basicsize__),
        ("data", ctypes.c_size_t),
        ("nd", ctypes.c_int),
        ("dimensions", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("descr", ctypes.c_void_p),
        ("flags", ctypes.c_int),
    )


class _Interface(ctypes.Structure):
    _fields_ = (
        ("two", ctypes.c_int),
        ("nd", ctypes.c_int),
        ("typekind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_size_t),
        ("descr", ctypes.c_void_p),
    )


_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def fields_by_layout(array: _Array) -> Any:
    """`data` and `flags` where they lie in the object."""
    return _Object.from_address(id(array))


def fields_by_interface(array: _Array) -> Any:
    """`data` and `flags` from `__array_struct__`."""
    capsule = array.__array_struct__
    interface = _Interface.from_address(_capsule_pointer(capsule, None))
    return _Interface.from_buffer_copy(interface)  # the capsule takes the struct with it


def _layout_is_known() -> bool:
    base = np.arange(24.0).reshape(4, 6)
    frozen = base[1:]
    frozen.flags.writeable = False
    return all(_agrees(probe) for probe in (base, base[::2, 1:], base.T, frozen, base[2, 3:3], np.array(1, "i1")))


def _agrees(probe: _Array) -> bool:
    """Do the fields say what the attributes say? `nd` first: with another layout the rest may be anything."""
    fields = fields_by_layout(probe)
    bits = C_CONTIGUOUS * probe.flags.c_contiguous | WRITEABLE * probe.flags.writeable
    return (
        type(probe) is np.ndarray
        and fields.nd == probe.ndim
        and fields.data == probe.__array_interface__["data"][0]
        and fields.flags & (C_CONTIGUOUS | WRITEABLE) == bits
        and fields.descr == id(probe.dtype)
        and _words(fields.dimensions, probe.ndim) == probe.shape
        and _words(fields.strides, probe.ndim) == probe.strides
    )


def _words(address: int | None, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_ssize_t * count).from_address(address)) if count and address else ()


def has_layout(offsets: Mapping[str, int]) -> bool:
    """Are these fields where the object really has them, as far as known arrays tell?"""
    names = {
        "data": "data",
        "rank": "nd",
        "shape": "dimensions",
        "strides": "strides",
        "dtype": "descr",
        "flags": "flags",
    }
    return fields_of is fields_by_layout and all(getattr(_Object, names[n]).offset == at for n, at in offsets.items())


fields_of: Callable[[_Array], Any] = fields_by_layout if _layout_is_known() else fields_by_interface
