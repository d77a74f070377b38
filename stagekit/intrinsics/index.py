"""Thread and block indices, their extents, and the names of the same in block-level kernels.

Every index is an `int64`, so that no index arithmetic wraps. One that differs from thread to thread is VARYING; one that is
the same in the whole block is pure. `program_id` and `num_programs` are other names for `block_idx` and `grid_dim`.

Source: PTX ISA, section "Special Registers" (%tid, %ctaid, %ntid, %nctaid, %laneid).
"""

from __future__ import annotations

from typing import Any

from stagekit.intrinsics.registry import define
from stagekit.ir import INDEX, TARGETS, Effect, Expand, Intrinsic, Native, Param, Sig
from stagekit.limits import GRID_LIMITS, MAX_THREADS, WARP

AXES = ("x", "y", "z")
_AXIS = (Param("axis", AXES, "x"),)
_VARYING = frozenset({Effect.VARYING})
_AXIS_NUMBER = (Param("axis", (0, 1, 2), 0),)


def _index(
    name: str, lowering: Native | Expand, bounds: tuple[int, int] | None, doc: str, source: str, **fields: Any
) -> Intrinsic:
    """Define an index, found in `stagekit.cuda` unless `fields`, more of the record's, say otherwise."""
    places = {"public_in": ("stagekit.cuda",), **fields}
    how = dict.fromkeys(TARGETS, lowering)
    return define(name=name, sigs=(Sig((), (INDEX,)),), lower=how, bounds=bounds, doc=doc, source=source, **places)


thread_idx = _index(
    "thread_idx",
    Native.THREAD_IDX,
    (0, MAX_THREADS - 1),
    'Index of this thread in its block along axis "x", "y" or "z"; counts from 0.',
    "PTX ISA, Special Registers: %tid",
    params=_AXIS,
    effects=_VARYING,
    level="thread",
)
block_idx = _index(
    "block_idx",
    Native.BLOCK_IDX,
    (0, max(GRID_LIMITS) - 1),
    'Index of this block in the grid along axis "x", "y" or "z"; counts from 0.',
    "PTX ISA, Special Registers: %ctaid",
    params=_AXIS,
)
block_dim = _index(
    "block_dim",
    Native.BLOCK_DIM,
    (1, MAX_THREADS),
    'Threads per block along axis "x", "y" or "z".',
    "PTX ISA, Special Registers: %ntid",
    params=_AXIS,
    level="thread",
)
grid_dim = _index(
    "grid_dim",
    Native.GRID_DIM,
    (1, max(GRID_LIMITS)),
    'Blocks in the grid along axis "x", "y" or "z".',
    "PTX ISA, Special Registers: %nctaid",
    params=_AXIS,
)
lane_id = _index(
    "lane_id",
    Native.LANE_ID,
    (0, WARP - 1),
    "Index of this thread in its warp, 0 to 31. Threads are put into warps in the order x, then y, then z.",
    "PTX ISA, Special Registers: %laneid",
    effects=_VARYING,
    level="thread",
    public_in=("stagekit", "stagekit.cuda"),
)
warp_id = _index(
    "warp_id",
    Native.WARP_ID,
    (0, MAX_THREADS // WARP - 1),
    "Index of this thread's warp in its block: the thread's number (x first, then y, then z) divided by 32.",
    "CUDA C++ Programming Guide, Thread Hierarchy and SIMT Architecture (PTX's %warpid may change while a kernel runs)",
    effects=_VARYING,
    level="thread",
    public_in=("stagekit", "stagekit.cuda"),
)


def _along(name: str, spec: Intrinsic, what: str) -> Intrinsic:
    """Define another name of `spec`, with a numbered axis."""
    return _index(
        name,
        Expand(lambda b, args, params: b.call(spec, (), (AXES[params[0]],))),
        spec.bounds,
        f"{what} along axis 0, 1 or 2: `{spec.name}` for block-level kernels.",
        spec.source,
        params=_AXIS_NUMBER,
        level="block",
        public_in=("stagekit",),
    )


program_id = _along("program_id", block_idx, "Index of this block in the grid")
num_programs = _along("num_programs", grid_dim, "Blocks in the grid")
