"""Waiting for other threads, and ordering memory between them.

A block barrier must be reached by every thread of the block. It also makes the block's writes visible to the block.

Source: PTX ISA, sections "Parallel Synchronization and Communication Instructions: barrier, bar.warp.sync, membar/fence".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagekit.intrinsics.registry import define
from stagekit.ir import BOOL, I32, TARGETS, U32, Builder, Effect, Effects, Expand, Native, Param, Sig, Value

_EVERYWHERE = ("stagekit", "stagekit.cuda")
_FENCE: Effects = frozenset({Effect.READ, Effect.WRITE})
_WARP_BARRIER: Effects = _FENCE | {Effect.COLLECTIVE}
_BLOCK_BARRIER: Effects = _WARP_BARRIER | {Effect.SYNC}

SCOPES = ("block", "device", "system")

syncthreads = define(
    name="syncthreads",
    public_in=_EVERYWHERE,
    args=(),
    sigs=(Sig((), ()),),
    effects=_BLOCK_BARRIER,
    lower=dict.fromkeys(TARGETS, Native.BARRIER),
    doc="Wait until every thread of the block is here; what any of them wrote before is then visible to all of them.",
    source="PTX ISA, barrier: bar.sync",
)

syncthreads_count = define(
    name="syncthreads_count",
    public_in=_EVERYWHERE,
    args=("predicate",),
    sigs=(Sig((BOOL,), (I32,)),),
    effects=_BLOCK_BARRIER,
    lower=dict.fromkeys(TARGETS, Native.BARRIER_COUNT),
    doc="`syncthreads` that also tells every thread for how many threads of the block `predicate` holds.",
    source="PTX ISA, barrier: bar.red.popc",
)

syncthreads_and = define(
    name="syncthreads_and",
    public_in=_EVERYWHERE,
    args=("predicate",),
    sigs=(Sig((BOOL,), (BOOL,)),),
    effects=_BLOCK_BARRIER,
    lower=dict.fromkeys(TARGETS, Native.BARRIER_AND),
    doc="`syncthreads` that also tells every thread whether `predicate` holds for all threads of the block.",
    source="PTX ISA, barrier: bar.red.and",
)

syncthreads_or = define(
    name="syncthreads_or",
    public_in=_EVERYWHERE,
    args=("predicate",),
    sigs=(Sig((BOOL,), (BOOL,)),),
    effects=_BLOCK_BARRIER,
    lower=dict.fromkeys(TARGETS, Native.BARRIER_OR),
    doc="`syncthreads` that also tells every thread whether `predicate` holds for any thread of the block.",
    source="PTX ISA, barrier: bar.red.or",
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

fence = define(
    name="fence",
    public_in=(),
    args=(),
    params=(Param("scope", SCOPES, "device"),),
    sigs=(Sig((), ()),),
    effects=_FENCE,
    lower=dict.fromkeys(TARGETS, Native.FENCE),
    doc='Order this thread\'s earlier reads and writes before its later ones, as seen by "block", "device" or "system".',
    source="PTX ISA, membar / fence",
)


def _fence(scope: str) -> Expand:
    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> tuple[Value, ...]:
        return b.call(fence, (), (scope,))

    return Expand(build)


threadfence_block = define(
    name="threadfence_block",
    public_in=_EVERYWHERE,
    args=(),
    sigs=(Sig((), ()),),
    effects=_FENCE,
    lower=dict.fromkeys(TARGETS, _fence("block")),
    doc="Order this thread's memory accesses as seen by the threads of its block. Waits for nobody.",
    source="PTX ISA, membar.cta; CUDA C++ Programming Guide, Memory Fence Functions",
)

threadfence = define(
    name="threadfence",
    public_in=_EVERYWHERE,
    args=(),
    sigs=(Sig((), ()),),
    effects=_FENCE,
    lower=dict.fromkeys(TARGETS, _fence("device")),
    doc="Order this thread's memory accesses as seen by all threads of the device. Waits for nobody.",
    source="PTX ISA, membar.gl; CUDA C++ Programming Guide, Memory Fence Functions",
)

threadfence_system = define(
    name="threadfence_system",
    public_in=_EVERYWHERE,
    args=(),
    sigs=(Sig((), ()),),
    effects=_FENCE,
    lower=dict.fromkeys(TARGETS, _fence("system")),
    doc="Order this thread's memory accesses as seen by all devices and the host. Waits for nobody.",
    source="PTX ISA, membar.sys; CUDA C++ Programming Guide, Memory Fence Functions",
)
