"""Numbers of 8 bits with scales: as near as the dtype allows, and back; groups that do not divide a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from tests.kernels.rows import DTYPES, each_place, few, lengths, rows, run

STEPS = {
    sk.int8: 0.5,
    sk.float8_e4m3fn: 448 / 2**4,
    sk.float8_e5m2: 57344 / 2**3,
}  # the most that a rounding moves, in scales


@each_place
@few
@given(data=st.data())
def test_a_number_comes_back_within_a_rounding(place, data):
    x = data.draw(rows(data.draw(lengths), data.draw(st.sampled_from(DTYPES)), place))
    dtype, group = data.draw(st.sampled_from(list(STEPS))), data.draw(st.sampled_from([1, 32, 100, 128, 1500]))
    x[0, : min(group, x.shape[1])] *= data.draw(st.sampled_from([0, 1]))
    exact = x.astype(np.float64)

    q, scales = run(place, kernels.quantize, x, dtype, group=group)
    found = run(place, kernels.dequantize, q, scales, group=group)

    assert q.dtype == dtype.numpy
    own = np.repeat(scales, group, axis=1)[:, : x.shape[1]]
    starts = range(0, x.shape[1], group)
    largest = np.stack([np.abs(exact[:, s : s + group]).max(axis=1) for s in starts], axis=1)
    np.testing.assert_allclose(scales, largest / kernels.LARGEST[dtype], rtol=1e-6)
    relative = 0 if dtype is sk.int8 else STEPS[dtype] / kernels.LARGEST[dtype]
    bound = np.abs(exact) * relative + own * (STEPS[dtype] if dtype is sk.int8 else 2.0**-9)
    assert (np.abs(found - exact) <= bound * (1 + 1e-5) + 1e-38).all()


def test_the_last_axis_is_grouped_and_other_dtypes_are_refused():
    q, scales = kernels.quantize(np.ones((2, 3, 200), np.float32))
    assert (q.shape, scales.shape) == ((2, 3, 200), (2, 3, 2))
    assert (q == 127).all()
    with pytest.raises(ValueError, match="int8, float8_e4m3fn, float8_e5m2"):
        kernels.quantize(np.ones((2, 200), np.float32), sk.int32)


def test_nobody_waits_but_for_the_largest_of_a_group():
    assert kernels.quantize_kernel(sk.float32, sk.int8, 128, 8).specialize().trace().waits == ()
    assert kernels.dequantize_kernel(sk.int8, sk.float32, 128, 8).specialize().trace().waits == ()
