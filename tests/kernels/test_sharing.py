"""An array to write that shares memory with one that is read: refused, unless each program writes what it alone has read."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels.sharing import Footprint, checked_out, footprint_of, share_memory

REFUSED = "shares memory"


def views_of(shape):
    """Slices of a matrix of this shape, some transposed, some of a single row or column."""
    axis = [st.builds(slice, st.integers(0, n), st.integers(0, n), st.sampled_from([1, 2, 3])) for n in shape]
    turns = st.tuples(*[st.sampled_from([1, -1])] * 2)
    return st.tuples(*axis, turns, st.booleans())


def viewed(base, view):
    rows, columns, (down, right), is_turned = view
    found = base[rows, columns][::down, ::right]
    return found.T if is_turned else found


@given(views_of((7, 12)), views_of((7, 12)))
@settings(max_examples=300)
def test_no_shared_memory_is_overlooked(one, other):
    base = np.zeros((7, 12), np.int16)
    a, b = viewed(base, one), viewed(base, other)

    if np.shares_memory(a, b):
        assert share_memory(footprint_of(a), footprint_of(b))


def test_parts_of_one_array_are_apart():
    base = np.zeros((4, 3, 8, 6), np.float32)
    halves = [(base[:2], base[2:]), (base[..., :3], base[..., 3:]), (base[..., ::2], base[..., 1::2])]
    fused = [(base[:, i], base[:, j]) for i in range(3) for j in range(3) if i != j]

    assert [] == [i for i, (a, b) in enumerate([*halves, *fused]) if share_memory(footprint_of(a), footprint_of(b))]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-12, 12)), min_size=1, max_size=3))
@settings(max_examples=300)
def test_an_out_with_several_elements_at_one_place_is_refused(axes):
    shape, steps = zip(*axes)
    memory = np.zeros(256, np.int8)
    out = np.lib.stride_tricks.as_strided(memory[128:], shape, steps)
    places = np.ravel(sum(np.arange(n).reshape(-1, *[1] * i) * s for i, (n, s) in enumerate(axes[::-1])))
    is_folded = len(set(places.tolist())) < places.size

    if not is_folded:
        assert checked_out(out) is out
    elif len(axes) < 3:
        with pytest.raises(ValueError, match="several elements at one place"):
            checked_out(out)


@pytest.mark.parametrize("steps", [(0, 4), (8, 4)])
def test_a_product_into_an_out_that_overlaps_itself_is_refused_after_one_that_does_not(steps):
    a, memory = np.ones((8, 8), np.float32), np.zeros(256, np.float32)
    kernels.matmul(a, a, out=np.lib.stride_tricks.as_strided(memory, (8, 8), (40, 4)))

    with pytest.raises(ValueError, match="several elements"):
        kernels.matmul(a, a, out=np.lib.stride_tricks.as_strided(memory, (8, 8), steps))


X = np.arange(96, dtype=np.float32).reshape(8, 12) / 96
ONES = np.ones(12, np.float32)

IN_PLACE = {
    "softmax": lambda x, out: kernels.softmax(x, out=out),
    "rmsnorm": lambda x, out: kernels.rmsnorm(x, ONES, out=out),
    "layernorm": lambda x, out: kernels.layernorm(x, ONES, out=out),
    "elementwise": lambda x, out: kernels.elementwise(lambda x: x + 1, x, out=out),
    "dropout": lambda x, out: kernels.dropout(x, 0.5, 7, out=out),
    "cumsum": lambda x, out: kernels.cumsum(x, axis=-1, out=out),
}
APART = {
    "transpose": lambda x, out: kernels.transpose(x, out=out),
    "matmul": lambda x, out: kernels.matmul(x, x.T, out=out),
    "embedding": lambda x, out: kernels.embedding(x, np.arange(len(x)), out=out),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_view_of_all_elements_is_written_in_place(name):
    x = X[:, ::1].copy()
    if name == "dropout":  # which wants no gaps
        x = np.ascontiguousarray(x)
    expected = IN_PLACE[name](x.copy(), None)

    found = IN_PLACE[name](x, x[:])

    np.testing.assert_array_equal(expected, found)


@pytest.mark.parametrize("name", IN_PLACE)
def test_rows_of_others_are_not_written(name):
    x = X.copy()

    with pytest.raises(ValueError, match=REFUSED):
        IN_PLACE[name](x[:-1], x[1:])


@pytest.mark.parametrize("name", APART)
def test_what_other_blocks_read_is_not_written(name):
    x = np.zeros((12, 12), np.float32)

    for out in (x, x[:], x.T, x[::-1]):
        with pytest.raises(ValueError, match=REFUSED):
            APART[name](x, out)


def test_a_product_goes_to_a_part_beside_its_operands():
    both = np.concatenate([X[:, :8], np.zeros((8, 8), np.float32)], axis=1)
    left, right = both[:, :8], both[:, 8:]
    expected = left @ left

    kernels.matmul(left, left, out=right)

    np.testing.assert_allclose(right, expected, rtol=1e-5)


@pytest.mark.parametrize("strides", [None, (16, 2)])
def test_the_interface_of_an_array_says_where_it_lies(strides):
    interface = {"data": (4096, False), "shape": (3, 8), "typestr": "<f2", "strides": strides, "version": 3}
    array = SimpleNamespace(__cuda_array_interface__=interface)

    assert footprint_of(array) == Footprint(4096, (3, 8), (16, 2), 2)


@pytest.mark.gpu
def test_views_on_a_gpu_are_told_apart():
    torch = pytest.importorskip("torch")
    x = torch.ones((64, 64), device="cuda")
    array = sk.cuda.to_device(np.ones((64, 64), np.float32))

    for each, view in ((x, x[:]), (x, x.T), (array, array)):
        with pytest.raises(ValueError, match=REFUSED):
            kernels.transpose(each, out=view)
    kernels.transpose(x[:32, :32], out=x[:32, 32:])
