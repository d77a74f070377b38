"""Elementwise kernels of any function and number of inputs: flat and by rows, in place, with numbers, each dtype."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import host
from stagekit.kernels.host import settled
from tests.kernels.rows import DTYPES, EPS, assert_near, each_place, few, lengths, rows, run


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


def scaled(factor, *, by=1):
    return lambda v, exponent=by: v * factor**exponent


def test_a_line_with_a_lambda_makes_one_kernel_for_equal_numbers():
    x = np.arange(8, dtype=np.float32)
    made = [settled(scaled(factor)) for factor in (2, 2.0, True, 2, 0.0, -0.0)]

    assert [made.index(each) for each in made] == [0, 1, 2, 0, 4, 5]
    assert settled(scaled(2, by=3)) is settled(scaled(2, by=3)) is not made[0]
    assert settled(relu) is settled(relu)
    assert [kernels.elementwise(scaled(factor), x)[1] for factor in (2, 3.0, 2)] == [2, 3, 2]


def scaled_by_name():
    def function(v, *, by=2.0):
        return v * by

    return function


def test_defaults_that_one_function_is_given_are_not_those_of_another_of_the_same_line():
    x = np.arange(8, dtype=np.float32)
    first, second = scaled_by_name(), scaled_by_name()
    found = [kernels.elementwise(first, x)[1]]
    first.__kwdefaults__["by"] = 5.0
    found += [kernels.elementwise(each, x)[1] for each in (first, second)]
    assert found == [2, 5, 2]


def test_threads_may_settle_functions_while_others_are_forgotten(monkeypatch):
    monkeypatch.setattr(host, "_KEPT", 1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def settle(start):
        return [settled(scaled(start + i))(1) for i in range(2_000)] == [start + i for i in range(2_000)]

    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(settle, range(0, 8_000, 2_000)))
    finally:
        sys.setswitchinterval(interval)


def test_what_a_function_holds_may_change_between_calls():
    x, steps, held = np.zeros(4, np.float32), [1.0], 10.0
    functions = [lambda v: v + steps[0], lambda v: v + held]

    before = [kernels.elementwise(each, x)[0] for each in functions]
    steps[0], held = 2.0, 20.0

    assert before == [1, 10]
    assert [kernels.elementwise(each, x)[0] for each in functions] == [2, 20]
    assert settled(functions[0]) is functions[0]


def test_a_packed_array_of_several_axes_is_needed_where_rows_are_apart():
    x = np.zeros((2, 3, 8), np.float32)

    with pytest.raises(ValueError, match=r"shape \(2, 3, 4\) has gaps"):
        kernels.elementwise(relu, x[:, :, :4])


@each_place
@few
@given(data=st.data())
def test_swiglu_and_its_gradients(place, data):
    columns, dtype, count = data.draw(lengths), data.draw(st.sampled_from(DTYPES)), data.draw(st.integers(1, 3))
    gate, up, gradient = (data.draw(rows(columns, dtype, place, count)) for _ in range(3))
    x, y, g = (each.astype(np.float64) for each in (gate, up, gradient))
    with np.errstate(over="ignore"):
        s = 1 / (1 + np.exp(-x))

    assert_near(run(place, kernels.swiglu, gate, up), x * s * y, ulps=1.02 + 8 * (dtype == np.float32))
    run(place, lambda *arrays: kernels.swiglu_backward(*arrays, out=arrays[1:]), gradient, gate, up)

    size = np.abs(g * s) * (1 + np.abs(x)) ** 2 * (1 + np.abs(y)) * 2**-20
    assert_near(gate, g * y * s * (1 + x * (1 - s)), ulps=1.02, absolute=size)
    assert_near(up, g * x * s, ulps=1.02, absolute=size)


@each_place
@few
@given(data=st.data())
def test_pairs_of_a_head_are_turned_and_turned_back(place, data):
    tokens, heads = (data.draw(st.integers(1, most)) for most in (4, 5))
    half = data.draw(st.sampled_from([1, 3, 16, 33, 40]))  # each is a kernel of its own
    dtype, interleaved = data.draw(st.sampled_from(DTYPES)), data.draw(st.booleans())
    random = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    x = random.normal(size=(tokens, heads, 2 * half)).astype(dtype)
    angles = random.normal(size=(tokens, half))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
    a, b = (x[..., each].astype(np.float64) for each in pairs)
    expected = np.empty(x.shape)
    expected[..., pairs[0]] = a * cos[:, None] - b * sin[:, None]
    expected[..., pairs[1]] = b * cos[:, None] + a * sin[:, None]
    before = x.astype(np.float64)

    run(place, kernels.rope, x, cos, sin, out=x, interleaved=interleaved)
    assert_near(x, expected, ulps=1.02, absolute=2**-20)

    run(place, kernels.rope, x, cos, sin, out=x, interleaved=interleaved, backward=True)
    assert_near(x, before, ulps=0, absolute=10 * EPS[x.dtype])


@each_place
def test_what_is_dropped_follows_from_the_seed(place):
    x = np.ones((16, 1000), np.float16)

    first = run(place, kernels.dropout, x, 0.25, 7)
    assert set(first.ravel().tolist()) == {0.0, float(np.float16(1 / 0.75))}
    assert abs((first == 0).mean() - 0.25) < 0.01
    np.testing.assert_array_equal(run(place, kernels.dropout, 3 * x, 0.25, 7) == 0, first == 0)
    assert (run(place, kernels.dropout, x, 0.25, 8) != first).any()
    np.testing.assert_array_equal(run(place, kernels.dropout, x, 0.0, 8), x)


def test_nobody_waits_in_what_is_built_of_elements():
    for kernel in (
        kernels.swiglu_backward_kernel(sk.float32, 1024),
        kernels.dropout_kernel(sk.float32, 2, 1024),
        kernels.rope_kernel(sk.float32, sk.float32, 64, False, 8),
        kernels.adamw_kernel(sk.bfloat16, sk.bfloat16, sk.float32, 1, True, 1024),
    ):
        assert kernel.specialize().trace().waits == ()
