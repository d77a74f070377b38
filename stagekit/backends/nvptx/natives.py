"""What the GPU itself does: one row per member of `Native`.

Indices are special registers, 32 bits wide and never negative. LLVM is told the range of each, so that it does index arithmetic
on 64-bit values in 32 bits where that is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stagekit.backends.llvm import arith
from stagekit.backends.nvptx.state import Emitter
from stagekit.dtypes import DType, bfloat16, float16
from stagekit.intrinsics.order import PTX_SCOPES, PTX_SPACES
from stagekit.ir import Native, ops
from stagekit.limits import BLOCK_LIMITS, GRID_LIMITS, MAX_CLUSTER_BLOCKS, WARP

Rule = Callable[[Emitter, ops.IntrinsicOp], str]
"""A function that writes an op and returns the operand of its result, "" where it has none."""

_AXES = "xyz"
_MAX_BLOCK = dict(zip(_AXES, BLOCK_LIMITS, strict=True))
_MAX_GRID = dict(zip(_AXES, GRID_LIMITS, strict=True))


# -- indices ----------------------------------------------------------------------------------------------------------


def _register(e: Emitter, name: str, low: int, high: int) -> str:
    """Read a special register, whose value is in low..high, as i64."""
    signature = f"i32 @llvm.nvvm.read.ptx.sreg.{name}()"
    e.w.declare(signature)
    word = e.w.emit(f"call range(i32 {low}, {high + 1 if high < 2**31 - 1 else -(2**31)}) {signature}")
    return e.w.emit(f"zext i32 {word} to i64")


def _block_extent(e: Emitter, axis: str) -> int | None:
    return e.block_threads[_AXES.index(axis)] if e.block_threads else None


def _thread_idx(e: Emitter, axis: str) -> str:
    extent = _block_extent(e, axis) or _MAX_BLOCK[axis]
    return "0" if extent == 1 else _register(e, f"tid.{axis}", 0, extent - 1)


def _block_dim(e: Emitter, axis: str) -> str:
    extent = _block_extent(e, axis)
    return str(extent) if extent else _register(e, f"ntid.{axis}", 1, _MAX_BLOCK[axis])


def _warp_id(e: Emitter, op: ops.IntrinsicOp) -> str:
    """Compute it from the thread's number in the block: PTX says that %warpid may change while a kernel runs."""
    x, y, z = (_thread_idx(e, axis) for axis in _AXES)
    width, height = (_block_dim(e, axis) for axis in "xy")
    rows = e.w.emit(f"add i64 {e.w.emit(f'mul i64 {z}, {height}')}, {y}")
    number = e.w.emit(f"add i64 {e.w.emit(f'mul i64 {rows}, {width}')}, {x}")
    return e.w.emit(f"lshr i64 {number}, {WARP.bit_length() - 1}")


def _along(read: Callable[[Emitter, str], str]) -> Rule:
    """Return the rule that passes the op's parameter to `read`: an axis or a scope."""
    return lambda e, op: read(e, op.params[0])


# -- barriers, votes, shuffles ----------------------------------------------------------------------------------------


def _call(result: str, name: str, *before: tuple[str, str]) -> Rule:
    """Return the rule that calls `name` with constants and the op's operands."""
    return lambda e, op: e.w.call(result, name, [*before, *(e.pair(v) for v in op.args)])


_BARRIER_ZERO = ("i32", "0")


def _shuffle(mode: str, last: int) -> Rule:
    """Return the rule for a shuffle. last: the last lane of each `width` that it reads; 0 for `up`, which reads lanes below."""

    def rule(e: Emitter, op: ops.IntrinsicOp) -> str:
        limits = (WARP - op.params[0]) << 8 | last  # which bits of the lane's number stay, and how far the others go
        return e.w.call("i32", f"llvm.nvvm.shfl.sync.{mode}.i32", [*map(e.pair, op.args), ("i32", str(limits))])

    return rule


# -- what is ordered --------------------------------------------------------------------------------------------------

_SCOPES = {"block": 'syncscope("block") ', "gpu": 'syncscope("device") ', "sys": ""}


def _order(order: str, scope: str) -> str:
    """Return an order as LLVM spells it."""
    return _SCOPES[scope] + ("monotonic" if order == "relaxed" else order)


def _fence(e: Emitter, op: ops.IntrinsicOp) -> str:
    order, scope = op.params
    if order == "seq_cst":
        return e.w.call("void", f"llvm.nvvm.membar.{_FENCES[scope]}", [])
    e.w.line(f"fence {_order(order, scope)}")
    return ""


_FENCES = {"block": "cta", "gpu": "gl", "sys": "sys"}


def _load(e: Emitter, op: ops.IntrinsicOp) -> str:
    (pointer,) = op.args
    order = f"{_order(*op.params)}{_align(pointer.type.dtype)}"
    return e.w.emit(f"load atomic {e.type(op.result)}, {e.typed(pointer)} {order}")


def _store(e: Emitter, op: ops.IntrinsicOp) -> str:
    pointer, value = op.args
    e.w.line(f"store atomic {e.typed(value)}, {e.typed(pointer)} {_order(*op.params)}{_align(pointer.type.dtype)}")
    return ""


def _atomic(native: Native) -> Rule:
    """Return the rule for one `atomicrmw`. LLVM makes compare-and-swap loops of the widths that the hardware lacks.

    Of those that it makes one instruction of it forgets order and scope, so they are written as PTX.
    """

    def rule(e: Emitter, op: ops.IntrinsicOp) -> str:
        pointer, value = op.args
        dtype = pointer.type.dtype
        is_one = dtype.bits >= 32 or native in _BITWISE or (dtype.is_float and e.target.capability >= _ADDS[dtype])
        if op.params != ("relaxed", "gpu") and is_one:
            return _ptx_atomic(e, op, native)
        held, operand = e.pair(value)
        if dtype is bfloat16:  # everywhere else an i16 of its bits, which LLVM cannot add as floats
            held, operand = "bfloat", e.w.emit(f"bitcast i16 {operand} to bfloat")
        verb = arith.atomic_operation(native, dtype)
        old = e.w.emit(f"atomicrmw {verb} {e.typed(pointer)}, {held} {operand} {_order(*op.params)}{_align(dtype)}")
        return e.w.emit(f"bitcast bfloat {old} to i16") if held == "bfloat" else old

    return rule


def _compare_and_swap(e: Emitter, op: ops.IntrinsicOp) -> str:
    pointer, expected, desired = map(e.typed, op.args)
    dtype = op.args[0].type.dtype
    orders = f"{_order(*op.params)} {arith.order_if_failed(op.params[0])}"
    pair = e.w.emit(f"cmpxchg {pointer}, {expected}, {desired} {orders}{_align(dtype)}")
    return e.w.emit(f"extractvalue {{ {e.type(op.result)}, i1 }} {pair}, 0")


def _ptx_atomic(e: Emitter, op: ops.IntrinsicOp, native: Native) -> str:
    """Write an atomic with an order and a scope."""
    pointer, value = op.args
    dtype = pointer.type.dtype
    if dtype.bits >= 32:
        return _ptx(e, op, native, e.typed(pointer), _ptx_type(native, dtype), e.pair(value))
    if dtype.is_float:
        held, bits = e.pair(value)
        bits = e.w.emit(f"bitcast {held} {bits} to i16")
        old = _ptx(e, op, native, e.typed(pointer), f"noftz.{dtype.short}", ("i16", bits))
        return e.w.emit(f"bitcast i16 {old} to {held}")
    # of the 32-bit word around it, the other bits are left alone
    held, operand = e.pair(value)
    place, address = e.type(pointer), e.w.emit(f"ptrtoint {e.typed(pointer)} to i64")
    word = e.w.emit(f"inttoptr i64 {e.w.emit(f'and i64 {address}, -4')} to {place}")
    shift = e.w.emit(f"trunc i64 {e.w.emit(f'shl i64 {address}, 3')} to i32")
    shift = e.w.emit(f"and i32 {shift}, 24")
    bits = e.w.emit(f"shl i32 {e.w.emit(f'zext {held} {operand} to i32')}, {shift}")
    if native is Native.ATOMIC_AND:
        ones = e.w.emit(f"shl i32 {(1 << dtype.bits) - 1}, {shift}")
        bits = e.w.emit(f"or i32 {bits}, {e.w.emit(f'xor i32 {ones}, -1')}")
    old = e.w.emit(f"lshr i32 {_ptx(e, op, native, f'{place} {word}', 'b32', ('i32', bits))}, {shift}")
    return e.w.emit(f"trunc i32 {old} to {held}")


def _ptx(e: Emitter, op: ops.IntrinsicOp, native: Native, place: str, type_: str, value: tuple[str, str]) -> str:
    """Write the instruction. PTX has `seq_cst` as a fence in front of `acq_rel`."""
    order, scope = op.params
    if order == "seq_cst":
        e.w.line(f"fence {_order(order, scope)}")
    space = PTX_SPACES[op.args[0].type.space]  # type: ignore[union-attr]
    verb = "exch" if native is Native.ATOMIC_EXCHANGE else native.value.removeprefix("atomic_")
    sem = "acq_rel" if order == "seq_cst" else order
    text = f"atom.{sem}.{PTX_SCOPES[scope]}.{space}.{verb}.{type_} $0, [$1], $2;"
    register = {"float": "f", "double": "d", "i64": "l", "i16": "h"}.get(value[0], "r")
    constraints = f"={register},l,{register},~{{memory}}"
    return e.w.emit(f'call {value[0]} asm sideeffect "{text}", "{constraints}"({place}, {" ".join(value)})')


_ADDS = {float16: 70, bfloat16: 90}  # the compute capability that brought the addition
_BITWISE = (Native.ATOMIC_AND, Native.ATOMIC_OR, Native.ATOMIC_XOR)


def _ptx_type(native: Native, dtype: DType) -> str:
    if native in _BITWISE or native is Native.ATOMIC_EXCHANGE:
        return f"b{dtype.bits}"
    is_extremum = native in (Native.ATOMIC_MIN, Native.ATOMIC_MAX)
    return f"{'f' if dtype.is_float else 's' if dtype.is_signed and is_extremum else 'u'}{dtype.bits}"


def _align(dtype: DType) -> str:
    return f", align {dtype.itemsize}"


def tensor_map_operand(number: int) -> str:
    """Return the parameter that is a tensor map, a pointer to its 128 bytes."""
    return f"%tensor_map{number}"


def _tensor_map(e: Emitter, op: ops.IntrinsicOp) -> str:
    return e.w.emit(f"ptrtoint ptr {tensor_map_operand(op.params[0])} to i64")


NATIVES: Mapping[Native, Rule] = {
    Native.THREAD_IDX: _along(_thread_idx),
    Native.BLOCK_IDX: _along(lambda e, axis: _register(e, f"ctaid.{axis}", 0, _MAX_GRID[axis] - 1)),
    Native.BLOCK_DIM: _along(_block_dim),
    Native.GRID_DIM: _along(lambda e, axis: _register(e, f"nctaid.{axis}", 1, _MAX_GRID[axis])),
    Native.LANE_ID: lambda e, op: _register(e, "laneid", 0, WARP - 1),
    Native.WARP_ID: _warp_id,
    Native.BARRIER: _call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", _BARRIER_ZERO),
    Native.BARRIER_COUNT: _call("i32", "llvm.nvvm.barrier.cta.red.popc.aligned.all", _BARRIER_ZERO),
    Native.BARRIER_AND: _call("i1", "llvm.nvvm.barrier.cta.red.and.aligned.all", _BARRIER_ZERO),
    Native.BARRIER_OR: _call("i1", "llvm.nvvm.barrier.cta.red.or.aligned.all", _BARRIER_ZERO),
    Native.WARP_BARRIER: _call("void", "llvm.nvvm.bar.warp.sync"),
    Native.SHUFFLE_IDX: _shuffle("idx", WARP - 1),
    Native.SHUFFLE_UP: _shuffle("up", 0),
    Native.SHUFFLE_DOWN: _shuffle("down", WARP - 1),
    Native.SHUFFLE_XOR: _shuffle("bfly", WARP - 1),
    Native.BALLOT: _call("i32", "llvm.nvvm.vote.ballot.sync"),
    Native.VOTE_ANY: _call("i1", "llvm.nvvm.vote.any.sync"),
    Native.VOTE_ALL: _call("i1", "llvm.nvvm.vote.all.sync"),
    Native.MATCH_ANY: _call("i32", "llvm.nvvm.match.any.sync.i32"),
    Native.ACTIVE_MASK: _call("i32", "llvm.nvvm.activemask"),
    **{native: _atomic(native) for native in Native if native.value.startswith("atomic_")},
    Native.ATOMIC_CAS: _compare_and_swap,
    Native.ATOMIC_LOAD: _load,
    Native.ATOMIC_STORE: _store,
    Native.FENCE: _fence,
    Native.TENSOR_MAP: _tensor_map,
    Native.GIVE_WAY: lambda e, op: "",
    Native.CLUSTER_RANK: lambda e, op: _register(e, "cluster.ctarank", 0, MAX_CLUSTER_BLOCKS - 1),
    Native.CLUSTER_BLOCKS: lambda e, op: _register(e, "cluster.nctarank", 1, MAX_CLUSTER_BLOCKS),
    Native.CLUSTER_DIM: _along(lambda e, axis: _register(e, f"cluster.nctaid.{axis}", 1, MAX_CLUSTER_BLOCKS)),
    Native.BLOCK_IDX_IN_CLUSTER: _along(
        lambda e, axis: _register(e, f"cluster.ctaid.{axis}", 0, MAX_CLUSTER_BLOCKS - 1)
    ),
    Native.CLUSTER_IDX: _along(lambda e, axis: _register(e, f"clusterid.{axis}", 0, _MAX_GRID[axis] - 1)),
}
