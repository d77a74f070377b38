"""Accesses outside an array, in all kinds of memory; of arrays that are read-only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

import stagekit as sk

from .table import block, clean, fault, ints, raw_bytes, thread, zeros

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


@fault(
    "OUT_OF_BOUNDS",
    "reads `[31]` of a view of `A` with shape (31,): axis 0 has 31",
    (1, 32),
    {"A": zeros(32), "out": zeros(32)},
)
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


@fault("OUT_OF_BOUNDS", "writes `out[10, 0]` of shape (8, 4): axis 0 has 8 elements", (1, (4, 5)), {"out": zeros(8, 4)})
def row_and_column_exchanged(out):
    i, j = thread("x"), thread("y")
    out[i * 5 + j, 0] = 1.0


@fault(
    "OUT_OF_BOUNDS",
    "reads `A[3, 64]` of shape (8, 64): axis 1 has 64",
    (8, 64),
    {"A": zeros(8, 64), "out": zeros(8, 64)},
)
def neighbour_in_the_next_row(A, out):
    """There is an element, but not the one that is meant."""
    i, j = block("x"), thread("x")
    if i == 3:
        out[i, j] = A[i, j + 1]


@fault("OUT_OF_BOUNDS", "reads `A[1, -1]` of shape (2, 8): axis 1 has 8", (1, 8), {"A": zeros(2, 8), "out": zeros(8)})
def neighbour_in_the_row_before(A, out):
    j = thread("x")
    out[j] = A[1, j - 1]


@fault("OUT_OF_BOUNDS", "writes `A[4, 0]` of shape (4, 8): axis 0 has 4", (1, 8), {"A": zeros(4, 8)})
def indices_in_the_wrong_order(A):
    i = thread("x")
    A[i, 0] = 1.0


@fault(
    "OUT_OF_BOUNDS",
    "writes `A[4, 9]` of shape (3, 8): axis 0 has 3 and axis 1 has 8",
    (1, 1),
    {"A": zeros(3, 8), "i": 4},
)
def both_indices_too_large(A, i):
    A[i, i + 5] = 1.0


@fault("OUT_OF_BOUNDS", "of a view of `A` with shape (7, 2): axis 1 has 2", (1, 4), {"A": zeros(2, 8), "out": zeros(4)})
def row_of_a_transposed_array(A, out):
    j = thread("x")
    row = A.T[1:]
    out[j] = row[0, j]


@fault("OUT_OF_BOUNDS", "reads `A[0, 4]` of shape (3, 4)", (1, 5), {"A": zeros(3, 9)[:, 1:8:2], "out": zeros(5)})
def past_the_end_of_a_strided_row(A, out):
    """Between the rows of a view there is memory that belongs to nobody here."""
    j = thread("x")
    out[j] = A[0, j]


@fault(
    "OUT_OF_BOUNDS",
    "reads `A[0, 1, 4]` of shape (2, 2, 4): axis 2 has 4",
    (1, 5),
    {"A": zeros(2, 2, 4), "out": zeros(5)},
)
def innermost_of_three_axes(A, out):
    j = thread("x")
    out[j] = A[0, 1, j]


@fault(
    "OUT_OF_BOUNDS",
    "reads `A[0, 4, :]` of shape (2, 4, 8): axis 1 has 4 elements",
    (1, 8),
    {"A": zeros(2, 4, 8), "out": zeros(8), "row": 4},
)
def row_of_the_next_plane(A, out, row):
    """A view of one row, of which there is one, but in another plane."""
    j = thread("x")
    out[j] = A[0, row][j]


@fault(
    "OUT_OF_BOUNDS",
    "reads `A[:, 9]` of shape (4, 8): axis 1 has 8",
    (1, 4),
    {"A": zeros(4, 8), "out": zeros(4), "c": 9},
)
def column_beyond_the_last(A, out, c):
    column = A[:, c]
    i = thread("x")
    if i < 3:
        out[i] = column[i]


@fault("OUT_OF_BOUNDS", "reads `A[-1, :]` of shape (4, 8)", (1, 4), {"A": zeros(4, 8), "out": zeros(4), "r": 0})
def pointer_into_the_row_before(A, out, r):
    j = thread("x")
    out[j] = sk.load(A[r - 1].ptr + (8 + j))


@clean((1, 8), {"A": zeros(2, 4, 8), "out": zeros(8), "row": 3}, outputs=["out"])
def a_view_of_a_view(A, out, row):
    j = thread("x")
    out[j] = A[1:][0][row][j] + A[:, 1:][1, row - 1][j]


@clean((2, 64), {"A": zeros(8, 64), "out": zeros(8, 64)}, outputs=["out"])
def a_stencil_that_stays_in_its_row(A, out):
    j = thread("x")
    for i in range(block("x"), 8, 2):
        left = A[i, j - 1] if j > 0 else 0.0
        right = A[i, j + 1] if j < 63 else 0.0
        out[i, j] = left + right


@clean((1, 32), {"A": zeros(4, 8), "out": zeros(32)}, outputs=["out"])
def rows_read_as_one_by_a_pointer(A, out):
    """Pointer arithmetic counts elements from the start, whatever the axes."""
    i = thread("x")
    out[i] = sk.load(A.ptr + i)


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


@fault("MISALIGNED", "`A`: expected an address that is a multiple of 64", (1, 8), {"A": np.zeros(80, np.uint8)[8:72]})
def array_that_is_not_aligned_as_declared(A: sk.Tensor((64,), sk.uint8, align=64)):
    A[thread("x")] = 1


@fault("MISALIGNED_ACCESS", "reads float32 at byte 1 of `raw`", (1, 4), {"raw": raw_bytes(17), "out": zeros(4)})
def bytes_read_as_floats_from_an_odd_place(raw, out):
    floats = (raw.ptr + 1).to(sk.float32)
    out[thread("x")] = sk.load(floats + thread("x"))


@fault("MISALIGNED_ACCESS", "writes float64 at byte 4 of `A`", (1, 2), {"A": zeros(6)})
def floats_written_as_doubles_from_an_odd_element(A):
    sk.store((A.ptr + 1).to(sk.float64) + thread("x"), 1.0)


@fault(
    "MISALIGNED_ACCESS",
    "reads int16 at byte 3 of `raw`, 1 bytes past a multiple of 2",
    (1, 4),
    {"raw": raw_bytes(16), "out": ints(4)},
)
def records_of_three_bytes(raw, out):
    """Every other thread is aligned."""
    i = thread("x")
    out[i] = sk.load((raw.ptr + 3 * i).to(sk.int16)).to(sk.int32)


@fault("MISALIGNED_ACCESS", "updates int32 at byte 2 of `raw`", (1, 4), {"raw": raw_bytes(8)})
def atomic_on_two_halves(raw):
    sk.atomic_add((raw.ptr + 2).to(sk.int32), 1)


@fault("MISALIGNED_ACCESS", "writes float32 at byte 0 of `raw`", (1, 8), {})
def shared_bytes_that_are_aligned_by_luck():
    """Where a shared array of bytes lies is nobody's promise."""
    raw = sk.alloc_shared((64,), sk.uint8)
    sk.store(raw.ptr.to(sk.float32) + thread("x"), 1.0)


@fault("MISALIGNED_ACCESS", "reads int64 at byte 4 of `halves`", (1, 1), {"out": ints(1)})
def shared_words_read_in_pairs_from_an_odd_one(out):
    halves = sk.alloc_shared((4,), sk.int32, align=8)
    for k in sk.static_range(4):
        halves[k] = k
    out[0] = sk.load((halves.ptr + 1).to(sk.int64)).to(sk.int32)


@fault("MISALIGNED_ACCESS", "at byte 6 of `buffer`", sk.cuda.LaunchConfig(1, 4, 64), {})
def second_array_in_dynamic_shared_memory():
    """Behind three 16-bit numbers there is no room for a float."""
    buffer = sk.dynamic_shared(sk.int16)
    sk.store((buffer + 3).to(sk.float32) + thread("x"), 1.0)


@fault("MISALIGNED_ACCESS", "writes int32 at byte 2 of `mine`", (1, 4), {})
def word_across_two_words():
    mine = sk.alloc_local((2,), sk.int64)
    halves = mine.ptr.to(sk.int16)
    sk.store((halves + 1).to(sk.int32), 1)


@clean((1, 4), {"raw": raw_bytes(32), "out": zeros(4)}, outputs=["out"])
def bytes_read_as_floats(raw, out):
    out[thread("x")] = sk.load((raw.ptr + 4).to(sk.float32) + thread("x"))


@clean((1, 4), {"out": ints(4)}, outputs=["out"])
def shared_bytes_that_are_aligned_as_asked(out):
    raw = sk.alloc_shared((32,), sk.uint8, align=8)
    i = thread("x")
    sk.store((raw.ptr + 8).to(sk.int32) + i, i)
    sk.syncwarp()
    out[i] = sk.load((raw.ptr + 8).to(sk.int32) + (3 - i))


@clean(sk.cuda.LaunchConfig(1, 4, 64), {"out": zeros(4)}, outputs=["out"])
def two_arrays_in_dynamic_shared_memory(out):
    """The second begins at a multiple of its element."""
    buffer = sk.dynamic_shared(sk.int16)
    i = thread("x")
    sk.store(buffer + i, i.to(sk.int16))
    floats = (buffer + 4).to(sk.float32)
    sk.store(floats + i, 0.5)
    sk.syncwarp()
    out[i] = sk.load(floats + (3 - i)) + sk.load(buffer + (3 - i))


@clean((1, 2), {"out": ints(2)}, outputs=["out"])
def halves_of_a_local_number(out):
    mine = sk.alloc_local((1,), sk.int64)
    mine[0] = sk.int64(thread("x")) << 32
    out[thread("x")] = sk.load(mine.ptr.to(sk.int32) + 1)


# -- memory that is gone ----------------------------------------------------------------------------------------------


def resized_since() -> dict[str, Any]:
    """A view of an array whose memory was given back."""
    owner = zeros(64)
    view = owner[:]
    owner.resize((0,), refcheck=False)
    return {"A": view, "out": zeros(64)}


def windows_too_far() -> dict[str, Any]:
    """`as_strided` believes whatever it is told."""
    return {"A": as_strided(zeros(10), (8, 4), (4, 4)), "out": zeros(8)}


@fault("FREED_ACCESS", "reads element 0 of `A`, at address", (1, 64), resized_since)
def view_of_an_array_that_was_resized(A, out):
    out[thread("x")] = A[thread("x")]


@fault("FREED_ACCESS", "writes element 5 of `A`, at address", (1, 8), lambda: {**resized_since(), "n": 5})
def write_to_an_array_that_was_resized(A, out, n):
    if thread("x") >= n:
        A[thread("x")] = out[thread("x")]


@clean((1, 8), lambda: {**resized_since(), "n": 8})
def an_array_that_is_gone_and_not_touched(A, out, n):
    i = thread("x")
    out[i] = A[i] if i >= n else 1.0


@fault("FREED_ACCESS", "reads element 10 of `A`, at address", (1, 8), windows_too_far)
def windows_that_go_beyond_their_array(A, out):
    total = sk.float32(0)
    for k in range(4):
        total += A[thread("x"), k]
    out[thread("x")] = total


@clean((1, 7), windows_too_far)
def windows_that_end_with_their_array(A, out):
    total = sk.float32(0)
    for k in range(4):
        total += A[thread("x"), k]
    out[thread("x")] = total


# -- memory that may not be written -----------------------------------------------------------------------------------


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


@fault("OUT_OF_BOUNDS", "writes `tile[0, 32]` of shape (2, 32): axis 1 has 32", (1, 33), {})
def row_of_a_shared_array_that_is_too_short():
    tile = sk.alloc_shared((2, 32), sk.float32)
    tile[0, thread("x")] = 1.0


@fault("OUT_OF_BOUNDS", "reads `mine[0, 2]` of shape (2, 2): axis 1 has 2", (1, 3), {"out": ints(3)})
def row_of_a_local_array_that_is_too_short(out):
    mine = sk.alloc_local((2, 2), sk.int32)
    for k in range(4):
        mine[k // 2, k % 2] = k
    out[thread("x")] = mine[0, thread("x")]


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
