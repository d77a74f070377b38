"""Every pure intrinsic, dtype by dtype, on every target, against the meaning in its record.

A kernel per record, written in the language, is specialised for each signature: the test walks the registry, so a new record is
covered by existing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.dtypes import DType
from stagekit.intrinsics import registry
from stagekit.ir import PURE, Intrinsic, Scalar, Sig
from tests.cells import cell

LANES = 64
_EDGES: dict[str, list[float]] = {
    "float": [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.75, 100.0, 1e-3, float("inf"), float("-inf"), float("nan")],
    "int": [0, 1, -1, 2, 7, -8, 100, -100],
    "uint": [0, 1, 2, 3, 7, 8, 100, 127],
    "bool": [False, True],
}


def _is_testable(spec: Intrinsic) -> bool:
    return spec.effects == PURE and spec.evaluate is not None and bool(spec.args)


RECORDS = [spec for spec in registry.all_intrinsics() if _is_testable(spec)]


def _inputs(dtype: DType) -> np.ndarray:
    """Edge values, limits of the dtype, and a spread of ordinary ones."""
    values = list(_EDGES[dtype.kind])
    if dtype.is_integer:
        values += [dtype.min, dtype.max, dtype.max // 3]
    array = np.array(values, dtype=object).astype(dtype.numpy)
    if not dtype.is_float:
        return array
    spread = np.random.default_rng(7).normal(scale=20.0, size=20).astype(dtype.numpy)
    return np.concatenate([array, spread])


def _columns(sig: Sig) -> list[np.ndarray]:
    """Arguments lane by lane: all combinations, cut to a few thousand."""
    axes = [_inputs(t.dtype) for t in sig.args if isinstance(t, Scalar)]
    if len(axes) == 3:
        axes = [a[:: max(len(a) // 14, 1)] for a in axes]
    rows = list(itertools.product(*(range(len(a)) for a in axes)))
    return [np.array([axis[row[i]] for row in rows], axis.dtype) for i, axis in enumerate(axes)]


def _kernel(spec: Intrinsic, count: int) -> Callable[..., Any]:
    """A kernel `out[i] = spec(x[i], ...)`."""
    if count == 1:

        @sk.jit
        def one(n, out, x):
            i = sk.cuda.block_idx("x") * LANES + sk.cuda.thread_idx("x")
            if i < n:
                out[i] = spec(x[i])

        return one
    if count == 2:

        @sk.jit
        def two(n, out, x, y):
            i = sk.cuda.block_idx("x") * LANES + sk.cuda.thread_idx("x")
            if i < n:
                out[i] = spec(x[i], y[i])

        return two

    @sk.jit
    def three(n, out, x, y, z):
        i = sk.cuda.block_idx("x") * LANES + sk.cuda.thread_idx("x")
        if i < n:
            out[i] = spec(x[i], y[i], z[i])

    return three


def _distance(actual: np.ndarray, wanted: np.ndarray, dtype: DType) -> np.ndarray:
    """How far apart, in units in the last place; 0 for two NaNs."""
    bits = np.dtype(f"i{dtype.itemsize}")
    a, b = (v.view(bits).astype(object) for v in (actual, wanted))
    low = -(1 << (dtype.bits - 1))
    ordered = [np.where(v < 0, low - v, v) for v in (a, b)]
    apart = np.abs(ordered[0] - ordered[1]).astype(float)
    nan = np.isnan(actual.astype(np.float64)), np.isnan(wanted.astype(np.float64))
    apart[nan[0] & nan[1]] = 0
    apart[nan[0] ^ nan[1]] = np.inf
    return apart


def _run(target: str, kernel: Any, columns: list[np.ndarray], out: np.ndarray) -> np.ndarray:
    grid = -(-len(out) // LANES)
    if target != "cuda":
        with_target = {"interp": "interp", "cpu": "cpu"}[target]
        arrays = [out, *columns]
        sk.compile(kernel.specialize(), with_target)[grid, LANES](len(out), *arrays)
        return out
    arrays = [sk.cuda.to_device(a) for a in (out, *columns)]
    kernel[grid, LANES](len(out), *arrays)
    return arrays[0].to_host()


@pytest.mark.parametrize("target", ["cpu", "interp", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("spec", RECORDS, ids=lambda spec: spec.name)
def test_an_intrinsic_means_what_its_record_says(spec: Intrinsic, target: str) -> None:
    kernel = _kernel(spec, len(spec.sigs[0].args))
    for sig in spec.sigs:
        with cell(sig.args[0]):
            _check(spec, sig, kernel, target)


def _check(spec: Intrinsic, sig: Sig, kernel: Any, target: str) -> None:
    columns = _columns(sig)
    (result,) = sig.results
    assert isinstance(result, Scalar)
    assert spec.evaluate is not None
    out = np.zeros(len(columns[0]), result.dtype.numpy)

    actual = _run(target, kernel, columns, out)

    with np.errstate(all="ignore"):
        wanted = np.asarray(spec.evaluate(*columns), result.dtype.numpy)
    if result.dtype.is_float:
        allowed = spec.tolerance.get(target, 0.0)
        apart = _distance(actual, wanted, result.dtype)
        if spec.flushes:
            apart[(np.abs(wanted.astype(np.float64)) < 1.0001 * float(np.finfo(np.float32).tiny)) & (actual == 0)] = 0
        worst = int(apart.argmax())
        assert apart[worst] <= allowed, f"{[c[worst] for c in columns]}: {actual[worst]}, wanted {wanted[worst]}"
    else:
        np.testing.assert_array_equal(actual, wanted)
