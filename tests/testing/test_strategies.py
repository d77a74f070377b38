"""What the strategies draw is what they say, and every launch can be shown as code that makes it again."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit import testing
from stagekit.dtypes import ALL_DTYPES
from stagekit.testing.launching import Launch, array_code, element_strides
from stagekit.testing.strategies import edge_values

SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)
quick = settings(max_examples=60, deadline=None)


def find(strategy: Any, condition: Any) -> Any:
    """The smallest that `strategy` gives, whatever earlier runs have found."""
    return hypothesis.find(strategy, condition, settings=settings(database=None, max_examples=2000))


@quick
@given(st.data(), st.integers(1, 300))
def test_lengths_reach_just_over_the_most_blocks(data: st.DataObject, block: int) -> None:
    assert 0 <= data.draw(testing.lengths(block)) <= 3 * block + 1
    assert 5 <= data.draw(testing.lengths(block, least=5)) <= max(3 * block + 1, 5)


@pytest.mark.parametrize("wanted", [0, 1, 9, 10, 11, 30, 31])
def test_lengths_about_a_multiple_of_the_block_are_drawn(wanted: int) -> None:
    assert wanted == find(testing.lengths(10), lambda n: n == wanted)


@pytest.mark.parametrize("wanted", [1, 31, 32, 33, 63, 64, 7, 48])
def test_block_sizes_of_every_kind_are_drawn(wanted: int) -> None:
    assert wanted == find(testing.block_sizes(64), lambda n: n == wanted)


def test_the_simplest_of_everything_comes_first() -> None:
    assert 1 == find(testing.block_sizes(), lambda n: True)
    assert 0 == find(testing.lengths(64), lambda n: True)
    assert sk.float32 is find(testing.dtypes(), lambda d: True)
    assert [1, 2, 3] == find(testing.arrays(sk.int32, 3), lambda a: True).tolist()


def test_dtypes_of_a_kind() -> None:
    kinds = find(testing.dtypes("float"), lambda d: d.bits == 64), find(testing.dtypes("uint", sk.int8), lambda d: True)

    assert (sk.float64, sk.int8) == kinds


@quick
@given(st.data(), testing.dtypes(*ALL_DTYPES), SHAPES, st.booleans(), st.sampled_from(["finite", "any", "exact"]))
def test_arrays_have_the_dtype_shape_and_values_asked_for(
    data: st.DataObject, dtype: sk.DType, shape: tuple[int, ...], strides: bool, values: Any
) -> None:
    array = data.draw(testing.arrays(dtype, shape, values=values, strides=strides))

    assert (dtype.numpy, shape) == (array.dtype, array.shape)
    assert strides or array.flags.c_contiguous
    wide = array.astype(np.float64)
    assert values == "any" or np.isfinite(wide).all()
    assert values != "exact" or np.abs(wide).max(initial=0) <= 8


@pytest.mark.parametrize("dtype", [sk.float32, sk.bfloat16, sk.int8, sk.uint64], ids=lambda d: d.name)
def test_every_edge_value_is_drawn(dtype: sk.DType) -> None:
    for edge in map(repr, np.array(edge_values(dtype)).tolist()):
        strategy = testing.arrays(dtype, 3, values="any").map(lambda array: list(map(repr, array.tolist())))
        assert edge in find(strategy, lambda texts, edge=edge: edge in texts)


@quick
@given(testing.arrays(sk.int32, (2, 3), strides=True))
def test_strided_arrays_own_their_memory(array: Any) -> None:
    """What is written into one element changes no other."""
    array[...] = np.arange(6).reshape(2, 3)

    assert [[0, 1, 2], [3, 4, 5]] == array.tolist()


def test_some_arrays_have_gaps_and_some_run_backwards() -> None:
    assert find(testing.arrays(sk.int32, 3, strides=True), lambda a: a.strides[0] > 4).strides == (8,)
    assert find(testing.arrays(sk.int32, 3, strides=True), lambda a: a.strides[0] < 0).strides == (-4,)
    assert find(testing.arrays(sk.int32, (2, 3), strides=True), lambda a: 0 < a.strides[0] < a.strides[1]).strides == (
        4,
        8,
    )


@quick
@given(testing.dtypes(*ALL_DTYPES).flatmap(lambda d: testing.arrays(d, SHAPES, values="any", strides=True)))
def test_the_code_of_an_array_makes_it_again(array: Any) -> None:
    made = eval(array_code(array), {"np": np, "sk": sk, "strided": testing.strided})

    assert (array.dtype, array.shape) == (made.dtype, made.shape)
    assert array.tobytes() == made.tobytes() or repr(array.tolist()) == repr(made.tolist())
    assert 0 in array.shape or element_strides(array) == element_strides(made) or array.flags.c_contiguous


@quick
@given(testing.dtypes().flatmap(lambda d: testing.outputs(d, 5)))
def test_outputs_hold_what_no_kernel_gives(array: Any) -> None:
    wide = array.astype(np.float64)

    assert np.isnan(wide).all() or (wide != 0).all()


def test_a_fresh_launch_shares_nothing() -> None:
    launch = Launch((1, 3), {"out": testing.strided(np.arange(3), (2,)), "n": 3})

    fresh = launch.fresh()
    fresh.arrays["out"][0] = 9

    assert 0 == launch.arrays["out"][0]
    assert launch.arrays["out"].strides == fresh.arrays["out"].strides


def test_a_launch_is_shown_as_code() -> None:
    arguments = {
        "a": np.full((2, 2), np.nan, np.float32),
        "b": testing.strided(np.array([True, False, True]), (-2,)),
        "n": 3,
        "x": np.float16(1.5),
        "y": float("inf"),
        "D": sk.bfloat16,
        "mode": "fast",
    }

    assert Launch(((4, 5), 32), arguments).code("kernel").splitlines() == [
        "from stagekit.testing import strided",
        "a = np.full((2, 2), np.nan, np.float32)",
        "b = strided(np.array([True, False, True], np.bool), (-2,))",
        "kernel[(4, 5), 32](a=a, b=b, n=3, x=np.float16(1.5), y=np.inf, D=sk.bfloat16, mode='fast')",
    ]
