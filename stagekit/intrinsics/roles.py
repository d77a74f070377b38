"""What warps with different roles need: barriers of some warps of a block, which have numbers, and registers that move.

    a warp that produces                              a warp that consumes
    ... tile[i] = ... ...                             sk.cuda.barrier_sync(1, 64)
    sk.cuda.barrier_arrive(1, 64)                     ... tile[i] ...

A block has 16 such barriers in hardware. Number 0 is that of `syncthreads`; the others are free. One of them opens when as many
threads have come as each of those says, and is then as new. A warp comes as a whole.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier", "setmaxnreg".
"""

from __future__ import annotations

from stagekit.intrinsics.hopper import for_threads, ordered_ptx
from stagekit.ir import U32, Effect, Intrinsic, Limits, Native, Param, Sig
from stagekit.limits import BARRIERS, MAX_THREADS, WARP

_EFFECTS = frozenset({Effect.READ, Effect.WRITE, Effect.ORDER, Effect.COLLECTIVE})
LIMITS = {"number": Limits(1, BARRIERS - 1), "threads": Limits(WARP, MAX_THREADS, WARP)}


def _named_barrier(what: str, doc: str) -> Intrinsic:
    return for_threads(
        f"barrier_{what}",
        ordered_ptx(f"bar.{what} $0, $1;", "r,r"),
        Native.NAMED_BARRIER,
        doc,
        f"bar.{what}",
        args=tuple(LIMITS),
        sigs=(Sig((U32, U32), ()),),
        effects=_EFFECTS,
        limits=LIMITS,
        min_capability=75,
    )


barrier_sync = _named_barrier(
    "sync",
    "Come to barrier `number` of the block, 1 to 15, and wait until `threads` threads have come, a multiple of 32, this whole "
    "warp included. What they wrote before is then visible to all that wait.",
)
barrier_arrive = _named_barrier(
    "arrive",
    "Come to barrier `number` as one of `threads` threads, as `barrier_sync` does, but without waiting: what this warp wrote is "
    "there for those that wait.",
)

REGISTER_COUNTS = tuple(range(24, 257, 8))


def _registers(direction: str, doc: str) -> Intrinsic:
    return for_threads(
        f"setmaxnreg_{direction}",
        ordered_ptx(lambda registers: f"setmaxnreg.{direction}.sync.aligned.u32 {registers};"),
        Native.REGISTERS,
        doc,
        f"setmaxnreg.{direction}",
        params=(Param("registers", REGISTER_COUNTS),),
        effects=_EFFECTS,
    )


setmaxnreg_inc = _registers(
    "inc",
    "Give each thread of this warpgroup as many `registers`, 24 to 256, a multiple of 8, of those that others of the block have "
    "given back, for which it waits. All four warps do it; the kernel says how large its blocks are.",
)
setmaxnreg_dec = _registers(
    "dec", "Give back what each thread of this warpgroup has above so many `registers`. All four warps do it."
)
