"""What compute capability 9.0 brought for threads that hand memory to each other: mbarriers, and copies that signal them.

An *mbarrier* is 8 bytes of shared memory that count through phases. A phase ends when as many arrivals have come as
`mbarrier_init` says, and as many bytes as were expected; then the next one begins. A wait names the parity of its phase, 0
for the first one:

    producer                                          consumer
    mbarrier_wait(empty, parity ^ 1)                  mbarrier_wait(full, parity)
    mbarrier_arrive_expect_tx(full, size)             ... tile[i] ...
    cp_async_bulk_g2s(tile, source, size, full)       mbarrier_arrive(empty)

On a new mbarrier a wait for parity 1 does not wait. All of it is inline PTX, so that nothing depends on what LLVM knows by name.
What the interpreter makes of it is in `backends/interp/asynchronous.py`; the page docs/decisions/0041 says why.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier", "cp.async.bulk", "Async proxy".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.intrinsics.registry import by_name, define
from stagekit.intrinsics.tensor import CHUNK_BYTES
from stagekit.ir import (
    BOOL,
    U32,
    Builder,
    CompareKind,
    Effect,
    Expand,
    Intrinsic,
    Limits,
    Lowering,
    Native,
    Param,
    Pointer,
    Sig,
    Space,
    Type,
    Unsupported,
    Value,
)
from stagekit.limits import MAX_SHARED_BYTES, MBARRIER_MOST

HOPPER = 90  # the compute capability, times ten
_GROUPS = 16  # of copies that a thread may leave under way: the instruction has a number in it
_PLACES = ("stagekit.cuda",)
EFFECTS = frozenset({Effect.READ, Effect.WRITE, Effect.ORDER})
MBARRIER = Pointer(dtypes.uint64, Space.SHARED)
_LIMITS = {
    "count": Limits(1, MBARRIER_MOST),
    "bytes": Limits(0, MBARRIER_MOST),
    "parity": Limits(0, 1),
    "size": Limits(CHUNK_BYTES, MAX_SHARED_BYTES, CHUNK_BYTES),
}
ON_CPU = Unsupported(
    "threads wait for each other there at barriers of the whole block alone; `sk.sanitize` runs this without a GPU"
)
Values = tuple[Value, ...]


def ordered_ptx(text: str | Callable[..., str], constraints: str = "", *results: Type) -> Expand:
    """Return an instruction, past which LLVM moves no access of memory.

    text: `$0` is the first result or operand; or a function from the parameters to the text.
    """
    clobbers = ",".join(filter(None, (constraints, "~{memory}")))

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
        written = text if isinstance(text, str) else text(*params)
        return b.asm(written, clobbers, args, results, has_side_effects=True, host=None)

    return Expand(build)


def for_threads(
    name: str, on_cuda: Lowering, on_interp: Lowering, doc: str, source: str, on_cpu: Lowering = ON_CPU, **fields: Any
) -> Intrinsic:
    """Define what threads do from this capability on, a step of a protocol. source: a section of the PTX ISA."""
    limits = {arg: _LIMITS[arg] for arg in fields.get("args", ()) if arg in _LIMITS}
    usual: dict[str, Any] = {"level": "thread", "min_capability": HOPPER, "limits": limits, "public_in": _PLACES}
    usual |= {"effects": EFFECTS, "lower": {"cuda": on_cuda, "cpu": on_cpu, "interp": on_interp}}
    return define(name=name, doc=doc, source=f"PTX ISA, {source}", **(usual | fields))


# -- mbarriers ----------------------------------------------------------------------------------------------------------


def _mbarrier(
    instruction: str, ptx: str, doc: str, *operand: str, result: tuple[Type, ...] = (), **fields: Any
) -> Intrinsic:
    """Define an operation on an mbarrier. ptx: behind its name. operand: the name of its number, if it takes one."""
    operands = ",".join(["=b"] * len(result) + ["l"] + ["r"] * len(operand))
    sig = Sig((MBARRIER, *[U32] * len(operand)), result)
    return for_threads(
        f"mbarrier_{instruction.split('.parity')[0].replace('.', '_')}",
        ordered_ptx(f"mbarrier.{instruction}.{ptx};", operands, *result),
        Native.MBARRIER,
        doc,
        f"mbarrier.{instruction}",
        args=("mbarrier", *operand),
        sigs=(sig,),
        is_asynchronous=True,
        **fields,
    )


mbarrier_init = _mbarrier(
    "init",
    "shared.b64 [$0], $1",
    "Make 8 bytes of shared memory an mbarrier, in phase 0, whose phases take `count` arrivals each, 1 to 1048575. One thread "
    "does it; others may use it behind `syncthreads`, copies behind `fence_mbarrier_init`.",
    "count",
)
mbarrier_inval = _mbarrier(
    "inval", "shared.b64 [$0]", "End an mbarrier, whose memory may then be used for something else, or for a new one."
)
mbarrier_arrive = _mbarrier(
    "arrive",
    "shared.b64 _, [$0], $1",
    "Count `count` arrivals at the present phase, at most as many as it lacks. What the thread did before is ordered before what "
    "a thread does that waited for the phase.",
    "count",
    defaults=(1,),
)
mbarrier_expect_tx = _mbarrier(
    "expect_tx",
    "relaxed.cta.shared.b64 [$0], $1",
    "Let the present phase take so many more bytes of copies before it ends.",
    "bytes",
)
mbarrier_arrive_expect_tx = _mbarrier(
    "arrive.expect_tx", "shared.b64 _, [$0], $1", "`mbarrier_expect_tx`, then one arrival.", "bytes"
)
mbarrier_test_wait = _mbarrier(
    "test_wait.parity",
    "shared.b64 $0, [$1], $2",
    "Has the phase of this parity, 0 or 1, ended? That is the present phase or the one before it. If so, what was done before "
    "the arrivals at it, and what its copies brought, is ordered before what the thread does next.",
    "parity",
    result=(BOOL,),
)
mbarrier_try_wait = _mbarrier(
    "try_wait.parity",
    "shared.b64 $0, [$1], $2",
    "`mbarrier_test_wait`, for which the thread may sleep a while first.",
    "parity",
    result=(BOOL,),
)


def _until_it_ends(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    with b.block() as before:
        b.condition(b.not_(b.call_one(by_name("mbarrier_try_wait"), args)))
    with b.block() as after:
        b.yield_()
    return b.while_((), before.done(), after.done())


mbarrier_wait = for_threads(
    "mbarrier_wait",
    Expand(_until_it_ends),
    Expand(_until_it_ends),
    "Wait until the phase of this parity has ended, by `mbarrier_try_wait` in a loop.",
    "mbarrier.try_wait.parity",
    args=("mbarrier", "parity"),
    sigs=(Sig((MBARRIER, U32), ()),),
    is_asynchronous=True,
)
fence_mbarrier_init = for_threads(
    "fence_mbarrier_init",
    ordered_ptx("fence.mbarrier_init.release.cluster;"),
    Native.PROXY_FENCE,
    "Order the `mbarrier_init` of this thread before what copies, and other blocks of the cluster, do with it.",
    "fence.mbarrier_init",
)

# -- copies of many bytes -------------------------------------------------------------------------------------------------

_COPIED = [d for d in dtypes.ALL_DTYPES if d.kind != "bool"]
_SIZE = "`size` bytes, a multiple of 16, as are both addresses"

fence_proxy_async = for_threads(
    "fence_proxy_async",
    ordered_ptx(lambda space: f"fence.proxy.async{'.shared::cta' if space == 'shared' else ''};"),
    Native.PROXY_FENCE,
    "Order what this thread wrote, and what is ordered before it, before copies and products of warpgroups that are begun later: "
    "those go another way to memory, which no other fence or barrier reaches. space: `shared` is for the block's shared memory "
    "alone, and waits for nothing else, where `all` waits until all GPU threads would see what was written anywhere.",
    "fence.proxy.async",
    params=(Param("space", ("all", "shared"), "all"),),
)
cp_async_bulk_g2s = for_threads(
    "cp_async_bulk_g2s",
    ordered_ptx("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "l,l,r,l"),
    Native.BULK_COPY,
    f"Begin to copy {_SIZE}, from global to shared memory. They are there when the phase of "
    "`mbarrier` has ended that expects them.",
    "cp.async.bulk.shared::cluster.global",
    args=("target", "source", "size", "mbarrier"),
    sigs=tuple([Sig((Pointer(d, Space.SHARED), Pointer(d, Space.GLOBAL), U32, MBARRIER), ()) for d in _COPIED]),
    only_reads=("source",),
    is_asynchronous=True,
)
cp_async_bulk_s2g = for_threads(
    "cp_async_bulk_s2g",
    ordered_ptx("cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;", "l,l,r"),
    Native.BULK_COPY,
    f"Begin to copy {_SIZE}, from shared to global memory. This thread makes a group of its copies by `cp_async_bulk_commit`, "
    "and waits for that by `cp_async_bulk_wait`.",
    "cp.async.bulk.global.shared::cta",
    args=("target", "source", "size"),
    sigs=tuple([Sig((Pointer(d, Space.GLOBAL), Pointer(d, Space.SHARED), U32), ()) for d in _COPIED]),
    only_reads=("source",),
    is_asynchronous=True,
)
cp_async_bulk_commit = for_threads(
    "cp_async_bulk_commit",
    ordered_ptx("cp.async.bulk.commit_group;"),
    Native.BULK_COMMIT,
    "Make a group of the copies to global memory that this thread has begun since the last one; of none an empty one.",
    "cp.async.bulk.commit_group",
)
cp_async_bulk_wait = for_threads(
    "cp_async_bulk_wait",
    ordered_ptx(lambda pending, read: f"cp.async.bulk.wait_group{'.read' if read else ''} {pending};"),
    Native.BULK_WAIT,
    "Wait until at most `pending` groups of this thread's copies to global memory, the latest ones, are under way; with `read`, "
    "until the others have read their shared memory, which may then be written again.",
    "cp.async.bulk.wait_group",
    params=(Param("pending", tuple(range(_GROUPS)), 0), Param("read", (False, True), False)),
)

# -- one thread for a warp ------------------------------------------------------------------------------------------------


def _is_lowest(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    """Elect the lane of the lowest bit of the mask, all of whose lanes are here."""
    (mask,) = args
    lane = b.cast(b.call_one(by_name("lane_id"), ()), dtypes.uint32)
    lowest = b.and_(mask, b.sub(b.constant(0, dtypes.uint32), mask))
    return (b.compare(CompareKind.EQ, lowest, b.shl(b.constant(1, dtypes.uint32), lane)),)


elect_sync = define(
    name="elect_sync",
    args=("mask",),
    sigs=(Sig((U32,), (BOOL,)),),
    defaults=(0xFFFFFFFF,),
    effects=frozenset({Effect.COLLECTIVE}),
    lower={
        "cuda": Expand(
            lambda b, args, params: b.asm(
                "elect.sync _|$0, $1;", "=b,r", args, (BOOL,), has_side_effects=True, host=None
            )
        ),
        "cpu": Expand(_is_lowest),
        "interp": Expand(_is_lowest),
    },
    doc="True in one lane of `mask`, which every lane of it calls: that which begins copies for the warp. It is always the same "
    "lane for the same mask, on the CPU the lowest.",
    source="PTX ISA, elect.sync",
    min_capability=HOPPER,
    older=Expand(_is_lowest),
    public_in=_PLACES,
)


def _of_launches(name: str, text: str, doc: str) -> Intrinsic:
    """Define what a launch says to its neighbours in the stream: nothing, where launches run one after the other."""
    nothing = Expand(lambda b, args, params: ())
    return for_threads(name, ordered_ptx(text), nothing, doc, text[:-1], nothing, older=nothing)


griddepcontrol_wait = _of_launches(
    "griddepcontrol_wait",
    "griddepcontrol.wait;",
    "Wait until the launches before this one in its stream have ended, and what they wrote is there. A kernel that is launched "
    "by `LaunchConfig(programmatic=True)` calls it before it reads or writes what they do; any other kernel has not to wait.",
)
griddepcontrol_launch_dependents = _of_launches(
    "griddepcontrol_launch_dependents",
    "griddepcontrol.launch_dependents;",
    "Let the next launch of the stream begin, if it is programmatic, once all blocks have called this or ended. What this one "
    "writes is there for it behind its own `griddepcontrol_wait`.",
)
