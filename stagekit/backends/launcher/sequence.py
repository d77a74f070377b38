"""Launches on the CPU that were written down, as one function that other libraries call without Python: tvm-ffi's convention.

    int32 sequence(ptr handle, ptr args, i32 count, ptr result)      0, or -1 after the error was left with tvm-ffi

`args` are TVMFFIAny: a type and a value, here the address of a DLTensor each. What a launch needs of its arguments was computed
and checked when it was written down, but for their addresses: these are put into the native parameters here, and what the code
takes for granted of them is checked again. Blocks are shared by the pool (`support/pool.py`). The code holds addresses of this
process, so it is never kept on disk.

Source: apache-tvm-ffi, `tvm/ffi/c_api.h` (TVMFFISafeCallType, TVMFFIAny); DLPack, `dlpack.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from stagekit import native_tables as tables
from stagekit.backends.host.target import LoadedCode, load, quick_machine
from stagekit.backends.launcher.compiler import object_code
from stagekit.backends.launcher.expressions import Expressions
from stagekit.backends.launcher.registers import PTR, Reg, Type
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.llvm.writer import Abilities, Module
from stagekit.dtypes import int32, int64
from stagekit.frozen import frozen
from stagekit.hostexpr import HostExpr

_SYMBOL = "stagekit_sequence"
_PARAMETERS: Mapping[str, Type] = {"handle": PTR, "args": PTR, "count": int32, "result": PTR}
_ANY = {"type": 0, "value": 8}  # TVMFFIAny, of 16 bytes
_ANY_BYTES = 16
_TENSOR_POINTER = 7  # kTVMFFIDLTensorPtr
SEQUENCES = 1 << 16  # rows of a dispatcher's table
_MISSED = 0  # in texts: a barrier; the others by the fault


@frozen()
class RecordedAddress:
    """A native parameter that is an address. word: which parameter. array: which argument of the call; offset: in bytes."""

    word: int
    array: int
    offset: int
    align: int


@frozen()
class RecordedStep:
    """One launch. words: the native parameters. places: those that are addresses. facts: what the code takes for granted.

    code, cost: addresses, as of `pool.run_apart`. texts: what an error says, by fault, of a missed barrier by 0.
    """

    code: int
    cost: int
    words: tuple[int, ...]
    places: tuple[RecordedAddress, ...]
    facts: tuple[HostExpr, ...]
    grid: tuple[int, int, int]
    blocks: int
    scratch_bytes: int
    texts: Mapping[int, str]


def load_sequence(
    steps: Sequence[RecordedStep], arrays: int, process: int, run_apart: int, raise_error: int
) -> tuple[LoadedCode, object]:
    """Return the machine code, and what must live as long. arrays: how many arguments a call has. process: the PROCESS table.

    run_apart: of `support/pool.py`. raise_error: `TVMFFIErrorSetRaisedFromCStr`.
    """
    module = Module(Abilities())
    writer = _SequenceCode(Routine(module, _SYMBOL, int32, _PARAMETERS), arrays, raise_error)
    writer.write(steps, process, run_apart)
    return load(object_code(module.text(), quick_machine()), _SYMBOL), writer.texts


def load_dispatcher(table: int, raise_error: int) -> tuple[LoadedCode, object]:
    """Return a function that calls the sequence whose key is its first argument, an integer, with the others; and what must live
    as long.

    table: the address of SEQUENCES rows of two words, a key and the address of its code, 0 where there is none. A key stands in
    the row of its lowest bits, or in the next one that was free.
    """
    module = Module(Abilities())
    r = Routine(module, _SYMBOL, int32, _PARAMETERS)
    handle, args, count, result = r.parameters
    key = args.at(0, _ANY).field("value", int64)

    def row(step: Reg) -> Reg:
        return r.address(table).word(((key + step) & (SEQUENCES - 1)) * 2)

    found = row(r.find(r.number(SEQUENCES), lambda step: (row(step).load(int64) == key) | (row(step).load(int64) == 0)))
    writer = _SequenceCode(r, 0, raise_error)
    with r.if_then(found.load(int64) == 0):
        writer.fail("RuntimeError", "this program was compiled by another process: compile it here")
    code = found.word(1).load()
    r.ret(r.call_at(code, int32, handle, args.at(_ANY_BYTES), count - r.number(1, int32), result))
    r.close(lambda: r.number(-1, int32))
    return load(object_code(module.text(), quick_machine()), _SYMBOL), writer.texts


class _SequenceCode:
    """A sequence that is being written. texts: memory of the errors, which must live as long as the code."""

    def __init__(self, r: Routine, arrays: int, raise_error: int) -> None:
        self.r = r
        self.raise_error = r.address(raise_error)
        self.texts: list[ctypes.Array[ctypes.c_char]] = []
        _, self.args, self.count, _ = r.parameters
        self.arrays = arrays

    def write(self, steps: Sequence[RecordedStep], process: int, run_apart: int) -> None:
        r = self.r
        with r.if_then(self.count != self.arrays):
            self.fail("TypeError", f"{self.arrays} arrays are needed")
        data = [self._address_of(place) for place in range(self.arrays)]
        for step in steps:
            fault = self._run(step, data, process, run_apart)
            with r.if_then(fault != 0):
                self._report(fault, step.texts)
        r.ret(r.number(0, int32))
        r.close(lambda: r.number(-1, int32))

    def _address_of(self, place: int) -> Reg:
        """Return the address of the first element of an argument."""
        any_ = self.args.at(_ANY_BYTES * place, _ANY)
        with self.r.if_then(any_.field("type", int32) != _TENSOR_POINTER):
            self.fail("TypeError", f"argument {place} is no DLTensor")
        tensor = any_.field("value", tables.TENSOR)
        return tensor.field("data", int64) + tensor.field("byte_offset", int64)

    def _run(self, step: RecordedStep, data: Sequence[Reg], process: int, run_apart: int) -> Reg:
        r = self.r
        words = r.array_of([r.number(int64.wrap(word)) for word in step.words])
        for place in step.places:
            address = data[place.array] + place.offset
            if place.align > 1:
                with r.if_then((address & (place.align - 1)) != 0):
                    self.fail("ValueError", f"array {place.array} does not lie at a multiple of {place.align} bytes")
            words.word(place.word).store(address)
        slots = [words.word(place) for place in range(len(step.words))]
        expressions = Expressions(r, slots)
        for fact in step.facts:
            with r.if_then(expressions.value_of(fact) == 0):
                self.fail("ValueError", "arrays overlap, or lie otherwise than the kernel was compiled for")
        grid = r.array_of([r.number(count) for count in step.grid])
        values = r.address(process), r.address(step.code), r.address(step.cost), words, grid
        return r.call_at(r.address(run_apart), int32, *values, step.blocks, step.scratch_bytes)

    def _report(self, fault: Reg, texts: Mapping[int, str]) -> None:
        """Raise the error of a fault."""
        for number in (tables.NO_MEMORY, tables.FORKED):
            with self.r.if_then(fault == number):
                self.fail("RuntimeError", texts[number])
        with self.r.if_then(fault >= tables.WAITS):
            self.fail("RuntimeError", texts[tables.WAITS])
        self.fail("RuntimeError", texts[_MISSED])

    def fail(self, kind: str, text: str) -> None:
        """Leave an error with tvm-ffi, and return."""
        memory = [ctypes.create_string_buffer(each.encode()) for each in (kind, text)]
        self.texts += memory
        self.r.call_void_at(self.raise_error, *[self.r.address(ctypes.addressof(each)) for each in memory])
        self.r.ret(self.r.number(-1, int32))
