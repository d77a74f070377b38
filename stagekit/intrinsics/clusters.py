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

import functools
from collections.abc import Sequence
from typing import Any

from stagekit import dtypes
from stagekit.intrinsics.hopper import for_threads, ordered_ptx
from stagekit.intrinsics.index import AXES
from stagekit.intrinsics.registry import by_name
from stagekit.ir import (
    INDEX,
    PURE,
    U32,
    Builder,
    Expand,
    Intrinsic,
    Native,
    Param,
    Pointer,
    Sig,
    Space,
    Unsupported,
    Value,
)
from stagekit.limits import GRID_LIMITS, MAX_CLUSTER_BLOCKS

_ON_CPU = Unsupported("blocks run one after the other there; `sk.sanitize` runs clusters without a GPU")
Values = tuple[Value, ...]
_for_clusters = functools.partial(for_threads, on_cpu=_ON_CPU)


# -- which block ----------------------------------------------------------------------------------------------------------


def _index(name: str, native: Native, bounds: tuple[int, int], doc: str, register: str, *params: Param) -> Intrinsic:
    """Define what a block asks of its place in a cluster, or of that of its cluster in the grid."""
    kind: dict[str, Any] = {"sigs": (Sig((), (INDEX,)),), "effects": PURE, "level": None, "bounds": bounds}
    return _for_clusters(name, native, native, doc, f"Special Registers: {register}", params=params, **kind)


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


_ORDER = Param("order", ("release", "relaxed"), "release")


def _both(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Values:
    b.call(cluster_arrive, (), ("release",))
    return b.call(cluster_wait, ())


cluster_arrive = _for_clusters(
    "cluster_arrive",
    ordered_ptx(lambda order: f"barrier.cluster.arrive{'.relaxed' if order == 'relaxed' else ''};"),
    Native.CLUSTER_BARRIER,
    "Arrive at the barrier of the cluster, without waiting. Each thread does so once, then calls `cluster_wait`. order: whether "
    "what it wrote before is there for those that wait; `relaxed` orders nothing.",
    "barrier.cluster.arrive",
    params=(_ORDER,),
)
cluster_wait = _for_clusters(
    "cluster_wait",
    ordered_ptx("barrier.cluster.wait;"),
    Native.CLUSTER_BARRIER,
    "Wait until every thread of the cluster that has not ended has called `cluster_arrive`.",
    "barrier.cluster.wait",
)
cluster_sync = _for_clusters(
    "cluster_sync",
    Expand(_both),
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


map_shared_rank = _for_clusters(
    "map_shared_rank",
    Expand(_mapa),
    Native.PEER,
    "The same place in shared memory of the block `rank` of the cluster; `sk.peer` does it for arrays.",
    "mapa",
    args=("pointer", "rank"),
    sigs=tuple([Sig((Pointer(d, Space.SHARED), INDEX), (Pointer(d, Space.CLUSTER),)) for d in _MAPPED]),
    is_asynchronous=True,
)
mbarrier_arrive_peer = _for_clusters(
    "mbarrier_arrive_peer",
    ordered_ptx(
        lambda order: f"mbarrier.arrive{'.release.cluster' * (order == 'release')}.shared::cluster.b64 _, [$0], $1;",
        "l,r",
    ),
    Native.MBARRIER,
    "`mbarrier_arrive` at an mbarrier of another block of the cluster, `sk.peer(full, rank) + stage`. order: `relaxed` is "
    "for a thread that has only read what may be overwritten now; what it wrote is then not there for those that wait. Releasing "
    "costs a fence of the whole GPU.",
    "mbarrier.arrive.shared::cluster",
    args=("mbarrier", "count"),
    sigs=(Sig((Pointer(dtypes.uint64, Space.CLUSTER), U32), ()),),
    defaults=(1,),
    params=(_ORDER,),
)
fence_cluster = _for_clusters(
    "fence_cluster",
    ordered_ptx("fence.acq_rel.cluster;"),
    Expand(lambda b, args, params: b.call(by_name("fence"), (), ("acq_rel", "gpu"))),
    "Order this thread's memory accesses as seen by the threads of its cluster. Waits for nobody.",
    "fence.acq_rel.cluster",
)
