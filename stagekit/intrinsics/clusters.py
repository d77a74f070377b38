"""Clusters: blocks that run at the same time, on neighbouring multiprocessors, and reach each other's shared memory.

The launch says how many there are, `LaunchConfig(grid=.., block=.., cluster=(2, 1, 1))`; without that each block is a cluster.

    other = sk.peer(tile, 1 - sk.cuda.cluster_rank())      the array `tile` of the other of two blocks
    sk.cuda.cluster_sync()                                 what both wrote is there
    ... other[i] ...                                       loads, stores and atomics, as on any array
    sk.cuda.cluster_sync()                                 neither block ends before the other has read

Source: PTX ISA, "Special Registers: %cluster_ctarank", "barrier.cluster", "mapa"; CUDA C++ Programming Guide, Thread Block
Clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagekit import dtypes
from stagekit.intrinsics.hopper import ordered_ptx
from stagekit.intrinsics.index import AXES
from stagekit.intrinsics.registry import by_name, define
from stagekit.ir import (
    INDEX,
    PURE,
    U32,
    Builder,
    Effect,
    Effects,
    Expand,
    Intrinsic,
    Limits,
    Native,
    Param,
    Pointer,
    Sig,
    Space,
    Unsupported,
    Value,
)
from stagekit.limits import GRID_LIMITS, MAX_CLUSTER_BLOCKS, MBARRIER_MOST

_HOPPER = 90  # the compute capability, times ten
_PLACES = ("stagekit.cuda",)
_EFFECTS = frozenset({Effect.READ, Effect.WRITE, Effect.ORDER})
_ON_CPU = Unsupported("blocks run one after the other there; `sk.sanitize` runs clusters without a GPU")
Values = tuple[Value, ...]


# -- which block ----------------------------------------------------------------------------------------------------------


def _index(name: str, native: Native, bounds: tuple[int, int], doc: str, register: str, *params: Param) -> Intrinsic:
    """Define what a block asks of its place in a cluster, or of that of its cluster in the grid."""
    return define(
        name=name,
        args=(),
        sigs=(Sig((), (INDEX,)),),
        params=params,
        effects=PURE,
        lower={"cuda": native, "cpu": _ON_CPU, "interp": native},
        bounds=bounds,
        doc=doc,
        source=f"PTX ISA, Special Registers: {register}",
        min_capability=_HOPPER,
        public_in=_PLACES,
    )


_AXIS = Param("axis", AXES, "x")
_LAST = MAX_CLUSTER_BLOCKS - 1

cluster_rank = _index(
    "cluster_rank",
    Native.CLUSTER_RANK,
    (0, _LAST),
    "Number of this block among those of its cluster, which are counted along x, then y, then z, from 0.",
    "%cluster_ctarank",
)
cluster_blocks = _index(
    "cluster_blocks", Native.CLUSTER_BLOCKS, (1, MAX_CLUSTER_BLOCKS), "Blocks of each cluster.", "%cluster_nctarank"
)
cluster_dim = _index(
    "cluster_dim",
    Native.CLUSTER_DIM,
    (1, MAX_CLUSTER_BLOCKS),
    'Blocks of each cluster along axis "x", "y" or "z".',
    "%cluster_nctaid",
    _AXIS,
)
block_idx_in_cluster = _index(
    "block_idx_in_cluster",
    Native.BLOCK_IDX_IN_CLUSTER,
    (0, _LAST),
    'Index of this block in its cluster along axis "x", "y" or "z"; counts from 0.',
    "%cluster_ctaid",
    _AXIS,
)
cluster_idx = _index(
    "cluster_idx",
    Native.CLUSTER_IDX,
    (0, max(GRID_LIMITS) - 1),
    'Index of this cluster in the grid of clusters along axis "x", "y" or "z"; counts from 0.',
    "%clusterid",
    _AXIS,
)

# -- waiting --------------------------------------------------------------------------------------------------------------


def _collective(
    name: str, effects: Effects, build: Any, native: Native | Expand, doc: str, source: str, *params: Param
) -> Intrinsic:
    return define(
        name=name,
        args=(),
        sigs=(Sig((), ()),),
        params=params,
        effects=effects,
        lower={"cuda": Expand(build), "cpu": _ON_CPU, "interp": native},
        level="thread",
        doc=doc,
        source=f"PTX ISA, {source}",
        min_capability=_HOPPER,
        public_in=_PLACES,
    )


def _arrive(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    (order,) = params
    suffix = ".relaxed" if order == "relaxed" else ""
    return b.asm(f"barrier.cluster.arrive{suffix};", "~{memory}", (), (), has_side_effects=True, host=None)


def _wait(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    return b.asm("barrier.cluster.wait;", "~{memory}", (), (), has_side_effects=True, host=None)


def _both(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    b.call(cluster_arrive, (), ("release",))
    return b.call(cluster_wait, ())


cluster_arrive = _collective(
    "cluster_arrive",
    _EFFECTS,
    _arrive,
    Native.CLUSTER_BARRIER,
    "Arrive at the barrier of the cluster, without waiting. Each thread does so once, then calls `cluster_wait`. order: whether "
    "what it wrote before is there for those that wait; `relaxed` orders nothing.",
    "barrier.cluster.arrive",
    Param("order", ("release", "relaxed"), "release"),
)
cluster_wait = _collective(
    "cluster_wait",
    _EFFECTS,
    _wait,
    Native.CLUSTER_BARRIER,
    "Wait until every thread of the cluster that has not ended has called `cluster_arrive`.",
    "barrier.cluster.wait",
)
cluster_sync = _collective(
    "cluster_sync",
    _EFFECTS,
    _both,
    Expand(_both),
    "Wait until every thread of the cluster is here; what any of them wrote before, to shared memory of any of its blocks too, "
    "is then visible to all of them.",
    "barrier.cluster",
)

# -- shared memory of other blocks ------------------------------------------------------------------------------------------

_MAPPED = [d for d in dtypes.ALL_DTYPES if d.kind != "bool"]


def _mapa(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    pointer, rank = args
    result = Pointer(pointer.type.dtype, Space.CLUSTER)
    text = "mapa.shared::cluster.u64 $0, $1, $2;"
    return b.asm(text, "=l,l,r", (pointer, b.cast(rank, dtypes.uint32)), (result,), has_side_effects=False, host=None)


map_shared_rank = define(
    name="map_shared_rank",
    args=("pointer", "rank"),
    sigs=tuple([Sig((Pointer(d, Space.SHARED), INDEX), (Pointer(d, Space.CLUSTER),)) for d in _MAPPED]),
    effects=_EFFECTS,
    is_asynchronous=True,
    lower={"cuda": Expand(_mapa), "cpu": _ON_CPU, "interp": Native.PEER},
    level="thread",
    doc="The same place in shared memory of the block `rank` of the cluster; `sk.peer` does it for arrays.",
    source="PTX ISA, mapa",
    min_capability=_HOPPER,
    public_in=_PLACES,
)


def _arrive_there(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    scope = ".release.cluster" if params[0] == "release" else ""
    return ordered_ptx(f"mbarrier.arrive{scope}.shared::cluster.b64 _, [$0], $1;", "l,r").build(b, args, ())  # type: ignore[no-any-return]


mbarrier_arrive_peer = define(
    name="mbarrier_arrive_peer",
    args=("mbarrier", "count"),
    sigs=(Sig((Pointer(dtypes.uint64, Space.CLUSTER), U32), ()),),
    defaults=(1,),
    params=(Param("order", ("release", "relaxed"), "release"),),
    effects=_EFFECTS,
    lower={"cuda": Expand(_arrive_there), "cpu": _ON_CPU, "interp": Native.MBARRIER},
    level="thread",
    doc="`mbarrier_arrive` at an mbarrier of another block of the cluster, `sk.peer(full, rank) + stage`. order: `relaxed` is "
    "for a thread that has only read what may be overwritten now; what it wrote is then not there for those that wait. Releasing "
    "costs a fence of the whole GPU.",
    source="PTX ISA, mbarrier.arrive.shared::cluster",
    min_capability=_HOPPER,
    limits={"count": Limits(1, MBARRIER_MOST)},
    public_in=_PLACES,
)


def _gpu_fence(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    return b.call(by_name("fence"), (), ("acq_rel", "gpu"))


fence_cluster = define(
    name="fence_cluster",
    args=(),
    sigs=(Sig((), ()),),
    effects=_EFFECTS,
    lower={"cuda": ordered_ptx("fence.acq_rel.cluster;"), "cpu": _ON_CPU, "interp": Expand(_gpu_fence)},
    level="thread",
    doc="Order this thread's memory accesses as seen by the threads of its cluster. Waits for nobody.",
    source="PTX ISA, fence.acq_rel.cluster",
    min_capability=_HOPPER,
    public_in=_PLACES,
)
