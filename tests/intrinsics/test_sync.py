"""Barriers that also count, fences, and the indices by which threads know each other."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk
from tests.places import each_place, run


@sk.jit
def barriers(src, counts, ands, ors):
    t = sk.cuda.thread_idx("x")
    counts[t] = sk.syncthreads_count(src[t])
    ands[t] = sk.syncthreads_and(src[t])
    ors[t] = sk.syncthreads_or(src[t])


@each_place
@pytest.mark.parametrize("threads", [1, 31, 32, 33, 100, 1024])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_barriers_count_over_the_whole_block(place, threads, share):
    src = np.random.default_rng(0).random(threads) < share
    outs = [np.zeros(threads, np.int32), np.zeros(threads, np.bool_), np.zeros(threads, np.bool_)]

    _, counts, ands, ors = run(place, barriers[1, threads], [src, *outs])

    assert set(counts.tolist()) == {int(src.sum())}
    assert set(ands.tolist()) == {bool(src.all())}
    assert set(ors.tolist()) == {bool(src.any())}


@sk.jit
def reverse(src, dst, THREADS: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    buffer = sk.alloc_shared((THREADS,), src.dtype)
    buffer[t] = src[t]
    sk.syncthreads()
    dst[t] = buffer[THREADS - 1 - t]


@each_place
@pytest.mark.parametrize("threads", [1, 2, 31, 33, 100, 256, 1000, 1024])
def test_a_barrier_makes_writes_visible(place, threads):  # P38
    x = np.arange(threads, dtype=np.float32)

    _, out = run(place, reverse[1, threads], [x, np.zeros(threads, np.float32)], threads)

    np.testing.assert_array_equal(out, x[::-1])


@sk.jit
def pass_on(src, dst):
    """Each lane reads its neighbour's cell after the warp's barrier."""
    t = sk.cuda.thread_idx("x")
    cells = sk.alloc_shared((64,), src.dtype)
    cells[t] = src[t]
    sk.syncwarp()
    dst[t] = cells[t ^ 1]


@each_place
def test_a_warp_barrier_makes_writes_visible_to_the_warp(place):
    x = np.arange(64, dtype=np.int32)

    _, out = run(place, pass_on[1, 64], [x, np.zeros(64, np.int32)])

    np.testing.assert_array_equal(out, x.reshape(-1, 2)[:, ::-1].ravel())


@sk.jit
def last_block_sums(src, partial, ticket, total, blocks):
    """The classic use of a fence: publish a part, then take a ticket; the last one sees all parts."""
    b = sk.cuda.block_idx("x")
    partial[b] = src[b] * 2
    sk.threadfence()
    if sk.atomic_add(ticket.ptr_to(0), 1) == blocks - 1:
        sk.threadfence()
        result = sk.int32(0)
        for i in range(blocks):
            result += partial[i]
        total[0] = result


@each_place
def test_a_fence_orders_writes_before_the_ticket(place):
    x = np.arange(100, dtype=np.int32)
    zeros = [np.zeros(100, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]

    *_, total = run(place, last_block_sums[100, 1], [x, *zeros], 100)

    assert total[0] == 2 * x.sum()


@pytest.mark.parametrize(
    ("fence", "instruction"),
    [("threadfence_block", "membar.cta"), ("threadfence", "membar.gl"), ("threadfence_system", "membar.sys")],
)
def test_fences_have_three_scopes(fence, instruction):
    order = getattr(sk, fence)

    @sk.jit
    def kernel():
        order()

    assert instruction in kernel.specialize().ptx


@sk.jit
def who(dst):
    x, y, z = (sk.cuda.thread_idx(axis) for axis in "xyz")
    width, height, depth = (sk.cuda.block_dim(axis) for axis in "xyz")
    thread = (z * height + y) * width + x
    block = (sk.cuda.block_idx("z") * sk.cuda.grid_dim("y") + sk.cuda.block_idx("y")) * sk.cuda.grid_dim("x")
    block += sk.cuda.block_idx("x")
    at = block * width * height * depth + thread
    for k, value in enumerate((x, y, z, sk.lane_id(), sk.warp_id(), block, sk.cuda.grid_dim("z"))):
        dst[at, k] = value


@each_place
@pytest.mark.parametrize(("grid", "block"), [((2, 3, 2), (4, 5, 3)), ((1,), (33,)), ((3, 1), (1, 40))])
def test_indices_count_x_first(place, grid, block):
    (gx, gy, gz), (bx, by, bz) = ((*axes, 1, 1)[:3] for axes in (grid, block))
    blocks, threads = gx * gy * gz, bx * by * bz

    (out,) = run(place, who[grid, block], [np.zeros((blocks * threads, 7), np.int64)])

    at = np.arange(threads)
    expected = np.stack([at % bx, at // bx % by, at // bx // by, at % 32, at // 32], axis=1)
    for b in range(blocks):
        rows = out[b * threads : (b + 1) * threads]
        np.testing.assert_array_equal(rows[:, :5], expected)
        assert set(rows[:, 5].tolist()) == {b}
        assert set(rows[:, 6].tolist()) == {gz}


@sk.jit
def programs(dst):
    place = (sk.program_id(2) * sk.num_programs(1) + sk.program_id(1)) * sk.num_programs(0) + sk.program_id()
    sk.store(dst + place * 2 + sk.arange(0, 2), place)


@each_place
def test_programs_are_blocks(place):
    (out,) = run(place, programs[2, 3, 4], [np.zeros(48, np.int64)])

    np.testing.assert_array_equal(out, np.repeat(np.arange(24), 2))


def test_an_axis_that_is_none_is_refused():
    @sk.jit
    def kernel(p):
        sk.store(p, sk.cuda.thread_idx("w"))

    with pytest.raises(sk.StagekitError, match="axis"):
        kernel.specialize(p=sk.Pointer(sk.int64)).ir
