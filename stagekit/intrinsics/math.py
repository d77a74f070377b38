"""Functions of numbers, one thread at a time: Python's `math`, and what NumPy and CUDA users expect beside it.

    y = exp(x)            float16, bfloat16, float32, float64; an integer is converted first, as `/` does
    m = maximum(x, y)     every dtype

16-bit floats go through float32 and are rounded back. Tolerances are measured, in ulp from the correctly rounded result, and
tested; `docs/intrinsics.md` shows them. On the GPU `fastmath=True` takes the hardware's approximations.
Sources: C23 (annex F for the edge values), PTX ISA, libdevice; of expansions: their own module.
"""

from stagekit.intrinsics.exponentials import exp, exp2, expm1, log, log1p, log2, log10, sigmoid
from stagekit.intrinsics.powers import cbrt, hypot, pow, rsqrt, sqrt
from stagekit.intrinsics.products import fma, fmod, ldexp, mulhi, remainder
from stagekit.intrinsics.rounding import (
    abs,
    ceil,
    copysign,
    fabs,
    floor,
    fmax,
    fmin,
    isfinite,
    isinf,
    isnan,
    maximum,
    minimum,
    rint,
    round,
    signbit,
    trunc,
)
from stagekit.intrinsics.special import erf, erfc, gamma, lgamma
from stagekit.intrinsics.trigonometry import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    degrees,
    radians,
    sin,
    sinh,
    tan,
    tanh,
)

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "degrees",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "gamma",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "maximum",
    "minimum",
    "mulhi",
    "pow",
    "radians",
    "remainder",
    "rint",
    "round",
    "rsqrt",
    "sigmoid",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
