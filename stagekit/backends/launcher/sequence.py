"""Launches that were written down, as one function that other libraries call without Python: tvm-ffi's convention.

    int32 sequence(ptr handle, ptr args, i32 count, ptr result)      0, or -1 after the error was left with tvm-ffi

`args` are TVMFFIAny: a type and a value, here the address of a DLTensor each. What a launch needs of its arguments was computed
and checked when it was written down, but for their addresses: these are put into the native parameters here, and what the code
takes for granted of them is checked again. On the CPU the pool shares the blocks (`support/pool.py`); a GPU gets the kernel in
the stream that tvm-ffi has for the arrays' device. The code holds addresses of this process, so it is never kept on disk.

Source: apache-tvm-ffi, `tvm/ffi/c_api.h` (TVMFFISafeCallType, TVMFFIAny), `extra/c_env_api.h`; DLPack, `dlpack.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

from stagekit import native_tables as tables
from stagekit.backends.host.target import LoadedCode, load, quick_machine
from stagekit.backends.launcher.compiler import object_code
from stagekit.backends.launcher.expressions import Expressions
from stagekit.backends.launcher.registers import PTR, Reg, Type
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.tensor_maps import encoded
from stagekit.backends.llvm.writer import Abilities, Module
from stagekit.dtypes import int32, int64, uint32
from stagekit.frozen import frozen
from stagekit.hostexpr import HostExpr
from stagekit.signature import TensorMapSpec

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
class OnCpu:
    """How a launch runs on the CPU. code, cost: addresses, as of `pool.run_apart`. texts: what an error says, by fault, of a
    missed barrier by 0.
    """

    code: int
    cost: int
    blocks: int
    scratch_bytes: int
    texts: Mapping[int, str]


@frozen()
class OnGpu:
    """How a launch runs on a GPU. name, number: of the kernel. rows, attributes: addresses, of its DEVICE rows and of as many
    `LaunchAttribute` as there are. offsets: of the native parameters, in bytes; maps: of those behind them.
    """

    name: str
    number: int
    rows: int
    attribute_count: int
    attributes: int
    offsets: tuple[int, ...]
    maps: tuple[TensorMapSpec, ...]
    block: tuple[int, int, int]
    shared_bytes: int


@frozen()
class RecordedStep:
    """One launch. words: the native parameters. places: those that are addresses. facts: what the code takes for granted."""

    words: tuple[int, ...]
    places: tuple[RecordedAddress, ...]
    facts: tuple[HostExpr, ...]
    grid: tuple[int, int, int]
    way: OnCpu | OnGpu


@frozen()
class Functions:
    """Addresses. process: the PROCESS table. run_apart: of `support/pool.py`, 0 without a launch on the CPU. error_name:
    `cuGetErrorName`, 0 without one on a GPU. The others are tvm-ffi's.
    """

    raise_error: int
    raise_parts: int
    get_stream: int
    process: int = 0
    run_apart: int = 0
    error_name: int = 0


def load_sequence(steps: Sequence[RecordedStep], arrays: int, functions: Functions) -> tuple[LoadedCode, object]:
    """Return the machine code, and what must live as long. arrays: how many arguments a call has."""
    module = Module(Abilities())
    writer = _SequenceCode(Routine(module, _SYMBOL, int32, _PARAMETERS), arrays, functions)
    writer.write(steps)
    return load(object_code(module.text(), quick_machine()), _SYMBOL), writer.texts


def load_dispatcher(table: int, functions: Functions) -> tuple[LoadedCode, object]:
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
    writer = _SequenceCode(r, 0, functions)
    with r.if_then(found.load(int64) == 0):
        writer.fail("RuntimeError", "this program was compiled by another process: compile it here")
    code = found.word(1).load()
    r.ret(r.call_at(code, int32, handle, args.at(_ANY_BYTES), count - r.number(1, int32), result))
    r.close(lambda: r.number(-1, int32))
    return load(object_code(module.text(), quick_machine()), _SYMBOL), writer.texts


class _SequenceCode:
    """A sequence that is being written. texts: memory of the errors, which must live as long as the code."""

    def __init__(self, r: Routine, arrays: int, functions: Functions) -> None:
        self.r = r
        self.functions = functions
        self.process = r.address(functions.process).at(0, tables.PROCESS)
        self.texts: list[ctypes.Array[ctypes.c_char]] = []
        _, self.args, self.count, _ = r.parameters
        self.arrays = arrays

    def write(self, steps: Sequence[RecordedStep]) -> None:
        r = self.r
        with r.if_then(self.count != self.arrays):
            self.fail("TypeError", f"{self.arrays} arrays are needed")
        data = [self._address_of(place) for place in range(self.arrays)]
        for step in steps:
            self._run(step, data)
        r.ret(r.number(0, int32))
        r.close(self._refuse_map)

    def _address_of(self, place: int) -> Reg:
        """Return the address of the first element of an argument."""
        any_ = self.args.at(_ANY_BYTES * place, _ANY)
        with self.r.if_then(any_.field("type", int32) != _TENSOR_POINTER):
            self.fail("TypeError", f"argument {place} is no DLTensor")
        tensor = self._tensor(place)
        return tensor.field("data", int64) + tensor.field("byte_offset", int64)

    def _tensor(self, place: int) -> Reg:
        return self.args.at(_ANY_BYTES * place, _ANY).field("value", tables.TENSOR)

    def _run(self, step: RecordedStep, data: Sequence[Reg]) -> None:
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
        if isinstance(step.way, OnCpu):
            self._run_on_cpu(step.way, step.grid, words)
        else:
            self._enqueue(step.way, step.grid, words, expressions.value_of)

    def _run_on_cpu(self, way: OnCpu, grid: tuple[int, int, int], words: Reg) -> None:
        r = self.r
        axes = r.array_of([r.number(count) for count in grid])
        values = self.process, r.address(way.code), r.address(way.cost), words, axes
        run_apart = r.address(self.functions.run_apart)
        fault = r.call_at(run_apart, int32, *values, way.blocks, way.scratch_bytes)
        with r.if_then(fault != 0):
            self._report(fault, way.texts)

    def _enqueue(self, way: OnGpu, grid: tuple[int, int, int], words: Reg, value_of: Callable[[HostExpr], Reg]) -> None:
        """Give a kernel to the stream of the device where the arrays are."""
        r, process = self.r, self.process
        device = self._tensor(0).field("device", int32)
        get_context, row = process.field("get_context"), r.address(way.rows).at(0, tables.DEVICE)
        with r.if_then(get_context.is_null()):
            self.fail("RuntimeError", f"`{way.name}`: a forked process cannot use the GPU")
        with r.if_then(device.to(uint32) >= tables.DEVICES):
            self.fail("RuntimeError", f"`{way.name}`: the arrays are on a GPU of too high a number")
        row = row.at(device.to(int64) * tables.size(tables.DEVICE), tables.DEVICE)
        with r.if_then(row.field("function").is_null()):
            self.fail("RuntimeError", f"`{way.name}` is not loaded on the GPU where the arrays are")
        parameters = [words.at(offset) for offset in way.offsets]
        parameters += [encoded(r, process, spec, value_of) for spec in way.maps]
        launch = self._launch(way, grid)
        stream = r.call_at(r.address(self.functions.get_stream), PTR, r.number(tables.ON_CUDA, int32), device)
        launch.address_of("stream").store(stream)
        fault = self._call_driver(get_context, row, launch, r.array_of(parameters))
        with r.if_then(fault != 0):
            self._report_driver(way.name, fault)
        process.field("last_launches").word(device.to(int64)).store(r.number(way.number))

    def _launch(self, way: OnGpu, grid: tuple[int, int, int]) -> Reg:
        """Make a LAUNCH that lacks its stream."""
        r = self.r
        launch = r.alloca(tables.LAUNCH_BYTES, tables.LAUNCH)
        for what, three in (("grid", grid), ("block", way.block)):
            for axis, count in zip("xyz", three):
                launch.address_of(f"{what}_{axis}").store(r.number(int32.wrap(count), int32))
        launch.address_of("shared_bytes").store(r.number(way.shared_bytes, int32))
        launch.address_of("attributes").store(r.address(way.attributes))
        launch.address_of("attribute_count").store(r.number(way.attribute_count, int32))
        return launch

    def _call_driver(self, get_context: Reg, row: Reg, launch: Reg, parameters: Reg) -> Reg:
        """Call the driver in the row's context; return its status."""
        r, process, current = self.r, self.process, self.r.alloca(tables.WORD)
        current.store(r.null)
        r.call_at(get_context, int32, current)
        context, set_context = current.load(), process.field("set_context")
        is_other = context != row.field("context")
        with r.if_then(is_other):
            r.call_at(set_context, int32, row.field("context"))
        fault = r.call_at(process.field("launch_kernel"), int32, launch, row.field("function"), parameters, r.null)
        with r.if_then(is_other & context.is_set()):
            r.call_at(set_context, int32, context)
        return fault

    def _report_driver(self, name: str, fault: Reg) -> None:
        """Raise the driver's refusal of a launch, by the name of its status."""
        r, said = self.r, self.r.variable(self._text("an unknown status"))
        r.call_at(r.address(self.functions.error_name), int32, fault, said)
        parts = r.array_of([self._text(f"`{name}` was refused by cuLaunchKernelEx: "), said.load()])
        r.call_void_at(r.address(self.functions.raise_parts), self._text("RuntimeError"), parts, r.number(2, int32))
        r.ret(r.number(-1, int32))

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
        self._raise(kind, text)
        self.r.ret(self.r.number(-1, int32))

    def _refuse_map(self) -> Reg:
        """Raise what the early exit means, and return its result: an array has no tensor map."""
        self._raise("ValueError", "an array does not lie as its tensor map needs it")
        return self.r.number(-1, int32)

    def _raise(self, kind: str, text: str) -> None:
        self.r.call_void_at(self.r.address(self.functions.raise_error), self._text(kind), self._text(text))

    def _text(self, text: str) -> Reg:
        """Return a C string of this process, which lives as long as the code."""
        self.texts.append(ctypes.create_string_buffer(text.encode()))
        return self.r.address(ctypes.addressof(self.texts[-1]))
