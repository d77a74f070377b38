"""The error and gamma functions."""

from __future__ import annotations

import math

from stagekit.intrinsics import reference, wide
from stagekit.intrinsics.families import define_library

erf = define_library(
    "erf",
    reference.each_lane(math.erf, math.nan),
    "erf",
    "The error function.",
    "7.12.8.1",
    ulp=(2, 1),
    single=wide.erf,
)
erfc = define_library(
    "erfc",
    reference.each_lane(math.erfc, math.nan),
    "erfc",
    "1 - erf(x), accurate where that is small.",
    "7.12.8.2",
    ulp=(5, 3),
    single=wide.erfc,
)
gamma = define_library(
    "gamma",
    reference.each_lane(math.gamma, reference.gamma_at_edge),
    "tgamma",
    "The gamma function; infinite at 0, NaN at the negative whole numbers.",
    "7.12.8.4",
    ulp=(10, 10),
)
lgamma = define_library(
    "lgamma",
    reference.each_lane(reference.lgamma, math.inf),
    "lgamma",
    "log(abs(gamma(x))); +inf at the poles of `gamma`. Relative accuracy is lost near the zeros below -2.",
    "7.12.8.3",
    ulp=(6, 6),
)
