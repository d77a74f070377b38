"""Elementwise kernels of any function and number of inputs: flat and by rows, in place, with numbers, each dtype."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from tests.kernels.rows import DTYPES, EPS, each_place, few, lengths, rows, run


def weighted(*tiles):
    return sum(k * tile for k, tile in enumerate(tiles, 1))


def relu(x):
    return sk.maximum(x, 0)


@each_place
@few
@given(data=st.data())
def test_any_number_of_arrays_and_numbers(place, data):
    columns, count = data.draw(lengths), data.draw(st.integers(1, 4))
    out = data.draw(rows(columns, data.draw(st.sampled_from(DTYPES)), place, count))
    inputs = [out]
    for kind in data.draw(st.lists(st.sampled_from(["rows", "row", "number"]), max_size=7)):
        dtype = data.draw(st.sampled_from(DTYPES))
        if kind == "number":
            inputs.append(data.draw(st.sampled_from([0.5, -2.0])))
        else:
            array = data.draw(rows(columns, dtype, place, count if kind == "rows" else 1))
            inputs.append(array if kind == "rows" else array[0].copy())
    exact = [np.float64(x) if isinstance(x, float) else x.astype(np.float64) for x in inputs]
    expected, size = weighted(*exact), weighted(*map(np.abs, exact))

    run(place, lambda *given: kernels.elementwise(weighted, *given, out=given[0]), *inputs)

    error = np.abs(out.astype(np.float64) - expected)
    assert (error <= np.abs(expected) * EPS[out.dtype] + size * 2.0**-20 + 2.0**-24).all()


@each_place
def test_arrays_of_any_number_of_axes_and_integers(place):
    for shape in ((7,), (2, 3, 5), (1, 2, 3, 400)):
        x = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
        np.testing.assert_array_equal(run(place, lambda a: kernels.elementwise(weighted, a, a), x), 3 * x)


@pytest.mark.parametrize("BY_ROWS", [False, True])
def test_nobody_waits_in_place_or_not(BY_ROWS):
    kind = (sk.float32, 2)
    kernel = kernels.elementwise_kernel(weighted, (kind, kind), kind, BY_ROWS, 256)
    x, y = np.ones((3, 40), np.float32), np.ones((3, 40), np.float32)
    x, y = (x[:, :30], y[:, :30]) if BY_ROWS else (x, y)

    kernel[(3, 1) if BY_ROWS else 1](x, x, y)

    specialised = kernel.specialize()
    assert x[2, 7] == 3
    assert specialised.trace().waits == ()
    assert "overlap" not in specialised.explain()
    assert "bar" not in specialised.ptx


def test_a_packed_array_of_several_axes_is_needed_where_rows_are_apart():
    x = np.zeros((2, 3, 8), np.float32)

    with pytest.raises(ValueError, match=r"shape \(2, 3, 4\) has gaps"):
        kernels.elementwise(relu, x[:, :, :4])
