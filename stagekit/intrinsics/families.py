"""How a function of numbers becomes a record: lowerings by dtype, and the kinds of such functions.

    @own(doc, "C23, 7.12.6.1", np.exp, ulp=1)                                 our own formula: the same bits on every target
    def exp(x: Term) -> Term: ...

    erf = define_library("erf", math.erf, doc, section, ulp=(2, 1))           libdevice, and the C library
    sqrt = define_exact("sqrt", ("x",), lowering, meaning, doc, source)       correctly rounded everywhere

The result of a 16-bit float is that of the same number as float32, rounded back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stagekit.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, DType, bfloat16, float16, float32, float64
from stagekit.intrinsics.expansions import absolute, polynomial
from stagekit.intrinsics.reference import Meaning, wider
from stagekit.intrinsics.registry import by_name, define, each_dtype
from stagekit.intrinsics.terms import Term, asm, expand
from stagekit.ir.builder import Builder
from stagekit.ir.core import Value
from stagekit.ir.intrinsic import Expand, Extern, Intrinsic, Llvm, Lowering, Lowerings

ByDtype = Mapping[DType, Lowering]
NARROW = (float16, bfloat16)
SIGNED = tuple(d for d in INTEGER_DTYPES if d.is_signed)
UNSIGNED = tuple(d for d in INTEGER_DTYPES if not d.is_signed)


def floats(name: str, single: Lowering, double: Lowering) -> ByDtype:
    """Return the lowerings of a float function: those given, and for 16-bit floats the record `name` itself on float32."""

    def through_float32(b: Builder, args: Sequence[Value], params: Sequence[Any]) -> tuple[Value, ...]:
        narrow = next(a.type.dtype for a in args if a.type.dtype in NARROW)
        wide = [b.cast(a, float32) if a.type.dtype in NARROW else a for a in args]
        results = b.call(by_name(name), wide, params)
        return tuple(b.cast(r, narrow) if r.type.dtype is float32 else r for r in results)

    return {float32: single, float64: double, **dict.fromkeys(NARROW, Expand(through_float32, is_formula=True))}


def same_floats(name: str, formula: Callable[..., Term]) -> ByDtype:
    """Return the lowerings of a function that has one formula for float32 and float64."""
    return floats(name, expand(formula), expand(formula))


def llvm_floats(name: str, intrinsic: str) -> ByDtype:
    return floats(name, Llvm(f"llvm.{intrinsic}.{{T}}"), Llvm(f"llvm.{intrinsic}.{{T}}"))


def libdevice(name: str, symbol: str) -> ByDtype:
    return floats(name, Extern(f"__nv_{symbol}f"), Extern(f"__nv_{symbol}"))


def everywhere(lowering: Lowering | ByDtype) -> Lowerings:
    return {"cuda": lowering, "cpu": lowering}


def define_exact(
    name: str, args: tuple[str, ...], lowering: ByDtype, evaluate: Meaning, doc: str, source: str, **fields: Any
) -> Intrinsic:
    """Define a function whose arguments and result have one dtype, exact, with the same lowering on every target.

    fields: more of the record's.
    """
    return define(
        name=name,
        args=args,
        sigs=each_dtype(lowering, len(args)),
        lower=everywhere(lowering),
        evaluate=evaluate,
        doc=doc,
        source=source,
        **fields,
    )


def define_library(
    name: str,
    meaning: Meaning,
    doc: str,
    section: str,
    *,
    ulp: tuple[float, float],
    args: tuple[str, ...] = ("x",),
    symbol: str = "",
    single: Callable[..., Term] | None = None,
) -> Intrinsic:
    """Define a function that libdevice and the C library both have, under `symbol`, else `name`.

    meaning: the function in a wide enough float. ulp: the error on cuda, as NVIDIA states it, and on cpu, as measured.
    single: the formula of the cpu for float32, in place of the C library.
    """
    symbol = symbol or name
    on_cpu = floats(name, expand(single) if single else Extern(f"{symbol}f"), Extern(symbol))
    return define(
        name=name,
        args=args,
        sigs=each_dtype(FLOAT_DTYPES, len(args)),
        lower={"cuda": libdevice(name, symbol), "cpu": on_cpu},
        evaluate=wider(meaning),
        tolerance=dict(zip(("cuda", "cpu"), ulp)),
        integers_as_float=True,
        doc=doc,
        source=f"C23, {section}",
    )


def own(
    doc: str,
    source: str,
    meaning: Meaning,
    *,
    ulp: float,
    double_ulp: tuple[float, float] | None = None,
    fast: Lowering | None = None,
    fast_ulp: float = math.inf,
    relaxed_by: str = "functions",
) -> Callable[[Callable[[Term], Term]], Intrinsic]:
    """Define a function of one float by its formula, which gives the same bits on every target.

    ulp: its error. double_ulp: where the formula is for float32 only, the errors, on cuda and on cpu, of the functions of that
    name of libdevice and the C library, which float64 takes. fast: what a GPU does to float32 under `fastmath=True`, with the
    error fast_ulp; relaxed_by: which name of it will do.
    """

    def record(formula: Callable[[Term], Term]) -> Intrinsic:
        name, ours = formula.__name__, expand(formula)
        on_cuda, on_cpu = (Extern(f"__nv_{name}"), Extern(name)) if double_ulp else (ours, ours)
        return define(
            name=name,
            args=("x",),
            sigs=each_dtype(FLOAT_DTYPES, 1),
            lower={"cuda": floats(name, ours, on_cuda), "cpu": floats(name, ours, on_cpu)},
            lower_fast={"cuda": {float32: fast}} if fast else {},
            evaluate=wider(meaning),
            tolerance={
                target: max(ulp, of_double) for target, of_double in zip(("cuda", "cpu"), double_ulp or (0.0, 0.0))
            },
            fast_tolerance=fast_ulp if fast else 0.0,
            relaxed_by=relaxed_by,
            integers_as_float=True,
            doc=doc,
            source=source,
        )

    return record


def in_float64(formula: Callable[..., Term]) -> Callable[..., Term]:
    """Return `formula` done in float64, for float32 arguments and result: the cpu does this in place of the C library.

    On vectors it is several times as fast as calls lane by lane, and the same on every system; seldom is it off the correctly
    rounded result, by one in the last place at most. Not for GPUs: most compute float64 at a fraction of the speed.
    """
    return lambda *args: formula(*(a.cast(float64) for a in args)).cast(float32)


def with_taylor(formula: Callable[[Term], Term], *taylor: float) -> Callable[..., Term]:
    """Return `formula` done in float64, but for small x, where it subtracts nearly equal numbers, x * (1 + taylor[0] * x + ...).
    So that -0.0 stays -0.0.
    """

    def near(x: Term) -> Term:
        return x * polynomial(x, (1.0, *taylor))

    return in_float64(lambda x: near(x).select_if(absolute(x) < 2.0**-10, formula(x)))


def hardware(instruction: str, *, before: float = 1.0, after: float = 1.0) -> Expand:
    """Return the lowering `after * instruction(before * x)` of a float32. `$ftz` is `.ftz` where subnormals are flushed."""

    def formula(x: Term) -> Term:
        found = asm(f"{instruction} $0, $1;", "=f,f", x if before == 1.0 else x * before)
        return found if after == 1.0 else found * after

    return expand(formula)
