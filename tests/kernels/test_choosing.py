"""The largest elements of rows, in order, and where they are, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import choosing
from tests.kernels.rows import DTYPES, each_place, few, rows, run


@each_place
@few
@given(data=st.data())
def test_the_largest_come_first_and_of_equals_the_first(place, data):
    """Some lengths, numbers and tiles: each is a kernel of its own, with a network of its own."""
    columns = data.draw(st.sampled_from([1, 5, 33, 100]))
    x = data.draw(rows(columns, data.draw(st.sampled_from([*DTYPES, np.dtype(np.int32)])), place))
    k = data.draw(st.sampled_from([k for k in (1, 3, 8) if k <= columns]))
    if data.draw(st.booleans()):
        x = (x / np.abs(x.astype(float)).max(initial=1) * 3).astype(np.int32).astype(x.dtype)  # many equals
    if x.dtype.kind == "f":
        x[0, :3] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        x[-1] = np.where(np.arange(columns) % 4 == 3, x[-1], -np.inf)
    keys = x.astype(np.float64) if x.dtype.kind != "i" else x.astype(np.int64)
    expected = np.argsort(
        -np.where(np.isnan(keys), np.inf, keys) if x.dtype.kind != "i" else -keys, axis=1, kind="stable"
    )
    if np.isnan(keys).any():  # above infinities
        expected = np.stack(
            [np.lexsort((np.arange(columns), -np.nan_to_num(row, nan=0), ~np.isnan(row))) for row in keys]
        )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(choosing, "TILE", data.draw(st.sampled_from([16, 2048])))
        values, places = run(place, kernels.topk, x, k)

    np.testing.assert_array_equal(places, expected[:, :k])
    np.testing.assert_array_equal(values.astype(float), np.take_along_axis(keys, expected, axis=1)[:, :k])


def test_more_than_a_row_has_are_refused():
    with pytest.raises(ValueError, match="k is 4: rows have 3 elements"):
        kernels.topk(np.zeros((2, 3), np.float32), 4)
    values, places = kernels.topk(np.arange(24, dtype=np.int8).reshape(2, 3, 4), 2)
    assert values[1, 2].tolist() == [23, 22]
    assert places.shape == (2, 3, 2)


def test_a_warp_sorts_without_a_barrier_of_the_block():
    assert "bar.sync" not in kernels.topk_kernel(sk.float32, 8, 1024).specialize().ptx
