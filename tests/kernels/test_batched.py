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


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match=r"give \(batch, m, k\) and \(batch, k, n\)"):
        kernels.batched_matmul(np.zeros((2, 3, 4), np.float32), np.zeros((3, 4, 5), np.float32))
