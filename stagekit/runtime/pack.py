"""Native parameters in memory: the slots, then whatever else a target wants to pass, in eight bytes each.

    packer = Packer(signature.slots, extra="3q")       # and three int64
    buffer = packer.take((address, n, 3.0), grid)
    buffer.address                                     # of slot 0, what a CPU entry takes
    buffer.pointers                                    # of an array of pointers to each, what cuLaunchKernel takes
    packer.give_back(buffer)

A slot holds its value in its own width at the low end. Buffers are used again; a launch has one to itself, so that
threads may launch one kernel at the same time.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from stagekit.dtypes import DType
from stagekit.native_tables import WORD
from stagekit.signature import ParamSlot, slot_offsets


class Buffer:
    """Memory for the parameters of one launch."""

    __slots__ = ("address", "memory", "pointers", "pointers_memory")

    def __init__(self, offsets: Sequence[int]) -> None:
        """offsets: of each parameter, and where they end."""
        *places, size = offsets
        self.memory = (ctypes.c_uint64 * max(size // WORD, 1))()
        self.address = ctypes.addressof(self.memory)
        self.pointers_memory = (ctypes.c_void_p * max(len(places), 1))(*(self.address + place for place in places))
        self.pointers = ctypes.addressof(self.pointers_memory)


class Packer:
    """Writes values into a buffer. extra: `struct` codes of eight bytes each that follow the slots."""

    def __init__(self, slots: Sequence[ParamSlot], extra: str = "") -> None:
        self._struct = struct.Struct("<" + "".join(map(_slot_format, slots)) + extra)
        end = slot_offsets(slots)
        self._offsets = [*end[:-1], *range(end[-1], self._struct.size + 1, WORD)]
        self._free: list[Buffer] = []

    def take(self, values: Sequence[int | float], extra: Sequence[int] = ()) -> Buffer:
        """A buffer that holds both; `give_back` it once the launch no longer reads it."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = Buffer(self._offsets)
        self._struct.pack_into(buffer.memory, 0, *values, *extra)
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        self._free.append(buffer)


def _slot_format(slot: ParamSlot) -> str:
    code = {"address": "Q", "value": _value_format(slot.dtype)}.get(slot.kind, "q")
    return f"{code}{slot.size_bytes - struct.calcsize('<' + code)}x"


def _value_format(dtype: DType) -> str:
    """The `struct` code of a dtype. Floats of less than 32 bits come as their bits."""
    place = dtype.itemsize.bit_length() - 1
    if dtype.is_float and dtype.bits >= 32:
        return "fd"[place - 2]
    return ("bhiq" if dtype.kind == "int" else "BHIQ")[place]
