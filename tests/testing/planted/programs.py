"""Mistakes in programs as people write them: histograms, scans, stencils, transposes, products, graphs, sorts, image filters."""

from __future__ import annotations

import math

import numpy as np

import stagekit as sk

from .table import FULL, block, clean, fault, ints, thread, zeros

OUT, RAND = "OUT_OF_BOUNDS", np.random.default_rng(7)


def counts(*shape: int, below: int = 8) -> np.ndarray:
    return RAND.integers(0, below, shape).astype(np.int32)


def floats(*shape: int) -> np.ndarray:
    return RAND.random(shape).astype(np.float32)


# -- histograms -------------------------------------------------------------------------------------------------------


@fault("UNINITIALISED_READ", "of `mine`", (2, 64), {"A": counts(128), "bins": ints(8)})
def histogram_in_shared_memory_that_is_not_cleared(A, bins):
    mine = sk.alloc_shared((8,), sk.int32)
    i = block("x") * 64 + thread("x")
    sk.atomic_add(mine.ptr_to(A[i]), 1)
    sk.syncthreads()
    if thread("x") < 8:
        sk.atomic_add(bins.ptr_to(thread("x")), mine[thread("x")])


@clean((2, 64), {"A": counts(128), "bins": ints(8)})
def a_histogram_in_shared_memory(A, bins):
    mine = sk.alloc_shared((8,), sk.int32)
    i, t = block("x") * 64 + thread("x"), thread("x")
    if t < 8:
        mine[t] = 0
    sk.syncthreads()
    sk.atomic_add(mine.ptr_to(A[i]), 1)
    sk.syncthreads()
    if t < 8:
        sk.atomic_add(bins.ptr_to(t), mine[t])


@fault(OUT, "of `bins`", (1, 9), {"A": np.linspace(0, 1, 9, dtype=np.float32), "bins": ints(8), "lo": 0.0, "hi": 1.0})
def histogram_whose_largest_value_has_no_bin(A, bins, lo, hi):
    x = A[thread("x")]
    sk.atomic_add(bins + sk.int32((x - lo) / (hi - lo) * 8.0), 1)


@clean((1, 9), {"A": np.linspace(0, 1, 9, dtype=np.float32), "bins": ints(8), "lo": 0.0, "hi": 1.0})
def a_histogram_whose_last_bin_is_closed(A, bins, lo, hi):
    x = A[thread("x")]
    sk.atomic_add(bins + min(sk.int32((x - lo) / (hi - lo) * 8.0), 7), 1)


@fault("NAN_PRODUCED", "(0.0, 0.0)", (1, 8), {"A": np.ones(8, np.float32), "bins": ints(8), "lo": 1.0, "hi": 1.0})
def histogram_of_equal_values(A, bins, lo, hi):
    x = A[thread("x")]
    sk.atomic_add(bins + min(sk.int32((x - lo) / (hi - lo) * 8.0), 7), 1)


@fault(OUT, "element -3 of `bins`", (1, 8), {"A": np.arange(-3, 5, dtype=np.int8), "bins": ints(8)})
def histogram_of_signed_bytes(A, bins):
    sk.atomic_add(bins + A[thread("x")], 1)


@fault(OUT, "of a view of `bins`", (1, 64), {"A": counts(64, below=9), "bins": ints(2, 8)})
def histogram_per_warp_one_bin_short(A, bins):
    mine = bins[sk.warp_id()].ptr
    sk.atomic_add(mine + A[thread("x")], 1)


@clean((1, 64), {"A": counts(64), "bins": ints(2, 8)})
def a_histogram_per_warp(A, bins):
    sk.atomic_add(bins[sk.warp_id()].ptr + A[thread("x")], 1)


@fault(
    "INDEX_OVERFLOW",
    "does not fit uint8",
    (1, 64),
    {"A": np.full(64, 200, np.uint8), "B": np.full(64, 100, np.uint8), "bins": ints(512)},
)
def histogram_of_sums_of_bytes(A, B, bins):
    i = thread("x")
    sk.atomic_add(bins + (A[i] + B[i]), 1)


# -- scans ------------------------------------------------------------------------------------------------------------


@fault(OUT, "element -1 of `tile`", (1, 64), {"A": ints(64), "out": ints(64)})
def scan_with_a_bound_off_by_one(A, out):
    tile = sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    for k in sk.static_range(6):
        step = 1 << k
        before = tile[i - step] if i >= step - 1 else 0
        sk.syncthreads()
        tile[i] += before
        sk.syncthreads()
    out[i] = tile[i]


@clean((1, 64), {"A": ints(64), "out": ints(64)}, outputs=["out"])
def a_scan_in_shared_memory(A, out):
    tile = sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    for k in sk.static_range(6):
        step = 1 << k
        before = tile[i - step] if i >= step else 0
        sk.syncthreads()
        tile[i] += before
        sk.syncthreads()
    out[i] = tile[i]


@fault("LANE_NOT_HERE", "names lanes", (1, 32), {"A": ints(20), "out": ints(32), "n": 20})
def scan_of_a_warp_inside_its_bound(A, out, n):
    i = thread("x")
    if i < n:
        x = A[i]
        for k in sk.static_range(5):
            y = sk.shfl_up_sync(FULL, x, 1 << k)
            if i >= 1 << k:
                x += y
        out[i] = x
    out[i] += 1


@fault("UNINITIALISED_READ", "of `totals`", (1, 128), {"A": ints(128), "out": ints(128)})
def scan_of_the_totals_of_warps_that_are_not_there(A, out):
    totals = sk.alloc_shared((32,), sk.int32)
    i, lane, warp = thread("x"), sk.lane_id(), sk.warp_id()
    x = A[i]
    for k in sk.static_range(5):
        y = sk.shfl_up_sync(FULL, x, 1 << k)
        x += y if lane >= 1 << k else 0
    if lane == 31:
        totals[warp] = x
    sk.syncthreads()
    if warp == 0:
        t = totals[lane]
        for k in sk.static_range(5):
            y = sk.shfl_up_sync(FULL, t, 1 << k)
            t += y if lane >= 1 << k else 0
        totals[lane] = t
    sk.syncthreads()
    out[i] = x + (totals[warp - 1] if warp > 0 else 0)


@clean((1, 128), {"A": ints(128), "out": ints(128)}, outputs=["out"])
def a_scan_of_a_block_by_warps(A, out):
    totals = sk.alloc_shared((4,), sk.int32)
    i, lane, warp = thread("x"), sk.lane_id(), sk.warp_id()
    x = A[i]
    for k in sk.static_range(5):
        y = sk.shfl_up_sync(FULL, x, 1 << k)
        x += y if lane >= 1 << k else 0
    if lane == 31:
        totals[warp] = x
    sk.syncthreads()
    before = 0
    for w in range(warp):
        before += totals[w]
    out[i] = x + before


@fault("ABSENT_LANE_READ", "reads lane 31", (1, 48), {"A": ints(48), "out": ints(2)})
def scan_whose_total_is_in_the_last_lane(A, out):
    x = A[thread("x")]
    for k in sk.static_range(5):
        y = sk.shfl_up_sync(FULL, x, 1 << k)
        x += y if sk.lane_id() >= 1 << k else 0
    total = sk.shfl_sync(FULL, x, 31)
    if sk.lane_id() == 0:
        out[sk.warp_id()] = total


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 4), {"A": ints(64), "offset": 2**29}, also=[OUT])
def scan_up_the_tree_of_a_large_array(A, offset):
    i = thread("x").to(sk.int32)
    left, right = offset * (2 * i + 1) - 1, offset * (2 * i + 2) - 1
    if right < 64:
        A[right] += A[left]


@fault("DIVERGENT_BARRIER", "of the 64 threads", (1, 64), {"A": ints(60), "out": ints(60), "n": 60})
def scan_that_returns_in_front_of_a_barrier(A, out, n):
    tile = sk.alloc_shared((64,), sk.int32)
    i = thread("x")
    if i >= n:
        return
    tile[i] = A[i]
    sk.syncthreads()
    out[i] = tile[i] + (tile[i - 1] if i > 0 else 0)


# -- stencils ---------------------------------------------------------------------------------------------------------


@fault(OUT, "axis 1 has 16", (8, 16), {"A": zeros(8, 16), "out": zeros(8, 16)})
def laplacian_guarded_on_one_side(A, out):
    y, x = block("x"), thread("x")
    if y > 0 and y < 7 and x > 0:
        out[y, x] = A[y - 1, x] + A[y + 1, x] + A[y, x - 1] + A[y, x + 1] - 4.0 * A[y, x]


@clean((8, 16), {"A": zeros(8, 16), "out": zeros(8, 16)})
def a_laplacian_of_the_inside(A, out):
    y, x = block("x"), thread("x")
    if 0 < y < A.shape[0] - 1 and 0 < x < A.shape[1] - 1:
        out[y, x] = A[y - 1, x] + A[y + 1, x] + A[y, x - 1] + A[y, x + 1] - 4.0 * A[y, x]


@fault(OUT, "of `A`", (8, 16), {"A": zeros(8, 16), "out": zeros(8, 16), "W": 16})
def laplacian_by_a_flat_index(A, out, W):
    y, x = block("x"), thread("x")
    at = y * W + x
    out[y, x] = sk.load(A.ptr + (at - W)) + sk.load(A.ptr + at)


@fault(OUT, "of shape (2, 4, 8)", (2, (8, 4)), {"A": zeros(2, 4, 8), "out": zeros(2, 4, 8)})
def stencil_with_its_axes_in_the_order_of_cuda(A, out):
    z, y, x = block("x"), thread("y"), thread("x")
    out[z, y, x] = A[x, y, z]


@fault("UNINITIALISED_READ", "of `tile`", (2, 32), {"A": floats(64), "out": zeros(64)})
def halo_of_which_one_side_is_forgotten(A, out):
    tile = sk.alloc_shared((34,), sk.float32)
    t, i = thread("x"), block("x") * 32 + thread("x")
    tile[t + 1] = A[i]
    if t == 0:
        tile[0] = A[i - 1] if i > 0 else 0.0
    sk.syncthreads()
    out[i] = tile[t] + tile[t + 1] + tile[t + 2]


@clean((2, 32), {"A": floats(64), "out": zeros(64)}, outputs=["out"])
def a_halo_on_both_sides(A, out):
    tile = sk.alloc_shared((34,), sk.float32)
    t, i = thread("x"), block("x") * 32 + thread("x")
    tile[t + 1] = A[i]
    if t == 0:
        tile[0] = A[i - 1] if i > 0 else 0.0
    if t == 31:
        tile[33] = A[i + 1] if i + 1 < len(A) else 0.0
    sk.syncthreads()
    out[i] = tile[t] + tile[t + 1] + tile[t + 2]


@fault(OUT, "element -1 of a view of `A`", (8, 16), {"A": zeros(8, 16), "out": zeros(8, 16)})
def neighbours_by_the_pointer_of_a_row(A, out):
    y, x = block("x"), thread("x")
    row = A[y].ptr
    if x < 15:
        out[y, x] = sk.load(row + x + 1) - sk.load(row + x - 1)


@fault(OUT, "axis 1 has 8", (16, 16), {"A": zeros(16, 8), "out": zeros(16, 8)})
def stencil_with_height_and_width_exchanged(A, out):
    H, W = A.shape[0], A.shape[1]
    y, x = block("x"), thread("x")
    if y < W and x < H:
        out[y, x] = A[y, x]


@fault("INDEX_OVERFLOW", "0 - 1 does not fit uint32", (1, 16), {"A": zeros(16), "out": zeros(16)}, also=[OUT])
def unsigned_neighbour_with_a_guard_that_always_holds(A, out):
    x = thread("x").to(sk.uint32)
    left = x - np.uint32(1)
    out[x] = A[left] if left >= np.uint32(0) else 0.0


@clean((1, 16), {"A": zeros(16), "out": zeros(16)}, outputs=["out"])
def an_unsigned_neighbour_that_wraps_past_its_guard(A, out):
    x = thread("x").to(sk.uint32)
    left = x - np.uint32(1)
    out[x] = A[left] if left < np.uint32(16) else 0.0


@clean((1, 16), {"A": zeros(16), "out": zeros(16)}, outputs=["out"])
def a_periodic_neighbour(A, out):
    x, n = thread("x").to(sk.int32), sk.int32(len(A))
    out[x] = A[(x - 1 + n) % n] + A[(x + 1) % n]


# -- transposes -------------------------------------------------------------------------------------------------------


@fault(OUT, "of `out`", ((2, 2), (8, 8)), {"A": zeros(8, 16), "out": zeros(16, 8)})
def transpose_guarded_by_the_shape_of_the_result(A, out):
    x, y = block("x") * 8 + thread("x"), block("y") * 8 + thread("y")
    if y < out.shape[0] and x < A.shape[1]:
        sk.store(out.ptr + x * out.shape[1] + y, 1.0)


@fault("UNINITIALISED_READ", "of `tile`", (1, (16, 4)), {"A": zeros(16, 16), "out": zeros(16, 16)})
def transpose_whose_tile_is_loaded_in_part(A, out):
    tile = sk.alloc_shared((16, 17), sk.float32)
    x, y = thread("x"), thread("y")
    for k in range(0, 12, 4):
        tile[y + k, x] = A[y + k, x]
    sk.syncthreads()
    for k in range(0, 16, 4):
        out[y + k, x] = tile[x, y + k]


@clean((1, (16, 4)), {"A": zeros(16, 16), "out": zeros(16, 16)}, outputs=["out"])
def a_transpose_through_a_padded_tile(A, out):
    tile = sk.alloc_shared((16, 17), sk.float32)
    x, y = thread("x"), thread("y")
    for k in range(0, 16, 4):
        tile[y + k, x] = A[y + k, x]
    sk.syncthreads()
    for k in range(0, 16, 4):
        out[y + k, x] = tile[x, y + k]


@fault(
    "UNWRITTEN_OUTPUT",
    "64 of the 256 elements",
    (1, (16, 4)),
    {"A": zeros(16, 16), "out": zeros(16, 16)},
    outputs=["out"],
)
def transpose_that_leaves_the_last_rows(A, out):
    x, y = thread("x"), thread("y")
    for k in range(0, 12, 4):
        out[y + k, x] = A[x, y + k]


@fault(OUT, "axis 1 has 4", (8, 8), {"A": zeros(4, 8), "out": zeros(8, 8)})
def transpose_of_a_transpose(A, out):
    y, x = block("x"), thread("x")
    out[y, x] = A.T[y, x]


@fault(
    "INDEX_OVERFLOW",
    "does not fit int32",
    (1, 8),
    {"A": zeros(8), "out": zeros(8), "height": 60_000, "width": 60_000},
    also=[OUT],
)
def transpose_of_a_large_matrix_by_a_flat_index(A, out, height, width):
    flat = width * (height - 1) + thread("x").to(sk.int32)
    y, x = flat // width, flat % width
    if x < 8:
        out[x] = A[height - 1 - y]


# -- products of matrices ---------------------------------------------------------------------------------------------


@fault(OUT, "axis 1 has 12", (1, (8, 8)), {"A": floats(8, 12), "B": floats(12, 8), "C": zeros(8, 8)})
def product_whose_last_tile_is_too_long(A, B, C):
    a = sk.alloc_shared((8, 8), sk.float32)
    x, y = thread("x"), thread("y")
    total = sk.float32(0)
    for k in range(0, 16, 8):
        a[y, x] = A[y, k + x]
        sk.syncthreads()
        for j in range(8):
            if k + j < 12:
                total += a[y, j] * B[k + j, x]
        sk.syncthreads()
    C[y, x] = total


@clean((1, (8, 8)), {"A": floats(8, 12), "B": floats(12, 8), "C": zeros(8, 8)}, outputs=["C"])
def a_product_whose_last_tile_is_filled_with_zeros(A, B, C):
    a, b = sk.alloc_shared((8, 8), sk.float32), sk.alloc_shared((8, 8), sk.float32)
    x, y, K = thread("x"), thread("y"), A.shape[1]
    total = sk.float32(0)
    for k in range(0, K, 8):
        a[y, x] = A[y, k + x] if k + x < K else 0.0
        b[y, x] = B[k + y, x] if k + y < K else 0.0
        sk.syncthreads()
        for j in range(8):
            total += a[y, j] * b[j, x]
        sk.syncthreads()
    C[y, x] = total


@fault("UNINITIALISED_READ", "of `a`", (1, (8, 8)), {"A": floats(6, 8), "B": floats(8, 8), "C": zeros(6, 8)})
def product_whose_short_tile_is_left_as_it_was(A, B, C):
    a = sk.alloc_shared((8, 8), sk.float32)
    x, y = thread("x"), thread("y")
    if y < A.shape[0]:
        a[y, x] = A[y, x]
    sk.syncthreads()
    total = sk.float32(0)
    for j in range(8):
        total += a[x, j] * B[j, y]
    if x < A.shape[0]:
        C[x, y] = total


@fault("DIVERGENT_BARRIER", "threads of the block", (1, (8, 8)), {"A": floats(6, 8), "C": zeros(6, 8)})
def product_with_a_barrier_for_the_rows_that_are_there(A, C):
    a = sk.alloc_shared((8, 8), sk.float32)
    x, y = thread("x"), thread("y")
    if y < A.shape[0]:
        a[y, x] = A[y, x]
        sk.syncthreads()
        C[y, x] = a[y, 7 - x]


@fault(OUT, "of a view of `A`", 2, {"A": floats(2, 12), "B": floats(16, 8), "out": zeros(2), "BLOCK": 16})
def row_of_a_product_masked_by_the_other_matrix(A, B, out, BLOCK: sk.constexpr):
    k = sk.arange(0, BLOCK)
    a = sk.load(A[sk.program_id(0)] + k, mask=k < B.shape[0], other=0.0)
    sk.store(out + sk.program_id(0), sk.reduce_sum(a))


@clean(2, {"A": floats(2, 12), "out": zeros(2), "BLOCK": 16}, outputs=["out"])
def a_row_of_a_product_masked_by_its_length(A, out, BLOCK: sk.constexpr):
    k = sk.arange(0, BLOCK)
    a = sk.load(A[sk.program_id(0)] + k, mask=k < A.shape[1], other=0.0)
    sk.store(out + sk.program_id(0), sk.reduce_sum(a))


@fault(OUT, "of shape (12, 8)", (8, 8), {"A": floats(8, 12), "B": floats(12, 8), "C": zeros(8, 8)})
def product_with_the_second_matrix_transposed(A, B, C):
    y, x = block("x"), thread("x")
    total = sk.float32(0)
    for k in range(12):
        total += A[y, k] * B[x, k]
    C[y, x] = total


@fault(
    "NAN_PRODUCED",
    "mul of",
    1,
    {"A": np.zeros(4, np.float32), "B": np.zeros(8, np.float32), "out": zeros(1), "BLOCK": 8},
)
def product_whose_padding_is_minus_infinity(A, B, out, BLOCK: sk.constexpr):
    k = sk.arange(0, BLOCK)
    a = sk.load(A + k, mask=k < 4, other=-math.inf)
    sk.store(out, sk.reduce_sum(a * sk.load(B + k)))


@fault(
    "INDEX_OVERFLOW",
    "does not fit int32",
    (1, 4),
    {"A": floats(16), "out": zeros(4), "batch": 40, "M": 8192, "K": 8192},
    also=[OUT],
)
def batch_of_products_by_a_flat_index(A, out, batch, M, K):
    start = batch * M * K
    out[thread("x")] = A[start + thread("x")]


@clean((1, 4), {"A": floats(16), "out": zeros(4), "batch": 40, "M": 8192, "K": 8192})
def a_batch_that_is_not_there(A, out, batch, M, K):
    start = sk.int64(batch) * M * K
    out[thread("x")] = A[start + thread("x")] if start + thread("x") < len(A) else 0.0


# -- graphs -----------------------------------------------------------------------------------------------------------

INDPTR = np.array([0, 2, 2, 5, 6], np.int32)
EDGES = np.array([1, 2, 0, 1, 3, -1], np.int32)


@fault(OUT, "of `queue`", (1, 16), {"queue": ints(8), "tail": ints(1), "keep": np.ones(16, np.int32)})
def frontier_that_outgrows_its_queue(queue, tail, keep):
    if keep[thread("x")] != 0:
        queue[sk.atomic_add(tail.ptr, 1)] = thread("x")


@clean((1, 16), {"queue": ints(8), "tail": ints(1), "keep": np.ones(16, np.int32)})
def a_frontier_that_drops_what_does_not_fit(queue, tail, keep):
    if keep[thread("x")] != 0:
        at = sk.atomic_add(tail.ptr, 1)
        if at < len(queue):
            queue[at] = thread("x")


@fault(OUT, "element 5 of `indptr`", (1, 5), {"indptr": INDPTR, "degree": ints(5)})
def degree_of_one_vertex_too_many(indptr, degree):
    v = thread("x")
    degree[v] = indptr[v + 1] - indptr[v]


@fault(OUT, "element -1 of `seen`", (1, 4), {"indptr": INDPTR, "edges": EDGES, "seen": ints(4)})
def neighbour_that_is_a_sentinel(indptr, edges, seen):
    v = thread("x")
    for e in range(indptr[v], indptr[v + 1]):
        sk.atomic_add(seen.ptr_to(edges[e]), 1)


@clean((1, 4), {"indptr": INDPTR, "edges": EDGES, "seen": ints(4)})
def neighbours_but_for_the_sentinel(indptr, edges, seen):
    v = thread("x")
    for e in range(indptr[v], indptr[v + 1]):
        u = edges[e]
        if u >= 0:
            sk.atomic_add(seen.ptr_to(u), 1)


@fault("DIVISION_BY_ZERO", "// 0", (1, 4), {"indptr": INDPTR, "rank": ints(4)})
def share_of_a_vertex_without_edges(indptr, rank):
    v = thread("x")
    rank[v] = 1000 // (indptr[v + 1] - indptr[v])


@clean((1, 4), {"indptr": INDPTR, "rank": ints(4)})
def a_share_that_is_given_to_edges(indptr, rank):
    v = thread("x")
    share = 1000 // (indptr[v + 1] - indptr[v])
    for e in range(indptr[v], indptr[v + 1]):
        rank[v] += share + e


@fault("SHIFT_OUT_OF_RANGE", "shift of int32 by 40", (1, 64), {"visited": ints(2)})
def bit_of_a_vertex_in_the_wrong_word(visited):
    v = thread("x")
    if v == 40:
        sk.atomic_or(visited + (v >> 5), sk.int32(1) << v.to(sk.int32))


@clean((1, 64), {"visited": zeros(2, dtype=np.uint32)})
def a_bit_per_vertex(visited):
    v = thread("x")
    sk.atomic_or(visited + (v >> 5), sk.uint32(1) << (v & 31).to(sk.uint32))


@fault("LANE_NOT_HERE", "names lanes", (1, 32), {"degree": counts(32), "out": ints(32)})
def vote_in_a_loop_over_neighbours(degree, out):
    i = thread("x")
    found = 0
    for k in range(degree[i] % 4 + i % 2):
        if sk.any_sync(FULL, k == 2):
            found += 1
    out[i] = found


@fault(
    "INDEX_OVERFLOW", "does not fit int32", (1, 4), {"bits": ints(64), "vertices": 70_000, "row": 65_000}, also=[OUT]
)
def adjacency_bit_by_a_flat_index(bits, vertices, row):
    at = row * vertices + thread("x").to(sk.int32)
    bits[at >> 5] = 1


# -- reductions -------------------------------------------------------------------------------------------------------


@fault("UNINITIALISED_READ", "of `tile`", (1, 48), {"A": floats(48), "out": zeros(1)})
def tree_of_a_block_that_is_no_power_of_two(A, out):
    tile = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    for k in sk.static_range(6):
        step = 32 >> k
        if i < step:
            tile[i] += tile[i + step]
        sk.syncthreads()
    if i == 0:
        out[0] = tile[0]


@clean((1, 48), {"A": floats(48), "out": zeros(1)}, outputs=["out"])
def a_tree_that_knows_how_many_there_are(A, out):
    tile = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    for k in sk.static_range(6):
        step = 32 >> k
        if i < step and i + step < 48:
            tile[i] += tile[i + step]
        sk.syncthreads()
    if i == 0:
        out[0] = tile[0]


@fault("MASKS_DIFFER", "names lane", (1, 32), {"A": ints(32), "out": ints(32)})
def sum_of_all_lanes_up_to_mine(A, out):
    i = thread("x")
    mask = (sk.uint32(2) << i.to(sk.uint32)) - np.uint32(1)
    out[i] = sk.popcount(sk.ballot_sync(mask, A[i] == 0)).to(sk.int32)


@clean((1, 32), {"A": ints(32), "out": ints(32)}, outputs=["out"])
def a_count_of_all_lanes_before_mine(A, out):
    i = thread("x")
    votes = sk.ballot_sync(FULL, A[i] == 0)
    out[i] = sk.popcount(votes & ((sk.uint32(1) << i.to(sk.uint32)) - np.uint32(1))).to(sk.int32)


@fault(
    "NAN_PRODUCED",
    "div of (0.0, 0.0)",
    (2, 32),
    {"A": floats(64), "keep": np.repeat([1, 0], 32).astype(np.int32), "out": zeros(2)},
)
def mean_of_a_block_that_keeps_nothing(A, keep, out):
    i = block("x") * 32 + thread("x")
    total = sk.warp_reduce(A[i] if keep[i] != 0 else sk.float32(0), lambda a, b: a + b)
    count = sk.popcount(sk.ballot_sync(FULL, keep[i] != 0)).to(sk.float32)
    if thread("x") == 0:
        out[block("x")] = total / count


@clean((2, 32), {"A": floats(64), "keep": np.repeat([1, 0], 32).astype(np.int32), "out": zeros(2)})
def a_mean_that_is_written_where_there_is_one(A, keep, out):
    i = block("x") * 32 + thread("x")
    total = sk.warp_reduce(A[i] if keep[i] != 0 else sk.float32(0), lambda a, b: a + b)
    count = sk.popcount(sk.ballot_sync(FULL, keep[i] != 0)).to(sk.float32)
    mean = total / count
    if thread("x") == 0 and count > 0.0:
        out[block("x")] = mean


@fault("NAN_PRODUCED", "sqrt of", (1, 1), {"A": np.full(3, 1.1, np.float32) * 1e3, "out": zeros(1)})
def deviation_by_the_difference_of_two_means(A, out):
    total, squares = sk.float32(0), sk.float32(0)
    for k in range(3):
        total += A[k]
        squares += A[k] * A[k]
    out[0] = math.sqrt(squares / 3.0 - (total / 3.0) * (total / 3.0) - 1.0)


@fault("ABSENT_LANE_READ", "does not exist", (1, 20), {"A": ints(20), "out": ints(1)})
def reduction_of_a_partial_warp(A, out):
    x = A[thread("x")]
    for step in (16, 8, 4, 2, 1):
        x += sk.shfl_down_sync(FULL, x, step)
    if thread("x") == 0:
        out[0] = x


@clean((1, 20), {"A": ints(20), "out": ints(1)}, outputs=["out"])
def a_reduction_that_asks_only_lanes_that_exist(A, out):
    i = thread("x")
    x = A[i]
    for step in (16, 8, 4, 2, 1):
        y = sk.shfl_down_sync(FULL, x, step)
        if i + step < 20:
            x += y
    if i == 0:
        out[0] = x


@fault("NAN_PRODUCED", "sub of (-inf, -inf)", (1, 1), {"A": np.full(4, -np.inf, np.float32), "out": zeros(1)})
def logarithm_of_a_sum_of_nothing(A, out):
    high = A[0]
    for k in range(1, 4):
        high = max(high, A[k])
    total = sk.float32(0)
    for k in range(4):
        total += math.exp(A[k] - high)
    out[0] = high + math.log(total)


@fault("SHIFT_OUT_OF_RANGE", "shift of int32 by 32", (1, 32), {"A": counts(32), "best": np.zeros(1, np.int64)})
def largest_value_packed_with_its_index_too_late(A, best):
    i = thread("x")
    sk.atomic_max(best.ptr, sk.int64((A[i] << 32) | i))


@clean((1, 32), {"A": counts(32), "best": np.zeros(1, np.int64)})
def a_largest_value_packed_with_its_index(A, best):
    i = thread("x")
    sk.atomic_max(best.ptr, (sk.int64(A[i]) << 32) | i)


# -- sorting ----------------------------------------------------------------------------------------------------------


@fault(OUT, "of `tile`", (1, 48), {"A": floats(48)})
def bitonic_network_of_48(A):
    tile = sk.alloc_shared((48,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    for k in sk.static_range(6):
        partner = i ^ (32 >> k)
        if partner > i and tile[partner] < tile[i]:
            tile[i], tile[partner] = tile[partner], tile[i]
        sk.syncthreads()
    A[i] = tile[i]


@clean((1, 64), {"A": floats(64)})
def a_bitonic_merge_of_64(A):
    tile = sk.alloc_shared((64,), sk.float32)
    i = thread("x")
    tile[i] = A[i]
    sk.syncthreads()
    for k in sk.static_range(6):
        partner = i ^ (32 >> k)
        if partner > i and tile[partner] < tile[i]:
            tile[i], tile[partner] = tile[partner], tile[i]
        sk.syncthreads()
    A[i] = tile[i]


@fault(OUT, "element 32 of `A`", (1, 16), {"A": floats(32)})
def odd_even_sort_whose_last_pair_is_half(A):
    i = 2 * thread("x") + 1
    if A[i + 1] < A[i]:
        A[i], A[i + 1] = A[i + 1], A[i]


@fault("ABSENT_LANE_READ", "reads lane", (1, 32), {"A": floats(32)})
def warp_sort_with_one_stage_too_many(A):
    i = thread("x")
    x = A[i]
    for k in sk.static_range(6):
        y = sk.shfl_xor_sync(FULL, x, 1 << k)
        x = min(x, y) if i & (1 << k) == 0 else max(x, y)
    A[i] = x


@fault("SHIFT_OUT_OF_RANGE", "by 32", (1, 32), {"keys": counts(32), "bins": ints(16)})
def radix_sort_with_one_pass_too_many(keys, bins):
    for p in range(9):
        sk.atomic_add(bins + ((keys[thread("x")] >> sk.int32(4 * p)) & 15), 1)


@clean((1, 32), {"keys": counts(32), "bins": ints(16)})
def the_passes_of_a_radix_sort(keys, bins):
    for p in range(8):
        sk.atomic_add(bins + ((keys[thread("x")] >> sk.int32(4 * p)) & 15), 1)


@fault(OUT, "of a view of `table`", (5, 16), {"table": ints(16, 4)})
def counters_of_more_blocks_than_there_are_columns(table):
    sk.atomic_add(table[thread("x")].ptr + block("x"), 1)


@fault(
    "INDEX_OVERFLOW",
    "does not fit int32",
    (1, 1),
    {"A": floats(8), "out": zeros(1), "lo": 2**30, "hi": 2**30 + 6},
    also=[OUT],
)
def merge_path_in_the_middle_of_a_large_array(A, out, lo, hi):
    middle = (lo + hi) >> 1
    out[0] = A[middle - lo]


@clean((1, 1), {"A": floats(8), "out": zeros(1), "lo": 2**30, "hi": 2**30 + 6})
def a_merge_path_by_the_half_of_the_distance(A, out, lo, hi):
    middle = lo + ((hi - lo) >> 1)
    out[0] = A[middle - lo]


# -- views and images -------------------------------------------------------------------------------------------------


@fault(OUT, "axis 0 has 4", (8, 4), {"A": zeros(8, 4), "out": zeros(8, 4)})
def every_other_row_indexed_as_if_it_were_all(A, out):
    y, x = block("x"), thread("x")
    out[y, x] = A[::2][y, x]


@fault(OUT, "of a view of `image`", (1, 16), {"image": np.zeros((4, 4, 3), np.uint8)[..., 0]})
def channel_walked_as_if_it_were_packed(image: sk.Pointer(sk.uint8)):
    sk.store(image + thread("x"), 255)


@clean((1, 16), {"image": np.zeros((4, 4, 3), np.uint8)[..., 0]})
def a_channel_by_its_stride(image: sk.Pointer(sk.uint8)):
    sk.store(image + 3 * thread("x"), 255)


@fault(OUT, "of a view of `image`", (4, 4), {"image": zeros(8, 8)[2:-2, 2:-2], "pitch": 4})
def crop_with_its_own_width_as_pitch(image: sk.Pointer(sk.float32), pitch):
    sk.store(image + block("x") * pitch + thread("x"), 1.0)


@clean((4, 4), {"image": zeros(8, 8)[2:-2, 2:-2], "pitch": 8})
def a_crop_with_the_pitch_of_the_image(image: sk.Pointer(sk.float32), pitch):
    sk.store(image + block("x") * pitch + thread("x"), 1.0)


@fault(OUT, "of a view of `A`", (6, 8), {"A": zeros(8, 10)[:, :6].T, "width": 10})
def columns_written_as_rows(A: sk.Pointer(sk.float32), width):
    sk.store(A + block("x") * width + thread("x"), 1.0)


@fault(OUT, "of `weights`", (1, 16), {"A": floats(18), "out": zeros(16)})
def blur_with_a_weight_too_many(A, out):
    weights = sk.alloc_local((3,), sk.float32)
    for k in sk.static_range(3):
        weights[k] = 1.0 / 3.0
    i = thread("x")
    total = sk.float32(0)
    for k in range(-1, 2):
        total += weights[k + 2] * A[i + 1 + k]
    out[i] = total


@fault(OUT, "axis 1 has 8", (8, 16), {"A": floats(4, 8), "out": zeros(8, 16)})
def upsampling_that_reads_one_past_the_border(A, out):
    y, x = block("x"), thread("x")
    x0 = x // 2
    out[y, x] = A[y // 2, x0] * 0.5 + A[y // 2, x0 + 1] * 0.5


@clean((8, 16), {"A": floats(4, 8), "out": zeros(8, 16)}, outputs=["out"])
def an_upsampling_that_repeats_the_border(A, out):
    y, x = block("x"), thread("x")
    x0 = x // 2
    out[y, x] = A[y // 2, x0] * 0.5 + A[y // 2, min(x0 + 1, A.shape[1] - 1)] * 0.5


@fault("UNINITIALISED_READ", "of `window`", (1, 8), {"A": floats(10, 10), "out": zeros(8)})
def median_of_eight_and_something(A, out):
    window = sk.alloc_local((9,), sk.float32)
    x = thread("x") + 1
    at = 0
    for dy in range(3):
        for dx in range(3):
            if dy != 1 or dx != 1:
                window[at] = A[dy, x + dx - 1]
                at += 1
    high = window[0]
    for k in range(1, 9):
        high = max(high, window[k])
    out[x - 1] = high


@fault("NAN_PRODUCED", "pow of", (1, 8), {"A": np.linspace(-0.5, 1, 8, dtype=np.float32), "out": zeros(8)})
def gamma_of_a_negative_pixel(A, out):
    out[thread("x")] = A[thread("x")] ** 0.45


@clean((1, 8), {"A": np.linspace(-0.5, 1, 8, dtype=np.float32), "out": zeros(8)})
def a_gamma_of_the_pixels_that_have_one(A, out):
    i = thread("x")
    bright = A[i] ** 0.45
    if A[i] > 0.0:
        out[i] = bright
    else:
        out[i] = sk.where(A[i] == 0.0, bright, 0.0)


@fault(
    "INDEX_OVERFLOW",
    "does not fit int16",
    (1, 4),
    {"A": zeros(70_000), "y": np.int16(300), "width": np.int16(200)},
    also=[OUT],
)
def pixel_by_16_bit_coordinates(A, y, width):
    A[y * width + thread("x").to(sk.int16)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 4), {"A": zeros(64), "frame": 1200, "H": 1080, "W": 1920})
def frame_of_a_long_video(A, frame, H, W):
    first = frame * H * W * 3
    A[(first + thread("x").to(sk.int32)) // 3 % 64] = 1.0


@fault("NAN_PRODUCED", "(0.0, 0.0)", (1, 8), {"A": np.ones(8, np.float32), "out": zeros(8)})
def contrast_of_an_even_image(A, out):
    low, high = A[0], A[0]
    for k in range(8):
        low, high = min(low, A[k]), max(high, A[k])
    out[thread("x")] = (A[thread("x")] - low) / (high - low)


@clean((1, 8), {"A": np.ones(8, np.float32), "out": zeros(8)}, outputs=["out"])
def a_contrast_that_an_even_image_does_without(A, out):
    low, high = A[0], A[0]
    for k in range(8):
        low, high = min(low, A[k]), max(high, A[k])
    scaled = (A[thread("x")] - low) / (high - low)
    out[thread("x")] = scaled if high > low else 0.0


@clean((2, 8), {"image": np.zeros((2, 8, 3), np.uint8), "out": np.zeros((2, 8), np.uint8)}, outputs=["out"])
def a_grey_image_by_pointers_of_rows(image, out):
    y, x = block("x"), thread("x")
    pixel = image[y].ptr + 3 * x
    total = sk.int32(0)
    for c in sk.static_range(3):
        total += sk.int32(sk.load(pixel + c))
    sk.store(out[y].ptr + x, sk.uint8(total // 3))


@clean((1, 64), {"A": floats(64), "out": zeros(32), "seed": 12345})
def random_samples_by_a_mixed_counter(A, out, seed):
    h = (thread("x") + seed).to(sk.uint32)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B)
    h = h ^ (h >> np.uint32(16))
    if thread("x") < 32:
        out[thread("x")] = A[(h % np.uint32(64))] + A[h >> np.uint32(26)]


# -- large sizes ------------------------------------------------------------------------------------------------------


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "x": -(2**31)}, also=[OUT])
def magnitude_of_the_least_integer(A, x):
    A[-x] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "x": 70_000}, also=[OUT])
def square_as_an_index(A, x):
    A[x**2] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "x": 3}, also=[OUT])
def doubling_until_it_wraps(A, x):
    at = x
    for _ in range(31):
        at = at * 2
    A[at] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "row": 50_000, "n": 4})
def product_clamped_into_the_array(A, row, n):
    A[max(0, min(row * row, n - 1))] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "row": 46_341, "n": 4}, also=[OUT])
def product_chosen_by_where(A, row, n):
    at = row * row
    A[sk.where(at < n, at, 0)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": ints(4), "row": 70_000, "pitch": 70_000}, also=[OUT])
def atomic_at_a_product(A, row, pitch):
    sk.atomic_add(A + row * pitch, 1)


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4), "at": np.uint32(2**32 - 1)}, also=[OUT])
def unsigned_that_becomes_signed(A, at):
    A[at.to(sk.int32)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (4, 2), {"A": zeros(16), "per_block": 2**30}, also=[OUT])
def loop_from_a_start_that_wraps(A, per_block):
    first = block("x").to(sk.int32) * per_block
    for i in range(first, first + 2):
        A[i] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(16), "rows": 50_000, "columns": 50_000}, also=[OUT])
def loop_to_an_end_that_wraps(A, rows, columns):
    for i in range(rows * columns):
        if i < 16:
            A[i] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(16), "step": 2**30}, also=[OUT])
def loop_with_a_step_that_wraps(A, step):
    for i in range(0, 16, step * 2):
        A[i] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 16), {"A": zeros(16), "n": 256, "c": 512, "h": 512, "w": 512})
def bound_of_four_extents(A, n, c, h, w):
    i = thread("x").to(sk.int32)
    if i < n * c * h * w:
        A[i] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", 1, {"A": zeros(8), "pitch": 2**29, "BLOCK": 8}, also=[OUT])
def tile_of_offsets_that_wraps(A, pitch, BLOCK: sk.constexpr):
    j = sk.arange(0, BLOCK).to(sk.int32)
    sk.store(A + j * pitch, 1.0)


@fault("INDEX_OVERFLOW", "does not fit uint32", (1, 4), {"A": zeros(8), "n": np.uint32(0)}, also=[OUT])
def last_element_of_an_empty_array(A, n):
    A[n - np.uint32(1)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(64), "x": 40_000, "y": 60_000, "W": 60_000})
def cell_of_a_grid_modulo_its_size(A, x, y, W):
    A[(y * W + x) % 61] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(64), "x": 40_000, "y": 60_000, "W": 60_000})
def cell_of_a_coarse_grid_masked(A, x, y, W):
    A[((y * W + x) // 3) & 63] = 1.0


def flat(y, x, W):
    return y * W + x


@fault(
    "INDEX_OVERFLOW", "`flat` inlined at", (1, 1), {"A": zeros(64), "x": 40_000, "y": 60_000, "W": 60_000}, also=[OUT]
)
def overflow_in_a_helper(A, x, y, W):
    A[flat(y, x, W)] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 1), {"A": zeros(4, 4), "y": 50_000}, also=[OUT])
def overflow_in_one_axis(A, y):
    A[(y * y) % 4095, 0] = 1.0


@fault("INDEX_OVERFLOW", "does not fit int32", (1, 32), {"A": zeros(64), "big": 2**31 - 10}, also=[OUT])
def overflow_in_shared_memory(A, big):
    tile = sk.alloc_shared((32,), sk.float32)
    t = thread("x").to(sk.int32)
    tile[t] = 0.0
    sk.syncthreads()
    A[t] = tile[(big + t) // 2**27]


@clean((1, 32), {"A": zeros(64), "big": 2**31 - 10})
def a_sum_that_comes_back_in_time(A, big):
    t = thread("x").to(sk.int32)
    A[big + t - (2**31 - 10)] = 1.0


@clean((1, 16), {"A": zeros(16), "n": 2, "c": 2, "h": 2, "w": 2})
def a_bound_that_fits(A, n, c, h, w):
    i = thread("x").to(sk.int32)
    if i < n * c * h * w:
        A[i] = 1.0


@clean((1, 64), {"A": np.arange(64, dtype=np.int64), "bins": ints(10)})
def a_rolling_hash_modulo_a_prime(A, bins):
    h = sk.int64(0)
    for k in range(8):
        h = (h * 131 + A[(thread("x") + k) % 64]) % 1_000_000_007
    sk.atomic_add(bins + h % 10, 1)


@clean((1, 64), {"out": zeros(64)})
def a_halton_sequence(out):
    i, base, f, r = thread("x").to(sk.int32) + 1, 3, sk.float32(1), sk.float32(0)
    while i > 0:
        f = f / base
        r += f * (i % base)
        i = i // base
    out[thread("x")] = r


@clean((1, 32), {"keys": np.arange(32, dtype=np.int32) * -1_234_567, "table": ints(64)})
def a_hash_table_with_probing(keys, table):
    key = keys[thread("x")]
    h = sk.uint32(key)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    slot = (h >> np.uint32(26)).to(sk.int32)
    for _ in range(64):
        seen = sk.atomic_cas(table + slot, 0, key + 1)
        if seen == 0 or seen == key + 1:
            break
        slot = (slot + 1) & 63


@clean((1, 32), {"A": zeros(32), "out": ints(32)})
def a_morton_code(A, out):
    x = thread("x").to(sk.uint32)
    x = (x | (x << np.uint32(8))) & np.uint32(0x00FF00FF)
    x = (x | (x << np.uint32(4))) & np.uint32(0x0F0F0F0F)
    x = (x | (x << np.uint32(2))) & np.uint32(0x33333333)
    x = (x | (x << np.uint32(1))) & np.uint32(0x55555555)
    out[thread("x")] = x.to(sk.int32)
    if x < np.uint32(32):
        A[x] = 1.0


@clean(
    (1, 8),
    {"pixels": np.arange(8, dtype=np.uint32) * np.uint32(0x11223344), "lut": ints(256), "out": ints(8)},
    outputs=["out"],
)
def channels_of_a_packed_pixel(pixels, lut, out):
    p = pixels[thread("x")]
    r, g, b = p >> np.uint32(24), (p >> np.uint32(16)) & np.uint32(255), (p << np.uint32(8)) >> np.uint32(24)
    out[thread("x")] = lut[r] + lut[g] + lut[b]


# -- pointers of views -------------------------------------------------------------------------------------------------


@fault(OUT, "of a view of `buffer`", sk.cuda.LaunchConfig(1, 32, 256), {})
def first_half_of_dynamic_shared_memory_overrun():
    buffer = sk.dynamic_shared(sk.float32, 64)
    first = buffer[:32].ptr
    sk.store(first + thread("x") + 1, 1.0)


@clean(sk.cuda.LaunchConfig(1, 32, 256), {"out": zeros(32)}, outputs=["out"])
def halves_of_dynamic_shared_memory(out):
    buffer = sk.dynamic_shared(sk.float32, 64)
    first, second = buffer[:32].ptr, buffer[32:].ptr
    sk.store(first + thread("x"), 1.0)
    sk.store(second + thread("x"), 2.0)
    out[thread("x")] = sk.load(first + thread("x")) + sk.load(second + thread("x"))


@fault(OUT, "of a view of `A`", (1, 8), {"A": zeros(8)})
def reversed_view_walked_forwards(A):
    sk.store(A[::-1].ptr + thread("x"), 1.0)


@clean((1, 8), {"A": zeros(8)})
def a_reversed_view_walked_backwards(A):
    sk.store(A[::-1].ptr - thread("x"), 1.0)


@fault(OUT, "of a view of `A`", (1, 4), {"A": zeros(4, 8), "out": zeros(4)})
def row_of_the_transpose_taken_for_contiguous(A, out):
    out[thread("x")] = sk.load(A.T[3].ptr + thread("x"))


@fault(OUT, "of a view of `A`", (1, 8), {"A": zeros(6, 8), "out": zeros(8), "lo": 1, "hi": 3})
def rows_beyond_a_slice_of_rows(A, out, lo, hi):
    rows = A[lo:hi].ptr
    total = sk.float32(0)
    for r in range(3):
        total += sk.load(rows + r * 8 + thread("x"))
    out[thread("x")] = total


@sk.inline
def row_total(row, n):
    total = sk.float32(0)
    for j in range(n):
        total += sk.load(row + j)
    return total


@fault(OUT, "of a view of `A`", (1, 3), {"A": zeros(4, 8), "out": zeros(4)})
def row_summed_by_a_fragment_with_the_wrong_length(A, out):
    i = thread("x")
    out[i] = row_total(A[i], 9)


@clean((1, 4), {"A": zeros(4, 8), "out": zeros(4)}, outputs=["out"])
def rows_summed_by_a_fragment(A, out):
    i = thread("x")
    out[i] = row_total(A[i], A.shape[1])


@fault(OUT, "of a view of `A`", (1, 8), {"A": zeros(4, 10)[1:3, 1:9:2], "n": 8})
def pointer_to_a_block_with_gaps(A: sk.Pointer(sk.float32), n):
    if thread("x") < n:
        sk.store(A + thread("x"), 1.0)


@clean((2, 4), {"A": zeros(4, 10)[1:3, 1:9:2]})
def a_block_with_gaps_by_its_strides(A: sk.Pointer(sk.float32)):
    sk.store(A + block("x") * 10 + 2 * thread("x"), 1.0)


@fault(OUT, "of a view of `A`", (1, 2), {"A": zeros(2, 3, 4), "out": zeros(2)})
def plane_of_a_volume_overrun(A, out):
    out[thread("x")] = sk.load(A[0].ptr + 11 + thread("x"))


@fault(OUT, "of a view of `A`", (2, 8), {"A": zeros(2, 6), "B": zeros(2, 8)})
def copy_of_rows_with_the_length_of_the_longer(A, B):
    r, j = block("x"), thread("x")
    if j < B.shape[1]:
        sk.store(B[r] + j, sk.load(A[r] + j))


# -- values that not every lane needs ---------------------------------------------------------------------------------


@clean((1, 4), {"x": np.array([1, 0, 2, -1], np.float32), "out": zeros(4)}, outputs=["out"])
def a_quotient_in_a_match(x, out):
    i = thread("x")
    q = 1.0 / (x[i] * 0.0) * 0.0
    out[i] = 0.0
    if i > 7 and q > 0.0:
        out[i] = q


@sk.inline
def safe_log(x):
    y = math.log(x)
    if x <= 0.0:
        return sk.float32(-1)
    return y


@clean((1, 4), {"x": np.array([1, 0, 2, -1], np.float32), "out": zeros(4)}, outputs=["out"])
def a_logarithm_behind_the_early_return_of_a_fragment(x, out):
    i = thread("x")
    out[i] = safe_log(x[i])


@clean((1, 4), {"x": np.array([1, 0, 2, -1], np.float32), "out": zeros(4)}, outputs=["out"])
def a_root_behind_a_chain_of_elif(x, out):
    i = thread("x")
    v = x[i]
    root, inverse = math.sqrt(v), (v - v) / v
    if v < 0.0:
        out[i] = -1.0
    elif v == 0.0:
        out[i] = root
    else:
        out[i] = inverse + root


@fault("NAN_PRODUCED", "div of (0.0, 0.0)", (1, 4), {"x": np.array([1, 0, 2, -1], np.float32), "out": zeros(4)})
def inverse_in_the_wrong_elif(x, out):
    i = thread("x")
    v = x[i]
    inverse = (v - v) / v
    if v < 0.0:
        out[i] = -1.0
    elif v == 0.0:
        out[i] = inverse
    else:
        out[i] = 1.0


@clean((1, 4), {"x": np.array([1, 0, 2, -1], np.float32), "out": zeros(4)})
def a_root_that_ends_the_loop(x, out):
    for k in range(4):
        root = math.sqrt(x[k])
        if x[k] < 0.0:
            break
        out[k] = root


@clean((1, 32), {"x": zeros(32), "n": ints(32), "out": zeros(1)}, outputs=["out"])
def a_mean_of_the_first_lane(x, n, out):
    i = thread("x")
    total, count = x[i], n[i] + (1 if i == 0 else 0)
    mean = total / sk.float32(count)
    if i == 0:
        out[0] = mean


@clean((1, 8), {"A": ints(8), "d": ints(8), "out": ints(8)}, outputs=["out"])
def a_remainder_in_a_short_circuit(A, d, out):
    i = thread("x")
    r = A[i] % d[i]
    out[i] = 1 if d[i] != 0 and r == 0 else 0


@fault("DIVISION_BY_ZERO", "% 0", (1, 8), {"A": ints(8), "d": ints(8), "out": ints(8)})
def remainder_in_the_wrong_order(A, d, out):
    i = thread("x")
    out[i] = 1 if A[i] % d[i] == 0 and d[i] != 0 else 0


# -- warps ------------------------------------------------------------------------------------------------------------


@fault("MASKS_DIFFER", "names lane", (1, 64), {"n": 40, "A": ints(64), "out": ints(64)})
def mask_of_what_each_lane_has_left(n, A, out):
    i = thread("x")
    left = min(32, n - i // 32 * 32)
    mask = sk.uint32(FULL) if i % 2 == 0 else (sk.uint32(FULL) >> sk.uint32(32 - left))
    if i < n:
        out[i] = sk.all_sync(mask, A[i] == 0).to(sk.int32)


@clean((1, 64), {"n": 40, "A": ints(64), "out": ints(64)})
def a_mask_of_what_the_warp_has_left(n, A, out):
    i = thread("x")
    left = min(32, n - i // 32 * 32)
    mask = sk.uint32(FULL) >> sk.uint32(32 - left)
    if i < n:
        out[i] = sk.all_sync(mask, A[i] == 0).to(sk.int32)


@fault("LANE_NOT_HERE", "names lanes", (1, 32), {"out": ints(32)})
def syncwarp_in_a_loop_that_lanes_leave(out):
    i = thread("x")
    k = 0
    while k < i:
        sk.syncwarp()
        k += 1
    out[i] = k


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def a_loop_whose_lanes_vote_before_each_round(out):
    i, k = thread("x"), 0
    mask = sk.ballot_sync(FULL, k < i)
    while k < i:
        k += 1
        mask = sk.ballot_sync(mask, k < i)
    out[i] = k
