"""Circular and hyperbolic functions, their inverses, and angles in degrees."""

from __future__ import annotations

import math

import numpy as np

from stagekit.intrinsics import elementary, reference, wide
from stagekit.intrinsics.families import (
    define_function,
    define_library,
    define_own,
    everywhere,
    hardware,
    same_floats,
    tolerances,
)
from stagekit.intrinsics.terms import expand

degrees = define_function(
    "degrees",
    reference.wider(np.degrees),
    everywhere(same_floats("degrees", lambda x: x * (180 / math.pi))),
    tolerances(cuda=1.5, cpu=1.5),
    "An angle in radians as degrees.",
    "Python, math.degrees",
)
radians = define_function(
    "radians",
    reference.wider(np.radians),
    everywhere(same_floats("radians", lambda x: x * (math.pi / 180))),
    tolerances(cuda=1.5, cpu=1.5),
    "An angle in degrees as radians.",
    "Python, math.radians",
)
sin = define_own(
    "sin",
    reference.wider(np.sin),
    elementary.sin,
    "sin",
    "The sine of an angle in radians.",
    "C23, 7.12.4.6",
    ulp=1,
    double_ulp=(2, 1),
    fast=hardware("sin.approx.f32"),
)
cos = define_own(
    "cos",
    reference.wider(np.cos),
    elementary.cos,
    "cos",
    "The cosine of an angle in radians.",
    "C23, 7.12.4.5",
    ulp=1,
    double_ulp=(2, 1),
    fast=hardware("cos.approx.f32"),
)
tan = define_own(
    "tan",
    reference.wider(np.tan),
    elementary.tan,
    "tan",
    "The tangent of an angle in radians.",
    "C23, 7.12.4.7",
    ulp=2,
    double_ulp=(2, 1),
    fast=expand(lambda x: x.call("sin") / x.call("cos")),
)
asin = define_library(
    "asin",
    reference.wider(np.arcsin),
    "asin",
    "The angle in [-pi/2, pi/2] with this sine.",
    "7.12.4.2",
    ulp=(4, 1),
    single=wide.asin,
)
acos = define_library(
    "acos",
    reference.wider(np.arccos),
    "acos",
    "The angle in [0, pi] with this cosine.",
    "7.12.4.1",
    ulp=(2, 1),
    single=wide.acos,
)
atan = define_library(
    "atan",
    reference.wider(np.arctan),
    "atan",
    "The angle in [-pi/2, pi/2] with this tangent.",
    "7.12.4.3",
    ulp=(2, 1),
    single=wide.atan,
)
atan2 = define_library(
    "atan2",
    reference.wider(np.arctan2),
    "atan2",
    "The angle in [-pi, pi] of the point (x, y), `y` given first.",
    "7.12.4.4",
    ulp=(3, 1),
    single=wide.atan2,
    args=("y", "x"),
)
sinh = define_library(
    "sinh",
    reference.wider(np.sinh),
    "sinh",
    "The hyperbolic sine.",
    "7.12.5.5",
    ulp=(3, 2),
    single=wide.sinh,
)
cosh = define_library(
    "cosh",
    reference.wider(np.cosh),
    "cosh",
    "The hyperbolic cosine.",
    "7.12.5.4",
    ulp=(2, 2),
    single=wide.cosh,
)
tanh = define_own(
    "tanh",
    reference.wider(np.tanh),
    elementary.tanh,
    "tanh",
    "The hyperbolic tangent.",
    "C23, 7.12.5.6",
    ulp=1,
    double_ulp=(2, 2),
    fast=hardware("tanh.approx.f32"),
    fast_ulp=8192,
)
asinh = define_library(
    "asinh",
    reference.wider(np.arcsinh),
    "asinh",
    "The inverse of `sinh`.",
    "7.12.5.2",
    ulp=(3, 2),
    single=wide.asinh,
)
acosh = define_library(
    "acosh",
    reference.wider(np.arccosh),
    "acosh",
    "The inverse of `cosh`; NaN below 1.",
    "7.12.5.1",
    ulp=(4, 2),
    single=wide.acosh,
)
atanh = define_library(
    "atanh",
    reference.wider(np.arctanh),
    "atanh",
    "The inverse of `tanh`; NaN beyond 1.",
    "7.12.5.3",
    ulp=(3, 2),
    single=wide.atanh,
)
