"""Native parameters in memory: a Python or NumPy number as the value of a scalar parameter, and the slots that hold values.

    convert(ScalarSpec("n", int32), np.int64(7))       7
    convert(ScalarSpec("eps", float16), 1e-8)          0       the bits of what it is rounded to, once, to nearest even
    convert(ScalarSpec("n", int32), 7.0)               refused: floats never become integers
    convert(ScalarSpec("n", uint8), -1)                refused: does not fit
    packer = Packer(signature.slots, extra="3q")       behind the slots, in eight bytes each, three int64
    buffer = packer.pack((address, n, 3.0), grid)
    buffer.address                                     of slot 0, what a CPU entry takes
    buffer.pointers                                    of an array of pointers to each, what cuLaunchKernel takes

Integers and bools are accepted for every dtype, floats for float dtypes. NumPy scalars count as the Python number of their
kind. What `convert` gives is what `struct` packs: an int, a float, or the bits of a 16- or 8-bit float. A slot holds its
value in its own width at the low end. Each launch has a buffer to itself, so that threads may launch one kernel at the same
time.
"""

from __future__ import annotations

import ctypes
import functools
import numbers
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from stagekit.dtypes import dtype_from_numpy, number_as
from stagekit.native_tables import WORD
from stagekit.runtime.args import describe
from stagekit.runtime.errors import ArgumentError, FloatForInteger, IntegerOutOfRange, NotANumber
from stagekit.signature import ParamSlot, ScalarSpec, slot_offsets

_BITS = {8: np.uint8, 16: np.uint16}


def convert(spec: ScalarSpec, value: Any) -> int | float:
    """The native value of `value`, or an `ArgumentError` that names the parameter."""
    dtype = spec.dtype
    try:
        number = _python_number(value)
    except Exception:  # a subclass of int or float may answer as it likes
        number = None
    if number is None:
        is_in_array = type(value) is np.ndarray and value.ndim == 0
        hint = f"pass the number in the array: `{spec.name}[()]`" if is_in_array else ""
        raise ArgumentError(NotANumber(spec.name, dtype.name, describe(value), hint))
    if dtype.is_float:
        rounded = number_as(number, dtype.numpy)
        return float(rounded) if dtype.bits >= 32 else int(rounded.view(_BITS[dtype.bits]))
    if isinstance(number, float):
        raise ArgumentError(FloatForInteger(spec.name, dtype.name, describe(value)))
    if not dtype.holds(number):
        raise ArgumentError(IntegerOutOfRange(spec.name, number, dtype.name, dtype.min, dtype.max))
    return number


def _python_number(value: Any) -> int | float | None:
    """`value` as an exact int or float; None where it is neither a real number of Python nor a NumPy scalar."""
    if isinstance(value, (bool, np.bool_, numbers.Integral)):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.generic):
        dtype = dtype_from_numpy(value.dtype)
        return float(value) if dtype is not None and dtype.is_float else None
    return None


class Buffer:
    """Memory for the parameters of one launch. offsets: of each parameter, and where they end."""

    __slots__ = ("_offsets", "_pointers", "address", "memory")

    def __init__(self, offsets: Sequence[int]) -> None:
        self._offsets = offsets
        self.memory = _array_type(ctypes.c_uint64, offsets[-1] // WORD or 1)()
        self.address = ctypes.addressof(self.memory)

    @property
    def pointers(self) -> int:
        """Where pointers to each parameter are."""
        places = self._offsets[:-1]
        self._pointers = _array_type(ctypes.c_void_p, len(places) or 1)(*[self.address + place for place in places])
        return ctypes.addressof(self._pointers)


@functools.cache
def _array_type(kind: Any, length: int) -> Any:
    """A type that nobody kept would be made anew for each buffer, and be garbage after it."""
    return kind * length


class Packer:
    """Writes values into buffers. extra: `struct` codes of eight bytes each that follow the slots."""

    def __init__(self, slots: Sequence[ParamSlot], extra: str = "") -> None:
        self._struct = struct.Struct("<" + "".join(map(_slot_format, slots)) + extra)
        end = slot_offsets(slots)
        self._offsets = [*end[:-1], *range(end[-1], self._struct.size + 1, WORD)]

    def pack(self, values: Sequence[int | float], extra: Sequence[int] = ()) -> Buffer:
        buffer = Buffer(self._offsets)
        self._struct.pack_into(buffer.memory, 0, *values, *extra)
        return buffer


def _slot_format(slot: ParamSlot) -> str:
    """The `struct` code of a slot, filled up to its size. Floats of less than 32 bits come as their bits."""
    dtype, place = slot.dtype, slot.dtype.itemsize.bit_length() - 1
    if slot.kind != "value":
        code = "Q" if slot.kind == "address" else "q"
    elif dtype.is_float and dtype.bits >= 32:
        code = "fd"[place - 2]
    else:
        code = ("bhiq" if dtype.kind == "int" else "BHIQ")[place]
    return f"{code}{slot.size_bytes - struct.calcsize('<' + code)}x"
