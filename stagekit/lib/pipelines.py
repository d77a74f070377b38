"""A ring of stages in shared memory, which some threads fill by copies and others read: `sk.pipeline(stages, consumers)`.

    pipe = sk.pipeline(3, 4)                              # every thread: memory for the mbarriers, and a barrier
    if sk.warp_id() == 0:
        if sk.cuda.elect_sync():
            state = pipe.producer_start()
            for k in range(rounds):
                full = pipe.producer_acquire(state, size)     # the stage is empty, and will take `size` bytes
                sk.cuda.cp_async_bulk_g2s(tiles + state.stage * TILE, source + k * TILE, size, full)
                state = state.advance()
    else:
        state = pipe.consumer_start()
        for k in range(rounds):
            pipe.consumer_wait(state)                     # the stage is full
            ... tiles[state.stage * TILE + i] ...
            pipe.warp_release(state)                      # one of four warps has read it
            state = state.advance()

Each stage has two mbarriers. `full` takes the producer's arrival and the bytes that it expects, `empty` an arrival of each
consumer. The parity of a state changes each time round the ring; a producer begins with 1, as its first waits are for stages that
nobody has used. In a cluster, `sk.pipeline(3, 4, cluster=2)`, the blocks use their rings together: a stage is empty when the
consumers of all blocks have read theirs, so that any block may bring parts of it to all. Source: PTX ISA, "mbarrier"; the names
are those of CUTLASS.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import stagekit as sk
from stagekit.lib.placing import is_int
from stagekit.lib.tile import Traced

MOST_STAGES = 64
MOST_BLOCKS = 8  # of a cluster


class PipelineState(NamedTuple):
    """Where one role is in a ring of `stages`. stage: the present one. parity: of the phase that it waits for there."""

    stages: int
    stage: Traced
    parity: Traced

    def advance(self) -> PipelineState:
        """Return the state of the next round."""
        is_last = self.stage == self.stages - 1
        parity = sk.where(is_last, self.parity ^ 1, self.parity)
        return PipelineState(self.stages, sk.where(is_last, 0, self.stage + 1), parity)


class Pipeline:
    """The mbarriers of a ring. full, empty: pointers to those of the first stage. cluster: blocks that use theirs together.

    See `pipeline`.
    """

    def __init__(self, stages: int, full: Any, empty: Any, cluster: int = 1) -> None:
        self.stages = stages
        self.cluster = cluster
        self.full = full
        self.empty = empty

    def producer_start(self) -> PipelineState:
        """Return the state in which the thread begins that fills stages."""
        return PipelineState(self.stages, sk.int32(0), sk.int32(1))

    def consumer_start(self) -> PipelineState:
        """Return the state in which threads begin that read stages."""
        return PipelineState(self.stages, sk.int32(0), sk.int32(0))

    def producer_acquire(self, state: PipelineState, size: Any) -> Any:
        """Wait until all consumers have released the stage. Return the mbarrier that its copies, of `size` bytes, signal."""
        sk.cuda.mbarrier_wait(self.empty + state.stage, state.parity)
        sk.cuda.mbarrier_arrive_expect_tx(self.full + state.stage, size)
        return self.full + state.stage

    def consumer_wait(self, state: PipelineState) -> None:
        """Wait until the copies of the stage have come."""
        sk.cuda.mbarrier_wait(self.full + state.stage, state.parity)

    def consumer_release(self, state: PipelineState) -> None:
        """Arrive as one of the consumers, behind whose reads of the stage it may be filled again."""
        if self.cluster > 1:
            sk.static_assert(False, "consumer_release is of one block; in a cluster a warp calls warp_release")
        sk.cuda.mbarrier_arrive(self.empty + state.stage)

    def warp_release(self, state: PipelineState) -> None:
        """`consumer_release` of a whole warp, which is one consumer, to all blocks of the cluster. All 32 lanes call it."""
        sk.syncwarp()
        lane = sk.lane_id()
        if lane < self.cluster:
            if self.cluster == 1:
                sk.cuda.mbarrier_arrive(self.empty + state.stage)
            else:
                there = sk.cuda.map_shared_rank(self.empty + state.stage, lane)
                sk.cuda.mbarrier_arrive_peer(there, order="relaxed")


@sk._kernel_only
@sk._among_threads
def pipeline(stages: int, consumers: Any, *, cluster: int = 1) -> Pipeline:
    """Return the mbarriers of a ring of stages, which one thread fills by bulk copies and others read. Every thread calls it.

    stages: 1 to 64, a compile-time int. consumers: how many calls of `consumer_release` a stage takes before it is filled again.
    cluster: the blocks of the launch's clusters, 1 to 8, a compile-time int, which all fill each other's stages: their consumers
    call `warp_release`, and the kernel ends with `cluster_sync`. From compute capability 9.0 on, and in the sanitizer.
    """
    if not is_int(cluster) or not 1 <= cluster <= MOST_BLOCKS:
        sk.static_assert(False, f"pipeline: cluster is 1 to {MOST_BLOCKS}, a compile-time int, got {cluster!r}")
    if not is_int(stages) or not 1 <= stages <= MOST_STAGES:
        sk.static_assert(False, f"pipeline has 1 to {MOST_STAGES} stages, a compile-time int, got {stages!r}")
    full = sk.alloc_shared((stages,), sk.uint64)
    empty = sk.alloc_shared((stages,), sk.uint64)
    x, y, z = sk.cuda.thread_idx("x"), sk.cuda.thread_idx("y"), sk.cuda.thread_idx("z")
    if (x == 0) & (y == 0) & (z == 0):
        for stage in sk.static_range(stages):
            sk.cuda.mbarrier_init(full + stage, 1)
            sk.cuda.mbarrier_init(empty + stage, consumers * cluster)
        sk.cuda.fence_mbarrier_init()
    if cluster > 1:
        sk.cuda.cluster_sync()
    else:
        sk.syncthreads()
    return Pipeline(stages, full + 0, empty + 0, cluster)
