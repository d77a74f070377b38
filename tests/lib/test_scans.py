"""Reductions and scans by any function: whatever the extent, the threads and the width of chunks, in the order of indices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.lib import placing
from stagekit.testing import NoMeaning, run_in_python
from tests.places import each_place, on_gpu, run

EXTENTS = (1, 2, 3, 16, 31, 32, 33, 64, 100, 257, 1000, 1024, 1025, 3001)


@contextlib.contextmanager
def placed(threads: int, width: int) -> Iterator[None]:
    """Let tiles lie over so many threads, in chunks of this width."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "width_for", lambda shape, threads, most, axis=-1: width)
        for name in ("default_threads", "cpu_threads"):
            patch.setattr(placing, name, lambda *extent: threads)
        yield


def follow(p: Any, q: Any) -> Any:
    """Compose x -> a * x + b with another such map that comes after it: associative, not commutative."""
    return p[0] * q[0], p[1] * q[0] + q[1]


@sk.jit
def everything(x, y, wholes, up, down, sums, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    a, b = sk.load(x + i), sk.load(y + i)
    wholes[0], wholes[1] = sk.reduce((a, b), follow)
    wholes[2], wholes[3] = sk.reduce((a, b), follow, identity=(1, 0))
    wholes[4] = sk.reduce(b, lambda p, q: p ^ q, commutative=True)
    sk.store(up + i, sk.scan((a, b), follow)[1])
    sk.store(down + i, sk.scan((a, b), follow, identity=(1, 0), reverse=True)[1])
    sk.store(sums + i, sk.cumsum(b) * sk.cumprod(a, reverse=True))


def given_for(block: int) -> list[np.ndarray]:
    generator = np.random.default_rng(block)
    x, y = generator.integers(-3, 4, block), generator.integers(-9, 99, block)
    return [
        np.where(x == 0, 1, x).astype(np.int32),
        y.astype(np.int32),
        *map(functools.partial(np.zeros, dtype=np.int32), (5, *(block,) * 3)),
    ]


@functools.cache
def meaning(block: int) -> list[np.ndarray]:
    """What NumPy and a loop of Python's make of it."""
    arrays = given_for(block)
    run_in_python(everything, (1,), *arrays, block)
    return arrays


@settings(max_examples=10, deadline=None)
@given(
    block=st.sampled_from(EXTENTS) | st.integers(1, 700),
    threads=st.sampled_from((1, 2, 7, 16, 32, 33, 64, 96, 128, 1000, 1024)),
    width=st.sampled_from((1, 2, 4, 8)),
)
def test_every_placement_combines_in_the_order_of_indices(block: int, threads: int, width: int) -> None:
    """In the checking interpreter, which also finds races and lanes and memory that are not there."""
    with placed(threads, width):
        watch = sk.sanitize(_fresh(everything), collect=True, overflow=False)
        found = run(np.copy, watch[(1,)], given_for(block), block)

    assert list(watch.report.findings) == []
    for mine, wanted in zip(found, meaning(block), strict=True):
        np.testing.assert_array_equal(mine, wanted)


def _fresh(kernel: Any) -> Any:
    """Return the kernel anew: what it was compiled to depends on how tiles lie, which it does not know."""
    return sk.jit(kernel.function)


@each_place
@pytest.mark.parametrize("block", [1, 33, 1024, 1501])
def test_scans_and_reductions_are_those_of_a_loop(place: Any, block: int) -> None:
    found = run(place, everything[(1,)], given_for(block), block)

    for mine, wanted in zip(found, meaning(block), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("block", "threads", "width"),
    [
        (7, 16, 1),
        (7, 33, 4),
        (100, 16, 8),
        (1000, 33, 1),
        (1000, 96, 4),
        (1000, 1024, 1),
        (4096, 128, 4),
        (4096, 512, 8),
    ],
)
def test_a_gpu_combines_in_the_order_of_indices(block: int, threads: int, width: int) -> None:
    with placed(threads, width):
        found = run(on_gpu, _fresh(everything)[(1,)], given_for(block), block)

    for mine, wanted in zip(found, meaning(block), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@sk.jit
def places_of_extremes(x, out, BLOCK: sk.constexpr):
    tile = sk.load(x + sk.arange(0, BLOCK))
    out[0], out[1] = sk.argmax(tile), sk.argmin(tile)
    out[2], out[3], out[4] = sk.any(tile), sk.all(tile), sk.count_nonzero(tile)


@each_place
@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.uint16, np.int64, np.float16, np.float32, ml_dtypes.bfloat16], ids=str
)
@pytest.mark.parametrize("block", [1, 27, 100, 1500])
def test_places_of_extremes_are_numpys(place: Any, dtype: Any, block: int) -> None:
    """Few different numbers, so that several are largest."""
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 3, block).astype(dtype)
        _, out = run(place, places_of_extremes[(1,)], [x, np.zeros(5, np.int64)], block)

        assert [np.argmax(x), np.argmin(x), np.any(x), np.all(x), np.count_nonzero(x)] == out.tolist()


@each_place
@pytest.mark.parametrize("nans", [(0,), (5,), (99, 7), (130, 3, 199)])
def test_the_first_nan_is_the_largest_and_the_smallest(place: Any, nans: tuple[int, ...]) -> None:
    x = np.linspace(-1, 1, 200, dtype=np.float32)
    x[list(nans)] = np.nan

    _, out = run(place, places_of_extremes[(1,)], [x, np.zeros(5, np.int64)], 200)

    assert [min(nans), min(nans), 1, 1, 200] == out.tolist()
    assert np.argmax(x) == np.argmin(x) == min(nans)


@sk.jit
def guarded(x, out, BLOCK: sk.constexpr):
    def larger(a, b):
        if sk.minimum(a, b) < 5:
            sk.atomic_max(out + BLOCK, 1)
        return sk.maximum(a, b)

    tile = sk.load(x + sk.arange(0, BLOCK))
    out[0] = sk.reduce(tile, larger)
    out[1] = sk.reduce(tile, larger, commutative=True)
    sk.store(out + sk.arange(0, BLOCK), sk.scan(tile, larger, reverse=True))


@pytest.mark.parametrize(("threads", "width"), [(32, 1), (64, 4), (40, 8), (7, 2)])
def test_a_combiner_sees_elements_of_the_tile_alone(threads: int, width: int) -> None:
    """What threads hold beside the tile is less than all of its elements."""
    x = np.arange(99, dtype=np.int32) + 5
    with placed(threads, width):
        (_, out) = run(
            np.copy, sk.compile(_fresh(guarded).specialize(BLOCK=99), "interp")[(1,)], [x, np.zeros(100, np.int32)]
        )

    assert [103] * 99 + [0] == out.tolist()


@sk.jit
def sums_of(x, out, back, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(out + i, sk.cumsum(sk.load(x + i)))
    sk.store(back + i, sk.cumsum(sk.load(x + i), reverse=True))


@each_place
@pytest.mark.parametrize(
    ("dtype", "result"), [(bool, np.int32), (np.int8, np.int32), (np.uint8, np.uint32), (np.float64, np.float64)]
)
def test_narrow_integers_are_summed_in_32_bits(place: Any, dtype: Any, result: Any) -> None:
    x = np.random.default_rng(1).integers(0, 2, 700).astype(dtype)

    _, out, back = run(place, sums_of[(1,)], [x, np.zeros(700, result), np.zeros(700, result)], 700)

    np.testing.assert_array_equal(out, np.cumsum(x, dtype=result))
    np.testing.assert_array_equal(back, np.cumsum(x[::-1], dtype=result)[::-1])


def test_narrow_floats_are_summed_in_float32_and_rounded_once() -> None:
    """1 + 2048 * 2**-11 in float16 steps would stay 1."""
    x = np.full(2049, 2**-11, np.float16)
    x[0] = 1

    _, out, _ = run(np.copy, sums_of[(1,)], [x, np.zeros_like(x), np.zeros_like(x)], 2049)

    assert out[-1] == 2


# -- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: sk.reduce(x, lambda a, b: a < b), "gives bool for elements of int32"),
        (lambda x: sk.reduce((x, x), lambda a, b: a), None),
        (lambda x: sk.reduce((x, x), lambda a, b: (a[0],)), "takes two tuples of as many numbers"),
        (lambda x: sk.scan((x, x), lambda a, b: a[0] + b[0]), "takes two tuples of as many numbers"),
        (lambda x: sk.scan((), lambda a, b: a), "takes a tile, or a tuple of tiles"),
        (lambda x: sk.reduce(3, lambda a, b: a), "takes a tile, or a tuple of tiles"),
        (lambda x: sk.reduce(x, None), "combine must be a function"),
        (lambda x: sk.reduce((x, x), lambda a, b: a, identity=0), "a tuple with a number for each of 2 tiles"),
        (lambda x: sk.cumsum(3), "cumsum takes a tile"),
        (lambda x: sk.reduce((x, sk.arange(0, 7)), lambda a, b: a), "extents 9 and 7"),
        (lambda x: sk.associative_scan(x, lambda a, b: a), "here it is `sk.scan"),
    ],
)  # fmt: skip
def test_what_is_no_combination_is_refused(call: Any, message: str | None) -> None:
    @sk.jit
    def kernel(x):
        call(sk.load(x + sk.arange(0, 9)))

    staged = kernel.specialize(x=sk.Pointer(sk.int32))
    if message is None:
        staged.trace()
        return
    with pytest.raises(sk.StagingError, match=message):
        staged.trace()


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda x: sk.reduce(x, lambda a, b: a + b, identity=1), "NO_IDENTITY"),
        (lambda x: sk.reduce(x, lambda a, b: b, commutative=True), "NOT_COMMUTATIVE"),
    ],
)
def test_the_oracle_finds_promises_that_do_not_hold(call: Any, rule: str) -> None:
    @sk.jit
    def kernel(x):
        call(sk.load(x + sk.arange(0, 9)))

    with pytest.raises(NoMeaning) as found:
        run_in_python(kernel, (1,), np.arange(9))
    assert found.value.id == rule
