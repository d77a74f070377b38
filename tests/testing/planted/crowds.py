"""Races of which one side is a crowd: equal writers, many readers, lanes that synchronise by name, atomics of several widths."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import block, clean, fault, ints, thread

# -- equal writers ----------------------------------------------------------------------------------------------------


@fault("BLOCK_RACE", "writes element 0 of `s`", (1, 64), {"out": ints(64)}, also=["WARP_RACE"])
def zero_of_all_and_seven_of_the_last(out):
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    s[0] = 0
    if i == 63:
        s[0] = 7
    sk.syncthreads()
    out[i] = s[0]


@fault("BLOCK_RACE", "writes element 0 of `s`", (1, 64), {"out": ints(64)}, also=["WARP_RACE"])
def zero_of_all_and_seven_of_one_between(out):
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    s[0] = 0
    if i == 40:
        s[0] = 7
    sk.syncthreads()
    out[i] = s[0]


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_zero_of_all_and_seven_behind_a_barrier(out):
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    s[0] = 0
    sk.syncthreads()
    if i == 40:
        s[0] = 7
    sk.syncthreads()
    out[i] = s[0]


@fault("BLOCK_RACE", "writes element 0 of `s`", (1, 64), {"out": ints(64)})
def value_that_only_agrees_with_the_last(out):
    """The two agree on 2, but the 1 in between may come last."""
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        s[0] = 1
        s[0] = 2
    if i == 40:
        s[0] = 2
    sk.syncthreads()
    out[i] = s[0]


@fault("GRID_RACE", "of `found`", (4, 32), {"found": ints(1), "A": np.arange(128, dtype=np.int32)}, also=["WARP_RACE"])
def flag_that_one_takes_back(found, A):
    i = block("x") * 32 + thread("x")
    if A[i] % 3 == 0:
        found[0] = 1
    if i == 127:
        found[0] = 0


@fault("WARP_RACE", "of `s`", (1, 32), {"out": ints(32)})
def byte_that_is_not_equal(out):
    """The words agree but for one byte."""
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    s[0] = 7
    if i == 3:
        sk.store(s.ptr.to(sk.uint8) + 1, sk.uint8(1))
    sk.syncwarp()
    out[i] = s[0]


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def bytes_that_are_equal(out):
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    s[0] = 7
    if i == 3:
        sk.store(s.ptr.to(sk.uint8), sk.uint8(7))
    sk.syncwarp()
    out[i] = s[0]


@fault("GRID_RACE", "reads element 0 of `found`", (4, 32), {"found": ints(1), "out": ints(4)}, also=["WARP_RACE"])
def equal_flag_that_is_looked_at(found, out):
    found[0] = 1
    if thread("x") == 0:
        out[block("x")] = found[0]


# -- many readers -----------------------------------------------------------------------------------------------------


@fault("WARP_RACE", "writes element 0 of `s`", (1, 32), {"out": ints(32)})
def writer_that_waits_for_the_last_reader_only(out):
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        s[0] = 1
    sk.syncwarp()
    out[i] = s[0]
    if i == 0 or i == 31:
        sk.syncwarp(0x80000001)
    if i == 0:
        s[0] = 2


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def a_writer_that_waits_for_all_readers(out):
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        s[0] = 1
    sk.syncwarp()
    out[i] = s[0]
    sk.syncwarp()
    if i == 0:
        s[0] = 2


@fault("WARP_RACE", "writes element 0 of `s`", (1, 32), {"out": ints(32)})
def writer_that_waits_for_every_other_reader(out):
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        s[0] = 1
    sk.syncwarp()
    out[i] = s[0]
    if i % 2 == 0:
        sk.syncwarp(0x55555555)
    if i == 0:
        s[0] = 2


@clean((1, 32), {"out": ints(16)}, outputs=["out"])
def a_writer_that_waits_for_those_who_read(out):
    s = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i % 2 == 0:
        if i == 0:
            s[0] = 1
        sk.syncwarp(0x55555555)
        out[i // 2] = s[0]
        sk.syncwarp(0x55555555)
        if i == 0:
            s[0] = 2


@fault("BLOCK_RACE", "no barrier between", (1, 96), {"out": ints(96)})
def writer_that_hears_from_the_last_warp_only(out):
    """Three warps read; the writer is told by the third, not by the second."""
    s, done = sk.alloc_shared((1,), sk.int32), sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        s[0] = 1
        done[0] = 0
    sk.syncthreads()
    out[i] = s[0]
    sk.syncwarp()
    if i == 64:
        sk.threadfence_block()
        sk.atomic_add(done.ptr, 1)
    if i == 0:
        while sk.atomic_add(done.ptr, 0) < 1:
            pass
        sk.threadfence_block()
        s[0] = 2


@clean((1, 96), {"out": ints(96)}, outputs=["out"])
def a_writer_that_hears_from_each_warp(out):
    s, done = sk.alloc_shared((1,), sk.int32), sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        s[0] = 1
        done[0] = 0
    sk.syncthreads()
    out[i] = s[0]
    sk.syncwarp()
    if i % 32 == 0:
        sk.threadfence_block()
        sk.atomic_add(done.ptr, 1)
    if i == 0:
        while sk.atomic_add(done.ptr, 0) < 3:
            pass
        sk.threadfence_block()
        s[0] = 2


@fault("GRID_RACE", "writes element 0 of `A`", (3, 1), {"A": ints(1), "done": ints(1), "out": ints(3)})
def block_that_nobody_asks_whether_it_has_read(A, done, out):
    b = block("x")
    out[b] = A[0]
    if b == 0:
        sk.threadfence()
        sk.atomic_add(done, 1)
    if b == 2:
        while sk.atomic_add(done, 0) < 1:
            pass
        sk.threadfence()
        A[0] = 5


@clean((3, 1), {"A": ints(1), "done": ints(1), "out": ints(3)}, outputs=["out"])
def a_block_that_asks_all_whether_they_have_read(A, done, out):
    b = block("x")
    out[b] = A[0]
    sk.threadfence()
    sk.atomic_add(done, 1)
    if b == 2:
        while sk.atomic_add(done, 0) < 3:
            pass
        sk.threadfence()
        A[0] = 5


# -- named lanes ------------------------------------------------------------------------------------------------------


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def a_pair_that_names_itself(out):
    s = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    s[i] = i
    sk.syncwarp(sk.uint32(3) << (i & 30).to(sk.uint32))
    out[i] = s[i ^ 1]


@fault("WARP_RACE", "of `s`", (1, 32), {"out": ints(32)})
def pair_that_looks_at_the_next(out):
    s = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    s[i] = i
    sk.syncwarp(sk.uint32(3) << (i & 30).to(sk.uint32))
    out[i] = s[i ^ 2]


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def groups_of_eight_in_step(out):
    s = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    mask = sk.uint32(255) << (i & 24).to(sk.uint32)
    s[i] = i
    for step in (4, 2, 1):
        sk.syncwarp(mask)
        other = s[i ^ step]
        sk.syncwarp(mask)
        s[i] += other
    out[i] = s[i]


@fault("WARP_RACE", "of `s`", (1, 32), {"out": ints(32)})
def groups_of_eight_that_step_too_far(out):
    s = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    mask = sk.uint32(255) << (i & 24).to(sk.uint32)
    s[i] = i
    for step in (8, 4, 2, 1):
        sk.syncwarp(mask)
        other = s[i ^ step]
        sk.syncwarp(mask)
        s[i] += other
    out[i] = s[i]


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def halves_that_meet_one_after_the_other(out):
    """Lane 15 carries the news of the lower half to the upper."""
    s = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    out[i] = 0
    if i < 16:
        s[i] = i
        sk.syncwarp(0xFFFF)
    if i >= 15:
        sk.syncwarp(0xFFFF8000)
        out[i] = s[i - 15 if i < 31 else 15]


@fault("WARP_RACE", "of `s`", (1, 32), {"out": ints(32)})
def halves_that_meet_in_the_wrong_order(out):
    s = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    out[i] = 0
    if i >= 15:
        sk.syncwarp(0xFFFF8000)
    if i < 16:
        s[i] = i
        sk.syncwarp(0xFFFF)
    if i >= 15:
        out[i] = s[i - 15 if i < 31 else 15]


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def two_buffers_of_one_warp(out):
    s = sk.alloc_shared((2, 64), sk.int32)
    i = thread("x")
    s[0, i] = i
    for k in sk.static_range(4):
        sk.syncwarp()
        s[(k + 1) % 2, i] = s[k % 2, i ^ 1] + 1
    out[i] = s[0, i]


@fault("WARP_RACE", "of `s`", (1, 64), {"out": ints(64)})
def two_buffers_of_one_warp_in_step_every_other_round(out):
    s = sk.alloc_shared((2, 64), sk.int32)
    i = thread("x")
    s[0, i] = i
    for k in sk.static_range(4):
        if k % 2 == 0:
            sk.syncwarp()
        s[(k + 1) % 2, i] = s[k % 2, i ^ 1] + 1
    out[i] = s[0, i]


@fault("BLOCK_RACE", "of `s`", (1, 64), {"out": ints(64)})
def two_buffers_of_two_warps_in_step_by_warp(out):
    s = sk.alloc_shared((2, 64), sk.int32)
    i = thread("x")
    s[0, i] = i
    for k in sk.static_range(4):
        sk.syncwarp()
        s[(k + 1) % 2, i] = s[k % 2, i ^ 32] + 1
    out[i] = s[0, i]


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_ring_of_three_with_one_barrier(out):
    ring = sk.alloc_shared((3, 64), sk.int32)
    i = thread("x")
    total = 0
    ring[0, i] = i
    for k in range(6):
        ring[(k + 1) % 3, i] = i + k
        sk.syncthreads()
        total += ring[k % 3, 63 - i]
    out[i] = total


@fault("BLOCK_RACE", "of `ring`", (1, 64), {"out": ints(64)})
def ring_of_two_with_one_barrier(out):
    ring = sk.alloc_shared((2, 64), sk.int32)
    i = thread("x")
    total = 0
    ring[0, i] = i
    for k in range(6):
        ring[(k + 1) % 2, i] = i + k
        sk.syncthreads()
        total += ring[k % 2, 63 - i]
    out[i] = total


# -- atomics of several widths ----------------------------------------------------------------------------------------


@fault("WARP_RACE", "updates element", (1, 2), {"A": np.zeros(2, np.int64)})
def word_of_a_number_counted_apart(A):
    if thread("x") == 0:
        sk.atomic_add(A, 1)
    else:
        sk.atomic_add(A.ptr.to(sk.int32) + 1, 1)


@fault("GRID_RACE", "updates element", (2, 32), {"A": np.zeros(1, np.uint64)}, also=["WARP_RACE"])
def best_of_all_and_its_upper_half(A):
    """A score above an index, both in one word: the score alone is raised too."""
    i = block("x") * 32 + thread("x")
    sk.atomic_max(A, sk.uint64(i) << 32 | sk.uint64(i))
    sk.atomic_max(A.ptr.to(sk.uint32) + 1, sk.uint32(40))


@clean((1, 64), {"A": np.zeros(1, np.int64), "out": ints(1)}, outputs=["out"])
def halves_counted_in_turn_with_the_whole(A, out):
    i = thread("x")
    sk.atomic_add(A, 1)
    sk.syncthreads()
    sk.atomic_add(A.ptr.to(sk.int32) + i % 2, 1)
    sk.syncthreads()
    if i == 0:
        out[0] = A[0].to(sk.int32)


@clean((2, 32), {"A": np.zeros(4, np.int64)})
def halves_that_belong_to_different_blocks(A):
    sk.atomic_add(A.ptr.to(sk.int32) + block("x"), 1)
    sk.atomic_add(A + 1, 1)


@fault("MISALIGNED_ACCESS", "of `words`", (1, 32), {"out": np.zeros(1, np.int64)}, also=["WARP_RACE"])
def wide_count_in_narrow_words(out):
    words = sk.alloc_shared((3,), sk.int32)
    i = thread("x")
    if i < 3:
        words[i] = 0
    sk.syncwarp()
    sk.atomic_add((words.ptr + 1).to(sk.int64), 1)
    sk.syncwarp()
    if i == 0:
        out[0] = words[1]
