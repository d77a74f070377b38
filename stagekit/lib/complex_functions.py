"""The functions of the language that take complex numbers, with C99's branch cuts and special values, which are NumPy's.

    sk.exp(1j * x)      cos x + i sin x
    sk.sqrt(z)          its real part is not negative; the cut is along the negative real axis
    z ** 3, z ** w      by multiplication where the exponent is an integer, else exp(w log z)

Each is accurate to a few units in the last place of its absolute value. What would overflow or lose all digits on the way is
scaled. Sources: C99, annex G; W. Kahan, Branch Cuts for Complex Elementary Functions, in The State of the Art in Numerical
Analysis, 1987.
"""

from __future__ import annotations

import math
from typing import Any

import stagekit as sk
from stagekit.lib.complexes import FUNCTIONS, ComplexNumber, as_complex, of_parts, quotient
from stagekit.lib.placing import is_int
from stagekit.lib.tile import Traced

_INFINITY = math.inf


def _dtype_of(z: ComplexNumber) -> sk.DType:
    """Return the dtype of the parts."""
    found: sk.DType = sk._dtype_of(z.real)
    return found


def _is_odd(x: Traced) -> Traced:
    """Return whether a number is infinite or NaN."""
    return sk.isnan(x - x)


def absolute(z: ComplexNumber) -> Traced:
    return sk.hypot(z.real, z.imag)


@sk._kernel_only
def angle(z: Any) -> Traced:
    """The angle of a complex number in radians, from -pi to pi; of a real one 0 or pi. Also Python's `cmath.phase`."""
    z = as_complex(z)
    return sk.atan2(z.imag, z.real)


@sk._kernel_only
def polar(radius: Any, phi: Any) -> ComplexNumber:
    """The complex number of an absolute value and an angle in radians. Refused as NO_OVERLOAD: what is no number."""
    return of_parts(radius * sk.cos(phi), radius * sk.sin(phi))


def _powers(x: Traced, dtype: sk.DType) -> tuple[Traced, Traced]:
    """Return two factors of exp(x). The second is 1 where exp(x) is not too large: a product with it may be finite."""
    is_large = x > (88.0 if dtype is sk.float32 else 709.0)
    first = sk.exp(sk.where(is_large, x * 0.5, x))
    return first, sk.where(is_large, first, 1.0)


def exp(z: ComplexNumber) -> ComplexNumber:
    x, y, is_odd = z.real, z.imag, _is_odd(z.imag)
    first, second = _powers(x, _dtype_of(z))
    vanishes = is_odd & (x == -_INFINITY)
    real = sk.where(is_odd & (x == _INFINITY), x, first * sk.cos(y) * second)
    imag = sk.where(y == 0, y, first * sk.sin(y) * second)
    return of_parts(sk.where(vanishes, 0.0, real), sk.where(vanishes, 0.0, imag))


def _scaling(z: ComplexNumber) -> tuple[Traced, Traced, int]:
    """Return whether a number is so large that its square root of squares may overflow, whether it is so small that digits are
    lost, and by which power of two it is brought up then, an even one.
    """
    dtype = _dtype_of(z)
    up = 100 if dtype is sk.float32 else 600
    most = sk.maximum(abs(z.real), abs(z.imag))
    return most > dtype.max / 4, most < dtype.tiny * 2.0 ** (up // 2), up


def log(z: ComplexNumber) -> ComplexNumber:
    x, y = abs(z.real), abs(z.imag)
    is_large, is_small, up = _scaling(z)
    scale = sk.where(is_large, 0.25, sk.where(is_small, 2.0**up, 1.0))
    shift = sk.where(is_large, math.log(4), sk.where(is_small, -up * math.log(2), 0.0))
    longer, shorter = sk.maximum(x, y), sk.minimum(x, y)
    near = sk.log1p(sk.fma(shorter, shorter, (longer - 1) * (longer + 1))) * 0.5  # the logarithm of what is near 1
    real = sk.where((longer > 0.5) & (longer < 1.5), near, sk.log(sk.hypot(x * scale, y * scale)) + shift)
    return of_parts(real, sk.atan2(z.imag, z.real))


def log2(z: ComplexNumber) -> ComplexNumber:
    return log(z) * (1 / math.log(2))


def log10(z: ComplexNumber) -> ComplexNumber:
    return log(z) * (1 / math.log(10))


def sqrt(z: ComplexNumber) -> ComplexNumber:
    is_large, is_small, up = _scaling(z)
    scale = sk.where(is_large, 0.0625, sk.where(is_small, 2.0**up, 1.0))
    back = sk.where(is_large, 4.0, sk.where(is_small, 2.0 ** (-up // 2), 1.0))
    x, y = abs(z.real) * scale, abs(z.imag) * scale
    larger = sk.sqrt((x + sk.hypot(x, y)) * 0.5)
    smaller = sk.where(larger == 0, larger, y / (larger * 2))
    is_right = z.real >= 0
    real, imag = sk.where(is_right, larger, smaller) * back, sk.where(is_right, smaller, larger) * back
    is_far = sk.isinf(z.imag)
    return of_parts(sk.where(is_far, y, real), sk.copysign(sk.where(is_far, y, imag), z.imag))


def _hyperbolic(z: ComplexNumber) -> tuple[Traced, Traced, Traced]:
    """Return factors of sinh and cosh of the real part, and one that both have in common: see `_powers`."""
    x, size = z.real, abs(z.real)
    first, second = _powers(size, _dtype_of(z))
    is_large = second != 1
    sinh = sk.where(is_large, sk.copysign(first * 0.5, x), sk.sinh(x))
    return sinh, sk.where(is_large, first * 0.5, sk.cosh(x)), second


def sinh(z: ComplexNumber) -> ComplexNumber:
    x, y, is_odd = z.real, z.imag, _is_odd(z.imag)
    sinh_x, cosh_x, factor = _hyperbolic(z)
    stays = is_odd & ((x == 0) | sk.isinf(x))
    real = sk.where(stays, x, sinh_x * sk.cos(y) * factor)
    return of_parts(real, sk.where(y == 0, y, cosh_x * sk.sin(y) * factor))


def cosh(z: ComplexNumber) -> ComplexNumber:
    x, y, is_odd = z.real, z.imag, _is_odd(z.imag)
    sinh_x, cosh_x, factor = _hyperbolic(z)
    real = sk.where(is_odd & sk.isinf(x), abs(x), cosh_x * sk.cos(y) * factor)
    imag = sk.where(is_odd & (x == 0), x, sinh_x * sk.sin(y) * factor)
    return of_parts(real, sk.where(y == 0, sk.copysign(1.0, x) * y, imag))


def tanh(z: ComplexNumber) -> ComplexNumber:
    x, y, size, is_odd = z.real, z.imag, abs(z.real), _is_odd(z.imag)
    tangent, sinh_x = sk.tan(y), sk.sinh(x)
    steep = 1 + tangent * tangent
    below = 1 + steep * sinh_x * sinh_x
    is_far = size > (11.0 if _dtype_of(z) is sk.float32 else 22.0)  # where only the sign is left of the real part
    tail = sk.where(is_odd & sk.isinf(x), 0.0, sk.sin(y) * sk.cos(y)) * sk.exp(size * -2) * 4
    end = sk.where(is_odd & (size < _INFINITY), y - y, sk.copysign(1.0, x))
    real = sk.where(is_far, end, steep * sk.sqrt(1 + sinh_x * sinh_x) * sinh_x / below)
    real = sk.where(is_odd & (x == 0), x, real)
    return of_parts(real, sk.where(y == 0, y, sk.where(is_far, tail, tangent / below)))


def _turned(function: Any) -> Any:
    """Return the function f of z with i f(z) = function(iz)."""

    def of_turned(z: ComplexNumber) -> ComplexNumber:
        found = function(ComplexNumber(-z.imag, z.real))
        return ComplexNumber(found.imag, -found.real)

    return of_turned


def cos(z: ComplexNumber) -> ComplexNumber:
    return cosh(ComplexNumber(-z.imag, z.real))


def power(base: Any, exponent: Any) -> ComplexNumber:
    z = as_complex(base)
    known = _whole(exponent)
    if known is not None:
        found = _by_squaring(z, abs(known))
        return quotient(as_complex(1.0), found) if known < 0 else found
    if not isinstance(exponent, ComplexNumber) and sk._dtype_of(exponent).is_integer:
        return _integer_power(z, exponent)
    if type(exponent) is float and exponent == 0.5:
        return sqrt(z)
    w = as_complex(exponent)
    found, is_zero = exp(log(z) * exponent), (z.real == 0) & (z.imag == 0)
    at_zero = sk.where((w.real > 0) & (w.imag == 0), 0.0, math.nan)
    is_one = (w.real == 0) & (w.imag == 0)
    real = sk.where(is_one, 1.0, sk.where(is_zero, at_zero, found.real))
    return of_parts(real, sk.where(is_one, 0.0, sk.where(is_zero, at_zero, found.imag)))


@sk._direct
def _whole(exponent: Any) -> int | None:
    """Return an exponent that is known and a small integer, also one of Python's floats or complex numbers; None for others."""
    if isinstance(exponent, ComplexNumber) and type(exponent.imag) is float and exponent.imag == 0:
        exponent = exponent.real
    is_whole = is_int(exponent) or (type(exponent) is float and exponent.is_integer())
    return int(exponent) if is_whole and abs(exponent) < 100 else None


def _by_squaring(z: ComplexNumber, exponent: int) -> ComplexNumber:
    result, square = as_complex(1.0), z
    is_first = True
    while exponent:
        if exponent & 1:
            result, is_first = square if is_first else result * square, False
        exponent >>= 1
        if exponent:
            square = square * square
    return result


def _integer_power(z: ComplexNumber, exponent: Traced) -> ComplexNumber:
    """Return a number to a power that is an integer known at run time."""
    left, square = sk.int64(abs(exponent)), z
    dtype = _dtype_of(z)
    result = ComplexNumber(dtype(1), dtype(0))
    while left > 0:
        if left & 1 != 0:
            result = result * square
        square, left = square * square, left >> 1
    one_over = quotient(as_complex(1.0), result)
    return where(exponent < 0, one_over, result)


def where(condition: Any, if_true: Any, if_false: Any) -> ComplexNumber:
    a, b = as_complex(if_true), as_complex(if_false)
    return of_parts(sk.where(condition, a.real, b.real), sk.where(condition, a.imag, b.imag))


def isnan(z: ComplexNumber) -> Traced:
    return sk.isnan(z.real) | sk.isnan(z.imag)


def isinf(z: ComplexNumber) -> Traced:
    return sk.isinf(z.real) | sk.isinf(z.imag)


def isfinite(z: ComplexNumber) -> Traced:
    return sk.isfinite(z.real) & sk.isfinite(z.imag)


_ALL = (exp, log, log2, log10, sqrt, sinh, cosh, tanh, cos, where, isnan, isinf, isfinite)
FUNCTIONS.update({each.__name__: each for each in _ALL})
FUNCTIONS.update({"abs": absolute, "sin": _turned(sinh), "tan": _turned(tanh), "pow": power})
