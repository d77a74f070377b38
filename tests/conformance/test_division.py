"""Quotients, reciprocals and roots of float32 on a GPU are NumPy's, bit for bit: the hardware, which a model cannot try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagekit as sk
from tests.backends.nvptx.test_division import EDGES, assert_same

ANY = sk.Tensor((None,), sk.float32)


@sk.jit
def of_threads(a: ANY, b: ANY, quotients: ANY, inverses: ANY, roots: ANY, n: sk.int32):
    i = sk.cuda.block_idx("x") * 256 + sk.cuda.thread_idx("x")
    if i < n:
        quotients[i], inverses[i], roots[i] = a[i] / b[i], 1.0 / b[i], sk.sqrt(b[i])


@sk.jit
def of_vectors(a: ANY, b: ANY, quotients: ANY, shared: ANY, thirds: ANY, n: sk.int32):
    i = sk.program_id(0) * 512 + sk.arange(0, 512)
    x, y = (sk.load(each + i, mask=i < n, other=1.0) for each in (a, b))
    sk.store(quotients + i, x / y, mask=i < n)
    sk.store(shared + i, x / sk.load(b), mask=i < n)
    sk.store(thirds + i, x / 3.0, mask=i < n)


def operands(seed: int) -> tuple[Any, Any]:
    """All pairs of edges, 2**22 pairs of any bits, and divisors of all bits set."""
    pairs = [each.ravel() for each in np.meshgrid(EDGES[seed::3], EDGES[seed::3])]
    a, b = np.random.default_rng(seed).integers(0, 1 << 32, (2, 1 << 22), dtype=np.uint32)
    b[: 1 << 20] |= 0x7FFFFF
    return tuple(np.concatenate([edges, some.view(np.float32)]) for edges, some in zip(pairs, (a, b), strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize(("seed", "first"), list(enumerate([-7.5, 1e38, 1e-44, 0.0, np.inf])))
def test_quotients_and_roots_are_correctly_rounded(seed: int, first: float) -> None:
    a, b = operands(seed)
    b[0] = first
    outs = [sk.cuda.to_device(np.zeros_like(a)) for _ in range(3)]
    x, y = map(sk.cuda.to_device, (a, b))

    with np.errstate(all="ignore"):
        of_threads[-(-a.size // 256), 256](x, y, *outs, a.size)
        for out, expected in zip(outs, (a / b, 1 / b, np.sqrt(b)), strict=True):
            assert_same(out.to_host(), expected, a, b)
        of_vectors[-(-a.size // 512)](x, y, *outs, a.size)
        for out, expected in zip(outs, (a / b, a / b[0], a / np.float32(3)), strict=True):
            assert_same(out.to_host(), expected, a, b)
