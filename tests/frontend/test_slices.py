"""Slices of arrays are Python's: bounds of any stage, clamped, negative ones from the end, steps, every axis (R6, R11)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.backends import ptxas

TARGETS = ("interp", "cpu")


def launch(target, kernel, *args, at=(1, 1), **constexprs):
    sk.compile(kernel.specialize(**constexprs), target)[at](*args)


# -- the examples ---------------------------------------------------------------------------------------------------------


@sk.jit
def examples(out, A, V, lo, hi):
    row = A[1][lo:hi]
    total = sk.float32(0)
    for i in range(len(row)):
        total += row[i]
    out[0] = total
    out[1] = len(V[2:100])
    out[2] = V[-lo + 1 :][0]
    out[3] = len(A[1, lo:])
    out[4] = A[:, lo:hi][7, 0]
    out[5] = A[lo:hi, 1][0]


def test_run_time_bounds_are_clamped_and_counted_from_the_end():
    A, V = np.arange(64, dtype=np.float32).reshape(8, 8), np.arange(8, dtype=np.float32)

    for target in TARGETS:
        out = np.zeros(6, np.float32)
        launch(target, examples, out, A, V, 4, 12)
        assert out.tolist() == [54.0, 6.0, V[-3], 4.0, A[7, 4], A[4, 1]]


# -- every slice ----------------------------------------------------------------------------------------------------------


@sk.jit
def sliced(out, sizes, A, given, AXES: sk.constexpr):
    index = [one_axis(given, each) for each in AXES]
    view = A[tuple(index)]
    if view.ndim == 1:
        sizes[0] = len(view)
        for i in range(len(view)):
            out[i] = view[i]
    else:
        sizes[0] = view.shape[0]
        sizes[1] = view.shape[1]
        for i in range(view.shape[0]):
            for j in range(view.shape[1]):
                out[i * view.shape[1] + j] = view[i, j]


def one_axis(given, each):
    if each is Ellipsis or type(each) is int:
        return each
    start, stop, step = [given[-part[0] - 1] if type(part) is tuple else part for part in each]
    return slice(start, stop, step)


BOUNDS = st.none() | st.integers(-12, 12) | st.sampled_from([2**63 - 1, -(2**63), 2**40, -(2**40)])
STEPS = st.sampled_from([None, 1, 1, 2, 3, -1, -2, 100, -(2**62)])


@st.composite
def axes(draw, count):
    """Slices, with bounds at run time here and there, for a view of one or two axes."""
    found, at_run_time = [], []
    for _ in range(count):
        bounds = []
        for bound in (draw(BOUNDS), draw(BOUNDS)):
            if bound is not None and draw(st.booleans()):
                at_run_time.append(bound)
                bound = (-len(at_run_time),)
            bounds.append(bound)
        found.append((*bounds, draw(STEPS)))
    return found, at_run_time


def as_numpy(each, at_run_time):
    if each is Ellipsis or type(each) is int:
        return each
    return slice(*(at_run_time[-part[0] - 1] if type(part) is tuple else part for part in each))


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_slice_is_numpys(data):
    ndim = data.draw(st.integers(1, 3))
    found, at_run_time = data.draw(axes(min(ndim, 2)))
    if ndim == 3:
        found.insert(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1)))
    if data.draw(st.booleans()):
        found.insert(data.draw(st.sampled_from([0, len(found)])), Ellipsis)
    shape = tuple(data.draw(st.integers(2, 7)) for _ in range(ndim))
    A = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    if data.draw(st.booleans()):
        A = A[::-1]
    wanted = A[tuple(as_numpy(each, at_run_time) for each in found)]
    fixed = data.draw(st.booleans())
    kind = sk.Tensor(shape if fixed else (None,) * ndim, sk.int32, strides=None)

    for target in TARGETS:
        out, sizes = np.full(400, -1, np.int32), np.zeros(2, np.int64)
        given_bounds = np.array([*at_run_time, 0], np.int64)
        made = (
            sliced.specialize(AXES=tuple(found), A=kind)
            if A.flags.c_contiguous
            else sliced.specialize(AXES=tuple(found))
        )
        sk.compile(made, target)[1, 1](out, sizes, A, given_bounds)
        assert sizes[: wanted.ndim].tolist() == list(wanted.shape)
        assert out[: wanted.size].tolist() == wanted.ravel().tolist()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_bounds_of_every_integer_dtype(dtype):
    @sk.jit
    def kernel(out, A, lo, hi):
        out[0] = len(A[lo:hi])
        out[1] = len(A[hi:lo:-1])

    largest = np.iinfo(dtype).max
    for lo, hi in ((1, 5), (0, 100), (3, largest), (largest, largest)):
        for target in TARGETS:
            out = np.zeros(2, np.int64)
            launch(target, kernel, out, np.zeros(8, np.int8), dtype(lo), dtype(hi))
            wanted = np.zeros(8)
            assert out.tolist() == [len(wanted[int(lo) : int(hi)]), len(wanted[int(hi) : int(lo) : -1])]


@sk.jit
def written(A, lo, hi):
    part = A[lo:hi, ::2]
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            part[i, j] = -1


@given(st.integers(-9, 9), st.integers(-9, 9))
@settings(max_examples=25, deadline=None)
def test_stores_through_a_slice_hit_its_elements_alone(lo, hi):
    wanted = np.arange(30, dtype=np.int32).reshape(6, 5)
    wanted[lo:hi, ::2] = -1

    for target in TARGETS:
        A = np.arange(30, dtype=np.int32).reshape(6, 5)
        launch(target, written, A, lo, hi)
        np.testing.assert_array_equal(A, wanted)


@pytest.mark.parametrize(("lo", "index"), [(4, 4), (5, 3), (0, -1)])
def test_an_access_past_the_end_of_a_slice_is_found(lo, index):
    @sk.jit
    def kernel(out, A, lo, index):
        out[0] = A[1][lo:12][index]

    with pytest.raises(sk.StagekitError, match=f"has {8 - lo} elements") as caught:
        sk.sanitize(kernel)[1, 1](np.zeros(1, np.int32), np.zeros((8, 8), np.int32), lo, index)

    assert caught.value.id == "OUT_OF_BOUNDS"


# -- what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1.5, "run"])
def test_a_step_that_cannot_be_is_refused(step):
    @sk.jit
    def kernel(A, n, STEP: sk.constexpr):
        A[:: n if STEP == "run" else STEP][0] = 1

    with pytest.raises(sk.StagingError) as caught:
        kernel[1, 1](np.zeros(4, np.float32), 1, step)

    assert caught.value.id == "BAD_INDEX"


# -- clamps that are not needed ---------------------------------------------------------------------------------------------


@sk.jit
def rows(out, A, W: sk.constexpr):
    i = sk.cuda.block_idx("x") * 8 + sk.cuda.thread_idx("x")
    for k in range(4):
        part = A[i, k * W : k * W + W]
        out[i] += part[0] + len(A[: A.shape[0]])


def test_bounds_that_are_not_negative_are_not_counted_from_the_end():
    kinds = {"out": sk.Tensor((None,), sk.int64), "A": sk.Tensor((None, None), sk.int64)}
    text = rows.specialize(W=4, **kinds).ir

    assert "select" not in text
    assert "compare" not in text
    assert text.count("minimum") == 1  # the stop, with the size of the axis


def test_a_bound_inside_an_axis_of_known_size_is_not_clamped():
    @sk.jit
    def kernel(out):
        buffer = sk.alloc_shared((32, 8), sk.int32)
        row = buffer[sk.lane_id() : 32]
        out[0] = row.shape[0] + len(buffer[: sk.lane_id()])

    text = kernel.specialize(out=sk.Tensor((None,), sk.int32)).ir

    assert "select" not in text
    assert "minimum" not in text


# -- windows --------------------------------------------------------------------------------------------------------------


@sk.jit
def windows(out, A, i, j):
    part = sk.window(A, (i, j), (2, 3))
    sk.static_assert(part.shape == (2, 3))
    for k in range(2):
        for m in sk.static_range(3):
            out[k * 3 + m] = part[k, m]
    out[6] = sk.window(A, i, 1)[0, j]
    out[7] = sk.window(A[i], j, 2)[1]


def test_a_window_is_a_view_from_a_start_known_at_run_time():
    A = np.arange(48, dtype=np.int32).reshape(6, 8)

    for target in TARGETS:
        for i, j in ((0, 0), (4, 5), (1, 2)):
            out = np.zeros(8, np.int32)
            launch(target, windows, out, A, i, j)
            assert out.tolist() == [*A[i : i + 2, j : j + 3].ravel(), A[i, j], A[i, j + 1]]


def test_a_window_costs_nothing_over_pointer_arithmetic():
    kinds = {"out": sk.Tensor((None,), sk.int32), "A": sk.Tensor((6, 8), sk.int32), "i": sk.int64, "j": sk.int64}
    text = windows.specialize(**kinds).ir

    assert not any(word in text for word in ("select", "minimum", "maximum", "compare"))


@pytest.mark.parametrize("where", [(5, 0), (0, 6), (-1, 0)])
def test_an_access_through_a_window_that_leaves_its_array_is_found(where):
    @sk.jit
    def kernel(out, A, i, j):
        out[0] = sk.window(A, (i, j), (2, 3))[0, 0]

    with pytest.raises(sk.StagekitError) as caught:
        sk.sanitize(kernel)[1, 1](np.zeros(1, np.int32), np.zeros((6, 8), np.int32), *where)

    assert caught.value.id == "OUT_OF_BOUNDS"


@pytest.mark.parametrize(
    "make",
    [
        lambda A, n: sk.window(A, 0, n),
        lambda A, n: sk.window(A, (0, 0, 0), (1, 1, 1)),
        lambda A, n: sk.window(A, (0, 0), 2),
        lambda A, n: sk.window(A, 0, 0),
        lambda A, n: sk.window(A, 5, 2),
        lambda A, n: sk.window(n, 0, 1),
    ],
)
def test_a_window_that_cannot_be_is_refused(make):
    @sk.jit
    def kernel(A: sk.Tensor((6, 8), sk.int32), n: sk.int32, MAKE: sk.constexpr):
        MAKE(A, n)

    with pytest.raises(sk.StagingError) as caught:
        kernel[1, 1](np.zeros((6, 8), np.int32), 1, make)

    assert caught.value.id in ("BAD_CALL", "BAD_INDEX", "RUN_TIME_VALUE")


def test_ptx_of_slices_and_windows_is_assembled():
    kinds = {"out": sk.Tensor((None,), sk.float32), "A": sk.Tensor((None, None), sk.float32)}
    made = examples.specialize(**kinds, V=sk.Tensor((8,), sk.float32), lo=sk.int32, hi=sk.int64)
    narrow = {"out": sk.Tensor((None,), sk.int32), "A": sk.Tensor((None, None), sk.int32), "i": sk.int32, "j": sk.int64}

    for text in (made.ptx, windows.specialize(**narrow).ptx):
        ptxas.assemble(text)


@sk.jit
def of_doubled(out, A):
    first = sk.cuda.thread_idx("x")
    for _ in sk.static_range(40):
        first = first + first
    out[0] = len(A[first:])


def test_a_bound_that_is_used_twice_in_each_step_of_its_computation_is_followed_once():
    out = np.zeros(1, np.int64)

    for target in TARGETS:
        launch(target, of_doubled, out, np.zeros(8, np.float32))

        assert out[0] == 8


@sk.jit
def of_a_far_start(out, A, stop):
    out[0] = len(A[2**63 - 1 : stop])


@pytest.mark.parametrize("shape", [(2, 2), (None, 2)])
def test_a_start_whose_address_no_dtype_holds_leaves_nothing(shape):
    out = np.ones(1, np.int64)

    for target in TARGETS:
        launch(target, of_a_far_start, out, np.zeros((2, 2), np.float32), 5, A=sk.Tensor(shape, sk.float32))

        assert out[0] == 0


@sk.jit
def of_far_bounds(out, A):
    for n, view in enumerate((A[-(2**64) :], A[: 2**63], A[2**70 :], A[2**80 :: -1], A[: -(2**65) : -3])):
        out[n] = len(view)


@pytest.mark.parametrize("shape", [(8,), (None,)])
def test_a_known_bound_that_no_dtype_holds_is_clamped(shape):
    for target in TARGETS:
        out = np.ones(5, np.int64)
        launch(target, of_far_bounds, out, np.zeros(8, np.float32), A=sk.Tensor(shape, sk.float32))

        assert out.tolist() == [8, 8, 0, 8, 3]
