"""Masks of warp operations: PTX wants one mask in all the lanes that it names."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import FULL, clean, fault, ints, thread

LOW, HIGH = 0xFFFF, 0xFFFF0000  # the halves of a warp


@fault(
    "MASKS_DIFFER",
    "the mask 0xffffffff of lane 16 names lane 0, whose mask is 0x0000ffff",
    (1, 32),
    {"out": ints(32)},
)
def shuffle_whose_halves_give_different_masks(out):
    i = thread("x")
    mask = sk.uint32(LOW) if i < 16 else sk.uint32(FULL)
    out[i] = sk.shfl_sync(mask, sk.int32(i), 0)


@fault("MASKS_DIFFER", "names lane", (1, 32), {"out": ints(32)})
def vote_that_counts_up_to_its_own_lane(out):
    i = thread("x")
    up_to_me = sk.uint32(FULL) >> (31 - i).to(sk.uint32)
    out[i] = sk.popcount(sk.ballot_sync(up_to_me, i % 3 == 0)).to(sk.int32)


@fault("MASKS_DIFFER", "names lane", (1, 32), {"out": ints(32)})
def any_among_the_neighbours(out):
    i = thread("x")
    neighbours = sk.uint32(FULL) if i == 0 or i == 31 else sk.uint32(7) << (i - 1).to(sk.uint32)
    out[i] = sk.any_sync(neighbours, i == 5).to(sk.int32)


@fault("MASKS_DIFFER", "names lane", (1, 32), {"out": ints(32)})
def all_of_a_group_with_one_stray(out):
    i = thread("x")
    mask = sk.uint32(0xFF) << ((i // 8) * 8).to(sk.uint32)
    if i == 9:
        mask = sk.uint32(FULL)
    out[i] = sk.all_sync(mask, i >= 0).to(sk.int32)


@fault("MASKS_DIFFER", "names lane", (1, 32), {"keys": np.arange(32, dtype=np.int32) // 4, "out": ints(32)})
def match_among_those_behind(keys, out):
    i = thread("x")
    mask = sk.uint32(FULL) << i.to(sk.uint32)
    out[i] = sk.popcount(sk.match_any_sync(mask, keys[i])).to(sk.int32)


@fault("MASKS_DIFFER", "names lane", (1, 32), {"out": ints(32)})
def syncwarp_whose_leader_waits_for_all(out):
    tile = sk.alloc_shared((32,), sk.int32)
    i = thread("x")
    tile[i] = i
    sk.syncwarp(sk.uint32(FULL) if i == 0 else sk.uint32(1) | (sk.uint32(1) << i.to(sk.uint32)))
    out[i] = tile[i]


@fault("MASKS_DIFFER", "names lane", (1, 32), {"out": ints(32)}, also=["LANE_NOT_HERE", "ABSENT_LANE_READ"])
def reduction_whose_halves_give_different_masks(out):
    i = thread("x")
    mask = sk.uint32(LOW) if i < 16 else sk.uint32(FULL)
    out[i] = sk.redux_sync_add(mask, sk.int32(i))


@fault("MASKS_DIFFER", "names lane", (1, 32), {"out": ints(32)}, also=["ABSENT_LANE_READ"])
def shuffle_down_with_the_mask_of_what_is_left(out):
    """The mask shrinks for the lanes that are behind, not for the others."""
    i = thread("x")
    total = sk.int32(i)
    for step in sk.static_range(3):
        mask = sk.uint32(FULL) if i < 32 - (1 << step) else sk.uint32(HIGH)
        total += sk.shfl_down_sync(mask, total, 1 << step)
    out[i] = total


@fault("MASKS_DIFFER", "names lane", (1, 32), {"n": 20, "out": ints(32)})
def mask_of_the_branch_that_a_lane_would_take(n, out):
    i = thread("x")
    busy = sk.ballot_sync(FULL, i < n)
    mask = busy if i < n else sk.uint32(FULL)
    out[i] = sk.any_sync(mask, i == 0).to(sk.int32)


@fault(
    "MASKS_DIFFER", "names lane", (1, 64), {"masks": np.array([FULL] * 40 + [0xFF00] * 24, np.uint32), "out": ints(64)}
)
def masks_that_are_read_from_memory(masks, out):
    """The second warp is at fault: 8 of its lanes say one thing, 24 another."""
    i = thread("x")
    out[i] = sk.ballot_sync(masks[i] | (sk.uint32(1) << (i % 32).to(sk.uint32)), i < 50).to(sk.int32)


@fault("LANE_OUTSIDE_MASK", "lane 0 is not in its mask 0x00000000", (1, 32), {"out": ints(32)})
def mask_that_is_empty(out):
    i = thread("x")
    sk.syncwarp(0)
    out[i] = 1


@fault("LANE_NOT_HERE", "names lanes 0xfff00000", (1, 32), {"n": 20, "out": ints(32)})
def full_mask_behind_a_bound(n, out):
    i = thread("x")
    if i < n:
        out[i] = sk.all_sync(FULL, i < 10).to(sk.int32)
    out[i] = out[i] + 1


@clean((1, 32), {"out": ints(32)}, outputs=["out"])
def a_shuffle_of_each_half_by_itself(out):
    """Halves that never meet may have masks of their own."""
    i = thread("x")
    mask = sk.uint32(LOW) if i < 16 else sk.uint32(HIGH)
    out[i] = sk.shfl_xor_sync(mask, sk.int32(i), 8)


@clean((1, 64), {"out": ints(64)}, outputs=["out"])
def a_vote_of_each_group_of_eight(out):
    i = thread("x")
    group = (i % 32) // 8
    mask = sk.uint32(0xFF) << (group * 8).to(sk.uint32)
    out[i] = sk.popcount(sk.ballot_sync(mask, i % 3 == 0)).to(sk.int32)


@clean((2, 48), {"keys": np.arange(96, dtype=np.int32) % 5, "counts": ints(5)})
def an_atomic_per_group_of_equal_keys(keys, counts):
    """Warp-aggregated counting: each group has the mask that the match gave it."""
    i = sk.cuda.block_idx("x") * 48 + thread("x")
    lanes = sk.uint32(FULL) if thread("x") < 32 else sk.uint32(LOW)
    peers = sk.match_any_sync(lanes, keys[i])
    leader = 31 - sk.clz(peers & (~peers + 1)).to(sk.int32)
    size = sk.popcount(peers).to(sk.int32)
    first = 0
    if sk.lane_id() == leader:
        first = sk.atomic_add(counts + keys[i], size)
    first = sk.shfl_sync(peers, first, leader)


@clean((1, 64), {"n": 50, "A": np.arange(64, dtype=np.int32), "out": ints(2)}, outputs=["out"])
def a_reduction_of_the_lanes_that_have_work(n, A, out):
    """The mask is voted before the branch, so that it is one in each warp."""
    i = thread("x")
    mask = sk.ballot_sync(FULL, i < n)
    if i < n:
        total = sk.redux_sync_add(mask, A[i])
        if sk.lane_id() == 0:
            out[sk.warp_id()] = total


@clean((1, 20), {"out": ints(20)}, outputs=["out"])
def a_full_mask_in_a_partial_warp(out):
    i = thread("x")
    sk.syncwarp(FULL)
    out[i] = sk.shfl_sync(FULL, sk.int32(i), 3)
