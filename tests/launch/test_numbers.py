"""Numbers in native launches: Python's and NumPy's, for parameters of every dtype, to the bit as the general way has them."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagekit as sk
from stagekit.dtypes import ARITHMETIC_DTYPES
from stagekit.jit.launchable import Launcher
from stagekit.runtime import native_process
from tests.launch.calls import Call, outcome

pytestmark = [
    pytest.mark.skipif(not native_process.is_available(), reason="no native launchers here"),
    pytest.mark.stagekit_unchecked(reason="what native launchers do; checked launches never are"),
]

SCALARS = [dtype.numpy.type for dtype in ARITHMETIC_DTYPES]
KIND_VALUES = {"b": (True, False), "i": (3, -1, 100), "u": (3, 200), "f": (0.1, -2.5, 1e6, math.inf)}


@functools.cache
def kernel_of(name: str | None) -> Any:
    """Stores its number in an array of the number's dtype; without a name, the parameter is not annotated."""
    if name is None:

        @sk.jit
        def keep(out, x):
            out[sk.cuda.thread_idx("x")] = x

        return keep

    @sk.jit
    def keep_declared(out: sk.Tensor((1,), getattr(sk, name)), x: getattr(sk, name)):  # type: ignore[valid-type]
        out[sk.cuda.thread_idx("x")] = x

    return keep_declared


def make_native(kernel: Any, out: Any, value: Any) -> None:
    for _ in range(3):
        kernel[1, 1](out, value)
    assert kernel._native.find((1, 1)) is not None


def same_both_ways(kernel: Any, dtype: np.dtype[Any], value: Any) -> None:
    expected = outcome(Launcher(kernel._launch, (1, 1)), Call((np.zeros(1, dtype), value), {}))
    found = outcome(kernel[1, 1], Call((np.zeros(1, dtype), value), {}))
    assert repr(expected) == repr(found), repr(value)


def scalar_values(scalar: type) -> list[Any]:
    with np.errstate(all="ignore"):
        kind = {ml_dtypes.bfloat16: "f"}.get(scalar, np.dtype(scalar).kind)
        return [scalar(value) for value in KIND_VALUES[kind]]


@pytest.mark.parametrize("name", [d.name for d in ARITHMETIC_DTYPES])
def test_every_scalar_for_every_declared_dtype(name: str) -> None:
    kernel, dtype = kernel_of(name), getattr(sk, name).numpy
    make_native(kernel, np.zeros(1, dtype), 1)

    for value in (*itertools.chain(*map(scalar_values, SCALARS)), 7, -7, 2**40, 0.3, True):
        same_both_ways(kernel, dtype, value)


@pytest.mark.parametrize("name", [d.name for d in ARITHMETIC_DTYPES])
def test_a_scalar_of_the_right_dtype_never_goes_the_general_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, dtype = kernel_of(name), getattr(sk, name).numpy
    out = np.zeros(1, dtype)
    make_native(kernel, out, 1)
    monkeypatch.setattr(type(kernel), "_launch", lambda *_: pytest.fail("the general way"))

    kernel[1, 1](out, dtype.type(1))

    assert out[0] == 1


@pytest.mark.parametrize("dtype", ARITHMETIC_DTYPES, ids=lambda d: d.name)
def test_a_scalar_without_annotation_chooses_its_own_specialisation(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, out = kernel_of.__wrapped__(None), np.zeros(1, dtype.numpy)  # fresh: one launcher knows few specialisations
    for _ in range(3):
        kernel[1, 1](out, dtype.numpy.type(1))
    with monkeypatch.context() as patch:
        patch.setattr(type(kernel), "_launch", lambda *_: pytest.fail("the general way"))
        kernel[1, 1](out, dtype.numpy.type(1))
    assert out[0] == 1
    for scalar in SCALARS:
        same_both_ways(kernel, dtype.numpy, scalar(1))


any_float = st.floats(width=64) | st.floats(-70000, 70000) | st.floats(-1e-4, 1e-4) | st.floats(width=16)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@settings(max_examples=200, deadline=None)
@given(value=any_float | st.integers(-(2**70), 2**70) | st.integers(2**53 - 9, 2**53 + 9))
def test_numbers_are_rounded_once(name: str, value: Any) -> None:
    kernel, dtype = kernel_of(name), getattr(sk, name).numpy
    make_native(kernel, np.zeros(1, dtype), 1)

    same_both_ways(kernel, dtype, value)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halfway_between_two_narrow_floats_goes_to_the_even_one(name: str) -> None:
    """Also a bit beside it, where rounding to float32 first would land on the middle."""
    kernel, dtype = kernel_of(name), getattr(sk, name).numpy
    make_native(kernel, np.zeros(1, dtype), 1)
    largest = int(np.array(ml_dtypes.finfo(dtype).max, dtype).view(np.uint16))
    bits = np.arange(0, largest, 97, dtype=np.uint16)
    below, above = (b.astype(np.uint16).view(dtype).astype(np.float64).tolist() for b in (bits, bits + 1))

    for low, high in zip(below, above):
        if math.isfinite(high):
            middle = (low + high) / 2
            for value in (middle, math.nextafter(middle, high), math.nextafter(middle, low), -middle):
                same_both_ways(kernel, dtype, value)
