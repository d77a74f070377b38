"""Where NumPy keeps an array's address: read from the object, it costs a tenth of what NumPy's own attributes cost.

The layout is that of `PyArrayObject_fields` in NumPy's headers (`native_tables.NDARRAY`), whose macros every extension module
compiles in, so it cannot change within an ABI. It is tried on arrays whose answers are known before anything relies on it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit import native_tables as tables

C_CONTIGUOUS = 0x1
WRITEABLE = 0x400
"""Bits of `flags`."""

_Array = np.ndarray[Any, Any]


@functools.cache
def has_layout() -> bool:
    """Are the fields where `native_tables` says, as far as known arrays tell?"""
    base = np.arange(24.0).reshape(4, 6)
    frozen = base[1:]
    frozen.flags.writeable = False
    return all(map(_agrees, (base, base[::2, 1:], base.T, frozen, base[2, 3:3], np.array(1, "i1"))))


def _agrees(probe: _Array) -> bool:
    """Do the fields say what the attributes say? The rank first: with another layout the rest may be anything."""
    bits = C_CONTIGUOUS * probe.flags.c_contiguous | WRITEABLE * probe.flags.writeable
    return (
        _word(probe, "rank", ctypes.c_int) == probe.ndim
        and _word(probe, "data") == probe.ctypes.data
        and _word(probe, "flags", ctypes.c_int) & (C_CONTIGUOUS | WRITEABLE) == bits
        and _word(probe, "dtype") == id(probe.dtype)
        and _words(_word(probe, "shape"), probe.ndim) == probe.shape
        and _words(_word(probe, "strides"), probe.ndim) == probe.strides
    )


def _word(array: _Array, field: str, kind: Any = ctypes.c_size_t) -> int:
    number: int = kind.from_address(id(array) + tables.NDARRAY[field]).value
    return number


def _words(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_ssize_t * count).from_address(address)) if count else ()


_DATA = tables.NDARRAY["data"]


def _address_in_object(array: _Array) -> int:
    return ctypes.c_size_t.from_address(id(array) + _DATA).value


def _address_by_interface(array: _Array) -> int:
    return array.ctypes.data


address_of: Callable[[_Array], int] = _address_in_object if has_layout() else _address_by_interface
"""The address of an array's first element."""
