"""Products of bfloat16 by a warp against NumPy: in the interpreter, on this processor, and on one without a unit for them."""

from __future__ import annotations

from typing import Annotated

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.backends.host import compiler, target

PITCH = 96  # of a, in numbers
Matrix = {d: Annotated[sk.Array, sk.Tensor((None, None), d)] for d in (sk.bfloat16, sk.uint32, sk.float32)}
Numbers, Words, Sums = Matrix.values()


@sk.jit
def product(a: Numbers, b: Words, sums: Sums, ROWS: sk.constexpr, DEPTH: sk.constexpr, IS_ADDED: sk.constexpr):
    lane = sk.cuda.thread_idx("x")
    x = sk.alloc_shared((ROWS, PITCH), sk.bfloat16, align=64)
    y = sk.alloc_shared((DEPTH // 2, 32), sk.uint32, align=64)
    total = sk.alloc_shared((ROWS, 32), sk.float32, align=64)
    for row in range(ROWS):
        total[row, lane] = sums[row, lane]
        for start in range(0, DEPTH, 32):
            x[row, start + lane] = a[row, start + lane]
    for row in range(DEPTH // 2):
        y[row, lane] = b[row, lane]
    sk.warp_product_bf16(total + 0, x + 0, y + 0, ROWS, DEPTH, PITCH, is_added=IS_ADDED)
    for row in range(ROWS):
        sums[row, lane] = total[row, lane]


def test_this_processor_is_known() -> None:
    """Code for another process asks for nothing of the system."""
    processor = target.this_processor()

    assert not processor.without_matrix_unit().host_features.has_matrix_unit
    assert processor.without_matrix_unit().name == processor.name


@pytest.mark.parametrize("where", ["interp", "cpu", "without"])
@pytest.mark.parametrize(("rows", "depth", "is_added"), [(32, 32, False), (64, 96, True), (96, 64, True)])
def test_products_are_numpys(monkeypatch, where: str, rows: int, depth: int, is_added: bool) -> None:
    monkeypatch.setenv("STAGEKIT_CACHE", "0")
    monkeypatch.setenv("STAGEKIT_TARGET", "interp" if where == "interp" else "cpu")
    if where == "without":
        monkeypatch.setattr(compiler, "this_processor", target.this_processor().without_matrix_unit)
    rng = np.random.default_rng(rows + depth)
    a, b = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((rows, depth), (depth, 32))]
    start = rng.standard_normal((rows, 32)).astype(np.float32)
    pairs = b.view(np.uint16).astype(np.uint32)
    found = start.copy()

    product.specialize(ROWS=rows, DEPTH=depth, IS_ADDED=is_added)[1, 32](a, pairs[::2] | pairs[1::2] << 16, found)

    expected = a.astype(float) @ b.astype(float) + is_added * start
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_gpu_refuses_it() -> None:
    with pytest.raises(sk.StagekitError, match="it is for processors"):
        product.specialize(ROWS=32, DEPTH=32, IS_ADDED=True).ptx
