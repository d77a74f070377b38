"""How a function of numbers becomes a record: lowerings by dtype, and the few shapes that such functions have.

    exp = define_own("exp", meaning, single, double, doc, source, ulp=1)      formulas of ours, the same bits on every target
    erf = define_library("erf", meaning, symbol, doc, section, ulp=(2, 1))    libdevice, and the C library
    sqrt = define_exact("sqrt", ("x",), lowering, meaning, doc, source)       correctly rounded everywhere

16-bit floats go through float32 and are rounded back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from stagekit.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, DType, bfloat16, float16, float32, float64
from stagekit.intrinsics import reference
from stagekit.intrinsics.registry import by_name, define, each_dtype
from stagekit.intrinsics.terms import Term, expand
from stagekit.ir.builder import Builder
from stagekit.ir.core import Value
from stagekit.ir.intrinsic import Expand, Extern, Intrinsic, Llvm, Lowering, Lowerings, Tolerance

Results = tuple[Value, ...]
ByDtype = Mapping[DType, Lowering]
Meaning = reference.Meaning
NARROW = (float16, bfloat16)
SIGNED = tuple(d for d in INTEGER_DTYPES if d.is_signed)
UNSIGNED = tuple(d for d in INTEGER_DTYPES if not d.is_signed)


def _through_float32(name: str) -> Expand:
    """The record itself on float32, for arguments that are 16-bit floats."""

    def build(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> Results:
        narrow = next(a.type.dtype for a in args if a.type.dtype in NARROW)
        wide = [b.cast(a, float32) if a.type.dtype in NARROW else a for a in args]
        results = b.call(by_name(name), wide, params)
        return tuple(b.cast(r, narrow) if r.type.dtype is float32 else r for r in results)

    return Expand(build)


def floats(name: str, single: Lowering, double: Lowering) -> ByDtype:
    """The lowerings of a float function: as given, and through float32 for the 16-bit floats."""
    return {float32: single, float64: double, **dict.fromkeys(NARROW, _through_float32(name))}


def same_floats(name: str, formula: Callable[..., Term]) -> ByDtype:
    """One formula for float32 and float64."""
    return floats(name, expand(formula), expand(formula))


def llvm_floats(name: str, intrinsic: str) -> ByDtype:
    return floats(name, Llvm(f"llvm.{intrinsic}.{{T}}"), Llvm(f"llvm.{intrinsic}.{{T}}"))


def libdevice(name: str, symbol: str) -> ByDtype:
    return floats(name, Extern(f"__nv_{symbol}f"), Extern(f"__nv_{symbol}"))


def everywhere(lowering: Lowering | ByDtype) -> Lowerings:
    return {"cuda": lowering, "cpu": lowering}


def tolerances(cuda: float, cpu: float) -> Mapping[str, Tolerance]:
    return {"cuda": Tolerance(cuda), "cpu": Tolerance(cpu)}


def define_function(
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
        lower_fast=fast or {},
        evaluate=meaning,
        tolerance=tolerance,
        fast_tolerance=Tolerance(fast_ulp),
        integers_as_float=True,
        doc=doc,
        source=source,
    )


def define_exact(
    name: str,
    args: tuple[str, ...],
    lowering: Mapping[DType, Lowering],
    evaluate: Meaning,
    doc: str,
    source: str,
    *,
    integers_as_float: bool = False,
    extreme: Literal["min", "max"] | None = None,
) -> Intrinsic:
    """A function of arguments of one dtype, with that result, exact and with the same lowering on every target."""
    return define(
        name=name,
        args=args,
        sigs=each_dtype(lowering, len(args)),
        lower=everywhere(lowering),
        evaluate=evaluate,
        integers_as_float=integers_as_float,
        extreme=extreme,
        doc=doc,
        source=source,
    )


def define_library(
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
    on_cpu = floats(name, expand(single) if single else Extern(f"{symbol}f"), Extern(symbol))
    return define_function(
        name,
        meaning,
        {"cuda": libdevice(name, symbol), "cpu": on_cpu},
        tolerances(*ulp),
        doc,
        f"C23, {section}",
        args=args,
    )


def define_own(
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
    return define_function(
        name,
        meaning,
        {"cuda": floats(name, expand(single), on_cuda), "cpu": floats(name, expand(single), on_cpu)},
        tolerances(max(ulp, double_ulp[0]), max(ulp, double_ulp[1])),
        doc,
        source,
        fast={"cuda": {float32: fast}} if fast else None,
        fast_ulp=fast_ulp if fast else 0.0,
    )


def hardware(instruction: str, *, before: float = 1.0, after: float = 1.0) -> Expand:
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
