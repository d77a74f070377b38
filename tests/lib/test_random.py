"""Random numbers: known answers, the same bits everywhere, and distributions as they are documented."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import stagekit as sk
from stagekit.testing import run_in_python
from tests.places import each_place, run

# Random123, kat_vectors: philox4x32 with 10 rounds
KNOWN = [
    ((0, 0, 0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, 0xFFFFFFFF_FFFFFFFF, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0_A4093822, "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@sk.jit
def known_answers(out, counters, seeds):
    """One thread; once with the seed known at compile time, once at run time."""
    for row, (counter, seed, _) in enumerate(KNOWN):
        words = *sk.philox(seed, counter), *sk.philox(seeds[row], [counters[row, k] for k in range(4)])
        for k, word in enumerate(words):
            out[row, k] = word


@each_place
def test_philox_gives_the_known_answers(place: Any) -> None:
    counters, seeds = np.array([row[0] for row in KNOWN], np.uint32), np.array([row[1] for row in KNOWN], np.uint64)

    out, *_ = run(place, known_answers[1, 1], [np.zeros((3, 8), np.uint32), counters, seeds])

    for row, (_, _, words) in zip(out, KNOWN, strict=True):
        assert f"{words} {words}" == " ".join(f"{word:08x}" for word in row)


@sk.jit
def numbers(words, uniform, normal, dice, alone, seed, first, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    for k, word in enumerate(sk.philox(seed, first + i)):
        sk.store(words + 4 * i + k, word)
    sk.store(uniform + i, sk.rand(seed, first + i))
    sk.store(normal + i, sk.randn(seed, first + i))
    sk.store(dice + i, sk.randint(seed, first + i, -3, 4, dtype=sk.int32))
    alone[0] = sk.rand(seed, first + 7)


def numbers_of(place: Any, seed: Any, first: Any, count: int) -> list[np.ndarray]:
    arrays = [
        np.zeros(4 * count, np.uint32),
        *np.zeros((2, count), np.float32),
        np.zeros(count, np.int32),
        np.zeros(1, np.float32),
    ]
    if place is run_in_python:
        run_in_python(numbers, (1,), *arrays, seed, first, count)
        return arrays
    return run(place, numbers[(1,)], arrays, seed, first, count)


@each_place
@pytest.mark.parametrize(
    ("seed", "first"), [(7, 0), (np.int64(-1), np.int64(2**40 + 3)), (np.uint64(2**64 - 5), np.int64(-9))]
)
@pytest.mark.parametrize("count", [9, 300, 2050])
def test_numbers_are_those_of_the_oracle(place: Any, seed: Any, first: Any, count: int) -> None:
    """The oracle computes normal ones in float64."""
    found, wanted = numbers_of(place, seed, first, count), numbers_of(run_in_python, seed, first, count)

    for k, (mine, other) in enumerate(zip(found, wanted, strict=True)):
        if k == 2:
            np.testing.assert_allclose(mine, other, rtol=2e-6, atol=1e-7)
        else:
            np.testing.assert_array_equal(mine, other)


@each_place
def test_normal_numbers_have_the_same_bits_everywhere(place: Any) -> None:
    found = numbers_of(place, 3, 1, 1000)

    interpreted = [np.zeros_like(each) for each in found]
    sk.compile(numbers.specialize(BLOCK=1000), "interp")[(1,)](*interpreted, 3, 1)
    np.testing.assert_array_equal(found[2].view(np.uint32), interpreted[2].view(np.uint32))


def test_numbers_depend_on_the_offset_alone() -> None:
    """Whatever tile they are in; and uniform ones are the words of the generator in order."""
    words, uniform, normal, dice, _ = numbers_of(np.copy, 5, 0, 1024)
    *_, alone = numbers_of(np.copy, 5, 93, 40)

    np.testing.assert_array_equal(uniform, (words[:1024] >> 8) * np.float32(2**-24))
    for whole, part in zip((uniform, normal, dice), numbers_of(np.copy, 5, 100, 33)[1:4], strict=True):
        np.testing.assert_array_equal(whole[100:133], part)
    assert alone[0] == uniform[100]


def test_distributions_are_as_documented() -> None:
    parts = [numbers_of(np.copy, 1, first, 1000) for first in range(0, 40_000, 1000)]
    _, uniform, normal, dice, _ = map(np.concatenate, zip(*parts, strict=True))

    assert 0 <= uniform.min() < 2e-4
    assert 1 - 2e-4 < uniform.max() < 1
    assert abs(np.histogram(uniform, 10, (0, 1))[0] - 4000).max() < 5 * np.sqrt(4000 * 0.9)
    assert abs(normal.mean()) < 5 / 200
    assert abs(normal.var() - 1) < 5 * np.sqrt(2) / 200
    assert abs((normal**4).mean() - 3) < 5 * np.sqrt(96) / 200
    assert abs(np.corrcoef(normal[::2], normal[1::2])[0, 1]) < 5 / np.sqrt(20_000)
    assert set(dice.tolist()) == set(range(-3, 4))
    assert abs(np.bincount(dice + 3) - 40_000 / 7).max() < 5 * np.sqrt(40_000 / 7)


@sk.jit
def wide_integers(out, low, high, BLOCK: sk.constexpr):
    i = sk.arange(0, BLOCK)
    sk.store(out + i, sk.randint(3, i, low, high))
    sk.store(out + BLOCK + i, sk.randint(3, i, 1000))


@each_place
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-(2**63), 2**63 - 1), (5, 2**33)])
def test_bounds_of_integers_may_be_far_apart_or_next_to_each_other(place: Any, low: int, high: int) -> None:
    bounds = np.int64(low), np.int64(high)

    (out,) = run(place, wide_integers[(1,)], [np.zeros(200, np.int64)], *bounds, 100)

    wanted = np.zeros(200, np.int64)
    run_in_python(wide_integers, (1,), wanted, *bounds, 100)
    np.testing.assert_array_equal(out, wanted)
    assert low <= out[:100].min() <= out[:100].max() < high
    assert 0 <= out[100:].min() < out[100:].max() < 1000


@pytest.mark.parametrize(("low", "high"), [(4, 4), (5, -3), (2**63 - 1, -(2**63))])
def test_bounds_that_are_empty_at_run_time_fail_an_assert(low: int, high: int) -> None:
    bounds, out = (np.int64(low), np.int64(high)), np.zeros(200, np.int64)
    ways: list[Any] = [
        wide_integers[(1,)],
        sk.sanitize(wide_integers)[(1,)],
        functools.partial(run_in_python, wide_integers, (1,)),
    ]

    for launch in ways:
        with pytest.raises(sk.KernelAssertionError, match=f"randint: no integer is from {low} to below {high}"):
            launch(out, *bounds, 100)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i, x: sk.rand(1.5, i), "rand: seed must be an integer"),
        (lambda i, x: sk.rand(i, i), "rand: seed must be one number"),
        (lambda i, x: sk.randn(1, x), "randn: offset must be an integer, got float32"),
        (lambda i, x: sk.randint(1, i, 5, 5), "no integer is from 5 to below 5"),
        (lambda i, x: sk.randint(1, i, 0, i), "randint: high must be one number"),
        (lambda i, x: sk.philox(1, (1, 2)), "an integer or a tuple of four words, got 2"),
        (lambda i, x: sk.randint4x(1, i), "here it is `sk.philox"),
    ],
)  # fmt: skip
def test_what_is_no_seed_or_offset_is_refused(call: Any, message: str) -> None:
    @sk.jit
    def kernel(x):
        i = sk.arange(0, 9)
        call(i, sk.load(x + i))

    with pytest.raises(sk.StagingError, match=message):
        kernel.specialize(x=sk.Pointer(sk.float32)).trace()
