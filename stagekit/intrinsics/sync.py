"""Waiting for other threads, and ordering memory between them.

A block barrier must be reached by every thread of the block. It also makes the block's writes visible to the block.

Source: PTX ISA, sections "Parallel Synchronization and Communication Instructions: barrier, bar.warp.sync, membar/fence".
"""

from __future__ import annotations

import functools
from typing import Any

from stagekit.intrinsics.order import SCOPE, acquires, order_param, releases
from stagekit.intrinsics.registry import define
from stagekit.ir import BOOL, I32, TARGETS, U32, Effect, Expand, Intrinsic, Native, Op, Sig, Type, ops

_FENCE = frozenset({Effect.READ, Effect.WRITE})
_WARP_BARRIER = _FENCE | {Effect.COLLECTIVE}
_BLOCK_BARRIER = _WARP_BARRIER | {Effect.SYNC}
_EVERYWHERE = ("stagekit", "stagekit.cuda")


def _block_barrier(name: str, native: Native, doc: str, instruction: str, *result: Type) -> Intrinsic:
    """Define a barrier, which combines a predicate of each thread into `result`, if there is one."""
    args = ("predicate",) if result else ()
    return define(
        name=name,
        public_in=_EVERYWHERE,
        args=args,
        sigs=(Sig((BOOL,) * len(args), result),),
        effects=_BLOCK_BARRIER,
        lower=dict.fromkeys(TARGETS, native),
        doc=doc,
        source=f"PTX ISA, barrier: {instruction}",
    )


syncthreads = _block_barrier(
    "syncthreads",
    Native.BARRIER,
    "Wait until every thread of the block is here; what any of them wrote before is then visible to all of them.",
    "bar.sync",
)
syncthreads_count = _block_barrier(
    "syncthreads_count",
    Native.BARRIER_COUNT,
    "`syncthreads` that also tells every thread for how many threads of the block `predicate` holds.",
    "bar.red.popc",
    I32,
)
syncthreads_and = _block_barrier(
    "syncthreads_and",
    Native.BARRIER_AND,
    "`syncthreads` that also tells every thread whether `predicate` holds for all threads of the block.",
    "bar.red.and",
    BOOL,
)
syncthreads_or = _block_barrier(
    "syncthreads_or",
    Native.BARRIER_OR,
    "`syncthreads` that also tells every thread whether `predicate` holds for any thread of the block.",
    "bar.red.or",
    BOOL,
)
syncwarp = define(
    name="syncwarp",
    public_in=_EVERYWHERE,
    args=("mask",),
    sigs=(Sig((U32,), ()),),
    defaults=(0xFFFFFFFF,),
    effects=_WARP_BARRIER,
    lower=dict.fromkeys(TARGETS, Native.WARP_BARRIER),
    doc="Wait for the lanes of this warp whose bit is set in `mask`; their earlier writes are then visible to each other.",
    source="PTX ISA, bar.warp.sync",
)
give_way = define(
    name="give_way",
    public_in=(),
    effects=_FENCE,
    lower=dict.fromkeys(TARGETS, Native.GIVE_WAY),
    doc="Let another thread of the machine run.",
    source="POSIX.1-2024, sched_yield",
)
_GIVE_WAY = Expand(lambda b, args, params: b.call(give_way, ()))
_SLEEP = Expand(lambda b, args, params: b.asm("nanosleep.u32 $0;", "r", args, (), has_side_effects=True, host=None))
nanosleep = define(
    name="nanosleep",
    public_in=_EVERYWHERE,
    args=("ns",),
    sigs=(Sig((U32,), ()),),
    effects=_FENCE,
    lower={"cuda": _SLEEP, "cpu": _GIVE_WAY, "interp": _GIVE_WAY},
    doc="Do nothing for about `ns` nanoseconds, at most twice as many, while waiting for another thread; on the CPU, let another "
    "thread run.",
    source="PTX ISA, nanosleep",
)
fence = define(
    name="fence",
    public_in=_EVERYWHERE,
    params=(order_param("acq_rel", "seq_cst", default="acq_rel"), SCOPE),
    effects=_FENCE,
    lower=dict.fromkeys(TARGETS, Native.FENCE),
    doc="Order this thread's memory accesses as seen by the threads of `scope`. Waits for nobody.",
    source="PTX ISA, fence",
)


def _fence(name: str, scope: str, seen_by: str, instruction: str) -> Intrinsic:
    """Define `fence` with a fixed scope."""
    return define(
        name=name,
        public_in=_EVERYWHERE,
        effects=_FENCE,
        lower=dict.fromkeys(TARGETS, Expand(lambda b, args, params: b.call(fence, (), ("seq_cst", scope)))),
        doc=f"Order this thread's memory accesses as seen by {seen_by}. Waits for nobody.",
        source=f"PTX ISA, {instruction}; CUDA C++ Programming Guide, Memory Fence Functions",
    )


threadfence_block = _fence("threadfence_block", "block", "the threads of its block", "membar.cta")
threadfence = _fence("threadfence", "gpu", "all threads of the device", "membar.gl")
threadfence_system = _fence("threadfence_system", "sys", "all devices and the host", "membar.sys")

_FENCES = (fence, threadfence_block, threadfence, threadfence_system)


def ordering(op: Op) -> tuple[bool, bool]:
    """Return whether later accesses stay behind `op`, and whether earlier ones stay in front of it."""
    if not isinstance(op, ops.IntrinsicOp) or not (op.spec.params or op.spec in _FENCES):
        return False, False
    return _ordering(op.spec, op.params)


@functools.cache
def _ordering(spec: Intrinsic, params: tuple[Any, ...]) -> tuple[bool, bool]:
    if spec in _FENCES:
        return True, True
    order = dict(zip([param.name for param in spec.params], params)).get("order", "relaxed")
    return acquires(order), releases(order)
