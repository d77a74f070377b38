"""The error and gamma functions.

    erf(x) = x * near(x**2),  |x| < 0.75          erfc(x) = exp(-x**2) * t * curve(t),  x > 0,  t = 1 / (1 + x / 2)

The polynomials are minimax, and the records state the largest errors, as in `exponentials.py`, whose sources hold here too.
"""

from __future__ import annotations

import math

from stagekit.intrinsics import reference
from stagekit.intrinsics.expansions import absolute, copy_sign, polynomial
from stagekit.intrinsics.families import define_library, in_float64
from stagekit.intrinsics.terms import Term

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
    """Return exp(-a**2) * t * curve(t) for t = 1 / (1 + a / 2)."""
    t = 1.0 / (a * 0.5 + 1.0)
    return (-(a * a)).call("exp") * (t * polynomial(t, _ERFC_CURVE))


def _erf(x: Term) -> Term:
    a = absolute(x)
    near = x * polynomial(x * x, _ERF_NEAR)
    return near.select_if(a < 0.75, copy_sign(1.0 - _erfc_of_positive(a), x))


def _erfc(x: Term) -> Term:
    tail = _erfc_of_positive(absolute(x))
    return (2.0 - tail).select_if(x < 0.0, tail)


erf = define_library(
    "erf",
    reference.each_lane(math.erf, math.nan),
    "The error function.",
    "7.12.8.1",
    ulp=(2, 1),
    single=in_float64(_erf),
)
erfc = define_library(
    "erfc",
    reference.each_lane(math.erfc, math.nan),
    "1 - erf(x), accurate where that is small.",
    "7.12.8.2",
    ulp=(5, 3),
    single=in_float64(_erfc),
)
gamma = define_library(
    "gamma",
    reference.each_lane(math.gamma, reference.gamma_at_edge),
    "The gamma function; infinite at 0, NaN at the negative whole numbers.",
    "7.12.8.4",
    ulp=(10, 10),
    symbol="tgamma",
)
lgamma = define_library(
    "lgamma",
    reference.each_lane(reference.lgamma, math.inf),
    "log(abs(gamma(x))); +inf at the poles of `gamma`. Relative accuracy is lost near the zeros below -2.",
    "7.12.8.3",
    ulp=(6, 6),
)
