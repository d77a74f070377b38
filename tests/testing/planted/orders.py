"""Messages between threads by accesses with an order: too weak ones, too near a scope, and a barrier left out."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import block, clean, fault, ints, thread

DATA, FLAG, OUT = {"data": ints(1)}, {"flag": ints(1)}, {"out": ints(1)}
MESSAGE = {**DATA, **FLAG, **OUT}
BLOCKS = {"data": ints(64), "flag": ints(1), "out": ints(64)}


# -- from one thread to one of another block --------------------------------------------------------------------------


@fault("GRID_RACE", "`data`", (2, 1), MESSAGE)
def message_whose_flag_is_stored_relaxed(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(flag.ptr, 1, order="relaxed")
    else:
        while sk.load(flag.ptr, order="acquire") == 0:
            pass
        out[0] = data[0]


@fault("GRID_RACE", "`data`", (2, 1), MESSAGE)
def message_whose_flag_is_loaded_relaxed(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(flag.ptr, 1, order="release")
    else:
        while sk.load(flag.ptr, order="relaxed") == 0:
            pass
        out[0] = data[0]


@fault("GRID_RACE", "`flag`", (2, 1), MESSAGE)
def message_whose_sender_means_its_block(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(flag.ptr, 1, order="release", scope="block")
    else:
        while sk.load(flag.ptr, order="acquire") == 0:
            pass
        out[0] = data[0]


@fault("GRID_RACE", "`flag`", (2, 1), MESSAGE)
def message_whose_receiver_means_its_block(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(flag.ptr, 1, order="release")
    else:
        while sk.load(flag.ptr, order="acquire", scope="block") == 0:
            pass
        out[0] = data[0]


@fault("GRID_RACE", "`data`", (2, 1), MESSAGE)
def message_that_is_sent_before_its_data(data, flag, out):
    if block("x") == 0:
        sk.store(flag.ptr, 1, order="release")
        data[0] = 42
    else:
        while sk.load(flag.ptr, order="acquire") == 0:
            pass
        out[0] = data[0]


@fault("GRID_RACE", "`data`", (2, 1), MESSAGE)
def message_that_a_relaxed_store_overwrites(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(flag.ptr, 1, order="release")
        sk.store(flag.ptr, 2, order="relaxed")
    else:
        while sk.load(flag.ptr, order="acquire") < 2:
            pass
        out[0] = data[0]


@fault("GRID_RACE", "`data`", (2, 1), MESSAGE)
def message_behind_a_fence_of_the_block(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.fence(scope="block")
        sk.store(flag.ptr, 1, order="relaxed")
    else:
        while sk.load(flag.ptr, order="relaxed") == 0:
            pass
        sk.fence()
        out[0] = data[0]


@clean((2, 1), MESSAGE)
def a_message(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(flag.ptr, 1, order="release")
    else:
        while sk.load(flag.ptr, order="acquire") == 0:
            pass
        out[0] = data[0]


@clean((2, 1), MESSAGE)
def a_message_for_the_system(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(flag.ptr, 1, order="seq_cst", scope="sys")
    else:
        while sk.load(flag.ptr, order="acquire", scope="gpu") == 0:
            pass
        out[0] = data[0]


@clean((2, 1), MESSAGE)
def a_message_by_fences_and_relaxed_accesses(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.fence()
        sk.store(flag.ptr, 1, order="relaxed")
    else:
        while sk.load(flag.ptr, order="relaxed") == 0:
            pass
        sk.fence()
        out[0] = data[0]


@clean((2, 1), MESSAGE)
def a_message_in_a_chain(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(flag.ptr, 1, order="release")
        sk.atomic_add(flag, 1)
    else:
        while sk.load(flag.ptr, order="acquire") < 2:
            pass
        out[0] = data[0]


@clean((3, 1), {"data": ints(1), "first": ints(1), "second": ints(1), "out": ints(1)})
def a_message_that_is_passed_on_in_order(data, first, second, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(first.ptr, 1, order="release")
    elif block("x") == 1:
        while sk.load(first.ptr, order="acquire") == 0:
            pass
        sk.store(second.ptr, 1, order="release")
    else:
        while sk.load(second.ptr, order="acquire") == 0:
            pass
        out[0] = data[0]


@fault("GRID_RACE", "`data`", (3, 1), {"data": ints(1), "first": ints(1), "second": ints(1), "out": ints(1)})
def message_that_is_passed_on_unread(data, first, second, out):
    if block("x") == 0:
        data[0] = 42
        sk.store(first.ptr, 1, order="release")
    elif block("x") == 1:
        while sk.load(first.ptr, order="relaxed") == 0:
            pass
        sk.store(second.ptr, 1, order="release")
    else:
        while sk.load(second.ptr, order="acquire") == 0:
            pass
        out[0] = data[0]


# -- tickets and locks ------------------------------------------------------------------------------------------------


@fault("GRID_RACE", "`part`", (4, 1), {"part": ints(4), "ticket": ints(1), "out": ints(1)})
def last_block_that_only_releases(part, ticket, out):
    part[block("x")] = 1
    if sk.atomic_add(ticket, 1, order="release") == 3:
        for i in range(4):
            out[0] += part[i]


@fault("GRID_RACE", "`part`", (4, 1), {"part": ints(4), "ticket": ints(1), "out": ints(1)})
def last_block_that_only_acquires(part, ticket, out):
    part[block("x")] = 1
    if sk.atomic_add(ticket, 1, order="acquire") == 3:
        for i in range(4):
            out[0] += part[i]


@clean((4, 1), {"part": ints(4), "ticket": ints(1), "out": ints(1)})
def a_last_block(part, ticket, out):
    part[block("x")] = 1
    if sk.atomic_add(ticket, 1, order="acq_rel") == 3:
        for i in range(4):
            out[0] += part[i]
        ticket[0] = 0


@fault("GRID_RACE", "`total`", (4, 1), {"lock": ints(1), "total": ints(1)})
def lock_that_is_given_back_relaxed(lock, total):
    while sk.atomic_cas(lock, 0, 1, order="acquire") != 0:
        pass
    total[0] += 1
    sk.store(lock.ptr, 0, order="relaxed")


@fault("GRID_RACE", "`total`", (4, 1), {"lock": ints(1), "total": ints(1)})
def lock_that_is_taken_relaxed(lock, total):
    while sk.atomic_cas(lock, 0, 1) != 0:
        pass
    total[0] += 1
    sk.store(lock.ptr, 0, order="release")


@clean((4, 1), {"lock": ints(1), "total": ints(1)})
def a_lock(lock, total):
    while sk.atomic_cas(lock, 0, 1, order="acquire") != 0:
        pass
    total[0] += 1
    sk.store(lock.ptr, 0, order="release")


@fault("GRID_RACE", "`count`", (4, 1), {"count": ints(1)})
def count_of_a_scope_that_leaves_blocks_out(count):
    sk.atomic_add(count, 1, scope="block")


@clean((4, 64), {"counts": ints(4)})
def a_count_of_each_block(counts):
    sk.atomic_add(counts + block("x"), 1, scope="block")


# -- whole blocks -----------------------------------------------------------------------------------------------------


@fault("GRID_RACE", "`data`", (2, 64), BLOCKS)
def thread_that_releases_for_a_block_that_goes_on(data, flag, out):
    i = thread("x")
    if block("x") == 0:
        data[i] = i
        if i == 0:
            sk.store(flag.ptr, 1, order="release")
    else:
        if i == 0:
            while sk.load(flag.ptr, order="acquire") == 0:
                pass
        sk.syncthreads()
        out[i] = data[i]


@fault("GRID_RACE", "`data`", (2, 64), BLOCKS)
def thread_that_acquires_for_a_block_that_goes_on(data, flag, out):
    i = thread("x")
    if block("x") == 0:
        data[i] = i
        sk.syncthreads()
        if i == 0:
            sk.store(flag.ptr, 1, order="release")
    else:
        if i == 0:
            while sk.load(flag.ptr, order="acquire") == 0:
                pass
        out[i] = data[i]


@clean((2, 64), BLOCKS)
def a_thread_that_speaks_for_its_block(data, flag, out):
    i = thread("x")
    if block("x") == 0:
        data[i] = i
        sk.syncthreads()
        if i == 0:
            sk.store(flag.ptr, 1, order="release")
    else:
        if i == 0:
            while sk.load(flag.ptr, order="acquire") == 0:
                pass
        sk.syncthreads()
        out[i] = data[i]


@fault("BLOCK_RACE", "`s`", (1, 64), {"out": ints(1)})
def warp_that_is_told_relaxed(out):
    s = sk.alloc_shared(1, sk.int32)
    flag = sk.alloc_shared(1, sk.int32)
    if thread("x") == 0:
        sk.store(flag.ptr, 0, order="relaxed")
    sk.syncthreads()
    if thread("x") == 0:
        s[0] = 1
        sk.store(flag.ptr, 1, order="relaxed", scope="block")
    elif thread("x") == 32:
        while sk.load(flag.ptr, order="acquire", scope="block") == 0:
            pass
        out[0] = s[0]


@clean((1, 64), {"out": ints(1)})
def a_warp_that_is_told(out):
    s = sk.alloc_shared(1, sk.int32)
    flag = sk.alloc_shared(1, sk.int32)
    if thread("x") == 0:
        sk.store(flag.ptr, 0, order="relaxed")
    sk.syncthreads()
    if thread("x") == 0:
        s[0] = 1
        sk.store(flag.ptr, 1, order="release", scope="block")
    elif thread("x") == 32:
        while sk.load(flag.ptr, order="acquire", scope="block") == 0:
            pass
        out[0] = s[0]


# -- block by block ---------------------------------------------------------------------------------------------------


@fault("GRID_RACE", "`sums`", (4,), {"sums": ints(4), "ready": ints(4), "out": ints(4 * 64)})
def look_back_by_relaxed_flags(sums, ready, out):
    i, me = sk.arange(0, 64), sk.program_id(0)
    total = sk.reduce_sum(i + me)
    before = sk.int32(0)
    if me > 0:
        while sk.load(ready + me - 1, order="relaxed") == 0:
            pass
        before = sk.load(sums + me - 1)
    sk.store(sums + me, before + total)
    sk.store(ready + me, 1, order="relaxed")
    sk.store(out + me * 64 + i, before + i)


@clean((4,), {"sums": ints(4), "ready": ints(4), "out": ints(4 * 64)})
def a_look_back(sums, ready, out):
    i, me = sk.arange(0, 64), sk.program_id(0)
    total = sk.reduce_sum(i + me)
    before = sk.int32(0)
    if me > 0:
        while sk.load(ready + me - 1, order="acquire") == 0:
            pass
        before = sk.load(sums + me - 1)
    sk.store(sums + me, before + total)
    sk.store(ready + me, 1, order="release")
    sk.store(out + me * 64 + i, before + i)


@clean((2,), BLOCKS)
def a_program_that_hands_over_a_tile(data, flag, out):
    i = sk.arange(0, 64)
    if sk.program_id(0) == 0:
        sk.store(data + i, i)
        sk.store(flag, 1, order="release")
    else:
        while sk.load(flag, order="acquire") == 0:
            pass
        sk.store(out + i, sk.load(data + 63 - i))


@clean((2,), BLOCKS)
def a_program_that_hands_over_a_tile_behind_fences(data, flag, out):
    i = sk.arange(0, 64)
    if sk.program_id(0) == 0:
        sk.store(data + i, i)
        sk.fence()
        sk.atomic_exchange(flag, 1)
    else:
        while sk.atomic_add(flag, 0) == 0:
            pass
        sk.fence()
        sk.store(out + i, sk.load(data + 63 - i))


@clean((4,), {"data": np.arange(64, dtype=np.int32), "ticket": ints(1), "out": ints(1)})
def a_last_program_that_adds_up(data, ticket, out):
    i = sk.arange(0, 16)
    sk.store(data + sk.program_id(0) * 16 + i, i)
    if sk.atomic_add(ticket, 1, order="acq_rel") == 3:
        every = sk.arange(0, 64)
        sk.store(out, sk.reduce_sum(sk.load(data + every)))
