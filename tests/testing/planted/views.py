"""Pointers that leave the row or the view from which they were taken; masks against the wrong extent."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import block, clean, fault, ints, thread, zeros


@fault(
    "OUT_OF_BOUNDS",
    "reads element 8 of a view of `A` with shape (8,)",
    (1, 9),
    {"A": zeros(4, 8), "out": zeros(9), "r": 1},
)
def pointer_past_its_row(A, out, r):
    j = thread("x")
    out[j] = sk.load(A[r].ptr + j)


@fault("OUT_OF_BOUNDS", "of a view of `A` with shape (8,)", (1, 9), {"A": zeros(4, 8), "out": zeros(9)})
def pointer_past_the_first_row(A, out):
    """The row of a constant index."""
    j = thread("x")
    out[j] = sk.load(A[0].ptr + j)


@fault("OUT_OF_BOUNDS", "writes element -1 of a view of `A`", (1, 8), {"A": zeros(4, 8), "r": 2})
def pointer_before_its_row(A, r):
    sk.store(A[r].ptr + (thread("x") - 1), 1.0)


@fault("OUT_OF_BOUNDS", "updates element 4 of a view of `bins`", (1, 5), {"bins": ints(4, 4), "r": 2})
def histogram_of_a_row_that_is_too_short(bins, r):
    sk.atomic_add(bins[r].ptr + thread("x"), 1)


@fault(
    "OUT_OF_BOUNDS",
    "of a view of `A`",
    2,
    {"A": zeros(4, 12), "out": zeros(4, 16), "BLOCK": 16},
)
def tile_of_a_row_with_the_mask_of_another_array(A, out, BLOCK: sk.constexpr):
    r, j = sk.program_id(0), sk.arange(0, BLOCK)
    x = sk.load(A[r].ptr + j, mask=j < out.shape[1], other=0.0)
    sk.store(out[r].ptr + j, x, mask=j < out.shape[1])


@fault("OUT_OF_BOUNDS", "of a view of `A`", (1, 4), {"A": zeros(8, 4), "out": zeros(8)})
def mask_with_the_extent_of_the_other_axis(A, out):
    row = A[2].ptr
    total = sk.float32(0)
    for j in range(A.shape[0]):
        total += sk.load(row + j)
    out[thread("x")] = total


@fault("OUT_OF_BOUNDS", "of a view of `A` with shape (3,)", (1, 4), {"A": zeros(16), "lo": 4})
def pointer_past_its_slice(A, lo):
    sk.store(A[lo : lo + 3].ptr + thread("x"), 1.0)


@fault("OUT_OF_BOUNDS", "of a view of `tile` with shape (32,)", (1, 33), {})
def pointer_past_a_row_of_shared_memory():
    tile = sk.alloc_shared((2, 32), sk.float32)
    sk.store(tile[0].ptr + thread("x"), 1.0)


@fault("OUT_OF_BOUNDS", "of a view of `A`", (1, 4), {"A": zeros(4, 8), "out": zeros(4)})
def column_walked_as_if_it_were_a_row(A, out):
    """A column's elements are a row apart."""
    i = thread("x")
    out[i] = sk.load(A[:, 2].ptr + i)


@fault("OUT_OF_BOUNDS", "of a view of `A`", (1, 1), {"A": zeros(4, 8), "out": zeros(1)})
def pointer_that_walks_out_of_its_row(A, out):
    at, total = A[1].ptr, sk.float32(0)
    for _ in range(9):
        total += sk.load(at)
        at = at + 1
    out[0] = total


@fault("OUT_OF_BOUNDS", "writes element 1 of a view of `A`", (1, 4), {"A": zeros(4, 8)[:, ::2]})
def pointer_to_every_other_column(A: sk.Pointer(sk.float32)):
    """What lies between belongs to somebody else."""
    sk.store(A + thread("x"), 1.0)


@fault("OUT_OF_BOUNDS", "of a view of `A`", (8, 4), {"A": zeros(8, 10)[:, :6], "pitch": 10, "n": 8})
def strided_rows_with_a_mask_against_the_rows(A: sk.Pointer(sk.float32), pitch, n):
    r, j = block("x"), thread("x") * 2
    if j < n:
        sk.store(A + r * pitch + j, 1.0)


@fault("OUT_OF_BOUNDS", "of a view of `A`", (1, 8), {"A": zeros(8)[::-2], "out": zeros(8)})
def pointer_to_what_runs_backwards(A: sk.Pointer(sk.float32), out):
    out[thread("x")] = sk.load(A - thread("x"))


@fault("OUT_OF_BOUNDS", "of a view of `A`", (1, 8), {"A": zeros(4, 8), "r": 1, "out": zeros(8)})
def bytes_past_a_row(A, r, out):
    raw = A[r].ptr.to(sk.uint8)
    out[thread("x")] = sk.load((raw + 8 * thread("x")).to(sk.float32))


@fault("OUT_OF_BOUNDS", "of a view of `A`", (1, 4), {"A": zeros(4, 7, dtype=np.int32), "out": ints(8)})
def last_pair_of_an_odd_row(A, out):
    """The second half of the last pair is the next row's first."""
    i = thread("x")
    pairs = A[2].ptr.to(sk.int64)
    out[i] = sk.load(pairs + i).to(sk.int32)


@fault("OUT_OF_BOUNDS", "of a view of `A`", (1, 8), {"A": zeros(4, 8), "r": 1, "out": zeros(8)})
def row_chosen_by_a_ternary(A, r, out):
    i = thread("x")
    row = A[r].ptr if i < 4 else A[r + 1].ptr
    out[i] = sk.load(row + i + 1)


# -- as it should be --------------------------------------------------------------------------------------------------


@clean((4, 8), {"A": zeros(4, 8), "out": zeros(4, 8)}, outputs=["out"])
def pointers_that_stay_in_their_rows(A, out):
    r, j = block("x"), thread("x")
    sk.store(out[r].ptr + j, sk.load(A[r].ptr + (7 - j)))


@clean(4, {"A": zeros(4, 12), "out": zeros(4, 12), "BLOCK": 16}, outputs=["out"])
def a_tile_of_a_row_with_its_own_mask(A, out, BLOCK: sk.constexpr):
    r, j = sk.program_id(0), sk.arange(0, BLOCK)
    x = sk.load(A[r] + j, mask=j < A.shape[1], other=0.0)
    sk.store(out[r] + j, x, mask=j < out.shape[1])


@clean((1, 4), {"A": zeros(4, 8), "out": zeros(4)}, outputs=["out"])
def a_column_walked_by_its_stride(A, out):
    i = thread("x")
    out[i] = sk.load(A[:, 2].ptr + i * A.strides[0])


@clean((1, 4), {"A": zeros(4, 8)[:, ::2]})
def every_other_column_by_its_stride(A: sk.Pointer(sk.float32)):
    for r in range(4):
        sk.store(A + (r * 8 + 2 * thread("x")), 1.0)


@clean((2, 6), {"A": zeros(8, 10)[:, :6], "pitch": 10})
def rows_of_a_wider_array(A: sk.Pointer(sk.float32), pitch):
    for r in range(block("x"), 8, 2):
        sk.store(A + r * pitch + thread("x"), 1.0)


@clean((1, 4), {"A": zeros(8)[::-2], "out": zeros(4)}, outputs=["out"])
def what_runs_backwards_by_its_stride(A: sk.Pointer(sk.float32), out):
    out[thread("x")] = sk.load(A - 2 * thread("x"))


@clean((1, 8), {"A": zeros(4, 8), "out": zeros(8)}, outputs=["out"])
def a_pointer_to_an_element_goes_on_in_the_array(A, out):
    """`ptr_to` names a place in the whole array."""
    j = thread("x")
    out[j] = sk.load(A.ptr_to(1, 4) + j)


@clean((1, 8), {"A": zeros(4, 8), "out": zeros(8)}, outputs=["out"])
def a_block_of_rows_walked_as_one(A, out):
    j = thread("x")
    two = A[1:3].ptr
    out[j] = sk.load(two + j) + sk.load(two + 8 + j)


@clean((1, 4), {"A": zeros(4, 8), "out": zeros(4)}, outputs=["out"])
def a_pointer_that_is_one_past_the_end_when_it_stops(A, out):
    """Only accesses count."""
    at, total = A[thread("x")].ptr, sk.float32(0)
    for _ in range(8):
        total += sk.load(at)
        at = at + 1
    out[thread("x")] = total


@clean((1, 6), {"A": np.lib.stride_tricks.sliding_window_view(zeros(8), 3), "out": zeros(6)}, outputs=["out"])
def windows_that_share_their_elements(A: sk.Pointer(sk.float32), out):
    i = thread("x")
    out[i] = sk.load(A + i) + sk.load(A + i + 2)
