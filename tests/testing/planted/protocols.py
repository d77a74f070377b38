"""Whole protocols and their neighbours: barriers of the grid, queues, tiles drawn by number, transpositions, three axes."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import FULL, block, clean, fault, ints, thread, zeros


@fault("GRID_RACE", "of `out`", 4, {"A": zeros(128), "out": zeros(4), "BLOCK": 32})
def sum_of_tiles_in_one_place(A, out, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    x = sk.load(A + i)
    out[0] += sk.reduce_sum(x) + sk.program_id(0)


@clean(4, {"A": zeros(128), "out": zeros(4), "BLOCK": 32}, outputs=["out"])
def a_sum_of_each_tile(A, out, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    out[sk.program_id(0)] = sk.reduce_sum(sk.load(A + i))


@fault("BLOCK_RACE", "no barrier between", (1, 128), {"A": zeros(130)})
def row_shifted_in_place(A):
    i = sk.cuda.thread_idx("x")
    sk.store(A + i, sk.load(A + i + 1) + i)


@clean(1, {"A": zeros(130), "BLOCK": 128})
def a_tile_shifted_in_place(A, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(A + i, sk.load(A + i + 1) + i)


@fault("BLOCK_RACE", "no barrier between", 1, {"A": zeros(130), "BLOCK": 128})
def tile_shifted_by_each_thread(A, BLOCK: sk.constexpr):
    _shift_by_thread(A, sk.arange(0, BLOCK))


@sk.inline(per_thread=True)
def _shift_by_thread(A, i):
    sk.store(A + i, sk.load(A + i + 1) + i)


@clean(1, {"A": zeros(128), "B": zeros(128), "BLOCK": 128}, outputs=["B"])
def a_tile_divided_by_its_largest(A, B, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(B + i, sk.load(A + i) / (sk.reduce_max(sk.load(A + i)) + 1))


@clean(2, {"A": zeros(300), "B": zeros(300), "n": 300, "BLOCK": 256}, outputs=["B"])
def two_sums_of_one_tile(A, B, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    m = i < n
    x = sk.load(A + i, mask=m, other=-float("inf"))
    hi = sk.reduce_max(x)
    e = sk.exp(x - hi)
    s = sk.reduce_sum(e)
    t = sk.reduce_sum(e * e)
    sk.store(B + i, e / s + t, mask=m)


@fault("OUT_OF_BOUNDS", "", 2, {"A": zeros(300), "B": zeros(300), "n": 300, "BLOCK": 256})
def clamp_that_is_off_by_one(A, B, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    x = sk.load(A + sk.minimum(i, n))
    sk.store(B + i, x, mask=i < n)


@clean((2, 96), {"A": zeros(192), "out": zeros(2)}, outputs=["out"])
def two_block_reductions_in_a_row(A, out):
    i = thread("x")
    b = block("x")
    a = sk.block_reduce(A[b * 96 + i], sk.maximum, 0.0, 96)
    c = sk.block_reduce(A[b * 96 + i] - a, sk.maximum, 0.0, 96)
    if i == 0:
        out[b] = a + c


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_loop_that_the_block_leaves_together(out):
    i = thread("x")
    out[i] = 0
    k = 0
    while sk.syncthreads_or(k < i):
        k += 1
        out[i] = k


@fault("DIVERGENT_BARRIER", "", (1, 64), {"out": ints(64)})
def barrier_in_a_loop_that_threads_leave_alone(out):
    i = thread("x")
    k = 0
    while k < i:
        if sk.syncthreads_or(k < i):
            k += 1
    out[i] = k


@clean((1, 64), {"out": ints(1)}, outputs=["out"])
def a_warp_that_waits_for_another(out):
    data, flag = sk.alloc_shared((1,), sk.int32), sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        flag[0] = 0
    sk.syncthreads()
    if i == 0:
        data[0] = 42
        sk.threadfence_block()
        sk.atomic_exchange(flag.ptr, 1)
    if i == 32:
        while sk.atomic_add(flag.ptr, 0) == 0:
            pass
        sk.threadfence_block()
        out[0] = data[0]


@fault("BLOCK_RACE", "no barrier between", (1, 64), {"out": ints(1)})
def warp_that_is_told_too_early(out):
    data, flag = sk.alloc_shared((1,), sk.int32), sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        flag[0] = 0
    sk.syncthreads()
    if i == 0:
        data[0] = 42
        sk.atomic_exchange(flag.ptr, 1)
    if i == 32:
        while sk.atomic_add(flag.ptr, 0) == 0:
            pass
        sk.threadfence_block()
        out[0] = data[0]


@fault("BLOCK_RACE", "no barrier between", (1, 64), {"out": ints(1)})
def wait_for_a_plain_store(out):
    flag = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    if i == 0:
        flag[0] = 0
    sk.syncthreads()
    if i == 0:
        flag[0] = 1
    if i == 32:
        n = 0
        while flag[0] == 0 and n < 100:
            n += 1
        out[0] = n


@clean((4, 32), {"A": ints(128), "count": ints(1), "out": ints(128)}, outputs=["out"])
def a_barrier_of_the_grid(A, count, out):
    i = block("x") * 32 + thread("x")
    A[i] = i
    sk.syncthreads()
    if thread("x") == 0:
        sk.threadfence()
        sk.atomic_add(count, 1)
        while sk.atomic_add(count, 0) < 4:
            pass
        sk.threadfence()
    sk.syncthreads()
    out[i] = A[127 - i]


@fault("GRID_RACE", "of `A`", (4, 32), {"A": ints(128), "count": ints(1), "out": ints(128)})
def barrier_of_the_grid_that_only_one_waits_at(A, count, out):
    i = block("x") * 32 + thread("x")
    A[i] = i
    if thread("x") == 0:
        sk.threadfence()
        sk.atomic_add(count, 1)
        while sk.atomic_add(count, 0) < 4:
            pass
        sk.threadfence()
    sk.syncthreads()
    out[i] = A[127 - i]


@fault("GRID_RACE", "of `A`", (4, 32), {"A": ints(128), "count": ints(1), "out": ints(128)}, also=["WARP_RACE"])
def barrier_of_the_grid_that_only_one_comes_back_from(A, count, out):
    i = block("x") * 32 + thread("x")
    A[i] = i
    sk.syncthreads()
    if thread("x") == 0:
        sk.threadfence()
        sk.atomic_add(count, 1)
        while sk.atomic_add(count, 0) < 4:
            pass
        sk.threadfence()
    out[i] = A[127 - i]


@fault("BLOCK_RACE", "no barrier between", (2, 64), {"counter": ints(1), "out": ints(640)}, also=["WARP_RACE"])
def tile_number_that_is_overwritten_while_others_look(counter, out):
    tile = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    go = True
    while go:
        if i == 0:
            tile[0] = sk.atomic_add(counter, 1)
        sk.syncthreads()
        t = tile[0]
        go = t < 10
        if t < 10:
            out[t * 64 + i] = t


@clean((2, 64), {"counter": ints(1), "out": ints(640)}, outputs=["out"])
def a_tile_number_that_all_have_read(counter, out):
    tile = sk.alloc_shared((1,), sk.int32)
    i = thread("x")
    go = True
    while go:
        if i == 0:
            tile[0] = sk.atomic_add(counter, 1)
        sk.syncthreads()
        t = tile[0]
        sk.syncthreads()
        go = t < 10
        if t < 10:
            out[t * 64 + i] = t


@clean(((2, 2), (16, 16)), {"A": zeros(32, 32), "B": zeros(32, 32)}, outputs=["B"])
def a_transposition_through_shared_memory(A, B):
    t = sk.alloc_shared((16, 17), sk.float32)
    x, y = thread("x"), thread("y")
    t[y, x] = A[block("y") * 16 + y, block("x") * 16 + x]
    sk.syncthreads()
    B[block("x") * 16 + y, block("y") * 16 + x] = t[x, y]


@fault("BLOCK_RACE", "of `t`", ((2, 2), (16, 16)), {"A": zeros(32, 32), "B": zeros(32, 32)})
def transposition_without_its_barrier(A, B):
    t = sk.alloc_shared((16, 17), sk.float32)
    x, y = thread("x"), thread("y")
    t[y, x] = A[block("y") * 16 + y, block("x") * 16 + x]
    B[block("x") * 16 + y, block("y") * 16 + x] = t[x, y]


@fault(
    "OUT_OF_BOUNDS", "writes `t[0, 16]` of shape (16, 16)", ((1, 1), (16, 16)), {"A": zeros(16, 17), "B": zeros(32, 32)}
)
def column_that_the_tile_does_not_have(A, B):
    t = sk.alloc_shared((16, 16), sk.float32)
    x, y = thread("x"), thread("y")
    t[y, x + 1] = A[y, x]


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def local_arrays_that_are_private(out):
    m = sk.alloc_local((2,), sk.int32)
    i = thread("x")
    m[0] = i
    m[1] = i * 2
    sk.syncthreads()
    out[i] = m[0] + m[1]


@fault("UNINITIALISED_READ", "", (1, 64), {"out": ints(64)})
def shared_array_longer_than_the_block(out):
    s = sk.alloc_shared((100,), sk.int32)
    i = thread("x")
    s[i] = i
    sk.syncthreads()
    out[i] = s[i + 36]


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_shared_array_filled_in_strides(out):
    s = sk.alloc_shared((100,), sk.int32)
    i = thread("x")
    for k in range(i, 100, 64):
        s[k] = k
    sk.syncthreads()
    out[i] = s[i + 36]


@clean((2, 64), {"A": np.arange(128, dtype=np.int32) % 7, "bins": ints(7)})
def counts_added_once_for_each_group(A, bins):
    i = block("x") * 64 + thread("x")
    key = A[i]
    m = sk.match_any_sync(FULL, key)
    leader = sk.ffs(m) - 1
    if sk.lane_id() == leader:
        sk.atomic_add(bins + key, sk.popcount(m).to(sk.int32))


@clean((2, 64), {"A": zeros(128), "m": zeros(1)})
def a_largest_of_all(A, m):
    sk.atomic_max(m, A[block("x") * 64 + thread("x")])


@fault("GRID_RACE", "of `A`", (2, 1), {"A": np.zeros(4, np.int64)})
def atomic_on_half_of_a_number(A):
    if block("x") == 0:
        A[0] = 5
    else:
        sk.atomic_add(A.ptr.to(sk.int32) + 1, 1)


@clean((4, 32), {"found": ints(1), "A": np.arange(128, dtype=np.int32)})
def a_flag_that_any_may_raise(found, A):
    if A[block("x") * 32 + thread("x")] % 17 == 3:
        found[0] = 1


@fault("GRID_RACE", "in no order", (4, 32), {"found": ints(1), "A": np.arange(128, dtype=np.int32)})
def any_of_several_found(found, A):
    i = block("x") * 32 + thread("x")
    if A[i] % 64 == 3:
        found[0] = i


@fault("WARP_RACE", "", (1, 32), {"A": np.zeros(32, np.uint8)})
def bits_of_one_byte(A):
    i = thread("x")
    A[i // 8] = A[i // 8] | (sk.uint8(1) << (i % 8).to(sk.uint8))


@fault("OUT_OF_BOUNDS", "", ((2, 2, 2), (2, 2, 2)), {"A": zeros(4, 4, 3)})
def third_axis_that_is_too_short(A):
    x, y, z = (block(a) * 2 + thread(a) for a in "xyz")
    A[x, y, z] = 1.0


@clean(((2, 2, 2), (2, 2, 2)), {"A": zeros(4, 4, 4)}, outputs=["A"])
def a_cube_written_in_full(A):
    x, y, z = (block(a) * 2 + thread(a) for a in "xyz")
    A[x, y, z] = 1.0


@fault("UNWRITTEN_OUTPUT", "", ((2, 2, 2), (2, 2, 1)), {"A": zeros(4, 4, 4)}, outputs=["A"])
def cube_of_which_half_is_left(A):
    x, y, z = (block(a) * 2 + thread(a) for a in "xyz")
    A[x, y, z] = 1.0


@fault("OUT_OF_BOUNDS", "", (1, 1), {"A": zeros(10), "out": zeros(1)})
def pointer_that_walks_past_the_end(A, out):
    p = A.ptr
    s = sk.float32(0)
    for _ in range(4):
        s += sk.load(p)
        p = p + 3
    p = p - 1
    out[0] = s + sk.load(p)


@clean((1, 1), {"A": zeros(10), "out": zeros(1)})
def a_pointer_that_ends_past_the_end(A, out):
    p = A.ptr
    s = sk.float32(0)
    for _ in range(4):
        s += sk.load(p)
        p = p + 3
    out[0] = s


@fault("OUT_OF_BOUNDS", "`B`", (1, 8), {"A": zeros(8), "B": zeros(4), "out": zeros(8)})
def shorter_of_two_arrays(A, B, out):
    i = thread("x")
    p = A.ptr if i % 2 == 0 else B.ptr
    out[i] = sk.load(p + i)


@clean((1, 8), {"A": zeros(8), "B": zeros(4), "out": zeros(8)})
def either_of_two_arrays(A, B, out):
    i = thread("x")
    p = A.ptr + i if i >= 4 else B.ptr + i
    out[i] = sk.load(p)


@fault("INDEX_OVERFLOW", "", (1, 4), {"A": zeros(4), "n": 2**30}, also=["OUT_OF_BOUNDS"])
def index_doubled_in_a_loop(A, n):
    k = n
    for _ in range(2):
        k = k * 2
    A[k] = 1.0


@clean((1, 4), {"A": ints(4), "s": np.int32(12345)})
def numbers_that_mean_to_wrap(A, s):
    x = s
    for _ in range(4):
        x = x * 1103515245 + 12345
    A[thread("x")] = x


@clean((1, 4), {"A": ints(4), "s": np.int32(12345)})
def an_index_behind_a_remainder(A, s):
    x = s * 1103515245 + 12345
    A[x % 4] = 1


@fault("NO_PROGRESS", "", (2, 32), {"count": ints(1)})
def barrier_of_the_grid_that_waits_for_too_many(count):
    if thread("x") == 0:
        sk.atomic_add(count, 1)
        while sk.atomic_add(count, 0) < 3:
            pass


@fault("NAN_PRODUCED", "", (1, 1), {"out": zeros(1), "n": 0})
def mean_of_nothing(out, n):
    out[0] = sk.float32(0) / sk.float32(n)


@clean((1, 4), {"A": np.array([0, 1, 4, 9], np.float32)})
def a_root_that_is_thrown_away(A):
    i = thread("x")
    A[i] = sk.where(A[i] >= 1, sk.sqrt(A[i] - 1), 0.0)


@clean((1, 4), {"A": np.array([0, 1, 4, 9], np.float32)})
def a_logarithm_behind_its_guard(A):
    i = thread("x")
    if A[i] > 0:
        A[i] = sk.log(A[i])
