"""Rounds of loops that overlap give what they gave one after the other, and only loops that do nothing else are changed."""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit import kernels
from stagekit.ir.printer import print_function
from stagekit.passes import PassContext, pipeline
from stagekit.passes.prefetch import prefetch
from stagekit.testing import force_entry

CUDA = PassContext("cuda", 90, fastmath=False, debug=False)


BY_ROWS = ((None, 1),) * 2


def matmul(dtype: sk.DType, depth: int, stages: int) -> sk.JitFunction:
    return kernels.matmul_kernel(dtype, sk.float32, BY_ROWS, None, (), (64, 64, depth, 128, stages), WHOLE=True)


@pytest.mark.parametrize(
    ("depth", "stages", "rounds", "dtype"),
    [*itertools.product((16, 64), (2, 3), (0, 1, 5), (ml_dtypes.bfloat16,)), (32, 4, 9, np.float16)],
)
def test_overlapping_rounds_multiply_the_same(depth, stages, rounds, dtype, monkeypatch) -> None:
    monkeypatch.setitem(pipeline.PASSES, "interp", (prefetch, *pipeline.PASSES["interp"]))
    rng = np.random.default_rng(rounds)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((128, depth * rounds), (depth * rounds, 64)))
    out = np.full((128, 64), -1, np.float32)

    with sk.sanitize(uninitialised=False):  # behind the last round fragments are read that nobody multiplies
        matmul(sk.dtypes.dtype_from_numpy(np.dtype(dtype)), depth, stages)[2, 1](a, b, out)

    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4096, 0), (1536, 1408, 32), (1536, 1408, 2048), (1500, 1408, 2048)])
def test_large_products_on_a_gpu(m, n, k) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    out = sk.cuda.to_device(np.full((m, n), -1, np.float32))

    kernels.matmul(sk.cuda.to_device(a), sk.cuda.to_device(b), out=out)

    np.testing.assert_array_equal(out.to_host(), a.astype(np.float32) @ b.astype(np.float32))


def rounds_of(kernel: sk.Specialization) -> str:
    """Return what the last loop of a kernel does, as letters: wait, barrier, copies, loads, products."""
    text = print_function(prefetch(force_entry(kernel, "quick").trace().function, CUDA))
    loop = text[text.rindex("loop(") :]
    names = {"cp_async_wait": "w", "syncthreads": "b", "cp_async_commit": "c", "ldmatrix_x4": "l", "mma": "p"}
    acts = re.findall(
        rf"intrinsic\.({'|'.join(names)})", loop[: loop.index("\n  store")] if "\n  store" in loop else loop
    )
    return re.sub(r"(.)\1*", r"\1", "".join([names[each] for each in acts]))


@pytest.mark.parametrize(
    ("dtype", "depth", "expected"),
    [(sk.bfloat16, 16, "cwblp"), (sk.bfloat16, 32, "lcpwblp"), (sk.int8, 128, "lcplplplwblp")],
)
def test_a_product_reads_fragments_while_it_multiplies_others(dtype, depth, expected) -> None:
    """Of bfloat16 warpgroups multiply what is 64 deep."""
    kernel = matmul(dtype, depth, 3)

    assert rounds_of(kernel.specialize(**dict.fromkeys("cdef"))) == expected
