"""Faults that reviews miss, each beside the right way to write the same: protocols between threads, warps and blocks."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import FULL, block, clean, fault, ints, thread, zeros

# -- within a warp ----------------------------------------------------------------------------------------------------


@fault("WARP_RACE", "of `tile`", (1, 32), {"A": zeros(32), "out": zeros(1)})
def warp_tree_that_reads_before_all_have_written(A, out):
    tile = sk.alloc_shared((32,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    for step in (16, 8, 4, 2, 1):
        if i < step:
            tile[i] += tile[i + step]
        sk.syncwarp()
    if i == 0:
        out[0] = tile[0]


@clean((1, 32), {"A": zeros(32), "out": zeros(1)}, outputs=["out"])
def a_warp_tree_in_step(A, out):
    tile = sk.alloc_shared((32,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncwarp()
    for step in (16, 8, 4, 2, 1):
        if i < step:
            tile[i] += tile[i + step]
        sk.syncwarp()
    if i == 0:
        out[0] = tile[0]


@fault("WARP_RACE", "of `tile`", (1, 32), {"out": ints(32)})
def shuffle_taken_for_a_barrier(out):
    """A shuffle hands over its own value and orders no memory."""
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = i
    first = sk.shfl_sync(FULL, sk.int32(i), 0)
    out[i] = tile[i ^ 1] + first


@fault("WARP_RACE", "of `tile`", (1, 32), {"out": ints(32)})
def vote_taken_for_a_barrier(out):
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = i
    if sk.all_sync(FULL, i < 32):
        out[i] = tile[31 - i]


@fault("WARP_RACE", "of `tile`", (1, 32), {"out": ints(32)})
def syncwarp_of_half_the_warp(out):
    """The other half is not waited for."""
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = i
    if i < 16:
        sk.syncwarp(0xFFFF)
    out[i] = tile[31 - i]


@fault("WARP_RACE", "of `tile`", (1, 32), {"out": ints(16)})
def syncwarp_of_those_that_have_work_left(out):
    """The others are done, but their writes need not be."""
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = i
    if i < 16:
        sk.syncwarp(0xFFFF)
        out[i] = tile[31 - i]


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def a_syncwarp_of_each_half(out):
    """Each half waits for itself and reads its own."""
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = i
    if i < 16:
        sk.syncwarp(0xFFFF)
    else:
        sk.syncwarp(0xFFFF0000)
    out[i] = tile[i ^ 15]


@fault("WARP_RACE", "of `last`", (1, 32), {"out": ints(32)})
def word_of_a_leader_read_at_once(out):
    last = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 31:
        last[0] = 7
    out[i] = last[0]


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_word_of_each_warps_leader(out):
    last = sk.alloc_shared((2,), sk.int32)
    i, w = thread("x"), sk.warp_id()
    if i % 32 == 31:
        last[w] = i
    sk.syncwarp()
    out[i] = last[w]


@fault("WARP_RACE", "of `tile`", (1, 32), {"out": ints(32)})
def scan_in_place_with_one_syncwarp(out):
    """All must have read before anyone writes."""
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = 1
    sk.syncwarp()
    for step in (1, 2, 4, 8, 16):
        if i >= step:
            tile[i] += tile[i - step]
        sk.syncwarp()
    out[i] = tile[i]


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def a_scan_in_place_that_reads_first(out):
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = 1
    sk.syncwarp()
    for step in (1, 2, 4, 8, 16):
        before = tile[i - step] if i >= step else 0
        sk.syncwarp()
        tile[i] += before
        sk.syncwarp()
    out[i] = tile[i]


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def a_scan_by_shuffles(out):
    i = thread("x")
    total = sk.int32(1)
    for step in (1, 2, 4, 8, 16):
        below = sk.shfl_up_sync(FULL, total, step)
        if i >= step:
            total += below
    out[i] = total


@fault("ABSENT_LANE_READ", "lane 0 reads lane 40", (1, 32), {"out": ints(32)})
def shuffle_from_beyond_the_warp(out):
    i = thread("x")
    out[i] = sk.shfl_down_sync(FULL, sk.int32(i), 40)


@fault("ABSENT_LANE_READ", "does not take part", (1, 32), {"out": ints(32)})
def shuffle_among_those_that_happen_to_be_here(out):
    i = thread("x")
    if i % 2 == 0:
        out[i] = sk.shfl_down_sync(sk.activemask(), sk.int32(i), 1)
    else:
        out[i] = 0


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def a_shuffle_among_those_that_were_counted(out):
    i = thread("x")
    mask = sk.ballot_sync(FULL, i < 20)
    out[i] = 0
    if i < 20:
        out[i] = sk.shfl_sync(mask, sk.int32(i), 19)


@clean((1, 32), {"n": 20, "out": ints(32)})
def a_vote_behind_the_return_of_others(n, out):
    """Lanes that have returned may be named."""
    i = thread("x")
    if i >= n:
        return
    out[i] = sk.any_sync(FULL, i == 3)


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_warp_that_works_alone(out):
    i = thread("x")
    out[i] = 0
    if sk.warp_id() == 0:
        sk.syncwarp()
        out[i] = sk.shfl_xor_sync(FULL, sk.int32(i), 1)


@clean((1, 32), {"out": ints(32), "keys": np.arange(32, dtype=np.int32) % 5}, outputs=["out"])
def a_leader_of_each_group(keys, out):
    i = thread("x")
    group = sk.match_any_sync(FULL, keys[i])
    leader = sk.ffs(group) - 1
    out[i] = sk.shfl_sync(FULL, sk.int32(i), leader)


@fault("LANE_NOT_HERE", "names lanes", (1, 32), {"A": np.arange(32, dtype=np.int32), "out": ints(32)})
def vote_in_a_loop_that_some_have_left(A, out):
    i = thread("x")
    left = A[i]
    while left > 3:
        left -= 1
        out[i] = sk.ballot_sync(FULL, left > 5).to(sk.int32)


@clean((1, 32), {"A": np.arange(32, dtype=np.int32), "out": ints(32)})
def a_loop_that_all_leave_together(A, out):
    i = thread("x")
    left = A[i]
    while sk.any_sync(FULL, left > 3):
        left -= 1
        out[i] = left


# -- within a block ---------------------------------------------------------------------------------------------------


@fault("BLOCK_RACE", "of `done`", (1, 64), {"A": np.arange(64, dtype=np.int32), "out": ints(64)}, also=["WARP_RACE"])
def flag_that_is_changed_while_others_look(A, out):
    """The classic: the loop's test and the next round's write have no barrier between."""
    done = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        done[0] = 0
    sk.syncthreads()
    rounds = 0
    while done[0] < 3:
        sk.syncthreads()
        if i == 0:
            done[0] += 1
        rounds += 1
    out[i] = rounds


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_flag_that_all_have_seen(out):
    done = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        done[0] = 0
    sk.syncthreads()
    rounds = 0
    while done[0] < 3:
        sk.syncthreads()
        if i == 0:
            done[0] += 1
        sk.syncthreads()
        rounds += 1
    out[i] = rounds


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def two_buffers_and_one_barrier(out):
    tiles = sk.alloc_shared((2, 64), sk.int32)
    i = thread("x")
    tiles[0, i] = i
    for k in range(4):
        sk.syncthreads()
        tiles[(k + 1) % 2, i] = tiles[k % 2, (i + 1) % 64] + 1
    sk.syncthreads()
    out[i] = tiles[0, 63 - i]


@fault("BLOCK_RACE", "of `tiles`", (1, 64), {"out": ints(64)})
def two_buffers_written_a_round_too_early(out):
    """The buffer that is filled ahead is the one that others still read."""
    tiles = sk.alloc_shared((2, 64), sk.int32)
    i = thread("x")
    tiles[0, i] = tiles[1, i] = i
    sk.syncthreads()
    total = 0
    for k in range(4):
        total += tiles[k % 2, (i + 32) % 64]
        tiles[k % 2, i] = total
        sk.syncthreads()
    out[i] = total


@fault("BLOCK_RACE", "of `scratch`", (1, 64), {"A": zeros(64), "out": zeros(64)})
def phases_that_share_their_scratch(A, out):
    scratch = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    scratch[i] = A[i]
    sk.syncthreads()
    mean = (scratch[0] + scratch[63]) / 2
    scratch[i] = A[i] - mean + i
    sk.syncthreads()
    out[i] = scratch[63 - i]


@clean((1, 64), {"A": zeros(64), "out": zeros(64)}, outputs=["out"])
def phases_with_a_barrier_between(A, out):
    scratch = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    scratch[i] = A[i]
    sk.syncthreads()
    mean = (scratch[0] + scratch[63]) / 2
    sk.syncthreads()
    scratch[i] = A[i] - mean + i
    sk.syncthreads()
    out[i] = scratch[63 - i]


@fault("BLOCK_RACE", "of `count`", (1, 64), {"out": ints(64)})
def total_read_before_all_have_counted(out):
    count = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        count[0] = 0
    sk.syncthreads()
    out[i] = sk.atomic_add(count.ptr, 1)
    sk.syncwarp()
    out[i] += count[0]


@clean((1, 64), {"out": ints(64), "A": np.arange(64, dtype=np.int32)})
def a_list_that_all_append_to(A, out):
    """Each gets a place of its own from the counter."""
    count, kept = sk.alloc_shared((1,), sk.int32), sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    if i == 0:
        count[0] = 0
    sk.syncthreads()
    if A[i] % 3 == 0:
        kept[sk.atomic_add(count.ptr, 1)] = A[i]
    sk.syncthreads()
    if i < count[0]:
        out[i] = kept[i]


@fault("UNINITIALISED_READ", "(shared memory)", (1, 64), {"out": ints(64), "A": np.arange(64, dtype=np.int32)})
def list_that_is_read_beyond_its_end(A, out):
    count, kept = sk.alloc_shared((1,), sk.int32), sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    if i == 0:
        count[0] = 0
    sk.syncthreads()
    if A[i] % 3 == 0:
        kept[sk.atomic_add(count.ptr, 1)] = A[i]
    sk.syncthreads()
    if i <= count[0]:
        out[i] = kept[i]


@fault("BLOCK_RACE", "of `high`", (1, 64), {"A": zeros(64, dtype=np.int32), "out": ints(64)})
def maximum_that_is_reset_while_others_add(A, out):
    high = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        high[0] = 0
    sk.syncthreads()
    sk.atomic_max(high.ptr, A[i])
    if i == 63:
        high[0] = -1
    sk.syncthreads()
    out[i] = high[0]


@clean((1, 64), {"out": zeros(64, dtype=np.uint8)}, outputs=["out"])
def neighbours_in_one_word(out):
    """Bytes of one word belong to different threads."""
    bytes_of_all = sk.alloc_shared((64,), sk.uint8)
    i = thread("x")
    bytes_of_all[i] = i.to(sk.uint8)
    out[i] = bytes_of_all[i]


@fault("WARP_RACE", "of `words`", (1, 32), {"out": ints(8)})
def byte_of_a_word_that_another_writes(out):
    words = sk.alloc_shared((8,), sk.int32)
    i = thread("x")
    if i < 8:
        words[i] = i
    else:
        sk.store(words.ptr.to(sk.uint8) + i, i.to(sk.uint8))
    sk.syncthreads()
    if i < 8:
        out[i] = words[i]


@fault("BLOCK_RACE", "of `A` (global memory)", (1, 64), {"A": zeros(65)})
def shift_in_place(A):
    i = thread("x")
    A[i] = A[i + 1] + i


@clean((1, 64), {"A": zeros(65)})
def a_shift_in_place_through_registers(A):
    i = thread("x")
    next_one = A[i + 1]
    sk.syncthreads()
    A[i] = next_one + i


@fault("BLOCK_RACE", "of `floats`", (1, 64), {"A": zeros(64), "B": zeros(64)})
def two_dtypes_of_one_memory(A, B):
    floats = sk.alloc_shared((64,), sk.float32)
    bits = floats.ptr.to(sk.int32)
    i = thread("x")
    floats[i] = A[i] + i
    B[i] = sk.load(bits + (i + 32) % 64).to(sk.float32)


@fault("DIVERGENT_BARRIER", "of the 64 threads", (1, 64), {"out": ints(64)})
def barrier_that_a_continue_skips(out):
    i = thread("x")
    for k in range(3):
        if i == k:
            continue
        sk.syncthreads()
    out[i] = i


@clean((3, 64), {"n": 2, "out": ints(128)})
def a_return_of_whole_blocks_in_front_of_a_barrier(n, out):
    if block("x") >= n:
        return
    sk.syncthreads()
    out[block("x") * 64 + thread("x")] = 1


@clean((1, 64), {"n": 2, "out": ints(64)}, outputs=["out"])
def barriers_in_both_arms_of_a_test_that_all_agree_on(n, out):
    i = thread("x")
    if n > 1:
        sk.syncthreads()
        out[i] = 1
    else:
        out[i] = 2
        sk.syncthreads()


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_test_of_threads_that_happens_to_agree(out):
    i = thread("x")
    if i // 64 == 0:
        sk.syncthreads()
    out[i] = i


@fault("DIVERGENT_BARRIER", "of the 64 threads", (1, 64), {"out": ints(64)})
def barrier_in_a_helper_for_some(out):
    i = thread("x")
    out[i] = exchanged(i) if i < 48 else 0


def exchanged(i):
    tile = sk.alloc_shared((64,), sk.int64)
    tile[i] = i
    sk.syncthreads()
    return tile[i].to(sk.int32)


@clean((1, 64), {"A": zeros(50), "out": zeros(64), "n": 50}, outputs=["out"])
def a_last_tile_that_is_filled_up(A, out, n):
    tile = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    tile[i] = A[i] if i < n else 0.0
    sk.syncthreads()
    out[i] = tile[63 - i]


@fault("UNINITIALISED_READ", "of `tile`", (1, 64), {"A": zeros(50), "out": zeros(64), "n": 50})
def last_tile_that_is_not_filled_up(A, out, n):
    tile = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    if i < n:
        tile[i] = A[i]
    sk.syncthreads()
    out[i] = tile[63 - i]


@fault("UNINITIALISED_READ", "of `row`", (1, 8), {"out": ints(8)})
def local_row_whose_last_is_forgotten(out):
    row = sk.alloc_local((4,), sk.int32)
    for k in range(3):
        row[k] = k
    total = 0
    for k in range(4):
        total += row[k]
    out[thread("x")] = total


@fault("OUT_OF_BOUNDS", "of `heap`", (1, 8), {"out": ints(8)})
def child_of_a_leaf(out):
    heap = sk.alloc_local((7,), sk.int32)
    for k in range(7):
        heap[k] = k
    i = thread("x")
    at = 0
    for _ in range(3):
        at = 2 * at + 1 + i % 2
    out[i] = heap[at]


# -- between blocks ---------------------------------------------------------------------------------------------------


@fault(
    "GRID_RACE",
    "of `part`",
    (4, 64),
    {"part": ints(256), "ticket": ints(1), "out": ints(1)},
    also=["WARP_RACE", "BLOCK_RACE"],
)
def last_block_that_does_not_wait_for_its_own(part, ticket, out):
    """The first thread's fence and ticket speak for itself: the others of its block may still be writing."""
    i = thread("x")
    part[block("x") * 64 + i] = i
    if i == 0:
        sk.threadfence()
        if sk.atomic_add(ticket, 1) == 3:
            sk.threadfence()
            total = 0
            for k in range(256):
                total += part[k]
            out[0] = total


@fault("GRID_RACE", "of `part`", (4, 32), {"part": ints(128), "ticket": ints(1), "out": ints(1)}, also=["WARP_RACE"])
def last_block_of_one_warp_that_does_not_wait_for_it(part, ticket, out):
    """Not even for the lanes of its own warp."""
    i = thread("x")
    part[block("x") * 32 + i] = i
    if i == 0:
        sk.threadfence()
        if sk.atomic_add(ticket, 1) == 3:
            sk.threadfence()
            total = 0
            for k in range(128):
                total += part[k]
            out[0] = total


@clean((4, 64), {"part": ints(256), "ticket": ints(1), "out": ints(1)}, outputs=["out"])
def a_last_block_that_waits_for_its_own(part, ticket, out):
    i = thread("x")
    part[block("x") * 64 + i] = i
    sk.syncthreads()
    if i == 0:
        sk.threadfence()
        if sk.atomic_add(ticket, 1) == 3:
            sk.threadfence()
            total = 0
            for k in range(256):
                total += part[k]
            out[0] = total


@clean((4, 64), {"part": ints(256), "ticket": ints(1), "out": ints(64)}, outputs=["out"])
def a_last_block_that_works_together(part, ticket, out):
    """As in the CUDA samples: each thread fences its own, and the block learns of it through shared memory."""
    is_last = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    part[block("x") * 64 + i] = i
    sk.threadfence()
    sk.syncthreads()
    if i == 0:
        is_last[0] = sk.atomic_add(ticket, 1) == 3
    sk.syncthreads()
    if is_last[0] == 1:
        sk.threadfence()
        total = 0
        for k in range(4):
            total += part[k * 64 + i]
        out[i] = total


@fault("GRID_RACE", "of `data`", (2, 1), {"data": ints(1), "flag": ints(1), "out": ints(1)})
def flag_that_overtakes_its_data(data, flag, out):
    """No fence between the data and the flag."""
    if block("x") == 0:
        data[0] = 42
        sk.atomic_exchange(flag, 1)
    else:
        while sk.atomic_add(flag, 0) == 0:
            pass
        sk.threadfence()
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (2, 1), {"data": ints(1), "flag": ints(1), "out": ints(1)})
def data_that_is_read_ahead_of_its_flag(data, flag, out):
    """No fence between the flag and the data."""
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flag, 1)
    else:
        while sk.atomic_add(flag, 0) == 0:
            pass
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (2, 1), {"data": ints(1), "flag": ints(1), "out": ints(1)})
def fence_that_reaches_its_own_block_only(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence_block()
        sk.atomic_exchange(flag, 1)
    else:
        while sk.atomic_add(flag, 0) == 0:
            pass
        sk.threadfence()
        out[0] = data[0]


@clean((2, 1), {"data": ints(1), "flag": ints(1), "out": ints(1)}, outputs=["out"])
def a_flag_behind_its_data(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flag, 1)
    else:
        while sk.atomic_add(flag, 0) == 0:
            pass
        sk.threadfence()
        out[0] = data[0]


@clean((4, 32), {"A": ints(128), "flags": ints(4), "sums": ints(4), "out": ints(128)}, outputs=["out"])
def a_decoupled_look_back(A, flags, sums, out):
    """Each block waits for the one before, adds its own and hands the sum on."""
    i, b = thread("x"), block("x")
    before = sk.alloc_shared((1,), sk.int32)
    own = sk.redux_sync_add(FULL, A[b * 32 + i])
    if i == 0:
        before[0] = 0
        if b > 0:
            while sk.atomic_add(flags + (b - 1), 0) == 0:
                pass
            sk.threadfence()
            before[0] = sums[b - 1]
        sums[b] = before[0] + own
        sk.threadfence()
        sk.atomic_exchange(flags + b, 1)
    sk.syncthreads()
    out[b * 32 + i] = before[0] + A[b * 32 + i]


@fault("GRID_RACE", "of `sums`", (4, 32), {"A": ints(128), "flags": ints(4), "sums": ints(4), "out": ints(128)})
def look_back_without_its_fence(A, flags, sums, out):
    i, b = thread("x"), block("x")
    before = sk.alloc_shared((1,), sk.int32)
    own = sk.redux_sync_add(FULL, A[b * 32 + i] + 1)
    if i == 0:
        before[0] = 0
        if b > 0:
            while sk.atomic_add(flags + (b - 1), 0) == 0:
                pass
            sk.threadfence()
            before[0] = sums[b - 1]
        sums[b] = before[0] + own
        sk.atomic_exchange(flags + b, 1)
    sk.syncthreads()
    out[b * 32 + i] = before[0] + A[b * 32 + i]


@clean((4, 1), {"lock": ints(1), "total": ints(1)})
def a_lock_around_a_sum(lock, total):
    while sk.atomic_cas(lock, 0, 1) != 0:
        pass
    sk.threadfence()
    total[0] = total[0] + block("x").to(sk.int32)
    sk.threadfence()
    sk.atomic_exchange(lock, 0)


@fault("GRID_RACE", "of `total`", (4, 1), {"lock": ints(1), "total": ints(1)})
def lock_that_is_given_back_without_a_fence(lock, total):
    while sk.atomic_cas(lock, 0, 1) != 0:
        pass
    sk.threadfence()
    total[0] = total[0] + block("x").to(sk.int32) + 1
    sk.atomic_exchange(lock, 0)


@fault("GRID_RACE", "of `lock`", (4, 1), {"lock": ints(1), "total": ints(1)})
def lock_that_is_given_back_by_a_plain_store(lock, total):
    while sk.atomic_cas(lock, 0, 1) != 0:
        pass
    sk.threadfence()
    total[0] = total[0] + block("x").to(sk.int32) + 1
    sk.threadfence()
    lock[0] = 0


@fault("GRID_RACE", "of `bins`", (4, 32), {"bins": ints(8)})
def counts_that_the_first_block_resets(bins):
    i = thread("x")
    if block("x") == 0 and i < 8:
        bins[i] = 0
    sk.atomic_add(bins + i % 8, 1)


@clean((4, 32), {"A": zeros(500), "out": zeros(500), "n": 500}, outputs=["out"])
def a_loop_with_the_stride_of_the_grid(A, out, n):
    i = block("x") * 32 + thread("x")
    while i < n:
        out[i] = A[i] + 1.0
        i += 128


@fault("GRID_RACE", "of `out`", (4, 32), {"A": zeros(500), "out": zeros(500), "n": 500})
def loop_with_too_small_a_stride(A, out, n):
    i = block("x") * 32 + thread("x")
    while i < n:
        out[i] = A[i] + block("x")
        i += 96


@clean((4, 1), {"next_one": ints(1), "out": ints(16)}, outputs=["out"])
def work_that_is_drawn_by_ticket(next_one, out):
    mine = sk.atomic_add(next_one, 1)
    while mine < 16:
        out[mine] = mine * 2
        mine = sk.atomic_add(next_one, 1)


@fault("GRID_RACE", "of `next_one`", (4, 1), {"next_one": ints(1), "out": ints(64)})
def work_that_is_drawn_without_atomics(next_one, out):
    mine = next_one[0]
    next_one[0] = mine + block("x").to(sk.int32) + 1
    out[mine] = 1


@fault("GRID_RACE", "of `grid`", (4, 16), {"grid": zeros(8, 8)})
def red_and_black_in_one_launch(grid):
    """Neighbours of a block are another block's, and both change them."""
    k = block("x") * 16 + thread("x")
    i, j = k // 8, k % 8
    if 0 < i < 7:
        grid[i, j] = grid[i - 1, j] + grid[i + 1, j] + 1


@clean((4, 16), {"before": zeros(8, 8), "after": zeros(8, 8)}, outputs=["after"])
def a_step_from_one_grid_to_another(before, after):
    k = block("x") * 16 + thread("x")
    i, j = k // 8, k % 8
    up = before[i - 1, j] if i > 0 else 0.0
    down = before[i + 1, j] if i < 7 else 0.0
    after[i, j] = up + down


# -- numbers ----------------------------------------------------------------------------------------------------------


@fault(
    "INDEX_OVERFLOW",
    "does not fit int32",
    (1, 1),
    {"A": zeros(4), "row": 70000, "width": 70000},
    also=["OUT_OF_BOUNDS"],
)
def product_that_is_widened_too_late(A, row, width):
    A[sk.int64(row * width)] = 1.0


@clean((1, 1), {"A": zeros(4), "row": 70000, "width": 70000})
def a_product_that_is_widened_in_time(A, row, width):
    at = sk.int64(row) * width
    if at < 4:
        A[at] = 1.0


@clean((1, 32), {"table": ints(64), "keys": np.arange(32, dtype=np.int32) * 1000003})
def a_hash_that_means_to_wrap(table, keys):
    i = thread("x")
    h = keys[i] * 0x01000193
    h = (h ^ (h >> 15)) * 0x2C1B3C6D
    sk.atomic_add(table + (h & 63), 1)


@fault("OUT_OF_BOUNDS", "element 4294967295 of `A`", (1, 4), {"A": zeros(4), "out": zeros(4)}, also=["INDEX_OVERFLOW"])
def unsigned_index_below_zero(A, out):
    i = thread("x").to(sk.uint32)
    out[thread("x")] = A[i - 1]


@clean((1, 8), {"A": np.arange(8, dtype=np.int32), "out": ints(8)}, outputs=["out"])
def a_quotient_that_is_thrown_away(A, out):
    i = thread("x")
    out[i] = sk.where(A[i] != 0, 60 // A[i], -1)


@fault("DIVISION_BY_ZERO", "% 0", (1, 8), {"A": np.arange(8, dtype=np.int32), "out": ints(8)})
def remainder_whose_guard_is_the_wrong_one(A, out):
    i = thread("x")
    out[i] = sk.where(A[i] >= 0, 60 % A[i], -1)


@fault("NAN_PRODUCED", "is NaN", (1, 8), {"A": zeros(8), "mask": np.full(8, -np.inf, np.float32)})
def weight_of_nothing_times_minus_infinity(A, mask):
    i = thread("x")
    A[i] = A[i] * mask[i]


@clean((1, 8), {"A": zeros(8), "mask": np.full(8, -np.inf, np.float32)})
def a_sum_with_minus_infinity(A, mask):
    i = thread("x")
    A[i] = sk.exp(A[i] + mask[i])


@fault("SHIFT_OUT_OF_RANGE", "shift of int32 by", (1, 64), {"out": np.zeros(64, np.int64)})
def bit_of_the_wrong_width(out):
    i = thread("x")
    out[i] = sk.int64(sk.int32(1) << i.to(sk.int32))


@clean((1, 63), {"out": np.zeros(63, np.int64)}, outputs=["out"])
def a_bit_of_the_right_width(out):
    i = thread("x")
    out[i] = sk.int64(1) << i


@clean((1, 32), {"A": zeros(4)})
def a_pointer_beyond_the_end_that_nobody_follows(A):
    p = A.ptr + 1000
    if thread("x") < 0:
        sk.store(p, 1.0)


@clean((1, 32), {"A": np.arange(32, dtype=np.int32), "out": ints(32)})
def an_assert_about_those_who_are_here(A, out):
    i = thread("x")
    if A[i] > 3:
        assert A[i] > 3, "only lanes that are here are asked"
        out[i] = A[i]
