"""The product that is written for compute capability 9.0: every layout, tile and cluster, in the sanitizer and on a GPU."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.backends import ptxas
from stagekit.kernels.hopper import TILES, HopperTile, hopper_matmul_kernel, tile_for
from stagekit.kernels.hopper_attending import hopper_attention_kernel

DTYPES = {np.float16: sk.float16, ml_dtypes.bfloat16: sk.bfloat16}
EIGHTS = st.integers(1, 18).map(lambda count: 8 * count)
TURNED = list(itertools.product((False, True), repeat=2))


def factor(rng, shape, is_turned):
    """Small integers, of which products and sums are exact, by columns if they are turned."""
    values = rng.integers(-2, 3, shape[::-1] if is_turned else shape)
    return values.T if is_turned else values


def test_a_launch_compares_next_to_nothing_that_the_kernel_read_from_outside():
    made = [
        hopper_matmul_kernel(sk.bfloat16, sk.bfloat16, (False, True), HopperTile(128, 128), 4),
        hopper_attention_kernel(sk.bfloat16, 64, True, 1),
    ]
    assert [len(kernel.trace().captures.rows()) < 10 for kernel in made] == [True, True]


@settings(max_examples=settings.default.max_examples // 32, deadline=None)
@example(np.float16, (136, 72, 136), (True, False), (64, 128, 2), "random")
@given(
    st.sampled_from(list(DTYPES)),
    st.tuples(EIGHTS, EIGHTS, EIGHTS),
    st.sampled_from(TURNED),
    st.sampled_from([(64, 64, 1), (128, 64, 1), (64, 128, 2), (64, 192, 1)]),
    st.sampled_from(["forward", "backward", "random"]),
)
def test_products_of_every_layout_in_the_sanitizer(dtype, shape, turned, tile, order):
    m, n, k = shape
    rng = np.random.default_rng(m * n * k)
    a, b = (factor(rng, *each).astype(dtype) for each in (((m, k), turned[0]), ((k, n), not turned[1])))
    out = np.full((m, n), np.nan, dtype)

    with sk.sanitize(order=order, seed=m):
        hopper_matmul_kernel(DTYPES[dtype], DTYPES[dtype], turned, tile, 2)(a, b, out, 2)

    np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype))


def scaled_sum(x, bias, residual, scale):
    return sk.maximum(x + bias, 0) * scale + residual


def scaled_sum_of(a, b, bias, residual, scale):
    sums = a.astype(np.float32) @ b.astype(np.float32)
    return np.maximum(sums + bias.astype(np.float32), 0) * scale + residual.astype(np.float32)


@settings(max_examples=settings.default.max_examples // 64, deadline=None)
@given(
    st.sampled_from(list(DTYPES)),
    st.tuples(EIGHTS, EIGHTS, st.sampled_from([8, 72])),
    st.sampled_from([(64, 64, 1), (64, 128, 2)]),
    st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]),
    st.integers(0, 3),
)
def test_an_epilogue_of_arrays_that_lie_anywhere_in_the_sanitizer(dtype, shape, tile, kind, shift):
    m, n, k = shape
    rng = np.random.default_rng(m * n * k)
    a, b = (factor(rng, each, False).astype(dtype) for each in ((m, k), (k, n)))
    bias, residual = factor(rng, (n + shift,), False).astype(kind)[shift:], factor(rng, (m, n + shift), False)
    residual, out = residual.astype(kind)[:, shift:], np.full((m, n), np.nan, dtype)
    kinds = (DTYPES.get(kind, sk.float32), 1), (DTYPES.get(kind, sk.float32), 2), None
    kernel = hopper_matmul_kernel(DTYPES[dtype], DTYPES[dtype], (False, True), tile, 2, scaled_sum, kinds)

    with sk.sanitize(order="random", seed=m):
        kernel(a, b, out, 2, bias, residual, np.float32(0.5))

    np.testing.assert_array_equal(out, scaled_sum_of(a, b, bias, residual, 0.5).astype(dtype))


def test_epilogues_mean_what_they_mean_to_matmul():
    rng = np.random.default_rng(0)
    a, b = (factor(rng, shape, False).astype(np.float16) for shape in ((24, 16), (16, 72)))
    bias, out = factor(rng, (72,), False).astype(np.float64), factor(rng, (24, 72), False).astype(np.float16)
    cases = [
        ((bias, out, 0.5), scaled_sum), ((out,), lambda x, y: x / (1 + sk.exp(-x)) + y), ((), lambda x: 1),
        ((2, 3), lambda x, low, high: sk.where(x > low, low, sk.minimum(x, high)).to(sk.int32)),
    ]  # fmt: skip
    for operands, epilogue in cases:
        expected = kernels.matmul(a, b, *operands, epilogue=epilogue)

        with sk.sanitize():
            found = kernels.hopper_matmul(a, b, *operands, epilogue=epilogue)

        np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=2e-3)
    expected = scaled_sum_of(a, b, bias, out, 0.5).astype(np.float16)
    with sk.sanitize():
        kernels.hopper_matmul(a, b, bias, out, 0.5, epilogue=scaled_sum, out=out)
        nothing = kernels.hopper_matmul(a[:, :0], b[:0], bias, epilogue=lambda x, y: x + y)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(nothing, np.broadcast_to(bias, (24, 72)).astype(np.float16))


@pytest.mark.gpu
@pytest.mark.parametrize("width", TILES)
def test_epilogues_of_every_tile_on_a_gpu(width):
    torch = pytest.importorskip("torch")
    kinds = (sk.float32, 1), (sk.bfloat16, 2), None
    kernel = hopper_matmul_kernel(
        sk.bfloat16, sk.bfloat16, (False, False), (128, width), TILES[width][1], scaled_sum, kinds
    )
    for m, n, k in [(8, 8, 8), (1000, 520, 2056), (136, 4104, 72)]:
        a, b, residual = (torch.randint(-2, 3, each, device="cuda").bfloat16() for each in ((m, k), (n, k), (m, n)))
        bias, whole = torch.randn(n, device="cuda"), torch.full((m + 8, n), float("nan"), device="cuda").bfloat16()

        kernel(a, b.T, whole[:m], 132, bias, residual, 0.5)

        assert (whole[:m] == ((a.float() @ b.float().T + bias).relu() * 0.5 + residual.float()).bfloat16()).all()
        assert whole[m:].isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize("turned", TURNED)
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("width", TILES)
def test_products_of_every_tile_on_a_gpu(width, cluster, turned):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(width)
    for dtype, (m, n, k) in itertools.product(DTYPES, [(8, 8, 8), (1000, 520, 2056), (256, 512, 64), (136, 4104, 72)]):
        kernel = hopper_matmul_kernel(DTYPES[dtype], DTYPES[dtype], turned, (128, width, cluster), TILES[width][1])
        of = {np.float16: torch.float16}.get(dtype, torch.bfloat16)
        a, b = (
            torch.from_numpy(factor(rng, *each)).cuda().to(of)
            for each in (((m, k), turned[0]), ((k, n), not turned[1]))
        )
        whole = torch.full((m + 8, n), float("nan"), device="cuda", dtype=of)

        kernel(a, b, whole[:m], 132)

        assert (whole[:m] == (a.float() @ b.float()).to(of)).all()
        assert whole[m:].isnan().all()


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_products_of_float8_in_the_sanitizer(dtype):
    rng = np.random.default_rng(0)
    for m, n, k in ((136, 72, 272), (8, 8, 16)):
        a, b = (factor(rng, shape, False).astype(dtype) for shape in ((m, k), (n, k)))
        expected = a.astype(np.float32) @ b.astype(np.float32).T

        with sk.sanitize():
            found = kernels.hopper_matmul(a, b.T), np.empty((m, n), np.float16)
            kernels.hopper_matmul(a, b.T, out=found[1])

        assert found[0].dtype == ml_dtypes.bfloat16
        for each in found:
            np.testing.assert_array_equal(each, expected.astype(each.dtype))
    with pytest.raises(ValueError, match="lies side by side along k: give a of shape"):
        kernels.hopper_matmul(a, np.ones((16, 8), dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_products_of_float8_on_a_gpu(name):
    torch = pytest.importorskip("torch")
    for m, n, k in ((8, 8, 16), (1000, 520, 2064), (256, 512, 128), (136, 4104, 144)):
        a, b = (torch.randint(-2, 3, shape, device="cuda").to(getattr(torch, name)) for shape in ((m, k), (n, k)))

        found = kernels.hopper_matmul(a, b.T)

        assert (found == (a.float() @ b.float().T).bfloat16()).all()


@pytest.mark.gpu
def test_tiles_are_chosen_by_the_shape_on_a_gpu():
    torch = pytest.importorskip("torch")
    for m, n, k in ((128, 8192, 512), (4224, 4352, 256), (4096, 4096, 64)):
        a, b = (torch.randint(-2, 3, shape, device="cuda").to(torch.float16) for shape in ((m, k), (n, k)))

        assert (kernels.hopper_matmul(a, b.T) == a @ b.T).all()


def test_tiles_are_chosen_so_that_the_last_program_ends_soonest():
    assert tile_for(4096, 4096) == (HopperTile(128, 256), 4)
    assert tile_for(4224, 4352) == (HopperTile(128, 192), 4)
    assert tile_for(4096, 11008) == (HopperTile(128, 128), 6)
    assert tile_for(128, 8192) == (HopperTile(128, 64), 8)


@pytest.mark.parametrize(
    ("tile", "stages", "turned"), [((128, 256, 2), 4, (True, False)), ((128, 64, 1), 8, (False, True))]
)
def test_ptxas_keeps_sums_in_registers_and_products_under_way(tile, stages, turned):
    """It would say C75xx where it makes products wait for each other, or ignores what moves registers."""
    kernel = hopper_matmul_kernel(sk.bfloat16, sk.bfloat16, turned, tile, stages).specialize()

    found = ptxas.assemble(kernel.compile("cuda", capability=90).stages["ptx"])

    assert not found.warnings
    assert found.resources.stack_bytes == found.resources.spill_store_bytes == 0


@pytest.mark.parametrize("width", TILES)
def test_epilogues_spill_nothing(width):
    def silu(x, bias, residual, scale):
        x = (x + bias) * scale
        return x / (1 + sk.exp(-x)) + residual

    kinds = (sk.bfloat16, 1), (sk.float32, 2), None
    kernel = hopper_matmul_kernel(
        sk.bfloat16, sk.bfloat16, (False, False), (128, width), TILES[width][1], silu, kinds
    ).specialize(e=sk.float32)

    found = ptxas.assemble(kernel.compile("cuda", capability=90).stages["ptx"])

    assert not found.warnings
    assert found.resources.stack_bytes == found.resources.spill_store_bytes == 0


@pytest.mark.parametrize(("m", "k", "n"), [(8, 0, 16), (0, 8, 16), (8, 8, 0), (0, 0, 0)])
def test_matrices_without_elements_have_a_product_of_zeros(m, k, n):
    with sk.sanitize():
        found = kernels.hopper_matmul(np.ones((m, k), np.float16), np.ones((k, n), np.float16))

    np.testing.assert_array_equal(found, np.zeros((m, n), np.float16))


def test_what_is_not_for_it_is_refused():
    x, y = np.ones((16, 16), np.float16), np.ones((16, 16), np.float32)

    with pytest.raises(ValueError, match="dtype float32: it is float16 or bfloat16 or float8"):
        kernels.hopper_matmul(y, y)
    with pytest.raises(ValueError, match="operands are for an epilogue, and there is none"):
        kernels.hopper_matmul(x, x, x[0])
    with pytest.raises(ValueError, match="out shares memory"), sk.sanitize():
        kernels.hopper_matmul(x, y.astype(x.dtype), x, epilogue=lambda s, t: s + t, out=x)
    with pytest.raises(ValueError, match="give two matrices"):
        kernels.hopper_matmul(x, x[0])
    with pytest.raises(sk.StagekitError, match="TENSOR_MAP_REFUSED"), sk.sanitize():
        kernels.hopper_matmul(x[:, 1:], x[1:])
    with pytest.raises(sk.StagekitError, match="UNSUPPORTED_ON_TARGET"):
        kernels.hopper_matmul(x, x)
