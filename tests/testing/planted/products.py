"""Products of warpgroups: sums that are read too early, by every kind of op, and left factors that are written too early."""

from __future__ import annotations

import numpy as np

import stagekit as sk

from .table import FULL, clean, fault, thread, zeros

EARLY, OVERWRITTEN = "SUMS_NOT_THERE", "FACTOR_OVERWRITTEN"
READ, WRITTEN = "reads a sum of a product under way", "a word of the left factor has a new value here"
ROOM = {"out": zeros(128)}
BEHIND = ["PRODUCT_LEFT_BEHIND"]  # where nobody waits at all


@sk.inline
def ones():
    """A factor of ones, ready for products: eight rows of it are the right one, and 64 the left one."""
    panel = sk.alloc_shared((64 * 64,), sk.float16, align=1024)
    for i in range(thread("x"), 64 * 64, 128):
        panel[i] = 1
    sk.cuda.fence_proxy_async()
    sk.syncthreads()
    return panel


@sk.inline
def begun():
    """The sums of a product, under way and in a group."""
    panel = ones()
    sk.cuda.wgmma_fence()
    sums = sk.cuda.wgmma_m64n8(panel, panel, *[sk.float32(0)] * 4)
    sk.cuda.wgmma_commit()
    return list(sums)


@sk.inline
def settled(sums, pending=0):
    return list(sk.cuda.wgmma_wait_m64n8(*sums, pending=pending))


@fault(EARLY, READ, (1, 128), ROOM, BEHIND)
def sum_stored_without_a_wait(out):
    out[thread("x")] = begun()[3]


@fault(EARLY, "sums = sk.cuda.wgmma_m64n8(panel, panel", (1, 128), ROOM)
def sum_stored_before_its_wait(out):
    sums = begun()
    out[thread("x")] = sums[1]
    settled(sums)


@clean((1, 128), ROOM, outputs=["out"])
def a_sum_stored_behind_its_wait(out):
    out[thread("x")] = settled(begun())[1]


@fault(EARLY, READ, (1, 128), ROOM)
def old_name_of_a_sum_stored_behind_its_wait(out):
    """Registers that no wait has returned are read whenever the compiler likes."""
    sums = begun()
    settled(sums)
    out[thread("x")] = sums[0]


@fault(EARLY, READ, (1, 128), ROOM)
def sum_compared_before_its_wait(out):
    sums = begun()
    is_large = sums[0] > 3
    settled(sums)
    out[thread("x")] = 1.0 if is_large else 0.0


@clean((1, 128), ROOM, outputs=["out"])
def a_sum_compared_behind_its_wait(out):
    sums = settled(begun())
    out[thread("x")] = 1.0 if sums[0] > 3 else 0.0


@fault(EARLY, READ, (1, 128), {"out": zeros(128, dtype=np.float16)})
def sum_converted_before_its_wait(out):
    sums = begun()
    narrow = sums[0].to(sk.float16)
    settled(sums)
    out[thread("x")] = narrow


@clean((1, 128), {"out": zeros(128, dtype=np.float16)}, outputs=["out"])
def a_sum_converted_behind_its_wait(out):
    out[thread("x")] = settled(begun())[0].to(sk.float16)


@fault(EARLY, READ, (1, 128), ROOM)
def sum_scaled_before_its_wait(out):
    sums = begun()
    scaled = sums[2] * 0.5
    settled(sums)
    out[thread("x")] = scaled


@clean((1, 128), ROOM, outputs=["out"])
def another_number_scaled_before_the_wait(out):
    sums = begun()
    scaled = sk.float32(thread("x")) * 0.5
    out[thread("x")] = settled(sums)[2] + scaled


@fault(EARLY, READ, (1, 128), ROOM)
def sum_bits_looked_at_before_its_wait(out):
    sums = begun()
    bits = sums[0].view(sk.int32)
    settled(sums)
    out[thread("x")] = sk.float32(bits & 1)


@fault(EARLY, READ, (1, 128), ROOM)
def sum_shuffled_before_its_wait(out):
    sums = begun()
    other = sk.shfl_xor_sync(FULL, sums[0], 1)
    settled(sums)
    out[thread("x")] = other


@clean((1, 128), ROOM, outputs=["out"])
def a_sum_shuffled_behind_its_wait(out):
    out[thread("x")] = sk.shfl_xor_sync(FULL, settled(begun())[0], 1)


@fault(EARLY, READ, (1, 128), ROOM)
def larger_of_a_sum_before_its_wait(out):
    sums = begun()
    larger = sk.maximum(sums[0], 1.0)
    settled(sums)
    out[thread("x")] = larger


@fault(EARLY, READ, (1, 128), ROOM)
def sum_chosen_in_half_of_a_warp(out):
    sums = begun()
    x = sk.float32(0)
    if sk.lane_id() < 16:
        x = sums[0]
    out[thread("x")] = x
    settled(sums)


@clean((1, 128), ROOM, outputs=["out"])
def a_sum_waited_for_in_one_of_two_arms(out):
    sums = begun()
    if sk.cuda.warp_id() < 4:
        sums = settled(sums)
    out[thread("x")] = sums[0]


@fault(EARLY, READ, (1, 128), ROOM)
def sum_of_the_group_that_may_be_pending(out):
    """The wait for all groups but one returns the sums of the latest one as they were."""
    panel = ones()
    first = second = [sk.float32(0)] * 4
    sk.cuda.wgmma_fence()
    first = list(sk.cuda.wgmma_m64n8(panel, panel, *first))
    sk.cuda.wgmma_commit()
    second = list(sk.cuda.wgmma_m64n8(panel, panel, *second))
    sk.cuda.wgmma_commit()
    second = settled(second, 1)
    out[thread("x")] = second[0]
    settled(first)


@clean((1, 128), ROOM, outputs=["out"])
def a_sum_of_the_group_that_is_not_pending(out):
    panel = ones()
    first = second = [sk.float32(0)] * 4
    sk.cuda.wgmma_fence()
    first = list(sk.cuda.wgmma_m64n8(panel, panel, *first))
    sk.cuda.wgmma_commit()
    second = list(sk.cuda.wgmma_m64n8(panel, panel, *second))
    sk.cuda.wgmma_commit()
    first = settled(first, 1)
    out[thread("x")] = first[0]
    settled(second)


@fault(EARLY, READ, (1, 128), {"out": np.zeros(128, np.int32)})
def integer_sum_stored_before_its_wait(out):
    panel = ones()
    bytes_ = panel.ptr.to(sk.int8)
    sk.cuda.wgmma_fence()
    sums = sk.cuda.wgmma_m64n8(bytes_, bytes_, *[sk.int32(0)] * 4)
    sk.cuda.wgmma_commit()
    out[thread("x")] = sums[0]
    settled(sums)


@fault(EARLY, READ, (1, 128), {"n": 3, **ROOM})
def sums_scaled_in_the_round_in_which_they_are_begun(n, out):
    panel = ones()
    sums = [sk.float32(0)] * 4
    total = sk.float32(0)
    for _ in range(n):
        sk.cuda.wgmma_fence()
        sums = list(sk.cuda.wgmma_m64n8(panel, panel, *sums))
        sk.cuda.wgmma_commit()
        total += sums[0]
        sums = settled(sums)
    out[thread("x")] = total


@clean((1, 128), {"n": 3, **ROOM}, outputs=["out"])
def sums_scaled_behind_the_wait_of_each_round(n, out):
    panel = ones()
    sums = [sk.float32(0)] * 4
    total = sk.float32(0)
    for _ in range(n):
        sk.cuda.wgmma_fence()
        sums = list(sk.cuda.wgmma_m64n8(panel, panel, *sums))
        sk.cuda.wgmma_commit()
        sums = settled(sums)
        total += sums[0]
    out[thread("x")] = total


# -- left factors in registers --------------------------------------------------------------------------------------------


@sk.inline
def multiplied(words, panel, sums):
    sk.cuda.wgmma_fence()
    sums = list(sk.cuda.wgmma_rs_m64n8(*words, panel, *sums))
    sk.cuda.wgmma_commit()
    return sums


@fault(OVERWRITTEN, WRITTEN, (1, 128), {"n": 3, **ROOM})
def words_computed_anew_while_the_last_ones_are_multiplied(n, out):
    panel = ones()
    sums = [sk.float32(0)] * 4
    for i in range(n):
        words = [sk.uint32(i) * 0x10001 + w for w in range(4)]
        sums = multiplied(words, panel, sums)
    out[thread("x")] = settled(sums)[0]


@clean((1, 128), {"n": 3, **ROOM}, outputs=["out"])
def words_computed_anew_behind_the_wait(n, out):
    panel = ones()
    sums = [sk.float32(0)] * 4
    for i in range(n):
        words = [sk.uint32(i) * 0x10001 + w for w in range(4)]
        sums = settled(multiplied(words, panel, sums))
    out[thread("x")] = sums[0]


@fault(OVERWRITTEN, "sums = list(sk.cuda.wgmma_rs_m64n8", (1, 128), {"n": 3, **ROOM})
def words_carried_to_the_next_round_while_the_last_ones_are_multiplied(n, out):
    panel = ones()
    sums = [sk.float32(0)] * 4
    words = [sk.uint32(w) for w in range(4)]
    for i in range(n):
        sums = multiplied(words, panel, sums)
        words = [each + sk.uint32(i) for each in words]
    out[thread("x")] = settled(sums)[0]


@clean((1, 128), {"n": 3, **ROOM}, outputs=["out"])
def words_that_stay_in_every_round(n, out):
    panel = ones()
    sums = [sk.float32(0)] * 4
    words = [sk.uint32(w) + sk.uint32(thread("x")) for w in range(4)]
    for _ in range(n):
        sums = multiplied(words, panel, sums)
    out[thread("x")] = settled(sums)[0]


@clean((1, 128), ROOM, outputs=["out"])
def other_words_computed_while_the_first_ones_are_multiplied(out):
    panel = ones()
    sums = [sk.float32(0)] * 4
    sums = multiplied([sk.uint32(thread("x")) + w for w in range(4)], panel, sums)
    sums = multiplied([sk.uint32(thread("x")) * w for w in range(4)], panel, sums)
    out[thread("x")] = settled(sums)[0]
