"""Exponentials, logarithms and powers.

    exp(x) = 2**n * e**r,            n = rint(x / ln 2),      |r| <= ln(2) / 2
    log(x) = n * ln 2 + log(1 + f),  x = 2**n * (1 + f),      sqrt(1/2) <= 1 + f < sqrt(2)

NaN, infinities, zeros, subnormal arguments and results are right; the records state the largest errors. The polynomials are
minimax, by the Remez exchange algorithm at 160 bits, rounded (`tools/minimax.py` prints them). Of a constant in two parts, the
first has as many trailing zeros as make its product with n exact, where that is needed, and the second is the rest.
Sources: Muller, "Elementary Functions", 2016, chapters 3 and 11; C23 annex F for the edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stagekit.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, float32, float64, int32, int64, uint32
from stagekit.intrinsics import expansions, reference
from stagekit.intrinsics.expansions import absolute, copy_sign, is_finite, is_infinite, polynomial, power_of_two
from stagekit.intrinsics.families import define_library, floats, hardware, in_float64, libdevice, own, with_taylor
from stagekit.intrinsics.reference import Meaning, wider
from stagekit.intrinsics.registry import define, each_dtype
from stagekit.intrinsics.terms import Term, asm, expand
from stagekit.ir.intrinsic import Extern, Intrinsic, Lowering

# -- exponentials -----------------------------------------------------------------------------------------------------


class _Exponential(NamedTuple):
    """The constants of one dtype. Below lowest and above highest the result is 0 or infinity. e**r = 1 + r + r**2 * curve(r)."""

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


def e_to_the(x: Term) -> Term:
    row = _EXP[x.dtype]
    inside, is_zero = _inside(x, row.lowest, row.highest)
    n, whole = _nearest_of_product(inside, 1 / math.log(2))
    return x.like(0.0).select_if(is_zero, _scaled_up(_e_to_the_rest(inside, n), whole))


def _e_to_the_rest(x: Term, n: Term) -> Term:
    """Return e**(x - n * ln 2), where that is small."""
    row = _EXP[x.dtype]
    r = (-n).fma(row.ln2[1], (-n).fma(row.ln2[0], x))
    return (r * r).fma(polynomial(r, row.curve), r) + 1.0


_EX2_OF_E = hardware("ex2.approx$ftz.f32", before=1 / math.log(2))


@own("e to the power of `x`.", "C23, 7.12.6.1", np.exp, ulp=1, fast=_EX2_OF_E, fast_ulp=128)
def exp(x: Term) -> Term:
    return e_to_the(x)


def _exp_by_hardware(x: Term) -> Term:
    """Correct what rounding the product with 1 / ln 2 does to 2**product, whose instruction is off by 2 units at most."""
    inside = _clamped(x, -150.0, 150.0)
    product = inside * (1 / math.log(2))
    lost = inside.fma(_LOG2E_REST, inside.fma(1 / math.log(2), -product))
    return asm("ex2.approx.ftz.f32 $0, $1;", "=f,f", product) * lost.fma(math.log(2), 1.0)


_LOG2E_REST = 1.925963033500011e-08  # 1 / ln 2 minus its rounding to float32


def _e_to_the_or_zero(x: Term) -> Term:
    """Compute it for float32, 0 below 2**-126. Where x is out of range or NaN, `power` is anything."""
    n, whole = _nearest_of_product(x, 1 / math.log(2))
    power = _with_exponent_raised(_e_to_the_rest(x, n), whole)
    return x.like(0.0).select_if(x < _LOG_OF_LEAST, power.select_if(x <= _LOG_OF_MOST, x + math.inf))


_LOG_OF_LEAST, _LOG_OF_MOST = -126 * math.log(2), 88.72283172607422  # of the normal numbers of float32


def _with_exponent_raised(x: Term, n: Term) -> Term:
    """Return x * 2**n by one addition, where both are normal numbers, or the product is infinite and x is 1."""
    return (x.bits + (n.cast(uint32) << float32.layout.fraction_bits)).bitcast(float32)


def _define_fast(
    name: str,
    on_cuda: Lowering,
    on_cpu: Callable[[Term], Term],
    double: Callable[[Term], Term],
    meaning: Meaning,
    what: str,
    faster: Lowering,
    fast_ulp: float,
) -> Intrinsic:
    """Define a function of one float that flushes to zero where it is of float32, and that a GPU approximates within 4 units.

    faster: what a GPU does under `fastmath=True`, with the error fast_ulp.

    Results below the least normal number would take three more instructions of a GPU, and of a processor each a hundred cycles.
    """
    return define(
        name=name,
        args=("x",),
        sigs=each_dtype(FLOAT_DTYPES, 1),
        lower={"cuda": floats(name, on_cuda, expand(double)), "cpu": floats(name, expand(on_cpu), expand(double))},
        lower_fast={"cuda": {float32: faster}},
        evaluate=wider(meaning),
        tolerance={"cuda": 4, "cpu": 1},
        fast_tolerance=fast_ulp,
        flushes=True,
        integers_as_float=True,
        doc=f"{what} to the power of `x`: of a float32 0 below 2**-126, on a GPU by its approximate instruction.",
        source="PTX ISA, ex2",
    )


fast_exp = _define_fast("fast_exp", expand(_exp_by_hardware), _e_to_the_or_zero, e_to_the, np.exp, "e", _EX2_OF_E, 128)


@own("2 to the power of `x`.", "C23, 7.12.6.4", np.exp2, ulp=1, fast=hardware("ex2.approx$ftz.f32"), fast_ulp=4)
def exp2(x: Term) -> Term:
    return two_to_the(x)


def two_to_the(x: Term) -> Term:
    """Compute 2**r as e**(r ln 2), whose argument has two parts."""
    row = _EXP[x.dtype]
    inside, is_zero = _inside(x, row.lowest / math.log(2), row.highest / math.log(2))
    n = inside.call("rint")
    return x.like(0.0).select_if(is_zero, _scaled_up(_two_to_the_rest(inside - n), n.cast(int32)))


def _two_to_the_rest(r: Term) -> Term:
    high = r * math.log(2)
    low = r.fma(math.log(2), -high) + r * _LN2_REST[r.dtype]
    return high.fma(high * polynomial(high, _EXP[r.dtype].curve), low) + high + 1.0


def _two_to_the_or_zero(x: Term) -> Term:
    """Compute it for float32, 0 below 2**-126. Where x is out of range or NaN, `power` is anything.

    Here one part of ln 2 is enough: its product is the first term of the polynomial, which is added to 1 without being rounded.
    """
    shifted = x + 1.5 * 2.0**x.dtype.layout.fraction_bits  # whose last bits count, as in `_nearest_of_product`
    r = x - x.call("rint")
    power = _with_exponent_raised(r.fma(polynomial(r, _EXP2_CURVE), 1.0), shifted.bits.cast(int32))
    return x.like(0.0).select_if(x < -126.0, power.select_if(x < 128.0, x + math.inf))


_EXP2_CURVE = (
    *(0.6931471824645996, 0.24022647738456726, 0.055503323674201965, 0.009618437848985195),
    *(0.0013398900628089905, 0.0001535334304207936),
)


_EX2 = hardware("ex2.approx.ftz.f32")
fast_exp2 = _define_fast("fast_exp2", _EX2, _two_to_the_or_zero, two_to_the, np.exp2, "2", _EX2, 4)

_LN2_REST = {float32: -1.9046542121259336e-09, float64: 2.3190468138462996e-17}  # ln 2 minus its rounding


def _clamped(x: Term, lowest: float, highest: float) -> Term:
    """Limit x to lowest..highest. NaN stays NaN: no comparison holds for it."""
    above = x.like(lowest).select_if(x < lowest, x)
    return x.like(highest).select_if(above > highest, above)


def _inside(x: Term, lowest: float, highest: float) -> tuple[Term, Term]:
    """Return x limited to `highest`, 0 where it is below `lowest`, and whether it is: the result is 0 then, which must not be
    computed, since a processor takes a hundred cycles to round a product to a subnormal number or to 0. NaN stays NaN.
    """
    is_below = x < lowest
    above = x.like(0.0).select_if(is_below, x)
    return x.like(highest).select_if(above > highest, above), is_below


def _nearest_of_product(x: Term, factor: float) -> tuple[Term, Term]:
    """Return the whole number nearest to x * factor, below 2**20 in size, as a float and as an int32.

    Next to 1.5 * 2**fraction_bits the distance of floats is 1: adding it rounds, and its last bits then count. That takes no
    instruction that converts, of which a GPU has a quarter of the units or fewer. As no `fastmath` takes an fma apart, none
    cancels what is added; with a factor of 1 it would be a sum.
    """
    far = 1.5 * 2.0**x.dtype.layout.fraction_bits
    shifted = x.fma(factor, far)
    return shifted - far, (shifted.bits - x.like(far).bits).cast(int32)


def _scaled_up(x: Term, n: Term) -> Term:
    """Return x * 2**n, in two steps, as 2**n itself may be infinite or subnormal where the product is not."""
    first = n >> 1
    return x * power_of_two(first, x.dtype) * power_of_two(n - first, x.dtype)


expm1 = define_library(
    "expm1",
    np.expm1,
    "exp(x) - 1, accurate near 0 too.",
    "7.12.6.6",
    ulp=(1, 1),
    single=with_taylor(lambda x: x.call("exp") - 1.0, 1 / 2, 1 / 6),
)


@own(
    "1 / (1 + exp(-x)), without overflow.",
    "Verhulst, 1845: the logistic function",
    reference.sigmoid,
    ulp=2,
    fast=expand(lambda x: 1.0 / ((-x).call("exp") + 1.0)),
    fast_ulp=256,
)
def sigmoid(x: Term) -> Term:
    """Compute it for x < 0 as exp(x) / (1 + exp(x)), which neither overflows nor loses a small result."""
    small = (-absolute(x)).call("exp")
    return small.like(1.0).select_if(x >= 0.0, small) / (small + 1.0)


# -- logarithms -------------------------------------------------------------------------------------------------------


def _split(x: Term) -> tuple[Term, Term]:
    """Return (n, f) with x = 2**n * (1 + f) for finite x > 0: n as a float, f exact."""
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
    """Return the logarithm `inside`, with its results at infinity, NaN, zeros and negative numbers."""
    result = inside.select_if(x < math.inf, x)
    result = result.select_if(x.differs(0.0), -math.inf)
    return result.like(math.nan).select_if(x < 0.0, result)


class _Logarithm(NamedTuple):
    """The constants of one base: log(2) and log(e), each in two parts; log(1 + f) = f * log(e) + f**2 * curve(f)."""

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


def _log_in_base(x: Term, single: _Logarithm, double: _Logarithm) -> Term:
    n, f = _split(x)
    inside = _log_single(n, f, single) if x.dtype is float32 else _log_double(n, f, double)
    return _at_edges(x, inside)


def _log_single(n: Term, f: Term, base: _Logarithm) -> Term:
    curved = (f * f).fma(polynomial(f, base.curve), f * base.of_e[1])
    return n.fma(base.of_2[0], n.fma(base.of_2[1], f.fma(base.of_e[0], curved)))


def _log_double(n: Term, f: Term, base: _Logarithm) -> Term:
    """Multiply log(1 + f) by log(e), both in two parts, and add n times log(2), the largest parts first."""
    half_square, rest = _log_parts(f)
    high = f - half_square
    low = (f - high) - half_square + rest
    product = high * base.of_e[0]
    product_rest = high.fma(base.of_e[0], -product) + (low + high) * base.of_e[1] + low * base.of_e[0]
    whole = n * base.of_2[0]
    total = whole + product
    return total + (((whole - total) + product) + n.fma(base.of_2[1], product_rest))


def _log_parts(f: Term) -> tuple[Term, Term]:
    """Return (f**2 / 2, rest) with log(1 + f) = f - f**2 / 2 + rest, from 2 * atanh(s) for s = f / (2 + f)."""
    half_square = f * 0.5 * f
    s = f / (f + 2.0)
    square = s * s
    return half_square, s * square.fma(polynomial(square, _ATANH_CURVE), half_square)


_ATANH_CURVE = (
    *(0.6666666666666734, 0.3999999999941396, 0.2857142874256256, 0.222221985537563),
    *(0.18183565408137778, 0.15314021109763368, 0.14796261140163616),
)


@own(
    "The natural logarithm; -inf at 0, NaN below.",
    "C23, 7.12.6.11",
    np.log,
    ulp=1,
    fast=hardware("lg2.approx$ftz.f32", after=math.log(2)),
)
def log(x: Term) -> Term:
    n, f = _split(x)
    ln2 = _EXP[x.dtype].ln2
    if x.dtype is float64:
        half_square, rest = _log_parts(f)
        return _at_edges(x, n * ln2[0] - ((half_square - (rest + n * ln2[1])) - f))
    curve = f.fma(polynomial(f, _LOG_CURVE), -0.5)
    return _at_edges(x, n.fma(ln2[0], (f * f).fma(curve, n * ln2[1]) + f))


@own(
    "The logarithm in base 2; -inf at 0, NaN below.",
    "C23, 7.12.6.15",
    np.log2,
    ulp=1,
    fast=hardware("lg2.approx$ftz.f32"),
)
def log2(x: Term) -> Term:
    return _log_in_base(x, _LOG2_SINGLE, _LOG2_DOUBLE)


@own(
    "The logarithm in base 10; -inf at 0, NaN below.",
    "C23, 7.12.6.12",
    np.log10,
    ulp=1,
    fast=hardware("lg2.approx$ftz.f32", after=math.log10(2)),
)
def log10(x: Term) -> Term:
    return _log_in_base(x, _LOG10_SINGLE, _LOG10_DOUBLE)


log1p = define_library(
    "log1p",
    np.log1p,
    "log(1 + x), accurate near 0 too.",
    "7.12.6.14",
    ulp=(1, 1),
    single=with_taylor(lambda x: (x + 1.0).call("log"), -1 / 2, 1 / 3),
)

# -- powers and roots -------------------------------------------------------------------------------------------------


@own(
    "1 / sqrt(x); an infinity of the sign of a zero `x`, NaN below.",
    "IEEE 754-2019, 9.2 rSqrt",
    lambda x: 1 / np.sqrt(x),
    ulp=1,
    fast=hardware("rsqrt.approx$ftz.f32"),
    fast_ulp=2,
    relaxed_by="root",
)
def rsqrt(x: Term) -> Term:
    return 1.0 / x.call("sqrt")


def _cbrt(x: Term) -> Term:
    return copy_sign((absolute(x).call("log2") * (1 / 3)).call("exp2"), x)


def _hypot(x: Term, y: Term) -> Term:
    """Return the hypotenuse, which is infinite where a side is, even beside a NaN."""
    wide = in_float64(lambda a, b: (a * a + b * b).call("sqrt"))(x, y)
    return wide.like(math.inf).select_if(is_infinite(x) | is_infinite(y), wide)


def _power(x: Term, y: Term) -> Term:
    """Return 2**(y * log2(|x|)), negated for a negative x and an odd y; NaN where x < 0 and y is not whole."""
    size = in_float64(lambda a, b: (b * absolute(a).call("log2")).call("exp2"))(x, y)
    half = y * 0.5
    is_whole = y.call("trunc").equals(y)
    is_odd = is_whole & half.call("trunc").differs(half)
    signed = (-size).select_if(is_odd & expansions.sign_bit(x), size)
    result = signed.like(math.nan).select_if((x < 0.0) & is_finite(x) & ~is_whole, signed)
    result = signed.like(1.0).select_if(x.equals(-1.0) & is_infinite(y), result)
    return signed.like(1.0).select_if(x.equals(1.0) | y.equals(0.0), result)


cbrt = define_library("cbrt", np.cbrt, "The cube root.", "7.12.7.1", ulp=(1, 4), single=in_float64(_cbrt))
hypot = define_library(
    "hypot",
    np.hypot,
    "The square root of x*x + y*y, without overflow on the way.",
    "7.12.7.4",
    ulp=(3, 1),
    single=_hypot,
    args=("x", "y"),
)
_INTEGER_POW = dict.fromkeys(INTEGER_DTYPES, expand(expansions.integer_power))
pow = define(
    name="pow",
    args=("x", "y"),
    sigs=each_dtype((*FLOAT_DTYPES, *INTEGER_DTYPES), 2),
    lower={
        "cuda": {**libdevice("pow", "pow"), **_INTEGER_POW},
        "cpu": {**floats("pow", expand(_power), Extern("pow")), **_INTEGER_POW},
    },
    evaluate=reference.power,
    lower_fast={"cuda": {float32: expand(lambda x, y: (y * x.call("log2")).call("exp2"))}},
    tolerance={"cuda": 4.0, "cpu": 2.0},
    fast_tolerance=math.inf,
    doc="`x` to the power of `y`. Of integers: wraps, and a negative `y` gives 0 but for the bases 1 and -1. "
    "Under `fastmath=True` a GPU gives NaN for a negative float `x`.",
    source="C23, 7.12.7.5",
)
