"""Barriers: values that cross them, control flow around them, what they collect, and what happens when threads part."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stagekit import dtypes
from stagekit.ir import INDEX, BinaryKind, Builder, CompareKind, Function, Space, Value, ops, walk
from stagekit.passes.pipeline import lower
from tests.backends.host.kernels import BLOCKS, array, barrier, call, i32, i64, kernel, loop, thread, when
from tests.backends.host.running import CPU, compiled, run


def tree_sum(block: int) -> Function:
    """The sum of the block's elements by a tree in shared memory: a loop with a barrier, of any block size."""

    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)
        shared = b.alloc(i64, Space.SHARED, block, 8)
        b.store(b.offset(shared, t), b.load(b.offset(x, t)))
        barrier(b)
        left = Value(INDEX)
        with b.block((left,)) as before:
            b.condition(b.compare(CompareKind.GT, left, b.index(1)), left)
        now = Value(INDEX)
        with b.block((now,)) as after:
            half = b.binary(BinaryKind.FLOORDIV, b.add(now, b.index(1)), b.index(2))
            with when(b, b.compare(CompareKind.LT, b.add(t, half), now)):
                here = b.offset(shared, t)
                b.store(here, b.add(b.load(here), b.load(b.offset(shared, b.add(t, half)))))
            barrier(b)
            b.yield_(half)
        b.while_((b.index(block),), before.done(), after.done())
        b.store(b.offset(y, t), b.load(b.offset(shared, b.index(0))))

    return kernel(array(i64), array(i64), body=body)


@pytest.mark.parametrize("block", BLOCKS)
def test_y9_a_tree_in_shared_memory_sums_any_block(block: int) -> None:
    x, y = np.arange(block, dtype=np.int64) ** 2, np.zeros(block, np.int64)

    fault = run(tree_sum(block), [x, y], (1, 1, 1), (block, 1, 1))

    assert fault == 0
    assert [int(x.sum())] * block == y.tolist()


@pytest.mark.parametrize("block", BLOCKS)
def test_a_shared_array_is_reversed(block: int) -> None:
    def body(b: Builder, x: Value) -> None:
        t = thread(b)
        shared = b.alloc(i32, Space.SHARED, block, 4)
        b.store(b.offset(shared, t), b.load(b.offset(x, t)))
        barrier(b)
        b.store(b.offset(x, t), b.load(b.offset(shared, b.sub(b.index(block - 1), t))))

    x = np.arange(block, dtype=np.int32)
    run(kernel(array(i32), body=body), [x], (1, 1, 1), (block, 1, 1))

    assert x.tolist() == list(range(block - 1, -1, -1))


@pytest.mark.parametrize("block", [1, 32, 33, 96, 1000])
def test_every_kind_of_value_survives_a_barrier(block: int) -> None:
    """Integers of all widths, floats, bools, pointers, and values that are cheap to make again."""

    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)
        loaded = b.load(b.offset(x, t))
        values = [b.cast(loaded, d) for d in (*dtypes.INTEGER_DTYPES, dtypes.float32, dtypes.float64, dtypes.float16)]
        is_odd = b.compare(CompareKind.EQ, b.binary(BinaryKind.MOD, loaded, b.constant(2, i64)), b.constant(1, i64))
        pointer = b.select(is_odd, b.offset(x, loaded), x)
        doubled = b.mul(t, b.index(2))
        barrier(b)
        total = doubled
        for value in values:
            total = b.add(total, b.cast(value, i64))
        total = b.add(total, b.select(is_odd, b.load(pointer), b.constant(0, i64)))
        b.store(b.offset(y, t), total)

    x = (np.arange(block, dtype=np.int64) * 7) % min(block, 100)
    y = np.zeros(block, np.int64)
    run(kernel(array(i64), array(i64), body=body), [x, y], (1, 1, 1), (block, 1, 1))

    assert [2 * t + 11 * v + (x[v] if v % 2 else 0) for t, v in enumerate(x.tolist())] == y.tolist()


@pytest.mark.parametrize("block", [1, 31, 32, 33, 100, 256])
@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("syncthreads_count", lambda flags: int(flags.sum())),
        ("syncthreads_and", lambda flags: bool(flags.all())),
        ("syncthreads_or", lambda flags: bool(flags.any())),
    ],
)
def test_a_barrier_collects_a_predicate(name: str, meaning: Callable[[np.ndarray], int], block: int) -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)
        result = call(b, name, b.load(b.offset(x, t)))
        b.store(b.offset(y, t), b.cast(result, i32))

    runner = compiled(kernel(array(dtypes.bool_), array(i32), body=body), (block, 1, 1))
    rng = np.random.default_rng(block)
    for flags in (np.zeros(block, bool), np.ones(block, bool), rng.random(block) < 0.5):
        y = np.full(block, -1, np.int32)
        runner([flags, y], (1, 1, 1))
        assert [int(meaning(flags))] * block == y.tolist()
    runner.close()


# -- control flow that could part ------------------------------------------------------------------------------------


def guarded(limit_of: Callable[[Builder, Value, Value, Value], Value]) -> Function:
    """Threads below a limit meet at a barrier; `limit_of(builder, thread, flags, n)` makes the condition."""

    def body(b: Builder, flags: Value, y: Value, n: Value) -> None:
        t = thread(b)
        with when(b, limit_of(b, t, flags, n)):
            barrier(b)
            b.store(b.offset(y, t), b.constant(1, i32))

    return kernel(array(dtypes.bool_), array(i32), INDEX, body=body)


CONDITIONS = {
    "an index": lambda b, t, flags, n: b.compare(CompareKind.LT, t, n),
    "a load": lambda b, t, flags, n: b.load(b.offset(flags, t)),
}


@pytest.mark.parametrize("block", [2, 32, 33, 100, 256])
@pytest.mark.parametrize("kind", CONDITIONS)
def test_a_barrier_that_only_some_threads_reach_is_a_fault(kind: str, block: int) -> None:
    """The fault is the number of the barrier in a block of one warp, else of the `if` around it."""
    fn = guarded(CONDITIONS[kind])
    runner, found = compiled(fn, (block, 1, 1)), list(walk(lower(fn, CPU, ()).body))
    for n, is_fault in ((0, False), (block, False), (block - 1, True), (1, True)):
        flags, y = np.arange(block) < n, np.zeros(block, np.int32)
        fault = runner([flags, y, np.int64(n)], (1, 1, 1))
        if is_fault:
            assert isinstance(found[fault - 1], ops.IntrinsicOp if block <= 32 else ops.If)
        else:
            assert fault == 0
            assert [int(n == block)] * block == y.tolist()
    runner.close()


@pytest.mark.parametrize("block", [32, 33, 64, 256])
def test_bounds_that_are_loaded_may_hold_a_barrier_if_all_threads_agree(block: int) -> None:
    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)

        def one(i: Value, total: Value) -> list[Value]:
            barrier(b)
            return [b.add(total, b.add(i, b.cast(t, i64)))]

        (total,) = loop(b, (b.index(0), b.load(b.offset(x, t)), b.index(1)), [b.index(0)], one)
        b.store(b.offset(y, t), total)

    fn = kernel(array(i64), array(i64), body=body)
    runner, found = compiled(fn, (block, 1, 1)), list(walk(lower(fn, CPU, ()).body))
    x, y = np.full(block, 4, np.int64), np.zeros(block, np.int64)
    assert runner([x, y], (1, 1, 1)) == 0
    assert [6 + 4 * t for t in range(block)] == y.tolist()
    x[-1] = 5
    assert isinstance(found[runner([x, y], (1, 1, 1)) - 1], ops.IntrinsicOp if block <= 32 else ops.For)
    runner.close()
