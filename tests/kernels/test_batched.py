"""Products of many matrices are NumPy's, of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit import kernels
from tests.kernels.rows import DTYPES, EPS, each_place, run


@each_place
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=5, deadline=None)
@given(st.sampled_from([0, 1, 3]), *[st.integers(1, 70)] * 3)
def test_products_of_many_matrices(place, dtype, batch, m, n, k):
    rng = np.random.default_rng(m)
    a, b = (rng.normal(size=(batch, *shape)).astype(dtype) for shape in ((m, k), (k, n)))

    found = run(place, kernels.batched_matmul, a, b)

    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert found.dtype == dtype
    assert found.shape == exact.shape
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2 * EPS[dtype], atol=2e-4)


@each_place
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=3, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 70), st.integers(1, 70), st.integers(0, 3))
def test_products_of_groups_of_rows(place, dtype, sizes, k, n, rest):
    """Groups may be empty, and rows behind the last one are left as they were."""
    rng = np.random.default_rng(n)
    ends, stop = np.cumsum(sizes).astype(np.int32), sum(sizes)
    a, b = (rng.normal(size=shape).astype(dtype) for shape in ((stop + rest, k), (len(sizes), k, n)))
    out = np.full((stop + rest, n), 7, dtype)

    run(place, kernels.grouped_matmul, a, b, ends, out=out)

    begins = [0, *ends[:-1]]
    exact = [a[i:j].astype(np.float64) @ m for i, j, m in zip(begins, ends, b.astype(np.float64), strict=True)]
    np.testing.assert_allclose(out[:stop].astype(np.float64), np.concatenate(exact), rtol=2 * EPS[dtype], atol=2e-4)
    assert (out[stop:] == 7).all()


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match=r"give \(batch, m, k\) and \(batch, k, n\)"):
        kernels.batched_matmul(np.zeros((2, 3, 4), np.float32), np.zeros((3, 4, 5), np.float32))
    with pytest.raises(ValueError, match="ends is of int64: convert it to int32"):
        kernels.grouped_matmul(np.zeros((2, 3), np.float32), np.zeros((1, 3, 4), np.float32), np.zeros(1, np.int64))
