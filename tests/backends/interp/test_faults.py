"""Planted faults, one small kernel each beside the finding it must give; and clean kernels that must give none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagekit import dtypes
from stagekit.backends.interp import CHECKED, Allocation, Checks, Options, Report, Schedule, run
from stagekit.ir import INDEX, BinaryKind, Space, UnaryKind, Value
from stagekit.ir.ops import Indexed
from tests.backends.interp.kernels import FULL, Kernel, line_of_test, pointer

ONE = (1, 1, 1)
F32, I32, I64, U8 = dtypes.float32, dtypes.int32, dtypes.int64, dtypes.uint8


def check(k: Kernel, slots: list[Any], threads: int = 64, blocks: int = 1, **options: Any) -> Report:
    """Launch with every check on."""
    chosen = Options(checks=CHECKED.checks, **options)
    return run(k.done(), slots, (blocks, 1, 1), (threads, 1, 1), options=chosen)


def ids(report: Report) -> list[str]:
    return [f.id for f in report.findings]


def only(report: Report) -> Any:
    """The diagnostic of the only finding."""
    assert 1 == len(report.findings), ids(report)
    return report.findings[0].diagnostic


def zeros(count: int, dtype: Any = np.float32) -> Any:
    return np.zeros(count, dtype)


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_a_read_past_the_end() -> None:
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    i = k.tid()
    value = k.load(k.A, i)
    line = line_of_test().line - 1
    k.store(k.OUT, i, value)

    report = check(k, [zeros(60), zeros(64)])

    finding = report.findings[0]
    assert ("reads", "A", 60, 60) == tuple(getattr(only(report), n) for n in ("verb", "array", "index", "count"))
    assert (line, 4) == (finding.loc.line if finding.loc else 0, finding.count)
    assert ((0, 0, 0), (60, 0, 0)) == (finding.who.block, finding.who.thread) if finding.who else False
    assert "guard the access" in str(finding)


def test_a_negative_index_is_not_pythons() -> None:
    k = Kernel(OUT=pointer(F32))
    k.store(k.OUT, k.sub(k.tid(), k.i64(2)), k.f32(1))
    out = zeros(64)

    diagnostic = only(check(k, [out]))

    assert ("writes", -2, -8) == (diagnostic.verb, diagnostic.index, diagnostic.offset_bytes)
    assert [0, 0] == out[-2:].tolist()


def test_an_atomic_past_the_end() -> None:
    k = Kernel(OUT=pointer(I32))
    k.call("atomic_add", k.at(k.OUT, k.tid()), k.i32(1))

    assert ("OUT_OF_BOUNDS", "updates") == (
        (report := check(k, [zeros(63, np.int32)])).findings[0].id,
        only(report).verb,
    )


def test_shared_and_local_arrays_have_ends_of_their_own() -> None:
    """The next array in memory is no excuse."""
    k = Kernel()
    first, second, mine = k.shared(F32, 64, "first"), k.shared(F32, 64, "second"), k.local(I32, 4)
    k.store(first, k.add(k.tid(), k.i64(1)), k.f32(1))
    k.store(second, k.sub(k.tid(), k.i64(1)), k.f32(1))
    k.store(mine, k.tid(), k.i32(1))

    report = check(k, [])

    found = [(f.diagnostic.array, f.diagnostic.space, f.diagnostic.index, f.count) for f in report.findings]  # type: ignore[attr-defined]
    assert [("first", "shared", 64, 1), ("second", "shared", -1, 1), ("mine", "local", 4, 60)] == found


def test_only_lanes_that_run_count() -> None:
    k = Kernel(A=pointer(F32))
    with k.when(k.lt(k.tid(), k.i64(10))):
        k.store(k.A, k.tid(), k.f32(1))

    assert [] == ids(check(k, [zeros(10)]))


def test_another_array_behind_the_first_is_not_reached() -> None:
    """Two arrays side by side in one buffer: an index that leaves the first is a fault although there is memory."""
    both = zeros(64)
    k = Kernel(A=pointer(F32), B=pointer(F32))
    k.store(k.B, k.i64(0), k.load(k.A, k.i64(32)))

    assert ["OUT_OF_BOUNDS"] == ids(check(k, [both[:32], both[32:]], threads=1))


def test_an_unaligned_view() -> None:
    raw = np.zeros(65 * 4, np.uint8)
    k = Kernel(A=pointer(F32))
    k.store(k.A, k.tid(), k.f32(1))
    view = raw[1:257].view(np.float32)

    diagnostic = only(check(k, [view]))

    assert ("MISALIGNED_ACCESS", 4) == (diagnostic.id, diagnostic.align)
    assert 1.0 == view[63]


def four_each(k: Kernel, align: int) -> Value:
    """What each thread finds in `A` at its index times four: a vector whose address is said to be a multiple of `align`."""
    return k.b.load(k.at(k.A, k.mul(k.tid(), k.i64(4))), count=4, align=align)


@pytest.mark.parametrize(
    ("start", "align", "found"), [(0, 16, 0), (1, 16, 8), (1, 4, 0), (2, 8, 0), (2, 16, 8), (4, 32, 4)]
)
def test_an_alignment_that_is_claimed_is_checked(start: int, align: int, found: int) -> None:
    """Once for each thread, whatever the lanes of its vector."""
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    k.store(k.OUT, k.tid(), k.b.extract(four_each(k, align), 3))
    memory = zeros(64)
    a = memory[-(memory.ctypes.data // 4) % 8 + start :][:32]

    report = check(k, [a, zeros(8)], threads=8)

    assert ["MISALIGNED_ACCESS"] * (found > 0) == ids(report)
    if found:
        assert (found, align) == (report.findings[0].count, only(report).align)
        assert "reads 4 float32 at byte 0 of `A`" in str(report)


def test_where_the_mask_is_off_no_alignment_is_claimed() -> None:
    k = Kernel(A=pointer(F32))
    k.b.store(k.at(k.A, k.tid()), k.b.splat(k.f32(1), 2), k.eq(k.mod(k.tid(), k.i64(2)), k.i64(0)), align=8)
    memory = zeros(12)

    assert check(k, [memory[memory.ctypes.data // 4 % 2 :][:8]], threads=7).is_clean


def test_shared_memory_is_aligned_as_it_promises_and_no_better() -> None:
    for promised, expected in ((16, []), (8, ["MISALIGNED_ACCESS"])):
        k = Kernel(OUT=pointer(F32))
        tile = k.b.alloc(F32, Space.SHARED, 4 * 8, promised, "tile")
        place = k.at(tile, k.mul(k.tid(), k.i64(4)))
        k.b.store(place, k.b.splat(k.f32(3), 4), align=16)
        k.store(k.OUT, k.tid(), k.b.load(place))

        assert expected == ids(check(k, [zeros(8)], threads=8))


def test_each_element_of_a_vector_is_checked() -> None:
    """Its bounds, whether it was written, and who else touches it."""
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    tile = k.shared(F32, 4 * 8)
    k.store(tile, k.mul(k.tid(), k.i64(4)), k.b.extract(four_each(k, 4), 0))
    read = k.b.load(k.at(tile, k.mul(k.tid(), k.i64(4))), count=2, align=4)
    k.b.store(k.at(k.OUT, k.mul(k.tid(), k.i64(2))), k.b.pack([k.b.extract(read, 0)] * 4), align=4)

    report = check(k, [np.arange(31, dtype=np.float32), zeros(18)], threads=8)

    found = [(f.id, f.diagnostic.index, f.count) for f in report.findings]  # type: ignore[attr-defined]
    races = [("WARP_RACE", 2, 7), ("WARP_RACE", 3, 7)]
    assert [("OUT_OF_BOUNDS", 31, 1), ("UNINITIALISED_READ", 1, 8), *races] == found


def test_a_wider_element_at_an_odd_place() -> None:
    k = Kernel(A=pointer(U8), OUT=pointer(F32))
    k.store(k.OUT, k.tid(), k.b.load(k.bitcast(k.at(k.A, k.tid()), pointer(F32))))

    report = check(k, [np.zeros(64, np.uint8), zeros(8)], threads=8)

    assert ["MISALIGNED_ACCESS"] == ids(report)
    assert 6 == report.findings[0].count


def test_a_write_to_a_read_only_array() -> None:
    k = Kernel(A=pointer(F32))
    k.store(k.A, k.tid(), k.f32(1))
    array = zeros(64)
    array.flags.writeable = False

    assert "READ_ONLY_WRITE" == only(check(k, [array])).id
    assert 0 == array.sum()


def test_an_array_that_is_gone() -> None:
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    k.store(k.OUT, k.tid(), k.load(k.A, k.tid()))

    report = check(k, [0x1000, zeros(64)])

    assert ("FREED_ACCESS", 0x1000) == (only(report).id, only(report).address)


def test_an_array_that_was_freed() -> None:
    gone = Allocation.of_array("A", zeros(64))
    gone.free()
    k = Kernel(A=pointer(F32))
    k.store(k.A, k.tid(), k.f32(1))

    report = run(k.done(), [gone.base], ONE, (64, 1, 1), allocations=[gone])

    assert ("FREED_ACCESS", "A", 64) == (only(report).id, only(report).array, report.findings[0].count)


def test_an_address_finds_its_allocation() -> None:
    array = np.arange(64, dtype=np.float32)
    known = Allocation.of_array("data", array)
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    k.store(k.OUT, k.tid(), k.load(k.A, k.tid()))
    out = zeros(64)

    address = array.ctypes.data + 8
    report = run(k.done(), [address, out], ONE, (64, 1, 1), options=CHECKED, allocations=[known])

    assert "data" == only(report).array
    assert list(range(2, 64)) == out[:62].tolist()


# -- races ------------------------------------------------------------------------------------------------------------


def test_no_barrier_between_writing_and_reading_shared_memory() -> None:
    k = Kernel(OUT=pointer(I64))
    tile = k.shared(I64, 64)
    k.store(tile, k.tid(), k.tid())
    k.store(k.OUT, k.tid(), k.load(tile, k.sub(k.i64(63), k.tid())))

    report = check(k, [zeros(64, np.int64)])

    diagnostic = only(report)
    assert ("BLOCK_RACE", "reads", "writes", "shared") == (
        *(diagnostic.id, diagnostic.verb, diagnostic.other_verb, diagnostic.space),
    )
    assert 1 == len(report.findings[0].notes)
    assert report.findings[0].notes[0].loc is not None


def test_no_barrier_before_shared_memory_is_used_again() -> None:
    k = Kernel(OUT=pointer(I64))
    tile = k.shared(I64, 64)
    with k.repeat(k.i64(2)) as i:
        k.store(tile, k.tid(), k.add(k.tid(), i))
        k.barrier()
        k.store(k.OUT, k.tid(), k.load(tile, k.sub(k.i64(63), k.tid())))

    diagnostic = only(check(k, [zeros(64, np.int64)]))

    assert ("BLOCK_RACE", "writes", "reads") == (diagnostic.id, diagnostic.verb, diagnostic.other_verb)


def test_two_threads_write_different_values_to_one_element() -> None:
    k = Kernel(OUT=pointer(I64))
    k.store(k.OUT, k.floordiv(k.tid(), k.i64(32)), k.tid())

    assert ["WARP_RACE"] == ids(check(k, [zeros(2, np.int64)]))


def test_the_same_value_from_all_is_no_race() -> None:
    k = Kernel(OUT=pointer(I64))
    k.store(k.OUT, k.i64(0), k.i64(7))
    k.store(k.OUT, k.mod(k.tid(), k.i64(2)), k.i64(7))

    assert [] == ids(check(k, [zeros(2, np.int64)], blocks=3))


def test_lanes_of_a_warp_need_syncwarp() -> None:
    def kernel(is_synchronised: bool) -> Kernel:
        k = Kernel(OUT=pointer(I64))
        tile = k.shared(I64, 32)
        k.store(tile, k.tid(), k.tid())
        if is_synchronised:
            k.syncwarp()
        k.store(k.OUT, k.tid(), k.load(tile, k.xor(k.tid(), k.i64(1))))
        return k

    assert ["WARP_RACE"] == ids(check(kernel(False), [zeros(32, np.int64)], threads=32))
    assert [] == ids(check(kernel(True), [zeros(32, np.int64)], threads=32))


def test_syncwarp_does_not_order_warps() -> None:
    k = Kernel(OUT=pointer(I64))
    tile = k.shared(I64, 64)
    k.store(tile, k.tid(), k.tid())
    k.syncwarp()
    k.store(k.OUT, k.tid(), k.load(tile, k.xor(k.tid(), k.i64(32))))

    assert ["BLOCK_RACE"] == ids(check(k, [zeros(64, np.int64)]))


def test_blocks_that_touch_one_element_of_global_memory() -> None:
    k = Kernel(OUT=pointer(I64))
    k.store(k.OUT, k.tid(), k.bid())

    report = check(k, [zeros(64, np.int64)], blocks=3)

    diagnostic = only(report)
    assert ("GRID_RACE", "writes") == (diagnostic.id, diagnostic.other_verb)
    assert "of block" in diagnostic.other


@pytest.mark.parametrize("reads_first", [True, False])
def test_a_block_reads_what_another_writes(reads_first: bool) -> None:
    k = Kernel(A=pointer(I64), OUT=pointer(I64))
    is_writer = k.eq(k.bid(), k.i64(1 if reads_first else 0))
    with k.when(is_writer):
        k.store(k.A, k.tid(), k.i64(5))
    with k.when(k.not_(is_writer)):
        k.store(k.OUT, k.tid(), k.load(k.A, k.tid()))

    assert ["GRID_RACE"] == ids(check(k, [zeros(64, np.int64), zeros(64, np.int64)], blocks=2))


def test_a_plain_access_races_with_an_atomic() -> None:
    k = Kernel(A=pointer(I32), OUT=pointer(I32))
    k.call("atomic_add", k.at(k.A, k.i64(0)), k.i32(1))
    k.store(k.OUT, k.global_id(), k.load(k.A, k.i64(0)))

    assert "GRID_RACE" in ids(check(k, [zeros(1, np.int32), zeros(128, np.int32)], blocks=2))
    assert [] == ids(check(_atomic_then_barrier(), [zeros(1, np.int32), zeros(64, np.int32)]))


def _atomic_then_barrier() -> Kernel:
    k = Kernel(A=pointer(I32), OUT=pointer(I32))
    k.call("atomic_add", k.at(k.A, k.i64(0)), k.i32(1))
    k.barrier()
    k.store(k.OUT, k.tid(), k.load(k.A, k.i64(0)))
    return k


def test_a_race_through_two_names_of_one_array() -> None:
    array = zeros(65, np.int64)
    k = Kernel(A=pointer(I64), B=pointer(I64))
    k.store(k.A, k.tid(), k.add(k.load(k.B, k.tid()), k.i64(1)))

    assert ["WARP_RACE"] == ids(check(k, [array[1:], array[:-1]], threads=32))


def test_a_handover_without_a_fence() -> None:
    """The ticket is drawn before the partial result is sure to be there."""

    def kernel(has_fence: bool) -> Kernel:
        k = Kernel(PART=pointer(I32), TICKET=pointer(I32), OUT=pointer(I32))
        k.store(k.PART, k.bid(), k.cast(k.bid(), I32))
        if has_fence:
            k.call("threadfence")
        ticket = k.call("atomic_add", k.at(k.TICKET, k.i64(0)), k.i32(1))
        with k.when(k.eq(ticket, k.i32(3))):
            k.call("threadfence")
            k.store(k.OUT, k.i64(0), k.load(k.PART, k.i64(1)))
        return k

    slots = [zeros(4, np.int32), zeros(1, np.int32), zeros(1, np.int32)]
    assert ["GRID_RACE"] == ids(check(kernel(False), slots, threads=1, blocks=4))
    slots = [zeros(4, np.int32), zeros(1, np.int32), zeros(1, np.int32)]
    assert [] == ids(check(kernel(True), slots, threads=1, blocks=4))


def test_a_wider_and_a_narrower_access_meet() -> None:
    k = Kernel(A=pointer(I32), OUT=pointer(U8))
    k.store(k.A, k.tid(), k.i32(7))
    k.store(k.OUT, k.tid(), k.load(k.bitcast(k.A, pointer(U8)), k.add(k.mul(k.tid(), k.i64(4)), k.i64(6))))

    assert ["WARP_RACE"] == ids(check(k, [zeros(33, np.int32), zeros(32, np.uint8)], threads=32))


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
def test_a_race_is_found_in_every_order(order: Any) -> None:
    k = Kernel(OUT=pointer(I64))
    tile = k.shared(I64, 128)
    k.store(tile, k.tid(), k.tid())
    k.store(k.OUT, k.tid(), k.load(tile, k.sub(k.i64(127), k.tid())))

    report = check(k, [zeros(128, np.int64)], threads=128, schedule=Schedule(order, 1))

    assert {"BLOCK_RACE"} == set(ids(report)) - {"UNINITIALISED_READ"}


def test_some_order_shows_a_missing_barrier_in_the_result() -> None:
    k = Kernel(OUT=pointer(I64))
    tile = k.shared(I64, 128)
    k.store(tile, k.tid(), k.tid())
    k.store(k.OUT, k.tid(), k.load(tile, k.sub(k.i64(127), k.tid())))
    fn, right = k.done(), list(range(128))[::-1]

    def result(schedule: Schedule | None) -> list[int]:
        out = zeros(128, np.int64)
        run(fn, [out], ONE, (128, 1, 1), options=Options(schedule=schedule))
        return out.tolist()

    assert right == result(None), "in one vector nothing shows"
    assert right != result(Schedule("forward"))
    assert right != result(Schedule("backward"))
    assert result(Schedule("random", 7)) == result(Schedule("random", 7)), "a seed replays"


# -- waiting for each other -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [None, Schedule("forward")], ids=["vector", "warps"])
def test_a_barrier_under_a_condition_within_a_warp(schedule: Schedule | None) -> None:
    k = Kernel()
    with k.when(k.lt(k.tid(), k.i64(40))):
        k.barrier()

    report = check(k, [], schedule=schedule)

    assert "DIVERGENT_BARRIER" == report.findings[0].id


def test_a_barrier_that_some_warps_never_reach() -> None:
    k = Kernel()
    with k.when(k.eq(k.call("warp_id"), k.i64(0))):
        k.barrier()

    assert ["DIVERGENT_BARRIER"] == ids(check(k, []))
    diagnostic = only(check(_rebuilt(k), [], schedule=Schedule("forward")))
    assert ("BARRIER_NOT_REACHED", 1, 2, "have ended") == (
        *(diagnostic.id, diagnostic.waiting, diagnostic.warps, diagnostic.others),
    )


def _rebuilt(_: Kernel) -> Kernel:
    k = Kernel()
    with k.when(k.eq(k.call("warp_id"), k.i64(0))):
        k.barrier()
    return k


def test_a_barrier_in_a_block_that_agrees_is_fine() -> None:
    """Blocks may differ, and a loop may have as many rounds as the block likes."""
    k = Kernel()
    with k.when(k.eq(k.mod(k.bid(), k.i64(2)), k.i64(0))), k.repeat(k.bid()):
        k.barrier()

    assert [] == ids(check(k, [], blocks=5))


def test_warps_at_different_barriers() -> None:
    k = Kernel()
    with k.when(k.eq(k.call("warp_id"), k.i64(0))):
        k.barrier()
    with k.when(k.ne(k.call("warp_id"), k.i64(0))):
        k.barrier()

    assert "wait at another barrier" == only(check(k, [], schedule=Schedule("forward"))).others


def test_a_loop_that_waits_for_nobody() -> None:
    k = Kernel(FLAG=pointer(I32))
    k.wait_until(lambda: k.ne(k.call("atomic_add", k.at(k.FLAG, k.i64(0)), k.i32(0)), k.i32(0)))
    k.call("atomic_exchange", k.at(k.FLAG, k.i64(0)), k.i32(1))

    report = check(k, [zeros(1, np.int32)], blocks=2)

    assert ["NO_PROGRESS"] == ids(report)
    assert "nobody will change" in only(report).why


def test_lanes_of_a_warp_that_want_one_lock() -> None:
    """The lane that got it waits for the others behind the loop; they wait for it in the loop."""
    k = Kernel(LOCK=pointer(I32))
    lock = k.at(k.LOCK, k.i64(0))
    k.wait_until(lambda: k.eq(k.call("atomic_cas", lock, k.i32(0), k.i32(1)), k.i32(0)))
    k.call("atomic_exchange", lock, k.i32(0))

    assert "NO_PROGRESS" in ids(check(k, [zeros(1, np.int32)], threads=32))


def test_an_endless_loop_ends() -> None:
    k = Kernel(n=INDEX)
    k.wait_until(lambda: k.lt(k.n, k.i64(0)))

    assert ["NO_PROGRESS"] == ids(check(k, [1]))


def test_an_endless_loop_that_counts_ends_by_the_limit() -> None:
    k = Kernel()
    count, next_count = Value(INDEX), Value(INDEX)
    with k.b.block((count,)) as before:
        k.b.condition(k.b.true(), count)
    with k.b.block((next_count,)) as after:
        k.b.yield_(k.add(next_count, k.i64(1)))
    k.while_((k.i64(0),), before.done(), after.done())

    assert "after 2048 rounds" in only(check(k, [], max_iterations=2000)).why


def test_a_shuffle_in_a_branch_with_a_full_mask() -> None:
    k = Kernel(OUT=pointer(dtypes.uint32))
    with k.when(k.lt(k.tid(), k.i64(16))):
        k.store(k.OUT, k.tid(), k.call("shuffle_xor", k.u32(FULL), k.u32(3), k.i32(1)))
    k.store(k.OUT, k.tid(), k.u32(0))

    diagnostic = only(check(k, [zeros(32, np.uint32)], threads=32))

    assert ("LANE_NOT_HERE", FULL, 0xFFFF0000) == (diagnostic.id, diagnostic.mask, diagnostic.absent)


def test_a_shuffle_from_a_lane_in_the_other_branch() -> None:
    k = Kernel(OUT=pointer(dtypes.uint32))
    with k.when(k.lt(k.tid(), k.i64(16))):
        k.store(k.OUT, k.tid(), k.call("shuffle_xor", k.u32(0xFFFF), k.u32(3), k.i32(16)))

    diagnostic = only(check(k, [zeros(32, np.uint32)], threads=32))

    assert ("ABSENT_LANE_READ", 0, 16, "does not take part") == (
        *(diagnostic.id, diagnostic.lane, diagnostic.source, diagnostic.why),
    )


def test_a_shuffle_from_a_lane_that_does_not_exist() -> None:
    k = Kernel(OUT=pointer(dtypes.uint32))
    k.store(k.OUT, k.tid(), k.call("shuffle_down", k.u32(FULL), k.u32(3), k.i32(8)))

    diagnostic = only(check(k, [zeros(20, np.uint32)], threads=20))

    assert (12, 20, "does not exist in a block of 20 threads") == (diagnostic.lane, diagnostic.source, diagnostic.why)


def test_a_shuffled_value_that_a_select_throws_away_is_fine() -> None:
    """The usual tree over a partial warp: lanes whose partner does not exist keep their own sum."""
    k = Kernel(OUT=pointer(dtypes.uint32))
    moved = k.call("shuffle_down", k.u32((1 << 20) - 1), k.u32(3), k.i32(8))
    is_there = k.lt(k.tid(), k.i64(12))
    k.store(k.OUT, k.tid(), k.select(is_there, k.add(moved, k.u32(1)), k.u32(0)))
    out = zeros(20, np.uint32)

    assert [] == ids(check(k, [out], threads=20))
    assert [4] * 12 + [0] * 8 == out.tolist()


def test_a_vote_by_a_lane_outside_its_mask() -> None:
    k = Kernel(OUT=pointer(dtypes.uint32))
    k.store(k.OUT, k.tid(), k.call("ballot_sync", k.u32(0xFFFF), k.lt(k.tid(), k.i64(5))))

    diagnostic = only(check(k, [zeros(32, np.uint32)], threads=32))

    assert ("LANE_OUTSIDE_MASK", 16) == (diagnostic.id, diagnostic.lane)


def test_syncwarp_names_lanes_that_are_elsewhere() -> None:
    k = Kernel()
    with k.when(k.lt(k.tid(), k.i64(3))):
        k.syncwarp()
    k.print_("still here\n", ())

    assert ["LANE_NOT_HERE"] == ids(check(k, [], threads=32))


def test_lanes_that_have_returned_may_be_named() -> None:
    """`if i >= n: return` in front of a warp operation with a full mask."""
    k = Kernel(n=INDEX, OUT=pointer(dtypes.uint32))
    with k.when(k.lt(k.tid(), k.n)):
        k.store(k.OUT, k.tid(), k.call("ballot_sync", k.u32(FULL), k.lt(k.tid(), k.i64(5))))

    assert [] == ids(check(k, [20, zeros(32, np.uint32)], threads=32))


# -- what was never written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [Space.SHARED, Space.LOCAL], ids=lambda s: s.value)
def test_a_read_of_memory_that_nothing_wrote(space: Space) -> None:
    k = Kernel(OUT=pointer(I64))
    memory = k.alloc(I64, space, 64, 8, "memory")
    index = k.tid() if space is Space.SHARED else k.i64(3)
    k.store(memory, index, k.i64(5), k.ne(k.tid(), k.i64(9)))
    k.store(k.OUT, k.tid(), k.load(memory, index))

    report = check(k, [zeros(64, np.int64)])

    diagnostic = only(report)
    assert ("UNINITIALISED_READ", "memory", space.value) == (diagnostic.id, diagnostic.array, diagnostic.space)
    assert 1 == report.findings[0].count


def test_half_an_element_written() -> None:
    k = Kernel(OUT=pointer(I32))
    tile = k.shared(I32, 32)
    k.store(k.bitcast(tile, pointer(dtypes.int16, Space.SHARED)), k.mul(k.tid(), k.i64(2)), k.constant(1, dtypes.int16))
    k.store(k.OUT, k.tid(), k.load(tile, k.tid()))

    assert ["UNINITIALISED_READ"] == ids(check(k, [zeros(32, np.int32)], threads=32))


def test_an_output_with_a_gap() -> None:
    k = Kernel(OUT=pointer(F32), n=INDEX)
    with k.when(k.lt(k.global_id(), k.n)):
        k.store(k.OUT, k.global_id(), k.f32(1))

    diagnostic = only(check(k, [zeros(130), 127], blocks=2, outputs=("OUT",)))

    assert (3, 130, 127) == (diagnostic.missing, diagnostic.count, diagnostic.index)


def test_an_output_that_is_a_strided_view() -> None:
    """Only the elements of the view have to be written."""
    k = Kernel(OUT=pointer(F32))
    k.store(k.OUT, k.mul(k.tid(), k.i64(2)), k.f32(1))

    whole = zeros(128)
    assert [] == ids(check(k, [whole[::2]], outputs=("OUT",)))


def test_an_output_written_under_another_name() -> None:
    array = zeros(64)
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    k.store(k.A, k.tid(), k.f32(1))

    assert [] == ids(check(k, [array, array], outputs=("OUT",)))


# -- arithmetic -------------------------------------------------------------------------------------------------------


def test_division_by_zero() -> None:
    k = Kernel(OUT=pointer(I64))
    k.store(k.OUT, k.tid(), k.floordiv(k.i64(7), k.tid()))

    report = check(k, [zeros(64, np.int64)])

    assert ("DIVISION_BY_ZERO", 7, "//") == (only(report).id, only(report).dividend, only(report).operator)
    assert 1 == report.findings[0].count


def test_a_division_behind_its_guard_is_fine() -> None:
    """`b != 0 and a % b == 0` is a select: both sides are computed."""
    k = Kernel(OUT=pointer(dtypes.bool_))
    is_safe = k.ne(k.tid(), k.i64(0))
    divides = k.eq(k.mod(k.i64(60), k.tid()), k.i64(0))
    k.store(k.OUT, k.tid(), k.select(is_safe, divides, k.false()))

    assert [] == ids(check(k, [zeros(64, np.bool_)]))


def test_a_guard_that_is_computed_later() -> None:
    k = Kernel(OUT=pointer(I64))
    quotient = k.floordiv(k.i64(60), k.tid())
    bigger = k.add(quotient, k.mul(quotient, k.i64(2)))
    k.store(k.OUT, k.tid(), k.select(k.gt(k.tid(), k.i64(0)), bigger, k.i64(0)))
    unguarded = Kernel(OUT=pointer(I64))
    quotient = unguarded.mod(unguarded.i64(60), unguarded.tid())
    chosen = unguarded.select(unguarded.gt(unguarded.tid(), unguarded.i64(-1)), quotient, unguarded.i64(0))
    unguarded.store(unguarded.OUT, unguarded.tid(), chosen)

    assert [] == ids(check(k, [zeros(64, np.int64)]))
    assert ["DIVISION_BY_ZERO"] == ids(check(unguarded, [zeros(64, np.int64)]))


@pytest.mark.parametrize("amount", [-1, 32, 100])
def test_a_shift_out_of_range(amount: int) -> None:
    k = Kernel(OUT=pointer(I32), n=INDEX)
    k.store(k.OUT, k.tid(), k.shl(k.i32(1), k.cast(k.n, I32)))

    assert ("SHIFT_OUT_OF_RANGE", amount) == ((d := only(check(k, [zeros(64, np.int32), amount]))).id, d.amount)


@pytest.mark.parametrize(
    ("kind", "row", "stride"),
    [(BinaryKind.MUL, 319, 7864320), (BinaryKind.ADD, 2**31 - 1, 1), (BinaryKind.SUB, -(2**31), 1)],
)
def test_an_index_that_wraps_in_32_bits(kind: BinaryKind, row: int, stride: int) -> None:
    def kernel(store: Any) -> Kernel:
        k = Kernel(A=pointer(F32), row=INDEX, stride=INDEX)
        store(k, k.cast(k.binary(kind, k.cast(k.row, I32), k.cast(k.stride, I32)), I64))
        return k

    used = kernel(lambda k, index: k.store(k.A, index, k.f32(0)))
    masked = kernel(lambda k, index: k.store(k.A, index, k.f32(0), k.eq(k.row, k.i64(1))))
    hashed = kernel(lambda k, index: k.store(k.A, k.mod(index, k.i64(4)), k.f32(0)))

    assert "INDEX_OVERFLOW" == ids(check(used, [zeros(4), row, stride]))[0]
    assert [] == ids(check(masked, [zeros(4), row, stride]))
    assert [] == ids(check(hashed, [zeros(4), row, stride]))


def test_an_index_that_wraps_in_64_bits() -> None:
    k = Kernel(A=pointer(F32), n=INDEX)
    k.store(k.A, k.mul(k.n, k.n), k.f32(0))
    far = Kernel(A=pointer(F32), n=INDEX)
    far.b.store(far.offset(far.offset(far.A, far.n), far.n), far.f32(0))

    assert "INDEX_OVERFLOW" == ids(check(k, [zeros(4), 2**32]))[0]
    assert "INDEX_OVERFLOW" == ids(check(far, [zeros(4), 2**62]))[0]
    assert [] == ids(check(_square(), [zeros(5), 2]))


def _square() -> Kernel:
    k = Kernel(A=pointer(F32), n=INDEX)
    k.store(k.A, k.mul(k.n, k.n), k.f32(0))
    return k


def test_an_index_cut_to_32_bits() -> None:
    k = Kernel(A=pointer(F32), n=INDEX)
    k.store(k.A, k.cast(k.cast(k.n, I32), I64), k.f32(0))

    assert "INDEX_OVERFLOW" == only(check(k, [zeros(4), 2**32 + 1])).id


@pytest.mark.parametrize(
    "build",
    [
        lambda k, x: k.sub(x, x),
        lambda k, x: k.div(k.f32(0), k.sub(k.f32(1), k.f32(1))),
        lambda k, x: k.call("sqrt", k.f32(-1)),
        lambda k, x: k.unary(UnaryKind.NEG, k.mul(x, k.f32(0))),
    ],
    ids=["inf - inf", "0 / 0", "sqrt", "inf * 0"],
)
def test_nan_from_numbers(build: Any) -> None:
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    k.store(k.OUT, k.tid(), build(k, k.load(k.A, k.tid())))

    report = check(k, [np.full(64, np.inf, np.float32), zeros(64)])

    assert "NAN_PRODUCED" == only(report).id
    assert 64 == report.findings[0].count


def test_nan_that_was_there_before_is_no_finding() -> None:
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    k.store(k.OUT, k.tid(), k.call("exp", k.add(k.load(k.A, k.tid()), k.f32(1))))

    assert [] == ids(check(k, [np.full(64, np.nan, np.float32), zeros(64)]))


@pytest.mark.parametrize("name", list(Checks.__slots__))
def test_each_check_can_be_left_out(name: str) -> None:
    """Every fault at once; without its switch a kind is not reported."""
    found = _everything_wrong(Checks.all())
    without = _everything_wrong(Checks(**{f: f != name for f in Checks.__slots__}))

    expected = {
        "axes": "OUT_OF_BOUNDS",
        "races": "WARP_RACE",
        "uninitialised": "UNINITIALISED_READ",
        "lanes": "ABSENT_LANE_READ",
        "overflow": "INDEX_OVERFLOW",
        "division": "DIVISION_BY_ZERO",
        "shifts": "SHIFT_OUT_OF_RANGE",
        "nan": "NAN_PRODUCED",
        "rounding": "INTEGER_ROUNDED",
    }
    assert expected[name] in found
    assert expected[name] not in without
    assert set(expected.values()) - {expected[name]} <= without
    assert set() == _everything_wrong(Checks())


def _everything_wrong(checks: Checks) -> set[str]:
    k = Kernel(OUT=pointer(I32), X=pointer(F32), n=INDEX)
    tile = k.shared(I32, 32)
    k.store(k.OUT, k.tid(), k.load(tile, k.tid()))
    k.store(k.OUT, k.i64(0), k.cast(k.tid(), I32))
    k.store(k.OUT, k.tid(), k.cast(k.call("shuffle_idx", k.u32(1), k.u32(1), k.i32(9)), I32), k.lt(k.tid(), k.i64(1)))
    k.store(k.OUT, k.i64(1), k.shl(k.i32(1), k.i32(32)))
    k.store(k.OUT, k.i64(1), k.cast(k.mod(k.n, k.i64(0)), I32))
    k.store(k.X, k.tid(), k.sub(k.load(k.X, k.tid()), k.load(k.X, k.tid())))
    k.store(k.X, k.i64(1), k.cast(k.i32(2**24 + 1), F32, is_exact=True))
    k.store(k.OUT, k.add(k.cast(k.add(k.i32(2**31 - 1), k.i32(1)), I64), k.i64(2**31)), k.i32(0))
    with k.when(k.lt(k.tid(), k.i64(1))):
        k.store(k.OUT, k.i64(1), k.cast(k.call("shuffle_idx", k.u32(1), k.u32(1), k.i32(9)), I32))
    beyond_its_row = k.offset(k.OUT, k.i64(7), Indexed("OUT", (0, 7), (8, 4)))
    k.b.store(beyond_its_row, k.i32(0))
    slots = [zeros(32, np.int32), np.full(32, np.inf, np.float32), 5]
    return set(ids(run(k.done(), slots, ONE, (32, 1, 1), options=Options(checks=checks))))


# -- clean kernels ----------------------------------------------------------------------------------------------------

_ORDERS = [None, Schedule("backward"), Schedule("random", 2)]
each_way = pytest.mark.parametrize("schedule", _ORDERS, ids=["vector", "back", "random"])


@each_way
@pytest.mark.parametrize("threads", [32, 64, 256])
def test_a_block_reduction_is_clean(threads: int, schedule: Schedule | None) -> None:
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    tile = k.shared(F32, threads)
    k.store(tile, k.tid(), k.load(k.A, k.global_id()))
    distance = threads // 2
    while distance:
        k.barrier()
        with k.when(k.lt(k.tid(), k.i64(distance))):
            k.store(tile, k.tid(), k.add(k.load(tile, k.tid()), k.load(tile, k.add(k.tid(), k.i64(distance)))))
        distance //= 2
    with k.when(k.eq(k.tid(), k.i64(0))):
        k.store(k.OUT, k.bid(), k.load(tile, k.i64(0)))
    a, out = np.arange(threads * 3, dtype=np.float32), zeros(3)

    report = check(k, [a, out], threads, 3, schedule=schedule, outputs=("OUT",))

    assert [] == ids(report)
    assert a.reshape(3, -1).sum(axis=1).tolist() == out.tolist()


@each_way
def test_a_tiled_matmul_is_clean(schedule: Schedule | None) -> None:
    size, tile = 24, 8
    k = Kernel(A=pointer(F32), B=pointer(F32), C=pointer(F32))
    left, right = k.shared(F32, tile * tile, "left"), k.shared(F32, tile * tile, "right")
    x, y = k.tid("x"), k.tid("y")
    row = k.add(k.mul(k.bid("y"), k.i64(tile)), y)
    column = k.add(k.mul(k.bid("x"), k.i64(tile)), x)
    here = k.add(k.mul(y, k.i64(tile)), x)
    with k.carrying(k.i64(size // tile), k.f32(0)) as state:
        start = k.mul(state[0], k.i64(tile))
        k.store(left, here, k.load(k.A, k.add(k.mul(row, k.i64(size)), k.add(start, x))))
        k.store(right, here, k.load(k.B, k.add(k.mul(k.add(start, y), k.i64(size)), column)))
        k.barrier()
        with k.carrying(k.i64(tile), state[1]) as inner:
            a = k.load(left, k.add(k.mul(y, k.i64(tile)), inner[0]))
            b = k.load(right, k.add(k.mul(inner[0], k.i64(tile)), x))
            inner.append(k.add(inner[1], k.mul(a, b)))
        k.barrier()
        state.append(inner[-1])
    k.store(k.C, k.add(k.mul(row, k.i64(size)), column), state[-1])
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 9, (size, size)).astype(np.float32) for _ in range(2))
    c = np.zeros_like(a)
    options = Options(checks=CHECKED.checks, schedule=schedule, outputs=("C",))

    report = run(k.done(), [a, b, c], (3, 3, 1), (tile, tile, 1), options=options)

    assert [] == ids(report)
    assert np.array_equal(a @ b, c)


@each_way
def test_in_place_and_double_buffered_kernels_are_clean(schedule: Schedule | None) -> None:
    """A thread's own element may be read and written as often as it likes; two buffers need one barrier a round."""
    k = Kernel(A=pointer(F32))
    tiles = k.shared(F32, 128)
    k.store(tiles, k.tid(), k.load(k.A, k.tid()))
    with k.repeat(k.i64(3)) as i:
        k.barrier()
        source, target = (k.mul(k.mod(k.add(i, k.i64(n)), k.i64(2)), k.i64(64)) for n in (0, 1))
        neighbour = k.mod(k.add(k.tid(), k.i64(1)), k.i64(64))
        k.store(tiles, k.add(target, k.tid()), k.load(tiles, k.add(source, neighbour)))
    k.store(k.A, k.tid(), k.load(tiles, k.add(k.i64(64), k.tid())))
    a = np.arange(64, dtype=np.float32)

    assert [] == ids(check(k, [a], schedule=schedule))
    assert np.roll(np.arange(64), -3).tolist() == a.tolist()


# -- measurements -----------------------------------------------------------------------------------------------------


def test_statistics_of_strides() -> None:
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    tile = k.shared(F32, 32 * 32)
    k.store(tile, k.mul(k.tid(), k.i64(32)), k.load(k.A, k.mul(k.tid(), k.i64(8))))
    with k.when(k.lt(k.tid(), k.i64(8))):
        k.store(k.OUT, k.tid(), k.load(tile, k.mul(k.tid(), k.i64(32))))
    raw = np.zeros(32 * 8 + 32, np.float32)
    a = raw[-(raw.ctypes.data // 4) % 8 :][: 32 * 8]

    report = run(k.done(), [a, raw[:8]], ONE, (32, 1, 1), options=Options(statistics=True))

    assert report.statistics is not None
    rows = {(s.role, s.array): s for s in report.statistics.accesses}
    assert (32, 128) == (rows["read", "A"].sectors_per_request, report.statistics.bytes_read)
    assert (31, 7) == (rows["write", "tile"].bank_conflicts, rows["read", "tile"].bank_conflicts)
    assert 0.25 == rows["write", "OUT"].mask_efficiency
    assert [(1, 1)] == [(b.warps, b.diverged) for b in report.statistics.branches]


def test_a_vector_is_one_request() -> None:
    k = Kernel(A=pointer(F32), OUT=pointer(F32))
    held = k.b.alloc(F32, Space.SHARED, 4 * 32, 16, "tile")
    k.b.store(k.at(held, k.mul(k.tid(), k.i64(4))), four_each(k, 16), align=16)
    memory = zeros(4 * 32 + 8)
    a = memory[-(memory.ctypes.data // 4) % 8 :][: 4 * 32]

    report = run(k.done(), [a, zeros(1)], ONE, (32, 1, 1), options=Options(statistics=True))

    assert report.statistics is not None
    (read, written) = report.statistics.accesses
    assert (1, 32, 512, 16) == (read.requests, read.lanes, read.bytes, read.sectors)
    assert (1, 32, 512, 4) == (written.requests, written.lanes, written.bytes, written.passes)


def test_findings_are_limited_and_counted() -> None:
    k = Kernel(A=pointer(F32))
    for i in range(5):
        k.store(k.A, k.add(k.tid(), k.i64(100 + i)), k.f32(0))
        k.b.loc = line_of_test()

    report = check(k, [zeros(4)], max_findings=1)

    assert (1, 64 * 5) == (len(report.findings), report.findings[0].count)
