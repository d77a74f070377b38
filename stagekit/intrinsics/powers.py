"""Powers and roots."""

from __future__ import annotations

import math

import numpy as np

from stagekit.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, float32
from stagekit.intrinsics import expansions, reference, wide
from stagekit.intrinsics.families import (
    define_exact,
    define_library,
    define_own,
    floats,
    hardware,
    libdevice,
    llvm_floats,
    tolerances,
)
from stagekit.intrinsics.registry import define, each_dtype
from stagekit.intrinsics.terms import expand
from stagekit.ir.intrinsic import Extern, Tolerance

sqrt = define_exact(
    "sqrt",
    ("x",),
    llvm_floats("sqrt", "sqrt"),
    reference.in_place(np.sqrt),
    "The square root, correctly rounded; NaN below 0, -0.0 of -0.0.",
    "IEEE 754-2019, 5.4.1 squareRoot; PTX ISA, sqrt.rn",
    integers_as_float=True,
)
rsqrt = define_own(
    "rsqrt",
    reference.wider(lambda x: 1 / np.sqrt(x)),
    expansions.reciprocal_root,
    expansions.reciprocal_root,
    "1 / sqrt(x); an infinity of the sign of a zero `x`, NaN below.",
    "IEEE 754-2019, 9.2 rSqrt",
    ulp=1,
    fast=hardware("rsqrt.approx.f32"),
    fast_ulp=2,
)
cbrt = define_library(
    "cbrt",
    reference.wider(np.cbrt),
    "cbrt",
    "The cube root.",
    "7.12.7.1",
    ulp=(1, 4),
    single=wide.cbrt,
)
hypot = define_library(
    "hypot",
    reference.wider(np.hypot),
    "hypot",
    "The square root of x*x + y*y, without overflow on the way.",
    "7.12.7.4",
    ulp=(3, 1),
    single=wide.hypot,
    args=("x", "y"),
)
_INTEGER_POW = dict.fromkeys(INTEGER_DTYPES, expand(expansions.integer_power))
pow = define(
    name="pow",
    args=("x", "y"),
    sigs=each_dtype((*FLOAT_DTYPES, *INTEGER_DTYPES), 2),
    lower={
        "cuda": {**libdevice("pow", "pow"), **_INTEGER_POW},
        "cpu": {**floats("pow", expand(wide.power), Extern("pow")), **_INTEGER_POW},
    },
    evaluate=reference.power,
    lower_fast={"cuda": {float32: expand(lambda x, y: (y * x.call("log2")).call("exp2"))}},
    tolerance=tolerances(4, 2),
    fast_tolerance=Tolerance(math.inf),
    doc="`x` to the power of `y`. Of integers: wraps, and a negative `y` gives 0 but for the bases 1 and -1. "
    "Under `fastmath=True` a GPU gives NaN for a negative float `x`.",
    source="C23, 7.12.7.5",
)
