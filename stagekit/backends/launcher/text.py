"""The LLVM text of a launcher, from its request.

    ptr launcher(ptr own, ptr args, i64 given, ptr keywords)        METH_FASTCALL | METH_KEYWORDS

`own` holds a STATE (`native_tables.py`). The code reads and checks the arguments, works out the launch, and runs or enqueues
the kernel. Whatever it does not recognise it hands, whole, to the Python callable in the STATE, so it decides only what is
certain. `hostexpr.KINDS` says what the operations of sizes mean; the limits are those of `runtime/launch_config.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stagekit import native_tables as tables
from stagekit.backends.launcher.request import LauncherRequest, array_words, number_words
from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.support.arguments import bind, is_expected, read_number
from stagekit.backends.launcher.support.arrays import read_array
from stagekit.backends.launcher.support.conditions import is_current, is_undiverted
from stagekit.backends.launcher.support.enqueueing import NOTHING_DONE, enqueue, launch_of
from stagekit.backends.launcher.support.functions import Function, state_of
from stagekit.backends.launcher.support.running import run
from stagekit.backends.launcher.values import PTR, Type, Value
from stagekit.backends.llvm.writer import Abilities, Module
from stagekit.dtypes import int64, uint64
from stagekit.hostexpr import HostExpr, HostOp, Slot
from stagekit.limits import BLOCK_LIMITS, GRID_LIMITS, MAX_SHARED_BYTES, MAX_THREADS
from stagekit.signature import (
    ArraySpec,
    LaunchSpec,
    NoneSpec,
    ScalarSpec,
    place_of,
    slot_offsets,
    values_of,
)

ENTRY = "stagekit_launcher"
_PARAMETERS: dict[str, Type] = {"own": PTR, "args": PTR, "given": int64, "keywords": PTR}

_OPERATIONS: dict[str, Callable[..., Value]] = {
    **{kind: getattr(operator, kind) for kind in ("add", "sub", "mul", "floordiv", "mod", "xor", "neg")},
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "min": lambda a, b: (a < b).select(a, b),
    "max": lambda a, b: (a > b).select(a, b),
    "select": lambda condition, a, b: (condition != 0).select(a, b),
}


def write(request: LauncherRequest) -> str:
    """The module that defines `ENTRY`."""
    return _Launcher(request).write()


def expressions(request: LauncherRequest) -> list[HostExpr]:
    """All that the launcher computes."""
    launch = request.launch
    own = () if launch is None else (*launch.grid, *launch.block, launch.shared_bytes)
    arrays = [s for s in request.specs if isinstance(s, ArraySpec)]
    related = [size for s in arrays for size in (*s.shape, *(s.strides or ())) if size is not None]
    return [*own, *request.shared_needs, *(size for size in related if not isinstance(size, int))]


@dataclass(frozen=True, slots=True)
class _Size:
    """A launch. grid, block: pointers to three words. blocks, shared_bytes: integers."""

    grid: Value
    block: Value
    blocks: Value
    shared_bytes: Value


class _Launcher:
    """A launcher that is being written. destination: of a launch on a GPU; null on the CPU.

    slots: where each native parameter is. arrays: by argument, a pointer to what was read of it: address, sizes, strides.
    """

    def __init__(self, request: LauncherRequest) -> None:
        self.request = request
        self.module = Module(Abilities())
        self.r = r = Routine(self.module, ENTRY, PTR, _PARAMETERS)
        own, self.args, self.given, self.keywords = r.parameters
        self.state = state_of(r, own)
        self.process = self.state.field("process", tables.PROCESS)
        self.destination = r.null if request.target == "cpu" else self._new_destination()
        *offsets, size = slot_offsets(request.slots)
        slots = r.room(size)
        self.slots = [slots.at(offset) for offset in offsets]
        self.arrays: dict[int, Value] = {}
        self._known: dict[int, Value] = {}  # values of expressions by identity: hashing a tree costs a walk over it

    def write(self) -> str:
        r, request = self.r, self.request
        self._require(is_undiverted, self.process)
        if request.has_guards:
            self._require(is_current, self.state)
        for place, object_ in enumerate(self._bind()):
            self._read(place, object_)
        self._fill_slots()
        self._check_relations()
        size = self._size_in_brackets() if request.launch is None else self._own_size(request.launch)
        for needed in map(self.value_of, request.shared_needs):
            r.require(needed <= size.shared_bytes)
        (self._run if request.target == "cpu" else self._enqueue)(size)
        r.close(lambda: r.call_unless_raised(self._take_general_way))
        return self.module.text()

    def _take_general_way(self) -> Value:
        general = self.state.field("general")
        return self.r.call(PTR, "PyObject_Vectorcall", general, self.args, self.given, self.keywords)

    def _call(self, function: Function, *arguments: Value | int) -> Value:
        """Call a function of `support/`."""
        values = (self.r.number(a) if isinstance(a, int) else a for a in arguments)
        return function.call_through(self.r, self.process, *values)

    def _require(self, function: Function, *arguments: Value | int) -> None:
        self.r.require(self._call(function, *arguments))

    def _new_destination(self) -> Value:
        """A copy of the DESTINATION in the STATE, which says what stood in the brackets."""
        destination = self.r.room(tables.size(tables.DESTINATION), tables.DESTINATION)
        given = self.state.place("device")
        for place in range(len(tables.DESTINATION)):
            destination.word(place).store(given.item(place, int64))
        return destination

    # Arguments ------------------------------------------------------------------------------------------------------

    def _bind(self) -> list[Value]:
        """One object per parameter. Where all are given by position, they are where the call put them."""
        r, count, keyword_only = self.r, len(self.request.parameters), self.request.keyword_only
        placed = r.room(tables.WORD * count)

        def put_in_order() -> Value:
            names = self.state.at(tables.tail(tables.NAMES, count, 0))
            self._require(bind, names, self.args, self.given, self.keywords, placed, count, count - keyword_only)
            return placed

        is_in_order = (self.given == count) & self.keywords.is_null()
        objects = put_in_order() if keyword_only else r.choose(is_in_order, lambda: self.args, put_in_order)
        return [objects.item(place) for place in range(count)]

    def _read(self, place: int, object_: Value) -> None:
        """Read and check the argument of one parameter."""
        r, request, parameter = self.r, self.request, self.request.parameters[place]
        if parameter.argument is None:  # the very object that was specialised for, or an equal int
            expected = self.state.at(tables.tail(tables.EXPECTED, len(request.parameters), place)).load()
            is_int, constant = int(parameter.constant is not None), parameter.constant or 0
            self._require(is_expected, self.process, object_, expected, is_int, constant)
            return
        spec = request.specs[parameter.argument]
        if isinstance(spec, NoneSpec):
            r.require(object_ == self.process.field("none"))
        elif isinstance(spec, ScalarSpec):
            words = r.constant("number", number_words(spec.dtype, is_declared=parameter.is_declared))
            slots = zip(request.slots, self.slots)
            (out,) = (at for slot, at in slots if (slot.kind, slot.argument) == ("value", parameter.argument))
            self._require(read_number, self.process, object_, out, words)
        else:
            words = r.constant("array", array_words(spec, request.target))
            out = self.arrays[parameter.argument] = r.room(tables.WORD * values_of(spec))
            self._require(read_array, self.process, object_, self.destination, out, words)

    def _fill_slots(self) -> None:
        """Put addresses, sizes and strides among the native parameters. Numbers are there already."""
        for slot, at in zip(self.request.slots, self.slots, strict=True):
            if slot.kind != "value":
                place = place_of(self.request.specs[slot.argument], slot.kind, slot.axis)
                at.store(self.arrays[slot.argument].item(place, int64))

    def _check_relations(self) -> None:
        """Sizes that follow from other arguments, and declared strides, which matter only where a step is taken."""
        for argument, read in self.arrays.items():
            spec = self.request.specs[argument]
            if not isinstance(spec, ArraySpec):
                continue
            sizes = [read.item(place_of(spec, "size", axis), int64) for axis in range(spec.rank)]
            for size, expected in zip(sizes, spec.shape):
                if expected is not None and not isinstance(expected, int):
                    self.r.require(size == self.value_of(expected))
            for axis, fixed in enumerate(spec.strides or ()):
                if fixed is not None:
                    stride = read.item(place_of(spec, "stride", axis), int64)
                    self.r.require((stride == self.value_of(fixed)) | (sizes[axis] <= 1))

    # Expressions ----------------------------------------------------------------------------------------------------

    def value_of(self, expr: HostExpr) -> Value:
        """The value of an expression; a shared node is written once."""
        if isinstance(expr, int):
            return self.r.number(int64.wrap(expr))
        if id(expr) not in self._known:
            value = self.slots[expr.index].load(int64) if isinstance(expr, Slot) else self._operation(expr)
            self._known[id(expr)] = value
        return self._known[id(expr)]

    def _operation(self, op: HostOp) -> Value:
        args = [self.value_of(a) for a in op.args]
        if op.kind in _OPERATIONS:
            return _OPERATIONS[op.kind](*args)
        compared: Value = getattr(operator, op.kind)(*args)  # `eq` to `ge`
        return compared.to(int64)

    # The launch -----------------------------------------------------------------------------------------------------

    def _size_in_brackets(self) -> _Size:
        state = self.state
        blocks, shared_bytes = state.field("blocks", int64), state.field("shared_bytes", int64)
        return _Size(state.place("grid_x"), state.place("block_x"), blocks, shared_bytes)

    def _own_size(self, launch: LaunchSpec) -> _Size:
        """What the kernel computes, within the limits of a launch."""
        r, fixed_block = self.r, self.request.block
        grid, block = ([self.value_of(axis) for axis in axes] for axes in (launch.grid, launch.block))
        shared_bytes = self.value_of(launch.shared_bytes)
        limits = (*GRID_LIMITS, *BLOCK_LIMITS, MAX_SHARED_BYTES)
        for number, high in zip((*grid, *block, shared_bytes), limits, strict=True):
            r.require(number.to(uint64) <= high)
        if fixed_block is None:
            r.require(_product(r, block) <= MAX_THREADS)
        for axis, fixed in zip(block, fixed_block or ()):
            r.require(axis == fixed)
        return _Size(r.words(grid), r.words(block), _product(r, grid), shared_bytes)

    def _run(self, size: _Size) -> None:
        slots = self.slots[0] if self.slots else self.r.null
        memory = self.request.scratch_bytes, size.shared_bytes
        self.r.give(self._call(run, self.state, self.state.field("code"), slots, size.grid, size.blocks, *memory))

    def _enqueue(self, size: _Size) -> None:
        r = self.r
        launch = launch_of(r, size.grid, size.block, size.shared_bytes + self.request.added_shared_bytes)
        pointers, code = r.words(self.slots), self.state.field("code")
        result = self._call(enqueue, self.state, code, pointers, launch, self.destination)
        r.require(result != r.value(PTR, NOTHING_DONE))
        r.give(result)


def _product(r: Routine, numbers: Sequence[Value]) -> Value:
    return math.prod(numbers, start=r.number(1))
