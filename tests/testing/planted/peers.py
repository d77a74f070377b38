"""Messages to a peer's mbarrier: an arrival that releases tells of what was written, a relaxed one only that reads are over."""

from __future__ import annotations

import stagekit as sk

from .table import clean, fault, thread, zeros

PAIR = sk.cuda.LaunchConfig(2, 32, cluster=2)
ROOM = {"out": zeros(2, 32)}


@sk.inline
def ring():
    """Numbers of this block, and an mbarrier that takes one arrival, which both blocks may use."""
    numbers = sk.alloc_shared((32,), sk.float32)
    told = sk.alloc_shared((1,), sk.uint64)
    t = thread("x")
    numbers[t] = t
    if t == 0:
        sk.cuda.mbarrier_init(told + 0, 1)
        sk.cuda.fence_mbarrier_init()
    sk.cuda.cluster_sync()
    return numbers, told


@sk.inline
def tell(told, order):
    """Let lane 0 arrive for its warp at the mbarrier of the other block."""
    sk.syncwarp()
    if thread("x") == 0:
        sk.cuda.mbarrier_arrive_peer(sk.peer(told, 1 - sk.cuda.cluster_rank()) + 0, order=order)


@fault("GRID_RACE", "of `numbers`", PAIR, ROOM)
def numbers_sent_to_a_peer_by_a_relaxed_arrival(out):
    numbers, told = ring()
    t, rank = thread("x"), sk.cuda.cluster_rank()
    sk.peer(numbers, 1 - rank)[t] = t + 1
    tell(told, "relaxed")
    sk.cuda.mbarrier_wait(told + 0, 0)
    out[rank, t] = numbers[t]
    sk.cuda.cluster_sync()


@clean(PAIR, ROOM, outputs=["out"])
def numbers_sent_to_a_peer_by_an_arrival(out):
    numbers, told = ring()
    t, rank = thread("x"), sk.cuda.cluster_rank()
    sk.peer(numbers, 1 - rank)[t] = t + 1
    tell(told, "release")
    sk.cuda.mbarrier_wait(told + 0, 0)
    out[rank, t] = numbers[t]
    sk.cuda.cluster_sync()


@clean(PAIR, ROOM, outputs=["out"])
def numbers_overwritten_when_the_peer_has_read_them(out):
    """What pipelines do: it is free for the next tile when all have read it, and a fence would be for nothing."""
    numbers, told = ring()
    t, rank = thread("x"), sk.cuda.cluster_rank()
    out[rank, t] = sk.peer(numbers, 1 - rank)[t]
    tell(told, "relaxed")
    sk.cuda.mbarrier_wait(told + 0, 0)
    numbers[t] = -1
    sk.cuda.cluster_sync()


@fault("GRID_RACE", "of `numbers`", PAIR, ROOM)
def numbers_overwritten_before_the_peer_has_read_them(out):
    numbers, told = ring()
    t, rank = thread("x"), sk.cuda.cluster_rank()
    tell(told, "relaxed")
    out[rank, t] = sk.peer(numbers, 1 - rank)[t]
    sk.cuda.mbarrier_wait(told + 0, 0)
    numbers[t] = -1
    sk.cuda.cluster_sync()


@fault("GRID_RACE", "of `numbers`", PAIR, ROOM)
def numbers_written_behind_reads_and_told_of_by_a_relaxed_arrival(out):
    """Both at once: the reads are over, and what was written to them after may not be there yet."""
    numbers, told = ring()
    t, rank = thread("x"), sk.cuda.cluster_rank()
    theirs = sk.peer(numbers, 1 - rank)
    theirs[t] = theirs[t] * 2
    tell(told, "relaxed")
    sk.cuda.mbarrier_wait(told + 0, 0)
    numbers[t] = -1
    out[rank, t] = 0.0
    sk.cuda.cluster_sync()


@clean(PAIR, ROOM, outputs=["out"])
def an_mbarrier_ended_when_the_peer_has_come_to_it(out):
    numbers, told = ring()
    t, rank = thread("x"), sk.cuda.cluster_rank()
    out[rank, t] = sk.peer(numbers, 1 - rank)[t]
    tell(told, "relaxed")
    sk.cuda.mbarrier_wait(told + 0, 0)
    sk.syncwarp()
    if t == 0:
        sk.cuda.mbarrier_inval(told + 0)
