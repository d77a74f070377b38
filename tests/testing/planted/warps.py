"""Shuffles, votes and `syncwarp`: lanes that are elsewhere, do not exist, or are not in the mask."""

from __future__ import annotations

import stagekit as sk

from .table import FULL, clean, fault, ints, thread


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


@fault("LANE_NOT_HERE", "names lanes 0xaaaaaaaa", (1, 32), {"out": ints(32)}, also=["ABSENT_LANE_READ"])
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


@fault(
    "LANE_NOT_HERE",
    "names lanes 0x000000f0, which do not run this",
    (1, 32),
    {"out": ints(32)},
    also=["ABSENT_LANE_READ"],
)
def a_tile_of_which_half_is_elsewhere(out):
    i = thread("x")
    if i < 4:
        out[i] = sk.tiled_partition(8).reduce(sk.int32(i), lambda a, b: a + b)
    out[i] += 1


@clean((1, 32), {"out": ints(32)})
def a_tile_that_is_here_as_a_whole(out):
    i = thread("x")
    if i < 8:
        out[i] = sk.tiled_partition(8).reduce(sk.int32(i), lambda a, b: a + b)


@fault("ABSENT_LANE_READ", "which does not exist in a block of 20 threads", (1, 20), {"out": ints(20)})
def the_last_tile_is_short(out):
    i = thread("x")
    out[i] = sk.tiled_partition(8).reduce(sk.int32(i), lambda a, b: a + b)


@fault("LANE_NOT_HERE", "do not run this", (1, 32), {"out": ints(32)}, also=["ABSENT_LANE_READ"])
def lanes_part_after_they_were_one_group(out):
    i = thread("x")
    group = sk.coalesced_threads()
    if i % 3 == 0:
        out[i] = group.shfl(sk.int32(i), 1)
    out[i] += 1


@clean((1, 32), {"out": ints(32)})
def a_group_of_the_lanes_that_are_left(out):
    i = thread("x")
    if i % 3 == 0:
        out[i] = sk.coalesced_threads().shfl(sk.int32(i), 1)
