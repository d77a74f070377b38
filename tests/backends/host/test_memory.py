"""Accesses touch what the lanes that are on name, and nothing else: a protected page stands behind, or before, the array."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.ir import INDEX, BinaryKind, Builder, CompareKind, Space, Value, semantics
from tests.backends.host.kernels import (
    BLOCKS,
    array,
    barrier,
    f32,
    global_thread,
    i32,
    i64,
    kernel,
    loop,
    number,
    thread,
    when,
)
from tests.backends.host.running import compiled, run

PAGE = mmap.PAGESIZE
DTYPES = (dtypes.int8, dtypes.float16, dtypes.float32, dtypes.int64, dtypes.bool_)


class Guarded:
    """One readable page between two protected ones."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._memory = mmap.mmap(-1, 3 * PAGE)
        self._view = ctypes.c_char.from_buffer(self._memory)
        start = ctypes.addressof(self._view)
        for page in (start, start + 2 * PAGE):
            assert libc.mprotect(ctypes.c_void_p(page), PAGE, 0) == 0
        self.bytes = np.frombuffer((ctypes.c_uint8 * PAGE).from_address(start + PAGE), np.uint8)

    def at_end(self, count: int, dtype: DType) -> np.ndarray:
        return self.bytes[PAGE - count * dtype.itemsize :].view(dtype.numpy)

    def at_start(self, count: int, dtype: DType) -> np.ndarray:
        return self.bytes[: count * dtype.itemsize].view(dtype.numpy)


@pytest.fixture(scope="module")
def page() -> Iterator[Guarded]:
    guarded = Guarded()
    guarded.bytes[:] = 1
    yield guarded
    guarded.bytes[:] = 0


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_a_guard_keeps_the_tail_off_the_page_behind(page: Guarded, block: int, dtype: DType) -> None:
    """As control flow (`if i < n`) and as a mask (`load(p, mask=i < n)`)."""

    def body(b: Builder, x: Value, y: Value, n: Value) -> None:
        i = global_thread(b)
        inside = b.compare(CompareKind.LT, i, n)
        zero = b.constant(semantics.round_to(0, dtype), dtype)
        value = b.load(b.offset(x, i), inside, zero)
        with when(b, inside):
            b.store(b.offset(y, i), b.load(b.offset(x, i)))
        b.store(b.offset(y, i), value, inside)

    runner = compiled(kernel(array(dtype), array(dtype), INDEX, body=body), (block, 1, 1))
    for n in (1, 5, 31, 32, 33, 200):
        x, y = np.ones(n, dtype.numpy), page.at_end(n, dtype)
        y[:] = 0
        runner([x, y, np.int64(n)], (-(-n // block), 1, 1))
        np.testing.assert_array_equal(y, x)
        runner([y, x, np.int64(n)], (-(-n // block), 1, 1))
    runner.close()


@pytest.mark.parametrize("step", [1, 2, 3, 4, -1, 7, 0])
@pytest.mark.parametrize("block", [4, 32, 64, 40])
def test_strided_accesses_end_with_the_array(page: Guarded, block: int, step: int) -> None:
    def body(b: Builder, x: Value, y: Value, start: Value) -> None:
        t = thread(b)
        place = b.offset(x, b.add(start, b.mul(t, b.index(step))))
        value = b.load(place)
        b.store(b.offset(y, t), value)
        b.store(place, b.add(value, b.constant(1000, i32)))

    count = abs(step) * (block - 1) + 1
    fn = kernel(array(i32), array(i32), INDEX, body=body)
    runner = compiled(fn, (block, 1, 1))
    for x in (page.at_end(count, i32), page.at_start(count, i32)):
        x[:] = np.arange(count)
        y = np.zeros(block, np.int32)
        start = 0 if step >= 0 else count - 1
        runner([x, y, np.int64(start)], (1, 1, 1))
        places = start + step * np.arange(block)
        np.testing.assert_array_equal(y, places)
        np.testing.assert_array_equal(x, np.arange(count) + 1000 * np.isin(np.arange(count), places))
    runner.close()


@settings(max_examples=60, deadline=None)
@given(
    width=st.sampled_from([1, 2, 4, 5, 8, 11, 16, 32]),
    pitch=st.integers(0, 40),
    block=st.sampled_from([16, 32, 33, 64, 100]),
    limit=st.integers(0, 70),
)
def test_tile_shaped_accesses_respect_their_mask(width: int, pitch: int, block: int, limit: int) -> None:
    """`x[t // width * pitch + t % width]`, the pitch known at run time, some lanes masked off: their addresses are wild."""
    guarded = Guarded()

    def body(b: Builder, x: Value, y: Value, n: Value, rows: Value) -> None:
        t, w = thread(b), b.index(width)
        index = b.add(
            b.mul(b.binary(BinaryKind.FLOORDIV, t, w), rows),
            b.binary(BinaryKind.MOD, t, w),
        )
        mask = b.compare(CompareKind.LT, index, n)
        b.store(b.offset(y, t), b.load(b.offset(x, index), mask, b.constant(-1, i32)))
        b.store(b.offset(x, index), b.cast(t, i32), mask)

    x = guarded.at_end(limit, i32)
    x[:] = np.arange(limit) + 100
    y = np.zeros(block, np.int32)
    t = np.arange(block)
    index = t // width * pitch + t % width
    is_inside = index < limit
    expected, after = np.full(block, -1, np.int32), x.copy()
    expected[is_inside] = x[index[is_inside]]
    for at, thread_number in zip(index[is_inside], t[is_inside], strict=True):
        after[at] = thread_number  # of those that name one element the last wins, within a warp and across warps

    run(
        kernel(array(i32), array(i32), INDEX, INDEX, body=body),
        [x, y, np.int64(limit), np.int64(pitch)],
        (1, 1, 1),
        (block, 1, 1),
    )

    if pitch >= width:  # else a warp reads what another one has written
        np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(x, after)
    guarded.bytes[:] = 0


def test_a_uniform_address_is_not_read_when_no_lane_asks(page: Guarded) -> None:
    def body(b: Builder, x: Value, y: Value, n: Value, far: Value) -> None:
        t = thread(b)
        mask = b.compare(CompareKind.LT, t, n)
        b.store(b.offset(y, t), b.load(b.offset(x, far), mask, b.constant(7, i32)))
        b.store(b.offset(x, far), b.constant(5, i32), mask)
        with when(b, mask):
            b.store(b.offset(x, far), b.load(b.offset(x, far)))

    x, y = page.at_end(1, i32), np.zeros(40, np.int32)
    for n, far, wanted in ((0, 1, [7] * 40), (3, 0, [9] * 3 + [7] * 37)):
        x[0] = 9
        run(
            kernel(array(i32), array(i32), INDEX, INDEX, body=body),
            [x, y, np.int64(n), np.int64(far)],
            (1, 1, 1),
            (40, 1, 1),
        )
        assert wanted == y.tolist()
    assert x[0] == 5


@pytest.mark.parametrize("block", [32, 64, 100])
def test_an_array_may_be_input_and_output(block: int) -> None:
    """In place, shifted by one: each thread reads before any thread of its warp writes, and a barrier does the rest."""

    def body(b: Builder, x: Value, y: Value) -> None:
        t = thread(b)
        b.store(b.offset(y, t), b.add(b.load(b.offset(x, t)), b.constant(1, i32)))
        b.store(b.offset(x, t), b.mul(b.load(b.offset(y, t)), b.constant(2, i32)))

    x = np.arange(block, dtype=np.int32)
    run(kernel(array(i32), array(i32), body=body), [x, x], (1, 1, 1), (block, 1, 1))

    assert [2 * (t + 1) for t in range(block)] == x.tolist()


def test_per_thread_arrays_do_not_mix() -> None:
    """Indices that differ from lane to lane, in a block of several warps, across a barrier."""

    def body(b: Builder, y: Value) -> None:
        t = thread(b)
        own = b.alloc(i64, Space.LOCAL, 5, 8)
        fill = lambda i: (b.store(b.offset(own, i), b.add(b.mul(t, b.index(10)), i)), [])[1]  # noqa: E731
        loop(b, (b.index(0), b.index(5), b.index(1)), [], fill)
        barrier(b)
        b.store(b.offset(y, t), b.load(b.offset(own, b.binary(BinaryKind.MOD, t, b.index(5)))))

    y = np.zeros(100, np.int64)
    run(kernel(array(i64), body=body), [y], (1, 1, 1), (100, 1, 1))

    assert [10 * t + t % 5 for t in range(100)] == y.tolist()


def test_a_large_per_thread_array_does_not_fill_the_stack() -> None:
    def body(b: Builder, y: Value) -> None:
        t = thread(b)
        own = b.alloc(f32, Space.LOCAL, 1 << 16, 4)
        b.store(b.offset(own, b.index((1 << 16) - 1)), b.cast(t, f32))
        b.store(b.offset(y, t), b.load(b.offset(own, b.index((1 << 16) - 1))))

    y = np.zeros(64, np.float32)
    run(kernel(array(f32), body=body), [y], (1, 1, 1), (64, 1, 1))

    assert y.tolist() == list(range(64))


def test_dynamic_shared_memory_follows_the_scratch_memory() -> None:
    def body(b: Builder, y: Value, n: Value) -> None:
        t = thread(b)
        fixed = b.alloc(i32, Space.SHARED, 64, 4)
        dynamic = b.alloc(i32, Space.SHARED, None, 16)
        b.store(b.offset(fixed, t), b.constant(-1, i32))
        b.store(b.offset(dynamic, t), b.cast(t, i32))
        barrier(b)
        b.store(b.offset(y, t), b.load(b.offset(dynamic, b.sub(b.sub(n, t), b.index(1)))))

    y = np.zeros(64, np.int32)
    run(kernel(array(i32), INDEX, body=body), [y, np.int64(64)], (1, 1, 1), (64, 1, 1), dynamic_bytes=256)

    assert y.tolist() == list(range(63, -1, -1))


def test_bool_parameters_and_small_scalars_arrive() -> None:
    def body(b: Builder, y: Value, flag: Value, small: Value, half: Value) -> None:
        t = thread(b)
        value = b.select(flag, b.cast(small, f32), b.cast(half, f32))
        b.store(b.offset(y, t), value)

    types = (array(f32), number(dtypes.bool_), number(dtypes.int8), number(dtypes.float16))
    y = np.zeros(3, np.float32)
    for flag, wanted in ((True, -5.0), (False, 0.5)):
        run(kernel(*types, body=body), [y, np.bool_(flag), np.int8(-5), np.float16(0.5)], (1, 1, 1), (3, 1, 1))
        assert y.tolist() == [wanted] * 3
