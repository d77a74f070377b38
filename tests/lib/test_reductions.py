"""Reductions: any number of threads, any number in a row, the same result in every thread and on every run."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from tests.places import each_place, on_cpu, run

BLOCKS = (1, 2, 3, 16, 27, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 256, 992, 1000, 1023, 1024, 1025, 2048, 3001)


@sk.jit
def reduce_all(src, sums, largest, smallest, BLOCK: sk.constexpr):
    """Every thread stores what it got."""
    offs = sk.arange(0, BLOCK)
    x = sk.load(src + offs)
    zero = sk.load(src + offs) == 0
    sk.store(sums + offs, sk.where(zero, sk.reduce_sum(x), sk.reduce_sum(x)))
    sk.store(largest + offs, sk.where(zero, sk.reduce_max(x), sk.reduce_max(x)))
    sk.store(smallest + offs, sk.where(zero, sk.reduce_min(x), sk.reduce_min(x)))


def sum_dtype(dtype):
    """As documented: bool and narrow integers are summed in 32 bits."""
    kind = np.dtype(dtype).kind
    if kind in "biu" and np.dtype(dtype).itemsize < 4:
        return np.uint32 if kind == "u" else np.int32
    return dtype


def reduced(place, x):
    """(sums, largest, smallest), each as every thread got it."""
    block, dtype = len(x), x.dtype
    outs = [np.zeros(block, sum_dtype(dtype)), np.zeros(block, dtype), np.zeros(block, dtype)]
    return run(place, reduce_all[(1,)], [x, *outs], block)[1:]


@each_place
@pytest.mark.parametrize("block", BLOCKS)
def test_integers_reduce_exactly_for_any_block(place, block):  # Y9
    x = np.random.default_rng(block).integers(-1000, 1000, block).astype(np.int32)

    sums, largest, smallest = reduced(place, x)

    assert set(sums.tolist()) == {x.sum()}
    assert set(largest.tolist()) == {x.max()}
    assert set(smallest.tolist()) == {x.min()}


NUMPY_NAMES = ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
DTYPES = [*map(np.dtype, NUMPY_NAMES), np.dtype(ml_dtypes.bfloat16)]


@each_place
@pytest.mark.parametrize("block", [27, 128, 1100])  # a part of a warp, warps, several elements in a thread
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_reduces(place, dtype, block):
    """Small integers, so that sums are exact in every dtype and any order."""
    x = np.random.default_rng(block).integers(0, 2, block).astype(dtype)

    sums, largest, smallest = reduced(place, x)

    np.testing.assert_array_equal(sums, np.full(block, x.astype(np.float64).sum()).astype(sums.dtype))
    assert set(largest.tolist()) == {x.max()}
    assert set(smallest.tolist()) == {x.min()}


@settings(max_examples=15, deadline=None)
@given(block=st.integers(1, 1100), seed=st.integers(0, 2**32 - 1))
def test_float_sums_are_near_the_exact_sum_for_any_block(block, seed):
    x = np.random.default_rng(seed).normal(size=block).astype(np.float32)

    sums, largest, smallest = reduced(on_cpu, x)

    exact = x.astype(np.float64)
    assert abs(sums[0] - exact.sum()) <= 32 * 2**-24 * np.abs(exact).sum()
    assert (sums == sums[0]).all()
    assert (largest == x.max()).all()
    assert (smallest == x.min()).all()


@pytest.mark.gpu
@pytest.mark.parametrize("block", BLOCKS)
def test_interpreter_and_gpu_add_in_the_same_order(block, monkeypatch):
    from tests.places import on_gpu

    x = np.random.default_rng(block).normal(size=block).astype(np.float32)
    there = reduced(on_gpu, x)
    monkeypatch.setenv("STAGEKIT_TARGET", "interp")

    for mine, found in zip(reduced(on_cpu, x), there, strict=True):
        np.testing.assert_array_equal(mine.view(np.uint32), found.view(np.uint32))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_added_in_float32_and_rounded_once(dtype):
    """1 + 2048 * 2**-11 in float16 steps would stay 1."""
    x = np.full(2049, 2**-11, dtype)
    x[0] = 1

    sums, _, _ = reduced(on_cpu, x)

    assert sums[0] == np.array(2, dtype)


@each_place
@pytest.mark.parametrize("block", [5, 70, 1500])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16], ids=str)
def test_nan_wins_as_in_numpys_maximum(place, dtype, block):  # P33
    for where in {0, block // 2, block - 1}:
        x = np.arange(block).astype(dtype)
        x[where] = np.nan

        for result in reduced(place, x):
            assert np.isnan(result.astype(np.float32)).all()


@each_place
@pytest.mark.parametrize("block", [3, 64, 100])
def test_infinities_and_signed_zeros(place, block):  # P33
    x = np.full(block, -0.0, np.float32)
    sums, largest, smallest = reduced(place, x)
    assert np.signbit(sums).all()
    assert np.signbit(largest).all()
    assert np.signbit(smallest).all()

    x[block // 2] = 0.0
    sums, largest, smallest = reduced(place, x)
    assert not np.signbit(largest).any()
    assert np.signbit(smallest).all()

    x[0] = -np.inf
    sums, largest, smallest = reduced(place, x)
    assert (sums == -np.inf).all()
    assert (largest == 0).all()
    assert (smallest == -np.inf).all()


@sk.jit
def masked_extremes(src, dst, n, BLOCK: sk.constexpr):
    offs = sk.arange(0, BLOCK)
    x = sk.load(src + offs, mask=offs < n)
    total = sk.reduce_sum(x) + sk.reduce_min(x) + sk.reduce_max(x)
    sk.store(dst + offs, total + 0 * offs)


@each_place
@settings(max_examples=30, deadline=None)
@given(block=st.sampled_from(BLOCKS), data=st.data())
def test_masked_load_then_reduce_counts_the_fill(place, block, data):  # P37
    n = data.draw(st.integers(0, block))
    x = np.arange(1, block + 1)

    _, out = run(place, masked_extremes[(1,)], [x, np.zeros(block, np.int64)], n, block)

    kept = np.where(np.arange(block) < n, x, 0)
    assert set(out.tolist()) == {kept.sum() + kept.min() + kept.max()}


@sk.jit
def many_in_a_row(src, dst, rounds, BLOCK: sk.constexpr, static_rounds: sk.constexpr):
    """Each round uses the last one's result, in a run-time loop and in an unrolled one."""
    offs = sk.arange(0, BLOCK)
    x = sk.load(src + offs)
    for _ in range(rounds):
        x = x + sk.reduce_max(x) - sk.reduce_min(x)
    for _ in sk.static_range(static_rounds):
        x = x ^ (sk.reduce_sum(x) & 7)
    sk.store(dst + offs, x)


@each_place
@pytest.mark.parametrize("block", [1, 27, 32, 64, 100, 256, 1000, 1024, 1500])
def test_any_number_of_reductions_in_a_row(place, block):  # Y9
    x = np.random.default_rng(block).integers(0, 10, block)

    _, out = run(place, many_in_a_row[(1,)], [x, np.zeros(block, np.int64)], 6, block, 9)

    for _ in range(6):
        x = x + x.max() - x.min()
    for _ in range(9):
        x = x ^ (x.sum() & 7)
    np.testing.assert_array_equal(out, x)


# -- one scalar per thread --------------------------------------------------------------------------------------------


@sk.jit
def block_products(src, dst, THREADS: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    dst[t] = sk.block_reduce(src[t], lambda a, b: a * b, 1, THREADS)


@each_place
@pytest.mark.parametrize("threads", [1, 7, 32, 33, 64, 100, 1024])
def test_block_reduce_with_any_function(place, threads):
    x = np.random.default_rng(0).integers(1, 4, threads).astype(np.uint64)

    _, out = run(place, block_products[1, threads], [x, np.zeros(threads, np.uint64)], threads)

    assert set(out.tolist()) == {np.multiply.reduce(x)}


@sk.jit
def warp_bits(src, dst, LANES: sk.constexpr):
    t = sk.cuda.thread_idx("x")
    dst[t] = sk.warp_reduce(src[t], lambda a, b: a | b, LANES)


@each_place
@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 27, 31, 32])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64, np.bool_])
def test_warp_reduce_with_any_number_of_lanes(place, lanes, dtype):
    x = np.random.default_rng(0).integers(0, 2, lanes).astype(dtype)

    _, out = run(place, warp_bits[1, lanes], [x, np.zeros(lanes, dtype)], lanes)

    assert set(out.tolist()) == {np.bitwise_or.reduce(x)}


@pytest.mark.parametrize("threads", [0, 1025, True, 64.0])
def test_block_reduce_refuses_a_number_of_threads_that_is_none(threads):
    with pytest.raises(sk.StagekitError, match="block_reduce: block_threads is"):
        block_products.specialize(
            src=sk.Tensor((None,), sk.int32), dst=sk.Tensor((None,), sk.int32), THREADS=threads
        ).ir


@each_place
@pytest.mark.parametrize("threads", [33, 64])
@pytest.mark.parametrize("block", [1, 32, 96, (32, 2), (8, 8)])
def test_block_reduce_refuses_a_launch_with_another_block(place, threads, block):
    x = np.ones(1024, np.uint64)

    with pytest.raises(sk.LaunchError, match=rf"compiled for blocks of \({threads}, 1, 1\) threads"):
        run(place, block_products[1, block], [x, x], threads)


@sk.jit
def products_with_a_known_block(src, dst, THREADS: sk.constexpr, BLOCK: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=BLOCK))
    dst[0] = sk.block_reduce(src[0], lambda a, b: a * b, 1, THREADS)


@sk.inline(per_thread=True)
def product_of_threads(src, dst, THREADS):
    dst[0] = sk.block_reduce(sk.load(src), lambda a, b: a * b, 1, THREADS)


@sk.jit
def products_beside_a_tile(src, dst, THREADS: sk.constexpr, BLOCK: sk.constexpr):
    product_of_threads(src, dst, THREADS)
    sk.store(dst + sk.arange(0, BLOCK), 1)


@sk.jit
def products_twice(src, dst, THREADS: sk.constexpr, BLOCK: sk.constexpr):
    dst[0] = sk.block_reduce(src[0], lambda a, b: a * b, 1, BLOCK)
    dst[1] = sk.block_reduce(src[1], lambda a, b: a * b, 1, THREADS)


@pytest.mark.parametrize("kernel", [products_with_a_known_block, products_beside_a_tile, products_twice])
@pytest.mark.parametrize("block", [1, 32, 48])
@pytest.mark.parametrize("threads", [1, 32, 48])
def test_block_reduce_goes_with_the_block_that_is_known(kernel, block, threads):
    staged = kernel.specialize(
        src=sk.Tensor((None,), sk.int32), dst=sk.Tensor((None,), sk.int32), THREADS=threads, BLOCK=block
    )

    if block == threads:
        assert staged.trace().block == (threads, 1, 1)
    else:
        with pytest.raises(sk.StagingError, match=f"`block_reduce` over {threads} threads, in a block of {block}"):
            staged.trace()


def test_a_scalar_is_no_tile():
    @sk.jit
    def kernel(p):
        sk.store(p, sk.reduce_sum(sk.load(p)))

    with pytest.raises(sk.StagekitError, match="block_reduce"):
        kernel.specialize(p=sk.Pointer(sk.float32)).ir


@sk.jit
def of_a_known_number(out, DTYPE: sk.constexpr, BLOCK: sk.constexpr):
    tile = sk.full(BLOCK, 1, DTYPE)
    out[0], out[1], out[2] = sk.reduce_sum(tile), sk.reduce_max(tile), sk.reduce_min(sk.zeros(BLOCK, DTYPE))


@each_place
@pytest.mark.parametrize("block", [1, 100, 3000])
@pytest.mark.parametrize(
    "dtype", [sk.float32, sk.float16, sk.bfloat16, sk.float64, sk.int8, sk.uint16, sk.int64, sk.bool_], ids=repr
)
def test_a_tile_whose_elements_are_known_while_specialising_is_reduced(place, dtype, block):
    (out,) = run(place, of_a_known_number[(1,)], [np.zeros(3, np.float32)], dtype, block)

    assert out[0] == pytest.approx(block, rel=2**-7)  # bfloat16 and float16 round their sum
    assert out[1:].tolist() == [1, 0]
