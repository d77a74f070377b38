"""Products with weights of 4 and 8 bits are those with what the numbers stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import kernels
from stagekit.kernels import few_rows, weights
from tests.kernels.rows import DTYPES, EPS, each_place, run

SIZES = st.integers(1, 40)
WEIGHTS = st.sampled_from(["int8", "float8_e4m3fn", "float8_e5m2", "4 bits", "4 bits with zeros"])
GROUPS = st.sampled_from([16, 48, 64])


def numbers_of(packed: np.ndarray) -> np.ndarray:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1).astype(np.float64)


def scaled(numbers: np.ndarray, scales: np.ndarray, zeros: np.ndarray | float = 0.0) -> np.ndarray:
    grouped = numbers.astype(np.float64).reshape(*scales.shape, -1)
    return ((grouped - np.asarray(zeros, np.float64)[..., None]) * scales[..., None]).reshape(numbers.shape)


@each_place
@settings(max_examples=3, deadline=None)
@given(st.sampled_from(DTYPES), WEIGHTS, SIZES, SIZES, GROUPS, st.integers(1, 3))
def test_products_are_those_of_what_the_numbers_stand_for(place, dtype, weight, m, n, group, groups):
    check_product(place, dtype, weight, m, n, group, groups)


@pytest.mark.parametrize("place", ["cpu", "sanitizer"])
@settings(max_examples=3, deadline=None)
@given(
    st.sampled_from(DTYPES[1:]),
    WEIGHTS,
    st.integers(0, 16),
    SIZES,
    st.sampled_from([32, 64, 96, 128]),
    st.integers(1, 3),
)
def test_products_of_few_rows_as_on_a_gpu(place, dtype, weight, m, n, group, groups):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(few_rows, "is_on_cpu", lambda array: False)
        patched.setattr(weights, "is_on_cpu", None)  # whoever asks for blocks fails
        check_product(place, dtype, weight, m, n, group, groups)


def check_product(place, dtype, weight, m, n, group, groups):
    rng = np.random.default_rng(m)
    k = group * groups
    x = rng.normal(size=(m, k)).astype(dtype)
    scales = rng.uniform(0.5, 2, (n, groups)).astype(np.float32)
    zeros = rng.integers(0, 16, (n, groups)).astype(np.uint8) if weight.endswith("zeros") else None
    if weight.startswith("4"):
        given_weight = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
        stands_for = scaled(numbers_of(given_weight), scales, 8.0 if zeros is None else zeros)
    else:
        given_weight = rng.normal(size=(n, k)) * 10
        given_weight = given_weight.astype(getattr(sk, weight).numpy)
        stands_for = scaled(given_weight.astype(np.float64), scales)

    found = run(place, kernels.quantized_linear, x, given_weight, scales, zeros)

    exact = x.astype(np.float64) @ stands_for.T
    size = np.abs(x.astype(np.float64)) @ np.abs(stands_for).T  # by which the rounding of weights is measured
    assert found.dtype == dtype
    assert (np.abs(found.astype(np.float64) - exact) <= 4 * EPS[dtype] * size + 1e-5 * size).all()


@each_place
@settings(max_examples=5, deadline=None)
@given(st.sampled_from(DTYPES), SIZES, st.integers(1, 3), st.sampled_from([2, 16, 48]), st.sampled_from([0, 3, -3]))
def test_numbers_of_4_bits_are_off_by_a_scale_at_most(place, dtype, rows, groups, group, shift):
    x = (np.random.default_rng(rows).normal(size=(rows, groups * group)) + shift).astype(dtype)

    packed, scales, zeros = run(place, kernels.quantize_int4, x, group=group)

    off = np.abs(scaled(numbers_of(packed), scales, zeros) - x.astype(np.float64)).reshape(*scales.shape, group)
    assert (off <= scales[..., None] * 1.001).all()


@pytest.mark.parametrize(("shapes", "problem"), [
    (((2, 32), (3, 16), (3, 1)), "the weight has 16"),
    (((2, 32), (3, 32), (3, 3)), "groups of a multiple of 16 of 32 inputs"),
    (((2, 32), (3, 32), (4, 1)), r"give \(3, groups\)"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(shapes, problem):
    x, weight, scales = (np.zeros(s, d) for s, d in zip(shapes, (np.float32, np.int8, np.float32), strict=True))
    with pytest.raises(ValueError, match=problem):
        kernels.quantized_linear(x, weight, scales)


F, B = np.float32, np.uint8
REFUSED = {
    "an array of one axis or more is needed": [
        lambda: kernels.quantized_linear(np.zeros((2, 16), F), np.zeros((3, 16), np.int8), [1.0]),
        lambda: kernels.quantized_linear(np.zeros((2, 16), F), np.zeros((3, 8), B), np.ones((3, 1), F), [8]),
        lambda: kernels.grouped_matmul(np.zeros((2, 3), F), [1.0], np.zeros(1, np.int32)),
        lambda: kernels.grouped_matmul(np.zeros((2, 3), F), np.zeros((1, 3, 4), F), [2]),
        lambda: kernels.batched_matmul(np.zeros((1, 2, 3), F), [1.0]),
        lambda: kernels.matmul(np.zeros((2, 3), F), [1.0]),
    ],
    "the weight has shape": [
        lambda: kernels.quantized_linear(np.zeros((2, 16), F), np.zeros(16, np.int8), np.ones((3, 1), F))
    ],
    "it is an (even integer|int from 1 on)": [
        lambda each=each: kernels.quantize_int4(np.zeros((2, 16), F), group=each) for each in (2.0, 0, 3)
    ],
}


@pytest.mark.parametrize(("problem", "calls"), REFUSED.items())
def test_what_is_no_array_or_no_group_is_refused_in_words(problem, calls):
    for call in calls:
        with pytest.raises(ValueError, match=problem):
            call()


def test_a_result_that_is_read_as_zeros_is_refused():
    memory = np.zeros((2, 4), F)
    with pytest.raises(ValueError, match="shares memory"):
        kernels.quantized_linear(
            np.zeros((1, 16), F), np.zeros((4, 8), B), np.ones((4, 1), F), memory.view(B)[0, :4, None], out=memory[:1]
        )


@pytest.mark.parametrize("place", ["cpu", "sanitizer"])
def test_without_inputs_sums_are_0(place):
    given = np.zeros((2, 0), F), np.zeros((3, 0), np.int8), np.ones((3, 1), F)
    np.testing.assert_array_equal(run(place, kernels.quantized_linear, *given), np.zeros((2, 3)))


def test_zeros_are_of_4_bits():
    x, weight, scales = np.zeros((1, 16), np.float32), np.zeros((1, 16), np.int8), np.ones((1, 1), np.float32)
    with pytest.raises(ValueError, match="zeros are of weights of 4 bits"):
        kernels.quantized_linear(x, weight, scales, np.zeros((1, 1), np.uint8))
    with pytest.raises(ValueError, match="zeros are uint8, of the shape of the scales"):
        kernels.quantized_linear(x, weight[:, :8].astype(np.uint8), scales, np.zeros((2, 1), np.uint8))
