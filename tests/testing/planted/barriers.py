"""Barriers that not all threads of a block reach."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import block, clean, fault, ints, thread, zeros


@fault("DIVERGENT_BARRIER", "40 of the 64 threads of the block are here", (1, 64), {})
def barrier_under_a_condition():
    if thread("x") < 40:
        sk.syncthreads()


@fault("DIVERGENT_BARRIER", "threads of the block are here", (1, 64), {})
def barrier_for_one_warp_only():
    if sk.warp_id() == 0:
        sk.syncthreads()


@fault("BARRIER_NOT_REACHED", "1 of 2 warps wait here; the others have ended", (1, 64), {}, order="forward")
def barrier_that_a_warp_never_reaches():
    if sk.warp_id() == 0:
        sk.syncthreads()


@fault("BARRIER_NOT_REACHED", "wait at another barrier", (1, 64), {}, order="backward")
def barriers_in_both_arms():
    if sk.warp_id() == 0:
        sk.syncthreads()
    else:
        sk.syncthreads()


@fault("DIVERGENT_BARRIER", "threads of the block are here", (1, 64), {"n": 50, "out": ints(64)})
def return_in_front_of_a_barrier(n, out):
    i = thread("x")
    if i >= n:
        return
    out[i] = i
    sk.syncthreads()


@fault("DIVERGENT_BARRIER", "threads of the block are here", (1, 64), {})
def barrier_in_a_loop_of_different_lengths():
    for _ in range(thread("x") % 3):
        sk.syncthreads()


@clean((3, 64), {})
def a_barrier_in_a_loop_that_differs_between_blocks():
    for _ in range(block("x")):
        sk.syncthreads()


@clean((2, 64), {"A": np.full(64, 8, np.int32)}, races=False)
def a_barrier_in_a_while_that_memory_ends(A):
    i = thread("x")
    while A[i] > 0:
        A[i] = A[i] // 2
        sk.syncthreads()


@fault(
    "DIVERGENT_BARRIER",
    "threads of the block are here",
    (1, 64),
    {"A": np.arange(64, dtype=np.int32)},
    also=["BARRIER_NOT_REACHED"],
)
def barrier_in_a_while_of_different_lengths(A):
    i = thread("x")
    while A[i] > 0:
        A[i] = A[i] // 2
        sk.syncthreads()


@fault("DIVERGENT_BARRIER", "threads of the block are here", (1, 64), {"out": ints(64)})
def barrier_behind_a_break(out):
    i = thread("x")
    for k in range(4):
        if i == k:
            break
        sk.syncthreads()
    out[i] = i


@fault("DIVERGENT_BARRIER", "threads of the block are here", (1, 64), {"out": ints(64)})
def count_under_a_condition(out):
    i = thread("x")
    if i % 2 == 0:
        out[i] = sk.syncthreads_count(i < 7)


@fault(
    "DIVERGENT_BARRIER", "33 of the 64 threads", (1, 64), {"A": zeros(64), "out": zeros(64)}, also=["ABSENT_LANE_READ"]
)
def block_reduction_under_a_condition(A, out):
    """The barrier is in the library."""
    i = thread("x")
    if i < 33:
        out[i] = sk.block_reduce(A[i], sk.maximum, 0.0, 64)


@fault("BARRIER_NOT_REACHED", "another round", (1, 64), {"out": ints(4)}, order="forward")
def barrier_that_a_warp_skips_in_one_round(out):
    i = thread("x")
    for k in range(4):
        if k == 0 and i < 32:
            continue
        sk.syncthreads()
        if i == 0:
            out[k] = 1
    if i < 32:
        sk.syncthreads()


@clean((1, 64), {"out": ints(4)})
def a_barrier_behind_loops_of_different_length(out):
    i = thread("x")
    total = 0
    for k in range(3):
        for j in range(sk.warp_id() + k):
            total += j
        sk.syncthreads()
    if i == 63:
        out[0] = total
