"""Gradients of attention as they are written for compute capability 9.0: against float64, in the sanitizer and on a GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import stagekit as sk
from stagekit import kernels
from stagekit.backends import ptxas
from stagekit.kernels import attending


def exactly(gradient, q, k, v, causal, scale):
    """The result, the logarithms of sums and the gradients of q, k and v, in float64, of arrays (batch, heads, rows, dim)."""
    gradient, q, k, v = (each.astype(np.float64) for each in (gradient, q, k, v))
    share = q.shape[1] // k.shape[1]
    all_k, all_v = np.repeat(k, share, 1), np.repeat(v, share, 1)
    scores = np.einsum("bhqd,bhkd->bhqk", q, all_k) * scale
    if causal:
        i, j = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])
        scores = np.where(j <= i + k.shape[2] - q.shape[2], scores, -np.inf)
    with np.errstate(all="ignore"):
        largest = np.nan_to_num(scores.max(-1, keepdims=True), neginf=0)
        sums = np.exp(scores - largest).sum(-1, keepdims=True)
        weights = np.exp(scores - largest) / np.where(sums == 0, 1, sums)
        lse = (largest + np.log(sums))[..., 0]
    out, of_weights = weights @ all_v, np.einsum("bhqd,bhkd->bhqk", gradient, all_v)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    of_k, of_v = np.einsum("bhqk,bhqd->bhkd", of_scores, q), np.einsum("bhqk,bhqd->bhkd", weights, gradient)
    shared = (k.shape[0], k.shape[1], share, *k.shape[2:])
    return out, lse, (of_scores @ all_k, of_k.reshape(shared).sum(2), of_v.reshape(shared).sum(2))


def close(found, wanted, tolerance):
    for one, other in zip(found, wanted, strict=True):
        assert np.linalg.norm(one - other) <= tolerance * np.linalg.norm(other)


SHAPES = [  # (batch, heads, key heads), queries, keys, dim, causal, heads_axis
    ((1, 2, 1), 72, 140, 64, False, 2),  # two heads that share one, a block of keys that is not full
    ((1, 1, 1), 70, 100, 128, True, 1),
    ((2, 1, 1), 130, 64, 40, True, 1),  # rows that see no key
]


@pytest.mark.parametrize(("of", "queries", "keys", "dim", "causal", "axis"), SHAPES)
def test_gradients_in_the_sanitizer(of, queries, keys, dim, causal, axis):
    (batch, heads, key_heads), rng = of, np.random.default_rng(dim)
    shapes = [(batch, heads, queries, dim)] * 2 + [(batch, key_heads, keys, dim)] * 2
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    out, lse, wanted = exactly(*arrays, causal, dim**-0.5)
    gradient, q, k, v, out = [
        np.ascontiguousarray(each.swapaxes(1, axis)) for each in (*arrays, out.astype(np.float16))
    ]

    with sk.sanitize():
        found = kernels.hopper_attention_backward(
            gradient, q, k, v, out, lse.astype(np.float32), causal=causal, heads_axis=axis
        )

    close([each.swapaxes(1, axis) for each in found], wanted, 2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [64, 128, 8, 72])
def test_gradients_on_a_gpu(dim):
    torch = pytest.importorskip("torch")
    torch.manual_seed(dim)
    lengths = [(1, 1), (1, 1000), (127, 129), (128, 128), (300, 1), (1000, 700), (1300, 2049)]
    for (queries, keys), causal, axis in itertools.product(lengths, (False, True), (1, 2)):
        for dtype, heads in ((torch.bfloat16, 6), (torch.float16, 3)):
            shapes = [(2, heads, queries)] * 2 + [(2, 3, keys)] * 2
            arrays = [torch.randn(*shape, dim, device="cuda").to(dtype) for shape in shapes]
            gradient, q, k, v = (each.transpose(1, axis).contiguous() for each in arrays)
            out, lse = kernels.attention(q, k, v, causal=causal, heads_axis=axis, return_lse=True)

            found = kernels.hopper_attention_backward(gradient, q, k, v, out, lse, causal=causal, heads_axis=axis)

            _, _, wanted = exactly(*[each.double().cpu().numpy() for each in arrays], causal, dim**-0.5)
            found = [each.transpose(1, axis).double().cpu().numpy() for each in found]
            if keys > 1:  # of one key all gradients of scores are zero, but for rounding
                close(found, wanted, 2e-2 if dtype == torch.bfloat16 else 3e-3)
            else:
                close(found[2:], wanted[2:], 2e-2)


@pytest.mark.gpu
def test_gradients_take_it_unless_the_order_of_sums_is_to_be_fixed(monkeypatch):
    torch = pytest.importorskip("torch")
    taken, derive = [], attending.derive_by_warpgroups
    monkeypatch.setattr(attending, "derive_by_warpgroups", lambda *given: taken.append(given) or derive(*given))
    q, k, v, gradient = (torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.float16) for _ in range(4))
    out, lse = kernels.attention(q, k, v, return_lse=True)
    wide = [torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.float16)[..., :60] for _ in range(4)]

    found = kernels.attention_backward(gradient, q, k, v, out, lse)
    assert len(taken) == 1
    fixed = kernels.attention_backward(gradient, q, k, v, out, lse, deterministic=True)
    kernels.attention_backward(*wide, wide[0], lse)  # of which gradients without gaps have rows of 120 bytes
    assert len(taken) == 1
    for one, other in zip(found, fixed, strict=True):
        torch.testing.assert_close(one, other, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(("dim", "causal"), [(64, False), (64, True), (128, False), (128, True)])
def test_ptxas_keeps_products_under_way(dim, causal):
    kernel = kernels.hopper_attention_backward_kernel(sk.bfloat16, dim, causal, 1)

    found = ptxas.assemble(kernel.specialize().compile("cuda", capability=90).stages["ptx"])

    assert not found.warnings
    assert found.resources.stack_bytes == found.resources.spill_store_bytes == 0


def test_what_is_not_for_it_is_refused():
    x, sums = np.ones((1, 1, 16, 64), np.float16), np.ones((1, 1, 16), np.float32)
    wide = np.ones((1, 1, 16, 136), np.float16)

    with pytest.raises(ValueError, match="it is float16 or bfloat16"):
        kernels.hopper_attention_backward(*[x.astype(np.float32)] * 5, sums)
    with pytest.raises(ValueError, match="heads have dimension 136: up to 128 there are kernels"):
        kernels.hopper_attention_backward(*[wide] * 5, sums)
    with pytest.raises(ValueError, match="q has no rows"):
        kernels.hopper_attention_backward(x[:, :, :0], x[:, :, :0], x, x, x[:, :, :0], sums[:, :, :0])
    with pytest.raises(ValueError, match="a scale above 0 and a key or more are needed, got -1 and 16 keys"):
        kernels.hopper_attention_backward(*[x] * 5, sums, scale=-1)
