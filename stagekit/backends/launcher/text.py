"""The LLVM text of a launcher, from its request.

    ptr launcher(ptr own, ptr args, i64 given, ptr keywords)        METH_FASTCALL | METH_KEYWORDS

`own` is a tuple that begins with the address of a STATE (`native_tables.py`). The code reads and checks the arguments,
works out the launch, and runs or enqueues the kernel. Whatever it does not recognise it hands, whole, to the Python
callable in the STATE, so it decides only what is certain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stagekit import native_tables as tables
from stagekit.backends.launcher import sizes, wanted
from stagekit.backends.launcher.request import LauncherRequest
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.sizes import Evaluator
from stagekit.backends.launcher.support.arrays import read_array
from stagekit.backends.launcher.support.binding import bind
from stagekit.backends.launcher.support.conditions import is_undiverted
from stagekit.backends.launcher.support.enqueueing import NOTHING_DONE, enqueue, launch_of
from stagekit.backends.launcher.support.functions import Function
from stagekit.backends.launcher.support.numbers import is_expected, read_number
from stagekit.backends.launcher.support.prepared import state_of
from stagekit.backends.launcher.support.rows import is_current
from stagekit.backends.launcher.support.running import run
from stagekit.backends.launcher.values import PTR, Type, Value
from stagekit.backends.llvm.writer import Abilities, Module
from stagekit.dtypes import int64
from stagekit.hostexpr import HostExpr, slots_in
from stagekit.limits import BLOCK_LIMITS, GRID_LIMITS, MAX_SHARED_BYTES, MAX_THREADS
from stagekit.signature import ArraySpec, LaunchSpec, NoneSpec, ParamSlot, PointerSpec, ScalarSpec, slot_offsets

ENTRY = "stagekit_launcher"
_PARAMETERS: dict[str, Type] = {"own": PTR, "args": PTR, "given": int64, "keywords": PTR}


def write(request: LauncherRequest) -> str:
    """The module that defines `ENTRY`."""
    module = Module(Abilities())
    r = Routine(module, ENTRY, PTR, _PARAMETERS)
    frame = _open(r, request)
    values = _read(frame, _bind(frame))
    _fill_slots(frame, values)
    evaluator = Evaluator(r, _integers(frame, values))
    _check_relations(frame, values, evaluator)
    size = _size_in_brackets(frame) if request.launch is None else _own_size(frame, request.launch, evaluator)
    for needed in map(evaluator.value_of, request.shared_needs):
        r.require(needed <= size.shared_bytes)
    (_run if request.target == "cpu" else _enqueue)(frame, values, size)
    _, args, given, keywords = r.parameters

    def take_general_way() -> Value:
        return r.call(PTR, "PyObject_Vectorcall", frame.state.field("general"), args, given, keywords)

    r.close(lambda: r.call_unless_raised(take_general_way))
    return module.text()


def expressions(request: LauncherRequest) -> list[HostExpr]:
    """All that the launcher computes."""
    launch = request.launch
    own = () if launch is None else (*launch.grid, *launch.block, launch.shared_bytes)
    arrays = [s for s in request.specs if isinstance(s, ArraySpec)]
    related = [size for s in arrays for size in (*s.shape, *(s.strides or ())) if size is not None]
    return [*own, *request.shared_needs, *(size for size in related if not isinstance(size, int))]


# Arguments ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """What all parts of a launcher need. process, state, destination: pointers to the tables; destination: null on the CPU."""

    r: Routine
    request: LauncherRequest
    process: Value
    state: Value
    destination: Value

    def call(self, function: Function, *arguments: Value | int) -> Value:
        """Call a function of `support/`."""
        values = (self.r.number(a) if isinstance(a, int) else a for a in arguments)
        return function.call_through(self.r, self.process, *values)


@dataclass(frozen=True, slots=True)
class ArrayValues:
    address: Value
    sizes: list[Value]
    strides: list[Value]


@dataclass(frozen=True, slots=True)
class Values:
    """What was read. slots: where each native parameter is. arrays: by argument."""

    slots: list[Value]
    arrays: dict[int, ArrayValues]


def _open(r: Routine, request: LauncherRequest) -> Frame:
    state = state_of(r, r.parameters[0])
    destination = r.null if request.target == "cpu" else _new_destination(r, state)
    frame = Frame(r, request, state.field("process", tables.PROCESS), state, destination)
    r.require(frame.call(is_undiverted, frame.process))
    if request.has_guards:
        r.require(frame.call(is_current, state))
    return frame


def _new_destination(r: Routine, state: Value) -> Value:
    """A copy of the DESTINATION in the STATE, which says what stood in the brackets."""
    destination, given = r.room(tables.size(tables.DESTINATION), tables.DESTINATION), state.place("device")
    for place in range(len(tables.DESTINATION)):
        destination.word(place).store(given.item(place, int64))
    return destination


def _bind(frame: Frame) -> list[Value]:
    """One object per parameter. Where all are given by position, they are where the call put them."""
    r, request = frame.r, frame.request
    _, args, given, keywords = r.parameters
    count = len(request.parameters)
    placed = r.room(tables.WORD * count)

    def put_in_order() -> Value:
        names, positional = frame.state.at(tables.tail(tables.NAMES, count, 0)), count - request.keyword_only
        r.require(frame.call(bind, names, args, given, keywords, placed, count, positional))
        return placed

    is_in_order = (given == count) & keywords.is_null()
    objects = put_in_order() if request.keyword_only else r.choose(is_in_order, lambda: args, put_in_order)
    return [objects.item(place) for place in range(count)]


def _read(frame: Frame, objects: Sequence[Value]) -> Values:
    r, request = frame.r, frame.request
    *offsets, size = slot_offsets(request.slots)
    slots = r.room(size)
    values = Values([slots.at(offset) for offset in offsets], {})
    for place, (parameter, object_) in enumerate(zip(request.parameters, objects, strict=True)):
        if parameter.argument is None:
            _check_constexpr(frame, place, object_)
            continue
        spec = request.specs[parameter.argument]
        if isinstance(spec, NoneSpec):
            r.require(object_ == frame.process.field("none"))
        elif isinstance(spec, ScalarSpec):
            words = r.constant("number", wanted.number_words(spec.dtype, is_declared=parameter.is_declared))
            slot = values.slots[_slot_of_number(request, parameter.argument)]
            r.require(frame.call(read_number, frame.process, object_, slot, words))
        else:
            values.arrays[parameter.argument] = _read_array(frame, spec, object_)
    return values


def _slot_of_number(request: LauncherRequest, argument: int) -> int:
    return next(p for p, slot in enumerate(request.slots) if slot.kind == "value" and slot.argument == argument)


def _read_array(frame: Frame, spec: ArraySpec | PointerSpec, object_: Value) -> ArrayValues:
    r, rank = frame.r, spec.rank if isinstance(spec, ArraySpec) else 0
    steps = rank if isinstance(spec, ArraySpec) and not spec.is_contiguous else 0
    out = r.room(tables.WORD * (1 + rank + steps))
    words = r.constant("array", wanted.array_words(spec, frame.request.target))
    r.require(frame.call(read_array, frame.process, object_, frame.destination, out, words))
    address, *others = (out.item(place, int64) for place in range(1 + rank + steps))
    return ArrayValues(address, others[:rank], others[rank:])


def _check_constexpr(frame: Frame, place: int, object_: Value) -> None:
    """The very object that was specialised for, or an equal int."""
    parameters = frame.request.parameters
    expected = frame.state.at(tables.tail(tables.EXPECTED, len(parameters), place)).load()
    constant = parameters[place].constant
    is_int = constant is not None
    frame.r.require(frame.call(is_expected, frame.process, object_, expected, int(is_int), constant or 0))


def _fill_slots(frame: Frame, values: Values) -> None:
    """Put addresses, sizes and strides among the native parameters. Numbers are there already."""
    for slot, place in zip(frame.request.slots, values.slots, strict=True):
        if slot.kind != "value":
            place.store(_array_word(slot, values.arrays[slot.argument]))


def _array_word(slot: ParamSlot, array: ArrayValues) -> Value:
    if slot.kind == "address":
        return array.address
    return (array.sizes if slot.kind == "size" else array.strides)[slot.axis]


def _integers(frame: Frame, values: Values) -> dict[int, Value]:
    """The slots that expressions read."""
    used = {index for expr in expressions(frame.request) for index in slots_in(expr)}
    return {index: values.slots[index].load(int64) for index in sorted(used)}


def _check_relations(frame: Frame, values: Values, evaluator: Evaluator) -> None:
    """Sizes that follow from other arguments, and declared strides, which matter only where a step is taken."""
    r = frame.r
    for argument, array in values.arrays.items():
        spec = frame.request.specs[argument]
        if not isinstance(spec, ArraySpec):
            continue
        for size, expected in zip(array.sizes, spec.shape):
            if expected is not None and not isinstance(expected, int):
                r.require(size == evaluator.value_of(expected))
        for size, stride, fixed in zip(array.sizes, array.strides, spec.strides or ()):
            if fixed is not None:
                needed = r.number(fixed) if isinstance(fixed, int) else evaluator.value_of(fixed)
                r.require((stride == needed) | (size <= 1))


# The launch ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """grid, block: pointers to three words. blocks, shared_bytes: integers."""

    grid: Value
    block: Value
    blocks: Value
    shared_bytes: Value


def _size_in_brackets(frame: Frame) -> Size:
    state = frame.state
    blocks, shared_bytes = state.field("blocks", int64), state.field("shared_bytes", int64)
    return Size(state.place("grid_x"), state.place("block_x"), blocks, shared_bytes)


def _own_size(frame: Frame, launch: LaunchSpec, evaluator: Evaluator) -> Size:
    """What the kernel computes, within the limits of a launch."""
    r, fixed_block = frame.r, frame.request.block
    grid, block = ([evaluator.value_of(axis) for axis in axes] for axes in (launch.grid, launch.block))
    sizes.require_limits(r, grid, GRID_LIMITS)
    sizes.require_limits(r, block, BLOCK_LIMITS)
    if fixed_block is None:
        r.require(math.prod(block, start=r.number(1)) <= MAX_THREADS)
    for axis, fixed in zip(block, fixed_block or ()):
        r.require(axis == fixed)
    shared_bytes = evaluator.value_of(launch.shared_bytes)
    sizes.require_limits(r, [shared_bytes], [MAX_SHARED_BYTES])
    return Size(r.words(grid), r.words(block), math.prod(grid, start=r.number(1)), shared_bytes)


def _run(frame: Frame, values: Values, size: Size) -> None:
    memory = frame.request.scratch_bytes, size.shared_bytes
    code = frame.state.field("code")
    slots = values.slots[0] if values.slots else frame.r.null
    frame.r.give(frame.call(run, frame.state, code, slots, size.grid, size.blocks, *memory))


def _enqueue(frame: Frame, values: Values, size: Size) -> None:
    r = frame.r
    launch = launch_of(r, size.grid, size.block, size.shared_bytes + frame.request.added_shared_bytes)
    code = frame.state.field("code")
    result = frame.call(enqueue, frame.state, code, r.words(values.slots), launch, frame.destination)
    r.require(result != r.value(PTR, NOTHING_DONE))
    r.give(result)
