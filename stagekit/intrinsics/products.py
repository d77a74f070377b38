"""Products in full, scaling by powers of two, and remainders: all exact, or rounded once."""

from __future__ import annotations

import math

import numpy as np

from stagekit.dtypes import FLOAT_DTYPES, INDEX, INTEGER_DTYPES, float32, float64, int32, int64, uint64
from stagekit.intrinsics import expansions, reference
from stagekit.intrinsics.families import NARROW, define_exact, everywhere, same_floats
from stagekit.intrinsics.registry import define, each_dtype, sig
from stagekit.intrinsics.terms import expand
from stagekit.ir.intrinsic import Llvm

fma = define_exact(
    "fma",
    ("x", "y", "z"),
    {
        float32: Llvm("llvm.fma.{T}"),
        float64: Llvm("llvm.fma.{T}"),
        **dict.fromkeys(NARROW, expand(expansions.fma_narrow)),
    },
    reference.fma,
    "x * y + z, rounded once.",
    "IEEE 754-2019, 5.4.1 fusedMultiplyAdd",
    integers_as_float=True,
)
_MULHI = dict.fromkeys(INTEGER_DTYPES, expand(expansions.high_product))
mulhi = define(
    name="mulhi",
    args=("x", "y"),
    sigs=each_dtype(INTEGER_DTYPES, 2),
    lower={
        "cuda": {**_MULHI, int64: Llvm("llvm.nvvm.mulhi.ll"), uint64: Llvm("llvm.nvvm.mulhi.ull")},
        "cpu": _MULHI,
    },
    evaluate=reference.on_python_ints(reference.high_product),
    doc="The upper half of the product of two integers, which has twice their width.",
    source="PTX ISA, mul.hi",
)
ldexp = define(
    name="ldexp",
    args=("x", "exponent"),
    sigs=tuple(sig([x, exponent], x) for x in FLOAT_DTYPES for exponent in (int32, INDEX)),
    lower=everywhere(same_floats("ldexp", expansions.scale)),
    evaluate=reference.ldexp,
    doc="x * 2**exponent, rounded once. NaN, infinities and zeros stay as they are.",
    source="C23, 7.12.6.9",
)
fmod = define_exact(
    "fmod",
    ("x", "y"),
    same_floats("fmod", expansions.fmod),
    reference.in_place(np.fmod),
    "The remainder of x / y rounded towards 0, exact, with the sign of `x`; NaN for `y` zero or `x` infinite. "
    "`x % y` is the one with the sign of `y`.",
    "C23, 7.12.10.1",
    integers_as_float=True,
)
remainder = define_exact(
    "remainder",
    ("x", "y"),
    same_floats("remainder", expansions.remainder),
    reference.each_lane(math.remainder, math.nan),
    "x - n * y for the whole number n nearest to x / y (even in a tie), exact; NaN for `y` zero or `x` infinite.",
    "IEEE 754-2019, 5.3.1 remainder",
    integers_as_float=True,
)
