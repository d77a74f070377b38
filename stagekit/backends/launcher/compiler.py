"""From a request to machine code: a function that CPython calls with the arguments of a launch.

    ptr launcher(ptr self, ptr args, i64 given, ptr keywords)        METH_FASTCALL | METH_KEYWORDS

`self` is a tuple that begins with the address of a STATE (`native_tables.py`). The code reads and checks the arguments,
works out the launch, and runs or enqueues the kernel. Whatever it does not recognise it hands, whole, to the Python
callable in the STATE, so it decides only what is certain. No LLVM pass runs over it: it is a straight line of loads,
comparisons and calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from stagekit import native_tables as tables
from stagekit.backends.host.loader import LoadedCode, load
from stagekit.backends.host.target import machine_for, this_processor
from stagekit.backends.launcher import numbers, sizes, support, tensors
from stagekit.backends.launcher.frame import GENERAL, Frame
from stagekit.backends.launcher.request import LauncherRequest
from stagekit.backends.launcher.sizes import Evaluator
from stagekit.backends.launcher.tensors import ArrayValues
from stagekit.backends.llvm import optimize
from stagekit.backends.llvm.writer import Abilities, Module, Writer
from stagekit.backends.toolchain import identity
from stagekit.cache.codes import kept
from stagekit.diagnostics import InternalError
from stagekit.hostexpr import HostExpr, Op, Slot
from stagekit.signature import ArraySpec, NoneSpec, ParamSlot, ScalarSpec

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


def compile_support() -> bytes:
    """The object file of what launchers call."""
    return _assemble(support.text())


def load_support() -> tuple[dict[str, int], LoadedCode]:
    """The addresses of `support.FUNCTIONS`, and the code that must be kept."""
    code = compile_support()
    loaded = load(code, support.PREFIX + support.FUNCTIONS[0])
    return {name: loaded.address_of(support.PREFIX + name) for name in support.FUNCTIONS}, loaded


def _assemble(text: str) -> bytes:
    return kept("launcher", (text, *identity("cpu")), lambda: _object_code(text))


def _object_code(text: str) -> bytes:
    module = optimize.parse(text, llvm.create_context())
    return bytes(_quick_machine().emit_object(module))


def _quick_machine() -> Any:
    """A target machine that generates code as it stands: better code would take five times as long to make, and is mostly
    calls anyway.
    """
    machine_for(this_processor())  # initialises LLVM's target
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(opt=0, reloc="pic", codemodel="jitdefault", jit=True)


def _is_possible(request: LauncherRequest) -> bool:
    scalars = (spec.dtype for spec in request.specs if isinstance(spec, ScalarSpec))
    return all(map(numbers.can_read, scalars)) and not any(_reads_float(request, e) for e in _expressions(request))


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


@dataclass(slots=True)
class Values:
    """What was read. slots: (LLVM type, operand) by slot. arrays: by argument."""

    slots: dict[int, tuple[str, str]]
    arrays: dict[int, ArrayValues]


def write(request: LauncherRequest) -> str:
    """The LLVM text."""
    module = Module(Abilities())
    frame = _open(Writer(module), request)
    values = _read(frame, request, _bind(frame, request))
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
    values = Values({}, {})
    numbers_read: dict[int, tuple[str, str]] = {}
    for place, (parameter, object_) in enumerate(zip(request.parameters, objects, strict=True)):
        if parameter.argument is None:
            _check_constexpr(frame, request, place, object_)
            continue
        spec = request.specs[parameter.argument]
        if isinstance(spec, NoneSpec):
            frame.require_equal("ptr", object_, frame.of_process("none"))
        elif isinstance(spec, ScalarSpec):
            number = numbers.read_number(frame, spec.dtype, object_, parameter.is_declared)
            numbers_read[parameter.argument] = number
        else:
            values.arrays[parameter.argument] = tensors.read_array(frame, spec, request.target, object_)
    for index, slot in enumerate(request.slots):
        values.slots[index] = _slot(slot, values.arrays, numbers_read)
    return values


def _check_constexpr(frame: Frame, request: LauncherRequest, place: int, object_: str) -> None:
    """The very object that was specialised for, or an equal int."""
    w, constant = frame.w, request.parameters[place].constant
    expected = frame.load("ptr", frame.state, tables.tail(tables.EXPECTED, len(request.parameters), place))
    is_it = w.emit(f"icmp eq ptr {object_}, {expected}")
    if constant is None:
        frame.require(is_it)
        return
    other, done = w.new_label("constant"), w.new_label("same")
    w.line(f"br i1 {is_it}, label %{done}, label %{other}")
    w.label(other)
    frame.require_equal("ptr", frame.type_of(object_), frame.of_process("int"))
    frame.require_equal("i64", numbers.read_int(frame, object_), str(constant))
    w.line(f"br label %{done}")
    w.label(done)


def _slot(slot: ParamSlot, arrays: dict[int, ArrayValues], numbers_read: dict[int, tuple[str, str]]) -> tuple[str, str]:
    if slot.kind == "value":
        return numbers_read[slot.argument]
    array = arrays[slot.argument]
    if slot.kind == "address":
        return "i64", array.address
    return "i64", (array.sizes if slot.kind == "size" else array.strides)[slot.axis]


def _integers(frame: Frame, request: LauncherRequest, values: Values) -> dict[int, str]:
    """The slots that expressions read, as i64."""
    used = {index for e in _expressions(request) for index in _slots_of(e)}
    found: dict[int, str] = {}
    for index in sorted(used):
        type_, text = values.slots[index]
        widen = "sext" if request.slots[index].dtype.is_signed else "zext"
        found[index] = text if type_ == "i64" else frame.w.emit(f"{widen} {type_} {text} to i64")
    return found


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
        for size, wanted in zip(array.sizes, spec.shape):
            if wanted is not None and not isinstance(wanted, int):
                frame.require_equal("i64", size, evaluator.value_of(wanted))
        for size, stride, fixed in zip(array.sizes, array.strides, spec.strides or ()):
            if fixed is not None:
                expected = str(fixed) if isinstance(fixed, int) else evaluator.value_of(fixed)
                _require_stride(frame, size, stride, expected)


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


def _store_slots(frame: Frame, values: Values) -> str:
    """Native parameters: 8 bytes each, the value at the low end."""
    w = frame.w
    memory = w.emit_entry(f"alloca [{max(len(values.slots), 1)} x i64]")
    for place, (type_, text) in values.slots.items():
        w.line(f"store {type_} {text}, ptr {_word(w, memory, place)}")
    return memory


def _run(frame: Frame, request: LauncherRequest, values: Values, size: Size) -> str:
    operands = [("ptr", frame.state), ("ptr", _store_slots(frame, values)), ("ptr", size.grid), ("i64", size.blocks)]
    memory = [("i64", str(request.scratch_bytes)), ("i64", size.shared_bytes)]
    return frame.call_support("ptr", "run", operands + memory)


def _enqueue(frame: Frame, request: LauncherRequest, values: Values, size: Size) -> str:
    w = frame.w
    device, stream_of = _device(frame, [array.reading for array in values.arrays.values()])
    slots = _store_slots(frame, values)
    pointers = w.emit_entry(f"alloca [{max(len(values.slots), 1)} x ptr]")
    for place in values.slots:
        w.line(f"store ptr {_word(w, slots, place)}, ptr {_word(w, pointers, place)}")
    shared_bytes = w.emit(f"add i64 {size.shared_bytes}, {request.added_shared_bytes}")
    operands = [("ptr", frame.state), ("ptr", pointers), ("ptr", size.grid), ("ptr", size.block)]
    operands += [("i64", shared_bytes), ("i32", device), ("ptr", stream_of)]
    result = frame.call_support("ptr", "enqueue", operands)
    frame.require(w.emit(f"icmp ne ptr {result}, inttoptr (i64 1 to ptr)"))
    return result


def _device(frame: Frame, readings: list[str]) -> tuple[str, str]:
    """The one GPU of all arrays, -1 without arrays; and who knows its current stream: null where all arrays are ours."""
    fields = tables.READING
    device, stream_of = "", "null"
    for reading in readings:
        its_device, its_stream = (
            frame.load("i32", reading, fields["device"]),
            frame.load("ptr", reading, fields["stream_of"]),
        )
        if device:
            frame.require_equal("i32", its_device, device)
        device = device or its_device
        stream_of = _agreed(frame, stream_of, its_stream)
    return device or "-1", stream_of


def _agreed(frame: Frame, known: str, other: str) -> str:
    """Whoever of two is not null; two different ones go the general way."""
    if known == "null":
        return other
    w = frame.w
    is_ours, is_new = w.emit(f"icmp eq ptr {other}, null"), w.emit(f"icmp eq ptr {known}, null")
    is_same = w.emit(f"icmp eq ptr {other}, {known}")
    frame.require(w.emit(f"or i1 {w.emit(f'or i1 {is_ours}, {is_new}')}, {is_same}"))
    return w.emit(f"select i1 {is_new}, ptr {other}, ptr {known}")
