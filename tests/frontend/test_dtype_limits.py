"""The limits of dtypes are those of NumPy's and ml_dtypes' `finfo` and `iinfo`, inside a kernel and outside (R8)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import stagekit as sk
from stagekit.dtypes import ALL_DTYPES

LIMITS = ("min", "max", "eps", "tiny", "smallest_normal", "smallest_subnormal")
FLOATS = [d for d in ALL_DTYPES if d.is_float]
OTHERS = [d for d in ALL_DTYPES if not d.is_float]


@sk.jit
def in_a_kernel(out, DTYPE: sk.constexpr):
    for i, name in enumerate(LIMITS):
        out[i] = getattr(DTYPE, name)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_limits_of_a_float_dtype_are_those_of_finfo(dtype):
    known = np.finfo(dtype.numpy) if hasattr(np, dtype.name) else ml_dtypes.finfo(dtype.numpy)
    wanted = [float(getattr(known, name)) for name in LIMITS]

    found = [getattr(dtype, name) for name in LIMITS]
    out = np.zeros(len(LIMITS), np.float64)
    in_a_kernel[1, 1](out, dtype)

    assert found == wanted
    assert all(type(value) is float for value in found)
    assert out.tolist() == wanted
    assert [float(dtype(value)) for value in found] == wanted


@pytest.mark.parametrize("dtype", OTHERS, ids=lambda d: d.name)
def test_limits_of_other_dtypes_are_ints(dtype):
    known = np.iinfo(dtype.numpy) if dtype is not sk.bool_ else None

    assert (dtype.min, dtype.max) == ((known.min, known.max) if known else (0, 1))
    assert type(dtype.min) is type(dtype.max) is int
    for name in LIMITS[2:]:
        with pytest.raises(AttributeError, match=f"{dtype.name} has no"):
            getattr(dtype, name)


def test_a_limit_that_a_dtype_does_not_have_is_refused_in_a_kernel():
    with pytest.raises(sk.StagingError, match="eps"):

        @sk.function
        def kernel(out: sk.Tensor((1,), sk.float32)):
            out[0] = sk.int32.eps
