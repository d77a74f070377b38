"""From a request to machine code: the launcher's own, and that of the functions that all launchers call.

    ptr launcher(ptr own, ptr args, i64 given, ptr keywords)        METH_FASTCALL | METH_KEYWORDS

`own` holds a STATE (`native_tables.py`). A kernel of several entries has one launcher, which reads the arguments and chooses, and
for each entry a function that launches it:

    ptr entry(ptr state, ptr slots, ptr destination)                null, without an exception, leaves it to the general way

The code reads and checks the arguments, works out the launch, and runs or enqueues the kernel. A call that it does not recognise
it hands on, whole, to the Python callable in the STATE, so it decides only what is certain. `hostexpr.KINDS` says what the
operations of sizes mean; the limits are those of `runtime/launch_config.py`.

No LLVM pass runs over a launcher, since somebody waits for it: it is a straight line of loads, comparisons and calls. What it
asks of each argument are constants in its code, which the functions of `support/` read:

    @array0 = internal constant [14 x i64] [...]      a WANTED_ARRAY and the sizes that are fixed, -1 for free ones
    @number1 = internal constant [4 x i64] [...]      a WANTED_NUMBER

Kernels with equal requests share one launcher: names, defaults, brackets and code addresses are in the STATE of each call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stagekit import native_tables as tables
from stagekit.backends.host.target import LoadedCode, load, machine_for, quick_machine, this_processor
from stagekit.backends.launcher import support, tensor_maps
from stagekit.backends.launcher.expressions import Expressions
from stagekit.backends.launcher.registers import PTR, Reg, Type
from stagekit.backends.launcher.request import CallParameter, LauncherRequest, Target
from stagekit.backends.launcher.routine import CALL_PARAMETERS, ENTRY_PARAMETERS, Routine, SupportFunction, state_of
from stagekit.backends.launcher.support import arguments, arrays, conditions, launching
from stagekit.backends.llvm import llvm, optimize
from stagekit.backends.llvm.writer import Abilities, Module
from stagekit.backends.toolchain import identity
from stagekit.cache import cached_code, open_store
from stagekit.dtypes import ALL_DTYPES, DType, int64, uint64
from stagekit.hostexpr import HostExpr, slots_in
from stagekit.limits import BLOCK_LIMITS, GRID_LIMITS, MAX_SHARED_BYTES, MAX_THREADS
from stagekit.signature import (
    ArraySpec,
    KernelEntry,
    LaunchSpec,
    NoneSpec,
    PointerSpec,
    ScalarSpec,
    place_of,
    slot_offsets,
    values_of,
)

ENTRY = "stagekit_launcher"


# From a request to an object file -----------------------------------------------------------------------------------


def compile(request: LauncherRequest) -> bytes | None:
    """Return an object file with the symbol `ENTRY`; None if some argument can only be read the general way."""
    floats = {spec.dtype for spec in request.specs if isinstance(spec, ScalarSpec) and spec.dtype.is_float}
    read = (request.slots[index] for expr in _expressions(request) for index in slots_in(expr))
    if not floats <= {*tables.NUMBER_KINDS} or any(slot.kind == "value" and slot.dtype.is_float for slot in read):
        return None
    text = (_LaunchCode if request.part == "entry" else _LauncherCode)(request).write()
    return cached_code("launcher", (text, *identity("cpu")), lambda: object_code(text, quick_machine()))


def load_support() -> tuple[dict[str, int], LoadedCode]:
    """Return the addresses of the functions that launchers and Python call, and the code, which must be kept alive.

    All launches go through it: where it can be stored on disk, good code is worth 50 ms once.
    """

    def compile_support() -> bytes:
        machine = quick_machine() if open_store() is None else machine_for(this_processor())
        return object_code(support.text(), machine)

    code = cached_code("support", identity("cpu"), compile_support)  # versions of this package are in every name
    loaded = load(code, support.FUNCTIONS[0].symbol)
    return {function.name: loaded.address_of(function.symbol) for function in support.FUNCTIONS}, loaded


def object_code(text: str, machine: Any) -> bytes:
    return bytes(machine.emit_object(optimize.parse(text, llvm.create_context())))


def _expressions(request: LauncherRequest) -> list[HostExpr]:
    """Return all sizes that the launcher computes."""
    launch = request.launch
    own = () if launch is None else (*launch.grid, *launch.block, launch.shared_bytes)
    arrays = [s for s in request.specs if isinstance(s, ArraySpec)]
    related = [size for s in arrays for size in (*s.shape, *(s.strides or ())) if size is not None]
    facts = [fact.holds for fact in request.facts]
    maps = [size for each in request.maps for size in (each.address, *each.shape, *each.strides)]
    return [*own, *request.shared_needs, *facts, *maps, *(size for size in related if not isinstance(size, int))]


def _array_words(spec: ArraySpec | PointerSpec, target: Target) -> list[int]:
    """Return a WANTED_ARRAY and its sizes.

    An array without gaps has its own specialisation, unless strides were declared, which hold for both layouts.
    """
    rank, sizes = (spec.rank, spec.shape) if isinstance(spec, ArraySpec) else (-1, ())
    is_packed = isinstance(spec, ArraySpec) and spec.is_contiguous
    is_strided = isinstance(spec, ArraySpec) and not spec.is_contiguous
    is_loose = isinstance(spec, ArraySpec) and is_strided and spec.strides is None
    needed_flags = tables.WRITEABLE * spec.is_written
    words: dict[str, int] = {
        "dtype": tables.PROCESS[f"dtype_{spec.dtype.name}"],
        "dlpack_dtype": tables.dlpack_dtype(spec.dtype),
        "device_type": tables.ON_CPU if target == "cpu" else tables.ON_CUDA,
        "rank": rank,
        "needed_flags": needed_flags | tables.C_CONTIGUOUS * is_packed,
        "checked_flags": needed_flags | tables.C_CONTIGUOUS * (is_packed or is_loose),
        "unit_shift": spec.dtype.itemsize.bit_length() - 1,
        "is_written": spec.is_written,
        "is_packed": is_packed,
        "is_loose": is_loose,
        "is_strided": is_strided,
        "align": spec.align,
    }
    return [*(int(words[name]) for name in tables.WANTED_ARRAY), *(s if isinstance(s, int) else -1 for s in sizes)]


def _number_words(dtype: DType, *, is_declared: bool) -> list[int]:
    """Return a WANTED_NUMBER. An undeclared number must have the dtype that chose the specialisation."""
    words = {
        "kind": tables.NUMBER_KINDS.index(dtype if dtype.is_float else None),
        "low": 0 if dtype.is_float else dtype.min,
        "high": 0 if dtype.is_float else min(dtype.max, int64.max),
        "own": -1 if is_declared else ALL_DTYPES.index(dtype),
    }
    return [words[name] for name in tables.WANTED_NUMBER]


class _Size(NamedTuple):
    """The size of a launch. grid, block: pointers to three words. blocks, shared_bytes: integers."""

    grid: Reg
    block: Reg
    blocks: Reg
    shared_bytes: Reg


class _LaunchCode:
    """The launch of an entry that is being written: all that follows when the arguments are read.

    destination: the DESTINATION of a launch on a GPU. slots: pointers to the native parameters.
    """

    def __init__(self, request: LauncherRequest, parameters: Mapping[str, Type] = ENTRY_PARAMETERS) -> None:
        self.request = request
        self.module = Module(Abilities())
        self.r = Routine(self.module, ENTRY, PTR, parameters)
        self.begin(*self.r.parameters)

    def begin(self, state: Reg, slots: Reg, destination: Reg) -> None:
        self.state = state.at(0, tables.STATE)
        self.destination = destination.at(0, tables.DESTINATION)
        self.bind_slots(slots)

    def bind_slots(self, slots: Reg) -> None:
        self.process = self.state.field("process", tables.PROCESS)
        self.slots = [slots.at(offset) for offset in slot_offsets(self.request.slots)[:-1]]
        self.value_of = Expressions(self.r, self.slots).value_of

    def write(self) -> str:
        self.check_guards()
        self.r.ret(self.launch())
        self.r.close(lambda: self.r.null)
        return self.module.text()

    def check_guards(self) -> None:
        if self.request.has_guards:
            self.require(conditions.is_current, self.state)

    def require(self, function: SupportFunction, *values: Reg | int) -> None:
        """Call a function of `support/`, which must return true."""
        self.r.require(function.call_through(self.r, self.process, *values))

    def launch(self) -> Reg:
        """Run or enqueue the kernel; return what the call gives, null where it raised or the general way must be taken."""
        request = self.request
        size = self._size_in_brackets() if request.launch is None else self._computed_size(request.launch)
        for needed in map(self.value_of, request.shared_needs):
            self.r.require(needed <= size.shared_bytes)
        return self._run(size) if request.target == "cpu" else self._enqueue(size)

    def _size_in_brackets(self) -> _Size:
        state = self.state
        blocks, shared_bytes = state.field("blocks", int64), state.field("shared_bytes", int64)
        return _Size(state.address_of("grid_x"), state.address_of("block_x"), blocks, shared_bytes)

    def _computed_size(self, launch: LaunchSpec) -> _Size:
        """Return the size that the kernel computes, which must be within the limits of a launch."""
        r, fixed_block = self.r, self.request.block
        grid, block = ([self.value_of(axis) for axis in axes] for axes in (launch.grid, launch.block))
        shared_bytes = self.value_of(launch.shared_bytes)
        limits = (*GRID_LIMITS, *BLOCK_LIMITS, MAX_SHARED_BYTES - self.request.own_shared_bytes)
        for number, high in zip((*grid, *block, shared_bytes), limits, strict=True):
            r.require(number.to(uint64) <= high)
        if fixed_block is None:
            r.require(_product(r, block) <= MAX_THREADS)
        for axis, fixed in zip(block, fixed_block or ()):
            r.require(axis == fixed)
        for axis, together in zip(grid, launch.attributes.cluster):
            if together > 1:
                r.require(axis % together == 0)
        return _Size(r.array_of(grid), r.array_of(block), _product(r, grid), shared_bytes)

    def _run(self, size: _Size) -> Reg:
        slots = self.slots[0] if self.slots else self.r.null
        values = self.state, slots, size.grid, size.blocks, size.shared_bytes
        return launching.run.call_through(self.r, self.process, *values)

    def _enqueue(self, size: _Size) -> Reg:
        r = self.r
        shared_bytes = size.shared_bytes + self.request.added_shared_bytes
        launch = launching.launch_of(r, self.state, size.grid, size.block, shared_bytes)
        maps = [tensor_maps.encoded(r, self.process, each, self.value_of) for each in self.request.maps]
        values = self.state, r.array_of([*self.slots, *maps]), launch, self.destination
        result = launching.enqueue.call_through(r, self.process, *values)
        r.require(result.is_set())
        return result


class _LauncherCode(_LaunchCode):
    """A launcher that is being written: what reads the arguments, and what follows or chooses the entry.

    arrays: by argument, a pointer to its address, sizes and strides once they are read. held: the number of capsules that live
    until the launch has ended, then the capsules.
    """

    def __init__(self, request: LauncherRequest) -> None:
        super().__init__(request, CALL_PARAMETERS)

    def begin(self, own: Reg, args: Reg, given: Reg, keywords: Reg) -> None:  # type: ignore[override]
        r = self.r
        self.args, self.given, self.keywords = args, given, keywords
        self.state = state_of(own)
        self.destination = r.null if self.request.target == "cpu" else self._destination_in_brackets()
        self.bind_slots(r.alloca(slot_offsets(self.request.slots)[-1]))
        self.arrays: dict[int, Reg] = {}
        of_parts = sum(parameter.most_held for parameter in self.request.parameters)
        self.held = r.alloca(tables.WORD * (1 + len(self.request.specs) + of_parts))
        self.parts = itertools.count()  # the words of their names and of what they are compared with
        self.held.store(r.number(0))

    def write(self) -> str:
        r, request = self.r, self.request
        self.require(conditions.is_undiverted, self.process)
        self.check_guards()
        for place, object_ in enumerate(self._bind()):
            self._read(place, object_)
        for slot, at in zip(request.slots, self.slots, strict=True):
            if slot.kind != "value":  # those are stored already
                place = place_of(request.specs[slot.argument], slot.kind, slot.axis)
                at.store(self.arrays[slot.argument].item(place, int64))
        self._check_related_sizes()
        if request.part == "front":
            result = self._launch_entry()
        else:  # the only one, where all its facts hold
            for fact in request.facts:
                r.require(self.value_of(fact.holds) != 0)
            result = self.launch()
        self._release()
        r.ret(result)
        r.close(self._give_up)
        return self.module.text()

    def _launch_entry(self) -> Reg:
        """Launch the entry that `signature.choose` would choose, if there is machine code for it yet."""
        r = self.r
        numbers = {entry: r.number(place) for place, entry in enumerate(KernelEntry)}
        chosen = numbers[KernelEntry.QUICK]
        for entry in (KernelEntry.GENERAL, KernelEntry.OVERLAPPING):
            for fact in self.request.facts:
                if fact.otherwise is entry:
                    chosen = (self.value_of(fact.holds) != 0).select(chosen, numbers[entry])
        state = self.state.field("entries").item(chosen)
        r.require(state.is_set())
        slots = self.slots[0] if self.slots else r.null
        result = r.call_at(state.at(0, tables.STATE).field("launch"), PTR, state, slots, self.destination)
        r.require(result.is_set())
        return result

    def _give_up(self) -> Reg:
        """Leave the launch to the general way, unless a Python exception is set."""
        r = self.r
        self._release()
        given = self.state.field("general"), self.args, self.given, self.keywords
        return r.call_unless_raised(lambda: r.call(PTR, "PyObject_Vectorcall", *given))

    def _release(self) -> None:
        """Let go of the arrays' capsules, if there are any."""
        with self.r.if_then(self.held.load(int64) != 0):
            arrays.release.call_through(self.r, self.process, self.held)

    def _destination_in_brackets(self) -> Reg:
        """Make a copy of the DESTINATION in the STATE, which says what the brackets ask for."""
        destination = self.r.alloca(tables.size(tables.DESTINATION), tables.DESTINATION)
        given = self.state.address_of("device")
        for place in range(len(tables.DESTINATION)):
            destination.word(place).store(given.item(place, int64))
        return destination

    def _bind(self) -> list[Reg]:
        """Return one object per parameter. If all are given by position, they stay where the call put them."""
        r, count, keyword_only = self.r, len(self.request.parameters), self.request.keyword_only
        placed = r.alloca(tables.WORD * count)

        def put_in_order() -> Reg:
            names = self.state.at(tables.tail(tables.NAMES, count, 0))
            self.require(
                arguments.bind, names, self.args, self.given, self.keywords, placed, count, count - keyword_only
            )
            return placed

        is_in_order = (self.given == count) & self.keywords.is_null()
        objects = put_in_order() if keyword_only else r.if_else(is_in_order, lambda: self.args, put_in_order)
        return [objects.item(place) for place in range(count)]

    def _read(self, place: int, object_: Reg) -> None:
        """Read and check the argument of one parameter."""
        expected = self.state.at(tables.tail(tables.EXPECTED, len(self.request.parameters), place)).load()
        self._read_as(self.request.parameters[place], object_, expected)

    def _read_as(self, parameter: CallParameter, object_: Reg, expected: Reg) -> None:
        """Read and check an argument, or a part of one. expected: the value of a constexpr, or the class of one with parts."""
        r, request = self.r, self.request
        if parameter.holder:
            r.require(object_.at(0, tables.OBJECT).field("type") == expected)
            self._read_parts(parameter, object_)
            return
        if parameter.argument is None:  # the very object that was specialised for, or an equal int
            is_int, constant = int(parameter.constant is not None), parameter.constant or 0
            self.require(arguments.is_expected, self.process, object_, expected, is_int, constant)
            return
        spec = request.specs[parameter.argument]
        if isinstance(spec, NoneSpec):
            r.require(object_ == self.process.field("none"))
        elif isinstance(spec, ScalarSpec):
            words = r.constant("number", _number_words(spec.dtype, is_declared=parameter.is_declared))
            slots = zip(request.slots, self.slots)
            (out,) = (at for slot, at in slots if (slot.kind, slot.argument) == ("value", parameter.argument))
            self.require(arguments.read_number, self.process, object_, out, words)
        else:
            words = r.constant("array", _array_words(spec, request.target))
            out = self.arrays[parameter.argument] = r.alloca(tables.WORD * values_of(spec))
            self.require(arrays.read_array, self.process, object_, self.destination, self.held, out, words)

    def _read_parts(self, parameter: CallParameter, owner: Reg) -> None:
        """Read what an argument holds, which must be as much as it was specialised for."""
        inside = self._contents(parameter, owner)
        for place, part in enumerate(parameter.parts):
            words = self.state.at(tables.tail(tables.PARTS, len(self.request.parameters), 2 * next(self.parts)))
            if place < parameter.slots:
                found = self._attribute(owner, words.item(0))
            elif parameter.holder == "tuple":
                found = self.r.call(PTR, "PyTuple_GetItem", inside, place)
            elif parameter.holder == "list":
                found = self._kept(self.r.call(PTR, "PyList_GetItem", inside, place))
            else:
                found = self._kept(self.r.call(PTR, "PyDict_GetItemWithError", inside, words.item(0)))
            self._read_as(part, found, words.item(1))

    def _contents(self, parameter: CallParameter, owner: Reg) -> Reg:
        """Return what holds the parts: a tuple or a list itself, or the dict of an object; check how many there are."""
        r, count = self.r, len(parameter.parts) - parameter.slots
        if parameter.holder == "slotted":
            return owner
        if parameter.holder == "object":
            owner = r.call(PTR, "PyObject_GenericGetDict", owner, r.null)
            r.require_no_error(owner.is_set())
            self._hold(owner)
        kind = {"tuple": "Tuple", "list": "List"}.get(parameter.holder, "Dict")
        r.require(r.call(int64, f"Py{kind}_Size", owner) == count)
        return owner

    def _attribute(self, owner: Reg, name: Reg) -> Reg:
        found = self.r.call(PTR, "PyObject_GetAttr", owner, name)
        self.r.require_no_error(found.is_set())
        self._hold(found)
        return found

    def _kept(self, object_: Reg) -> Reg:
        """Keep an object alive until the launch has ended: what holds it may let it go meanwhile. It must be there."""
        self.r.require_no_error(object_.is_set())
        self.r.call_void("Py_IncRef", object_)
        self._hold(object_)
        return object_

    def _hold(self, object_: Reg) -> None:
        """Let go of an object when the launch has ended."""
        count = self.held.load(int64)
        self.held.word(count + 1).store(object_)
        self.held.store(count + 1)

    def _check_related_sizes(self) -> None:
        """Check sizes that follow from other arguments, and declared strides, which matter only along axes of several items."""
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


def _product(r: Routine, numbers: Sequence[Reg]) -> Reg:
    return math.prod(numbers, start=r.number(1))
