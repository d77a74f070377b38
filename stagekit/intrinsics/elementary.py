"""exp, exp2, log, log2, log10, tanh, sin, cos and tan in core ops: the same bits on every target, and fast as vectors.

    exp(x) = 2**n * e**r,            n = rint(x / ln 2),      |r| <= ln(2) / 2
    log(x) = n * ln 2 + log(1 + f),  x = 2**n * (1 + f),      sqrt(1/2) <= 1 + f < sqrt(2)
    sin(x) = +-sin(r) or +-cos(r),   n = rint(x / (pi/2)),    |r| <= pi / 4

Straight-line code but for one branch: the range reduction of sin and cos beyond 2**16. NaN, infinities, zeros, subnormal
arguments and results are right; the largest errors are in the records. Polynomials: minimax, by the Remez exchange algorithm
run at 160 bits and rounded (`tools/minimax.py` prints them). Constants in two parts: the first has the trailing zeros that
make its product with n exact, where that is needed, and the second the rest.
Source: Muller, "Elementary Functions", 2016, chapters 3 (Remez), 11 (range reduction; Payne and Hanek for large arguments).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from stagekit.dtypes import float32, float64, int32, int64, uint64
from stagekit.intrinsics.expansions import absolute, copy_sign, is_finite, power_of_two, two_sum
from stagekit.intrinsics.terms import Term, branch


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """The value at x of a polynomial, lowest coefficient first, by Horner's rule."""
    *lower, highest = coefficients
    value = x.like(highest)
    for coefficient in reversed(lower):
        value = value.fma(x, coefficient)
    return value


# -- exponentials -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Exponential:
    """lowest, highest: arguments beyond which the result is 0 or infinity. e**r = 1 + r + r**2 * curve(r)."""

    lowest: float
    highest: float
    ln2: tuple[float, float]
    curve: tuple[float, ...]


_EXP = {
    float32: _Exponential(
        lowest=-104.0,
        highest=89.0,
        ln2=(0.693145751953125, 1.428606765330187e-06),
        curve=(0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514, 0.0013814540579915047),
    ),
    float64: _Exponential(
        lowest=-746.0,
        highest=710.0,
        ln2=(0.6931471806019545, -4.2009150726810846e-11),
        curve=(
            *(0.5, 0.16666666666666682, 0.041666666666666095, 0.008333333333316982, 0.0013888888889116364),
            *(0.00019841269896515344, 2.4801586925712098e-05, 2.7557234727575547e-06, 2.7557582286138065e-07),
            *(2.511208459778991e-08, 2.0826581611188987e-09),
        ),
    ),
}


def exp(x: Term) -> Term:
    row = _EXP[x.dtype]
    inside = _clamped(x, row.lowest, row.highest)
    n = (inside * (1 / math.log(2))).call("rint")
    r = (-n).fma(row.ln2[1], (-n).fma(row.ln2[0], inside))
    return _scaled_up(_one_plus(r, row.curve), n)


def exp2(x: Term) -> Term:
    """2**r as e**(r ln 2), whose argument is kept in two parts."""
    row = _EXP[x.dtype]
    inside = _clamped(x, row.lowest / math.log(2), row.highest / math.log(2))
    n = inside.call("rint")
    r = inside - n
    high = r * math.log(2)
    low = r.fma(math.log(2), -high) + r * _LN2_REST[x.dtype]
    return _scaled_up(high.fma(high * polynomial(high, row.curve), low) + high + 1.0, n)


_LN2_REST = {float32: -1.9046542121259336e-09, float64: 2.3190468138462996e-17}  # ln 2 minus its rounding


def _one_plus(r: Term, curve: tuple[float, ...]) -> Term:
    """1 + r + r**2 * curve(r), smallest part first."""
    return (r * r).fma(polynomial(r, curve), r) + 1.0


def _clamped(x: Term, lowest: float, highest: float) -> Term:
    """NaN stays NaN: no comparison holds for it."""
    above = x.like(lowest).select_if(x < lowest, x)
    return x.like(highest).select_if(above > highest, above)


def _scaled_up(x: Term, n: Term) -> Term:
    """x * 2**n in two steps, as 2**n itself may be infinite or subnormal where the product is not."""
    whole = n.cast(int32)
    half = whole >> 1
    return x * power_of_two(half, x.dtype) * power_of_two(whole - half, x.dtype)


def tanh(x: Term) -> Term:
    """float32 only. Near 0 an odd polynomial, else 1 - 2 / (e**2x + 1), where little is left to lose."""
    a = absolute(x)
    square = a * a
    near = (a * square).fma(polynomial(square, _TANH_CURVE), a)
    far = 1.0 - 2.0 / (exp(a + a) + 1.0)
    return copy_sign(near.select_if(a < 0.625, far), x)


_TANH_CURVE = (
    -0.3333328068256378,
    0.13331441581249237,
    -0.05373971536755562,
    0.0206390880048275,
    -0.005704986862838268,
)


# -- logarithms -------------------------------------------------------------------------------------------------------


def _split(x: Term) -> tuple[Term, Term]:
    """(n, f) with x = 2**n * (1 + f) for finite x > 0: n as a float, f exact."""
    layout = x.dtype.layout
    integers = int32 if x.dtype is float32 else int64
    lift = layout.fraction_bits + 1
    is_small = x < 2.0 ** (1 - layout.bias)
    bits = (x * 2.0**lift).select_if(is_small, x).bits
    # Counted from sqrt(1/2), the exponent field steps where 1 + f passes sqrt(2).
    start = absolute(x.like(math.sqrt(0.5))).bits
    steps = (bits - start).bitcast(integers) >> layout.fraction_bits
    mantissa = (bits - (steps << layout.fraction_bits).bits).bitcast(x.dtype)
    n = (steps - steps.like(lift).select_if(is_small, 0)).cast(x.dtype)
    return n, mantissa - 1.0


def _at_edges(x: Term, inside: Term) -> Term:
    """A logarithm with the results for infinity, NaN, zeros and negative numbers."""
    result = inside.select_if(x < math.inf, x)
    result = result.select_if(x.differs(0.0), -math.inf)
    return result.like(math.nan).select_if(x < 0.0, result)


@dataclass(frozen=True, slots=True)
class _Logarithm:
    """A base: log(2) and log(e) in it, each in two parts; log(1 + f) = f * log(e) + f**2 * curve(f)."""

    of_2: tuple[float, float]
    of_e: tuple[float, float]
    curve: tuple[float, ...]


_LOG_CURVE = (
    *(0.3333333134651184, -0.2500081956386566, 0.20001226663589478, -0.16623356938362122),
    *(0.14201755821704865, -0.13160184025764465, 0.12761592864990234, -0.07634513080120087),
)
_LOG2_SINGLE = _Logarithm(
    of_2=(1.0, 0.0),
    of_e=(1.4426950216293335, 1.925963033500011e-08),
    curve=(
        *(-0.7213473320007324, 0.4808982312679291, -0.36069658398628235, 0.2885674834251404, -0.23961839079856873),
        *(0.20460045337677002, -0.191056028008461, 0.18617191910743713, -0.1099591851234436),
    ),
)
_LOG10_SINGLE = _Logarithm(
    of_2=(0.301025390625, 4.605039066518657e-06),
    of_e=(0.4342944920063019, -1.0103049952192578e-08),
    curve=(
        *(-0.21714718639850616, 0.14476479589939117, -0.10858049243688583, 0.08686746656894684, -0.07213232666254044),
        *(0.06159087270498276, -0.05751359462738037, 0.05604333057999611, -0.03310101479291916),
    ),
)
_LOG2_DOUBLE = _Logarithm(of_2=(1.0, 0.0), of_e=(1.4426950408889634, 2.0355273740931033e-17), curve=())
_LOG10_DOUBLE = _Logarithm(
    of_2=(0.3010299956640665, -8.532344317057107e-14), of_e=(0.4342944819032518, 1.098319650216765e-17), curve=()
)


def log(x: Term) -> Term:
    n, f = _split(x)
    ln2 = _EXP[x.dtype].ln2
    if x.dtype is float64:
        half_square, rest = _log_parts(f)
        return _at_edges(x, n * ln2[0] - ((half_square - (rest + n * ln2[1])) - f))
    curve = f.fma(polynomial(f, _LOG_CURVE), -0.5)
    return _at_edges(x, n.fma(ln2[0], (f * f).fma(curve, n * ln2[1]) + f))


def log2(x: Term) -> Term:
    return _log_in_base(x, _LOG2_SINGLE, _LOG2_DOUBLE)


def log10(x: Term) -> Term:
    return _log_in_base(x, _LOG10_SINGLE, _LOG10_DOUBLE)


def _log_in_base(x: Term, single: _Logarithm, double: _Logarithm) -> Term:
    n, f = _split(x)
    inside = _log_single(n, f, single) if x.dtype is float32 else _log_double(n, f, double)
    return _at_edges(x, inside)


def _log_single(n: Term, f: Term, base: _Logarithm) -> Term:
    curved = (f * f).fma(polynomial(f, base.curve), f * base.of_e[1])
    return n.fma(base.of_2[0], n.fma(base.of_2[1], f.fma(base.of_e[0], curved)))


def _log_double(n: Term, f: Term, base: _Logarithm) -> Term:
    """log(1 + f) in two parts, times log(e) in two parts, plus n times log(2), the parts added largest first."""
    half_square, rest = _log_parts(f)
    high = f - half_square
    low = (f - high) - half_square + rest
    product = high * base.of_e[0]
    product_rest = high.fma(base.of_e[0], -product) + (low + high) * base.of_e[1] + low * base.of_e[0]
    whole = n * base.of_2[0]
    total = whole + product
    return total + (((whole - total) + product) + n.fma(base.of_2[1], product_rest))


def _log_parts(f: Term) -> tuple[Term, Term]:
    """(f**2 / 2, rest) with log(1 + f) = f - f**2 / 2 + rest, from 2 * atanh(s) for s = f / (2 + f)."""
    half_square = f * 0.5 * f
    s = f / (f + 2.0)
    square = s * s
    return half_square, s * square.fma(polynomial(square, _ATANH_CURVE), half_square)


_ATANH_CURVE = (
    *(0.6666666666666734, 0.3999999999941396, 0.2857142874256256, 0.222221985537563),
    *(0.18183565408137778, 0.15314021109763368, 0.14796261140163616),
)


# -- sine, cosine, tangent (float32 only) -----------------------------------------------------------------------------

_SIN_CURVE = (-0.1666666716337204, 0.008333329111337662, -0.0001983930415008217, 2.718046516747563e-06)
_COS_CURVE = (0.04166664555668831, -0.0013887309469282627, 2.443241282890085e-05)
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_LARGE = 65536.0  # from here on a product with _HALF_PI could lose bits


@dataclass(frozen=True, slots=True)
class _Reduced:
    """An angle a >= 0 as quadrant * pi/2 + r + rest, |r| <= pi/4 nearly, rest a part in 2**24 of r; NaN of an infinity."""

    r: Term
    rest: Term
    quadrant: Term


def sin(x: Term) -> Term:
    """Of |x|, then the sign of x: so that -0.0 stays -0.0."""
    angle = _reduce(absolute(x))
    value = _sine(angle).select_if((angle.quadrant & 1).equals(0), _cosine(angle))
    return _negated_if(value, x.bits ^ (angle.quadrant << 30).bits)


def cos(x: Term) -> Term:
    """sin(x + pi/2): one quadrant on."""
    angle = _reduce(absolute(x))
    value = _cosine(angle).select_if((angle.quadrant & 1).equals(0), _sine(angle))
    return _negated_if(value, (angle.quadrant + 1 << 30).bits)


def tan(x: Term) -> Term:
    """The quotient of the two, which is the same in opposite quadrants."""
    angle = _reduce(absolute(x))
    sine, cosine = _sine(angle), _cosine(angle)
    is_even = (angle.quadrant & 1).equals(0)
    return _negated_if(sine.select_if(is_even, -cosine) / cosine.select_if(is_even, sine), x.bits)


def _negated_if(value: Term, sign: Term) -> Term:
    """`value` with its sign flipped where the highest bit of `sign` is set."""
    return (value.bits ^ (sign & 0x80000000)).bitcast(float32)


def _sine(angle: _Reduced) -> Term:
    """sin(r + rest) = r + (r**3 * curve + rest * (1 - r**2 / 2)), the small part rounded before it is added."""
    r, square = angle.r, angle.r * angle.r
    rest = (angle.rest * square).fma(-0.5, angle.rest)
    return (r * square).fma(polynomial(square, _SIN_CURVE), rest) + r


def _cosine(angle: _Reduced) -> Term:
    """cos(r + rest) = 1 - r**2 / 2 + (r**4 * curve - r * rest), with what 1 - r**2 / 2 loses put back."""
    square = angle.r * angle.r
    near = square.fma(-0.5, 1.0)
    lost = square.fma(-0.5, 1.0 - near)
    return (square * square).fma(polynomial(square, _COS_CURVE), (-angle.r).fma(angle.rest, lost)) + near


def _reduce(a: Term) -> _Reduced:
    r, rest, quadrant = branch(a < _LARGE, lambda: _reduce_near(a), lambda: _reduce_far(a))
    return _Reduced(r.select_if(is_finite(a), math.nan), rest, quadrant)


def _reduce_near(a: Term) -> tuple[Term, Term, Term]:
    """Subtract n * pi/2 in three parts. What the first leaves is exact; what is lost with the second goes to the rest."""
    n = (a * (2 / math.pi)).call("rint")
    left = (-n).fma(_HALF_PI[0], a)
    second = n * -_HALF_PI[1]
    second_rest = (-n).fma(_HALF_PI[1], -second)
    r, lost = two_sum(left, second)
    return r, (-n).fma(_HALF_PI[2], lost + second_rest), n.cast(int32)


def _reduce_far(a: Term) -> tuple[Term, Term, Term]:
    """Multiply the mantissa by the 96 bits of 2/pi that matter: those above only add multiples of 4 quadrants.

    The product has two bits before the point, the quadrant; the fraction, read as signed, is what is left.
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
    """fraction * (pi/2) / 2**64 in two parts."""
    near = fraction.cast(float32)
    below = (fraction - near.cast(int64)).cast(float32)
    unit, unit_rest = _HALF_PI[0] / 2**64, _HALF_PI[1] / 2**64
    r = near * unit
    return r, near.fma(unit, -r) + below.fma(unit, near * unit_rest)


def _word_from(index: Term, words: Sequence[int]) -> Term:
    """words[index] for an index of 0 to 4, without memory."""
    word = index.like(words[0])
    for place in range(1, 5):
        word = word.like(words[place]).select_if(index.equals(place), word)
    return word


# The first 224 bits of 2/pi, after a word of zeros.
_TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)
