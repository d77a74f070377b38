"""Products whose common axis is shared among programs are NumPy's."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import matrices, splitting
from stagekit.kernels.matrices import known_blocks
from tests.kernels.rows import DTYPES, each_place, run


@each_place
@settings(max_examples=2, deadline=None)
@given(
    st.sampled_from([*DTYPES, np.dtype(np.int8)]),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from([700, 2100]),
    st.booleans(),
)
def test_products_of_few_blocks_and_many_rounds(place, dtype, m, n, k, is_turned):
    rng = np.random.default_rng(m)
    k *= 10 if place == "gpu" else 1
    a, b = ((rng.normal(size=shape) * 3).astype(dtype) for shape in ((m, k), (k, n)))
    if is_turned and place != "gpu":  # whose own arrays are not
        a = np.ascontiguousarray(a.T).T
    with as_on_a_gpu() if place != "gpu" else contextlib.nullcontext():
        found = run(place, kernels.matmul, a, b)

    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    eps = {4: 1e-6, 2: 8e-3}.get(found.dtype.itemsize, 0) if dtype.kind != "i" else 0
    assert (np.abs(found.astype(np.float64) - exact) <= eps * size).all()


@pytest.mark.parametrize("shape", [(24, 40), (960,), (1, 40, 24), (40, 25)])
def test_an_out_of_another_shape_is_refused_where_a_product_is_shared(shape):
    a, b = np.ones((40, 400), np.float32), np.ones((400, 24), np.float32)
    with as_on_a_gpu():
        assert (kernels.matmul(a, b, out=np.zeros((40, 24), np.float32)) == 400).all()
        with pytest.raises(sk.StagekitError, match="`out`"):
            kernels.matmul(a, b, out=np.zeros(shape, np.float32))


@contextlib.contextmanager
def as_on_a_gpu():
    """Share products as on a GPU, for arrays of the CPU; others have the blocks of the CPU."""
    kernel_for = matrices._kernel_for
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matrices, "is_on_cpu", lambda array: False)
        patched.setattr(matrices, "_kernel_for", lambda *given: kernel_for(*given[:-1], None))
        patched.setattr(matrices, "_split_for", matrices._split_for.__wrapped__)
        patched.setattr(splitting, "LEAST_DEPTH", 40)
        yield


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 100_000), st.sampled_from(DTYPES))
def test_parts_cover_all_rounds_and_are_not_short(rows, columns, depth, dtype):
    known = known_blocks(getattr(sk, dtype.name), "ieee")
    blocks, rounds = splitting.split_for(known, rows, columns, depth)

    assert blocks in known
    assert rounds * blocks[2] >= splitting.LEAST_DEPTH
