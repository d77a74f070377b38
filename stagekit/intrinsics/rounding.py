"""Functions whose result is exact, or the exact one rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from stagekit.dtypes import FLOAT_DTYPES, INDEX, INTEGER_DTYPES, bool_, float32, float64, int32, int64, uint64
from stagekit.intrinsics import expansions, reference
from stagekit.intrinsics.families import NARROW, SIGNED, UNSIGNED, define_exact, everywhere, llvm_floats, same_floats
from stagekit.intrinsics.registry import define, each_dtype, sig
from stagekit.intrinsics.terms import Term, expand
from stagekit.ir.intrinsic import Intrinsic, Llvm

_IDENTITY = expand(lambda x: x)


def _define_rounding(name: str, intrinsic: str, numpy_function: reference.Meaning, doc: str, source: str) -> Intrinsic:
    """Define a function to whole numbers, which leaves an integer as it is."""
    lowering = {**llvm_floats(name, intrinsic), **dict.fromkeys(INTEGER_DTYPES, _IDENTITY)}
    evaluate = reference.in_place(lambda x: numpy_function(x) if x.dtype.kind == "f" else x)
    return define_exact(name, ("x",), lowering, evaluate, f"{doc} Of an integer: itself.", source)


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
fabs = define_exact(
    "fabs",
    ("x",),
    {**llvm_floats("fabs", "fabs"), **dict.fromkeys(NARROW, _BITWISE_ABS)},
    reference.in_place(np.abs),
    "|x| of a float; the sign bit is cleared, of NaN too.",
    "IEEE 754-2019, 5.5.1 abs",
    integers_as_float=True,
)
abs = define_exact(
    "abs",
    ("x",),
    {
        **llvm_floats("abs", "fabs"),
        **dict.fromkeys(NARROW, _BITWISE_ABS),
        **dict.fromkeys(SIGNED, Llvm("llvm.abs.{T}", immediates=(("i1", "false"),))),
        **dict.fromkeys(UNSIGNED, _IDENTITY),
    },
    reference.in_place(np.abs),
    "|x| of any number. The smallest signed integer has no positive twin and stays as it is.",
    "LLVM Language Reference, llvm.abs",
)
copysign = define_exact(
    "copysign",
    ("x", "sign"),
    {**llvm_floats("copysign", "copysign"), **dict.fromkeys(NARROW, expand(expansions.copy_sign))},
    reference.in_place(np.copysign),
    "|x| with the sign bit of `sign`.",
    "IEEE 754-2019, 5.5.1 copySign",
    integers_as_float=True,
)


def _define_test(name: str, formula: Callable[..., Term], numpy_function: reference.Meaning, doc: str) -> Intrinsic:
    """Define a test of a float, which looks at its bits."""
    return define(
        name=name,
        args=("x",),
        sigs=each_dtype(FLOAT_DTYPES, 1, bool_),
        lower=everywhere(expand(formula)),
        evaluate=lambda x: np.asarray(numpy_function(reference.widened(x))),
        integers_as_float=True,
        doc=doc,
        source="IEEE 754-2019, 5.7.2",
    )


isnan = _define_test("isnan", expansions.is_nan, np.isnan, "Is `x` NaN?")
isinf = _define_test("isinf", expansions.is_infinite, np.isinf, "Is `x` an infinity, of either sign?")
isfinite = _define_test("isfinite", expansions.is_finite, np.isfinite, "Is `x` neither NaN nor an infinity?")
signbit = _define_test("signbit", expansions.sign_bit, np.signbit, "Is the sign bit of `x` set? It is for -0.0.")


def _define_extremum(
    name: str, intrinsic: str, extreme: Literal["min", "max"], numpy_function: reference.Meaning, nan: str
) -> Intrinsic:
    """Define a minimum or maximum. LLVM's names for integers end in `extreme`; of two bools it is `and` or `or`."""
    is_minimum = extreme == "min"
    lowering = {
        **llvm_floats(name, intrinsic),
        **dict.fromkeys(SIGNED, Llvm(f"llvm.s{extreme}.{{T}}")),
        **dict.fromkeys(UNSIGNED, Llvm(f"llvm.u{extreme}.{{T}}")),
        bool_: expand(lambda x, y: x & y if is_minimum else x | y),
    }
    evaluate = reference.with_ordered_zeros(numpy_function, prefers_negative=is_minimum)
    which = "smaller" if is_minimum else "larger"
    doc = f"The {which} of two numbers; {nan}, and -0.0 is below +0.0."
    source = "IEEE 754-2019, 9.6; NumPy for the names"
    return define_exact(name, ("x", "y"), lowering, evaluate, doc, source, extreme=extreme)


_PROPAGATES, _IGNORES = "NaN if either is NaN", "the other one if one is NaN"
minimum = _define_extremum("minimum", "minimum", "min", np.minimum, _PROPAGATES)
maximum = _define_extremum("maximum", "maximum", "max", np.maximum, _PROPAGATES)
fmin = _define_extremum("fmin", "minimumnum", "min", reference.ignoring_nan(np.minimum), _IGNORES)
fmax = _define_extremum("fmax", "maximumnum", "max", reference.ignoring_nan(np.maximum), _IGNORES)

# -- products, remainders, roots --------------------------------------------------------------------------------------

sqrt = define_exact(
    "sqrt",
    ("x",),
    llvm_floats("sqrt", "sqrt"),
    reference.in_place(np.sqrt),
    "The square root, correctly rounded; NaN below 0, -0.0 of -0.0.",
    "IEEE 754-2019, 5.4.1 squareRoot; PTX ISA, sqrt.rn",
    integers_as_float=True,
    tolerance={"cuda": 0, "cpu": 0},
    lower_fast={"cuda": {float32: Llvm("llvm.sqrt.{T}")}},  # with other flags
    fast_tolerance=2,
    relaxed_by="root",
)
fma = define_exact(
    "fma",
    ("x", "y", "z"),
    {
        float32: Llvm("llvm.fma.{T}"),
        float64: Llvm("llvm.fma.{T}"),
        **dict.fromkeys(NARROW, expand(expansions.fma_narrow)),
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
    lower={"cuda": {**_MULHI, int64: Llvm("llvm.nvvm.mulhi.ll"), uint64: Llvm("llvm.nvvm.mulhi.ull")}, "cpu": _MULHI},
    evaluate=reference.on_python_ints(lambda bits, x, y: (x * y) >> bits),
    doc="The upper half of the product of two integers, which has twice their width.",
    source="PTX ISA, mul.hi",
)
ldexp = define(
    name="ldexp",
    args=("x", "exponent"),
    sigs=tuple(sig([x, exponent], x) for x in FLOAT_DTYPES for exponent in (int32, INDEX)),
    lower=everywhere(same_floats("ldexp", expansions.scale)),
    evaluate=reference.ldexp,
    doc="x * 2**exponent, rounded once. NaN, infinities and zeros stay as they are.",
    source="C23, 7.12.6.9",
)
fmod = define_exact(
    "fmod",
    ("x", "y"),
    same_floats("fmod", expansions.fmod),
    reference.in_place(np.fmod),
    "The remainder of x / y rounded towards 0, exact, with the sign of `x`; NaN for `y` zero or `x` infinite. "
    "`x % y` is the one with the sign of `y`.",
    "C23, 7.12.10.1",
    integers_as_float=True,
)
remainder = define_exact(
    "remainder",
    ("x", "y"),
    same_floats("remainder", expansions.remainder),
    reference.wider(reference.each_lane(math.remainder, math.nan)),
    "x - n * y for the whole number n nearest to x / y (even in a tie), exact; NaN for `y` zero or `x` infinite.",
    "IEEE 754-2019, 5.3.1 remainder",
    integers_as_float=True,
)
