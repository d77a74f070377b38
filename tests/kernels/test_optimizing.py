"""AdamW against NumPy; parameters of 16 bits are rounded at random without a drift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagekit import kernels
from tests.kernels.rows import BFLOAT16, DTYPES, assert_near, each_place, few, run


@each_place
@few
@given(data=st.data())
def test_a_step_is_that_of_numpy(place, data):
    shape = data.draw(st.sampled_from([(1,), (33,), (1025,), (3, 5), (2, 3, 700)]))
    random = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    dtype, state = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from([np.dtype(np.float32), BFLOAT16]))
    x, g, m = (random.normal(size=shape).astype(d) for d in (dtype, data.draw(st.sampled_from(DTYPES)), state))
    v = np.abs(random.normal(size=shape)).astype(state)
    p, gradient, mean, square = (each.astype(np.float64) for each in (x, g, m, v))
    step = data.draw(st.integers(1, 1000))
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient**2
    p -= 1e-2 * 0.1 * p
    p -= 1e-2 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)

    run(place, kernels.adamw, x, g, m, v, step, rate=1e-2, betas=(0.9, 0.99), decay=0.1)

    for found, expected in ((x, p), (m, mean), (v, square)):
        assert_near(found, expected, ulps=1.02, absolute=2**-19 * (1 + np.abs(expected)))


@each_place
def test_small_steps_of_bfloat16_are_not_lost_when_rounded_at_random(place):
    """A step of 1e-4 is a 40th of the distance between neighbours at 1: to nearest it changes nothing."""
    for seed, lost in ((None, True), (1, False)):
        x = np.ones(20_000, BFLOAT16)
        state = [np.zeros(x.shape, np.float32) for _ in range(2)]
        run(place, kernels.adamw, x, np.ones(x.shape, np.float32), *state, 1, rate=1e-4, decay=0.0, seed=seed)
        assert set(x.astype(float)) == ({1.0} if lost else {1.0, 1 - 2**-8})
        assert lost or abs(x.astype(float).mean() - (1 - 1e-4)) < 3e-5  # five times the standard deviation


def test_only_bfloat16_is_rounded_at_random_and_infinities_stay():
    ones = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="x is float32"):
        kernels.adamw(ones, ones, ones, ones, 1, seed=3)
    x = np.array([np.inf, -np.inf, np.nan, 0], BFLOAT16)
    kernels.adamw(x, 0 * ones, 0 * ones, ones, 1, seed=3)
    np.testing.assert_array_equal(x.astype(float), [np.inf, -np.inf, np.nan, 0])
