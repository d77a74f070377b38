"""Planted faults: small kernels, each with one mistake, beside the finding that the sanitizer must give.

The kernels are written as their users would write them, one for each kind of fault and each construct that it hides in. The
expected finding is the id of a diagnostic and a fragment of its text. Look-alikes without the mistake must give none.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import stagekit as sk

thread, block = sk.cuda.thread_idx, sk.cuda.block_idx

FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Planted:
    """A kernel with its launch, the id that it must give (None for a look-alike) and a fragment of the text."""

    kernel: Any
    id: str | None
    fragment: str
    brackets: Any
    arguments: dict[str, Any]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)


CASES: list[Planted] = []


def fault(
    id: str, fragment: str, brackets: Any, arguments: dict[str, Any], **options: Any
) -> Callable[[Callable[..., None]], Any]:
    """Register a kernel with a mistake. options: of `sk.sanitize`."""

    def register(function: Callable[..., None]) -> Any:
        kernel = sk.jit(function)
        CASES.append(Planted(kernel, id, fragment, brackets, arguments, options))
        return kernel

    return register


def clean(brackets: Any, arguments: dict[str, Any], **options: Any) -> Callable[[Callable[..., None]], Any]:
    """Register a look-alike without the mistake."""

    def register(function: Callable[..., None]) -> Any:
        kernel = sk.jit(function)
        CASES.append(Planted(kernel, None, "", brackets, arguments, options))
        return kernel

    return register


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def ints(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


# -- outside an array: global memory ----------------------------------------------------------------------------------


@fault("OUT_OF_BOUNDS", "reads element 60 of `A`, which has 60 elements", (1, 64), {"A": zeros(60), "out": zeros(64)})
def read_past_the_end(A, out):
    i = thread("x")
    out[i] = A[i]


@fault("OUT_OF_BOUNDS", "writes element 60 of `out`, which has 60 elements of float32", (1, 64), {"out": zeros(60)})
def write_past_the_end(out):
    out[thread("x")] = 1.0


@clean((1, 64), {"A": zeros(60), "out": zeros(60), "n": 60})
def a_guarded_access(A, out, n):
    i = thread("x")
    if i < n:
        out[i] = A[i]


@fault("OUT_OF_BOUNDS", "reads element -1 of `A`", (1, 64), {"A": zeros(64), "out": zeros(64)})
def negative_index_of_a_neighbour(A, out):
    i = thread("x")
    out[i] = A[i] - A[i - 1]


@fault("OUT_OF_BOUNDS", "updates element 4 of `bins`", (1, 32), {"bins": ints(4)})
def atomic_past_the_end(bins):
    sk.atomic_add(bins + thread("x") % 5, 1)


@fault("OUT_OF_BOUNDS", "updates element 7 of `slots`", (1, 1), {"slots": ints(7)})
def compare_and_swap_past_the_end(slots):
    sk.atomic_cas(slots + len(slots), 0, 1)


@fault("OUT_OF_BOUNDS", "reads element 100 of `A`", 4, {"A": zeros(100), "out": zeros(100), "n": 100, "BLOCK": 32})
def tile_load_without_mask(A, out, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(A + i), mask=i < n)


@fault("OUT_OF_BOUNDS", "writes element 100 of `out`", 4, {"A": zeros(100), "out": zeros(100), "n": 100, "BLOCK": 32})
def tile_store_with_a_mask_off_by_one(A, out, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(A + i, mask=i < n), mask=i <= n)


@clean(4, {"A": zeros(100), "out": zeros(100), "n": 100, "BLOCK": 32}, outputs=["out"])
def a_masked_tile(A, out, n, BLOCK: sk.constexpr):
    i = sk.program_id(0) * BLOCK + sk.arange(0, BLOCK)
    sk.store(out + i, sk.load(A + i, mask=i < n), mask=i < n)


@fault("OUT_OF_BOUNDS", "reads element 12 of `A`", (3, 4), {"A": zeros(12), "out": zeros(12), "width": 5})
def rows_of_the_wrong_width(A, out, width):
    row, column = block("x"), thread("x")
    out[row * 4 + column] = A[row * width + column]


@fault("OUT_OF_BOUNDS", "reads element 10 of `A`", (1, 1), {"A": zeros(10), "out": zeros(1), "n": 10})
def loop_that_runs_once_too_often(A, out, n):
    total = sk.float32(0)
    for i in range(n + 1):
        total += A[i]
    out[0] = total


@fault("OUT_OF_BOUNDS", "reads element 8 of `A`", (1, 1), {"A": zeros(8), "out": ints(1)})
def search_that_finds_nothing(A, out):
    i = 0
    while A[i] == 0:
        i += 1
    out[0] = i


@fault("OUT_OF_BOUNDS", "writes element 70 of `out`", (1, 64), {"out": zeros(64)})
def wrong_index_on_one_side_of_a_branch(out):
    i = thread("x")
    if i < 60:
        out[i] = 1.0
    else:
        out[i + 10] = 2.0


def smoothed(A, i):
    return (A[i - 1] + A[i] + A[i + 1]) / 3


@fault("OUT_OF_BOUNDS", "`smoothed` inlined at", (1, 32), {"A": zeros(33), "out": zeros(32)})
def neighbour_in_a_helper(A, out):
    i = thread("x")
    out[i] = smoothed(A, i)


@fault("OUT_OF_BOUNDS", "in unrolled iteration k = 3", (1, 8), {"A": zeros(10), "out": zeros(8)})
def last_iteration_of_an_unrolled_loop(A, out):
    i = thread("x")
    total = sk.float32(0)
    for k in sk.static_range(4):
        total += A[i + k]
    out[i] = total


@fault("OUT_OF_BOUNDS", "`A`, which has 9 elements", (1, 10), {"A": zeros(10)[1:10], "out": zeros(10)})
def read_past_a_view_inside_its_buffer(A, out):
    """There is memory behind the view, which belongs to somebody else."""
    i = thread("x")
    out[i] = A[i]


@fault("OUT_OF_BOUNDS", "reads element 10 of `A`", (1, 6), {"A": zeros(10)[::2], "out": zeros(6)})
def read_past_a_strided_view(A, out):
    i = thread("x")
    out[i] = A[i]


@fault("OUT_OF_BOUNDS", "reads element 32 of `A`", (1, 32), {"A": zeros(32), "out": zeros(32)})
def slice_that_is_shorter_than_the_array(A, out):
    i = thread("x")
    out[i] = A[1:][i]


@fault("OUT_OF_BOUNDS", "reads element 30 of `A`", (1, 32), {"A": zeros(30), "out": zeros(32), "n": 30})
def where_reads_both_sides(A, out, n):
    i = thread("x")
    out[i] = sk.where(i < n, A[i], 0.0)


@clean((1, 32), {"A": zeros(30), "out": zeros(32), "n": 30})
def a_ternary_reads_one_side(A, out, n):
    i = thread("x")
    out[i] = A[i] if i < n else 0.0


@fault("OUT_OF_BOUNDS", "block (4, 0, 0)", (5, 16), {"out": zeros(64)})
def one_block_too_many(out):
    out[block("x") * 16 + thread("x")] = 1.0


@fault("OUT_OF_BOUNDS", "writes element 40 of `out`", (1, (4, 5)), {"out": zeros(8, 4)})
def row_and_column_exchanged(out):
    i, j = thread("x"), thread("y")
    out[i * 5 + j, 0] = 1.0


@fault("OUT_OF_BOUNDS", "writes element 5 of `B`", (1, 5), {"A": zeros(6)[:5], "B": zeros(5)})
def scatter_by_a_wrong_permutation(A, B):
    i = thread("x")
    B[5 - i] = A[i]


@fault(
    "OUT_OF_BOUNDS", "reads element 7 of `table`", (1, 4), {"table": zeros(4), "keys": np.array([0, 3, 7, 1], np.int32)}
)
def gather_by_keys_that_are_not_checked(table, keys):
    i = thread("x")
    keys[i] = table[keys[i]]


@fault("MISALIGNED", "`A`", (1, 8), {"A": np.zeros(33, np.uint8)[1:].view(np.float32)})
def array_at_an_odd_address(A):
    A[thread("x")] = 1.0


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


@fault("READ_ONLY_OUTPUT", "`A`", (1, 8), {"A": read_only(zeros(8))})
def write_to_a_read_only_array(A):
    A[thread("x")] = 1.0


# -- outside an array: shared and local memory ------------------------------------------------------------------------


@fault("OUT_OF_BOUNDS", "writes element 32 of `tile`, which has 32 elements of float32 (shared memory)", (1, 33), {})
def block_larger_than_its_shared_array():
    tile = sk.alloc_shared((32,), sk.float32)
    tile[thread("x")] = 1.0


@fault("OUT_OF_BOUNDS", "writes element -1 of `second`", (1, 32), {})
def shared_array_before_its_start(out=None):
    """The array in front of it does not make it right."""
    first = sk.alloc_shared((32,), sk.float32)
    second = sk.alloc_shared((32,), sk.float32)
    i = thread("x")
    first[i] = 1.0
    second[i - 1] = 1.0


@fault("OUT_OF_BOUNDS", "writes element 16 of `buffer`, which has 16 elements", sk.cuda.LaunchConfig(1, 32, 64), {})
def launch_with_too_few_shared_bytes():
    buffer = sk.dynamic_shared(sk.float32)
    sk.store(buffer + thread("x"), 1.0)


@fault("OUT_OF_BOUNDS", "reads element 64 of `tile`", (1, 32), {"out": zeros(32)})
def halo_that_the_shared_array_does_not_have(out):
    tile = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    tile[i], tile[i + 32] = 1.0, 2.0
    sk.syncthreads()
    out[i] = tile[i + 33]


@fault("OUT_OF_BOUNDS", "of `mine`, which has 4 elements of int32 (local memory)", (1, 8), {"out": ints(8)})
def local_array_indexed_by_thread(out):
    mine = sk.alloc_local((4,), sk.int32)
    i = thread("x")
    mine[i] = 1
    out[i] = 0


@fault("OUT_OF_BOUNDS", "writes element -1 of `stack`", (1, 1), {"n": 3})
def stack_that_is_popped_too_often(n):
    stack = sk.alloc_local((4,), sk.int32)
    top = 2
    for _ in range(n + 1):
        stack[top] = 0
        top -= 1


# -- races in shared memory -------------------------------------------------------------------------------------------


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


@fault("BLOCK_RACE", "of `tile`", (1, 128), {"A": zeros(128), "out": zeros(1)})
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


# -- races in global memory -------------------------------------------------------------------------------------------


@fault("GRID_RACE", "writes element 0 of `out`", (2, 32), {"out": ints(32)})
def blocks_that_write_the_same_elements(out):
    out[thread("x")] = block("x")


@fault("GRID_RACE", "of `A` (global memory)", (4, 32), {"A": zeros(128)})
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


@fault("GRID_RACE", "element 0 of `bins`", (2, 32), {"bins": ints(8)})
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


# -- barriers ---------------------------------------------------------------------------------------------------------


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


@fault("DIVERGENT_BARRIER", "threads of the block are here", (1, 64), {"A": np.arange(64, dtype=np.int32)})
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


@fault("DIVERGENT_BARRIER", "33 of the 64 threads", (1, 64), {"A": zeros(64), "out": zeros(64)})
def block_reduction_under_a_condition(A, out):
    """The barrier is in the library."""
    i = thread("x")
    if i < 33:
        out[i] = sk.block_reduce(A[i], sk.maximum, 0.0, 64)


# -- warps ------------------------------------------------------------------------------------------------------------


@fault("LANE_NOT_HERE", "the mask 0xffffffff names lanes 0xffff0000, which do not run this", (1, 32), {"out": ints(32)})
def shuffle_in_a_branch_with_a_full_mask(out):
    i = thread("x")
    if i < 16:
        out[i] = sk.shfl_xor_sync(FULL, sk.int32(i), 1)
    out[i] += 1


@fault("ABSENT_LANE_READ", "lane 0 reads lane 16, which does not take part", (1, 32), {"out": ints(32)})
def shuffle_from_the_other_branch(out):
    i = thread("x")
    if i < 16:
        out[i] = sk.shfl_xor_sync(0xFFFF, sk.int32(i), 16)


@fault(
    "ABSENT_LANE_READ",
    "lane 12 reads lane 20, which does not exist in a block of 20 threads",
    (1, 20),
    {"out": ints(20)},
)
def shuffle_from_a_lane_that_does_not_exist(out):
    i = thread("x")
    out[i] = sk.shfl_down_sync(FULL, sk.int32(i), 8)


@clean((1, 20), {"out": ints(20)})
def a_shuffle_whose_absent_lanes_do_not_count(out):
    i = thread("x")
    moved = sk.shfl_down_sync((1 << 20) - 1, sk.int32(i), 8)
    out[i] = sk.where(i < 12, moved, -1)


@fault("ABSENT_LANE_READ", "reads lane 20", (1, 20), {"out": ints(20)})
def warp_total_of_a_partial_warp(out):
    i = thread("x")
    value = sk.int32(1)
    for step in (16, 8, 4, 2, 1):
        value += sk.shfl_xor_sync(FULL, value, step)
    out[i] = value


@fault("LANE_OUTSIDE_MASK", "lane 16 is not in its mask 0x0000ffff", (1, 32), {"out": ints(32)})
def vote_by_a_lane_outside_its_mask(out):
    i = thread("x")
    out[i] = sk.ballot_sync(0xFFFF, i < 5).to(sk.int32)


@fault("LANE_NOT_HERE", "names lanes 0xfffffff8", (1, 32), {"out": ints(32)})
def syncwarp_in_a_branch(out):
    i = thread("x")
    if i < 3:
        sk.syncwarp()
    out[i] = i


@fault("LANE_NOT_HERE", "names lanes", (1, 32), {"out": ints(32)})
def vote_in_a_loop_of_different_lengths(out):
    i = thread("x")
    count = 0
    for _ in range(i % 4 + 1):
        count += sk.any_sync(FULL, i > 3)
    out[i] = count


@fault("LANE_NOT_HERE", "names lanes 0xaaaaaaaa", (1, 32), {"out": ints(32)})
def reduction_over_lanes_that_are_elsewhere(out):
    i = thread("x")
    if i % 2 == 0:
        out[i] = sk.redux_sync_add(FULL, sk.int32(i))
    out[i] += 1


@clean((1, 32), {"out": ints(32)})
def a_reduction_over_the_lanes_that_are_here(out):
    i = thread("x")
    if i % 2 == 0:
        out[i] = sk.redux_sync_add(0x55555555, sk.int32(i))


@fault("ABSENT_LANE_READ", "lane 0 reads lane 31", (1, 32), {"out": ints(32)})
def broadcast_from_a_lane_outside_the_mask(out):
    i = thread("x")
    if i < 8:
        out[i] = sk.shfl_sync(0xFF, sk.int32(i), 31)


@fault("LANE_NOT_HERE", "do not run this", (1, 32), {"out": ints(32)})
def match_in_one_arm(out):
    i = thread("x")
    if i < 20:
        out[i] = sk.match_any_sync(FULL, sk.int32(i % 3)).to(sk.int32)
    else:
        out[i] = 0
    out[i] += 1


# -- memory that nothing wrote ----------------------------------------------------------------------------------------


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


# -- numbers ----------------------------------------------------------------------------------------------------------


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "row": 319, "stride": 7864320})
def index_that_wraps_in_a_product(A, row, stride):
    A[row * stride] = 1.0


@clean((1, 1), {"A": zeros(4), "row": np.int64(319), "stride": np.int64(7864320)})
def an_index_in_64_bits(A, row, stride):
    if row * stride < 4:
        A[row * stride] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "start": 2**31 - 1, "step": 2})
def index_that_wraps_in_a_sum(A, start, step):
    A[start + step] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "start": -(2**31), "step": 2})
def index_that_wraps_in_a_difference(A, start, step):
    A[start - step] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "far": np.int64(2**32 + 1)})
def index_cut_to_32_bits(A, far):
    A[far.to(sk.int32)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit", (1, 1), {"A": zeros(4), "n": np.int64(2**32)})
def index_that_wraps_in_64_bits(A, n):
    A[n * n] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int8", (1, 20), {"A": zeros(256), "step": np.int8(10)})
def index_in_a_narrow_dtype(A, step):
    A[thread("x").to(sk.int8) * step + step] = 1.0


@fault("DIVISION_BY_ZERO", "// 0 gives 0 here", (1, 8), {"out": ints(8)})
def floor_division_by_a_thread_number(out):
    i = thread("x")
    out[i] = 60 // i


@fault("DIVISION_BY_ZERO", "% 0 gives 0 here", (1, 1), {"out": ints(1), "n": 0})
def remainder_by_an_argument(out, n):
    out[0] = 7 % n


@fault("DIVISION_BY_ZERO", "0 gives 0 here", (1, 1), {"out": ints(2), "n": 0})
def divmod_by_an_argument(out, n):
    out[0], out[1] = divmod(7, n)


@clean((1, 8), {"out": ints(8)})
def a_division_behind_its_guard(out):
    i = thread("x")
    out[i] = 60 // i if i != 0 else 0
    if i > 0 and 60 % i == 0:
        out[i] += 1


@fault("SHIFT_OUT_OF_RANGE", "shift of int32 by 32", (1, 1), {"out": ints(1), "n": 32})
def shift_by_the_width(out, n):
    out[0] = sk.int32(1) << n


@fault("SHIFT_OUT_OF_RANGE", "shift of int32 by -1", (1, 1), {"out": ints(1), "n": -1})
def shift_by_a_negative_amount(out, n):
    out[0] = sk.int32(8) >> n


@fault("SHIFT_OUT_OF_RANGE", "shift of uint8 by", (1, 16), {"out": zeros(16, dtype=np.uint8)})
def shift_of_a_narrow_dtype(out):
    i = thread("x").to(sk.uint8)
    out[thread("x")] = sk.uint8(1) << i


@fault("NAN_PRODUCED", "is NaN", (1, 1), {"out": zeros(1), "x": 0.0})
def zero_by_zero(out, x):
    out[0] = x / x


@fault("NAN_PRODUCED", "is NaN", (1, 1), {"out": zeros(1), "x": math.inf})
def difference_of_infinities(out, x):
    out[0] = x - x


@fault("NAN_PRODUCED", "is NaN", (1, 1), {"out": zeros(1), "x": math.inf})
def infinity_times_zero(out, x):
    out[0] = x * 0.0


@fault("NAN_PRODUCED", "sqrt of", (1, 4), {"out": zeros(4)})
def root_of_a_negative_number(out):
    i = thread("x")
    out[i] = math.sqrt(1.5 - i)


@fault("NAN_PRODUCED", "log of", (1, 1), {"out": zeros(1), "x": -1.0})
def logarithm_of_a_negative_number(out, x):
    out[0] = sk.log(x)


@fault("NAN_PRODUCED", "is NaN", 1, {"A": np.full(8, -np.inf, np.float32), "BLOCK": 8})
def softmax_of_a_masked_row(A, BLOCK: sk.constexpr):
    """Every element is -inf: the largest is, too, and -inf - -inf is NaN."""
    i = sk.arange(0, BLOCK)
    x = sk.load(A + i)
    e = sk.exp(x - sk.reduce_max(x))
    sk.store(A + i, e / sk.reduce_sum(e))


@clean((1, 4), {"A": np.full(4, np.nan, np.float32)})
def nan_that_was_there_before(A):
    i = thread("x")
    A[i] = sk.exp(A[i] + 1.0)


# -- waiting in vain --------------------------------------------------------------------------------------------------


@fault("NO_PROGRESS", "waits for memory that nobody will change", (2, 1), {"flag": ints(1)})
def flag_that_is_set_behind_the_wait(flag):
    while sk.atomic_add(flag, 0) == 0:
        pass
    sk.atomic_exchange(flag, 1)


@fault("NO_PROGRESS", "", (1, 32), {"lock": ints(1)})
def lock_between_lanes_of_a_warp(lock):
    while sk.atomic_cas(lock, 0, 1) != 0:
        pass
    sk.atomic_exchange(lock, 0)


@clean((3, 1), {"turn": ints(1), "out": ints(3)}, outputs=["out"])
def blocks_in_turn(turn, out):
    while sk.atomic_add(turn, 0) != block("x"):
        pass
    sk.threadfence()
    out[block("x")] = block("x")
    sk.threadfence()
    sk.atomic_add(turn, 1)


@fault("NO_PROGRESS", "rounds", (1, 1), {"out": ints(1), "n": 1}, max_iterations=1000)
def loop_that_never_ends(out, n):
    while n > 0:
        out[0] = n


# -- the table --------------------------------------------------------------------------------------------------------


def findings_of(case: Planted) -> list[tuple[str, str]]:
    """Id and text of everything that a launch gives: findings, or the refusal."""
    watch = sk.sanitize(case.kernel, collect=True, seed=case.options.get("seed", 1), **_without_seed(case.options))
    arguments = {
        n: v if not isinstance(v, np.ndarray) or not v.flags.writeable else _own(v) for n, v in case.arguments.items()
    }
    try:
        watch[case.brackets](**arguments)
    except sk.StagekitError as refused:
        return [(refused.id, str(refused))]
    return [(f.id, str(f)) for f in watch.report.findings]


def _without_seed(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "seed"}


def _own(array: Any) -> Any:
    """A view of the same layout in a buffer of its own: a case that runs twice starts from the same contents."""
    if array.base is None:
        return array.copy()
    base = array.base.copy() if array.base.base is None else array.base.base.copy()
    offset = array.ctypes.data - (array.base if array.base.base is None else array.base.base).ctypes.data
    return np.ndarray(array.shape, array.dtype, base.data, offset, array.strides)


FAULTS = [c for c in CASES if c.id]
CLEAN = [c for c in CASES if not c.id]


@pytest.mark.stagekit_unchecked
@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_a_planted_fault_is_found_where_it_is(case: Planted) -> None:
    found = findings_of(case)

    assert case.id in [id for id, _ in found]
    text = next(text for id, text in found if id == case.id)
    assert case.fragment in text
    assert case.name in text or case.id in REFUSED


@pytest.mark.stagekit_unchecked
@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_a_planted_fault_brings_no_other_finding(case: Planted) -> None:
    """What is reported is the fault, not what follows from it."""
    related = RELATED.get(case.name, frozenset())

    assert {case.id} == {id for id, _ in findings_of(case)} - related


REFUSED = {"MISALIGNED", "READ_ONLY_OUTPUT"}  # before anything runs: these name the array
RELATED: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("tree_without_barrier_in_the_loop", "stencil_in_place", "plain_read_beside_atomics"), frozenset({"WARP_RACE"})
    ),
    **dict.fromkeys(
        ("block_reduction_under_a_condition", "reduction_over_lanes_that_are_elsewhere"),
        frozenset({"ABSENT_LANE_READ"}),
    ),
    "barrier_in_a_while_of_different_lengths": frozenset({"BARRIER_NOT_REACHED"}),
    **dict.fromkeys((c.name for c in FAULTS if c.id == "INDEX_OVERFLOW"), frozenset({"OUT_OF_BOUNDS"})),
}
"""Findings that belong to a fault as much as the one that is expected."""


@pytest.mark.stagekit_unchecked
@pytest.mark.parametrize("order", [None, "forward", "backward", "random"], ids=str)
@pytest.mark.parametrize("case", CLEAN, ids=lambda case: case.name)
def test_a_look_alike_gives_no_finding(case: Planted, order: Any) -> None:
    case = Planted(case.kernel, None, "", case.brackets, case.arguments, {**case.options, "order": order})

    assert [] == findings_of(case)


def test_the_table_is_large_enough() -> None:
    assert len(FAULTS) >= 60
    assert len({c.id for c in FAULTS}) >= 15
    assert all(inspect.unwrap(c.kernel).__name__ == c.name for c in CASES)
