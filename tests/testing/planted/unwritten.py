"""Shared and local memory that nothing wrote, and outputs that stay as they were."""

from __future__ import annotations

import stagekit as sk

from .table import block, clean, fault, ints, thread, zeros


@fault("UNINITIALISED_READ", "`tile` (shared memory), which nothing has written", (1, 32), {"out": zeros(32)})
def shared_memory_that_is_never_written(out):
    tile = sk.alloc_shared((32,), sk.float32)
    out[thread("x")] = tile[thread("x")]


@fault("UNINITIALISED_READ", "reads element 9 of `tile`", (1, 32), {"out": zeros(32)})
def one_element_left_out(out):
    tile = sk.alloc_shared((32,), sk.float32)
    i = thread("x")
    if i != 9:
        tile[i] = 1.0
    sk.syncthreads()
    out[i] = tile[i]


@fault("UNINITIALISED_READ", "of `bins` (shared memory)", (1, 32), {"out": ints(4)})
def counts_that_do_not_start_at_zero(out):
    bins = sk.alloc_shared((4,), sk.int32)
    i = thread("x")
    sk.atomic_add(bins + i % 4, 1)
    sk.syncthreads()
    if i < 4:
        out[i] = bins[i]


@fault("UNINITIALISED_READ", "reads element 0 of `tile`", (1, 32), {"A": zeros(32), "out": zeros(32)})
def halo_that_nobody_loads(A, out):
    tile = sk.alloc_shared((34,), sk.float32)
    i = thread("x")
    tile[i + 1] = A[i]
    sk.syncthreads()
    out[i] = tile[i] + tile[i + 2]


@fault("UNINITIALISED_READ", "of `mine` (local memory)", (1, 4), {"out": zeros(4), "n": 3})
def local_sum_that_does_not_start_at_zero(out, n):
    mine = sk.alloc_local((2,), sk.float32)
    i = thread("x")
    for k in range(n):
        mine[k % 2] += 1.0
    out[i] = mine[0]


@fault("UNINITIALISED_READ", "reads element 1 of `mine`", (1, 32), {"out": ints(32)})
def local_memory_written_on_one_side_of_a_branch(out):
    mine = sk.alloc_local((2,), sk.int32)
    i = thread("x")
    mine[0] = i
    if i < 30:
        mine[1] = i
    out[i] = mine[1]


@fault("UNINITIALISED_READ", "of `buffer` (shared memory)", sk.cuda.LaunchConfig(1, 32, 128), {"out": zeros(32)})
def dynamic_shared_memory_that_is_never_written(out):
    buffer = sk.dynamic_shared(sk.float32)
    out[thread("x")] = sk.load(buffer + thread("x"))


@fault("UNINITIALISED_READ", "block (1, 0, 0)", (2, 32), {"out": zeros(64)})
def shared_memory_of_the_block_before(out):
    """Shared memory does not last from one block to the next."""
    tile = sk.alloc_shared((32,), sk.float32)
    i = thread("x")
    if block("x") == 0:
        tile[i] = 1.0
    sk.syncthreads()
    out[block("x") * 32 + i] = tile[i]


@fault("UNWRITTEN_OUTPUT", "3 of the 130 elements of `out` were never written, the first at index 127",
       (2, 64), {"out": zeros(130), "n": 127}, outputs=["out"])  # fmt: skip
def bound_smaller_than_the_array(out, n):
    i = block("x") * 64 + thread("x")
    if i < n:
        out[i] = 1.0


@fault("UNWRITTEN_OUTPUT", "4 of the 100 elements", 3, {"out": zeros(100), "n": 100, "BLOCK": 32}, outputs=["out"])
def grid_rounded_down(out, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, 1.0, mask=i < n)


@fault("UNWRITTEN_OUTPUT", "of `out`", (1, 8), {"out": zeros(8, 8)[:, ::2]}, outputs=["out"])
def every_other_column(out):
    i = thread("x")
    for j in range(0, 4, 2):
        out[i, j] = 1.0


@fault("UNWRITTEN_OUTPUT", "1 of the 32 elements", (1, 32), {"out": zeros(32)}, outputs=["out"])
def element_that_a_branch_forgets(out):
    i = thread("x")
    if i < 16:
        out[i] = 1.0
    elif i > 16:
        out[i] = 2.0


@fault("UNINITIALISED_READ", "of `out` (global memory)", (1, 64), {"A": zeros(64), "out": zeros(64)}, outputs=["out"])
def output_that_is_added_to(A, out):
    i = thread("x")
    out[i] += A[i]


@clean((1, 64), {"A": zeros(64), "out": zeros(64)}, outputs=["out"])
def an_output_that_is_read_once_it_is_there(A, out):
    i = thread("x")
    out[i] = A[i]
    out[i] += 1.0
