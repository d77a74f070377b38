"""Circular and hyperbolic functions, their inverses, and angles in degrees.

    sin(x) = +-sin(r) or +-cos(r),   n = rint(x / (pi/2)),    |r| <= pi / 4

There is one branch: the range reduction of sin, cos and tan beyond 2**16. `exponentials.py` says where polynomials
and constants come from. Source: Muller, "Elementary Functions", 2016, chapter 11 (range reduction; Payne and Hanek for large
arguments).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stagekit.dtypes import float32, int32, int64, uint64
from stagekit.intrinsics.expansions import absolute, copy_sign, is_finite, polynomial, sign_bit, two_sum
from stagekit.intrinsics.exponentials import e_to_the
from stagekit.intrinsics.families import define_library, hardware, in_float64, own, with_taylor
from stagekit.intrinsics.terms import Term, branch, expand


@own("An angle in radians as degrees.", "Python, math.degrees", np.degrees, ulp=1.5)
def degrees(x: Term) -> Term:
    return x * (180 / math.pi)


@own("An angle in degrees as radians.", "Python, math.radians", np.radians, ulp=1.5)
def radians(x: Term) -> Term:
    return x * (math.pi / 180)


# -- sine, cosine, tangent of float32 ---------------------------------------------------------------------------------

_SIN_CURVE = (-0.1666666716337204, 0.008333329111337662, -0.0001983930415008217, 2.718046516747563e-06)
_COS_CURVE = (0.04166664555668831, -0.0013887309469282627, 2.443241282890085e-05)
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_LARGE = 65536.0  # from here on a product with _HALF_PI could lose bits


class _Reduced(NamedTuple):
    """An angle a >= 0 as quadrant * pi/2 + r + rest, |r| <= pi/4 nearly, rest a part in 2**24 of r; NaN of an infinity."""

    r: Term
    rest: Term
    quadrant: Term


@own(
    "The sine of an angle in radians.",
    "C23, 7.12.4.6",
    np.sin,
    ulp=1,
    double_ulp=(2, 1),
    fast=hardware("sin.approx$ftz.f32"),
)
def sin(x: Term) -> Term:
    """Take the sine of |x|, then the sign of x, so that -0.0 stays -0.0."""
    angle = _reduce(absolute(x))
    value = _sine(angle).select_if((angle.quadrant & 1).equals(0), _cosine(angle))
    return _negated_if(value, x.bits ^ (angle.quadrant << 30).bits)


@own(
    "The cosine of an angle in radians.",
    "C23, 7.12.4.5",
    np.cos,
    ulp=1,
    double_ulp=(2, 1),
    fast=hardware("cos.approx$ftz.f32"),
)
def cos(x: Term) -> Term:
    """Compute sin(x + pi/2), one quadrant further."""
    angle = _reduce(absolute(x))
    value = _cosine(angle).select_if((angle.quadrant & 1).equals(0), _sine(angle))
    return _negated_if(value, (angle.quadrant + 1 << 30).bits)


@own(
    "The tangent of an angle in radians.",
    "C23, 7.12.4.7",
    np.tan,
    ulp=2,
    double_ulp=(2, 1),
    fast=expand(lambda x: x.call("sin") / x.call("cos")),
)
def tan(x: Term) -> Term:
    """Divide sine by cosine; the quotient is the same in opposite quadrants."""
    angle = _reduce(absolute(x))
    sine, cosine = _sine(angle), _cosine(angle)
    is_even = (angle.quadrant & 1).equals(0)
    return _negated_if(sine.select_if(is_even, -cosine) / cosine.select_if(is_even, sine), x.bits)


def _negated_if(value: Term, sign: Term) -> Term:
    """Return `value`, negated where the highest bit of `sign` is set."""
    return (value.bits ^ (sign & 0x80000000)).bitcast(float32)


def _sine(angle: _Reduced) -> Term:
    """Return sin(r + rest) = r + (r**3 * curve + rest * (1 - r**2 / 2)), the small part rounded before it is added."""
    r, square = angle.r, angle.r * angle.r
    rest = (angle.rest * square).fma(-0.5, angle.rest)
    return (r * square).fma(polynomial(square, _SIN_CURVE), rest) + r


def _cosine(angle: _Reduced) -> Term:
    """Return cos(r + rest) = 1 - r**2 / 2 + (r**4 * curve - r * rest), plus what rounding 1 - r**2 / 2 loses."""
    square = angle.r * angle.r
    near = square.fma(-0.5, 1.0)
    lost = square.fma(-0.5, 1.0 - near)
    return (square * square).fma(polynomial(square, _COS_CURVE), (-angle.r).fma(angle.rest, lost)) + near


def _reduce(a: Term) -> _Reduced:
    r, rest, quadrant = branch(a < _LARGE, lambda: _reduce_near(a), lambda: _reduce_far(a))
    return _Reduced(r.select_if(is_finite(a), math.nan), rest, quadrant)


def _reduce_near(a: Term) -> tuple[Term, Term, Term]:
    """Subtract n * pi/2 in three parts. The first difference is exact; the rounding error of the second goes to the rest."""
    n = (a * (2 / math.pi)).call("rint")
    left = (-n).fma(_HALF_PI[0], a)
    second = n * -_HALF_PI[1]
    second_rest = (-n).fma(_HALF_PI[1], -second)
    r, lost = two_sum(left, second)
    return r, (-n).fma(_HALF_PI[2], lost + second_rest), n.cast(int32)


def _reduce_far(a: Term) -> tuple[Term, Term, Term]:
    """Multiply the mantissa by the 96 bits of 2/pi that matter: higher ones only add multiples of 4 quadrants.

    The product has two bits before the point, the quadrant; the fraction, read as signed, is the reduced angle.
    """
    mantissa = (a.bits & 0x7FFFFF | 0x800000).cast(uint64)
    first_bit = (a.bits >> 23) - 120
    shift = first_bit & 31
    words = [_word_from(first_bit >> 5, _TWO_OVER_PI[i:]) for i in range(4)]
    high, middle, low = (
        left.call("funnel_shift_left", right, shift).cast(uint64) for left, right in itertools.pairwise(words)
    )
    carried = mantissa * middle + (mantissa * low >> 32)
    product = (mantissa * high + (carried >> 32) << 32) | (carried & 0xFFFFFFFF)
    fraction = (product << 2).bitcast(int64)
    quadrant = (product >> 62).cast(int32) + (fraction < 0).cast(int32)
    return *_times_quarter_turn(fraction), quadrant


def _times_quarter_turn(fraction: Term) -> tuple[Term, Term]:
    """Return fraction * (pi/2) / 2**64 in two parts."""
    near = fraction.cast(float32)
    below = (fraction - near.cast(int64)).cast(float32)
    unit, unit_rest = _HALF_PI[0] / 2**64, _HALF_PI[1] / 2**64
    r = near * unit
    return r, near.fma(unit, -r) + below.fma(unit, near * unit_rest)


def _word_from(index: Term, words: Sequence[int]) -> Term:
    """Return words[index] for an index of 0 to 4, without memory."""
    word = index.like(words[0])
    for place in range(1, 5):
        word = word.like(words[place]).select_if(index.equals(place), word)
    return word


# The first 224 bits of 2/pi, after a word of zeros.
_TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)

# -- inverses ---------------------------------------------------------------------------------------------------------

_ATAN_CURVE = (
    *(0.9999999999412377, -0.3333333157123567, 0.19999912052136407, -0.14283980771210944, 0.11093241365525815),
    *(-0.08980239632968641, 0.07245719912386024, -0.05427913746646539, 0.0342096437431366, -0.01611170621398098),
    *(0.0048509440843478345, -0.0006847942833091654),
)


def _atan2(y: Term, x: Term) -> Term:
    """Take the angle of the smaller side over the larger, then use symmetry. Equal sides give 45 degrees, two zeros 0."""
    a, b = absolute(y), absolute(x)
    is_steep = a > b
    smaller, larger = b.select_if(is_steep, a), a.select_if(is_steep, b)
    of_equals = larger.like(0.0).select_if(larger.equals(0.0), 1.0)
    ratio = of_equals.select_if(smaller.equals(larger), smaller / larger)
    angle = ratio * polynomial(ratio * ratio, _ATAN_CURVE)
    angle = (math.pi / 2 - angle).select_if(is_steep, angle)
    return copy_sign((math.pi - angle).select_if(sign_bit(x), angle), y)


def _other_leg(x: Term) -> Term:
    """Return sqrt(1 - x**2); NaN beyond 1."""
    return ((1.0 - x) * (x + 1.0)).call("sqrt")


asin = define_library(
    "asin",
    np.arcsin,
    "The angle in [-pi/2, pi/2] with this sine.",
    "7.12.4.2",
    ulp=(4, 1),
    single=in_float64(lambda x: _atan2(x, _other_leg(x))),
)
acos = define_library(
    "acos",
    np.arccos,
    "The angle in [0, pi] with this cosine.",
    "7.12.4.1",
    ulp=(2, 1),
    single=in_float64(lambda x: _atan2(_other_leg(x), x)),
)
atan = define_library(
    "atan",
    np.arctan,
    "The angle in [-pi/2, pi/2] with this tangent.",
    "7.12.4.3",
    ulp=(2, 1),
    single=in_float64(lambda x: _atan2(x, x.like(1.0))),
)
atan2 = define_library(
    "atan2",
    np.arctan2,
    "The angle in [-pi, pi] of the point (x, y), `y` given first.",
    "7.12.4.4",
    ulp=(3, 1),
    single=in_float64(_atan2),
    args=("y", "x"),
)

# -- hyperbolic functions ---------------------------------------------------------------------------------------------


@own(
    "The hyperbolic tangent.",
    "C23, 7.12.5.6",
    np.tanh,
    ulp=1,
    double_ulp=(2, 2),
    fast=hardware("tanh.approx.f32"),
    fast_ulp=8192,
)
def tanh(x: Term) -> Term:
    """Evaluate an odd polynomial near 0, else 1 - 2 / (e**2x + 1), which loses few digits there."""
    a = absolute(x)
    square = a * a
    near = (a * square).fma(polynomial(square, _TANH_CURVE), a)
    far = 1.0 - 2.0 / (e_to_the(a + a) + 1.0)
    return copy_sign(near.select_if(a < 0.625, far), x)


_TANH_CURVE = (
    -0.3333328068256378,
    0.13331441581249237,
    -0.05373971536755562,
    0.0206390880048275,
    -0.005704986862838268,
)


def _asinh(x: Term) -> Term:
    a = absolute(x)
    return copy_sign((a + (a * a + 1.0).call("sqrt")).call("log"), x)


def _acosh(x: Term) -> Term:
    inside = (x + (x * x - 1.0).call("sqrt")).call("log")
    return inside.like(math.nan).select_if(x < 1.0, inside)


_SINH = with_taylor(lambda x: (x.call("exp") - (-x).call("exp")) * 0.5, 0.0, 1 / 6)
_COSH = in_float64(lambda x: (x.call("exp") + (-x).call("exp")) * 0.5)
_ATANH = with_taylor(lambda x: ((x + 1.0) / (1.0 - x)).call("log") * 0.5, 0.0, 1 / 3)
sinh = define_library("sinh", np.sinh, "The hyperbolic sine.", "7.12.5.5", ulp=(3, 2), single=_SINH)
cosh = define_library("cosh", np.cosh, "The hyperbolic cosine.", "7.12.5.4", ulp=(2, 2), single=_COSH)
asinh = define_library(
    "asinh", np.arcsinh, "The inverse of `sinh`.", "7.12.5.2", ulp=(3, 2), single=with_taylor(_asinh, 0.0, -1 / 6)
)
acosh = define_library(
    "acosh", np.arccosh, "The inverse of `cosh`; NaN below 1.", "7.12.5.1", ulp=(4, 2), single=in_float64(_acosh)
)
atanh = define_library(
    "atanh", np.arctanh, "The inverse of `tanh`; NaN beyond 1.", "7.12.5.3", ulp=(3, 2), single=_ATANH
)
