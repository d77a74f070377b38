"""Races in global memory: between blocks, and between the threads of one."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import block, clean, fault, ints, thread, zeros


@fault("GRID_RACE", "writes element 0 of `out`", (2, 32), {"out": ints(32)})
def blocks_that_write_the_same_elements(out):
    out[thread("x")] = block("x")


@fault("GRID_RACE", "of `A` (global memory)", (4, 32), {"A": zeros(128)}, also=["WARP_RACE"])
def stencil_in_place(A):
    i = block("x") * 32 + thread("x")
    if 0 < i < 127:
        A[i] = A[i - 1] + A[i + 1]


@fault("WARP_RACE", "element 0 of `out`", (1, 32), {"A": zeros(32), "out": zeros(1)})
def sum_without_atomics(A, out):
    out[0] += A[thread("x")] + thread("x")


@fault("GRID_RACE", "element 0 of `out`", 4, {"A": zeros(128), "out": zeros(1), "BLOCK": 32})
def tile_sum_without_atomics(A, out, BLOCK: sk.constexpr):
    p = sk.program_id(0)
    x = sk.load(A + p * BLOCK + sk.arange(0, BLOCK))
    out[0] = out[0] + sk.reduce_sum(x) + p


@clean((4, 32), {"A": zeros(128), "out": zeros(1)})
def a_sum_with_atomics(A, out):
    sk.atomic_add(out, A[block("x") * 32 + thread("x")])


@fault("GRID_RACE", "of `part`", (4, 1), {"part": ints(4), "ticket": ints(1), "out": ints(1)})
def last_block_without_fence(part, ticket, out):
    part[block("x")] = block("x")
    if sk.atomic_add(ticket, 1) == 3:
        sk.threadfence()
        total = 0
        for i in range(4):
            total += part[i]
        out[0] = total


@clean((4, 1), {"part": ints(4), "ticket": ints(1), "out": ints(1)}, outputs=["out"])
def a_last_block_with_its_fences(part, ticket, out):
    part[block("x")] = block("x")
    sk.threadfence()
    if sk.atomic_add(ticket, 1) == 3:
        sk.threadfence()
        total = 0
        for i in range(4):
            total += part[i]
        out[0] = total


@fault("GRID_RACE", "element 0 of `bins`", (2, 32), {"bins": ints(8)}, also=["WARP_RACE"])
def plain_read_beside_atomics(bins):
    i = thread("x")
    sk.atomic_add(bins + i % 8, 1)
    if i == 0 and block("x") == 1:
        bins[1] = bins[0]


@fault("BLOCK_RACE", "of `A` (global memory)", (1, 64), {"A": zeros(64)})
def reversal_in_place(A):
    i = thread("x")
    A[63 - i] = A[i]


@fault("GRID_RACE", "of `A`", ((2, 2), (4, 4)), {"A": zeros(8, 8)})
def transposition_in_place(A):
    i, j = block("y") * 4 + thread("y"), block("x") * 4 + thread("x")
    if block("x") != block("y"):
        A[j, i] = A[i, j]


@fault("WARP_RACE", "of `count`", (1, 32), {"count": ints(2), "A": np.arange(32, dtype=np.int32)})
def compaction_without_atomics(count, A):
    i = thread("x")
    if A[i] % 2 == 1:
        count[0] = count[0] + A[i]


@fault("GRID_RACE", "of `A`", 2, {"A": zeros(40), "BLOCK": 32})
def tiles_that_overlap(A, BLOCK: sk.constexpr):
    i = sk.program_id(0) * 8 + sk.arange(0, BLOCK)
    sk.store(A + i, i + sk.program_id(0) * 0.5)


@fault("BLOCK_RACE", "of `A`", (1, 64), {"A": zeros(64), "B": zeros(64)}, order="random", seed=3)
def two_names_of_one_array(A, B):
    """Which array is which is decided by a branch."""
    i = thread("x")
    A[i] = 1.0 + i
    B[i] = A[(i + 32) % 64]


@fault("GRID_RACE", "of `a`", (4, 32), {"a": ints(4), "out": ints(4)})
def neighbours_read_without_a_grid_barrier(a, out):
    b = block("x")
    if thread("x") == 0:
        a[b] = sk.int32(b)
        out[b] = a[(b + 1) % 4]


@clean((4, 32), lambda: {"a": np.zeros(4, np.int32), "out": np.zeros(4, np.int32), "state": np.zeros(2, np.uint32)})
def neighbours_read_behind_a_grid_barrier(a, out, state):
    b = block("x")
    if thread("x") == 0:
        a[b] = sk.int32(b)
    sk.grid_sync(state)
    if thread("x") == 0:
        out[b] = a[(b + 1) % 4]
