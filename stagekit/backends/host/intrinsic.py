"""Calls of intrinsics: natives by a table, LLVM's own as vectors, C functions lane by lane."""

from __future__ import annotations

from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.host import collective
from stagekit.backends.host.atomics import emit_atomic
from stagekit.backends.host.barriers import emit_barrier, emit_barrier_count, emit_barrier_vote
from stagekit.backends.host.carried import as_full
from stagekit.backends.host.forms import LANES, Form, Linear, Uniform, number, unknown
from stagekit.backends.host.integers import integer_binary
from stagekit.backends.host.lane_loop import PerLane, for_each_lane
from stagekit.backends.host.pointers import full_vector
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import llvm_type, suffix
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Extern, Llvm, Native, Scalar, Type, Value, ops
from stagekit.ir.typing import types_of


def emit_intrinsic(warp: Warp, op: ops.IntrinsicOp) -> None:
    lowering = op.spec.lowering("cpu", types_of(op.args), fastmath=warp.kernel.fastmath)
    if isinstance(lowering, Native):
        _NATIVES[lowering](warp, op, lowering)
    elif isinstance(lowering, Llvm):
        _emit_llvm(warp, op, lowering)
    elif isinstance(lowering, Extern):
        _emit_extern(warp, op, lowering)
    else:
        raise InternalError(f"`{op.spec.name}` reached the cpu target as {lowering}")


# -- indices ----------------------------------------------------------------------------------------------------------


def _emit_thread_idx(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """x runs fastest: the number of a thread is x + X * (y + Y * z)."""
    axis, (size_x, size_y, size_z) = "xyz".index(op.params[0]), warp.kernel.block
    below, size = (1, size_x, size_x * size_y)[axis], (size_x, size_y, size_z)[axis]
    if size == 1:
        warp[op.result] = number(0)
        return
    index: Form = integer_binary(warp, BinaryKind.FLOORDIV, dtypes.INDEX, warp.thread(), number(below))
    if below * size < warp.kernel.threads:
        index = integer_binary(warp, BinaryKind.MOD, dtypes.INDEX, index, number(size))
    warp[op.result] = index


def _emit_block_idx(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    warp[op.result] = warp.kernel.block_idx["xyz".index(op.params[0])]


def _emit_block_dim(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    warp[op.result] = number(warp.kernel.block["xyz".index(op.params[0])])


def _emit_grid_dim(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    warp[op.result] = warp.kernel.grid_dim["xyz".index(op.params[0])]


def _emit_lane_id(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    warp[op.result] = Linear(number(0), tuple(range(LANES)))


def _emit_warp_id(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    warp[op.result] = warp.number


def _emit_warp_barrier(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Nothing: lanes are in lockstep, and their accesses stay in order."""


def _emit_fence(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    if op.params[0] != "block":  # a block is one OS thread, which sees its own accesses in order
        warp.w.line("fence seq_cst")


# -- functions --------------------------------------------------------------------------------------------------------


def _emit_llvm(warp: Warp, op: ops.IntrinsicOp, lowering: Llvm) -> None:
    forms = [warp[a] for a in op.args]
    lanes = None if all(isinstance(form, Uniform) for form in forms) else LANES
    args = [
        (llvm_type(v.type, lanes), _operand(warp, v.type, form, lanes)) for v, form in zip(op.args, forms, strict=True)
    ]
    name = lowering.name.replace("{T}", suffix(args[0][0]))
    text = warp.w.call(llvm_type(op.result.type, lanes), name, [*args, *lowering.immediates])
    warp[op.result] = _result(op.result, text, lanes)


def _operand(warp: Warp, type_: Type, form: Form, lanes: int | None) -> str:
    if lanes is None and isinstance(form, Uniform):
        return form.text
    return full_vector(warp, type_, form)


def _result(value: Value, text: str, lanes: int | None) -> Form:
    if lanes is not None:
        return as_full(value.type, text)
    dtype = _dtype(value.type)
    return Uniform(text, unknown(dtype))


def _dtype(type_: Type) -> DType:
    if not isinstance(type_, Scalar):
        raise InternalError(f"an intrinsic of the cpu target gives {type_}")
    return type_.dtype


def _emit_extern(warp: Warp, op: ops.IntrinsicOp, lowering: Extern) -> None:
    forms, held = [warp[a] for a in op.args], [llvm_type(v.type, None) for v in op.args]
    result = llvm_type(op.result.type, None)

    def call(scalars: list[str]) -> str:
        return warp.w.call(result, lowering.symbol, list(zip(held, scalars, strict=True)))

    if all(isinstance(form, Uniform) for form in forms):
        text = call([_operand(warp, v.type, form, None) for v, form in zip(op.args, forms, strict=True)])
        warp[op.result] = _result(op.result, text, None)
        return
    inputs = [_per_lane(warp, v, form) for v, form in zip(op.args, forms, strict=True)]
    warp[op.result] = _result(op.result, for_each_lane(warp, warp.mask, inputs, result, call), LANES)


def _per_lane(warp: Warp, value: Value, form: Form) -> PerLane:
    element = llvm_type(value.type, None)
    if isinstance(form, Uniform):
        return PerLane(element, form.text, True)
    return PerLane(element, full_vector(warp, value.type, form), False)


_NATIVES: dict[Native, Callable[[Warp, ops.IntrinsicOp, Native], None]] = {
    Native.THREAD_IDX: _emit_thread_idx,
    Native.BLOCK_IDX: _emit_block_idx,
    Native.BLOCK_DIM: _emit_block_dim,
    Native.GRID_DIM: _emit_grid_dim,
    Native.LANE_ID: _emit_lane_id,
    Native.WARP_ID: _emit_warp_id,
    Native.BARRIER: emit_barrier,
    Native.BARRIER_COUNT: emit_barrier_count,
    Native.BARRIER_AND: emit_barrier_vote,
    Native.BARRIER_OR: emit_barrier_vote,
    Native.WARP_BARRIER: _emit_warp_barrier,
    Native.FENCE: _emit_fence,
    Native.SHUFFLE_IDX: collective.emit_shuffle,
    Native.SHUFFLE_UP: collective.emit_shuffle,
    Native.SHUFFLE_DOWN: collective.emit_shuffle,
    Native.SHUFFLE_XOR: collective.emit_shuffle,
    Native.BALLOT: collective.emit_ballot,
    Native.VOTE_ANY: collective.emit_any,
    Native.VOTE_ALL: collective.emit_all,
    Native.MATCH_ANY: collective.emit_match_any,
    Native.ACTIVE_MASK: collective.emit_active_mask,
    **{native: emit_atomic for native in Native if native.value.startswith("atomic_")},
}
