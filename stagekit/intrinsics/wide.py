"""float32 functions computed in float64 and rounded once: how the cpu does what it would else ask the C library for.

    sinh(x: f32)   ->  y = cast x : f64;  r = (exp(y) - exp(-y)) / 2;  cast r : f32

As vectors several times as fast as calls lane by lane, the same on every system, and off the correctly rounded result by
one in the last place at most, seldom. Not for GPUs: most compute float64 at a fraction of the speed.
A difference of nearly equal numbers costs float64 digits that float32 does not miss, until the argument is below `_SMALL`:
there a Taylor polynomial takes over. Sources: as in `elementary.py`; C23 annex F for the edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stagekit.dtypes import float32, float64
from stagekit.intrinsics.elementary import polynomial
from stagekit.intrinsics.expansions import absolute, copy_sign, is_finite, is_infinite, sign_bit
from stagekit.intrinsics.terms import Term

Formula = Callable[..., Term]

_SMALL = 2.0**-10


def _wide(formula: Formula) -> Formula:
    """`formula` on float64, for float32 arguments and result."""
    return lambda *args: formula(*(a.cast(float64) for a in args)).cast(float32)


def _with_taylor(formula: Formula, *taylor: float) -> Formula:
    """`formula`, and x * (1 + taylor[0] * x + ...) for small x; so that -0.0 stays -0.0."""
    return _wide(lambda x: (x * polynomial(x, (1.0, *taylor))).select_if(absolute(x) < _SMALL, formula(x)))


# -- exponentials, logarithms, roots ----------------------------------------------------------------------------------


def _exp(x: Term) -> Term:
    return x.call("exp")


def _asinh(x: Term) -> Term:
    a = absolute(x)
    return copy_sign((a + (a * a + 1.0).call("sqrt")).call("log"), x)


def _acosh(x: Term) -> Term:
    inside = (x + (x * x - 1.0).call("sqrt")).call("log")
    return inside.like(math.nan).select_if(x < 1.0, inside)


expm1 = _with_taylor(lambda x: _exp(x) - 1.0, 1 / 2, 1 / 6)
log1p = _with_taylor(lambda x: (x + 1.0).call("log"), -1 / 2, 1 / 3)
sinh = _with_taylor(lambda x: (_exp(x) - _exp(-x)) * 0.5, 0.0, 1 / 6)
cosh = _wide(lambda x: (_exp(x) + _exp(-x)) * 0.5)
asinh = _with_taylor(_asinh, 0.0, -1 / 6)
acosh = _wide(_acosh)
atanh = _with_taylor(lambda x: ((x + 1.0) / (1.0 - x)).call("log") * 0.5, 0.0, 1 / 3)
cbrt = _wide(lambda x: copy_sign((absolute(x).call("log2") * (1 / 3)).call("exp2"), x))


def hypot(x: Term, y: Term) -> Term:
    """An infinite side outweighs a NaN."""
    wide = _wide(lambda a, b: (a * a + b * b).call("sqrt"))(x, y)
    return wide.like(math.inf).select_if(is_infinite(x) | is_infinite(y), wide)


def power(x: Term, y: Term) -> Term:
    """2**(y * log2(|x|)), negative for a negative x and an odd y; NaN where x < 0 and y is not whole."""
    size = _wide(lambda a, b: (b * absolute(a).call("log2")).call("exp2"))(x, y)
    half = y * 0.5
    is_whole = y.call("trunc").equals(y)
    is_odd = is_whole & half.call("trunc").differs(half)
    signed = (-size).select_if(is_odd & sign_bit(x), size)
    result = signed.like(math.nan).select_if((x < 0.0) & is_finite(x) & ~is_whole, signed)
    result = signed.like(1.0).select_if(x.equals(-1.0) & is_infinite(y), result)
    return signed.like(1.0).select_if(x.equals(1.0) | y.equals(0.0), result)


# -- angles -----------------------------------------------------------------------------------------------------------

_ATAN_CURVE = (
    *(0.9999999999412377, -0.3333333157123567, 0.19999912052136407, -0.14283980771210944, 0.11093241365525815),
    *(-0.08980239632968641, 0.07245719912386024, -0.05427913746646539, 0.0342096437431366, -0.01611170621398098),
    *(0.0048509440843478345, -0.0006847942833091654),
)


def _atan2(y: Term, x: Term) -> Term:
    """The angle of the smaller side over the larger, then by symmetry. Equal sides make 45 degrees, two zeros none."""
    a, b = absolute(y), absolute(x)
    is_steep = a > b
    smaller, larger = b.select_if(is_steep, a), a.select_if(is_steep, b)
    of_equals = larger.like(0.0).select_if(larger.equals(0.0), 1.0)
    ratio = of_equals.select_if(smaller.equals(larger), smaller / larger)
    angle = ratio * polynomial(ratio * ratio, _ATAN_CURVE)
    angle = (math.pi / 2 - angle).select_if(is_steep, angle)
    return copy_sign((math.pi - angle).select_if(sign_bit(x), angle), y)


def _other_leg(x: Term) -> Term:
    """sqrt(1 - x**2); NaN beyond 1."""
    return ((1.0 - x) * (x + 1.0)).call("sqrt")


atan2 = _wide(_atan2)
atan = _wide(lambda x: _atan2(x, x.like(1.0)))
asin = _wide(lambda x: _atan2(x, _other_leg(x)))
acos = _wide(lambda x: _atan2(_other_leg(x), x))

# -- the error function -----------------------------------------------------------------------------------------------

_ERF_NEAR = (
    *(1.128379167067801, -0.3761263842756536, 0.11283778252470257, -0.026864742521144784, 0.005216689980000737),
    *(-0.0008355366444422221, 9.461261598201867e-05),
)
_ERFC_CURVE = (
    *(0.28209716414094016, 0.2820178619000499, 0.24793400656196352, 0.1671322753185761, 0.13317115505072633),
    *(-0.18438089708633443, 0.39149450245879786, -0.800762963283742, 0.7663637890659057, -0.3226060558850331),
    *(0.007005381109243013, 0.04084581854802955, -0.010312038064881622),
)


def _erfc_of_positive(a: Term) -> Term:
    """exp(-a**2) * t * curve(t) for t = 1 / (1 + a / 2)."""
    t = 1.0 / (a * 0.5 + 1.0)
    return _exp(-(a * a)) * (t * polynomial(t, _ERFC_CURVE))


def _erf(x: Term) -> Term:
    a = absolute(x)
    near = x * polynomial(x * x, _ERF_NEAR)
    return near.select_if(a < 0.75, copy_sign(1.0 - _erfc_of_positive(a), x))


def _erfc(x: Term) -> Term:
    tail = _erfc_of_positive(absolute(x))
    return (2.0 - tail).select_if(x < 0.0, tail)


erf = _wide(_erf)
erfc = _wide(_erfc)
