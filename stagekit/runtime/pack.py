"""Native parameters in memory: eight bytes per slot, then whatever else a target wants to pass.

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
from stagekit.signature import ParamSlot

SLOT_BYTES = 8

_FORMATS = {
    "bool": "B",
    **{f"int{8 << i}": code for i, code in enumerate("bhiq")},
    **{f"uint{8 << i}": code for i, code in enumerate("BHIQ")},
    "float32": "f",
    "float64": "d",
}
_BITS_FORMATS = {8: "B", 16: "H"}  # narrower floats come as their bits


class Buffer:
    """Memory for the parameters of one launch."""

    __slots__ = ("address", "memory", "pointers", "pointers_memory")

    def __init__(self, words: int) -> None:
        self.memory = (ctypes.c_uint64 * max(words, 1))()
        self.address = ctypes.addressof(self.memory)
        self.pointers_memory = (ctypes.c_void_p * max(words, 1))(*(self.address + SLOT_BYTES * i for i in range(words)))
        self.pointers = ctypes.addressof(self.pointers_memory)


class Packer:
    """Writes values into a buffer. extra: `struct` codes of eight bytes each that follow the slots."""

    def __init__(self, slots: Sequence[ParamSlot], extra: str = "") -> None:
        self._struct = struct.Struct("<" + "".join(map(_slot_format, slots)) + extra)
        self._words = self._struct.size // SLOT_BYTES
        self._free: list[Buffer] = []

    def take(self, values: Sequence[int | float], extra: Sequence[int] = ()) -> Buffer:
        """A buffer that holds both; `give_back` it once the launch no longer reads it."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = Buffer(self._words)
        self._struct.pack_into(buffer.memory, 0, *values, *extra)
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        self._free.append(buffer)


def _slot_format(slot: ParamSlot) -> str:
    if slot.kind == "address":
        return "Q"
    code = _value_format(slot.dtype) if slot.kind == "value" else "q"
    return f"{code}{SLOT_BYTES - struct.calcsize('<' + code)}x"


def _value_format(dtype: DType) -> str:
    return _FORMATS.get(dtype.name) or _BITS_FORMATS[dtype.bits]
