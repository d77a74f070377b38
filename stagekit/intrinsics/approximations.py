"""Approximations by name: of a float32, on a GPU, one instruction, whatever `fastmath` says; elsewhere the function itself.

    sk.fast_rcp(x)  ->  rcp.approx.ftz.f32        sk.fast_log(x)  ->  lg2.approx.ftz.f32, times ln 2

A subnormal number counts as 0, as argument and as result. `fast_exp` and `fast_exp2` stand with `exp`.

Source: PTX ISA, rcp, sqrt, rsqrt, div, lg2, sin, cos, tanh, where the errors are stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stagekit.dtypes import FLOAT_DTYPES
from stagekit.intrinsics.families import floats, hardware
from stagekit.intrinsics.reference import Meaning, wider
from stagekit.intrinsics.registry import define, each_dtype
from stagekit.intrinsics.terms import Term, asm, expand
from stagekit.ir.intrinsic import Intrinsic, Lowering


def _define(
    name: str, on_cuda: Lowering, exact: Callable[..., Term], meaning: Meaning, ulp: float, doc: str, source: str
) -> Intrinsic:
    """Define an approximation of `exact`. ulp: its error on cuda; infinite where it is bounded absolutely."""
    args = ("x", "y") if name == "fast_divide" else ("x",)
    formula = expand(exact)
    return define(
        name=name,
        args=args,
        sigs=each_dtype(FLOAT_DTYPES, len(args)),
        lower={"cuda": floats(name, on_cuda, formula), "cpu": floats(name, formula, formula)},
        evaluate=wider(meaning),
        tolerance={"cuda": ulp, "cpu": 1},
        flushes=True,
        integers_as_float=True,
        doc=doc,
        source=f"PTX ISA, {source}",
    )


def _quotient(x: Term, y: Term) -> Term:
    return asm("div.approx.ftz.f32 $0, $1, $2;", "=f,f,f", x, y)


fast_rcp = _define(
    "fast_rcp",
    hardware("rcp.approx.ftz.f32"),
    lambda x: 1.0 / x,
    lambda x: 1 / x,
    1,
    "1 / x, to 1 unit in the last place of a float32 on a GPU.",
    "rcp.approx.ftz.f32",
)
fast_divide = _define(
    "fast_divide",
    expand(_quotient),
    lambda x, y: x / y,
    lambda x, y: x / y,
    2,
    "x / y, to 2 units of a float32 on a GPU; where y is above 2**126 in size, 0, or NaN of an infinite x.",
    "div.approx.ftz.f32",
)
fast_sqrt = _define(
    "fast_sqrt",
    hardware("sqrt.approx.ftz.f32"),
    lambda x: x.call("sqrt"),
    np.sqrt,
    2,
    "The square root, to 2 units of a float32 on a GPU.",
    "sqrt.approx.ftz.f32",
)
fast_rsqrt = _define(
    "fast_rsqrt",
    hardware("rsqrt.approx.ftz.f32"),
    lambda x: x.call("rsqrt"),
    lambda x: 1 / np.sqrt(x),
    2,
    "1 / sqrt(x), to 2 units of a float32 on a GPU.",
    "rsqrt.approx.ftz.f32",
)
fast_log2 = _define(
    "fast_log2",
    hardware("lg2.approx.ftz.f32"),
    lambda x: x.call("log2"),
    np.log2,
    math.inf,
    "The logarithm in base 2: of a float32 on a GPU to 2**-22 absolutely from 0.5 to 2, relatively elsewhere.",
    "lg2.approx.ftz.f32",
)
fast_log = _define(
    "fast_log",
    hardware("lg2.approx.ftz.f32", after=math.log(2)),
    lambda x: x.call("log"),
    np.log,
    math.inf,
    "The natural logarithm: `fast_log2` of a float32 on a GPU, times ln 2.",
    "lg2.approx.ftz.f32",
)
fast_sin = _define(
    "fast_sin",
    hardware("sin.approx.ftz.f32"),
    lambda x: x.call("sin"),
    np.sin,
    math.inf,
    "The sine: of a float32 on a GPU to 2**-20.5 absolutely from -pi to pi, worse the further away.",
    "sin.approx.ftz.f32",
)
fast_cos = _define(
    "fast_cos",
    hardware("cos.approx.ftz.f32"),
    lambda x: x.call("cos"),
    np.cos,
    math.inf,
    "The cosine: of a float32 on a GPU to 2**-20.5 absolutely from -pi to pi, worse the further away.",
    "cos.approx.ftz.f32",
)
fast_tanh = _define(
    "fast_tanh",
    hardware("tanh.approx.f32"),
    lambda x: x.call("tanh"),
    np.tanh,
    math.inf,
    "The hyperbolic tangent: of a float32 on a GPU to 2**-11 relatively.",
    "tanh.approx.f32",
)
