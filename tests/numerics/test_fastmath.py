"""What `fastmath=True` allows, reassociation and contraction, leaves a function of the language close to what it means."""

from __future__ import annotations

import numpy as np
import pytest

import stagekit as sk

NAMES = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sigmoid",
    "tanh",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "erf",
)
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")


@sk.jit(fastmath=True)
def apply(X: sk.Array, Y: sk.Array, n: sk.int32, function: sk.constexpr) -> None:
    i = sk.program_id(0) * 256 + sk.arange(0, 256)
    sk.store(Y.ptr + i, function(sk.load(X.ptr + i, mask=i < n, other=1)), mask=i < n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fast_functions_stay_close_to_what_they_mean(dtype: type) -> None:
    x = np.random.default_rng(0).normal(0, 9, 5000).astype(dtype)
    for name in NAMES:
        given = np.abs(x) if name in POSITIVE else x
        found = {function: np.empty_like(given) for function in ("fast", "plain")}
        record = getattr(sk, name)
        for function, out in found.items():
            kernel = apply if function == "fast" else sk.jit(apply.function)
            sk.compile(kernel.specialize(function=record), "cpu")[20](given, out, len(given))
        np.testing.assert_allclose(
            found["fast"], found["plain"], rtol=200 * np.finfo(dtype).eps, atol=1e-30, err_msg=name
        )
