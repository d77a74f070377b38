"""softmax, rmsnorm and layernorm: rows of any length and distance, each dtype, in place, against NumPy in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import host, normalizing
from tests.kernels.rows import DTYPES, assert_near, each_place, few, lengths, rows, run, tiles


def numpy_softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def drawn(data, place):
    """An array of rows, one of the same shape to write to (it may be the same), and float64."""
    x = data.draw(rows(data.draw(lengths), data.draw(st.sampled_from(DTYPES)), place))
    exact = x.astype(np.float64)
    if data.draw(st.booleans()):
        return x, x, exact
    return x, data.draw(rows(x.shape[1], x.dtype, place, len(x))), exact


@each_place
@few
@given(data=st.data())
def test_softmax_is_that_of_numpy(place, data):
    """The exponent x - max is rounded once, to half a unit of its last place: up to 2^-24 |x - max| of the result."""
    x, out, exact = drawn(data, place)

    with tiles(data):
        assert run(place, kernels.softmax, x, out=out) is not None

    assert_near(
        out, numpy_softmax(exact), ulps=1.01 + 8 * (x.dtype == np.float32), absolute=1e-6 * (x.dtype == np.float32)
    )


@each_place
@few
@given(data=st.data())
def test_rmsnorm_is_that_of_numpy_with_and_without_a_residual(place, data):
    x, out, exact = drawn(data, place)
    weight = data.draw(rows(x.shape[1], data.draw(st.sampled_from([np.dtype(np.float32), x.dtype])), "gpu", 1))[0]
    residual = data.draw(st.none() | rows(x.shape[1], x.dtype, place, len(x)))
    if residual is not None:
        exact = (exact + residual.astype(np.float64)).astype(x.dtype).astype(np.float64)
    expected = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-6) * weight.astype(np.float64)

    with tiles(data):
        run(place, kernels.rmsnorm, x, weight, residual=residual, out=out)

    assert_near(out, expected, ulps=1.02 + 8 * (x.dtype == np.float32))
    if residual is not None:
        assert_near(residual, exact, ulps=1.0)


@each_place
@few
@given(data=st.data())
def test_layernorm_is_that_of_numpy_with_and_without_bias_and_residual(place, data):
    x, out, exact = drawn(data, place)
    weight, bias = (data.draw(rows(x.shape[1], x.dtype, "gpu", 2)).copy() for _ in range(2))
    residual = data.draw(st.none() | rows(x.shape[1], x.dtype, place, len(x)))
    if residual is not None:
        exact = (exact + residual.astype(np.float64)).astype(x.dtype).astype(np.float64)
    centred = exact - exact.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * weight[0].astype(np.float64)
    has_bias = data.draw(st.booleans())
    expected = scaled + (bias[0].astype(np.float64) if has_bias else 0)

    with tiles(data):
        run(place, kernels.layernorm, x, weight[0], bias[0] if has_bias else None, residual=residual, out=out)

    size = np.abs(exact).max(axis=1, keepdims=True) / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    lost = 2**-22 * (1 + size * np.abs(weight[0].astype(np.float64)) + np.abs(scaled))  # the mean is rounded to float32
    assert_near(out, expected, ulps=1.02 + 8 * (x.dtype == np.float32), absolute=lost)


@each_place
@few
@given(data=st.data())
def test_gradients_are_those_of_numpy(place, data):
    """Of rows, weight and bias; more rows than programs, too."""
    x, out, exact = drawn(data, place)
    weight = data.draw(rows(x.shape[1], data.draw(st.sampled_from([np.dtype(np.float32), x.dtype])), "gpu", 1))[0]
    gradient = data.draw(st.sampled_from([out, x]) | rows(x.shape[1], x.dtype, place, len(x)))
    is_centred = data.draw(st.booleans())
    g, w = gradient.astype(np.float64), weight.astype(np.float64)
    v = exact - exact.mean(axis=1, keepdims=True) if is_centred else exact
    scale = 1 / np.sqrt((v**2).mean(axis=1, keepdims=True) + 1e-5)
    slope = (g * w).mean(axis=1, keepdims=True) if is_centred else 0
    expected = scale * (g * w - slope - v * scale**2 * (g * w * v).mean(axis=1, keepdims=True))
    assume(np.abs(expected).max() < 0.99 * float(ml_dtypes.finfo(x.dtype).max))
    size = scale * (
        np.abs(g * w).max(axis=1, keepdims=True) * (2 + np.abs(exact).max(axis=1, keepdims=True) * scale) ** 2
    )

    with tiles(data), pytest.MonkeyPatch.context() as patched:
        patched.setattr(normalizing, "MOST_PARTS", data.draw(st.sampled_from([2, 256])))
        function = kernels.layernorm_backward if is_centred else kernels.rmsnorm_backward
        found = run(place, function, gradient, x, weight, out=out, eps=1e-5)

    assert_near(out, expected, ulps=1.02, absolute=2**-20 * size)
    lost = 2**-19 * (np.abs(g) * (1 + np.abs(exact) + np.abs(exact).max(axis=1, keepdims=True)) * (1 + scale)).sum(
        axis=0
    )
    assert_near(found[1], (g * v * scale).sum(axis=0), ulps=1.02, absolute=lost)
    if is_centred:
        assert_near(found[2], g.sum(axis=0), ulps=1.02, absolute=lost)


def test_rows_beyond_any_tile_and_what_has_no_elements():
    x = np.random.default_rng(0).normal(size=(2, 3, host.MAX_TILE + 5)).astype(np.float32)

    assert_near(
        kernels.softmax(x).reshape(6, -1), numpy_softmax(x.reshape(6, -1).astype(np.float64)), ulps=20, absolute=1e-7
    )
    assert kernels.softmax(np.empty((0, 5), np.float32)).shape == (0, 5)
    assert kernels.softmax(np.empty((5, 0), np.float32)).shape == (5, 0)


def test_softmax_of_infinities_is_that_of_numpy():
    row = np.array([1, -np.inf, 3, 2], np.float32)
    x = np.stack([row, np.full_like(row, -np.inf), np.where(row == 3, np.inf, row), np.where(row == 3, np.nan, row)])
    with np.errstate(invalid="ignore"):
        expected = numpy_softmax(x)

    for ONE_TILE, BLOCK in ((True, 4), (False, 2)):
        found = np.empty_like(x)
        kernels.softmax_kernel(sk.float32, BLOCK, ONE_TILE)[len(x)](x, found)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


ROWS = sk.Tensor((None, None), sk.float32, strides=(None, 1))
PARTS = sk.Tensor((None, None), sk.float32)
F32 = sk.float32


def backward(is_centred):
    return lambda *tile: kernels.norm_backward_kernel(F32, F32, *tile, is_centred)


REDUCTIONS = {  # how many there are of a row: each has a barrier of its own
    "softmax": (lambda *tile: kernels.softmax_kernel(F32, *tile), {}, 2),
    "rmsnorm": (lambda *tile: kernels.rmsnorm_kernel(F32, F32, *tile), {"residual": None}, 1),
    "rmsnorm of a sum": (lambda *tile: kernels.rmsnorm_kernel(F32, F32, *tile), {"residual": ROWS}, 1),
    "layernorm": (lambda *tile: kernels.layernorm_kernel(F32, F32, *tile), {"residual": ROWS}, 2),
    "rmsnorm, backward": (backward(False), {"bias_parts": None}, 2),
    "layernorm, backward": (backward(True), {"bias_parts": PARTS}, 4),
}


@pytest.mark.parametrize("ONE_TILE", [True, False])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_threads_wait_in_reductions_alone(name, ONE_TILE):
    make, types, reductions = REDUCTIONS[name]
    bias = {"bias": sk.Tensor((None,), sk.float32, strides=(1,))} if name == "layernorm" else {}
    kernel = make(1024, ONE_TILE).specialize(**types, **bias)

    assert kernel.trace().waits == ()
    assert kernel.ptx.count("bar.sync") == reductions


@pytest.mark.stagekit_unchecked(reason="it is about which entries are compiled")
def test_one_specialisation_is_enough_for_any_rows_in_place_or_not(monkeypatch):
    monkeypatch.setenv("STAGEKIT_TARGET", "")  # on a GPU rows at odd addresses have an entry of their own
    x = np.ones((8, 2000), np.float32)
    kernel = kernels.softmax_kernel(sk.float32, 512, True)
    kernel[4](x[:4, :300], x[4:, :300])
    compiled = kernel.explain()

    for source, target in ((x[:, :512], x[:, :512]), (x[:3, 1:100], x[5:, 7:106]), (x[::2, :5], x[::2, :5])):
        kernel[len(source)](source, target)
    assert kernel.explain() == compiled

    assert kernels.softmax_kernel(sk.float32, 512, True) is kernel
