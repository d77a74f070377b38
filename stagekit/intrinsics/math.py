"""Functions of numbers, one thread at a time: Python's `math`, and what NumPy and CUDA users expect beside it.

    y = exp(x)            float16, bfloat16, float32, float64; an integer is converted first, as `/` does
    m = maximum(x, y)     every dtype

16-bit floats go through float32 and are rounded back. Tolerances are measured, in ulp from the correctly rounded result, and
tested; `docs/intrinsics.md` shows them. On the GPU `fastmath=True` takes the hardware's approximations.
Sources: C23 (annex F for the edge values), PTX ISA, libdevice; of expansions: their own module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stagekit.dtypes import (
    FLOAT_DTYPES,
    INDEX,
    INTEGER_DTYPES,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint64,
)
from stagekit.intrinsics import elementary, expansions, reference, wide
from stagekit.intrinsics.registry import Lowerings, by_name, define, each_dtype, sig
from stagekit.intrinsics.terms import Term, expand
from stagekit.ir.builder import Builder
from stagekit.ir.core import Value
from stagekit.ir.intrinsic import Expand, Extern, Intrinsic, Llvm, Lowering, Tolerance

Results = tuple[Value, ...]
ByDtype = Mapping[DType, Lowering]
Meaning = reference.Meaning

_NARROW = (float16, bfloat16)
_SIGNED = tuple(d for d in INTEGER_DTYPES if d.is_signed)
_UNSIGNED = tuple(d for d in INTEGER_DTYPES if not d.is_signed)


def _through_float32(name: str) -> Expand:
    """The record itself on float32, for arguments that are 16-bit floats."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
        narrow = next(a.type.dtype for a in args if a.type.dtype in _NARROW)
        wide = [b.cast(a, float32) if a.type.dtype in _NARROW else a for a in args]
        results = b.call(by_name(name), wide, params)
        return tuple(b.cast(r, narrow) if r.type.dtype is float32 else r for r in results)

    return Expand(build)


def _floats(name: str, single: Lowering, double: Lowering) -> ByDtype:
    """The lowerings of a float function: as given, and through float32 for the 16-bit floats."""
    return {float32: single, float64: double, **dict.fromkeys(_NARROW, _through_float32(name))}


def _same_floats(name: str, formula: Callable[..., Term]) -> ByDtype:
    """One formula for float32 and float64."""
    return _floats(name, expand(formula), expand(formula))


def _libdevice(name: str, symbol: str) -> ByDtype:
    return _floats(name, Extern(f"__nv_{symbol}f"), Extern(f"__nv_{symbol}"))


def _everywhere(lowering: Lowering | ByDtype) -> Lowerings:
    return {"cuda": lowering, "cpu": lowering}


def _ulp(cuda: float, cpu: float) -> Mapping[str, Tolerance]:
    return {"cuda": Tolerance(cuda), "cpu": Tolerance(cpu)}


def _define_function(
    name: str,
    meaning: Meaning,
    lower: Lowerings,
    tolerance: Mapping[str, Tolerance],
    doc: str,
    source: str,
    *,
    args: tuple[str, ...] = ("x",),
    fast: Lowerings | None = None,
    fast_ulp: float = 0.0,
) -> Intrinsic:
    """A function of floats of one dtype."""
    return define(
        name=name,
        args=args,
        sigs=each_dtype(FLOAT_DTYPES, len(args)),
        lower=lower,
        lower_fast=fast,
        evaluate=meaning,
        tolerance=tolerance,
        fast_tolerance=Tolerance(fast_ulp),
        integers_as_float=True,
        doc=doc,
        source=source,
    )


# -- exact functions --------------------------------------------------------------------------------------------------


def _define_exact(
    name: str,
    args: tuple[str, ...],
    lowering: Mapping[DType, Lowering],
    evaluate: Meaning,
    doc: str,
    source: str,
    *,
    integers_as_float: bool = False,
) -> Intrinsic:
    """A function of arguments of one dtype, with that result, exact and with the same lowering on every target."""
    return define(
        name=name,
        args=args,
        sigs=each_dtype(lowering, len(args)),
        lower=_everywhere(lowering),
        evaluate=evaluate,
        integers_as_float=integers_as_float,
        doc=doc,
        source=source,
    )


def _llvm_floats(name: str, intrinsic: str) -> ByDtype:
    return _floats(name, Llvm(f"llvm.{intrinsic}.{{T}}"), Llvm(f"llvm.{intrinsic}.{{T}}"))


_IDENTITY = expand(lambda x: x)


def _define_rounding(name: str, intrinsic: str, numpy_function: Meaning, doc: str, source: str) -> Intrinsic:
    """A function to whole numbers; an integer is one already."""
    lowering = {**_llvm_floats(name, intrinsic), **dict.fromkeys(INTEGER_DTYPES, _IDENTITY)}
    evaluate = reference.in_place(lambda x: numpy_function(x) if x.dtype.kind == "f" else x)
    return _define_exact(name, ("x",), lowering, evaluate, f"{doc} Of an integer: itself.", source)


floor = _define_rounding("floor", "floor", np.floor, "The largest whole number not above `x`.", "IEEE 754-2019, 5.9")
ceil = _define_rounding("ceil", "ceil", np.ceil, "The smallest whole number not below `x`.", "IEEE 754-2019, 5.9")
trunc = _define_rounding("trunc", "trunc", np.trunc, "`x` without its fraction.", "IEEE 754-2019, 5.9")
rint = _define_rounding(
    "rint", "roundeven", np.rint, "The nearest whole number, the even one in a tie, as a float.", "IEEE 754-2019, 5.9"
)
round = _define_rounding(
    "round", "roundeven", np.rint, "The same as `rint`: Python's `round(x)` as a float.", "IEEE 754-2019, 5.9"
)

_BITWISE_ABS = expand(expansions.absolute)

fabs = _define_exact(
    "fabs",
    ("x",),
    {**_llvm_floats("fabs", "fabs"), **dict.fromkeys(_NARROW, _BITWISE_ABS)},
    reference.in_place(np.abs),
    "|x| of a float; the sign bit is cleared, of NaN too.",
    "IEEE 754-2019, 5.5.1 abs",
    integers_as_float=True,
)
abs = _define_exact(
    "abs",
    ("x",),
    {
        **_llvm_floats("abs", "fabs"),
        **dict.fromkeys(_NARROW, _BITWISE_ABS),
        **dict.fromkeys(_SIGNED, Llvm("llvm.abs.{T}", immediates=(("i1", "false"),))),
        **dict.fromkeys(_UNSIGNED, _IDENTITY),
    },
    reference.in_place(np.abs),
    "|x| of any number. The smallest signed integer has no positive twin and stays as it is.",
    "LLVM Language Reference, llvm.abs",
)
copysign = _define_exact(
    "copysign",
    ("x", "sign"),
    {**_llvm_floats("copysign", "copysign"), **dict.fromkeys(_NARROW, expand(expansions.copy_sign))},
    reference.in_place(np.copysign),
    "|x| with the sign bit of `sign`.",
    "IEEE 754-2019, 5.5.1 copySign",
    integers_as_float=True,
)
sqrt = _define_exact(
    "sqrt",
    ("x",),
    _llvm_floats("sqrt", "sqrt"),
    reference.in_place(np.sqrt),
    "The square root, correctly rounded; NaN below 0, -0.0 of -0.0.",
    "IEEE 754-2019, 5.4.1 squareRoot; PTX ISA, sqrt.rn",
    integers_as_float=True,
)


def _define_test(name: str, formula: Callable[..., Term], numpy_function: Meaning, doc: str) -> Intrinsic:
    """A question about a float, answered from its bits."""
    return define(
        name=name,
        args=("x",),
        sigs=each_dtype(FLOAT_DTYPES, 1, bool_),
        lower=_everywhere(expand(formula)),
        evaluate=lambda x: np.asarray(numpy_function(reference.widened(x))),
        integers_as_float=True,
        doc=doc,
        source="IEEE 754-2019, 5.7.2",
    )


isnan = _define_test("isnan", expansions.is_nan, np.isnan, "Is `x` NaN?")
isinf = _define_test("isinf", expansions.is_infinite, np.isinf, "Is `x` an infinity, of either sign?")
isfinite = _define_test("isfinite", expansions.is_finite, np.isfinite, "Is `x` neither NaN nor an infinity?")
signbit = _define_test("signbit", expansions.sign_bit, np.signbit, "Is the sign bit of `x` set? It is for -0.0.")

# -- the smaller and the larger ---------------------------------------------------------------------------------------


def _define_extremum(name: str, intrinsic: str, letter: str, numpy_function: Meaning, nan: str) -> Intrinsic:
    """`letter` begins LLVM's names for integers: `smin`, `umin`. Of two bools the smaller is `and`, the larger `or`."""
    is_minimum = letter == "min"
    lowering = {
        **_llvm_floats(name, intrinsic),
        **dict.fromkeys(_SIGNED, Llvm(f"llvm.s{letter}.{{T}}")),
        **dict.fromkeys(_UNSIGNED, Llvm(f"llvm.u{letter}.{{T}}")),
        bool_: expand(lambda x, y: x & y if is_minimum else x | y),
    }
    evaluate = reference.with_ordered_zeros(numpy_function, prefers_negative=is_minimum)
    which = "smaller" if is_minimum else "larger"
    doc = f"The {which} of two numbers; {nan}, and -0.0 is below +0.0."
    return _define_exact(name, ("x", "y"), lowering, evaluate, doc, "IEEE 754-2019, 9.6; NumPy for the names")


_PROPAGATES, _IGNORES = "NaN if either is NaN", "the other one if one is NaN"
minimum = _define_extremum("minimum", "minimum", "min", np.minimum, _PROPAGATES)
maximum = _define_extremum("maximum", "maximum", "max", np.maximum, _PROPAGATES)
fmin = _define_extremum("fmin", "minimumnum", "min", np.fmin, _IGNORES)
fmax = _define_extremum("fmax", "maximumnum", "max", np.fmax, _IGNORES)

# -- products, powers of two, remainders ------------------------------------------------------------------------------

fma = _define_exact(
    "fma",
    ("x", "y", "z"),
    {
        float32: Llvm("llvm.fma.{T}"),
        float64: Llvm("llvm.fma.{T}"),
        **dict.fromkeys(_NARROW, expand(expansions.fma_narrow)),
    },
    reference.fma,
    "x * y + z, rounded once.",
    "IEEE 754-2019, 5.4.1 fusedMultiplyAdd",
    integers_as_float=True,
)
_MULHI = dict.fromkeys(INTEGER_DTYPES, expand(expansions.high_product))
mulhi = define(
    name="mulhi",
    args=("x", "y"),
    sigs=each_dtype(INTEGER_DTYPES, 2),
    lower={
        "cuda": {**_MULHI, int64: Llvm("llvm.nvvm.mulhi.ll"), uint64: Llvm("llvm.nvvm.mulhi.ull")},
        "cpu": _MULHI,
    },
    evaluate=reference.on_python_ints(reference.high_product),
    doc="The upper half of the product of two integers, which has twice their width.",
    source="PTX ISA, mul.hi",
)
ldexp = define(
    name="ldexp",
    args=("x", "exponent"),
    sigs=tuple(sig([x, exponent], x) for x in FLOAT_DTYPES for exponent in (int32, INDEX)),
    lower=_everywhere(_same_floats("ldexp", expansions.scale)),
    evaluate=reference.ldexp,
    doc="x * 2**exponent, rounded once. NaN, infinities and zeros stay as they are.",
    source="C23, 7.12.6.9",
)
fmod = _define_exact(
    "fmod",
    ("x", "y"),
    _same_floats("fmod", expansions.fmod),
    reference.in_place(np.fmod),
    "The remainder of x / y rounded towards 0, exact, with the sign of `x`; NaN for `y` zero or `x` infinite. "
    "`x % y` is the one with the sign of `y`.",
    "C23, 7.12.10.1",
    integers_as_float=True,
)
remainder = _define_exact(
    "remainder",
    ("x", "y"),
    _same_floats("remainder", expansions.remainder),
    reference.each_lane(math.remainder, math.nan),
    "x - n * y for the whole number n nearest to x / y (even in a tie), exact; NaN for `y` zero or `x` infinite.",
    "IEEE 754-2019, 5.3.1 remainder",
    integers_as_float=True,
)
degrees = _define_function(
    "degrees",
    reference.wider(np.degrees),
    _everywhere(_same_floats("degrees", lambda x: x * (180 / math.pi))),
    _ulp(cuda=1.5, cpu=1.5),
    "An angle in radians as degrees.",
    "Python, math.degrees",
)
radians = _define_function(
    "radians",
    reference.wider(np.radians),
    _everywhere(_same_floats("radians", lambda x: x * (math.pi / 180))),
    _ulp(cuda=1.5, cpu=1.5),
    "An angle in degrees as radians.",
    "Python, math.radians",
)

# -- functions of the C library ---------------------------------------------------------------------------------------


def _define_library(
    name: str,
    meaning: Meaning,
    symbol: str,
    doc: str,
    section: str,
    *,
    ulp: tuple[float, float],
    args: tuple[str, ...] = ("x",),
    single: Callable[..., Term] | None = None,
) -> Intrinsic:
    """A function that libdevice and the C library both have. single: what the cpu does instead for float32.

    ulp: on cuda, as NVIDIA states it, and on cpu, as measured.
    """
    on_cpu = _floats(name, expand(single) if single else Extern(f"{symbol}f"), Extern(symbol))
    return _define_function(
        name,
        meaning,
        {"cuda": _libdevice(name, symbol), "cpu": on_cpu},
        _ulp(*ulp),
        doc,
        f"C23, {section}",
        args=args,
    )


expm1 = _define_library(
    "expm1",
    reference.wider(np.expm1),
    "expm1",
    "exp(x) - 1, accurate near 0 too.",
    "7.12.6.6",
    ulp=(1, 1),
    single=wide.expm1,
)
log1p = _define_library(
    "log1p",
    reference.wider(np.log1p),
    "log1p",
    "log(1 + x), accurate near 0 too.",
    "7.12.6.14",
    ulp=(1, 1),
    single=wide.log1p,
)
asin = _define_library(
    "asin",
    reference.wider(np.arcsin),
    "asin",
    "The angle in [-pi/2, pi/2] with this sine.",
    "7.12.4.2",
    ulp=(4, 1),
    single=wide.asin,
)
acos = _define_library(
    "acos",
    reference.wider(np.arccos),
    "acos",
    "The angle in [0, pi] with this cosine.",
    "7.12.4.1",
    ulp=(2, 1),
    single=wide.acos,
)
atan = _define_library(
    "atan",
    reference.wider(np.arctan),
    "atan",
    "The angle in [-pi/2, pi/2] with this tangent.",
    "7.12.4.3",
    ulp=(2, 1),
    single=wide.atan,
)
atan2 = _define_library(
    "atan2",
    reference.wider(np.arctan2),
    "atan2",
    "The angle in [-pi, pi] of the point (x, y), `y` given first.",
    "7.12.4.4",
    ulp=(3, 1),
    single=wide.atan2,
    args=("y", "x"),
)
sinh = _define_library(
    "sinh",
    reference.wider(np.sinh),
    "sinh",
    "The hyperbolic sine.",
    "7.12.5.5",
    ulp=(3, 2),
    single=wide.sinh,
)
cosh = _define_library(
    "cosh",
    reference.wider(np.cosh),
    "cosh",
    "The hyperbolic cosine.",
    "7.12.5.4",
    ulp=(2, 2),
    single=wide.cosh,
)
asinh = _define_library(
    "asinh",
    reference.wider(np.arcsinh),
    "asinh",
    "The inverse of `sinh`.",
    "7.12.5.2",
    ulp=(3, 2),
    single=wide.asinh,
)
acosh = _define_library(
    "acosh",
    reference.wider(np.arccosh),
    "acosh",
    "The inverse of `cosh`; NaN below 1.",
    "7.12.5.1",
    ulp=(4, 2),
    single=wide.acosh,
)
atanh = _define_library(
    "atanh",
    reference.wider(np.arctanh),
    "atanh",
    "The inverse of `tanh`; NaN beyond 1.",
    "7.12.5.3",
    ulp=(3, 2),
    single=wide.atanh,
)
cbrt = _define_library(
    "cbrt",
    reference.wider(np.cbrt),
    "cbrt",
    "The cube root.",
    "7.12.7.1",
    ulp=(1, 4),
    single=wide.cbrt,
)
hypot = _define_library(
    "hypot",
    reference.wider(np.hypot),
    "hypot",
    "The square root of x*x + y*y, without overflow on the way.",
    "7.12.7.4",
    ulp=(3, 1),
    single=wide.hypot,
    args=("x", "y"),
)
erf = _define_library(
    "erf",
    reference.each_lane(math.erf, math.nan),
    "erf",
    "The error function.",
    "7.12.8.1",
    ulp=(2, 1),
    single=wide.erf,
)
erfc = _define_library(
    "erfc",
    reference.each_lane(math.erfc, math.nan),
    "erfc",
    "1 - erf(x), accurate where that is small.",
    "7.12.8.2",
    ulp=(5, 3),
    single=wide.erfc,
)
gamma = _define_library(
    "gamma",
    reference.each_lane(math.gamma, reference.gamma_at_edge),
    "tgamma",
    "The gamma function; infinite at 0, NaN at the negative whole numbers.",
    "7.12.8.4",
    ulp=(10, 10),
)
lgamma = _define_library(
    "lgamma",
    reference.each_lane(reference.lgamma, math.inf),
    "lgamma",
    "log(abs(gamma(x))); +inf at the poles of `gamma`. Relative accuracy is lost near the zeros below -2.",
    "7.12.8.3",
    ulp=(6, 6),
)
# -- functions made here ----------------------------------------------------------------------------------------------


def _define_own(
    name: str,
    meaning: Meaning,
    single: Callable[..., Term],
    double: Callable[..., Term] | str,
    doc: str,
    source: str,
    *,
    ulp: float,
    double_ulp: tuple[float, float] = (0.0, 0.0),
    fast: Lowering | None = None,
    fast_ulp: float = math.inf,
) -> Intrinsic:
    """A function whose formula gives the same bits on every target; `double` a str: of float64, that library function's.

    ulp: of the formulas; double_ulp: of the library's, on cuda and on cpu.
    """
    on_cuda, on_cpu = (expand(double),) * 2 if callable(double) else (Extern(f"__nv_{double}"), Extern(double))
    return _define_function(
        name,
        meaning,
        {"cuda": _floats(name, expand(single), on_cuda), "cpu": _floats(name, expand(single), on_cpu)},
        _ulp(max(ulp, double_ulp[0]), max(ulp, double_ulp[1])),
        doc,
        source,
        fast={"cuda": {float32: fast}} if fast else None,
        fast_ulp=fast_ulp if fast else 0.0,
    )


def _hardware(instruction: str, *, before: float = 1.0, after: float = 1.0) -> Expand:
    """`after * instruction(before * x)` of a float32, by an approximate instruction of the GPU."""

    def formula(x: Term) -> Term:
        scaled = x if before == 1.0 else x * before
        (result,) = x.builder.asm(
            f"{instruction} $0, $1;",
            "=f,f",
            (scaled.value,),
            (x.value.type,),
            has_side_effects=False,
            host=None,
        )
        found = Term(x.builder, result)
        return found if after == 1.0 else found * after

    return expand(formula)


exp = _define_own(
    "exp",
    reference.wider(np.exp),
    elementary.exp,
    elementary.exp,
    "e to the power of `x`.",
    "C23, 7.12.6.1",
    ulp=1,
    fast=_hardware("ex2.approx.f32", before=1 / math.log(2)),
    fast_ulp=128,
)
exp2 = _define_own(
    "exp2",
    reference.wider(np.exp2),
    elementary.exp2,
    elementary.exp2,
    "2 to the power of `x`.",
    "C23, 7.12.6.4",
    ulp=1,
    fast=_hardware("ex2.approx.f32"),
    fast_ulp=4,
)
log = _define_own(
    "log",
    reference.wider(np.log),
    elementary.log,
    elementary.log,
    "The natural logarithm; -inf at 0, NaN below.",
    "C23, 7.12.6.11",
    ulp=1,
    fast=_hardware("lg2.approx.f32", after=math.log(2)),
)
log2 = _define_own(
    "log2",
    reference.wider(np.log2),
    elementary.log2,
    elementary.log2,
    "The logarithm in base 2; -inf at 0, NaN below.",
    "C23, 7.12.6.15",
    ulp=1,
    fast=_hardware("lg2.approx.f32"),
)
log10 = _define_own(
    "log10",
    reference.wider(np.log10),
    elementary.log10,
    elementary.log10,
    "The logarithm in base 10; -inf at 0, NaN below.",
    "C23, 7.12.6.12",
    ulp=1,
    fast=_hardware("lg2.approx.f32", after=math.log10(2)),
)
sin = _define_own(
    "sin",
    reference.wider(np.sin),
    elementary.sin,
    "sin",
    "The sine of an angle in radians.",
    "C23, 7.12.4.6",
    ulp=1,
    double_ulp=(2, 1),
    fast=_hardware("sin.approx.f32"),
)
cos = _define_own(
    "cos",
    reference.wider(np.cos),
    elementary.cos,
    "cos",
    "The cosine of an angle in radians.",
    "C23, 7.12.4.5",
    ulp=1,
    double_ulp=(2, 1),
    fast=_hardware("cos.approx.f32"),
)
tan = _define_own(
    "tan",
    reference.wider(np.tan),
    elementary.tan,
    "tan",
    "The tangent of an angle in radians.",
    "C23, 7.12.4.7",
    ulp=2,
    double_ulp=(2, 1),
    fast=expand(lambda x: x.call("sin") / x.call("cos")),
)
tanh = _define_own(
    "tanh",
    reference.wider(np.tanh),
    elementary.tanh,
    "tanh",
    "The hyperbolic tangent.",
    "C23, 7.12.5.6",
    ulp=1,
    double_ulp=(2, 2),
    fast=_hardware("tanh.approx.f32"),
    fast_ulp=8192,
)
sigmoid = _define_own(
    "sigmoid",
    reference.wider(reference.sigmoid),
    expansions.logistic,
    expansions.logistic,
    "1 / (1 + exp(-x)), without overflow.",
    "Verhulst, 1845: the logistic function",
    ulp=2,
    fast=expand(lambda x: 1.0 / ((-x).call("exp") + 1.0)),
    fast_ulp=256,
)
rsqrt = _define_own(
    "rsqrt",
    reference.wider(lambda x: 1 / np.sqrt(x)),
    expansions.reciprocal_root,
    expansions.reciprocal_root,
    "1 / sqrt(x); an infinity of the sign of a zero `x`, NaN below.",
    "IEEE 754-2019, 9.2 rSqrt",
    ulp=1,
    fast=_hardware("rsqrt.approx.f32"),
    fast_ulp=2,
)

# -- powers -----------------------------------------------------------------------------------------------------------

_INTEGER_POW = dict.fromkeys(INTEGER_DTYPES, expand(expansions.integer_power))
pow = define(
    name="pow",
    args=("x", "y"),
    sigs=each_dtype((*FLOAT_DTYPES, *INTEGER_DTYPES), 2),
    lower={
        "cuda": {**_libdevice("pow", "pow"), **_INTEGER_POW},
        "cpu": {**_floats("pow", expand(wide.power), Extern("pow")), **_INTEGER_POW},
    },
    evaluate=reference.power,
    lower_fast={"cuda": {float32: expand(lambda x, y: (y * x.call("log2")).call("exp2"))}},
    tolerance=_ulp(4, 2),
    fast_tolerance=Tolerance(math.inf),
    doc="`x` to the power of `y`. Of integers: wraps, and a negative `y` gives 0 but for the bases 1 and -1. "
    "Under `fastmath=True` a GPU gives NaN for a negative float `x`.",
    source="C23, 7.12.7.5",
)
