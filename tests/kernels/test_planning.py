"""What a plain function keeps of a call: never for arrays that lie otherwise, nor for an out that shares memory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stagekit.kernels.planning import planned
from stagekit.kernels.sharing import checked_out


class Tensor:
    """An array as torch has it, on a GPU that is not there."""

    def __init__(self, place, shape, stride=None, dtype="float16", device=0):
        self.place, self.shape, self.dtype, self.device = place, shape, dtype, device
        self.strides = stride or tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        self.nbytes = 2 * math.prod(shape)

    def get_device(self):
        return self.device

    def data_ptr(self):
        return self.place

    def stride(self):
        return self.strides

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.strides == Tensor(0, self.shape).strides


@pytest.fixture
def asked():
    calls = []

    @planned
    def plan(out, *arrays):
        calls.append((out, *arrays))
        if out is not None:
            checked_out(out, apart=arrays)
        return len(calls)

    return plan, calls


def test_arrays_that_lie_alike_elsewhere_have_the_plan(asked):
    plan, calls = asked
    found = [plan(Tensor(4096 * i, (8, 8)), Tensor(1 << 20, (8, 8)), Tensor(1 << 21, (8, 8), (1, 8))) for i in range(4)]

    assert found == [1] * 4
    assert len(calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        Tensor(1 << 20, (8, 7)),
        Tensor(1 << 20, (8, 8), (1, 8)),
        Tensor((1 << 20) + 2, (8, 8)),
        Tensor(1 << 20, (8, 8), dtype="bfloat16"),
        Tensor(1 << 20, (8, 8), device=1),
        type("Derived", (Tensor,), {})(1 << 20, (8, 8)),
        None,
    ],
)
def test_an_array_that_differs_has_a_plan_of_its_own(asked, other):
    plan, calls = asked
    out, array = Tensor(0, (8, 8)), Tensor(1 << 20, (8, 8))

    assert [plan(None, array), plan(None, other), plan(None, array), plan(out, array)] == [1, 2, 1, 3]
    assert len(calls) == 3


@pytest.mark.parametrize("distance", [-112, -64, 0, 64, 112])
def test_an_out_that_shares_memory_is_refused_behind_one_that_does_not(asked, distance):
    plan, _ = asked
    array = Tensor(1 << 20, (8, 8))
    plan(Tensor(0, (8, 8)), array)

    with pytest.raises(ValueError, match="shares memory"):
        plan(Tensor(array.place + distance, (8, 8)), array)


def test_an_out_beside_an_array_has_the_plan(asked):
    plan, calls = asked
    array = Tensor(1 << 20, (8, 8))
    for distance in (-(1 << 12), -128, 128):
        plan(Tensor(array.place + distance, (8, 8)), array)

    assert len(calls) == 1


@pytest.mark.parametrize(
    "array", [np.zeros((8, 8)), Tensor(1 << 20, (8, 8), device=-1), Tensor(1 << 20, ([8], 8), (8, 1))]
)
def test_nothing_is_kept_of_other_arrays(asked, array):
    plan, calls = asked
    for _ in range(2):
        plan(None, array)

    assert len(calls) == 2
