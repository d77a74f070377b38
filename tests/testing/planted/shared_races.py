"""Races in shared memory: between lanes of a warp, and between threads of a block."""

from __future__ import annotations

import stagekit as sk

from .table import clean, fault, ints, thread, zeros


@fault("BLOCK_RACE", "reads element 63 of `tile`", (1, 64), {"out": ints(64)})
def no_barrier_between_write_and_read(out):
    tile = sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    tile[i] = i
    out[i] = tile[63 - i]


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_barrier_between_write_and_read(out):
    tile = sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    tile[i] = i
    sk.syncthreads()
    out[i] = tile[63 - i]


@fault("BLOCK_RACE", "writes element", (1, 64), {"out": ints(64)})
def no_barrier_before_the_buffer_is_used_again(out):
    tile = sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    for k in range(3):
        tile[i] = i + k
        sk.syncthreads()
        out[i] += tile[63 - i]


@fault("BLOCK_RACE", "of `tile`", (1, 128), {"A": zeros(128), "out": zeros(1)}, also=["WARP_RACE"])
def tree_without_barrier_in_the_loop(A, out):
    tile = sk.alloc_shared((128,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    for step in (64, 32, 16, 8, 4, 2, 1):
        if i < step:
            tile[i] += tile[i + step]
    if i == 0:
        out[0] = tile[0]


@fault("WARP_RACE", "the lanes of a warp need not run in step", (1, 128), {"A": zeros(128), "out": zeros(1)})
def tree_whose_last_warp_trusts_lockstep(A, out):
    """A pattern of the time before Volta."""
    tile = sk.alloc_shared((128,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    for step in (64, 32):
        if i < step:
            tile[i] += tile[i + step]
        sk.syncthreads()
    if i < 32:
        for step in (16, 8, 4, 2, 1):
            if i < step:
                tile[i] += tile[i + step]
    if i == 0:
        out[0] = tile[0]


@clean((1, 128), {"A": zeros(128), "out": zeros(1)}, outputs=["out"])
def a_tree_with_all_its_barriers(A, out):
    tile = sk.alloc_shared((128,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    step = 64
    while step > 0:
        if i < step:
            tile[i] += tile[i + step]
        sk.syncthreads()
        step //= 2
    if i == 0:
        out[0] = tile[0]


@fault("WARP_RACE", "put `syncwarp()` between the two", (1, 32), {"out": ints(32)})
def exchange_within_a_warp(out):
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = i
    out[i] = tile[i ^ 1]


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def an_exchange_within_a_warp_with_syncwarp(out):
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = i
    sk.syncwarp()
    out[i] = tile[i ^ 1]


@fault("BLOCK_RACE", "no barrier between", (1, 64), {"out": ints(64)})
def syncwarp_where_two_warps_meet(out):
    tile = sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    tile[i] = i
    sk.syncwarp()
    out[i] = tile[i ^ 32]


@fault("BLOCK_RACE", "of `left`", (1, (8, 8)), {"A": zeros(16, 16), "out": zeros(8, 8)})
def tiled_product_without_its_second_barrier(A, out):
    left = sk.alloc_shared((8, 8), sk.float32)
    x, y = thread("x"), thread("y")
    total = sk.float32(0)
    for t in range(2):
        left[y, x] = A[y, t * 8 + x]
        sk.syncthreads()
        for k in range(8):
            total += left[y, k] * left[k, x]
    out[y, x] = total


@fault("BLOCK_RACE", "writes element 0 of `flag`", (1, 64), {"out": ints(64)})
def two_writers_of_one_flag(out):
    flag = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i % 32 == 0:
        flag[0] = i
    sk.syncthreads()
    out[i] = flag[0]


@clean((1, 64), {"out": ints(64)})
def a_flag_to_which_all_write_the_same(out):
    flag = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    flag[0] = 7
    sk.syncthreads()
    out[i] = flag[0]


@fault("WARP_RACE", "of `bins`", (1, 64), {"out": ints(4)})
def counts_in_shared_memory_without_atomics(out):
    bins = sk.alloc_shared((4,), sk.int32)
    i = thread("x")
    if i < 4:
        bins[i] = 0
    sk.syncthreads()
    bins[i // 16] = bins[i // 16] + i
    sk.syncthreads()
    if i < 4:
        out[i] = bins[i]


@fault("BLOCK_RACE", "of `bins`", (1, 64), {"out": ints(4)})
def counts_that_are_read_before_all_are_added(out):
    bins = sk.alloc_shared((4,), sk.int32)
    i = thread("x")
    if i < 4:
        bins[i] = 0
    sk.syncthreads()
    sk.atomic_add(bins + i % 4, 1)
    if i < 4:
        out[i] = bins[i]


@clean((1, 64), {"out": ints(4)}, outputs=["out"])
def counts_with_atomics_and_barriers(out):
    bins = sk.alloc_shared((4,), sk.int32)
    i = thread("x")
    if i < 4:
        bins[i] = 0
    sk.syncthreads()
    sk.atomic_add(bins + i % 4, 1)
    sk.syncthreads()
    if i < 4:
        out[i] = bins[i]


@fault("BLOCK_RACE", "reads element", (1, 64), {"out": ints(64)})
def barrier_on_one_side_of_a_double_buffer(out):
    """Two buffers need a barrier in every round; here every other one has none."""
    tiles = sk.alloc_shared((2, 64), sk.int32)
    i = thread("x")
    tiles[0, i] = i
    for k in sk.static_range(4):
        if k % 2 == 0:
            sk.syncthreads()
        tiles[(k + 1) % 2, i] = tiles[k % 2, (i + 32) % 64]
    out[i] = tiles[0, i]


@fault("BLOCK_RACE", "inlined at", (1, 64), {"A": zeros(64), "out": zeros(2)})
def block_reduce_twice_without_barrier(A, out):
    """A scratch array of one's own, used by two reductions in a row."""
    scratch = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    first = total_through(scratch, A[i], i)
    second = total_through(scratch, A[i] * 2, i)
    if i == 0:
        out[0], out[1] = first, second


def total_through(scratch, value, i):
    scratch[i] = value
    sk.syncthreads()
    total = sk.float32(0)
    for k in range(64):
        total += scratch[k]
    return total
