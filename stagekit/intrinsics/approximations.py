"""Approximations by name: of a float32, on a GPU, one instruction, whatever `fastmath` says; elsewhere the function itself.

    sk.fast_rcp(x)  ->  rcp.approx.ftz.f32        sk.fast_log(x)  ->  lg2.approx.ftz.f32, times ln 2

A subnormal number counts as 0, as argument and as result. `fast_exp` and `fast_exp2` stand with `exp`.

Source: PTX ISA, rcp, sqrt, rsqrt, div, lg2, sin, cos, tanh, where the errors are stated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stagekit.dtypes import FLOAT_DTYPES
from stagekit.intrinsics.exponentials import log, log2, rsqrt
from stagekit.intrinsics.families import floats, hardware
from stagekit.intrinsics.reference import Meaning, wider
from stagekit.intrinsics.registry import define, each_dtype
from stagekit.intrinsics.rounding import sqrt
from stagekit.intrinsics.terms import Term, asm, expand
from stagekit.intrinsics.trigonometry import cos, sin, tanh
from stagekit.ir.intrinsic import Intrinsic


def _define(
    name: str,
    instruction: str,
    ulp: float,
    doc: str,
    exact: Callable[..., Term],
    meaning: Meaning | None,
    after: float = 1.0,
) -> Intrinsic:
    """Define an approximation of `exact`. ulp: its error on cuda; infinite where it is bounded absolutely."""
    args = ("x", "y") if name == "fast_divide" else ("x",)
    on_cuda = hardware(instruction, after=after)
    if len(args) == 2:
        on_cuda = expand(lambda x, y: asm(f"{instruction} $0, $1, $2;", "=f,f,f", x, y))
    formula = expand(exact)
    return define(
        name=name,
        args=args,
        sigs=each_dtype(FLOAT_DTYPES, len(args)),
        lower={"cuda": floats(name, on_cuda, formula), "cpu": floats(name, formula, formula)},
        evaluate=meaning,
        tolerance={"cuda": ulp, "cpu": 1},
        flushes=True,
        integers_as_float=True,
        doc=doc,
        source=f"PTX ISA, {instruction}",
    )


def _fast(spec: Intrinsic, instruction: str, ulp: float, doc: str, after: float = 1.0) -> Intrinsic:
    """Define the approximation of another record."""
    return _define(f"fast_{spec.name}", instruction, ulp, doc, lambda x: x.call(spec.name), spec.evaluate, after)


_RCP = "1 / x, to 1 unit in the last place of a float32 on a GPU."
_DIVIDE = "x / y, to 2 units of a float32 on a GPU; where y is above 2**126 in size, 0, or NaN of an infinite x."
_LOG2 = "The logarithm in base 2: of a float32 on a GPU to 2**-22 absolutely from 0.5 to 2, relatively elsewhere."
_LOG = "The natural logarithm: `fast_log2` of a float32 on a GPU, times ln 2."
_TURN = ": of a float32 on a GPU to 2**-20.5 absolutely from -pi to pi, worse the further away."

fast_rcp = _define("fast_rcp", "rcp.approx.ftz.f32", 1, _RCP, lambda x: 1.0 / x, wider(lambda x: 1 / x))
fast_divide = _define("fast_divide", "div.approx.ftz.f32", 2, _DIVIDE, lambda x, y: x / y, wider(lambda x, y: x / y))
fast_sqrt = _fast(sqrt, "sqrt.approx.ftz.f32", 2, "The square root, to 2 units of a float32 on a GPU.")
fast_rsqrt = _fast(rsqrt, "rsqrt.approx.ftz.f32", 2, "1 / sqrt(x), to 2 units of a float32 on a GPU.")
fast_log2 = _fast(log2, "lg2.approx.ftz.f32", math.inf, _LOG2)
fast_log = _fast(log, "lg2.approx.ftz.f32", math.inf, _LOG, after=math.log(2))
fast_sin = _fast(sin, "sin.approx.ftz.f32", math.inf, f"The sine{_TURN}")
fast_cos = _fast(cos, "cos.approx.ftz.f32", math.inf, f"The cosine{_TURN}")
fast_tanh = _fast(
    tanh, "tanh.approx.f32", math.inf, "The hyperbolic tangent: of a float32 on a GPU to 2**-11 relatively."
)
