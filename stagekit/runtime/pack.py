"""Native parameters in memory: the slots, then whatever else a target wants to pass, in eight bytes each.

    packer = Packer(signature.slots, extra="3q")       # and three int64
    buffer = packer.pack((address, n, 3.0), grid)
    buffer.address                                     # of slot 0, what a CPU entry takes
    buffer.pointers                                    # of an array of pointers to each, what cuLaunchKernel takes

A slot holds its value in its own width at the low end. Each launch has a buffer to itself, so that threads may launch one
kernel at the same time.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any

from stagekit.native_tables import WORD
from stagekit.signature import ParamSlot, slot_offsets


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
