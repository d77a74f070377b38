"""Calls of intrinsics: natives by a table, LLVM's own as vectors, C functions lane by lane."""

from __future__ import annotations

from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.host import collective
from stagekit.backends.host.atomics import emit_atomic, emit_atomic_load, emit_atomic_store
from stagekit.backends.host.forms import LANES, Form, Linear, number
from stagekit.backends.host.integers import integer_binary
from stagekit.backends.host.lanes import for_each_lane
from stagekit.backends.host.pointers import elementwise, per_lane
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import Lanes, llvm_type, suffix
from stagekit.diagnostics import InternalError
from stagekit.ir import BinaryKind, Extern, Llvm, Native, ops
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
    """Compute an index from the number of the thread, x + X * (y + Y * z): x runs fastest."""
    axis, (size_x, size_y, size_z) = "xyz".index(op.params[0]), warp.kernel.block
    below, size = (1, size_x, size_x * size_y)[axis], (size_x, size_y, size_z)[axis]
    if size == 1:
        warp[op.result] = number(0)
        return
    index: Form = integer_binary(warp, BinaryKind.FLOORDIV, dtypes.INDEX, warp.thread(), number(below))
    if below * size < warp.kernel.threads:
        index = integer_binary(warp, BinaryKind.MOD, dtypes.INDEX, index, number(size))
    warp[op.result] = index


def _emit_index(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Give what is the same in all threads of the block or of the warp, or the number of a lane."""
    kernel, axis = warp.kernel, "xyz".index(op.params[0]) if op.params else 0
    forms: dict[Native, Callable[[], Form]] = {
        Native.BLOCK_IDX: lambda: kernel.block_idx[axis],
        Native.BLOCK_DIM: lambda: number(kernel.block[axis]),
        Native.GRID_DIM: lambda: kernel.grid_dim[axis],
        Native.LANE_ID: lambda: Linear(number(0), tuple(range(LANES))),
        Native.WARP_ID: lambda: warp.number,
    }
    warp[op.result] = forms[native]()


def _emit_fence(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    """Write a fence between OS threads. A block is one, and a warp is in lockstep: within them nothing is needed."""
    if native is Native.FENCE and op.params[1] != "block":
        warp.w.line(f"fence {op.params[0]}")


# -- functions --------------------------------------------------------------------------------------------------------


def _emit_llvm(warp: Warp, op: ops.IntrinsicOp, lowering: Llvm) -> None:
    def write(lanes: Lanes, texts: list[str]) -> str:
        held = [llvm_type(v.type, lanes) for v in op.args]
        name, args = lowering.name.replace("{T}", suffix(held[0])), zip(held, texts, strict=True)
        return warp.w.call(llvm_type(op.result.type, lanes), name, [*args, *lowering.immediates])

    warp[op.result] = elementwise(warp, [(v.type, warp[v]) for v in op.args], op.result.type, write)


def _emit_extern(warp: Warp, op: ops.IntrinsicOp, lowering: Extern) -> None:
    args, held = [(v.type, warp[v]) for v in op.args], [llvm_type(v.type, None) for v in op.args]
    result = llvm_type(op.result.type, None)

    def call(scalars: list[str]) -> str:
        return warp.w.call(result, lowering.symbol, list(zip(held, scalars, strict=True)))

    def write(lanes: Lanes, texts: list[str]) -> str:
        if lanes is None:
            return call(texts)
        return for_each_lane(warp, warp.mask, [per_lane(warp, *arg) for arg in args], result, call)

    warp[op.result] = elementwise(warp, args, op.result.type, write)


def _give_way(warp: Warp, op: ops.IntrinsicOp, native: Native) -> None:
    warp.w.call("i32", "sched_yield", [])


_NATIVES: dict[Native, Callable[[Warp, ops.IntrinsicOp, Native], None]] = {
    Native.THREAD_IDX: _emit_thread_idx,
    **dict.fromkeys((Native.BLOCK_IDX, Native.BLOCK_DIM, Native.GRID_DIM, Native.LANE_ID, Native.WARP_ID), _emit_index),
    Native.BARRIER: collective.emit_barrier,
    Native.BARRIER_COUNT: collective.emit_barrier,
    Native.BARRIER_AND: collective.emit_barrier,
    Native.BARRIER_OR: collective.emit_barrier,
    Native.WARP_BARRIER: _emit_fence,
    Native.FENCE: _emit_fence,
    Native.GIVE_WAY: _give_way,
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
    Native.ATOMIC_LOAD: emit_atomic_load,
    Native.ATOMIC_STORE: emit_atomic_store,
}
