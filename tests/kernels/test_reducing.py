"""Sums, largest elements and where they are, of rows, columns and whole arrays, in each dtype, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import reducing
from tests.kernels.rows import DTYPES, assert_near, each_place, few, lengths, rows, run, tiles

NUMBERS = [*DTYPES, *map(np.dtype, (np.float64, np.int8, np.uint8, np.int32, np.int64))]


@each_place
@few
@given(data=st.data())
def test_sums_and_largest_elements_of_rows_and_of_all(place, data):
    x = data.draw(rows(data.draw(lengths), data.draw(st.sampled_from(NUMBERS)), place))
    axis = data.draw(st.sampled_from([-1, 1, None]))
    x = np.ascontiguousarray(x) if axis is None else x
    exact = x.astype(np.int64 if x.dtype.kind in "iu" else np.float64)

    with tiles(data), pytest.MonkeyPatch.context() as patched:
        patched.setattr(reducing, "STREAMED_TILE", data.draw(st.sampled_from([8, 100, 4096])))
        total = run(place, kernels.sum, x, axis=axis)
        largest = run(place, kernels.max, x, axis=axis)

    np.testing.assert_array_equal(largest, x.max(axis=axis).reshape(largest.shape))
    expected = exact.sum(axis=axis).reshape(total.shape)
    if x.dtype.kind in "iu":
        assert total.dtype == np.int64
        np.testing.assert_array_equal(total, expected)
    elif x.dtype == np.float64:
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-11 * np.abs(exact).max())
    else:
        assert_near(total, expected, ulps=1.01, absolute=2**-20 * np.abs(exact).sum(axis=axis).reshape(total.shape))


@each_place
@few
@given(data=st.data())
def test_argmax_is_the_first_of_equals_and_of_nans(place, data):
    x = data.draw(rows(data.draw(lengths), data.draw(st.sampled_from(NUMBERS)), place))
    x = (x / np.abs(x).max(initial=1) * 3).astype(x.dtype) if data.draw(st.booleans()) else x
    if x.dtype.kind == "f":
        edges = st.sampled_from([np.nan, np.inf, -np.inf])
        for place_of_edge, edge in data.draw(st.lists(st.tuples(st.integers(0, x.size - 1), edges), max_size=3)):
            x[np.unravel_index(place_of_edge, x.shape)] = edge

    with tiles(data):
        np.testing.assert_array_equal(run(place, kernels.argmax, x), x.argmax(axis=1))


@each_place
@few
@given(data=st.data())
def test_columns_are_added(place, data):
    x = data.draw(rows(data.draw(lengths), data.draw(st.sampled_from(DTYPES)), place, data.draw(st.integers(1, 50))))
    exact = x.astype(np.float64)

    assert_near(
        run(place, kernels.column_sums, x), exact.sum(axis=0), ulps=1.01, absolute=2**-18 * np.abs(exact).sum(axis=0)
    )


def test_another_axis_is_refused_and_nothing_has_a_sum():
    with pytest.raises(ValueError, match="axis is 0"):
        kernels.sum(np.zeros((2, 3)), axis=0)
    assert kernels.sum(np.zeros(0, np.float32)).tolist() == [0]
    assert kernels.max(np.zeros((2, 0), np.float32), axis=-1).tolist() == [-np.inf, -np.inf]


def test_threads_wait_in_the_reduction_alone():
    for kernel in (
        kernels.reduce_rows_kernel(kernels.SUM, sk.float32, 4096),
        kernels.reduce_kernel(kernels.MAX, sk.float32, 2, sk.float32, 4096),
        kernels.column_sums_kernel(sk.float32, sk.float32, 128),
        kernels.argmax_kernel(sk.float32, 4096),
    ):
        assert kernel.specialize().trace().waits == ()
