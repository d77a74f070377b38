"""Indices that overflow in parts: split, packed, shifted, unsigned; and what wraps on purpose."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import block, clean, fault, ints, thread, zeros

BIG = 1 << 20
OUT = ["OUT_OF_BOUNDS"]

# -- split by division ------------------------------------------------------------------------------------------------


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 4), {"A": zeros(4, 8), "start": 2**31 - 2, "width": 8}, also=OUT)
def flat_index_split_into_row_and_column(A, start, width):
    flat = start + thread("x").to(sk.int32)
    A[flat // width, flat % width] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 4), {"A": zeros(8), "row": 70_000, "pitch": 40_000, "width": 8})
def column_of_a_flat_index(A, row, pitch, width):
    """Every column exists, but it is the wrong one."""
    A[(row * pitch + thread("x").to(sk.int32)) % width] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(8), "lo": 2**30 + 5, "hi": 2**30 + 9}, also=OUT)
def middle_of_a_search(A, lo, hi):
    middle = (lo + hi) // 2
    A[middle - 2**30] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4, 4, 4), "n": 50_000}, also=OUT)
def plane_by_the_product_of_two_extents(A, n):
    """The divisor overflows."""
    A[n // (n * n), 0, 0] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 2), {"A": zeros(64), "far": 2**24}, also=OUT)
def bytes_that_become_elements(A, far):
    at_byte = far * 200 + thread("x").to(sk.int32) * 4
    A[at_byte // 4 % 63] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4, 8), "n": 50_000}, also=OUT)
def flat_index_divmod(A, n):
    row, column = divmod(n * n, 8)
    A[row, column] = 1.0


# -- shifts and bits --------------------------------------------------------------------------------------------------


@fault("INDEX_OVERFLOW", "1048576 << 12 does not fit int32", (1, 1), {"A": zeros(8), "row": BIG})
def row_shifted_by_the_pitch(A, row):
    A[row << 12] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(8), "row": 2**20 + 1}, also=OUT)
def row_and_column_packed(A, row):
    A[(row << 12) | 3] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(8), "row": 100_000, "pitch": 65_536}, also=OUT)
def flat_index_split_by_a_shift(A, row, pitch):
    flat = row * pitch
    A[flat >> 4] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(8), "n": 2**31 - 1}, also=OUT)
def rounded_up_to_a_multiple(A, n):
    A[(n + 31) & ~31] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(8), "n": 2**31 - 1, "align": 32}, also=OUT)
def rounded_up_to_a_multiple_at_run_time(A, n, align):
    A[(n + align - 1) & -align] = 1.0


# -- unsigned ---------------------------------------------------------------------------------------------------------


@fault("INDEX_OVERFLOW", "does not fit uint32", (1, 1), {"A": zeros(8), "row": np.uint32(70_000)})
def unsigned_product(A, row):
    A[row * row - 605_032_704] = 1.0


@fault("INDEX_OVERFLOW", "does not fit uint32", (1, 4), {"A": zeros(8), "start": np.uint32(2**32 - 2)}, also=OUT)
def unsigned_sum(A, start):
    A[start + thread("x").to(sk.uint32)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit uint32", (1, 4), {"A": zeros(8), "n": np.uint32(2)}, also=OUT)
def unsigned_countdown(A, n):
    """3 - 4 is not -1."""
    A[n - thread("x").to(sk.uint32)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit uint32", (1, 4), {"A": zeros(4, 8), "row": np.uint32(66_000)}, also=OUT)
def unsigned_flat_index_split(A, row):
    flat = row * row + thread("x").to(sk.uint32)
    A[flat // np.uint32(8), flat % np.uint32(8)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit uint16", (1, 1), {"A": zeros(70_000), "step": np.uint16(300)})
def unsigned_in_16_bits(A, step):
    A[step * step] = 1.0


@fault("INDEX_OVERFLOW", "4294967296 does not fit uint32", (1, 1), {"A": zeros(8), "far": np.int64(2**32)})
def index_cut_to_32_unsigned_bits(A, far):
    A[far.to(sk.uint32)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit uint8", (1, 260), {"A": zeros(300)}, also=["BLOCK_RACE", "WARP_RACE"])
def counter_in_a_byte(A):
    i = thread("x")
    A[i.to(sk.uint8)] = 1.0


# -- through loops, selects and helpers -------------------------------------------------------------------------------


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(8), "stride": 2**29}, also=OUT)
def sum_in_a_loop(A, stride):
    at = 0
    for _ in range(5):
        at += stride
    A[at >> 28] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 2), {"A": zeros(8), "row": 70_000}, also=OUT)
def one_arm_of_a_ternary(A, row):
    at = row * row if thread("x") > 0 else 0
    A[at // 1000] = 1.0


# -- on purpose, or not at all ----------------------------------------------------------------------------------------


@clean((1, 32), {"bins": ints(16), "keys": np.arange(32, dtype=np.uint32) * 77_777})
def a_multiplicative_hash(bins, keys):
    sk.atomic_add(bins + (keys[thread("x")] * np.uint32(2_654_435_769) >> np.uint32(28)), 1)


@clean((1, 32), {"bins": ints(17), "keys": np.arange(32, dtype=np.uint32) * 77_777})
def a_hash_of_bytes(bins, keys):
    key, h = keys[thread("x")], sk.uint32(5381)
    for k in sk.static_range(4):
        h = h * 33 + (key >> np.uint32(8 * k) & np.uint32(255))
    sk.atomic_add(bins + h % np.uint32(17), 1)


@clean((1, 32), {"bins": ints(16), "keys": np.arange(32, dtype=np.uint32) * 77_777})
def an_fnv_hash(bins, keys):
    key, h = keys[thread("x")], sk.uint32(2_166_136_261)
    for k in range(4):
        h = (h ^ (key >> (8 * k).to(sk.uint32) & np.uint32(255))) * np.uint32(16_777_619)
    sk.atomic_add(bins + (h >> np.uint32(28)), 1)


@clean((1, 32), {"bins": ints(100)})
def a_spatial_hash_of_signed_cells(bins):
    x, y = thread("x").to(sk.int32), 1000 + thread("x").to(sk.int32)
    cell = (x * 73_856_093) ^ (y * 19_349_663)
    sk.atomic_add(bins + cell % 100, 1)


@clean((1, 32), {"bins": ints(32)})
def a_linear_congruential_generator(bins):
    state = thread("x").to(sk.uint32) + 12345
    for _ in range(4):
        state = state * np.uint32(1_103_515_245) + np.uint32(12_345)
        sk.atomic_add(bins + (state // np.uint32(65_536) % np.uint32(32)), 1)


@clean((1, 32), {"bins": ints(100)})
def a_xorshift_generator(bins):
    x = thread("x").to(sk.uint32) * np.uint32(747_796_405) + 1
    x ^= x << np.uint32(13)
    x ^= x >> np.uint32(17)
    x ^= x << np.uint32(5)
    sk.atomic_add(bins + ((x.to(sk.uint64) * 100) >> np.uint64(32)), 1)


@clean((1, 32), {"bins": ints(64)})
def a_permuted_generator_with_a_rotation(bins):
    state = thread("x").to(sk.uint64) * np.uint64(6_364_136_223_846_793_005) + np.uint64(1_442_695_040_888_963_407)
    mixed = (((state >> np.uint64(18)) ^ state) >> np.uint64(27)).to(sk.uint32)
    turn = (state >> np.uint64(59)).to(sk.uint32)
    drawn = (mixed >> turn) | (mixed << ((32 - turn) & np.uint32(31)))
    sk.atomic_add(bins + (drawn >> np.uint32(26)), 1)


@clean((1, 32), {"ring": ints(64), "head": np.uint32(2**32 - 8)})
def a_ring_whose_counter_wraps(ring, head):
    """A power of two divides 2**32, so that the low bits go on."""
    ring[(head + thread("x").to(sk.uint32)) & np.uint32(63)] = 1


@clean((1, 32), {"A": ints(34), "out": ints(32), "radius": np.uint32(1)}, outputs=["out"])
def unsigned_differences_that_come_back(A, out, radius):
    """0 - 1 + 1 is 0, whatever lies between."""
    i = thread("x").to(sk.uint32)
    total = 0
    for k in range(3):
        total += A[i - radius + k.to(sk.uint32) + radius]
    out[thread("x")] = total


@clean((1, 32), {"A": ints(8, 4), "start": np.int64(2**31), "first": np.int64(2**31)})
def a_flat_index_in_64_bits(A, start, first):
    flat = start + thread("x") - first
    A[flat // 4, flat % 4] = 1


@clean((1, 32), {"bins": ints(4, 256), "keys": np.arange(32, dtype=np.int32) * 123_456_789})
def digits_of_a_radix_sort(bins, keys):
    """Conversions that take a byte out of a word."""
    key = keys[thread("x")]
    for digit in sk.static_range(4):
        sk.atomic_add(bins.ptr_to(digit, (key >> (8 * digit)).to(sk.uint8)), 1)


@clean((1, 32), {"bins": ints(65_536), "keys": np.arange(32, dtype=np.int64) * 123_456_789})
def a_hash_cut_to_16_bits(bins, keys):
    h = (keys[thread("x")].to(sk.uint64) * np.uint64(11_400_714_819_323_198_485)).to(sk.uint16)
    sk.atomic_add(bins + h, 1)


@clean((1, 16), {"A": ints(16), "out": ints(16)}, outputs=["out"])
def bits_in_reverse(A, out):
    i = thread("x").to(sk.uint32)
    r = ((i >> np.uint32(1)) & np.uint32(0x55555555)) | ((i & np.uint32(0x55555555)) << np.uint32(1))
    r = ((r >> np.uint32(2)) & np.uint32(0x33333333)) | ((r & np.uint32(0x33333333)) << np.uint32(2))
    out[i] = A[r]


@clean((4, 8), {"A": zeros(32), "out": zeros(32)}, outputs=["out"])
def an_unsigned_index_that_fits(A, out):
    i = block("x").to(sk.uint32) * np.uint32(8) + thread("x").to(sk.uint32)
    out[i] = A[np.uint32(31) - i]
