"""Derive the polynomials of `exponentials.py`, `special_functions.py` and `trigonometry.py` anew, and compare them with theirs.

    python tools/minimax.py          (needs mpmath)

Each is the polynomial of its degree with the smallest largest weighted error on an interval, found by the Remez exchange
algorithm at 160 bits and then rounded to the dtype it is evaluated in.
Source: Muller, "Elementary Functions", 2016, chapter 3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

from stagekit.dtypes import float32, float64
from stagekit.intrinsics import exponentials, special_functions, trigonometry

mp.mp.prec = 160
GRID = 1200  # points on which extrema are looked for
ROUNDS = 12
TINY = mp.mpf(2) ** -40  # below it a quotient is replaced by its limit

Real = Any
Function = Callable[[Real], Real]


@dataclass(frozen=True)
class Fit:
    """Approximate `target` on [low, high] by a polynomial of `degree`; `weight` makes its error one of the final result."""

    name: str
    target: Function
    weight: Function
    low: Real
    high: Real
    degree: int
    dtype: type
    in_use: Sequence[float]


def remez(fit: Fit) -> list[Real]:
    """Coefficients, lowest first: solve for equal errors of alternating sign, move the points to the extrema, repeat."""
    middle, radius = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    grid = [middle - radius * mp.cos(mp.pi * i / GRID) for i in range(GRID + 1)]
    values = [(x, fit.target(x), fit.weight(x) + mp.mpf(10) ** -40) for x in grid]
    count = fit.degree + 2
    chosen = [values[round(GRID * (i + 0.5) / count)] for i in range(count)]
    coefficients: list[Real] = []
    for _ in range(ROUNDS):
        coefficients = _levelled(chosen, fit.degree)
        chosen = _extrema(coefficients, values, count)
    return coefficients


def _levelled(points: Sequence[tuple[Real, Real, Real]], degree: int) -> list[Real]:
    size = degree + 2
    matrix, right = mp.matrix(size, size), mp.matrix(size, 1)
    for row, (x, value, weight) in enumerate(points):
        for power in range(degree + 1):
            matrix[row, power] = x**power
        matrix[row, degree + 1] = (-1) ** row / weight
        right[row] = value
    return list(mp.lu_solve(matrix, right))[: degree + 1]


def _extrema(coefficients: Sequence[Real], values: Sequence[tuple[Real, Real, Real]], count: int) -> list[Any]:
    """The largest error of each run of one sign; of surplus runs the smaller at the ends go."""
    runs: list[list[tuple[Real, int]]] = []
    sign = 0
    for place, (x, value, weight) in enumerate(values):
        error = weight * (value - mp.polyval(list(reversed(coefficients)), x))
        if mp.sign(error) != sign:
            runs.append([])
            sign = mp.sign(error)
        runs[-1].append((abs(error), place))
    peaks = [max(run) for run in runs]
    while len(peaks) > count:
        peaks.pop(0 if peaks[0][0] < peaks[-1][0] else -1)
    if len(peaks) < count:
        raise ArithmeticError(f"{len(peaks)} alternations, needed {count}")
    return [values[place] for _, place in peaks]


def _quotient(numerator: Function, denominator: Function, limit: Function) -> Function:
    """numerator / denominator, near 0 the first terms of its series."""
    return lambda x: numerator(x) / denominator(x) if abs(x) > TINY else limit(x)


LN2 = mp.log(2)
HALF_LN2 = LN2 / 2 * mp.mpf("1.0005")
LOW_F, HIGH_F = mp.sqrt(mp.mpf(1) / 2) - 1 - mp.mpf("1e-6"), mp.sqrt(2) - 1 + mp.mpf("1e-6")
ATANH_HIGH = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mp.mpf("1.0001")) ** 2
QUARTER_TURN = (mp.pi / 4 * mp.mpf("1.001")) ** 2

exp_curve = _quotient(lambda r: mp.exp(r) - 1 - r, lambda r: r * r, lambda r: mp.mpf(1) / 2 + r / 6)
exp2_curve = _quotient(lambda r: mp.expm1(r * LN2), lambda r: r, lambda r: LN2 + r * LN2**2 / 2)
log_curve = _quotient(lambda f: mp.log1p(f) - f + f * f / 2, lambda f: f**3, lambda f: mp.mpf(1) / 3 - f / 4)
tanh_curve = _quotient(
    lambda u: mp.tanh(mp.sqrt(u)) / mp.sqrt(u) - 1, lambda u: u, lambda u: -mp.mpf(1) / 3 + 2 * u / 15
)
sin_curve = _quotient(lambda u: mp.sin(mp.sqrt(u)) / mp.sqrt(u) - 1, lambda u: u, lambda u: -mp.mpf(1) / 6 + u / 120)
cos_curve = _quotient(lambda u: mp.cos(mp.sqrt(u)) - 1 + u / 2, lambda u: u * u, lambda u: mp.mpf(1) / 24 - u / 720)
atanh_curve = _quotient(
    lambda z: 2 * mp.atanh(mp.sqrt(z)) - 2 * mp.sqrt(z), lambda z: mp.sqrt(z) * z, lambda z: mp.mpf(2) / 3 + 2 * z / 5
)
atan_curve = _quotient(lambda u: mp.atan(mp.sqrt(u)), mp.sqrt, lambda u: 1 - u / 3)
erf_curve = _quotient(lambda u: mp.erf(mp.sqrt(u)), mp.sqrt, lambda u: 2 / mp.sqrt(mp.pi) * (1 - u / 3))


def log_in_base_curve(base: int) -> tuple[Function, Function]:
    """Target and weight of (log(1 + f) - f) / f**2 in a base."""
    unit = 1 / mp.log(base)
    curve = _quotient(lambda f: (mp.log1p(f) - f) * unit, lambda f: f * f, lambda f: unit * (-mp.mpf(1) / 2 + f / 3))
    return curve, lambda f: abs(f * f / (mp.log1p(f) * unit)) if f else mp.mpf(0)


def erfc_curve(t: Real) -> Real:
    a = 2 * (1 / t - 1)
    return mp.exp(a * a) * mp.erfc(a) / t


def _relative_of(curve: Function, offset: int) -> Function:
    """Weight of a curve u * curve(u) + offset, relative to that."""
    return lambda u: u / (offset + u * curve(u))


ONE = mp.mpf(1)
ZERO = mp.mpf(0)
EXP_WEIGHT: Function = lambda r: r * r / mp.exp(r)  # noqa: E731
FITS = (
    Fit("exp, float32", exp_curve, EXP_WEIGHT, -HALF_LN2, HALF_LN2, 4, np.float32, exponentials._EXP[float32].curve),
    Fit("exp, float64", exp_curve, EXP_WEIGHT, -HALF_LN2, HALF_LN2, 10, np.float64, exponentials._EXP[float64].curve),
    Fit(
        "exp2",
        exp2_curve,
        lambda r: abs(r) / mp.mpf(2) ** r,
        -mp.mpf("0.5001"),
        mp.mpf("0.5001"),
        5,
        np.float32,
        exponentials._EXP2_CURVE,
    ),
    Fit(
        "log",
        log_curve,
        lambda f: abs(f**3 / mp.log1p(f)) if f else ZERO,
        LOW_F,
        HIGH_F,
        7,
        np.float32,
        exponentials._LOG_CURVE,
    ),
    Fit("log2", *log_in_base_curve(2), LOW_F, HIGH_F, 8, np.float32, exponentials._LOG2_SINGLE.curve),
    Fit("log10", *log_in_base_curve(10), LOW_F, HIGH_F, 8, np.float32, exponentials._LOG10_SINGLE.curve),
    Fit("atanh, float64", atanh_curve, lambda z: z / 2, ZERO, ATANH_HIGH, 6, np.float64, exponentials._ATANH_CURVE),
    Fit(
        "tanh",
        tanh_curve,
        _relative_of(tanh_curve, 1),
        ZERO,
        mp.mpf("0.625") ** 2,
        4,
        np.float32,
        trigonometry._TANH_CURVE,
    ),
    Fit("sin", sin_curve, _relative_of(sin_curve, 1), ZERO, QUARTER_TURN, 3, np.float32, trigonometry._SIN_CURVE),
    Fit(
        "cos",
        cos_curve,
        lambda u: u * u / mp.cos(mp.sqrt(u)),
        ZERO,
        QUARTER_TURN,
        2,
        np.float32,
        trigonometry._COS_CURVE,
    ),
    Fit("atan", atan_curve, lambda u: 1 / atan_curve(u), ZERO, ONE, 11, np.float64, trigonometry._ATAN_CURVE),
    Fit(
        "erf", erf_curve, lambda u: 1 / erf_curve(u), ZERO, mp.mpf("0.5625"), 6, np.float64, special_functions._ERF_NEAR
    ),
    Fit(
        "erfc",
        erfc_curve,
        lambda t: 1 / erfc_curve(t),
        1 / mp.mpf("6.2"),
        ONE,
        12,
        np.float64,
        special_functions._ERFC_CURVE,
    ),
)


def main() -> int:
    """Print each polynomial; the exit status counts those whose values in use are not within rounding of it."""
    different = 0
    for fit in FITS:
        found = [float(fit.dtype(float(c))) for c in remez(fit)]
        same = np.allclose(found, fit.in_use, rtol=1e-3, atol=0)
        different += not same
        sys.stdout.write(f"{fit.name}: {'as in use' if same else 'DIFFERENT'}\n    {found}\n")
    return different


if __name__ == "__main__":
    sys.exit(main())
