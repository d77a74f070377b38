"""Atomics: what is left in memory does not depend on the order, and the old values form a chain."""

from __future__ import annotations

import threading
from functools import reduce

import numpy as np
import pytest

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.ir import INDEX, BinaryKind, Builder, CompareKind, Function, Space, Value
from tests.backends.host.kernels import array, barrier, call, f32, global_thread, i32, i64, kernel, thread, when
from tests.backends.host.running import compiled, run

FOLDS = {
    "atomic_add": np.add,
    "atomic_sub": np.subtract,
    "atomic_min": np.minimum,
    "atomic_max": np.maximum,
    "atomic_and": np.bitwise_and,
    "atomic_or": np.bitwise_or,
    "atomic_xor": np.bitwise_xor,
}
BLOCKS = [1, 5, 32, 33, 96]
BUCKETS = [1, 3, 64]
KINDS = [(dtypes.int32, False), (dtypes.uint64, True), (dtypes.int8, False)]  # and is the old value kept?


def update(name: str, dtype: DType, buckets: int, *, keeps_old: bool) -> Function:
    """`atomic(counters[t % buckets], x[t])` in threads with an odd index or below 40."""

    def body(b: Builder, x: Value, counters: Value, old: Value, n: Value) -> None:
        i = global_thread(b)
        with when(b, b.compare(CompareKind.LT, i, n)):
            place = b.offset(counters, b.binary(BinaryKind.MOD, i, b.index(buckets)))
            before = call(b, name, place, b.load(b.offset(x, i)))
            if keeps_old:
                b.store(b.offset(old, i), before)

    return kernel(array(dtype), array(dtype), array(dtype), INDEX, body=body)


@pytest.mark.parametrize("buckets", BUCKETS)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", FOLDS)
def test_counters_end_as_the_fold_of_all_updates(name: str, block: int, buckets: int) -> None:
    n, rng = 90, np.random.default_rng(block)
    # every dtype with every block, with all numbers of buckets and with every update
    dtype, keeps_old = KINDS[(BLOCKS.index(block) + BUCKETS.index(buckets) + [*FOLDS].index(name)) % len(KINDS)]
    x = rng.integers(0, 100, n).astype(dtype.numpy)
    counters, old = np.full(buckets, 50, dtype.numpy), np.zeros(n, dtype.numpy)
    with np.errstate(over="ignore"):
        expected = [reduce(FOLDS[name], x[k::buckets], counters[k]) for k in range(buckets)]

    run(
        update(name, dtype, buckets, keeps_old=keeps_old),
        [x, counters, old, np.int64(n)],
        (-(-n // block), 1, 1),
        (block, 1, 1),
    )

    np.testing.assert_array_equal(counters, expected)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["atomic_add", "atomic_max"])
def test_floats_are_updated_too(name: str, dtype: DType) -> None:
    x = (np.arange(64) % 7).astype(dtype.numpy)
    counters, old = np.zeros(4, dtype.numpy), np.zeros(64, dtype.numpy)

    run(update(name, dtype, 4, keeps_old=True), [x, counters, old, np.int64(64)], (2, 1, 1), (32, 1, 1))

    fold = np.sum if name == "atomic_add" else np.max
    assert [float(fold(x[k::4])) for k in range(4)] == counters.tolist()


@pytest.mark.parametrize("block", BLOCKS)
def test_a_ticket_is_given_once(block: int) -> None:
    """The old values of an atomic add of one are 0, 1, 2, ... in some order."""

    def body(b: Builder, counter: Value, y: Value) -> None:
        b.store(b.offset(y, global_thread(b)), call(b, "atomic_add", counter, b.constant(1, i32)))

    counter, y = np.zeros(1, np.int32), np.zeros(3 * block, np.int32)
    run(kernel(array(i32), array(i32), body=body), [counter, y], (3, 1, 1), (block, 1, 1))

    assert sorted(y.tolist()) == list(range(3 * block))
    assert counter[0] == 3 * block


@pytest.mark.parametrize("block", [1, 32, 100, 256])
def test_a_histogram_in_shared_memory(block: int) -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)
        shared = b.alloc(i32, Space.SHARED, block, 4)
        b.store(b.offset(shared, t), b.constant(0, i32))
        barrier(b)
        call(b, "atomic_add", b.offset(shared, b.load(b.offset(x, t))), b.constant(1, i32))
        barrier(b)
        b.store(b.offset(y, t), b.load(b.offset(shared, t)))

    x = np.random.default_rng(0).integers(0, block, block)
    y = np.zeros(block, np.int32)
    run(kernel(array(i64), array(i32), body=body), [x, y], (1, 1, 1), (block, 1, 1))

    np.testing.assert_array_equal(y, np.bincount(x, minlength=block))


def test_compare_and_swap_lets_one_thread_win() -> None:
    def body(b: Builder, flag: Value, y: Value) -> None:
        i = global_thread(b)
        before = call(b, "atomic_cas", flag, b.constant(0, i64), b.add(i, b.index(1)))
        b.store(b.offset(y, i), before)

    flag, y = np.zeros(1, np.int64), np.zeros(64, np.int64)
    run(kernel(array(i64), array(i64), body=body), [flag, y], (2, 1, 1), (32, 1, 1))

    assert (y == 0).sum() == 1
    assert flag[0] == np.flatnonzero(y == 0)[0] + 1


def test_blocks_on_several_os_threads_do_not_lose_updates() -> None:
    x, counters, old = np.ones(64 * 500, np.float32), np.zeros(3, np.float32), np.zeros(1, np.float32)
    runner = compiled(update("atomic_add", f32, 3, keeps_old=False), (64, 1, 1))
    slots, grid = [x, counters, old, np.int64(len(x))], (500, 1, 1)

    workers = [threading.Thread(target=runner, args=(slots, grid, first, first + 125)) for first in range(0, 500, 125)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [float(len(x[k::3])) for k in range(3)] == counters.tolist()
    runner.close()
