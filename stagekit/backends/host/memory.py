"""Loads, stores and allocations: as wide as the address allows, touching nothing for a lane that is off.

    address          load                                store
    uniform          one scalar load                     the highest lane that is on wins
    a few runs       a vector load per run, joined       a vector store per run, in lane order
    close together   vector loads over all, shuffled
    anything else    gather                              scatter (in lane order)

Nothing is read or written at the address of a lane that is off, however regular the pattern.
"""

from __future__ import annotations

from dataclasses import replace

from stagekit import dtypes
from stagekit.backends.host.branches import when
from stagekit.backends.host.forms import ALL_LANES, LANES, Address, Form, Linear, Mask, Uniform, Vector, number, unknown
from stagekit.backends.host.integers import integer_binary
from stagekit.backends.host.lane_loop import PerLane, for_each_lane
from stagekit.backends.host.pointers import (
    address_of,
    at,
    element_pointer,
    full_vector,
    lane_elements,
    local_element,
)
from stagekit.backends.host.runs import Run, runs_of
from stagekit.backends.host.selection import select
from stagekit.backends.host.spread import any_lane, as_mask, as_vector, lane_word, mask_and, splat
from stagekit.backends.host.warp import Warp
from stagekit.backends.host.windows import has_window, load_window
from stagekit.backends.llvm.types import memory_type, suffix, vector_of
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Pointer, Scalar, Space, Type, ops

MOST_JOINED_RUNS = 4  # beyond it, elements that lie close together are loaded as one stretch


def _pointer_type(type_: Type) -> Pointer:
    assert isinstance(type_, Pointer)
    return type_


def _element_address(warp: Warp, type_: Pointer, form: Form) -> Address:
    address = address_of(form)
    return local_element(warp, type_, address) if type_.space is Space.LOCAL else address


def emit_alloc(warp: Warp, op: ops.Alloc) -> None:
    if op.space is Space.SHARED:
        warp[op.result] = at(warp.kernel.shared[op])
        return
    base = at(warp.kernel.local_base(op, warp.number))
    if warp.kernel.retypes_local:
        pitch = warp.kernel.local_pitch(op)
        base = Address(base.base, Linear(number(0), tuple(lane * pitch for lane in range(LANES))))
    warp[op.result] = base


def _is_branchy(dtype: DType, on: Mask | None, least_bytes: int) -> bool:
    """Would LLVM write a branch for each of 32 lanes, for want of an instruction? A loop over the lanes is shorter."""
    return on is not None and on.lanes is None and dtype.itemsize < least_bytes


# -- loads ------------------------------------------------------------------------------------------------------------


def emit_load(warp: Warp, op: ops.Load) -> None:
    type_ = _pointer_type(op.pointer.type)
    address = _element_address(warp, type_, warp[op.pointer])
    asked = warp[op.mask] if op.mask is not None else None
    if op.other is None or asked is None or (isinstance(asked, Uniform) and asked.text == "true"):
        loaded = _load(warp, type_.dtype, address, warp.mask, None)
    elif isinstance(asked, Uniform) and asked.text == "false":
        loaded = warp[op.other]
    else:
        loaded = _masked_load(warp, type_.dtype, address, as_mask(warp, asked), warp[op.other])
    warp[op.result] = _frozen(warp, type_, loaded) if type_.space is Space.LOCAL else loaded


def _frozen(warp: Warp, type_: Pointer, form: Form) -> Form:
    """A value read from the stack as some number: what nobody wrote would otherwise be LLVM's `undef`."""
    if not isinstance(form, Vector | Mask):
        return form
    text = warp.w.emit(f"freeze {warp.w.type(type_.dtype, LANES)} {full_vector(warp, Scalar(type_.dtype), form)}")
    return Mask(text) if isinstance(form, Mask) else replace(form, text=text, is_narrow=False)


def _masked_load(warp: Warp, dtype: DType, address: Address, asked: Mask, other: Form) -> Form:
    on = mask_and(warp.w, warp.mask, asked)
    if isinstance(address.base, Uniform) and isinstance(address.index, Uniform):
        pointer = element_pointer(warp, dtype, address.base.text, address.index)
        loaded = _scalar_load(warp, dtype, _safe_pointer(warp, pointer, any_lane(warp.w, on) if on else "true"))
        return select(warp, Scalar(dtype), asked, loaded, other)
    return _load(warp, dtype, address, on, other)


def _load(warp: Warp, dtype: DType, address: Address, on: Mask | None, other: Form | None) -> Form:
    """The element of each lane in `on`; `other`, or anything, in the rest. Not all lanes are off."""
    if isinstance(address.base, Uniform) and isinstance(address.index, Uniform):
        return _scalar_load(warp, dtype, element_pointer(warp, dtype, address.base.text, address.index))
    fill = _in_memory(warp, dtype, other) if other is not None else "zeroinitializer"
    is_branchy = _is_branchy(dtype, on, warp.kernel.features.least_masked_bytes)
    if isinstance(address.base, Uniform) and isinstance(address.index, Linear) and not is_branchy:
        text = _load_regular(warp, dtype, address.base, address.index, on, fill)
    else:
        text = _gather(warp, dtype, address, on, fill)
    return _from_memory(warp, dtype, text)


def _load_regular(warp: Warp, dtype: DType, base: Uniform, index: Linear, on: Mask | None, fill: str) -> str:
    runs = runs_of(index, ALL_LANES if on is None or on.lanes is None else on.lanes)
    if on is None and has_window(index) and (runs is None or len(runs) > MOST_JOINED_RUNS):
        return load_window(warp, dtype, element_pointer(warp, dtype, base.text, index.base), index.offsets)
    if runs is None:
        return _gather(warp, dtype, Address(base, index), on, fill)
    return _load_runs(warp, dtype, base, index, runs, on, fill)


def _scalar_load(warp: Warp, dtype: DType, pointer: str) -> Uniform:
    text = warp.w.emit(f"load {memory_type(dtype, None)}, ptr {pointer}, align {dtype.itemsize}")
    if dtype is dtypes.bool_:
        return Uniform(warp.w.emit(f"icmp ne i8 {text}, 0"))
    return Uniform(text, unknown(dtype))


def _safe_pointer(warp: Warp, pointer: str, is_used: str) -> str:
    """`pointer`, or one into the stack where nothing may be read from `pointer`."""
    if is_used == "true":
        return pointer
    return warp.w.emit(f"select i1 {is_used}, ptr {pointer}, ptr {warp.kernel.buffer('i64', 1, 'safe')}")


def _from_memory(warp: Warp, dtype: DType, text: str) -> Vector | Mask:
    if dtype is dtypes.bool_:
        return Mask(warp.w.emit(f"icmp ne <{LANES} x i8> {text}, zeroinitializer"))
    return Vector(text, unknown(dtype))


def _in_memory(warp: Warp, dtype: DType, form: Form) -> str:
    """The vector as memory holds it."""
    text = full_vector(warp, Scalar(dtype), form)
    return warp.w.emit(f"zext <{LANES} x i1> {text} to <{LANES} x i8>") if dtype is dtypes.bool_ else text


def _load_runs(
    warp: Warp, dtype: DType, base: Uniform, index: Linear, runs: list[Run], on: Mask | None, fill: str
) -> str:
    element, w = memory_type(dtype, None), warp.w
    if len(runs) == 1 and runs[0].count == LANES:
        pointer = _run_pointer(warp, dtype, base, index, runs[0])
        return _load_vector(w, element, LANES, pointer, dtype.itemsize, on.text if on else None, fill)
    result = fill
    for run in runs:
        pointer = _run_pointer(warp, dtype, base, index, run)
        result = _blend(w, element, result, _load_run(warp, dtype, element, run, pointer, on), run, on)
    return result


def _load_run(warp: Warp, dtype: DType, element: str, run: Run, pointer: str, on: Mask | None) -> str:
    """`<32 x T>` with the elements of `run` in its lanes."""
    w = warp.w
    if run.step == 0 or run.count == 1:
        used = "true" if on is None else _any_of_run(w, run, on)
        text = w.emit(f"load {element}, ptr {_safe_pointer(warp, pointer, used)}, align {dtype.itemsize}")
        return splat(w, element, text)
    mask = None if on is None else _slice(w, "i1", on.text, run)
    part = _load_vector(w, element, run.count, pointer, dtype.itemsize, mask, "zeroinitializer")
    places = ", ".join(f"i32 {lane - run.lane}" if lane in run.lanes else "i32 poison" for lane in range(LANES))
    held = vector_of(element, run.count)
    return w.emit(f"shufflevector {held} {part}, {held} poison, <{LANES} x i32> <{places}>")


def _any_of_run(w: Writer, run: Run, on: Mask) -> str:
    if on.lanes is not None:
        return "true" if on.lanes & run.bits else "false"
    bits = w.emit(f"and i32 {lane_word(w, on)}, {run.bits - (1 << 32) if run.bits >> 31 else run.bits}")
    return w.emit(f"icmp ne i32 {bits}, 0")


def _blend(w: Writer, element: str, result: str, loaded: str, run: Run, on: Mask | None) -> str:
    """`loaded` in the lanes of the run that are on, `result` elsewhere."""
    held = vector_of(element, LANES)
    if on is not None and result != "zeroinitializer":
        chosen = f"<{LANES} x i1> {on.text}"
        loaded = w.emit(f"select {chosen}, {held} {loaded}, {held} {result}")
    places = ", ".join(f"i32 {LANES + lane if lane in run.lanes else lane}" for lane in range(LANES))
    return w.emit(f"shufflevector {held} {result}, {held} {loaded}, <{LANES} x i32> <{places}>")


def _run_pointer(warp: Warp, dtype: DType, base: Uniform, index: Linear, run: Run) -> str:
    total: Form = index.base
    for (coefficient, _), step in zip(index.scaled, run.steps, strict=True):
        product = integer_binary(warp, BinaryKind.MUL, dtypes.INDEX, coefficient, number(step))
        total = integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, total, product)
    start = integer_binary(warp, BinaryKind.ADD, dtypes.INDEX, total, number(run.offset))
    assert isinstance(start, Uniform)
    return element_pointer(warp, dtype, base.text, start)


def _load_vector(w: Writer, element: str, count: int, pointer: str, align: int, mask: str | None, fill: str) -> str:
    held = vector_of(element, count)
    if mask is None:
        return w.emit(f"load {held}, ptr {pointer}, align {align}")
    args = [(f"ptr align {align}", pointer), (f"<{count} x i1>", mask), (held, fill)]
    return _call(w, held, f"llvm.masked.load.{suffix(held)}.p0", args)


def _call(w: Writer, result: str, name: str, args: list[tuple[str, str]]) -> str:
    """Call an intrinsic whose pointer arguments carry an alignment."""
    w.declare(f"{result} @{name}({', '.join(t.split(' align ')[0] for t, _ in args)})")
    text = f"call {result} @{name}({', '.join(f'{t} {a}' for t, a in args)})"
    if result != "void":
        return w.emit(text)
    w.line(text)
    return ""


def _slice(w: Writer, element: str, text: str, run: Run) -> str:
    """The lanes of `run` as a vector of their own."""
    held = vector_of(element, LANES)
    places = ", ".join(f"i32 {lane}" for lane in run.lanes)
    return w.emit(f"shufflevector {held} {text}, {held} poison, <{run.count} x i32> <{places}>")


def _lane_pointers(warp: Warp, dtype: DType, address: Address) -> str:
    return lane_elements(warp, dtype, address.base, as_vector(warp, dtypes.INDEX, address.index))


def _gather(warp: Warp, dtype: DType, address: Address, on: Mask | None, fill: str) -> str:
    if on is not None and _is_branchy(dtype, on, warp.kernel.features.least_gathered_bytes):
        return _gather_by_lane(warp, dtype, address, on, fill)
    held = memory_type(dtype, LANES)
    args = [
        (f"<{LANES} x ptr> align {dtype.itemsize}", _lane_pointers(warp, dtype, address)),
        (f"<{LANES} x i1>", on.text if on else "splat (i1 true)"),
        (held, fill),
    ]
    return _call(warp.w, held, f"llvm.masked.gather.{suffix(held)}.v{LANES}p0", args)


def _gather_by_lane(warp: Warp, dtype: DType, address: Address, on: Mask, fill: str) -> str:
    w, element, held = warp.w, memory_type(dtype, None), memory_type(dtype, LANES)
    pointers = PerLane("ptr", _lane_pointers(warp, dtype, address), False)
    load = lambda scalars: w.emit(f"load {element}, ptr {scalars[0]}, align {dtype.itemsize}")  # noqa: E731
    text = for_each_lane(warp, on, [pointers], element, load)
    if fill == "zeroinitializer":
        return text
    return w.emit(f"select <{LANES} x i1> {on.text}, {held} {text}, {held} {fill}")


# -- stores -----------------------------------------------------------------------------------------------------------


def emit_store(warp: Warp, op: ops.Store) -> None:
    type_ = _pointer_type(op.pointer.type)
    address = _element_address(warp, type_, warp[op.pointer])
    asked, value = warp[op.mask] if op.mask is not None else None, warp[op.value]
    if asked is None or (isinstance(asked, Uniform) and asked.text == "true"):
        _store(warp, type_.dtype, address, value, warp.mask)
    elif not (isinstance(asked, Uniform) and asked.text == "false"):
        _masked_store(warp, type_.dtype, address, value, mask_and(warp.w, warp.mask, as_mask(warp, asked)))


def _masked_store(warp: Warp, dtype: DType, address: Address, value: Form, on: Mask | None) -> None:
    is_scalar = isinstance(address.base, Uniform) and isinstance(address.index, Uniform)
    if on is None or not is_scalar:
        _store(warp, dtype, address, value, on)
        return
    with when(warp.w, any_lane(warp.w, on)):
        _store(warp, dtype, address, value, on)


def _store(warp: Warp, dtype: DType, address: Address, value: Form, on: Mask | None) -> None:
    """Store the lanes in `on`. Not all lanes are off where the address is uniform."""
    if isinstance(address.base, Uniform) and isinstance(address.index, Uniform):
        pointer = element_pointer(warp, dtype, address.base.text, address.index)
        _scalar_store(warp, dtype, pointer, _last_lane(warp, dtype, value, on))
        return
    text = _in_memory(warp, dtype, value)
    is_branchy = _is_branchy(dtype, on, warp.kernel.features.least_masked_bytes)
    if isinstance(address.base, Uniform) and isinstance(address.index, Linear) and not is_branchy:
        runs = runs_of(address.index, ALL_LANES if on is None or on.lanes is None else on.lanes)
        if runs is not None and (on is None or all(run.step for run in runs)):
            for run in runs:
                pointer = _run_pointer(warp, dtype, address.base, address.index, run)
                _store_run(warp.w, dtype, run, pointer, text, on)
            return
    _scatter(warp, dtype, _lane_pointers(warp, dtype, address), text, on)


def _scatter(warp: Warp, dtype: DType, pointers: str, text: str, on: Mask | None) -> None:
    if on is not None and _is_branchy(dtype, on, warp.kernel.features.least_scattered_bytes):
        _scatter_by_lane(warp, dtype, pointers, text, on)
        return
    args = [
        (memory_type(dtype, LANES), text),
        (f"<{LANES} x ptr> align {dtype.itemsize}", pointers),
        (f"<{LANES} x i1>", on.text if on else "splat (i1 true)"),
    ]
    _call(warp.w, "void", f"llvm.masked.scatter.{suffix(args[0][0])}.v{LANES}p0", args)


def _scatter_by_lane(warp: Warp, dtype: DType, pointers: str, text: str, on: Mask) -> None:
    element = memory_type(dtype, None)

    def store(scalars: list[str]) -> str:
        warp.w.line(f"store {element} {scalars[1]}, ptr {scalars[0]}, align {dtype.itemsize}")
        return ""

    for_each_lane(warp, on, [PerLane("ptr", pointers, False), PerLane(element, text, False)], "", store)


def _store_run(w: Writer, dtype: DType, run: Run, pointer: str, text: str, on: Mask | None) -> None:
    element = memory_type(dtype, None)
    if run.step == 0:  # unmasked: the last of them wins
        last = w.emit(f"extractelement <{LANES} x {element}> {text}, i64 {run.lanes[-1]}")
        w.line(f"store {element} {last}, ptr {pointer}, align {dtype.itemsize}")
        return
    held = vector_of(element, run.count)
    part = text if run.count == LANES else _slice(w, element, text, run)
    if on is None:
        w.line(f"store {held} {part}, ptr {pointer}, align {dtype.itemsize}")
        return
    mask = on.text if run.count == LANES else _slice(w, "i1", on.text, run)
    args = [(held, part), (f"ptr align {dtype.itemsize}", pointer), (f"<{run.count} x i1>", mask)]
    _call(w, "void", f"llvm.masked.store.{suffix(held)}.p0", args)


def _scalar_store(warp: Warp, dtype: DType, pointer: str, text: str) -> None:
    element = memory_type(dtype, None)
    if dtype is dtypes.bool_:
        text = warp.w.emit(f"zext i1 {text} to i8")
    warp.w.line(f"store {element} {text}, ptr {pointer}, align {dtype.itemsize}")


def _last_lane(warp: Warp, dtype: DType, value: Form, on: Mask | None) -> str:
    """The scalar in the highest lane that is on."""
    if isinstance(value, Uniform):
        return value.text
    w, scalar = warp.w, Scalar(dtype)
    held = f"{w.type(scalar, LANES)} {full_vector(warp, scalar, value)}"
    known = ALL_LANES if on is None else on.lanes
    if on is None or known is not None:
        return w.emit(f"extractelement {held}, i64 {(known or ALL_LANES).bit_length() - 1}")
    zeros = w.call("i32", "llvm.ctlz.i32", [("i32", lane_word(w, on)), ("i1", "true")])
    return w.emit(f"extractelement {held}, i32 {w.emit(f'sub i32 31, {zeros}')}")
