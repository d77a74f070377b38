"""Lowerings of math records to core ops, the same on every target: exact functions of bits, remainders and powers.

In: terms (`terms.py`). Out: a term. `x: f32` stands for any float dtype where bits alone decide.

    is_nan(x: f32)   ->  (bits(x) & 0x7fffffff) > 0x7f800000

Tests for NaN and infinity look at bits, so that they hold under `fastmath=True`, where a comparison may assume there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from stagekit.dtypes import DType, float32, float64, int32, int64, uint32, uint64
from stagekit.intrinsics.terms import Term, Terms, repeat_while
from stagekit.ir.semantics import Array

Number = TypeVar("Number", Term, Array)

# -- floats as bits ---------------------------------------------------------------------------------------------------


def _sign_mask(dtype: DType) -> int:
    return 1 << (dtype.bits - 1)


def _magnitude_bits(x: Term) -> Term:
    return x.bits & (_sign_mask(x.dtype) - 1)


def is_nan(x: Term) -> Term:
    return _magnitude_bits(x) > x.dtype.layout.infinity


def is_infinite(x: Term) -> Term:
    return _magnitude_bits(x).equals(x.dtype.layout.infinity)


def is_finite(x: Term) -> Term:
    return _magnitude_bits(x) < x.dtype.layout.infinity


def sign_bit(x: Term) -> Term:
    return (x.bits >> (x.dtype.bits - 1)).differs(0)


def absolute(x: Term) -> Term:
    return _magnitude_bits(x).bitcast(x.dtype)


def copy_sign(x: Term, sign: Term) -> Term:
    mask = _sign_mask(x.dtype)
    return (_magnitude_bits(x) | (sign.bits & mask)).bitcast(x.dtype)


def scale(x: Term, exponent: Term) -> Term:
    """Return x * 2**exponent, rounded once.

    Two steps bring the exponent into the range of normal powers, then one multiplication does the rest. A step down
    leaves at least `fraction_bits` + 1 for the last one, so that a result which the step had to round becomes 0 anyway.
    Source: musl, scalbn.c, for the idea.
    """
    layout = x.dtype.layout
    highest, lowest = layout.bias, 1 - layout.bias
    down = lowest + layout.fraction_bits + 1
    limit = 3 * highest  # beyond it every result is an infinity or a zero
    left = exponent.cast(int64).call("minimum", limit).call("maximum", -limit).cast(int32)
    for _ in range(2):
        too_high, too_low = left > highest, left < lowest
        x = (x * 2.0**highest).select_if(too_high, (x * 2.0**down).select_if(too_low, x))
        left = (left - highest).select_if(too_high, (left - down).select_if(too_low, left))
    return x * power_of_two(left.call("maximum", lowest), x.dtype)


def power_of_two(exponent: Term, dtype: DType) -> Term:
    """Return 2**exponent for an int32 `exponent` whose power is a normal number."""
    layout = dtype.layout
    raw = (exponent + layout.bias).cast(uint32 if dtype is float32 else uint64)
    return (raw << layout.fraction_bits).bitcast(dtype)


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """Return the value at x of a polynomial, lowest coefficient first, by Horner's rule."""
    *lower, highest = coefficients
    value = x.like(highest)
    for coefficient in reversed(lower):
        value = value.fma(x, coefficient)
    return value


def two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """Return a + b rounded, and exactly what the rounding lost. Source: Knuth, The Art of Computer Programming 2, 4.2.2."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fma_narrow(x: Term, y: Term, z: Term) -> Term:
    """Return x * y + z of 16-bit floats: float64 holds the product; the sum is rounded to odd there, then once."""
    product, addend = x.cast(float64) * y.cast(float64), z.cast(float64)
    total, error = two_sum(product, addend)
    is_inexact = error.differs(0.0) & is_finite(total) & (total.bits & 1).equals(0)
    grows = (error > 0.0).equals(total > 0.0)
    odd = (total.bits + total.bits.like(1).select_if(grows, -1)).bitcast(float64)
    return odd.select_if(is_inexact, total).cast(x.dtype)


# -- remainders -------------------------------------------------------------------------------------------------------


def fmod(x: Term, y: Term) -> Term:
    """Return the exact remainder of x / y truncated, with the sign of x; NaN for x infinite or y zero.

    Long division in base 2**digit: while r >= b, subtract the multiple q of b * 2**k with q < 2**(digit + 1). The quotient
    may be one too large, which the sign of r shows and one addition corrects; `fma` makes each r exact.
    One iteration for |x / y| < 2**digit, at most 14 (float32) or 43 (float64).
    """
    a, b = absolute(x), absolute(y)
    is_defined = is_finite(x) & (b > 0.0)
    dividend, divisor = a.select_if(is_defined, 0.0), b.select_if(is_defined, 1.0)
    divisor_exponent = _exponent(divisor)

    def step(r: Term) -> Terms:
        multiple = _shifted_divisor(r, divisor, divisor_exponent)
        quotient = (r / multiple).call("trunc")
        rest = (-quotient).fma(multiple, r)
        return ((rest + multiple).select_if(rest < 0.0, rest),)

    (rest,) = repeat_while((dividend,), lambda r: r >= divisor, step)
    return copy_sign(rest, x).select_if(is_defined, float("nan"))


def _shifted_divisor(r: Term, divisor: Term, divisor_exponent: Term) -> Term:
    """Return divisor * 2**k, with a k for which the quotient has about `digit` bits; in two steps, as 2**k may overflow."""
    layout = r.dtype.layout
    digit = layout.fraction_bits - 3  # leaves room for the error of an approximate division under fastmath
    shift = (_exponent(r) - divisor_exponent - digit).call("maximum", 0).call("minimum", 2 * layout.bias)
    first = shift >> 1
    return divisor * power_of_two(first, r.dtype) * power_of_two(shift - first, r.dtype)


def _exponent(x: Term) -> Term:
    """Return floor(log2(x)) for finite x > 0, subnormal ones included, as int32."""
    layout = x.dtype.layout
    lift = layout.fraction_bits + 1
    is_small = x < 2.0 ** (1 - layout.bias)
    lifted = (x * 2.0**lift).select_if(is_small, x)
    field = (lifted.bits >> layout.fraction_bits).cast(int32)
    return (field - (layout.bias + lift)).select_if(is_small, field - layout.bias)


def remainder(x: Term, y: Term) -> Term:
    """Return x - n * y for the integer n nearest to x / y, even in a tie; exact. Source: FreeBSD, e_remainder.c."""
    divisor = absolute(y)
    # if twice the divisor is infinite, x is below it and the remainder
    rest = absolute(x.call("fmod", divisor + divisor))
    is_above_half = rest > divisor - rest
    lowered = (rest - divisor).select_if(is_above_half, rest)
    result = (lowered - divisor).select_if(is_above_half & (lowered >= divisor - lowered), lowered)
    signed = (result.bits ^ (x.bits & _sign_mask(x.dtype))).bitcast(x.dtype)
    return signed.select_if(is_finite(x) & (divisor > 0.0), float("nan"))


def floor_modulo(a: Term, b: Term) -> Term:
    """Return `a % b` with the sign of b. Source: NumPy, npy_divmod, step by step, so that the bits agree."""
    rest = fmod(a, b)
    adjusted = (rest + b).select_if(_is_across_zero(rest, b), rest)
    return adjusted.select_if(rest.differs(0.0), copy_sign(b.like(0.0), b))


def _is_across_zero(rest: Term, b: Term) -> Term:
    return (b < 0.0).differs(rest < 0.0)


def floor_divide(a: Term, b: Term) -> Term:
    """Return `a // b`. Source: NumPy, npy_divmod: (a - a % b) / b, snapped to the nearest whole number; a / b for b zero."""
    rest = fmod(a, b)
    is_lowered = _is_across_zero(rest, b) & rest.differs(0.0)
    near = (a - rest) / b
    near = (near - 1.0).select_if(is_lowered, near)
    below = near.call("floor")
    snapped = (below + 1.0).select_if(near - below > 0.5, below)
    quotient = a / b
    whole = snapped.select_if(near.differs(0.0), copy_sign(near.like(0.0), quotient))
    return whole.select_if(b.differs(0.0), quotient)


# -- integers ---------------------------------------------------------------------------------------------------------


def high_product(x: Term, y: Term) -> Term:
    """Return the upper half of the product: by doubling the width, or for 64 bits in four partial products."""
    dtype = x.dtype
    if dtype.bits < 64:
        wide = int64 if dtype.is_signed else uint64
        return ((x.cast(wide) * y.cast(wide)) >> dtype.bits).cast(dtype)
    unsigned = _high_product_u64(x.cast(uint64), y.cast(uint64)).cast(dtype)
    if not dtype.is_signed:
        return unsigned
    return unsigned - (x >> 63 & y) - (y >> 63 & x)


def _high_product_u64(x: Term, y: Term) -> Term:
    """Source: Warren, Hacker's Delight, 8-2."""
    x_low, x_high = x & 0xFFFFFFFF, x >> 32
    y_low, y_high = y & 0xFFFFFFFF, y >> 32
    middle = x_high * y_low + (x_low * y_low >> 32)
    carried = (middle & 0xFFFFFFFF) + x_low * y_high
    return x_high * y_high + (middle >> 32) + (carried >> 32)


def integer_power(base: Term, exponent: Term) -> Term:
    """Return base**exponent, wrapped, by squaring. A negative exponent gives 0, but for the bases 1 and -1."""
    one = base.like(1)
    is_negative = exponent < 0
    unit_inverse = one.select_if((exponent & 1).equals(0), base)  # of 1 and -1, whose inverses are themselves
    inverse = unit_inverse.select_if(base.equals(1) | base.equals(-1), 0)

    def step(result: Term, square: Term, left: Term) -> Terms:
        return (result * square).select_if((left & 1).differs(0), result), square * square, left >> 1

    start = exponent.like(0).select_if(is_negative, exponent)
    power, _, _ = repeat_while((one, base, start), lambda _r, _s, left: left > 0, step)
    return inverse.select_if(is_negative, power)
