"""Stencils and convolutions of any size, edge, stride and padding are NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import convolving
from stagekit.kernels.matrices import Blocks
from tests.kernels.rows import BFLOAT16, DTYPES, EPS, each_place, run


def laplacian(at):
    return at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1) - 4 * at(0, 0)


def far(at):
    return at(-3, 2) * 2 - at(0, 5)


def exactly(function, x, edge):
    """The stencil by NumPy: of planes with a frame of what is beyond them."""
    width = [(0, 0)] * (x.ndim - 2) + [(6, 6)] * 2
    mode = {"nearest": "edge", "wrap": "wrap"}.get(edge, "constant")
    framed = np.pad(x.astype(np.float64), width, mode, **({"constant_values": edge} if mode == "constant" else {}))
    rows, columns = x.shape[-2:]
    return function(lambda down, right: framed[..., 6 + down : 6 + down + rows, 6 + right : 6 + right + columns])


@each_place
@pytest.mark.parametrize("edge", [0.0, 2.0, "nearest", "wrap"])
@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from([(1,), (), (2, 3)]), st.integers(1, 40), st.integers(1, 70),
    st.sampled_from([*DTYPES, np.int16]), st.sampled_from([laplacian, far]),
)  # fmt: skip
def test_stencils(place, edge, before, rows, columns, dtype, function):
    x = np.random.default_rng(rows).integers(-9, 9, (*before, rows, columns)).astype(dtype)
    if not np.issubdtype(dtype, np.integer) or not isinstance(edge, float):
        edge = edge if isinstance(edge, str) else float(edge)

    found = run(place, lambda x: kernels.stencil(function, x, edge=edge), x)

    np.testing.assert_array_equal(found.astype(np.float64), exactly(function, x, edge))


class Convolution:
    """What is drawn for a convolution, of which the filters fit."""

    def __init__(self, draw, strides=(1, (2, 1))):
        pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))  # noqa: E731
        self.kernel, self.stride, self.padding, self.dilation = draw(
            st.sampled_from([((3, 3), strides[0], 1, 1), ((1, 1), 1, 0, 1), ((2, 3), strides[-1], (0, 2), (1, 2))])
        )
        self.images, self.channels, self.filters = (
            draw(st.integers(1, 2)),
            draw(st.integers(1, 5)),
            draw(st.integers(1, 20)),
        )
        self.size = pair(6, 13)

    def exact(self, x, filters, bias):
        pairs = [(each, each) if isinstance(each, int) else each for each in (self.stride, self.padding, self.dilation)]
        (sy, sx), (py, px), (dy, dx) = pairs
        x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (py, py), (px, px)])
        high, wide = ((n - 1) * d + 1 for n, d in zip(self.kernel, (dy, dx)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (high, wide), axis=(2, 3))[:, :, ::sy, ::sx, ::dy, ::dx]
        return (
            np.einsum("ncyxij,fcij->nfyx", windows, filters.astype(np.float64)) + bias.astype(np.float64)[:, None, None]
        )


@each_place
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BFLOAT16], ids=str)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_convolutions(place, dtype, data):
    check_convolution(place, dtype, data.draw(st.builds(lambda d: Convolution(d.draw), st.just(data))))


@pytest.mark.parametrize("place", ["cpu", "sanitizer"])
@settings(max_examples=2, deadline=None)
@given(st.sampled_from([np.dtype(np.float32), BFLOAT16]), st.data())
def test_convolutions_by_rows_as_on_a_gpu(place, dtype, data):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(convolving, "is_on_cpu", lambda array: False)
        patched.setattr(convolving, "blocks_for_pixels", lambda *_: Blocks(16, 16, 16, 32, 2))
        check_convolution(place, dtype, data.draw(st.builds(lambda d: Convolution(d.draw, (3, 2)), st.just(data))))


def check_convolution(place, dtype, given_):
    rng = np.random.default_rng(given_.filters)
    x = rng.normal(size=(given_.images, given_.channels, *given_.size)).astype(dtype)
    filters = rng.normal(size=(given_.filters, given_.channels, *given_.kernel)).astype(dtype)
    bias = rng.normal(size=given_.filters).astype(dtype)
    options = {"stride": given_.stride, "padding": given_.padding, "dilation": given_.dilation}

    found = run(place, lambda *arrays: kernels.conv2d(*arrays, **options), x, filters, bias)

    exact = given_.exact(x, filters, bias)
    assert found.dtype == dtype
    assert found.shape == exact.shape
    np.testing.assert_allclose(
        found.astype(np.float64), exact, rtol=2 * EPS[dtype], atol=1e-4 if dtype == np.float32 else 2e-3
    )


IMAGES, FILTERS = np.zeros((1, 2, 5, 5), np.float32), np.zeros((3, 2, 3, 3), np.float32)


@pytest.mark.parametrize(("call", "text"), [
    (lambda: kernels.conv2d(IMAGES, FILTERS[:, :1].copy()), "x and filters have shapes"),
    (lambda: kernels.conv2d(IMAGES, np.zeros((3, 2, 7, 7), np.float32)), "do not fit into padded images"),
    (lambda: kernels.conv2d(IMAGES, FILTERS, stride=0), "stride is 0: it is an int from 1 on"),
    (lambda: kernels.conv2d(IMAGES, FILTERS, padding=(1, 2, 3)), "padding is"),
    (lambda: kernels.stencil(laplacian, IMAGES, edge="mirror"), "edge is 'mirror'"),
    (lambda: kernels.stencil(laplacian, IMAGES, out=IMAGES), "other programs still read"),
    (lambda: kernels.stencil(laplacian, IMAGES[0, 0, 0]), "an array of two axes or more"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize("edge", [0.0, "wrap"])
def test_a_mistake_in_a_users_function_is_shown_at_its_line(edge):
    with pytest.raises(sk.StagekitError) as caught:
        kernels.stencil(lambda at: at(0.5, 0), IMAGES, edge=edge)
    assert (caught.value.loc.file, caught.value.loc.function) == (__file__, "<lambda>")
