"""Data handed over by fences and atomics: per lane, by scope, in chains; tickets, look-back, locks and queues."""

from __future__ import annotations

import stagekit as sk

from .table import block, clean, fault, ints, thread

# -- flags ------------------------------------------------------------------------------------------------------------


def wait_for(flag, value):
    while sk.atomic_add(flag, 0) < value:
        pass


FLAG = {"data": ints(32), "flag": ints(1), "out": ints(32)}


@fault("BLOCK_RACE", "no barrier between", (1, 64), {"out": ints(32)})
def lane_that_speaks_for_its_warp(out):
    s, flag = sk.alloc_shared((32,), sk.int32), sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        flag[0] = 0
    sk.syncthreads()
    if i < 32:
        s[i] = i
        sk.threadfence_block()
        if i == 0:
            sk.atomic_exchange(flag.ptr, 1)
    else:
        wait_for(flag.ptr, 1)
        sk.threadfence_block()
        out[i - 32] = s[i - 32]


@clean((1, 64), {"out": ints(32)}, outputs=["out"])
def a_lane_that_speaks_behind_syncwarp(out):
    s, flag = sk.alloc_shared((32,), sk.int32), sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        flag[0] = 0
    sk.syncthreads()
    if i < 32:
        s[i] = i
        sk.threadfence_block()
        sk.syncwarp()
        if i == 0:
            sk.atomic_exchange(flag.ptr, 1)
    else:
        wait_for(flag.ptr, 1)
        sk.threadfence_block()
        out[i - 32] = s[i - 32]


@fault("BLOCK_RACE", "no barrier between", (1, 64), {"out": ints(32)})
def lane_that_speaks_for_half_a_warp(out):
    s, flag = sk.alloc_shared((32,), sk.int32), sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        flag[0] = 0
    sk.syncthreads()
    if i < 32:
        s[i] = i
        if i < 16:
            sk.syncwarp(0xFFFF)
        if i == 0:
            sk.threadfence_block()
            sk.atomic_exchange(flag.ptr, 1)
    else:
        wait_for(flag.ptr, 1)
        sk.threadfence_block()
        out[i - 32] = s[i - 32]


@fault("GRID_RACE", "of `data`", (2, 32), FLAG)
def lane_that_is_told_for_its_warp(data, flag, out):
    i = thread("x")
    if block("x") == 0:
        data[i] = i
        sk.syncwarp()
        if i == 0:
            sk.threadfence()
            sk.atomic_exchange(flag, 1)
    else:
        if i == 0:
            wait_for(flag, 1)
            sk.threadfence()
        out[i] = data[i]


@clean((2, 32), FLAG, outputs=["out"])
def a_lane_that_tells_its_warp(data, flag, out):
    i = thread("x")
    if block("x") == 0:
        data[i] = i
        sk.syncwarp()
        if i == 0:
            sk.threadfence()
            sk.atomic_exchange(flag, 1)
    else:
        if i == 0:
            wait_for(flag, 1)
            sk.threadfence()
        sk.syncwarp()
        out[i] = data[i]


@fault("GRID_RACE", "of `data`", (2, 32), FLAG)
def lane_that_tells_half_its_warp(data, flag, out):
    i = thread("x")
    if block("x") == 0:
        data[i] = i
        sk.syncwarp()
        if i == 0:
            sk.threadfence()
            sk.atomic_exchange(flag, 1)
    else:
        if i == 0:
            wait_for(flag, 1)
            sk.threadfence()
        if i < 16:
            sk.syncwarp(0xFFFF)
        out[i] = data[i]


@clean((2, 32), FLAG)
def a_lane_that_tells_those_who_ask(data, flag, out):
    i = thread("x")
    if block("x") == 0:
        data[i] = i
        sk.syncwarp()
        if i == 0:
            sk.threadfence()
            sk.atomic_exchange(flag, 1)
    elif i < 16:
        if i == 0:
            wait_for(flag, 1)
            sk.threadfence()
        sk.syncwarp(0xFFFF)
        out[i] = data[i]


@fault("GRID_RACE", "of `data`", (2, 1), FLAG)
def fence_in_front_of_the_data(data, flag, out):
    if block("x") == 0:
        sk.threadfence()
        data[0] = 42
        sk.atomic_exchange(flag, 1)
    else:
        wait_for(flag, 1)
        sk.threadfence()
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (2, 1), FLAG)
def fence_behind_the_flag(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.atomic_exchange(flag, 1)
        sk.threadfence()
    else:
        wait_for(flag, 1)
        sk.threadfence()
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (2, 1), FLAG)
def fence_in_front_of_the_wait(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flag, 1)
    else:
        sk.threadfence()
        wait_for(flag, 1)
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (2, 1), FLAG)
def fence_that_listens_to_its_own_block_only(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flag, 1)
    else:
        wait_for(flag, 1)
        sk.threadfence_block()
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (2, 1), {**FLAG, "other": ints(1)})
def reader_of_the_wrong_flag(data, flag, other, out):
    if block("x") == 0:
        sk.atomic_exchange(other, 1)
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flag, 1)
    else:
        wait_for(other, 1)
        sk.threadfence()
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (2, 1), FLAG)
def data_that_is_changed_behind_the_flag(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flag, 1)
        data[0] = 43
    else:
        wait_for(flag, 1)
        sk.threadfence()
        out[0] = data[0]


@fault("GRID_RACE", "of `flag`", (2, 1), FLAG)
def flag_raised_by_a_plain_store(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        flag[0] = 1
    else:
        wait_for(flag, 1)
        sk.threadfence()
        out[0] = 1


@fault("GRID_RACE", "of `data`", (2, 1), FLAG)
def update_whose_result_nobody_looks_at(data, flag, out):
    """An atomic tells a thread nothing unless it looks at the result."""
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_add(flag, 1)
    else:
        sk.atomic_add(flag, 1)
        sk.threadfence()
        out[0] = data[0]


# -- chains -----------------------------------------------------------------------------------------------------------

CHAIN = {"data": ints(1), "flags": ints(2), "out": ints(1)}


@clean((3, 1), CHAIN, outputs=["out"])
def a_message_that_is_passed_on(data, flags, out):
    b = block("x")
    if b == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flags, 1)
    elif b == 1:
        wait_for(flags, 1)
        sk.threadfence()
        sk.atomic_exchange(flags + 1, 1)
    else:
        wait_for(flags + 1, 1)
        sk.threadfence()
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (3, 1), CHAIN)
def message_that_is_passed_on_without_a_fence(data, flags, out):
    b = block("x")
    if b == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flags, 1)
    elif b == 1:
        wait_for(flags, 1)
        sk.atomic_exchange(flags + 1, 1)
    else:
        wait_for(flags + 1, 1)
        sk.threadfence()
        out[0] = data[0]


@clean((3, 1), {"data": ints(1), "count": ints(1), "out": ints(1)}, outputs=["out"])
def a_count_that_another_continues(data, count, out):
    """Who sees the 2 sees what was released with the 1: updates continue a chain."""
    b = block("x")
    if b == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_add(count, 1)
    elif b == 1:
        wait_for(count, 1)
        sk.atomic_add(count, 1)
    else:
        wait_for(count, 2)
        sk.threadfence()
        out[0] = data[0]


@fault("GRID_RACE", "of `data`", (3, 1), {"data": ints(2), "count": ints(1), "out": ints(1)})
def count_of_two_of_whom_one_has_no_fence(data, count, out):
    b = block("x")
    if b == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_add(count, 1)
    elif b == 1:
        data[1] = 43
        sk.atomic_add(count, 1)
    else:
        wait_for(count, 2)
        sk.threadfence()
        out[0] = data[0] + data[1]


@fault("GRID_RACE", "of `data`", (3, 1), {"data": ints(2), "count": ints(1), "out": ints(1)})
def reader_that_goes_on_at_the_first_of_two(data, count, out):
    b = block("x")
    if b != 1:
        data[b // 2] = 42
        sk.threadfence()
        sk.atomic_add(count, 1)
    else:
        wait_for(count, 1)
        sk.threadfence()
        out[0] = data[0] + data[1]


# -- tickets ----------------------------------------------------------------------------------------------------------

TICKET = {"part": ints(128), "ticket": ints(1), "out": ints(1)}


@clean((4, 32), TICKET, outputs=["out"])
def a_ticket_that_the_last_block_resets(part, ticket, out):
    i = thread("x")
    part[block("x") * 32 + i] = i
    sk.syncthreads()
    if i == 0:
        sk.threadfence()
        if sk.atomic_add(ticket, 1) == 3:
            sk.threadfence()
            total = 0
            for k in range(128):
                total += part[k]
            out[0] = total
            ticket[0] = 0


@clean((4, 64), {"part": ints(256), "ticket": ints(1), "out": ints(64)}, outputs=["out"])
def a_ticket_that_another_thread_resets(part, ticket, out):
    """As in CUDA's samples: the barrier behind the ticket lets the whole block go on."""
    is_last = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    part[block("x") * 64 + i] = i
    sk.threadfence()
    sk.syncthreads()
    if i == 0:
        is_last[0] = sk.atomic_add(ticket, 1) == 3
    sk.syncthreads()
    if is_last[0] == 1:
        total = 0
        for k in range(4):
            total += part[k * 64 + i]
        out[i] = total
        if i == 63:
            ticket[0] = 0


@fault("GRID_RACE", "of `ticket`", (4, 32), TICKET)
def ticket_that_the_first_block_resets(part, ticket, out):
    if thread("x") == 0:
        sk.threadfence()
        if sk.atomic_add(ticket, 1) == 0:
            ticket[0] = 0


@fault("GRID_RACE", "of `ticket`", (4, 32), TICKET)
def ticket_that_every_block_resets(part, ticket, out):
    if thread("x") == 0:
        sk.threadfence()
        if sk.atomic_add(ticket, 1) < 4:
            ticket[0] = 0


@fault("BLOCK_RACE", "of `ticket`", (4, 64), TICKET)
def ticket_that_a_thread_resets_which_knows_of_nothing(part, ticket, out):
    i = thread("x")
    if i == 0:
        sk.threadfence()
        if sk.atomic_add(ticket, 1) == 3:
            out[0] = 1
    if i == 32 and block("x") == 3:
        ticket[0] = 0


@fault("GRID_RACE", "of `ticket`", (4, 1), {"ticket": ints(1)})
def ticket_that_is_not_looked_at(ticket):
    sk.atomic_add(ticket, 1)
    if block("x") == 3:
        ticket[0] = 0


@fault("GRID_RACE", "of `part`", (4, 32), TICKET)
def ticket_whose_fence_is_in_front_of_the_parts(part, ticket, out):
    i = thread("x")
    sk.threadfence()
    part[block("x") * 32 + i] = i
    sk.syncthreads()
    if i == 0 and sk.atomic_add(ticket, 1) == 3:
        sk.threadfence()
        total = 0
        for k in range(128):
            total += part[k]
        out[0] = total


@fault("GRID_RACE", "of `part`", (4, 32), TICKET)
def ticket_of_the_second_to_last(part, ticket, out):
    i = thread("x")
    part[block("x") * 32 + i] = i
    sk.syncthreads()
    if i == 0:
        sk.threadfence()
        if sk.atomic_add(ticket, 1) == 2:
            sk.threadfence()
            total = 0
            for k in range(128):
                total += part[k]
            out[0] = total


# -- look-back --------------------------------------------------------------------------------------------------------

LOOK_BACK = {"A": ints(128), "state": ints(4), "own": ints(4), "upto": ints(4), "out": ints(128)}


@clean((4, 32), LOOK_BACK, outputs=["out"])
def a_look_back_at_sums_and_prefixes(A, state, own, upto, out):
    """State 1: the block's own sum is there; 2: that of all up to it."""
    i, b = thread("x"), block("x")
    before = sk.alloc_shared((1,), sk.int32)
    total = sk.redux_sync_add(0xFFFFFFFF, A[b * 32 + i] + 1)
    if i == 0:
        own[b] = total
        sk.threadfence()
        sk.atomic_exchange(state + b, 1)
        sum_before, k = 0, b - 1
        while k >= 0:
            seen = sk.atomic_add(state + k, 0)
            if seen == 2:
                sk.threadfence()
                sum_before += upto[k]
                k = -1
            elif seen == 1:
                sk.threadfence()
                sum_before += own[k]
                k -= 1
        upto[b] = sum_before + total
        sk.threadfence()
        sk.atomic_exchange(state + b, 2)
        before[0] = sum_before
    sk.syncthreads()
    out[b * 32 + i] = before[0] + A[b * 32 + i]


@fault("GRID_RACE", "of `own`", (4, 32), LOOK_BACK)
def look_back_at_sums_without_their_fence(A, state, own, upto, out):
    i, b = thread("x"), block("x")
    if i == 0:
        own[b] = b.to(sk.int32) + 1
        sk.atomic_exchange(state + b, 1)
        total, k = 0, b - 1
        while k >= 0:
            if sk.atomic_add(state + k, 0) == 1:
                sk.threadfence()
                total += own[k]
                k -= 1
        out[b] = total


@clean((4, 32), LOOK_BACK)
def a_look_back_by_all_lanes(A, state, own, upto, out):
    """Each lane looks at one block before."""
    i, b = thread("x"), block("x")
    if i == 0:
        own[b] = b.to(sk.int32) + 1
        sk.threadfence()
        sk.atomic_exchange(state + b, 1)
    if i < b:
        wait_for(state + i, 1)
        sk.threadfence()
        out[b * 32 + i] = own[i]


@fault("GRID_RACE", "of `own`", (4, 32), LOOK_BACK)
def look_back_by_all_lanes_with_the_fence_of_one(A, state, own, upto, out):
    i, b = thread("x"), block("x")
    if i == 0:
        own[b] = b.to(sk.int32) + 1
        sk.threadfence()
        sk.atomic_exchange(state + b, 1)
    if i < b:
        wait_for(state + i, 1)
        if i == 0:
            sk.threadfence()
        out[b * 32 + i] = own[i]


# -- locks ------------------------------------------------------------------------------------------------------------

LOCK = {"lock": ints(2), "total": ints(32)}


def take(lock):
    while sk.atomic_cas(lock, 0, 1) != 0:
        pass


@clean((3, 32), LOCK)
def a_lock_that_a_warp_takes_together(lock, total):
    i = thread("x")
    if i == 0:
        take(lock)
        sk.threadfence()
    sk.syncwarp()
    total[i] += i + block("x")
    sk.syncwarp()
    if i == 0:
        sk.threadfence()
        sk.atomic_exchange(lock, 0)


@fault("GRID_RACE", "of `total`", (3, 32), LOCK)
def lock_that_a_lane_takes_for_its_warp(lock, total):
    i = thread("x")
    if i == 0:
        take(lock)
        sk.threadfence()
    total[i] += i + block("x")
    sk.syncwarp()
    if i == 0:
        sk.threadfence()
        sk.atomic_exchange(lock, 0)


@fault("GRID_RACE", "of `total`", (3, 32), LOCK)
def lock_that_a_lane_gives_back_for_its_warp(lock, total):
    i = thread("x")
    if i == 0:
        take(lock)
        sk.threadfence()
    sk.syncwarp()
    total[i] += i + block("x")
    if i == 0:
        sk.threadfence()
        sk.atomic_exchange(lock, 0)


@fault("GRID_RACE", "of `total`", (3, 1), LOCK)
def lock_that_is_taken_without_a_fence(lock, total):
    take(lock)
    total[0] += block("x").to(sk.int32) + 1
    sk.threadfence()
    sk.atomic_exchange(lock, 0)


@fault("GRID_RACE", "of `total`", (3, 1), LOCK)
def sum_that_is_read_behind_its_lock(lock, total):
    take(lock)
    sk.threadfence()
    total[0] += block("x").to(sk.int32) + 1
    sk.threadfence()
    sk.atomic_exchange(lock, 0)
    total[1 + block("x")] = total[0]


@fault("GRID_RACE", "of `total`", (3, 1), LOCK)
def two_locks_for_one_sum(lock, total):
    mine = lock + block("x") % 2
    take(mine)
    sk.threadfence()
    total[0] += block("x").to(sk.int32) + 1
    sk.threadfence()
    sk.atomic_exchange(mine, 0)


@clean((3, 1), LOCK)
def a_lock_that_serves_in_turn(lock, total):
    mine = sk.atomic_add(lock, 1)
    while sk.atomic_add(lock + 1, 0) != mine:
        pass
    sk.threadfence()
    total[0] += mine + 1
    sk.threadfence()
    sk.atomic_add(lock + 1, 1)


@fault("GRID_RACE", "of `lock`", (3, 1), LOCK)
def lock_whose_turn_is_stored_plainly(lock, total):
    mine = sk.atomic_add(lock, 1)
    while sk.atomic_add(lock + 1, 0) != mine:
        pass
    sk.threadfence()
    total[0] += mine + 1
    sk.threadfence()
    lock[1] = mine + 1


# -- queues -----------------------------------------------------------------------------------------------------------

QUEUE = {"items": ints(16), "tail": ints(1), "head": ints(1), "out": ints(16)}


@clean((3, 1), QUEUE, outputs=["out"])
def a_queue_of_one_producer(items, tail, head, out):
    if block("x") == 0:
        for k in range(16):
            items[k] = k * 3
            sk.threadfence()
            sk.atomic_add(tail, 1)
    else:
        mine = sk.atomic_add(head, 1)
        while mine < 16:
            wait_for(tail, mine + 1)
            sk.threadfence()
            out[mine] = items[mine]
            mine = sk.atomic_add(head, 1)


@fault("GRID_RACE", "of `items`", (3, 1), QUEUE)
def queue_whose_end_moves_ahead_of_its_items(items, tail, head, out):
    if block("x") == 0:
        for k in range(16):
            sk.threadfence()
            sk.atomic_add(tail, 1)
            items[k] = k * 3
    else:
        mine = sk.atomic_add(head, 1)
        while mine < 16:
            wait_for(tail, mine + 1)
            sk.threadfence()
            out[mine] = items[mine]
            mine = sk.atomic_add(head, 1)


@fault("GRID_RACE", "of `items`", (3, 1), QUEUE)
def queue_that_is_not_asked_whether_it_is_empty(items, tail, head, out):
    if block("x") == 0:
        for k in range(16):
            items[k] = k * 3
            sk.threadfence()
            sk.atomic_add(tail, 1)
    else:
        mine = sk.atomic_add(head, 1)
        while mine < 16:
            sk.threadfence()
            out[mine] = items[mine]
            mine = sk.atomic_add(head, 1)


@clean((2, 1), {"slot": ints(1), "full": ints(1), "out": ints(8)}, outputs=["out"])
def a_slot_that_goes_to_and_fro(slot, full, out):
    if block("x") == 0:
        for k in range(8):
            while sk.atomic_add(full, 0) != 0:
                pass
            sk.threadfence()
            slot[0] = k
            sk.threadfence()
            sk.atomic_exchange(full, 1)
    else:
        for k in range(8):
            wait_for(full, 1)
            sk.threadfence()
            out[k] = slot[0]
            sk.threadfence()
            sk.atomic_exchange(full, 0)


@fault("GRID_RACE", "of `slot`", (2, 1), {"slot": ints(1), "full": ints(1), "out": ints(8)})
def slot_that_is_given_back_without_a_fence(slot, full, out):
    if block("x") == 0:
        for k in range(8):
            while sk.atomic_add(full, 0) != 0:
                pass
            sk.threadfence()
            slot[0] = k
            sk.threadfence()
            sk.atomic_exchange(full, 1)
    else:
        for k in range(8):
            wait_for(full, 1)
            sk.threadfence()
            out[k] = slot[0]
            sk.atomic_exchange(full, 0)


@clean((2, 64), {"work": ints(1), "out": ints(8)}, outputs=["out"])
def blocks_that_draw_until_nothing_is_left(work, out):
    mine = sk.alloc_shared((1,), sk.int32)
    i, go = thread("x"), True
    while go:
        sk.syncthreads()
        if i == 0:
            mine[0] = sk.atomic_add(work, 1)
        sk.syncthreads()
        go = mine[0] < 8
        if go and i == 63:
            out[mine[0]] = 1


# -- what a message is made of ----------------------------------------------------------------------------------------


@fault("GRID_RACE", "`data`", (2, 32), {"data": ints(32), "count": ints(1), "out": ints(1)})
def lane_that_writes_again_while_its_warp_releases(data, count, out):
    i = thread("x")
    if block("x") == 0:
        for turn in range(32):
            if i == turn:
                data[i] = 1
                sk.atomic_add(count, 1, order="release")
            if turn == 20 and i == 0:
                data[0] = 2
    elif i == 0:
        while sk.load(count.ptr, order="acquire") < 32:
            pass
        out[0] = data[0]


@clean((2, 32), {"data": ints(32), "count": ints(1), "out": ints(1)})
def a_warp_each_of_whose_lanes_releases(data, count, out):
    i = thread("x")
    if block("x") == 0:
        for turn in range(32):
            if i == turn:
                data[i] = 1
                sk.atomic_add(count, 1, order="release")
    elif i == 0:
        while sk.load(count.ptr, order="acquire") < 32:
            pass
        for k in range(32):
            out[0] += data[k]


@clean((2, 1), {"data": ints(1), "flag": ints(1), "out": ints(1)})
def a_receiver_that_passes_the_nearer_fence_first(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flag, 1)
    else:
        while sk.atomic_add(flag, 0) == 0:
            pass
        sk.threadfence_block()
        sk.threadfence()
        out[0] = data[0]


@clean((1, 64), {"data": ints(1), "flag": ints(1), "out": ints(1)})
def a_receiver_whose_fence_reaches_farther(data, flag, out):
    if thread("x") == 0:
        data[0] = 42
        sk.threadfence_block()
        sk.atomic_exchange(flag, 1)
    elif thread("x") == 32:
        while sk.atomic_add(flag, 0) == 0:
            pass
        sk.threadfence()
        out[0] = data[0]


@clean((1, 32), {"out": ints(32)})
def lanes_that_have_returned_count_as_arrived(out):
    s = sk.alloc_shared(32, sk.int32)
    i = thread("x")
    s[i] = i
    if i >= 16:
        return
    sk.syncwarp()
    out[i] = s[i + 16]


@fault("GRID_RACE", "`data`", (2, 1), {"data": ints(1), "flag": ints(1), "out": ints(1)})
def message_by_a_swap_that_fails(data, flag, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_cas(flag, 5, 6)
    elif sk.atomic_add(flag, 0) == 0:
        sk.threadfence()
        out[0] = data[0]


@clean((2, 1), {"data": ints(1), "flags": ints(3), "out": ints(1)})
def a_message_between_plain_stores_beside_it(data, flags, out):
    if block("x") == 0:
        data[0] = 42
        sk.threadfence()
        sk.atomic_exchange(flags + 1, 1)
        flags[0] = 1
        flags[2] = 1
    else:
        while sk.atomic_add(flags + 1, 0) == 0:
            pass
        sk.threadfence()
        out[0] = data[0]
