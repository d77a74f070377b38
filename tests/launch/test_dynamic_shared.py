"""Dynamic shared memory: a launch gives what the kernel's arrays hold, or is refused before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk

n = sk.dynamic("n")


@sk.jit
def fixed(x, N: sk.constexpr, dtype: sk.constexpr):
    sk.dynamic_shared(dtype, (N,))[0] = 1
    x[0] = 1


@sk.jit
def sized(x: sk.Tensor((n,), sk.float32), dtype: sk.constexpr):
    sk.dynamic_shared(dtype, (n,))[0] = 1
    x[0] = 1


@sk.jit
def counted(x, rows: sk.int32, columns: sk.int64, dtype: sk.constexpr):
    sk.dynamic_shared(dtype, (rows, columns))[0, 0] = 1
    x[0] = 1


@sk.jit
def two_views(x, N: sk.constexpr, dtype: sk.constexpr):
    sk.dynamic_shared(sk.uint8, (2,))[0] = 1
    sk.dynamic_shared(dtype, (N,))[0] = 1
    x[0] = 1


@sk.jit
def own(x: sk.Tensor((n,), sk.float32), given: sk.int32, dtype: sk.constexpr):
    sk.device_entry(launch=sk.cuda.LaunchConfig(grid=1, block=1, shared_bytes=given))
    sk.dynamic_shared(dtype, (n,))[0] = 1
    x[0] = 1


DTYPES = [sk.uint8, sk.float16, sk.int32, sk.float64]
WAYS: dict[str, Callable[[Any, int, Any, int], None]] = {  # array, elements, dtype, bytes given
    "a constant": lambda x, count, dtype, given: fixed[1, 1, given](x, count, dtype),
    "a size": lambda x, count, dtype, given: sized[1, 1, given](x, dtype),
    "scalars": lambda x, count, dtype, given: counted[1, 1, given](x, 1, count, dtype),
    "two views": lambda x, count, dtype, given: two_views[1, 1, given](x, count, dtype),
    "device_entry": lambda x, count, dtype, given: own(x, given, dtype),
    "prepare": lambda x, count, dtype, given: sized.prepare[1, 1, given](x, dtype)(),
}


@pytest.mark.parametrize("target", ["cpu", "interp"])
@pytest.mark.parametrize("way", WAYS)
@given(st.integers(1, 300), st.sampled_from(DTYPES), st.integers(0, 2400))
@settings(max_examples=25, deadline=None)
def test_a_launch_gives_enough_or_is_refused(way: str, target: str, count: int, dtype: Any, given: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if target != "cpu":
            patch.setenv("STAGEKIT_TARGET", target)
        needed = max(count * dtype.itemsize, 2 if way == "two views" else 0)
        for _ in range(3):  # the later ones natively
            x = np.zeros(count, np.float32)
            if given >= needed:
                WAYS[way](x, count, dtype, given)
                assert x[0] == 1
                continue
            with pytest.raises(
                sk.LaunchError, match=f"SHARED_MEMORY_TOO_SMALL(.|\n)*{needed} bytes(.|\n)*gives {given}"
            ):
                WAYS[way](x, count, dtype, given)
            assert x[0] == 0


def test_without_a_shape_an_element_is_needed() -> None:
    @sk.jit
    def kernel(x):
        base = sk.dynamic_shared(sk.float64)
        sk.store(base + 1, 2.0)
        x[0] = sk.load(base + 1)

    x = np.zeros(1, np.float32)
    kernel[1, 1, 16](x)
    assert x[0] == 2
    with pytest.raises(sk.LaunchError, match="8 bytes"):
        kernel[1, 1](x)


def test_what_is_taken_in_a_branch_may_not_be_needed() -> None:
    @sk.jit
    def kernel(x, is_cached: sk.bool_):
        if is_cached:
            sk.dynamic_shared(sk.float32, (4,))[3] = 1.0
        x[0] = 1

    x = np.zeros(1, np.float32)
    kernel[1, 1](x, False)
    assert x[0] == 1


def test_a_size_that_only_the_kernel_knows_is_not_checked() -> None:
    @sk.jit
    def kernel(x):
        sk.dynamic_shared(sk.int32, (x[0],))[0] = 1
        x[0] = 7

    x = np.full(1, 4, np.int32)
    kernel[1, 1, 16](x)
    assert x[0] == 7


def test_a_launch_of_nothing_needs_nothing() -> None:
    x = np.zeros(4, np.float32)
    for _ in range(3):
        fixed[0, 1](x, 64, sk.float32)
        fixed[1, 0](x, 64, sk.float32)
    assert not x.any()
