"""Attention as it is written for compute capability 9.0: against float64, in the sanitizer and on a GPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import stagekit as sk
from stagekit import kernels
from stagekit.backends import ptxas
from stagekit.kernels import attending
from stagekit.kernels.heads import checked_sizes
from stagekit.kernels.hopper_attending import (
    are_for_warpgroups,
    attend_by_warpgroups,
    hopper_attention_kernel,
    power_by_products,
)


def expected(q, k, v, causal, scale):
    """The result and the logarithms of sums, in float64, of arrays (batch, heads, rows, dim)."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    k, v = (np.repeat(each, q.shape[1] // k.shape[1], 1) for each in (k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * scale
    if causal:
        i, j = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])
        scores = np.where(j <= i + k.shape[2] - q.shape[2], scores, -np.inf)
    with np.errstate(all="ignore"):
        largest = np.nan_to_num(scores.max(-1, keepdims=True), neginf=0)
        weights = np.exp(scores - largest)
        sums = weights.sum(-1, keepdims=True)
        return np.einsum("bhqk,bhkd->bhqd", weights / np.where(sums == 0, 1, sums), v), (largest + np.log(sums))[..., 0]


SHAPES = [  # (batch, heads, key heads), queries, keys, dim, causal, heads_axis, magnitude of q
    ((1, 2, 1), 72, 200, 64, False, 2, 1),  # one block of keys that is not full
    ((1, 1, 1), 200, 300, 128, True, 1, 40),  # largest scores grow by much
    ((2, 1, 1), 130, 64, 40, True, 1, 1),  # rows that see no key
]


@pytest.mark.parametrize(("of", "queries", "keys", "dim", "causal", "axis", "magnitude"), SHAPES)
def test_attention_in_the_sanitizer(of, queries, keys, dim, causal, axis, magnitude):
    (batch, heads, key_heads), rng = of, np.random.default_rng(dim)
    shapes = [(batch, heads, queries, dim), (batch, key_heads, keys, dim), (batch, key_heads, keys, dim)]
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    q *= magnitude
    given = [np.ascontiguousarray(each.swapaxes(1, axis)) for each in (q, k, v)]

    with sk.sanitize():
        out, lse = kernels.hopper_attention(*given, causal=causal, heads_axis=axis, return_lse=True)

    result, logarithms = expected(q, k, v, causal, dim**-0.5)
    np.testing.assert_allclose(out.swapaxes(1, axis), result, atol=2e-3)
    np.testing.assert_allclose(lse, logarithms, atol=2e-6 * magnitude)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_without_numbers_leave_the_others_as_they_are(value, dim):
    """Also those which threads have beside them, 8 rows below, though no thread of the warp has another one to ask for."""
    rng = np.random.default_rng(dim)
    q, k, v = (rng.standard_normal((1, 1, rows, dim)).astype(np.float16) for rows in (64, 256, 256))
    others = expected(q, k, v, False, dim**-0.5)[0][:, :, 8:]
    q[0, 0, :8] = value

    with sk.sanitize(collect=True):
        out = kernels.hopper_attention(q, k, v)

    np.testing.assert_allclose(out[:, :, 8:], others, atol=2e-3)
    assert np.isnan(out[0, 0, :8]).all()


def test_powers_by_products_are_powers():
    @sk.jit(target="interp")
    def powers(x, out):
        for i in range(x.shape[0]):
            out[i] = power_by_products(x[i])

    x = np.linspace(-200, 8, 5000, dtype=np.float32)
    out = np.empty_like(x)
    powers[1, 1](x, out)

    np.testing.assert_allclose(out, np.where(x < -126.5, 0, np.exp2(x)), rtol=4e-6, atol=2.0**-126)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [64, 128, 8, 72])
def test_attention_on_a_gpu(dim):
    torch = pytest.importorskip("torch")
    torch.manual_seed(dim)
    lengths = [(1, 1), (1, 1000), (127, 129), (128, 128), (300, 1), (1000, 700), (1300, 2049)]
    for (queries, keys), causal, axis in itertools.product(lengths, (False, True), (1, 2)):
        for dtype, heads, magnitude in ((torch.bfloat16, 6, 1), (torch.float16, 3, 30)):
            shapes = [(2, heads, queries), (2, 3, keys), (2, 3, keys)]
            q, k, v = (torch.randn(*shape, dim, device="cuda").to(dtype) for shape in shapes)
            q *= magnitude
            turned = [each.transpose(1, axis).contiguous() for each in (q, k, v)]

            out, lse = kernels.hopper_attention(*turned, causal=causal, heads_axis=axis, return_lse=True)

            arrays = [each.double().cpu().numpy() for each in (q, k, v)]
            result, logarithms = expected(*arrays, causal, dim**-0.5)
            tolerance = 3e-2 if dtype == torch.bfloat16 else 4e-3
            np.testing.assert_allclose(out.transpose(1, axis).double().cpu().numpy(), result, atol=tolerance)
            np.testing.assert_allclose(lse.cpu().numpy(), logarithms, atol=1e-5 * magnitude)


@pytest.mark.gpu
def test_nothing_is_written_behind_the_result():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.randn(1, 2, 200, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    whole = torch.full((1, 2, 256, 64), float("nan"), device="cuda", dtype=torch.float16)

    kernels.hopper_attention(q, k, v, out=whole[:, :, :200])

    assert whole[:, :, 200:].isnan().all()
    assert not whole[:, :, :200].isnan().any()


@pytest.mark.parametrize(("dim", "causal"), [(128, False), (128, True), (64, False), (64, True)])
def test_ptxas_keeps_products_under_way(dim, causal):
    """It would say C75xx where it makes products wait for each other, or ignores what moves registers."""
    found = ptxas.assemble(
        hopper_attention_kernel(sk.bfloat16, dim, causal, 1)
        .specialize(lse=None)
        .compile("cuda", capability=90)
        .stages["ptx"]
    )

    assert not found.warnings
    assert found.resources.stack_bytes == found.resources.spill_store_bytes == 0


def test_what_is_not_for_it_is_refused():
    x = np.ones((1, 1, 16, 64), np.float16)
    wide = np.ones((1, 1, 16, 136), np.float16)

    with pytest.raises(ValueError, match="it is float16 or bfloat16"):
        kernels.hopper_attention(*[x.astype(np.float32)] * 3)
    with pytest.raises(ValueError, match="heads have dimension 136: up to 128 there are kernels"):
        kernels.hopper_attention(wide, wide, wide)
    with pytest.raises(ValueError, match="a scale above 0 and a key or more are needed, got -1 and 16 keys"):
        kernels.hopper_attention(x, x, x, scale=-1)
    with pytest.raises(sk.StagekitError, match="TENSOR_MAP_REFUSED"), sk.sanitize():
        kernels.hopper_attention(*[x[..., :36]] * 3)
    with pytest.raises(sk.StagekitError, match="UNSUPPORTED_ON_TARGET"):
        kernels.hopper_attention(x, x, x)


@pytest.mark.parametrize(
    ("is_taken", "shape", "gap", "start", "dtype", "scale"),
    [
        (True, (4, 16, 2048, 64), 0, 0, np.float16, 0.1),
        (True, (4, 16, 2048, 64), 8, 8, np.float16, 0.1),
        (False, (4, 16, 2048, 64), 2, 0, np.float16, 0.1),  # rows that begin between 16 bytes
        (False, (4, 16, 2048, 64), 0, 1, np.float16, 0.1),
        (False, (4, 16, 2048, 64), 0, 0, np.float32, 0.1),
        (False, (4, 16, 2048, 64), 0, 0, np.float16, -0.1),
        (False, (4, 16, 2048, 136), 0, 0, np.float16, 0.1),
        (True, (1, 16, 256, 64), 0, 0, np.float16, 0.1),
        (False, (1, 15, 256, 64), 0, 0, np.float16, 0.1),  # fewer scores
        (False, (4096, 16, 255, 64), 0, 0, np.float16, 0.1),  # fewer rows
    ],
)
def test_attention_takes_it_where_there_is_much_to_do_and_the_tma_unit_can_copy(
    is_taken, shape, gap, start, dtype, scale
):
    itemsize = np.dtype(dtype).itemsize
    steps = np.cumprod([1, shape[3] + gap, shape[2], shape[1]])[::-1] * itemsize
    memory = np.zeros(64, np.uint8)
    first = -memory.ctypes.data % 16 + start * itemsize
    x = np.lib.stride_tricks.as_strided(memory[first : first + itemsize].view(dtype), shape, steps)  # nobody reads it

    shape = checked_sizes(x, x, x, 1, causal=False)
    assert are_for_warpgroups(shape, (x, x, x, x), scale) is is_taken


@pytest.mark.gpu
def test_attention_takes_it_where_the_arrays_are_for_it(monkeypatch):
    torch = pytest.importorskip("torch")
    q, k, v = (torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    odd = torch.randn(4, 16, 2048, 66, device="cuda", dtype=torch.float16)[..., 1:65].copy_(q)  # no address of 16 bytes

    taken = []
    monkeypatch.setattr(
        attending, "attend_by_warpgroups", lambda *given: taken.append(given) or attend_by_warpgroups(*given)
    )

    found = kernels.attention(q, k, v)
    assert len(taken) == 1
    other = kernels.attention(odd, k, v)
    assert len(taken) == 1
    torch.testing.assert_close(found, other, atol=2e-3, rtol=0)
