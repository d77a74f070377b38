"""Running sums of rows and of long arrays, and selective scans, against NumPy."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.backends import ptxas
from stagekit.kernels import scanning, selective
from stagekit.testing import force_entry
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
        tile = data.draw(st.sampled_from([16, 100, 4096]))
        patched.setattr(scanning, "STREAMED_TILE", tile)
        patched.setattr(scanning, "kept_tile", lambda dtype, length: tile)
        patched.setattr(scanning, "VECTOR", data.draw(st.sampled_from([32, 100])))
        patched.setattr(scanning, "MOST_PROGRAMS", data.draw(st.sampled_from([3, 1024])))
        is_read_twice = data.draw(st.booleans())  # as on the CPU, or not, as on a GPU: wherever it is
        patched.setattr(scanning, "is_on_cpu", lambda array: is_read_twice)
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


def numpy_selective_scan_backward(g, u, delta, A, B, C, D, z):
    """Step by step, back from the last one."""
    g, u, delta, A, B, C, D, z = (
        None if each is None else each.astype(np.float64) for each in (g, u, delta, A, B, C, D, z)
    )
    y = numpy_selective_scan(u, delta, A, B, C, D, None)
    s = None if z is None else 1 / (1 + np.exp(-z))
    z_slope = None if z is None else g * y * s * (1 + z * (1 - s))
    g = g if z is None else g * z * s
    step, x = delta[:, :, None, :], u[:, :, None, :]
    decay = np.exp(step * A[..., None])
    h = np.zeros((*decay.shape[:3], u.shape[2] + 1))
    for t in range(u.shape[2]):
        h[..., t + 1] = decay[..., t] * h[..., t] + step[..., t] * x[..., t] * B[:, None, :, t]
    slope, behind = np.zeros_like(decay), 0
    for t in reversed(range(u.shape[2])):
        slope[..., t] = behind = g[:, :, None, t] * C[:, None, :, t] + behind
        behind = behind * decay[..., t]
    kept = slope * decay * h[..., :-1]
    x_slope = (slope * step * B[:, None]).sum(axis=2) + (0 if D is None else g * D[:, None])
    step_slope = (kept * A[..., None] + slope * x * B[:, None]).sum(axis=2)
    sums = (kept * step).sum(axis=(0, 3)), (slope * step * x).sum(axis=1), (g[:, :, None] * h[..., 1:]).sum(axis=1)
    return x_slope, step_slope, *sums, None if D is None else (g * u).sum(axis=(0, 2)), z_slope


@each_place
@few
@given(data=st.data())
def test_the_gradients_of_a_selective_scan_are_those_of_its_recurrence(place, data):
    batches, channels, states = (data.draw(st.integers(1, 2)) for _ in range(3))
    length, dtype = data.draw(st.sampled_from([1, 33, 100])), data.draw(st.sampled_from(DTYPES))
    random = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    g, u, delta, z = (random.normal(size=(batches, channels, length)).astype(dtype) for _ in range(4))
    delta = np.abs(delta) / np.asarray(4, dtype)
    B, C = (random.normal(size=(batches, states, length)).astype(dtype) for _ in range(2))
    A = -np.abs(random.normal(size=(channels, states))).astype(np.float32)
    D = data.draw(st.sampled_from([None, random.normal(size=channels).astype(np.float32)]))
    z = data.draw(st.sampled_from([None, z]))
    expected = numpy_selective_scan_backward(g, u, delta, A, B, C, D, z)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(selective, "SCANNED_TILE", data.draw(st.sampled_from([32, 1024])))
        found = run(place, kernels.selective_scan_backward, g, u, delta, A, B, C, D, z)

    for actual, exact in zip(found, expected, strict=True):
        assert (actual is None) == (exact is None)
        if exact is not None:
            assert_near(actual, exact, ulps=1.02, absolute=2**-15 * (1 + np.abs(exact).max()))


def test_the_gradients_by_steps_are_differences_of_the_scan():
    random = np.random.default_rng(5)
    shapes = (2, 3, 9), (2, 3, 9), (3, 2), (2, 2, 9), (2, 2, 9), (3,), (2, 3, 9)
    inputs = [np.abs(random.normal(size=shape)) / 2 for shape in shapes]
    g = random.normal(size=(2, 3, 9))
    gradients = numpy_selective_scan_backward(g, *inputs)

    for place, gradient in enumerate(gradients):
        towards = random.normal(size=gradient.shape)
        there, back = (
            [x + e * towards * (n == place) if n == place else x for n, x in enumerate(inputs)] for e in (1e-6, -1e-6)
        )
        difference = (g * (numpy_selective_scan(*there) - numpy_selective_scan(*back))).sum() / 2e-6
        np.testing.assert_allclose((gradient * towards).sum(), difference, rtol=1e-6)


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


@pytest.mark.parametrize("is_read_twice", [True, False])
@pytest.mark.parametrize("tile", [4096, 32768])
def test_a_long_array_is_summed_by_programs_that_look_back_at_each_other(tile, is_read_twice, monkeypatch):
    """Many tiles, and sums that no float32 holds: what is carried is float64, so that two roundings are all that is seen."""
    monkeypatch.setattr(scanning, "STREAMED_TILE", tile)
    monkeypatch.setattr(scanning, "kept_tile", lambda dtype, length: tile)
    programs = 300 if tile == 4096 else 100
    monkeypatch.setattr(scanning, "FEWEST_PROGRAMS", programs)
    monkeypatch.setattr(scanning, "is_on_cpu", lambda array: is_read_twice)
    x = np.random.default_rng(0).integers(0, 100, programs * tile + 5).astype(np.float32)
    expected = x.cumsum(dtype=np.float64)
    assert_near(kernels.cumsum(x), expected, ulps=2.01)

    integers = x.astype(np.int32)
    np.testing.assert_array_equal(kernels.cumsum(integers), integers.cumsum(dtype=np.int64))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_on_a_gpu_many_programs_look_back_at_once(dtype):
    """More tiles than programs at a time, and than one looks at at once; sums that float32 and float16 hold."""
    ones = np.random.default_rng(1).integers(0, 512, 2 * scanning.LONG + 7) == 0
    found = run("gpu", kernels.cumsum, ones.astype(dtype))
    np.testing.assert_array_equal(found, ones.cumsum().astype(np.float32).astype(found.dtype))


def test_a_tile_stays_in_registers():
    """Each thread reads 16 bytes at once and keeps its numbers while it waits, but for a few words that it spills."""
    for dtype in (sk.float32, sk.bfloat16, sk.float64, sk.int64):
        tile, full = scanning.kept_tile(dtype, scanning.LONG), scanning.FULL
        quick = force_entry(kernels.cumsum_kernel(dtype, tile).specialize(), "quick")
        code = ptxas.assemble(quick.ptx)
        accesses = Counter(re.findall(r"\b(?:ld|st)\.global\.v\d\.b\d+", quick.ptx))
        bits = "v4.b32" if dtype.itemsize < 8 else "v2.b64"
        assert accesses == dict.fromkeys(
            (f"ld.global.{bits}", f"st.global.{bits}"), tile // full * dtype.itemsize // 16
        )
        assert code.resources.stack_bytes <= 32, dtype


def test_programs_wait_for_the_number_of_their_tile():
    for factory in (kernels.cumsum_kernel, kernels.cumsum_of_long_tiles_kernel):
        waits = factory(sk.float32, 4096).specialize().trace().waits
        assert all("once" in wait or "said" in wait for wait in waits), waits
        assert len(waits) <= 2
