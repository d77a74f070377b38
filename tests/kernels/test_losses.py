"""Cross-entropy and its gradient: rows of any length and distance, each dtype, ignored rows, in place, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from tests.kernels.rows import DTYPES, assert_near, each_place, few, lengths, rows, run, tiles
from tests.kernels.test_normalizing import ROWS


@each_place
@few
@given(data=st.data())
def test_losses_and_gradients_are_those_of_numpy(place, data):
    logits = data.draw(rows(data.draw(lengths), data.draw(st.sampled_from(DTYPES)), place))
    count, columns = logits.shape
    targets = np.array(data.draw(st.lists(st.integers(0, columns - 1), min_size=count, max_size=count)))
    targets = targets.astype(data.draw(st.sampled_from([np.int32, np.int64])))
    targets[data.draw(st.integers(0, count - 1))] = data.draw(st.sampled_from([-100, 0]))
    gradient = data.draw(st.sampled_from([None, logits]) | rows(columns, logits.dtype, place, count))
    exact = logits.astype(np.float64)
    counts, chosen = targets != -100, (np.arange(count), np.maximum(targets, 0))
    e = np.exp(exact - exact.max(axis=1, keepdims=True))
    expected = np.where(counts, np.log(e.sum(axis=1)) + exact.max(axis=1) - exact[chosen], 0)
    slope = e / e.sum(axis=1, keepdims=True)
    slope[chosen] -= 1
    slope *= 0.5 * counts[:, None]

    with tiles(data):
        losses = run(place, kernels.cross_entropy, logits, targets, gradient=gradient, scale=0.5)

    assert_near(losses, expected, ulps=4, absolute=2**-20 * (1 + np.abs(exact).max(axis=1)))
    if gradient is not None:
        assert_near(gradient, slope, ulps=1.02, absolute=2**-18)


@pytest.mark.parametrize("ONE_TILE", [True, False])
def test_threads_wait_in_reductions_and_before_the_gradient_of_the_target(ONE_TILE):
    kernel = kernels.cross_entropy_kernel(sk.float32, sk.int64, 1024, ONE_TILE).specialize(gradient=ROWS)

    (why,) = kernel.trace().waits
    assert "writes `gradient`, which other threads wrote" in why
    assert kernel.ptx.count("bar.sync") == 3  # two of them in reductions
