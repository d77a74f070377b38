"""From a request to machine code: a function that CPython calls with the arguments of a launch.

    ptr launcher(ptr self, ptr args, i64 given, ptr keywords)        METH_FASTCALL | METH_KEYWORDS

`self` is a tuple that begins with the address of a STATE (`native_tables.py`). The code reads and checks the arguments,
works out the launch, and runs or enqueues the kernel. Whatever it does not recognise it hands, whole, to the Python
callable in the STATE, so it decides only what is certain. No LLVM pass runs over it: it is a straight line of loads,
comparisons and calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.binding as llvm

from stagekit import native_tables as tables
from stagekit.backends.host.loader import LoadedCode, load
from stagekit.backends.host.target import machine_for, quick_machine, this_processor
from stagekit.backends.launcher import sizes, support, wanted
from stagekit.backends.launcher.frame import GENERAL, Frame
from stagekit.backends.launcher.request import LauncherRequest, Target
from stagekit.backends.launcher.sizes import Evaluator
from stagekit.backends.llvm import optimize
from stagekit.backends.llvm.writer import Abilities, Module, Writer
from stagekit.backends.toolchain import identity
from stagekit.cache import open_store
from stagekit.cache.codes import kept
from stagekit.diagnostics import InternalError
from stagekit.hostexpr import HostExpr, Op, Slot
from stagekit.signature import ArraySpec, NoneSpec, ParamSlot, PointerSpec, ScalarSpec

ENTRY = "stagekit_launcher"
_HEAD = f"define ptr @{ENTRY}(ptr %self, ptr %args, i64 %given, ptr %keywords)"


@dataclass(frozen=True, slots=True)
class LauncherCode:
    """An object file with the symbol `ENTRY`, and the LLVM text it was made from."""

    object_code: bytes
    llvm: str


def compile(request: LauncherRequest) -> LauncherCode | None:
    """The launcher for a request; None where some argument can only be read the general way."""
    if not _is_possible(request):
        return None
    text = write(request)
    return LauncherCode(_assemble(text), text)


def load_support() -> tuple[dict[str, int], LoadedCode]:
    """The addresses of `support.FUNCTIONS`, and the code that must be kept."""
    code = kept("support", identity("cpu"), _compile_support)  # versions of this package are in every name
    loaded = load(code, support.PREFIX + support.FUNCTIONS[0])
    return {name: loaded.address_of(support.PREFIX + name) for name in support.FUNCTIONS}, loaded


def _compile_support() -> bytes:
    """All launches go through it: where it can be kept on disk, good code is worth 50 ms once."""
    machine = quick_machine() if open_store() is None else machine_for(this_processor())
    return bytes(machine.emit_object(optimize.parse(support.text(), llvm.create_context())))


def _assemble(text: str) -> bytes:
    return kept("launcher", (text, *identity("cpu")), lambda: _object_code(text))


def _object_code(text: str) -> bytes:
    module = optimize.parse(text, llvm.create_context())
    return bytes(quick_machine().emit_object(module))


def _is_possible(request: LauncherRequest) -> bool:
    scalars = (spec.dtype for spec in request.specs if isinstance(spec, ScalarSpec))
    return all(map(wanted.can_read, scalars)) and not any(_reads_float(request, e) for e in _expressions(request))


def _expressions(request: LauncherRequest) -> list[HostExpr]:
    launch = request.launch
    own = () if launch is None else (*launch.grid, *launch.block, launch.shared_bytes)
    arrays = [s for s in request.specs if isinstance(s, ArraySpec)]
    related = [size for s in arrays for size in (*s.shape, *(s.strides or ())) if size is not None]
    return [*own, *request.shared_needs, *(size for size in related if not isinstance(size, int))]


def _reads_float(request: LauncherRequest, expr: HostExpr) -> bool:
    if isinstance(expr, Slot):
        return request.slots[expr.index].dtype.is_float
    return isinstance(expr, Op) and any(_reads_float(request, a) for a in expr.args)


# The code -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArrayValues:
    """Operands: i64 each."""

    address: str
    sizes: list[str]
    strides: list[str]


@dataclass(slots=True)
class Values:
    """What was read. slots: memory with 8 bytes for each native parameter. arrays: by argument. readings: one per array."""

    slots: str
    readings: str
    arrays: dict[int, ArrayValues]
    numbers: dict[int, int]  # slots by argument


def write(request: LauncherRequest) -> str:
    """The LLVM text."""
    module = Module(Abilities())
    frame = _open(Writer(module), request)
    values = _read(frame, request, _bind(frame, request))
    _fill_slots(frame, request, values)
    evaluator = Evaluator(frame, _integers(frame, request, values))
    _check_relations(frame, request, values, evaluator)
    size = _own_size(frame, request, evaluator) if request.launch else _size_in_brackets(frame)
    for needed in map(evaluator.value_of, request.shared_needs):
        frame.require(frame.w.emit(f"icmp sle i64 {needed}, {size.shared_bytes}"))
    result = (_run if request.target == "cpu" else _enqueue)(frame, request, values, size)
    frame.w.line(f"ret ptr {result}")
    _close(frame)
    module.add_function(ENTRY, f"{_HEAD} {{\n{frame.w.body()}\n}}")
    return module.text()


def _open(w: Writer, request: LauncherRequest) -> Frame:
    number = w.call("ptr", "PyTuple_GetItem", [("ptr", "%self"), ("i64", "0")])
    state = w.call("ptr", "PyLong_AsVoidPtr", [("ptr", number)])
    frame = Frame(w, Frame(w, "", state).of_state("process"), state)
    is_diverted = frame.call_support("i1", "is_diverted", [("ptr", frame.process)])
    frame.require(w.emit(f"xor i1 {is_diverted}, true"))
    if request.has_guards:
        frame.require(frame.call_support("i1", "is_current", [("ptr", state)]))
    return frame


def _close(frame: Frame) -> None:
    """The way out: the general path does the whole call, with what was passed."""
    w = frame.w
    w.label(GENERAL)
    operands = [("ptr", frame.of_state("general")), ("ptr", "%args"), ("i64", "%given"), ("ptr", "%keywords")]
    w.line(f"ret ptr {w.call('ptr', 'PyObject_Vectorcall', operands)}")


def _bind(frame: Frame, request: LauncherRequest) -> list[str]:
    """One object per parameter. Where all are given by position, they are where the call put them."""
    w, count = frame.w, len(request.parameters)
    if not count:
        frame.require_equal("i64", "%given", "0")
        frame.require_equal("ptr", "%keywords", "null")
        return []
    placed = w.emit_entry(f"alloca [{count} x ptr]")
    bind, bound = w.new_label("bind"), w.new_label("bound")
    is_full, is_plain = w.emit(f"icmp eq i64 %given, {count}"), w.emit("icmp eq ptr %keywords, null")
    can_skip = w.emit(f"and i1 {is_full}, {is_plain}") if not request.keyword_only else "false"
    direct = w.block
    w.line(f"br i1 {can_skip}, label %{bound}, label %{bind}")
    w.label(bind)
    names = w.emit(f"getelementptr i8, ptr {frame.state}, i64 {tables.tail(tables.NAMES, count, 0)}")
    operands = [("ptr", names), ("ptr", "%args"), ("i64", "%given"), ("ptr", "%keywords"), ("ptr", placed)]
    limits = [("i64", str(count)), ("i64", str(count - request.keyword_only))]
    frame.require(frame.call_support("i1", "bind", operands + limits))
    indirect = w.block
    w.line(f"br label %{bound}")
    w.label(bound)
    values = w.emit(f"phi ptr [%args, %{direct}], [{placed}, %{indirect}]")
    return [frame.load("ptr", values, tables.WORD * place) for place in range(count)]


def _read(frame: Frame, request: LauncherRequest, objects: list[str]) -> Values:
    w, arrays = frame.w, sum(isinstance(spec, ArraySpec | PointerSpec) for spec in request.specs)
    slots = w.emit_entry(f"alloca [{max(len(request.slots), 1)} x i64]")
    readings = w.emit_entry(f"alloca [{max(arrays, 1) * tables.READING_BYTES} x i8], align 8")
    values = Values(slots, readings, {}, _slots_of_numbers(request))
    for place, (parameter, object_) in enumerate(zip(request.parameters, objects, strict=True)):
        if parameter.argument is None:
            _check_constexpr(frame, request, place, object_)
            continue
        spec = request.specs[parameter.argument]
        if isinstance(spec, NoneSpec):
            frame.require_equal("ptr", object_, frame.of_process("none"))
        elif isinstance(spec, ScalarSpec):
            words = wanted.number_words(spec.dtype, is_declared=parameter.is_declared)
            slot = _word(w, slots, values.numbers[parameter.argument])
            _call_reader(frame, "read_number", object_, [slot, _constant(frame, "number", words)])
        else:
            values.arrays[parameter.argument] = _read_array(frame, spec, request.target, object_, values)
    return values


def _slots_of_numbers(request: LauncherRequest) -> dict[int, int]:
    """Where each scalar argument is among the native parameters."""
    return {slot.argument: place for place, slot in enumerate(request.slots) if slot.kind == "value"}


def _read_array(
    frame: Frame, spec: ArraySpec | PointerSpec, target: Target, object_: str, values: Values
) -> ArrayValues:
    w, rank = frame.w, spec.rank if isinstance(spec, ArraySpec) else 0
    steps = rank if isinstance(spec, ArraySpec) and not spec.is_contiguous else 0
    out = w.emit_entry(f"alloca [{1 + rank + steps} x i64]")
    at = tables.READING_BYTES * len(values.arrays)
    reading = w.emit(f"getelementptr i8, ptr {values.readings}, i64 {at}") if at else values.readings
    words = _constant(frame, "array", wanted.array_words(spec, target))
    _call_reader(frame, "read_array", object_, [reading, out, words])
    address, *others = (frame.load("i64", out, tables.WORD * place) for place in range(1 + rank + steps))
    return ArrayValues(address, others[:rank], others[rank:])


def _constant(frame: Frame, kind: str, words: list[int]) -> str:
    """A table of words; equal ones are one."""
    items = ", ".join(f"i64 {word}" for word in words)
    definition = f"internal constant [{len(words)} x i64] [{items}]"
    module = frame.w.module
    return module.add_global(module.unique_name(kind, definition), definition)


def _call_reader(frame: Frame, name: str, object_: str, pointers: list[str]) -> None:
    """Go on only where it read what it should."""
    operands = [("ptr", operand) for operand in (frame.process, object_, *pointers)]
    frame.require(frame.call_support("i1", name, operands))


def _check_constexpr(frame: Frame, request: LauncherRequest, place: int, object_: str) -> None:
    """The very object that was specialised for, or an equal int."""
    constant = request.parameters[place].constant
    expected = frame.load("ptr", frame.state, tables.tail(tables.EXPECTED, len(request.parameters), place))
    operands = [("ptr", frame.process), ("ptr", object_), ("ptr", expected)]
    is_int = [("i64", str(int(constant is not None))), ("i64", str(constant or 0))]
    frame.require(frame.call_support("i1", "is_expected", operands + is_int))


def _fill_slots(frame: Frame, request: LauncherRequest, values: Values) -> None:
    """Native parameters: 8 bytes each, the value at the low end. Numbers are there already."""
    for place, slot in enumerate(request.slots):
        if slot.kind != "value":
            text = _array_word(slot, values.arrays[slot.argument])
            frame.w.line(f"store i64 {text}, ptr {_word(frame.w, values.slots, place)}")


def _array_word(slot: ParamSlot, array: ArrayValues) -> str:
    if slot.kind == "address":
        return array.address
    return (array.sizes if slot.kind == "size" else array.strides)[slot.axis]


def _integers(frame: Frame, request: LauncherRequest, values: Values) -> dict[int, str]:
    """The slots that expressions read, as i64."""
    used = {index for e in _expressions(request) for index in _slots_of(e)}
    return {index: _integer(frame, request.slots[index], index, values) for index in sorted(used)}


def _integer(frame: Frame, slot: ParamSlot, index: int, values: Values) -> str:
    if slot.kind == "value":
        return frame.load("i64", values.slots, tables.WORD * index)
    return _array_word(slot, values.arrays[slot.argument])


def _slots_of(expr: HostExpr) -> set[int]:
    if isinstance(expr, Slot):
        return {expr.index}
    return set().union(*map(_slots_of, expr.args)) if isinstance(expr, Op) else set()


def _check_relations(frame: Frame, request: LauncherRequest, values: Values, evaluator: Evaluator) -> None:
    """Sizes that follow from other arguments, and declared strides."""
    for argument, array in values.arrays.items():
        spec = request.specs[argument]
        if not isinstance(spec, ArraySpec):
            continue
        for size, expected in zip(array.sizes, spec.shape):
            if expected is not None and not isinstance(expected, int):
                frame.require_equal("i64", size, evaluator.value_of(expected))
        for size, stride, fixed in zip(array.sizes, array.strides, spec.strides or ()):
            if fixed is not None:
                text = str(fixed) if isinstance(fixed, int) else evaluator.value_of(fixed)
                _require_stride(frame, size, stride, text)


def _require_stride(frame: Frame, size: str, stride: str, expected: str) -> None:
    """It matters only where a step is taken."""
    w = frame.w
    is_right, is_unused = w.emit(f"icmp eq i64 {stride}, {expected}"), w.emit(f"icmp sle i64 {size}, 1")
    frame.require(w.emit(f"or i1 {is_right}, {is_unused}"))


# The launch ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """Operands. grid, block: pointers to three i64. blocks, shared_bytes: i64."""

    grid: str
    block: str
    blocks: str
    shared_bytes: str


def _size_in_brackets(frame: Frame) -> Size:
    grid, block = (
        frame.w.emit(f"getelementptr i8, ptr {frame.state}, i64 {tables.STATE[name]}") for name in ("grid_x", "block_x")
    )
    return Size(grid, block, frame.of_state("blocks", "i64"), frame.of_state("shared_bytes", "i64"))


def _own_size(frame: Frame, request: LauncherRequest, evaluator: Evaluator) -> Size:
    """What the kernel computes, within the limits of a launch."""
    launch, w = request.launch, frame.w
    if launch is None:
        raise InternalError("a launcher without a launch")
    grid, block = ([evaluator.value_of(axis) for axis in axes] for axes in (launch.grid, launch.block))
    sizes.require_limits(frame, grid, sizes.GRID_LIMITS)
    sizes.require_limits(frame, block, sizes.BLOCK_LIMITS)
    if request.block is None:
        frame.require(w.emit(f"icmp sle i64 {sizes.product(w, block)}, {sizes.MAX_THREADS}"))
    for axis, fixed in zip(block, request.block or ()):
        frame.require_equal("i64", axis, str(fixed))
    shared_bytes = evaluator.value_of(launch.shared_bytes)
    sizes.require_limits(frame, [shared_bytes], (sizes.MAX_SHARED_BYTES,))
    return Size(_stored(frame, grid), _stored(frame, block), sizes.product(w, grid), shared_bytes)


def _stored(frame: Frame, words: list[str]) -> str:
    w = frame.w
    memory = w.emit_entry(f"alloca [{max(len(words), 1)} x i64]")
    for place, text in enumerate(words):
        w.line(f"store i64 {text}, ptr {_word(w, memory, place)}")
    return memory


def _word(w: Writer, memory: str, place: int) -> str:
    return w.emit(f"getelementptr i64, ptr {memory}, i64 {place}") if place else memory


def _run(frame: Frame, request: LauncherRequest, values: Values, size: Size) -> str:
    operands = [("ptr", frame.state), ("ptr", values.slots), ("ptr", size.grid), ("i64", size.blocks)]
    memory = [("i64", str(request.scratch_bytes)), ("i64", size.shared_bytes)]
    return frame.call_support("ptr", "run", operands + memory)


def _enqueue(frame: Frame, request: LauncherRequest, values: Values, size: Size) -> str:
    w, count = frame.w, len(request.slots)
    device, stream_of = _device(frame, values)
    pointers = w.emit_entry(f"alloca [{max(count, 1)} x ptr]")
    for place in range(count):
        w.line(f"store ptr {_word(w, values.slots, place)}, ptr {_word(w, pointers, place)}")
    shared_bytes = w.emit(f"add i64 {size.shared_bytes}, {request.added_shared_bytes}")
    operands = [("ptr", frame.state), ("ptr", pointers), ("ptr", size.grid), ("ptr", size.block)]
    operands += [("i64", shared_bytes), ("i32", device), ("ptr", stream_of)]
    result = frame.call_support("ptr", "enqueue", operands)
    frame.require(w.emit(f"icmp ne ptr {result}, inttoptr (i64 1 to ptr)"))
    return result


def _device(frame: Frame, values: Values) -> tuple[str, str]:
    """The one GPU of all arrays, -1 without arrays; and who knows its current stream: null where all arrays are ours."""
    w, count = frame.w, len(values.arrays)
    if not count:
        return "-1", "null"
    device, stream_of = w.emit_entry("alloca i32"), w.emit_entry("alloca ptr")
    operands = [("ptr", values.readings), ("i64", str(count)), ("ptr", device), ("ptr", stream_of)]
    frame.require(frame.call_support("i1", "agree_on_device", operands))
    return frame.load("i32", device, 0), frame.load("ptr", stream_of, 0)
