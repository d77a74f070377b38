"""`sk.switch`: one of several functions, chosen at run time; their results meet, their effects happen once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stagekit as sk

TARGETS = ("cpu", "interp", pytest.param("cuda", marks=pytest.mark.gpu))


def double(x, y):
    return x * 2


@sk.inline
def total(x, y):
    return x + y


FUNCTIONS = (double, total, lambda x, y: x - y, lambda x, y: 7, lambda x, y: sk.sqrt(x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint64])
def test_each_choice_and_those_beyond(dtype: Any, count: int, target: str) -> None:
    functions = FUNCTIONS[:count]

    @sk.jit
    def kernel(which, x, out):
        i = sk.cuda.thread_idx("x")
        out[i] = sk.switch(which[i], functions, x[i], x[i] + 1)

    least = 0 if dtype is np.uint64 else -2
    which = np.arange(least, 8).astype(dtype)
    x, out = np.arange(len(which), dtype=np.float32), np.zeros(len(which), np.float32)
    moved = sk.cuda.to_device if target == "cuda" else np.asarray
    result = moved(out)
    sk.compile(kernel.specialize(), target)[1, len(which)](moved(which), moved(x), result)

    plain = (*FUNCTIONS[:1], lambda x, y: x + y, *FUNCTIONS[2:4], lambda x, y: np.sqrt(np.float32(x)))
    expected = [plain[min(max(int(k), 0), count - 1)](v, v + 1) for k, v in zip(which, x)]
    assert expected == (result.to_host() if target == "cuda" else result).tolist()


def test_effects_happen_in_the_chosen_one_alone() -> None:
    """Also in a block-level kernel, once for the block; arrays of a list are chosen this way."""
    arrays = [np.zeros(4, np.int32) for _ in range(3)]

    @sk.jit
    def kernel(arrays):
        g = sk.program_id(0)
        sk.switch(g, [lambda k, each=each: sk.atomic_add(each + k, 1) for each in arrays], g)

    for _ in range(3):
        kernel[(3,)](arrays)

    assert [[3, 0, 0, 0], [0, 3, 0, 0], [0, 0, 3, 0]] == [each.tolist() for each in arrays]


def test_a_static_choice_expands_one_alone() -> None:
    @sk.jit
    def kernel(out, N: sk.constexpr):
        out[0] = sk.switch(N, (double, lambda x, y: sk.static_assert(False)), 3, 0)

    out = np.zeros(1, np.int32)
    kernel[1, 1](out, 0)
    assert 6 == out[0]


def test_objects_and_tuples_meet() -> None:
    @sk.jit
    def kernel(out, k):
        a, (b, c) = sk.switch(k, (lambda: (1, (2, 3.5)), lambda: (4, (5, 6.5))))
        out[0] = a + b + c

    for k, expected in ((0, 6.5), (1, 15.5)):
        out = np.zeros(1, np.float32)
        kernel[1, 1](out, k)
        assert expected == out[0]


def _nothing(k):
    sk.switch(k, ())


def _no_functions(k):
    sk.switch(k, (1, 2))


def _a_float(k):
    sk.switch(k * 0.5, (double, total), 1, 2)


def _a_condition(k):
    sk.switch(k > 1, (double, total), 1, 2)


def _of_other_kinds(k):
    v = sk.switch(k, (lambda: 1, lambda: None))
    return v + 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_nothing, "BAD_CALL.*`switch` over a tuple of length 0"),
        (_no_functions, "BAD_CALL.*`switch` over a tuple of length 2"),
        (_a_float, "BAD_CALL.*`switch` by run-time float32"),
        (_a_condition, "BAD_CALL.*`switch` by run-time bool"),
        (_of_other_kinds, "JOIN_MISMATCH"),
    ],
)
def test_what_is_no_switch_is_refused(wrong: Callable[[Any], Any], message: str) -> None:
    @sk.jit
    def kernel(k):
        wrong(k)

    with pytest.raises(sk.StagingError, match=f"(?s){message}"):
        kernel[1, 1](1)
