"""Products of many matrices are NumPy's, of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import batched, matrices
from stagekit.testing import force_entry
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


LAID_OUT = [*matrices.BLOCKS["warpgroups"], batched.FOR_SMALL]
SMALLEST = matrices.BLOCKS["warpgroups"][-1]


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 3), st.integers(1, 80), st.integers(1, 10), st.integers(1, 2))
def test_matrices_below_each_other_do_not_mix(batch, m, eighths, rounds):
    """Blocks have rows of the next matrix, whatever stands there, and do not store what they make of them."""
    n, k = 8 * eighths, SMALLEST.depth * rounds
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, (batch, *shape)).astype(np.float16) for shape in ((m, k), (k, n)))
    a[-1] = np.nan
    out = np.full((batch, m, n), 7, np.float16)

    kernel = kernels.batched_matmul_kernel(sk.float16, SMALLEST, True)
    with sk.sanitize():
        kernel[sk.cdiv(m, SMALLEST.rows), sk.cdiv(n, SMALLEST.columns), batch](batched.flat(a), batched.flat(b), out)

    np.testing.assert_array_equal(out, a @ b)


@settings(max_examples=4, deadline=None)
@given(st.lists(st.integers(0, 80), min_size=1, max_size=3), st.integers(1, 10), st.integers(0, 3))
def test_groups_whose_matrices_lie_below_each_other_do_not_mix(sizes, eighths, rest):
    n, k = 8 * eighths, SMALLEST.depth
    rng = np.random.default_rng(n)
    ends, stop, groups = np.cumsum(sizes).astype(np.int32), sum(sizes), len(sizes)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((stop + rest, k), (groups, k, n)))
    a[stop:] = np.nan
    out = np.full((stop + rest, n), 7, np.float16)

    kernel = kernels.grouped_matmul_kernel(sk.float16, 4, SMALLEST, True)
    with sk.sanitize():
        kernel[sk.cdiv(stop + rest, SMALLEST.rows) + groups, sk.cdiv(n, SMALLEST.columns)](
            a, batched.flat(b), ends, out
        )

    exact = [a[i:j] @ matrix for i, j, matrix in zip([0, *ends[:-1]], ends, b, strict=True)]
    np.testing.assert_array_equal(out, np.concatenate([*exact, np.full((rest, n), 7)]))


@pytest.mark.gpu
@pytest.mark.parametrize("k", [64, 1024])
@pytest.mark.parametrize(("m", "n"), [(100, 72), (1000, 1032)])
def test_matrices_below_each_other_on_a_gpu(m, n, k):
    """Of few rows and columns, and of so many that a block has a multiprocessor for itself."""
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-2, 3, (5, *shape)).astype(np.float16) for shape in ((m, k), (k, n)))
    ends = np.array([0, m, 2 * m + 1, 2 * m + 1, 5 * m - 3], np.int32)
    exact = a.astype(np.float32) @ b.astype(np.float32)

    np.testing.assert_array_equal(run("gpu", kernels.batched_matmul, a, b), exact)

    rows = a.reshape(5 * m, k)
    found = run("gpu", kernels.grouped_matmul, rows, b, ends)
    for begin, end, matrix in zip([0, *ends[:-1]], ends, b, strict=True):
        expected = rows[begin:end].astype(np.float32) @ matrix.astype(np.float32)
        np.testing.assert_array_equal(found[begin:end], expected)


@pytest.mark.parametrize("blocks", LAID_OUT, ids=str)
@pytest.mark.parametrize("kind", ["batched", "grouped"])
def test_warpgroups_multiply_what_the_tma_unit_copies(kind, blocks):
    kernel = (
        kernels.batched_matmul_kernel(sk.bfloat16, blocks, True)
        if kind == "batched"
        else kernels.grouped_matmul_kernel(sk.bfloat16, 8, blocks, True)
    )
    ptx = str(force_entry(kernel.specialize(), "quick").compile("cuda", capability=90).stages["ptx"])

    assert "wgmma.mma_async" in ptx
    assert "cp.async.bulk.tensor" in ptx
    assert "cp.async.cg" not in ptx


def test_what_is_cut_out_or_does_not_fit_is_given_matrix_by_matrix(monkeypatch):
    monkeypatch.setattr(batched, "gpu_of", lambda array: {"room": 1 << 18, "by_warpgroups": True})
    a, b = np.zeros((32, 256, 1024), np.float16), np.zeros((32, 1024, 256), np.float16)
    given = {
        "whole": (a, b, True),
        "apart": (a, b[:, :, :128], True),
        "other depth": (a[:, :, :512], b, True),
        "part of a block": (a[:, :, :1000], b[:, :1000].copy(), True),
        "a with gaps": (a, b, False),
    }

    assert [name for name, each in given.items() if batched._gpu_blocks(sk.float16, *each)[1]] == ["whole"]


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match=r"give \(batch, m, k\) and \(batch, k, n\)"):
        kernels.batched_matmul(np.zeros((2, 3, 4), np.float32), np.zeros((3, 4, 5), np.float32))
    with pytest.raises(sk.StagekitError):
        kernels.batched_matmul(np.zeros((2, 3, 4), np.float32), np.zeros((2, 5, 6), np.float32))
    with pytest.raises(ValueError, match="ends is of int64: convert it to int32"):
        kernels.grouped_matmul(np.zeros((2, 3), np.float32), np.zeros((1, 3, 4), np.float32), np.zeros(1, np.int64))
