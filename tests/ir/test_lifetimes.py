"""Which of two shared arrays may lie in one place: what separates their accesses, and what keeps an array in use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stagekit import dtypes
from stagekit.dtypes import int32
from stagekit.ir import INDEX, Function, Space, Value, ops, walk
from stagekit.ir.lifetimes import in_use_together
from tests.backends.interp.kernels import Kernel, pointer

ALL, FIRST_HALF = 0xFFFFFFFF, 0xFFFF


def touch(k: Kernel, *arrays: Value) -> None:
    """Store to each array, wait, and load from it."""
    for array in arrays:
        k.store(array, k.tid(), k.i32(1))
    k.barrier()
    for array in arrays:
        k.load(array, k.tid())


def two(k: Kernel) -> tuple[Value, Value]:
    return k.shared(int32, 64, "a"), k.shared(int32, 64, "b")


def one_after_the_other(k: Kernel) -> None:
    a, b = two(k)
    touch(k, a)
    k.barrier()
    touch(k, b)


def without_a_barrier_between(k: Kernel) -> None:
    a, b = two(k)
    touch(k, a)
    touch(k, b)


def the_first_is_read_again(k: Kernel) -> None:
    a, b = two(k)
    one_after_the_other_of(k, a, b)
    k.load(a, k.tid())


def one_after_the_other_of(k: Kernel, a: Value, b: Value) -> None:
    touch(k, a)
    k.barrier()
    touch(k, b)
    k.barrier()


def in_a_loop_in_which_they_begin(k: Kernel) -> None:
    with k.repeat(k.n):
        one_after_the_other_of(k, *two(k))


def in_a_loop_before_which_they_begin(k: Kernel) -> None:
    a, b = two(k)
    with k.repeat(k.n):
        one_after_the_other_of(k, a, b)


def carried_by_the_loop_in_which_it_begins(k: Kernel) -> None:
    a = k.shared(int32, 64, "before")
    with k.carrying(k.n, a) as state:
        array, b = two(k)
        k.load(state[1], k.tid())
        one_after_the_other_of(k, array, b)
        state.append(array)


def across_the_edge_of_a_loop(k: Kernel) -> None:
    a, b = two(k)
    with k.repeat(k.n):
        k.store(a, k.tid(), k.i32(1))
        k.barrier()
    k.store(b, k.tid(), k.i32(1))


def in_two_arms_of_one_branch(k: Kernel) -> None:
    a, b = two(k)
    is_low = k.lt(k.tid(), k.i64(32))
    for array, condition in ((a, is_low), (b, k.not_(is_low))):
        with k.when(condition):
            k.store(array, k.tid(), k.i32(1))
            k.load(array, k.tid())


def behind_a_barrier_that_may_be_left_out(k: Kernel) -> None:
    a, b = two(k)
    touch(k, a)
    with k.when(k.gt(k.n, k.i64(3))):
        k.barrier()
    touch(k, b)


def behind_a_barrier_of_a_warp(mask: int) -> Callable[[Kernel], None]:
    def build(k: Kernel) -> None:
        a, b = two(k)
        k.store(a, k.tid(), k.i32(1))
        k.syncwarp(mask)
        k.store(b, k.tid(), k.i32(1))

    return build


def its_address_is_a_number(k: Kernel) -> None:
    a, b = two(k)
    k.bitcast(a, INDEX)
    one_after_the_other_of(k, a, b)


CASES: dict[str, tuple[Callable[[Kernel], None], int | None, bool]] = {
    **{
        build.__name__.replace("_", " "): (build, 64, share)
        for build, share in {
            one_after_the_other: True,
            without_a_barrier_between: False,
            the_first_is_read_again: False,
            in_a_loop_in_which_they_begin: True,
            in_a_loop_before_which_they_begin: False,
            carried_by_the_loop_in_which_it_begins: False,
            across_the_edge_of_a_loop: False,
            in_two_arms_of_one_branch: False,
            behind_a_barrier_that_may_be_left_out: False,
            its_address_is_a_number: False,
        }.items()
    },
    "behind a barrier of the only warp": (behind_a_barrier_of_a_warp(ALL), 32, True),
    "behind a barrier of one of two warps": (behind_a_barrier_of_a_warp(ALL), 64, False),
    "behind a barrier of a warp, in a block of any size": (behind_a_barrier_of_a_warp(ALL), None, False),
    "behind a barrier of half a warp": (behind_a_barrier_of_a_warp(FIRST_HALF), 32, False),
    "behind a barrier of half a warp, which is the block": (behind_a_barrier_of_a_warp(FIRST_HALF), 16, True),
}


def finished(build: Callable[[Kernel], None]) -> Function:
    k = Kernel(out=pointer(dtypes.int32), n=INDEX)
    build(k)
    return k.done()


@pytest.mark.parametrize("name", CASES)
def test_two_arrays_may_lie_in_one_place_only_if_barriers_keep_them_apart(name: str) -> None:
    build, threads, may_share = CASES[name]
    fn = finished(build)
    arrays = [op for op in walk(fn.body) if isinstance(op, ops.Alloc) and op.space is Space.SHARED]
    together = in_use_together(fn, arrays, threads)

    a, b = (next(n for n, op in enumerate(arrays) if op.result.name == name) for name in "ab")
    assert bool(together[a] >> b & 1) == bool(together[b] >> a & 1) == (not may_share)
