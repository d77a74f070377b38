"""The simplest kernels at every block size, length and dtype; index expressions; loops over a stride."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.ir import INDEX, BinaryKind, Builder, CompareKind, Function, Value, semantics
from tests.backends.host.kernels import BLOCKS, array, f32, global_thread, i64, kernel, loop, number, thread, when
from tests.backends.host.running import compiled, run

LENGTHS = (0, 1, 2, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 3000)


def saxpy() -> Function:
    def body(b: Builder, x: Value, y: Value, a: Value, n: Value) -> None:
        i = global_thread(b)
        with when(b, b.compare(CompareKind.LT, i, n)):
            b.store(b.offset(y, i), b.add(b.mul(a, b.load(b.offset(x, i))), b.load(b.offset(y, i))))

    return kernel(array(f32), array(f32), number(f32), INDEX, body=body)


@pytest.mark.parametrize("block", BLOCKS)
def test_saxpy_of_any_length(block: int) -> None:
    runner = compiled(saxpy(), (block, 1, 1))
    for length in LENGTHS:
        x, y = (np.arange(length + 40, dtype=np.float32) * s for s in (0.5, -3))
        expected = y.copy()
        expected[:length] += np.float32(2.5) * x[:length]

        runner([x, y, np.float32(2.5), np.int64(length)], (-(-length // block), 1, 1))

        np.testing.assert_array_equal(y, expected)
    runner.close()


@pytest.mark.parametrize("dtype", dtypes.ALL_DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("block", [5, 32, 100])
def test_a_copy_keeps_the_bits_of_every_dtype(dtype: DType, block: int) -> None:
    def body(b: Builder, x: Value, y: Value, n: Value) -> None:
        i = global_thread(b)
        with when(b, b.compare(CompareKind.LT, i, n)):
            b.store(b.offset(y, i), b.load(b.offset(x, b.sub(b.sub(n, i), b.index(1)))))

    raw = np.random.default_rng(1).integers(0, 2 if dtype is dtypes.bool_ else 256, 70 * dtype.itemsize, np.uint8)
    x = raw.view(dtype.numpy)
    y = np.zeros_like(x)

    run(
        kernel(array(dtype), array(dtype), INDEX, body=body),
        [x, y, np.int64(70)],
        (-(-70 // block), 1, 1),
        (block, 1, 1),
    )

    assert y.view(np.uint8).tobytes() == x[::-1].copy().view(np.uint8).tobytes()


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("step", ["block", "short", "long"])
def test_a_strided_loop_visits_each_element_once(block: int, step: str) -> None:
    """`for i in range(tid, n, step)`; with a step below the block size threads overlap."""
    stride = {"block": block, "short": max(block // 2, 1), "long": block + 7}[step]

    def body(b: Builder, out: Value, last: Value, n: Value) -> None:
        def one(i: Value, count: Value) -> list[Value]:
            return [b.add(count, b.add(i, b.index(1)))]

        (total,) = loop(b, (thread(b), n, b.index(stride)), [b.index(0)], one)
        b.store(b.offset(out, thread(b)), total)

    runner = compiled(kernel(array(i64), array(i64), INDEX, body=body), (block, 1, 1))
    for n in (0, 1, 5, 31, 32, 33, 100, 1000, 1100):
        out = np.full(block, -1, np.int64)
        runner([out, out, np.int64(n)], (1, 1, 1))
        assert [sum(i + 1 for i in range(t, n, stride)) for t in range(block)] == out.tolist()


@pytest.mark.parametrize("block", [1, 31, 40, 64])
@pytest.mark.parametrize("apart", [1 << 20, 1 << 26, 1 << 31, 1 << 33, 1 << 50, -(1 << 20), -(1 << 33)])
def test_a_strided_loop_over_lanes_far_apart(block: int, apart: int) -> None:
    """Their distance need not fit 32 bits."""
    step = abs(apart) << 7

    def body(b: Builder, dst: Value, n: Value) -> None:
        def one(index: Value, count: Value) -> tuple[Value]:
            return (b.add(count, b.index(1)),)

        first = b.mul(thread(b), b.index(apart))
        (count,) = loop(b, (first, n, b.index(step)), [b.index(0)], one)
        b.store(b.offset(dst, thread(b)), count)

    runner = compiled(kernel(array(INDEX.dtype), INDEX, body=body), (block, 1, 1))
    for n in (0, 1, apart, 31 * apart + 1, 35 * apart, step + 5 * apart, 3 * step):
        out = np.zeros(block, np.int64)
        runner([out, np.int64(n)], (1, 1, 1))
        assert [len(range(t * apart, n, step)) for t in range(block)] == out.tolist()
    runner.close()
    runner.close()


# -- index expressions ------------------------------------------------------------------------------------------------

NUMBERS = (0, 1, 2, 3, 5, 8, 11, 15, 16, 31, 32, 33, 64, -1, -16, 2**31, 2**63 - 1, -(2**63))
KINDS = (
    *(BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL, BinaryKind.FLOORDIV, BinaryKind.MOD),
    *(BinaryKind.AND, BinaryKind.SHL, BinaryKind.SHR),
)
LEAVES = st.sampled_from(["x", "y", "block", "n"]) | st.sampled_from(NUMBERS)
TREES = st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from(KINDS), inner, inner), max_leaves=8)
INT_DTYPES = st.sampled_from([dtypes.int64, dtypes.int64, dtypes.int32, dtypes.uint64, dtypes.uint32, dtypes.int8])


def _emit(b: Builder, tree: Any, leaves: dict[str, Value], dtype: DType) -> Value:
    if isinstance(tree, tuple):
        kind, left, right = tree
        return b.binary(kind, _emit(b, left, leaves, dtype), _emit(b, right, leaves, dtype))
    if isinstance(tree, str):
        return b.cast(leaves[tree], dtype)
    return b.constant(int(semantics.typed(tree % 2**dtype.bits, dtypes.uint64).astype(dtype.numpy)), dtype)


def _value(tree: Any, leaves: dict[str, Any], dtype: DType) -> Any:
    if isinstance(tree, tuple):
        kind, left, right = tree
        return semantics.binary(kind, dtype, _value(left, leaves, dtype), _value(right, leaves, dtype))
    if isinstance(tree, str):
        return semantics.cast(leaves[tree], dtypes.int64, dtype)
    return np.full(leaves["x"].shape, tree % 2**64, np.uint64).astype(dtype.numpy)


@settings(max_examples=100, deadline=None)
@given(
    left=TREES,
    right=TREES,
    dtype=INT_DTYPES,
    compare=st.sampled_from(list(CompareKind)),
    shape=st.sampled_from([(32, 1, 1), (33, 1, 1), (256, 1, 1), (16, 8, 1), (11, 5, 1), (3, 1, 1), (1024, 1, 1)]),
    n=st.sampled_from((*NUMBERS, 1000)),
)
def test_index_arithmetic_is_exact_wherever_it_wraps(
    left: Any, right: Any, dtype: DType, compare: CompareKind, shape: tuple[int, int, int], n: int
) -> None:
    """Patterns over the lanes, narrow lanes and comparisons by a threshold are shortcuts: they must not show."""

    def body(b: Builder, out: Value, flags: Value, size: Value) -> None:
        leaves = {"x": thread(b), "y": thread(b, "y"), "block": b.index(3), "n": size}
        place = b.add(thread(b), b.mul(thread(b, "y"), b.index(shape[0])))
        one, other = _emit(b, left, leaves, dtype), _emit(b, right, leaves, dtype)
        b.store(b.offset(out, place), one)
        b.store(b.offset(flags, place), b.compare(compare, one, other))

    threads = shape[0] * shape[1]
    out, flags = np.zeros(threads, dtype.numpy), np.zeros(threads, np.bool_)
    run(kernel(array(dtype), array(dtypes.bool_), INDEX, body=body), [out, flags, np.int64(n)], (1, 1, 1), shape)

    places = np.arange(threads)
    full = {"x": places % shape[0], "y": places // shape[0], "block": np.full(threads, 3), "n": np.full(threads, n)}
    leaves = {name: values.astype(np.int64) for name, values in full.items()}
    expected, against = _value(left, leaves, dtype), _value(right, leaves, dtype)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(flags, semantics.compare(compare, dtype, expected, against))
