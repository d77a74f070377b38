"""What the `evaluate` of records is made of: NumPy and `math` functions, computed in a wider float and rounded once.

    evaluate = wider(np.sin)      # float arguments of one dtype in, the result in that dtype

float16, bfloat16 and float32 arguments are computed in float64; float64 ones in the long double of the C compiler where that
is wider (x86-64, AArch64 Linux). `math` computes what NumPy lacks, lane by lane, in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType, dtype_from_numpy, float32, float64
from stagekit.intrinsics.expansions import two_sum
from stagekit.ir import semantics
from stagekit.ir.semantics import Array

Meaning = Callable[..., Any]


def dtype_of(array: Array) -> DType:
    """Return the dtype whose values `array` holds."""
    found = dtype_from_numpy(array.dtype)
    if found is None:
        raise InternalError(f"evaluate of an array of {array.dtype}")
    return found


def quiet(meaning: Meaning) -> Meaning:
    """Return `meaning` on arrays, without NumPy's warnings."""

    @functools.wraps(meaning)
    def evaluate(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return meaning(*map(np.asarray, args))

    return evaluate


def wider(meaning: Meaning) -> Meaning:
    """Return `meaning` computed in a wider float and rounded once."""

    @quiet
    def evaluate(*args: Array) -> Array:
        dtype = dtype_of(args[0])
        if dtype is float64:
            return np.asarray(meaning(*(a.astype(np.longdouble) for a in args))).astype(np.float64)
        wide = meaning(*(semantics.cast(a, dtype_of(a), float64) for a in args))
        return np.asarray(semantics.cast(wide, float64, dtype))

    return evaluate


def each_lane(scalar_function: Callable[..., float], at_edges: float | Callable[..., float]) -> Meaning:
    """Return a function of `math` on arrays, in float64. at_edges: the result where it raises."""

    def one(*values: float) -> float:
        try:
            return scalar_function(*map(float, values))
        except (ValueError, OverflowError):
            return at_edges(*values) if callable(at_edges) else at_edges

    def lanes(*arrays: Array) -> Array:
        return np.asarray(np.frompyfunc(one, len(arrays), 1)(*arrays), dtype=np.float64)

    return lanes


def in_place(numpy_function: Meaning) -> Meaning:
    """Return a NumPy function whose exact result always fits the dtype (`floor`, `fmod`), on 16-bit floats through float32."""

    @quiet
    def evaluate(*args: Array) -> Array:
        dtype = dtype_of(args[0])
        if not dtype.is_float or dtype.bits >= float32.bits:
            return np.asarray(numpy_function(*args))
        wide = numpy_function(*(semantics.cast(a, dtype, float32) for a in args))
        return np.asarray(semantics.cast(wide, float32, dtype))

    return evaluate


# -- fused multiply-add -----------------------------------------------------------------------------------------------


@quiet
def fma(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z, rounded once."""
    dtype = dtype_of(x)
    if dtype is float64:
        return _fma_float64(*np.broadcast_arrays(x, y, z))
    a, b, c = (semantics.cast(v, dtype, float64) for v in (x, y, z))
    return np.asarray(semantics.cast(_add_to_odd(a * b, c), float64, dtype))  # the product of two float32 is exact


def _fma_float64(x: Array, y: Array, z: Array) -> Array:
    """Compute with error-free sums where no step can overflow or underflow, else with fractions.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.
    """
    high, low = _two_product(x, y)
    middle, first_error = two_sum(z, low)
    total, second_error = two_sum(high, middle)
    result = np.asarray(total + _add_to_odd(first_error, second_error))
    is_safe = np.logical_and.reduce([_is_moderate(v) for v in (x, y, high, result)]) & (_is_moderate(z) | (z == 0))
    if not is_safe.all():
        result = result.copy()
        result[~is_safe] = [_fma_exact(*lane) for lane in zip(x[~is_safe], y[~is_safe], z[~is_safe], strict=True)]
    return result


def _is_moderate(x: Array) -> Array:
    size = np.abs(x)
    return np.asarray((size > 2.0**-450) & (size < 2.0**450))


def _two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return x * y rounded, and what the rounding lost. Source: Dekker, "A floating-point technique", 1971."""
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    product = x * y
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _halves(x: Array) -> tuple[Array, Array]:
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _add_to_odd(a: Array, b: Array) -> Array:
    """Return a + b in float64, an inexact sum moved to its odd neighbour, so that rounding it later rounds as if once."""
    total, error = two_sum(a, b)
    is_even = total.view(np.uint64) & np.uint64(1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & np.isfinite(error) & is_even, np.nextafter(total, toward), total)


def _fma_exact(x: float, y: float, z: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    if not math.isfinite(z):
        return z  # even where the product overflows
    from fractions import Fraction  # here, since it is seldom needed and imports `decimal`

    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return x * y + z  # for the sign of the zero
    try:
        return float(exact)  # the quotient of two ints is correctly rounded
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


# -- functions that NumPy lacks or defines otherwise ------------------------------------------------------------------


def widened(x: Any) -> Array:
    """Return 16-bit floats as float32, all else as it is."""
    array = np.asarray(x)
    dtype = dtype_of(array)
    narrow = dtype.is_float and dtype.bits < float32.bits
    return np.asarray(semantics.cast(array, dtype, float32)) if narrow else array


def gamma_at_edge(x: float) -> float:
    """Return gamma where `math.gamma` raises: at a pole, at minus infinity, or where it overflows."""
    if x == 0:
        return math.copysign(math.inf, x)
    return math.inf if x > 0 else math.nan


def lgamma(x: float) -> float:
    """Return log(|gamma(x)|) by `math`, but around its zeros 1 and 2, where that loses digits, by a series and the recurrence."""
    if -2 < x < 0 and x != -1:
        return lgamma(x + 1) - math.log(-x)
    if not 0 < x < 8:
        return math.lgamma(x)
    if x > 2.75:
        return lgamma(x - 1) + math.log(x - 1)
    if x > 1.25:
        return _lgamma_beyond_2(x - 2)
    return _lgamma_beyond_2(x - 1) - (math.log1p(x - 1) if x > 0.5 else math.log(x))


def _lgamma_beyond_2(z: float) -> float:
    """Return log(gamma(2 + z)) for |z| <= 1, as z * (1 - euler) + the sum of (zeta(k) - 1) * (-z)**k / k over k >= 2.

    Source: NIST Digital Library of Mathematical Functions, 5.7.3.
    """
    terms = (_zeta_above_one(k) * (-z) ** k / k for k in range(2, 60))
    return math.fsum((z * (1 - _EULER), *terms))


_EULER = 0.5772156649015329


@functools.cache
def _zeta_above_one(k: int) -> float:
    """Return the sum of n**-k over n >= 2: term by term up to `last`, the rest by the Euler-Maclaurin formula."""
    last = 1000
    slope = k * last ** (-k - 1)
    rest = last ** (1 - k) / (k - 1) - last**-k / 2 + slope / 12
    return math.fsum((*(n**-k for n in range(2, last + 1)), rest))


@quiet
def ldexp(x: Array, exponent: Array) -> Array:
    """Return x * 2**exponent. Of a narrower float, float64 holds the exact product wherever it does not round to 0."""
    dtype = dtype_of(x)
    limited = np.clip(exponent, -5000, 5000).astype(np.int32)
    return np.asarray(semantics.cast(np.ldexp(semantics.cast(x, dtype, float64), limited), float64, dtype))


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), without overflow in exp."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + small), small / (1 + small)))


def ignoring_nan(numpy_function: Meaning) -> Meaning:
    """Return NumPy's minimum or maximum, ignoring NaN. Its own `fmin` gives NaN for some signalling NaN."""

    def meaning(x: Array, y: Array) -> Any:
        chosen = numpy_function(x, y)
        if x.dtype.kind in "iub":
            return chosen
        return np.where(np.isnan(x), y, np.where(np.isnan(y), x, chosen))

    return meaning


def with_ordered_zeros(numpy_function: Meaning, *, prefers_negative: bool) -> Meaning:
    """Return NumPy's minimum or maximum, with -0.0 below +0.0."""

    def meaning(x: Array, y: Array) -> Any:
        chosen = numpy_function(x, y)
        if x.dtype.kind != "f":
            return chosen
        return np.where(x == y, np.where(np.signbit(x) == prefers_negative, x, y), chosen)

    return in_place(meaning)


# -- integers ---------------------------------------------------------------------------------------------------------


def on_python_ints(meaning: Callable[..., int]) -> Meaning:
    """Return Python arithmetic on arrays: exact, lane by lane, then wrapped to the dtype of the first argument."""

    def evaluate(*args: Any) -> Array:
        arrays = [np.asarray(a) for a in args]
        dtype = dtype_of(arrays[0])
        lanes = np.frompyfunc(lambda *v: semantics.round_to(meaning(dtype.bits, *map(int, v)), dtype), len(args), 1)
        return np.asarray(lanes(*arrays), dtype=dtype.numpy)

    return evaluate


def integer_power(bits: int, base: int, exponent: int) -> int:
    """Return base**exponent, wrapped; 0 for a negative exponent, but for the bases 1 and -1, which are their own inverses."""
    if exponent < 0:
        return (1 if exponent % 2 == 0 else base) if base in (1, -1) else 0
    return pow(base, exponent, 1 << bits)


_float_power = wider(np.power)
_integer_power = on_python_ints(integer_power)


def power(x: Any, y: Any) -> Array:
    """Return `pow` of floats or of integers."""
    meaning = _float_power if dtype_of(np.asarray(x)).is_float else _integer_power
    return np.asarray(meaning(x, y))
