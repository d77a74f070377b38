"""Exponentials and logarithms."""

from __future__ import annotations

import math

import numpy as np

from stagekit.intrinsics import elementary, expansions, reference, wide
from stagekit.intrinsics.families import define_library, define_own, hardware
from stagekit.intrinsics.terms import expand

exp = define_own(
    "exp",
    reference.wider(np.exp),
    elementary.exp,
    elementary.exp,
    "e to the power of `x`.",
    "C23, 7.12.6.1",
    ulp=1,
    fast=hardware("ex2.approx.f32", before=1 / math.log(2)),
    fast_ulp=128,
)
exp2 = define_own(
    "exp2",
    reference.wider(np.exp2),
    elementary.exp2,
    elementary.exp2,
    "2 to the power of `x`.",
    "C23, 7.12.6.4",
    ulp=1,
    fast=hardware("ex2.approx.f32"),
    fast_ulp=4,
)
expm1 = define_library(
    "expm1",
    reference.wider(np.expm1),
    "expm1",
    "exp(x) - 1, accurate near 0 too.",
    "7.12.6.6",
    ulp=(1, 1),
    single=wide.expm1,
)
log = define_own(
    "log",
    reference.wider(np.log),
    elementary.log,
    elementary.log,
    "The natural logarithm; -inf at 0, NaN below.",
    "C23, 7.12.6.11",
    ulp=1,
    fast=hardware("lg2.approx.f32", after=math.log(2)),
)
log2 = define_own(
    "log2",
    reference.wider(np.log2),
    elementary.log2,
    elementary.log2,
    "The logarithm in base 2; -inf at 0, NaN below.",
    "C23, 7.12.6.15",
    ulp=1,
    fast=hardware("lg2.approx.f32"),
)
log10 = define_own(
    "log10",
    reference.wider(np.log10),
    elementary.log10,
    elementary.log10,
    "The logarithm in base 10; -inf at 0, NaN below.",
    "C23, 7.12.6.12",
    ulp=1,
    fast=hardware("lg2.approx.f32", after=math.log10(2)),
)
log1p = define_library(
    "log1p",
    reference.wider(np.log1p),
    "log1p",
    "log(1 + x), accurate near 0 too.",
    "7.12.6.14",
    ulp=(1, 1),
    single=wide.log1p,
)
sigmoid = define_own(
    "sigmoid",
    reference.wider(reference.sigmoid),
    expansions.logistic,
    expansions.logistic,
    "1 / (1 + exp(-x)), without overflow.",
    "Verhulst, 1845: the logistic function",
    ulp=2,
    fast=expand(lambda x: 1.0 / ((-x).call("exp") + 1.0)),
    fast_ulp=256,
)
