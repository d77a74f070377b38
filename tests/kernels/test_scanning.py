"""Running sums of rows and of long arrays, and selective scans, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import scanning
from tests.kernels.rows import DTYPES, assert_near, each_place, few, lengths, rows, run, tiles

NUMBERS = [*DTYPES, *map(np.dtype, (np.float64, np.int8, np.int32, np.int64))]


@each_place
@few
@given(data=st.data())
def test_running_sums_of_rows_and_of_all(place, data):
    x = data.draw(rows(data.draw(lengths), data.draw(st.sampled_from(NUMBERS)), place))
    axis = data.draw(st.sampled_from([-1, None]))
    x = x[0].copy() if axis is None else x
    exact = x.astype(np.int64 if x.dtype.kind == "i" else np.float64)
    expected = exact.cumsum(axis=-1)
    out = x if (data.draw(st.booleans()) and x.dtype.kind != "i") or x.dtype == np.int64 else None

    with tiles(data), pytest.MonkeyPatch.context() as patched:
        patched.setattr(scanning, "STREAMED_TILE", data.draw(st.sampled_from([16, 100, 4096])))
        patched.setattr(scanning, "MOST_PROGRAMS", data.draw(st.sampled_from([3, 1024])))
        found = run(place, kernels.cumsum, x, axis=axis, out=out, fixed_order=data.draw(st.booleans()))

    if x.dtype.kind == "i":
        np.testing.assert_array_equal(found, expected)
    elif x.dtype == np.float64:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(exact).sum())
    else:
        assert_near(found, expected, ulps=1.01, absolute=2**-19 * np.abs(exact).cumsum(axis=-1))


def numpy_selective_scan(u, delta, A, B, C, D, z):
    u, delta, A, B, C, D, z = (None if each is None else each.astype(np.float64) for each in (u, delta, A, B, C, D, z))
    h, out = 0, np.zeros_like(u)
    for t in range(u.shape[2]):
        step = delta[:, :, t, None]
        h = np.exp(step * A) * h + step * u[:, :, t, None] * B[:, None, :, t]
        out[:, :, t] = (h * C[:, None, :, t]).sum(axis=2)
    out += 0 if D is None else D[:, None] * u
    return out if z is None else out * z / (1 + np.exp(-z))


@each_place
@few
@given(data=st.data())
def test_a_selective_scan_is_its_recurrence(place, data):
    batches, channels, states = (data.draw(st.integers(1, 3)) for _ in range(3))
    length, dtype = data.draw(st.sampled_from([1, 31, 33, 100, 1025])), data.draw(st.sampled_from(DTYPES))
    random = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    u, delta, z = (random.normal(size=(batches, channels, length)).astype(dtype) for _ in range(3))
    delta = np.abs(delta) / np.asarray(4, dtype)
    B, C = (random.normal(size=(batches, states, length)).astype(dtype) for _ in range(2))
    A = -np.abs(random.normal(size=(channels, states))).astype(np.float32)
    D = data.draw(st.sampled_from([None, np.ones(channels, np.float32)]))
    z = data.draw(st.sampled_from([None, z]))
    expected = numpy_selective_scan(u, delta, A, B, C, D, z)
    out = data.draw(st.sampled_from([None, u, delta]))

    found = run(place, kernels.selective_scan, u, delta, A, B, C, D, z, out=out)

    assert_near(found, expected, ulps=1.02, absolute=2**-17 * (1 + np.abs(expected).max()))


def test_threads_wait_in_scans_and_reductions_alone():
    Vector, Sequences = (
        sk.Tensor((None,), sk.float32),
        sk.Tensor((None, None, None), sk.float32, strides=(None, None, 1)),
    )
    for kernel in (
        kernels.cumsum_of_stretches_kernel(sk.float32, 4096).specialize(),
        kernels.cumsum_rows_kernel(sk.float32, 4096).specialize(),
        kernels.stretch_sums_kernel(sk.float32, 4096).specialize(),
        kernels.selective_scan_kernel(sk.float32, 2, 1024).specialize(D=Vector, z=Sequences),
    ):
        assert kernel.trace().waits == ()


def test_a_long_array_is_summed_by_programs_that_look_back_at_each_other():
    """Many tiles, and sums that no float32 holds: what is carried is float64, so that two roundings are all that is seen."""
    x = np.random.default_rng(0).integers(0, 100, 3_000_000).astype(np.float32)
    expected = x.cumsum(dtype=np.float64)
    assert_near(kernels.cumsum(x), expected, ulps=2.01)

    integers = x.astype(np.int32)
    np.testing.assert_array_equal(kernels.cumsum(integers), integers.cumsum(dtype=np.int64))


def test_programs_wait_for_what_they_look_back_at():
    waits = kernels.cumsum_kernel(sk.float32, 4096).specialize().trace().waits

    assert len(waits) == 3
    assert all("once" in wait or "state" in wait or "acquires" in wait for wait in waits)
