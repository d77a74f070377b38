"""Attention of any length, head dimension and dtype against NumPy in float64: forward, causal, shared heads, and gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import attending, attending_on_cpu
from tests.kernels.rows import BFLOAT16, EPS, each_place, run

FLOAT32, FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)
KINDS = [(FLOAT32, 16, True, 1), (FLOAT32, 20, False, 2), (BFLOAT16, 16, True, 2), (FLOAT16, 16, False, 1)]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)  # dtype, dimension, causal, axis of the heads
lengths = st.sampled_from([0, 1, 15, 16, 17, 33, 64]) | st.integers(0, 70)


@pytest.fixture(autouse=True)
def _small_blocks(request, monkeypatch):
    """Blocks are small, so that short sequences have several. The interpreter runs what a GPU does."""
    if "dimension" not in request.node.name:
        monkeypatch.setattr(attending_on_cpu, "BLOCKS", {256: (64, 16)})
        monkeypatch.setattr(attending_on_cpu, "BLOCKS_OF_PAIRS", {256: (64, 32)})
    if "sanitizer" in request.node.name:
        monkeypatch.setattr(attending, "is_on_cpu", lambda array: False)
        monkeypatch.setattr(attending, "_blocks_for", lambda *_, on_cpu, room: (16, 16, 32))


class Exact:
    """Attention in float64, of arrays whose heads are axis 1. The gradients are those of sum(gradient * out)."""

    def __init__(self, q, k, v, *, causal, scale):
        self.share, self.key_heads, self.scale = q.shape[1] // k.shape[1], k.shape[1], scale
        self.q, self.k, self.v = q, *(np.repeat(each, self.share, axis=1) for each in (k, v))
        scores = self.q @ self.k.swapaxes(2, 3) * scale
        if causal:
            i, j = np.indices(scores.shape[2:])
            scores = np.where(j - i <= scores.shape[3] - scores.shape[2], scores, -np.inf)
        largest = scores.max(axis=3, keepdims=True, initial=-1e300)
        weights = np.exp(scores - largest)
        total = weights.sum(axis=3, keepdims=True)
        with np.errstate(divide="ignore"):
            self.lse = (np.log(total) + largest)[..., 0]
        self.weights = weights / np.where(total == 0, 1, total)
        self.out = self.weights @ self.v

    def gradients(self, gradient):
        of_weights = gradient @ self.v.swapaxes(2, 3)
        of_scores = self.weights * (of_weights - (gradient * self.out).sum(axis=3, keepdims=True)) * self.scale
        of_k, of_v = of_scores.swapaxes(2, 3) @ self.q, self.weights.swapaxes(2, 3) @ gradient
        return of_scores @ self.k, self.together(of_k), self.together(of_v)

    def together(self, x):
        """Add what the heads of q that share a head of k and v have."""
        return x.reshape(x.shape[0], self.key_heads, self.share, *x.shape[2:]).sum(axis=2)


def exactly(arrays, axis, *, causal, scale):
    return Exact(*[each.astype(np.float64).swapaxes(1, axis) for each in arrays], causal=causal, scale=scale)


def assert_close(found, exact, *, ulps):
    """Each element has roundings of its dtype in proportion to the largest: weights and scores are rounded, too."""
    found = found.astype(np.float64) if found.dtype != FLOAT32 else found
    size = np.abs(exact).max(initial=0.1)
    np.testing.assert_allclose(found, exact, rtol=0, atol=ulps * size)


@st.composite
def inputs(draw, dtype, dim, axis):
    """Draw q, k and v with 1 to 4 heads of q, of which some share one of k and v."""
    key_heads, share, batch = draw(st.sampled_from([(1, 1, 1), (1, 3, 1), (2, 2, 1), (2, 1, 2)]))
    queries, keys = draw(lengths), draw(lengths)
    rng = np.random.default_rng(queries)
    shapes = [(batch, key_heads * share, queries, dim)] + [(batch, key_heads, keys, dim)] * 2
    return [rng.normal(size=shape).astype(dtype).swapaxes(1, axis).copy() for shape in shapes]


@each_place
@each_kind
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_attention_is_numpys(place, kind, data):
    dtype, dim, causal, axis = kind
    arrays = data.draw(inputs(dtype, dim, axis))
    scale = data.draw(st.sampled_from([None, 1.0, -0.3]))
    options = {"causal": causal, "heads_axis": axis, "scale": scale}

    out, lse = run(place, lambda *x: kernels.attention(*x, return_lse=True, **options), *arrays)

    exact = exactly(arrays, axis, causal=causal, scale=dim**-0.5 if scale is None else scale)
    assert out.dtype == dtype
    assert_close(out.swapaxes(1, axis), exact.out, ulps=max(4 * EPS[dtype], 1e-5))
    np.testing.assert_allclose(lse, exact.lse, rtol=2e-5, atol=2e-5)


@each_place
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids=str)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_gradients_are_those_of_numpy_and_the_same_on_every_run(place, kind, data):
    dtype, dim, causal, axis = kind
    arrays = data.draw(inputs(dtype, dim, axis))
    exact = exactly(arrays, axis, causal=causal, scale=dim**-0.5)
    gradient = np.random.default_rng(1).normal(size=arrays[0].shape).astype(dtype)
    out, lse = exact.out.swapaxes(1, axis).astype(dtype), exact.lse.astype(np.float32)

    def backward(*x):
        return kernels.attention_backward(*x, causal=causal, heads_axis=axis)

    found = run(place, backward, gradient, *arrays, out, lse)

    for each, wanted in zip(found, exact.gradients(gradient.astype(np.float64).swapaxes(1, axis)), strict=True):
        assert_close(each.swapaxes(1, axis), wanted, ulps=max(8 * EPS[dtype], 1e-5))
    if place != "sanitizer":
        for one, other in zip(found, run(place, backward, gradient, *arrays, out, lse), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [8, 64, 80, 128, 192, 256])
@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
def test_every_dimension_on_a_gpu(dim, dtype):
    q, k, v, gradient = np.random.default_rng(dim).normal(size=(4, 1, 2, 200, dim)).astype(dtype)
    exact = exactly((q, k, v), 1, causal=True, scale=dim**-0.5)

    def both(*x):
        out, lse = kernels.attention(*x[1:], causal=True, return_lse=True)
        return out, *kernels.attention_backward(*x, out, lse, causal=True)

    found = run("gpu", both, gradient, q, k, v)

    for each, wanted in zip(found, (exact.out, *exact.gradients(gradient.astype(np.float64))), strict=True):
        assert_close(each, wanted, ulps=max(10 * EPS[dtype], 2e-5))


@pytest.mark.parametrize(("dim", "dtype"), [(8, FLOAT32), (72, BFLOAT16), (256, FLOAT32)], ids=str)
def test_every_dimension_on_the_cpu(dim, dtype):
    q, k, v = np.random.default_rng(dim).normal(size=(3, 1, 2, 140, dim)).astype(dtype)

    found = kernels.attention(q, k, v, causal=True)

    assert_close(found, exactly((q, k, v), 1, causal=True, scale=dim**-0.5).out, ulps=max(4 * EPS[dtype], 1e-5))


def test_what_the_cpu_runs_has_no_races():
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 1, 34, 4)).astype(np.float32)

    with sk.sanitize():
        found = kernels.attention(q, k, v, causal=True)

    assert_close(found, exactly((q, k, v), 1, causal=True, scale=0.5).out, ulps=1e-5)


def test_views_of_packed_projections_are_taken():
    """q, k and v are parts of one array, whose rows have them side by side."""
    packed = np.random.default_rng(0).normal(size=(2, 19, 3, 2, 16)).astype(np.float32)
    q, k, v = (packed[:, :, n] for n in range(3))
    exact = exactly((q, k, v), 2, causal=True, scale=0.25)

    found = kernels.attention(q, k, v, causal=True, heads_axis=2, out=q)

    assert found is q
    assert_close(packed[:, :, 0].swapaxes(1, 2), exact.out, ulps=1e-5)


def shaped(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(("given_", "text"), [
    ((shaped(1, 2, 3), shaped(1, 2, 3), shaped(1, 2, 3)), "give arrays of four axes"),
    ((shaped(1, 3, 5, 16), shaped(1, 2, 5, 16), shaped(1, 2, 5, 16)), "3 heads of q share 2 of k and v: give a multiple"),
    ((shaped(1, 2, 5, 16), shaped(1, 2, 5, 16), shaped(1, 2, 6, 16)), "k and v have one shape"),
    ((shaped(1, 2, 5, 16), *[shaped(1, 2, 5, 16, dtype=np.float16)] * 2), "all one dtype"),
    ((shaped(1, 2, 5, 16), *[shaped(1, 2, 5, 8)] * 2), "the first and the last size are equal"),
    ((shaped(1, 2, 5, 300), *[shaped(1, 2, 5, 300)] * 2), "from 1 to 256 there are kernels"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(given_, text):
    with pytest.raises(ValueError, match=text):
        kernels.attention(*given_)


@pytest.mark.parametrize("attend", [kernels.attention, kernels.hopper_attention])
def test_options_that_are_none_are_refused(attend):
    x = np.ones((1, 1, 16, 64), np.float16)
    for given_, text in (
        ({"scale": "1"}, "scale is '1': it is a number"),
        ({"causal": [1]}, r"causal is \[1\]: it is True or False"),
        ({"causal": "no"}, "causal is 'no'"),
        ({"k": None}, "an array of one axis or more is needed, got None"),
    ):
        with pytest.raises(ValueError, match=text):
            attend(**({"q": x, "k": x, "v": x} | given_))


def test_the_axis_of_the_heads_is_1_or_2():
    with pytest.raises(ValueError, match="heads_axis is 3"):
        kernels.attention(*[shaped(1, 2, 5, 16)] * 3, heads_axis=3)


@pytest.mark.parametrize("is_last_first", [True, False])
@pytest.mark.parametrize(("blocks", "heads"), [(1, 1), (3, 5), (4, 33)])
def test_causal_programs_with_most_work_come_first_of_each_group_of_heads(blocks, heads, is_last_first):
    @sk.jit(threads=32)
    def order(out):
        block, head, batch = attending.place_of(True, is_last_first=is_last_first)
        place = sk.program_id(1) * blocks + sk.program_id(0)
        sk.atomic_add(out.ptr_to(batch, head, block), 1 + place)

    out = np.zeros((2, heads, blocks), np.int64)
    order[blocks, heads, 2](out)

    assert sorted(out[0].reshape(-1)) == [*range(1, blocks * heads + 1)]
    np.testing.assert_array_equal(out[0], out[1])
    most_first = out[0, : attending.HEADS, :: -1 if is_last_first else 1]
    assert sorted(most_first.T.reshape(-1)) == list(most_first.T.reshape(-1))
