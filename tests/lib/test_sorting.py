"""Order and places within a tile, whatever the extent, the threads and the width of chunks: as NumPy has them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.testing import NoMeaning, run_in_python
from tests.lib.test_scans import _fresh, placed
from tests.places import each_place, on_gpu, run


@sk.jit
def everything(x, up, down, places, best, at, turned, counts, one, BLOCK: sk.constexpr, K: sk.constexpr):
    i, j = sk.arange(0, BLOCK), sk.arange(0, K)
    tile = sk.load(x + i)
    sk.store(up + i, sk.sort(tile))
    sk.store(down + i, sk.sort(tile, descending=True))
    sk.store(places + i, sk.argsort(tile))
    values, indices = sk.topk(tile, K)
    sk.store(best + j, values)
    sk.store(at + j, indices)
    sk.store(turned + i, sk.gather(tile, BLOCK - 1 - i))
    for n in range(2):  # shared memory is used again
        sk.store(counts + 7 * n + sk.arange(0, 7), sk.histogram(sk.int32(i % 9), 7, mask=i > n))
    one[0] = sk.gather(tile, BLOCK // 2)


def given_for(block: int, dtype: Any, seed: int = 0) -> list[np.ndarray]:
    """Few different numbers, zeros of both signs and NaN."""
    x = np.random.default_rng(seed).integers(-9, 9, block).astype(dtype)
    if np.dtype(dtype).kind not in "biu":
        x[seed % block] = np.nan
        x[block // 2] = -0.0
        x[block // 3] = 0.0
    k = max(1, block // 3)
    ints = [np.zeros(block, np.int64), np.zeros(k, np.int64), np.zeros(14, np.int32)]
    floats = [np.zeros(size, dtype) for size in (block, block, k, block, 1)]
    return [x, floats[0], floats[1], ints[0], floats[2], ints[1], floats[3], ints[2], floats[4]]


def check(found: list[np.ndarray], block: int, dtype: Any, seed: int = 0) -> None:
    arrays = given_for(block, dtype, seed)
    run_in_python(everything, (1,), *arrays, block, max(1, block // 3))
    for pair in zip(found, arrays, strict=True):
        # NumPy's comparison takes no NaN of bfloat16 for equal
        mine, wanted = (each.astype(np.float32) if each.dtype.kind not in "biuf" else each for each in pair)
        np.testing.assert_array_equal(mine, wanted)
        if mine.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(mine), np.signbit(wanted))


@settings(max_examples=6, deadline=None)
@given(
    block=st.integers(1, 80),
    threads=st.sampled_from((4, 7, 20, 32, 33, 64, 96, 128)),
    width=st.sampled_from((1, 2, 4, 8)),
    dtype=st.sampled_from((np.float32, np.int32, np.uint8, np.float64, ml_dtypes.bfloat16)),
)
def test_every_placement_gives_numpys_order(block: int, threads: int, width: int, dtype: Any) -> None:
    """In the checking interpreter, which also finds races and lanes and memory that are not there."""
    with placed(threads, width):
        watch = sk.sanitize(_fresh(everything), collect=True)
        found = run(np.copy, watch[(1,)], given_for(block, dtype, block), block, max(1, block // 3))

    assert list(watch.report.findings) == []
    check(found, block, dtype, block)


@each_place
@pytest.mark.parametrize(("block", "dtype"), [(1, np.int16), (33, bool), (100, np.float16), (130, np.float32)], ids=str)
def test_order_and_places_are_numpys(place: Any, block: int, dtype: Any) -> None:
    found = run(place, everything[(1,)], given_for(block, dtype), block, max(1, block // 3))

    check(found, block, dtype)
    np.testing.assert_array_equal(found[1], np.sort(found[0]))


@each_place
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_places_of_zeros_of_either_sign_are_in_order_and_their_signs_are_kept(place: Any, dtype: Any) -> None:
    x = np.random.default_rng(7).choice(np.array([0.0, -0.0, 1.0, -1.0, np.nan, -np.inf]), 40).astype(dtype)
    found = run(place, everything[(1,)], [x, *given_for(40, dtype)[1:]], 40, 13)

    wide = x.astype(np.float64)
    falling = 39 - np.argsort(wide[::-1], kind="stable")[::-1][:13]
    np.testing.assert_array_equal(found[3], np.argsort(wide, kind="stable"))
    np.testing.assert_array_equal(found[5], falling)
    np.testing.assert_array_equal(np.signbit(found[4].astype(np.float64)), np.signbit(wide[falling]))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("block", "threads", "width"), [(7, 16, 1), (100, 33, 1), (1000, 96, 4), (1000, 1024, 1), (4096, 512, 4)]
)  # more elements a thread would take ptxas too long
def test_a_gpu_sorts(block: int, threads: int, width: int) -> None:
    with placed(threads, width):
        kernel = _fresh(everything)
        found = run(on_gpu, kernel[(1,)], given_for(block, np.float32), block, max(1, block // 3))

    check(found, block, np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: sk.sort(3), "sort takes a tile"),
        (lambda x: sk.topk(x, 10), "k must be a compile-time int from 1 to 9, got 10"),
        (lambda x: sk.sort(sk.zeros(20_000, sk.int32)), "up to 16384 are sorted at once"),
        (lambda x: sk.gather(x, 9), "index 9 is outside a tile of 9"),
        (lambda x: sk.gather(x, sk.float32(x)), "an index must be an integer, got float32"),
        (lambda x: sk.histogram(sk.float32(x), 3), "takes a tile of integers, got float32"),
        (lambda x: sk.bincount(x), "here it is `sk.histogram"),
    ],
)  # fmt: skip
def test_what_cannot_be_put_in_order_is_refused(call: Any, message: str) -> None:
    @sk.jit
    def kernel(x):
        call(sk.load(x + sk.arange(0, 9)))

    with pytest.raises(sk.StagingError, match=message):
        kernel.specialize(x=sk.Pointer(sk.int32)).trace()


@sk.jit
def beyond(x, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(x + i, sk.gather(sk.load(x + i), i + 1))


def test_an_index_outside_a_tile_is_found() -> None:
    with pytest.raises(NoMeaning) as found:
        run_in_python(beyond, (1,), np.zeros(40, np.int32), 40)
    assert found.value.id == "OUT_OF_BOUNDS"

    watch = sk.sanitize(beyond, collect=True)
    watch[(1,)](np.zeros(40, np.int32), 40)
    assert {finding.id for finding in watch.report.findings} == {"OUT_OF_BOUNDS"}
