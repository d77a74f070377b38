"""Calls of intrinsics: natives by a table, LLVM's own as vectors, C functions lane by lane.

Atomics go one lane after another. Shared memory belongs to one OS thread at a time, so there updates are plain accesses.
Where all lanes add to one address and nobody reads the old value, the lanes are summed first (integers: exact).
"""

from __future__ import annotations

from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.host import collective
from stagekit.backends.host.forms import ALL_LANES, LANES, Form, Linear, Uniform, Varying, number, unknown
from stagekit.backends.host.integers import integer_binary
from stagekit.backends.host.lanes import for_each_lane
from stagekit.backends.host.matrix_unit import emit_product
from stagekit.backends.host.pointers import address_of, elementwise, full_vector, per_lane, scalar_pointer
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import Lanes, llvm_type, scalar_type, suffix
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Extern, Llvm, Native, Pointer, Scalar, Space, ops
from stagekit.ir.intrinsic import BARRIERS, SHUFFLES
from stagekit.ir.typing import types_of

_EXTREMES = (Native.ATOMIC_MIN, Native.ATOMIC_MAX)
_COMBINABLE = (Native.ATOMIC_ADD, Native.ATOMIC_AND, Native.ATOMIC_OR, *_EXTREMES)


def emit_atomic(warp: Warp, op: ops.IntrinsicOp, native: Native) -> Form | None:
    pointer_type = op.args[0].type
    assert isinstance(pointer_type, Pointer)
    pointer, *values = (warp[a] for a in op.args)
    dtype, one = pointer_type.dtype, scalar_pointer(warp, pointer_type, address_of(pointer))
    is_used = op.result in warp.kernel.used
    if one and not is_used and native in _COMBINABLE and dtype.is_integer:
        _update(warp, op, native, one, [_combined(warp, native, dtype, values[0])])
        return None
    inputs = [per_lane(warp, arg.type, form) for arg, form in zip(op.args, (pointer, *values), strict=True)]
    old = for_each_lane(
        warp,
        warp.mask,
        inputs,
        scalar_type(dtype) if is_used else "",
        lambda scalars: _update(warp, op, native, scalars[0], scalars[1:]),
    )
    return Varying(old or "zeroinitializer", unknown(dtype))


def emit_atomic_pair(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Write a step on two neighbouring words as one on an integer of 128 bits."""
    pointer, order, w = op.args[0].type, _order(op), warp.w
    assert isinstance(pointer, Pointer)

    def step(scalars: list[str]) -> str:
        place, *words = scalars
        *expected, new = [_joined(w, *pair) for pair in zip(words[::2], words[1::2], strict=True)]
        if pointer.space is Space.SHARED:
            old = w.emit(f"load i128, ptr {place}, align 16")
            if expected:
                new = w.emit(f"select i1 {w.emit(f'icmp eq i128 {old}, {expected[0]}')}, i128 {new}, i128 {old}")
            w.line(f"store i128 {new}, ptr {place}, align 16")
            return old
        if not expected:
            return w.emit(f"atomicrmw xchg ptr {place}, i128 {new} {order}, align 16")
        found = w.emit(
            f"cmpxchg ptr {place}, i128 {expected[0]}, i128 {new} {order} {arith.order_if_failed(order)}, align 16"
        )
        return w.emit(f"extractvalue {{ i128, i1 }} {found}, 0")

    old = for_each_lane(warp, warp.mask, [per_lane(warp, arg.type, warp[arg]) for arg in op.args], "i128", step)
    wide, narrow = f"<{LANES} x i128>", f"<{LANES} x i64>"
    for result, text in zip(op.results, (old, w.emit(f"lshr {wide} {old}, splat (i128 64)")), strict=True):
        warp[result] = Varying(w.emit(f"trunc {wide} {text} to {narrow}"), unknown(pointer.dtype))


def _joined(w: Writer, low: str, high: str) -> str:
    wide = w.emit(f"shl i128 {w.emit(f'zext i64 {high} to i128')}, 64")
    return w.emit(f"or i128 {wide}, {w.emit(f'zext i64 {low} to i128')}")


def emit_atomic_load(warp: Warp, op: ops.IntrinsicOp, native: Native) -> Form:
    (pointer,) = op.args
    assert isinstance(pointer.type, Pointer)
    dtype = pointer.type.dtype
    held, how = scalar_type(dtype), f"{_order(op)}, align {dtype.itemsize}"

    def load(place: str) -> str:
        return warp.w.emit(f"load atomic {held}, ptr {place} {how}")

    one = scalar_pointer(warp, pointer.type, address_of(warp[pointer]))
    if one:
        return Uniform(load(one), unknown(dtype))
    inputs = [per_lane(warp, pointer.type, warp[pointer])]
    return Varying(for_each_lane(warp, warp.mask, inputs, held, lambda scalars: load(scalars[0])), unknown(dtype))


def emit_atomic_store(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    dtype = op.args[0].type.dtype
    held, how = scalar_type(dtype), f"{_order(op)}, align {dtype.itemsize}"

    def store(scalars: list[str]) -> str:
        warp.w.line(f"store atomic {held} {scalars[1]}, ptr {scalars[0]} {how}")
        return ""

    for_each_lane(warp, warp.mask, [per_lane(warp, arg.type, warp[arg]) for arg in op.args], "", store)


def _order(op: ops.IntrinsicOp) -> str:
    """Return the order of an atomic as LLVM spells it. Every scope may span OS threads: a block is one, which costs nothing."""
    order: str = op.params[0]
    return "monotonic" if order == "relaxed" else order


def _update(warp: Warp, op: ops.IntrinsicOp, native: Native, place: str, values: list[str]) -> str:
    """Write one lane's step; return the old value."""
    pointer, order = op.args[0].type, _order(op)
    assert isinstance(pointer, Pointer)
    if pointer.space is Space.SHARED:
        return _plain_update(warp, native, pointer.dtype, place, values)
    w, held = warp.w, scalar_type(pointer.dtype)
    if native is Native.ATOMIC_CAS:
        orders = f"{order} {arith.order_if_failed(order)}"
        pair = w.emit(f"cmpxchg ptr {place}, {held} {values[0]}, {held} {values[1]} {orders}")
        return w.emit(f"extractvalue {{ {held}, i1 }} {pair}, 0")
    return w.emit(f"atomicrmw {arith.atomic_operation(native, pointer.dtype)} ptr {place}, {held} {values[0]} {order}")


def _plain_update(warp: Warp, native: Native, dtype: DType, place: str, values: list[str]) -> str:
    w, held = warp.w, scalar_type(dtype)
    old = w.emit(f"load {held}, ptr {place}, align {dtype.itemsize}")
    if native is Native.ATOMIC_CAS:
        is_expected = w.emit(f"icmp eq {held} {old}, {values[0]}")
        new = w.emit(f"select i1 {is_expected}, {held} {values[1]}, {held} {old}")
    else:
        new = _combine(warp, native, dtype, old, values[0])
    w.line(f"store {held} {new}, ptr {place}, align {dtype.itemsize}")
    return old


def _combine(warp: Warp, native: Native, dtype: DType, old: str, value: str) -> str:
    w, held, name = warp.w, scalar_type(dtype), arith.atomic_operation(native, dtype)
    if native is Native.ATOMIC_EXCHANGE:
        return value
    if native in _EXTREMES:
        return w.call(held, f"llvm.{_with_sign(native, dtype)}.{held}", [(held, old), (held, value)])
    return w.emit(f"{name} {held} {old}, {value}")


def _with_sign(native: Native, dtype: DType) -> str:
    """Return the operation as LLVM's intrinsics spell it: `smin`, `umin`, but `add`."""
    name = arith.atomic_operation(native, dtype)
    return f"s{name}" if native in _EXTREMES and dtype.is_signed else name


def _combined(warp: Warp, native: Native, dtype: DType, value: Form) -> str:
    """Combine the values of all lanes that are on into one scalar."""
    w, held = warp.w, f"<{LANES} x {scalar_type(dtype)}>"
    if isinstance(value, Uniform):
        return value.text if native is not Native.ATOMIC_ADD else _times_lanes(warp, dtype, value)
    text = full_vector(warp, Scalar(dtype), value)
    if warp.mask is not None:
        neutral = f"splat ({scalar_type(dtype)} {_neutral(native, dtype)})"
        text = w.emit(f"select <{LANES} x i1> {warp.mask.text}, {held} {text}, {held} {neutral}")
    name = f"llvm.vector.reduce.{_with_sign(native, dtype)}.{suffix(held)}"
    return w.call(scalar_type(dtype), name, [(held, text)])


def _neutral(native: Native, dtype: DType) -> int:
    if native is Native.ATOMIC_AND:
        return -1 if dtype.is_signed else dtype.max
    return {Native.ATOMIC_MIN: dtype.max, Native.ATOMIC_MAX: dtype.min}.get(native, 0)


def _times_lanes(warp: Warp, dtype: DType, value: Uniform) -> str:
    w, held = warp.w, scalar_type(dtype)
    word = warp.mask.word(w) if warp.mask else str(ALL_LANES - (1 << 32))
    count = w.call("i32", "llvm.ctpop.i32", [("i32", word)])
    if dtype.bits != dtypes.int32.bits:
        count = w.emit(f"{'zext' if dtype.bits > 32 else 'trunc'} i32 {count} to {held}")
    return w.emit(f"mul {held} {count}, {value.text}")


def emit_intrinsic(warp: Warp, op: ops.IntrinsicOp) -> Form | None:
    lowering = op.spec.lowering("cpu", types_of(op.args), fastmath=warp.kernel.fastmath)
    if isinstance(lowering, Native):
        return _NATIVES[lowering](warp, op, lowering)
    if isinstance(lowering, Llvm):
        return _emit_llvm(warp, op, lowering)
    if isinstance(lowering, Extern):
        return _emit_extern(warp, op, lowering)
    raise InternalError(f"`{op.spec.name}` reached the cpu target as {lowering}")


# -- indices ----------------------------------------------------------------------------------------------------------


def _emit_thread_idx(warp: Warp, op: ops.IntrinsicOp, native: Native) -> Form:
    """Compute an index from the number of the thread, x + X * (y + Y * z): x runs fastest."""
    axis, (size_x, size_y, size_z) = _axis(op), warp.kernel.block
    below, size = (1, size_x, size_x * size_y)[axis], (size_x, size_y, size_z)[axis]
    if size == 1:
        return number(0)
    index: Form = integer_binary(warp, BinaryKind.FLOORDIV, dtypes.INDEX, warp.thread(), number(below))
    if below * size < warp.kernel.threads:
        index = integer_binary(warp, BinaryKind.MOD, dtypes.INDEX, index, number(size))
    return index


def _axis(op: ops.IntrinsicOp) -> int:
    return "xyz".index(op.params[0])


def _emit_fence(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Write a fence between OS threads. A block is one, and a warp is in lockstep: within them nothing is needed."""
    if native is Native.FENCE and op.params[1] != "block":
        warp.w.line(f"fence {op.params[0]}")


# -- functions --------------------------------------------------------------------------------------------------------


def _emit_llvm(warp: Warp, op: ops.IntrinsicOp, lowering: Llvm) -> Form:
    def write(lanes: Lanes, texts: list[str]) -> str:
        held = [llvm_type(v.type, lanes) for v in op.args]
        name = lowering.name.replace("{T}", suffix(held[0])).replace("{last}", suffix(held[-1]))
        args = zip(held, texts, strict=True)
        return warp.w.call(llvm_type(op.result.type, lanes), name, [*args, *lowering.immediates])

    return elementwise(warp, [(v.type, warp[v]) for v in op.args], op.result.type, write)


def _emit_extern(warp: Warp, op: ops.IntrinsicOp, lowering: Extern) -> Form:
    args, held = [(v.type, warp[v]) for v in op.args], [llvm_type(v.type, None) for v in op.args]
    result = llvm_type(op.result.type, None)

    def call(scalars: list[str]) -> str:
        return warp.w.call(result, lowering.symbol, list(zip(held, scalars, strict=True)))

    def write(lanes: Lanes, texts: list[str]) -> str:
        if lanes is None:
            return call(texts)
        return for_each_lane(warp, warp.mask, [per_lane(warp, *arg) for arg in args], result, call)

    return elementwise(warp, args, op.result.type, write)


def _give_way(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    warp.w.call("i32", "sched_yield", [])


_NATIVES: dict[Native, Callable[[Warp, ops.IntrinsicOp, Native], Form | None]] = {
    Native.THREAD_IDX: _emit_thread_idx,
    Native.BLOCK_IDX: lambda warp, op, native: warp.kernel.block_idx[_axis(op)],
    Native.BLOCK_DIM: lambda warp, op, native: number(warp.kernel.block[_axis(op)]),
    Native.GRID_DIM: lambda warp, op, native: warp.kernel.grid_dim[_axis(op)],
    Native.LANE_ID: lambda warp, op, native: Linear(number(0), tuple(range(LANES))),
    Native.WARP_ID: lambda warp, op, native: warp.number,
    **dict.fromkeys(BARRIERS, collective.emit_barrier),
    **dict.fromkeys((Native.WARP_BARRIER, Native.FENCE), _emit_fence),
    Native.GIVE_WAY: _give_way,
    **dict.fromkeys(SHUFFLES, collective.emit_shuffle),
    **dict.fromkeys((Native.BALLOT, Native.VOTE_ANY, Native.VOTE_ALL), collective.emit_vote),
    Native.MATCH_ANY: collective.emit_match_any,
    Native.ACTIVE_MASK: lambda warp, op, native: collective.active_word(warp),
    **{native: emit_atomic for native in Native if native.value.startswith("atomic_")},
    **dict.fromkeys((Native.ATOMIC_EXCHANGE_PAIR, Native.ATOMIC_CAS_PAIR), emit_atomic_pair),
    Native.ATOMIC_LOAD: emit_atomic_load,
    Native.ATOMIC_STORE: emit_atomic_store,
    Native.WARP_PRODUCT: emit_product,
}
