"""Matrices of any size, dtype and order, with epilogues, in every placement that the shelf chooses; and transpositions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from tests.kernels.rows import DTYPES, EPS, each_place, run


def clipped(x, scale, bias, old):
    return sk.maximum(x * scale + bias, 0) - old


@each_place
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_products_with_an_epilogue(place, data):
    m, n, k = (data.draw(st.integers(1, 70)) for _ in range(3))
    dtype = data.draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(m)
    a, b = (rng.normal(size=shape).astype(dtype) for shape in ((m, k), (k, n)))
    bias, old = rng.normal(size=n).astype(np.float32), rng.normal(size=(m, n)).astype(dtype)
    if data.draw(st.booleans()):
        b = np.ascontiguousarray(b.T).T
    if data.draw(st.booleans()) and place != "gpu":
        a = np.asfortranarray(a)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = (
        np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) * 2
        + np.abs(bias)
        + np.abs(old.astype(np.float64))
        + 1
    )

    plain = run(place, kernels.matmul, a, b)
    fused = run(place, lambda *given: kernels.matmul(*given[:2], 2.0, *given[2:], epilogue=clipped), a, b, bias, old)

    wanted = np.maximum(exact * 2 + bias, 0) - old.astype(np.float64)
    for found, expected in ((plain, exact), (fused, wanted)):
        error = np.abs(found.astype(np.float64) - expected)
        assert found.dtype == dtype
        assert (error <= np.abs(expected) * EPS[found.dtype] + size * 2.0**-18).all()


BLOCKS = [(128, 128, 16, 256), (64, 64, 16, 64), (32, 32, 16, 64), (16, 32, 32, 32)]


@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
def test_every_block_is_right_as_a_gpu_runs_it(blocks):
    kernel = kernels.matmul_kernel(sk.float32, sk.float32, ((None, 1), (1, None)), None, (), blocks)
    m, n, k = blocks[0] + 3, blocks[1] - 5, 2 * blocks[2] + 1
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float32), rng.integers(-4, 5, (n, k)).astype(np.float32).T
    out = np.zeros((m, n), np.float32)

    with sk.sanitize():
        kernel[2, 1](a, b, out)

    np.testing.assert_array_equal(out, a @ b)


@each_place
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 130), st.integers(1, 70), st.sampled_from([*DTYPES, np.int8, np.float64]))
def test_transpositions(place, rows, columns, dtype):
    x = np.random.default_rng(rows).integers(0, 99, (rows, columns)).astype(dtype)

    np.testing.assert_array_equal(run(place, kernels.transpose, x), x.T)


@pytest.mark.parametrize("write", [
    lambda x: kernels.transpose(x, out=x),
    lambda x: kernels.matmul(x, np.ones_like(x), out=x),
    lambda x: kernels.matmul(np.ones_like(x), x, out=x),
])  # fmt: skip
def test_what_other_blocks_still_read_is_not_written_over(write):
    x = np.ones((200, 200), np.float32)
    with pytest.raises(ValueError, match="other programs still read: give another array"):
        write(x)
