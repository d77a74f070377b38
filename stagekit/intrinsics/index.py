"""Who am I: thread and block indices, their extents, and the block-level spelling of the same.

Every index is an `int64`, so that no index arithmetic wraps. What differs from thread to thread is VARYING; what is one
number for the whole block is pure. `program_id` and `num_programs` are other names for `block_idx` and `grid_dim`.

Source: PTX ISA, section "Special Registers" (%tid, %ctaid, %ntid, %nctaid, %laneid).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagekit.intrinsics.registry import define
from stagekit.ir import INDEX, PURE, TARGETS, Builder, Effect, Effects, Expand, Intrinsic, Native, Param, Sig, Value
from stagekit.limits import GRID_LIMITS, MAX_THREADS, WARP

AXES = ("x", "y", "z")

_EVERYWHERE = ("stagekit", "stagekit.cuda")
_VARYING: Effects = frozenset({Effect.VARYING})
_AXIS = Param("axis", AXES, "x")
_AXIS_NUMBER = Param("axis", (0, 1, 2), 0)
_GIVES_INDEX = (Sig((), (INDEX,)),)


def _everywhere(native: Native) -> dict[str, Native]:
    return dict.fromkeys(TARGETS, native)


thread_idx = define(
    name="thread_idx",
    level="thread",
    public_in=("stagekit.cuda",),
    args=(),
    params=(_AXIS,),
    sigs=_GIVES_INDEX,
    effects=_VARYING,
    lower=_everywhere(Native.THREAD_IDX),
    bounds=(0, MAX_THREADS - 1),
    doc='Index of this thread in its block along axis "x", "y" or "z"; counts from 0.',
    source="PTX ISA, Special Registers: %tid",
)

block_idx = define(
    name="block_idx",
    public_in=("stagekit.cuda",),
    args=(),
    params=(_AXIS,),
    sigs=_GIVES_INDEX,
    effects=PURE,
    lower=_everywhere(Native.BLOCK_IDX),
    bounds=(0, max(GRID_LIMITS) - 1),
    doc='Index of this block in the grid along axis "x", "y" or "z"; counts from 0.',
    source="PTX ISA, Special Registers: %ctaid",
)

block_dim = define(
    name="block_dim",
    level="thread",
    public_in=("stagekit.cuda",),
    args=(),
    params=(_AXIS,),
    sigs=_GIVES_INDEX,
    effects=PURE,
    lower=_everywhere(Native.BLOCK_DIM),
    bounds=(1, MAX_THREADS),
    doc='Threads per block along axis "x", "y" or "z".',
    source="PTX ISA, Special Registers: %ntid",
)

grid_dim = define(
    name="grid_dim",
    public_in=("stagekit.cuda",),
    args=(),
    params=(_AXIS,),
    sigs=_GIVES_INDEX,
    effects=PURE,
    lower=_everywhere(Native.GRID_DIM),
    bounds=(1, max(GRID_LIMITS)),
    doc='Blocks in the grid along axis "x", "y" or "z".',
    source="PTX ISA, Special Registers: %nctaid",
)

lane_id = define(
    name="lane_id",
    level="thread",
    public_in=_EVERYWHERE,
    args=(),
    sigs=_GIVES_INDEX,
    effects=_VARYING,
    lower=_everywhere(Native.LANE_ID),
    bounds=(0, WARP - 1),
    doc="Index of this thread in its warp, 0 to 31. Threads are put into warps in the order x, then y, then z.",
    source="PTX ISA, Special Registers: %laneid",
)

warp_id = define(
    name="warp_id",
    level="thread",
    public_in=_EVERYWHERE,
    args=(),
    sigs=_GIVES_INDEX,
    effects=_VARYING,
    lower=_everywhere(Native.WARP_ID),
    bounds=(0, MAX_THREADS // WARP - 1),
    doc="Index of this thread's warp in its block: the thread's number (x first, then y, then z) divided by 32.",
    source="CUDA C++ Programming Guide, Thread Hierarchy and SIMT Architecture (PTX's %warpid may change while a kernel runs)",
)


def _along(spec: Intrinsic) -> Expand:
    """`spec` with a numbered axis."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> tuple[Value, ...]:
        return b.call(spec, (), (AXES[params[0]],))

    return Expand(build)


program_id = define(
    name="program_id",
    level="block",
    args=(),
    params=(_AXIS_NUMBER,),
    sigs=_GIVES_INDEX,
    effects=PURE,
    lower=dict.fromkeys(TARGETS, _along(block_idx)),
    bounds=(0, max(GRID_LIMITS) - 1),
    doc="Index of this block in the grid along axis 0, 1 or 2: `block_idx` for block-level kernels.",
    source="PTX ISA, Special Registers: %ctaid",
)

num_programs = define(
    name="num_programs",
    level="block",
    args=(),
    params=(_AXIS_NUMBER,),
    sigs=_GIVES_INDEX,
    effects=PURE,
    lower=dict.fromkeys(TARGETS, _along(grid_dim)),
    bounds=(1, max(GRID_LIMITS)),
    doc="Blocks in the grid along axis 0, 1 or 2: `grid_dim` for block-level kernels.",
    source="PTX ISA, Special Registers: %nctaid",
)
