"""Loops with more sums than registers are run in parts, and give what they gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from stagekit import dtypes
from stagekit.backends.host import compiler
from stagekit.backends.host.sums import sum_in_parts
from stagekit.ir import INDEX, Builder, Function, UnaryKind, Value, ops, walk
from tests.backends.host.kernels import array, call, f32, kernel, loop, thread
from tests.backends.host.running import CPU, Runner, lower
from tests.backends.host.test_code import HASWELL, runs_here, x86_only

BYTES = 512  # the registers of AVX2
THREADS, DEPTH = 70, 5
Step = Callable[[Builder, Value, Value, Value, Sequence[Value]], Sequence[Value]]
"""From a builder, the number of the iteration, two arrays and the sums, what the sums become."""


def sums(step: Step, count: int, dtype: dtypes.DType = f32) -> Function:
    """`count` sums of each thread, which begin as their numbers, and are stored at the end."""

    def body(b: Builder, x: Value, y: Value, out: Value, n: Value) -> None:
        inits = [b.constant(float(number), dtype) for number in range(count)]
        one = lambda k, *given: step(b, k, x, y, given)  # noqa: E731
        found = loop(b, (b.index(0), n, b.index(1)), inits, one)
        for number, value in enumerate(found):
            b.store(b.offset(out, b.add(thread(b), b.index(number * THREADS))), value)

    return kernel(array(dtype), array(dtype), array(dtype), INDEX, body=body)


def of_rows(b: Builder, k: Value, x: Value, y: Value, given: Sequence[Value]) -> Sequence[Value]:
    """A number that all threads share times a number of each: a product of matrices."""
    left, row = b.load(b.offset(x, k)), b.load(b.offset(y, b.add(b.mul(k, b.index(THREADS)), thread(b))))
    return [call(b, "fma", left, row, value) for value in given]


def of_distant_rows(b: Builder, k: Value, x: Value, y: Value, given: Sequence[Value]) -> Sequence[Value]:
    """Each sum has an address of its own to compute."""
    row, count = b.load(b.offset(y, thread(b))), len(given)
    lefts = [b.load(b.offset(x, b.add(b.mul(k, b.index(count)), b.index(number)))) for number in range(count)]
    return [call(b, "fma", left, row, value) for left, value in zip(lefts, given, strict=True)]


def pairs(b: Builder, k: Value, x: Value, y: Value, given: Sequence[Value]) -> Sequence[Value]:
    """Each sum, and the one beside it that counts with it."""
    row = b.load(b.offset(y, thread(b)))
    added = [b.add(value, row) for value in given]
    return [b.add(value, given[number ^ 1]) for number, value in enumerate(added)]


def chained(b: Builder, k: Value, x: Value, y: Value, given: Sequence[Value]) -> Sequence[Value]:
    return [b.add(value, given[number - 1]) for number, value in enumerate(given)]


def of_a_root(b: Builder, k: Value, x: Value, y: Value, given: Sequence[Value]) -> Sequence[Value]:
    """What all sums share takes long."""
    root = b.unary(UnaryKind.NEG, b.load(b.offset(y, thread(b))))
    product = b.mul(root, root)
    return [b.add(value, product) for value in given]


def storing(b: Builder, k: Value, x: Value, y: Value, given: Sequence[Value]) -> Sequence[Value]:
    b.store(b.offset(y, thread(b)), given[0])
    return of_rows(b, k, x, y, given)


def loops(fn: Function) -> list[int]:
    """How many sums each loop has."""
    return [len(op.inits) for op in walk(fn.body) if isinstance(op, ops.For)]


@pytest.mark.parametrize(
    ("step", "dtype", "count", "expected"),
    [
        (of_rows, f32, 8, [2, 2, 2, 2]),
        (of_rows, f32, 5, [2, 2, 1]),
        (of_rows, f32, 4, [4]),  # fits
        (of_rows, dtypes.float64, 3, [1, 1, 1]),
        (pairs, f32, 8, [2, 2, 2, 2]),
        (chained, f32, 8, [8]),
        (of_a_root, f32, 8, [8]),
        (storing, f32, 8, [8]),
        (of_distant_rows, f32, 8, [8]),
    ],
)
def test_a_loop_is_taken_apart_where_its_sums_do_not_need_each_other(
    step: Step, dtype: dtypes.DType, count: int, expected: list[int]
) -> None:
    assert loops(sum_in_parts(sums(step, count, dtype), BYTES)) == expected


def test_sums_of_the_same_vectors_stay_together() -> None:
    """Of 2 rows and 4 vectors, a part has both rows of one vector."""

    def step(b: Builder, k: Value, x: Value, y: Value, given: Sequence[Value]) -> Sequence[Value]:
        left, right = b.offset(x, k), b.offset(y, thread(b))
        lefts = [b.load(b.offset(left, b.index(row))) for row in range(2)]
        rights = [b.load(b.offset(right, b.index(THREADS * place))) for place in range(4)]
        factors = [(left, right) for left in lefts for right in rights]
        return [call(b, "fma", *pair, value) for pair, value in zip(factors, given, strict=True)]

    fn = sum_in_parts(sums(step, 8), BYTES)

    found = [op for op in walk(fn.body) if isinstance(op, ops.For)]
    assert [sum(isinstance(op, ops.Load) for op in each.loop_body.ops) for each in found] == [3, 3, 3, 3]


@x86_only
@pytest.mark.skipif(not runs_here(HASWELL), reason="this processor has less")
@pytest.mark.parametrize("step", [of_rows, of_distant_rows, pairs, chained, of_a_root, storing])
@pytest.mark.parametrize("n", [0, 1, DEPTH])
def test_the_numbers_are_those_of_one_loop(step: Step, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _run(step, n)
    monkeypatch.setattr(compiler, "sum_in_parts", lambda fn, vector_bytes: fn)

    np.testing.assert_array_equal(found, _run(step, n))


def _run(step: Step, n: int) -> np.ndarray:
    random = np.random.default_rng(0)
    x, y = random.random(8 * DEPTH).astype(np.float32), random.random(THREADS * DEPTH).astype(np.float32)
    out = np.zeros(8 * THREADS, np.float32)
    run = Runner(compiler.compile_for(lower(sums(step, 8), CPU, ()), (THREADS, 1, 1), HASWELL))
    try:
        assert run([x, y, out, np.int64(n)], (1, 1, 1)) == 0
    finally:
        run.close()
    return out
