"""`i // width` and `i % width` of neighbours, by a width known only at run time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk

EXTREMES = {
    sk.int32: (-(2**31), -(2**31) + 1, 2**31 - 1),
    sk.int64: (-(2**63), -(2**63) + 1, 2**63 - 1, 2**40),
    sk.uint32: (2**32 - 1, 2**31),
}


@sk.jit
def _divided(quotients, remainders, start, width, step: sk.constexpr[int], dtype: sk.constexpr):
    t = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    i = start + dtype(t) * dtype(step)
    quotients[t] = i // width
    remainders[t] = i % width


def _expected(i: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """As the language has it: by 0 gives 0."""
    if width == 0:
        return np.zeros_like(i), np.zeros_like(i)
    with np.errstate(over="ignore"):
        return np.floor_divide(i, i.dtype.type(width)), np.mod(i, i.dtype.type(width))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_neighbours_are_divided_as_each_for_itself(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(sorted(EXTREMES, key=lambda d: d.name)))
    block = data.draw(st.sampled_from((1, 20, 32, 33, 128)))
    step = data.draw(st.sampled_from((1, 3, 1000)))
    near = st.integers(max(dtype.min, -70), 200)
    anywhere = st.integers(dtype.min, dtype.max)
    width = data.draw(st.one_of(near, st.sampled_from(EXTREMES[dtype]), anywhere))
    start = data.draw(st.one_of(near, st.sampled_from(EXTREMES[dtype]), anywhere))
    quotients, remainders = (np.zeros(2 * block, dtype.numpy) for _ in range(2))

    _divided[2, block](quotients, remainders, dtype.numpy.type(start), dtype.numpy.type(width), step, dtype)

    with np.errstate(over="ignore"):
        i = dtype.numpy.type(start) + np.arange(2 * block).astype(dtype.numpy) * dtype.numpy.type(step)
    for got, wanted in zip((quotients, remainders), _expected(i, width), strict=True):
        np.testing.assert_array_equal(got, wanted)


@sk.jit
def _rows_and_columns(out, width: sk.int64, n: sk.int64):
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if i < n:
        row, column = i // width, i % width
        out[row * width + column] = 1000 * row + column


@pytest.mark.parametrize("width", [1, 2, 7, 31, 32, 33, 100, 1000, 5000])
@pytest.mark.parametrize("block", [32, 96, 50])
def test_a_flat_index_finds_its_row_and_column(width: int, block: int) -> None:
    n = 3210
    out = np.zeros(n, np.int64)

    _rows_and_columns[-(-n // block), block](out, width, n)

    i = np.arange(n)
    np.testing.assert_array_equal(out, 1000 * (i // width) + i % width)


@sk.jit
def _in_a_loop(src, out, width: sk.int64, n: sk.int64):
    """The quotients are carried on, chosen by and stored by, in one row or in several."""
    i = sk.cuda.block_idx("x") * sk.cuda.block_dim("x") + sk.cuda.thread_idx("x")
    if i < n:
        rows, total = sk.int64(0), sk.int32(0)
        for k in range(3):
            row, column = (i + 70 * k) // width, (i + 70 * k) % width
            if column > row:
                total += src[row * width + column]
            rows += row
        out[i] = 100 * total + sk.int32(rows)


@settings(max_examples=25, deadline=None)
@given(width=st.integers(1, 400), n=st.integers(1, 1500), block=st.sampled_from((32, 64, 100)))
def test_rows_carried_by_a_loop(width: int, n: int, block: int) -> None:
    src = np.arange(2000, dtype=np.int32) % 1009
    out = np.zeros(n, np.int32)

    _in_a_loop[-(-n // block), block](src, out, width, n)

    expected = np.zeros(n, np.int32)
    for k in range(3):
        i = np.arange(n) + 70 * k
        expected += (100 * np.where(i % width > i // width, src[i], 0) + i // width).astype(np.int32)
    np.testing.assert_array_equal(out, expected)
