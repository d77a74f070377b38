"""Guards asked once for a row of blocks: every thread still does what its own guard says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends.host import guards
from stagekit.backends.host.entry import LONGEST_ROW
from stagekit.ir import Builder, CompareKind, Value
from tests.backends.host.kernels import array, global_thread, i32, i64, kernel, number, when
from tests.backends.host.running import compiled

COMPARISONS = {
    "<": lambda i, n: i < n,
    "<=": lambda i, n: i <= n,
    ">": lambda i, n: n > i,
    ">=": lambda i, n: n >= i,
    "of a difference": lambda i, n: n - i >= 1,
    "from below": lambda i, n: i >= n,
    "of a product": lambda i, n: 3 * i < n,
    "of both ends": lambda i, n: (i >= 5) & (i < n),
    "one after the other": lambda i, n: i >= 5 and i < n,
    "that wraps": lambda i, n: i + (n + ((1 << 62) - 1) * 2) < n,
    "equal": lambda i, n: i == n,
}


def _marks(compare):
    """A kernel that counts, in each thread for which the guard holds, at the thread's place."""

    @sk.jit
    def marks(out, n: sk.int64):
        i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
        if compare(i, n):
            out[i] += 1

    return marks


KERNELS = {name: _marks(compare) for name, compare in COMPARISONS.items()}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_each_thread_of_a_guarded_kernel_obeys_its_own_guard(data: st.DataObject) -> None:
    """Limits at, beside and far from the ends of rows."""
    name = data.draw(st.sampled_from(sorted(COMPARISONS)))
    block = data.draw(st.sampled_from((1, 3, 32, 33, 64, 100, 256)))
    blocks = data.draw(st.sampled_from((1, 2, 3, 40, LONGEST_ROW + 1, LONGEST_ROW + 2, 2 * LONGEST_ROW + 7)))
    threads = block * blocks
    edges = (
        0,
        1,
        5,
        block - 1,
        block,
        LONGEST_ROW * block,
        (LONGEST_ROW + 1) * block,
        threads - block,
        threads - 1,
        threads,
    )
    near = st.sampled_from(edges)
    n = data.draw(st.one_of(near, near.map(lambda v: v + 1), st.integers(-3, 3 * threads + 3)))
    out = np.zeros(threads, np.int32)

    KERNELS[name][blocks, block](out, n)

    with np.errstate(over="ignore"):
        i = np.arange(threads, dtype=np.int64)
        expected = _expected(name, i, np.int64(n))
    np.testing.assert_array_equal(out, expected.astype(np.int32))


def _expected(name: str, i: np.ndarray, n: np.int64) -> np.ndarray:
    if name == "one after the other":
        return (i >= 5) & (i < n)
    return COMPARISONS[name](i, n)


@settings(max_examples=25, deadline=None)
@given(width=st.integers(1, 90), height=st.integers(1, 40), block=st.sampled_from(((8, 4), (16, 16), (32, 1), (5, 3))))
def test_guards_of_two_axes_hold_together(width: int, height: int, block: tuple[int, int]) -> None:
    out = np.zeros((64, 96), np.int32)

    KERNEL_OF_TWO_AXES[(-(-96 // block[0]), -(-64 // block[1])), block](out, width, height)

    expected = np.zeros_like(out)
    expected[:height, :width] = 1
    np.testing.assert_array_equal(out, expected)


@sk.jit
def _two_axes(out, width: sk.int64, height: sk.int64):
    x = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    y = sk.cuda.block_idx("y") * sk.cuda.block_dim("y") + sk.cuda.thread_idx("y")
    if x < width and y < height:
        out[y, x] += 1


KERNEL_OF_TWO_AXES = _two_axes


@sk.jit
def _shifted(src, dst, width: sk.int64, left: sk.constexpr[int], right: sk.constexpr[int]):
    x = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if x < width:
        dst[x] = src[max(x - left, 0)] + 1000 * src[min(max(x + right, 2), width - 1)]


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(3, 700),
    left=st.sampled_from((-1, 0, 1, 5, 40)),
    right=st.sampled_from((-70, -1, 0, 1, 33)),
    block=st.sampled_from((1, 5, 32, 96)),
)
def test_clamped_neighbours_are_found_inside_and_at_the_edges(width: int, left: int, right: int, block: int) -> None:
    src = np.arange(width + 1, dtype=np.int32)
    dst = np.zeros(width, np.int32)

    _shifted[-(-width // block), block](src, dst, width, left, right)

    x = np.arange(width)
    expected = src[np.maximum(x - left, 0)] + 1000 * src[np.minimum(np.maximum(x + right, 2), width - 1)]
    np.testing.assert_array_equal(dst, expected)


@sk.jit
def _window(src, dst, width: sk.int64, first: sk.int32, last: sk.int32):
    x = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if x < width:
        total = sk.int32(0)
        for d in range(first, last):
            if d < 2:
                total += src[min(max(x + d, 0), width - 1)]
        dst[x] = total


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 700),
    first=st.integers(-40, 40),
    count=st.integers(0, 9),
    block=st.sampled_from((1, 5, 32, 96)),
)
def test_neighbours_are_clamped_in_every_iteration_of_a_loop(width: int, first: int, count: int, block: int) -> None:
    src = np.arange(7, width + 7, dtype=np.int32)
    dst = np.zeros(width, np.int32)

    _window[-(-width // block), block](src, dst, width, first, first + count)

    x = np.arange(width)
    shifts = [d for d in range(first, first + count) if d < 2]
    expected = sum((src[np.clip(x + d, 0, width - 1)] for d in shifts), np.zeros(width, np.int32))
    np.testing.assert_array_equal(dst, expected)


@sk.jit
def _chosen_by_a_clamp(out, n: sk.int64):
    """What is compared hangs on a clamp that may come out either way."""
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    place = n if i > n else i
    if place >= 40:
        out[i] = 1
    elif i < 2000:
        out[i] = 2


@pytest.mark.parametrize("n", [-5, 0, 39, 40, 41, 64, 1000, 5000])
def test_a_guard_behind_a_clamp_is_right_whichever_way_it_goes(n: int) -> None:
    out = np.zeros(3200, np.int32)

    _chosen_by_a_clamp[100, 32](out, n)

    i = np.arange(out.size)
    expected = np.where(np.minimum(i, n) >= 40, 1, np.where(i < 2000, 2, 0))
    np.testing.assert_array_equal(out, expected)


def _count(times: int):
    """Adds to the threads below a limit, some times over."""

    def body(b: Builder, out: Value, limit: Value) -> None:
        i = global_thread(b)
        with when(b, b.compare(CompareKind.LT, i, limit)):
            for _ in range(times):
                place = b.offset(out, i)
                b.store(place, b.add(b.load(place), b.constant(1, i32)))

    return kernel(array(i32), number(i64), body=body)


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 2047, 2048])
def test_a_row_may_begin_and_end_anywhere_in_the_grid(n: int) -> None:
    """Workers take ranges of blocks that know nothing of rows."""
    runner = compiled(_count(1), (32, 1, 1))
    for step in (1, 7, 40, 64):
        out = np.zeros(2048, np.int32)
        for first in range(0, 64, step):
            assert runner([out, np.int64(n)], (64, 1, 1), first, min(first + step, 64)) == 0
        np.testing.assert_array_equal(out, np.arange(2048) < n)
    runner.close()


@pytest.mark.parametrize(("times", "is_copied"), [(1, True), (guards.MAX_STRAIGHT_OPS, False)])
def test_a_large_kernel_is_not_written_twice(times: int, is_copied: bool) -> None:
    runner = compiled(_count(times), (32, 1, 1))
    assert is_copied == ("%unguarded" in runner.code.llvm)
    runner.close()
