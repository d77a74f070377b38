"""What is dropped is freed: a program that makes kernels for hours stays as large as it was."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import stagekit as sk


def make_kernel(number):
    def helper(x):
        return x + number

    @sk.inline
    def fragment(x):
        return helper(x) * 2

    @sk.jit
    def kernel(out, N: sk.constexpr):
        out[0] = fragment(N)

    return kernel, helper, fragment


@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_a_kernel_its_helpers_and_fragments_are_freed(target):
    kernel, helper, fragment = make_kernel(1)
    out = np.zeros(1, np.int32)
    sk.compile(kernel.specialize(N=3), target)[1, 1](out)
    left = [weakref.ref(each) for each in (kernel, kernel.function, helper, fragment)]

    del kernel, helper, fragment
    gc.collect()

    assert out[0] == 8
    assert [None] * 4 == [reference() for reference in left]
