"""Powers: integers by squaring, wrapping as their products do; floats by multiplication up to the square, else by `pow`.

An integer power is an integer. A negative exponent of an integer, which NumPy refuses, is refused where it is known at compile
time and gives 0 at run time, like a division by zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import Loc
from stagekit.dtypes import DType
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import Site
from stagekit.frontend.numbers import default_dtype, describe_type, meet
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Number
from stagekit.intrinsics import registry
from stagekit.ir import BinaryKind, CompareKind, Value


def power(site: Site, base: Any, exponent: Any) -> Any:
    """`base ** exponent` of numbers that are not both literals."""
    loc = site.loc
    is_of_integers = not default_dtype(base).is_float and not default_dtype(exponent).is_float
    if is_of_integers and not isinstance(exponent, Number):
        return _known_power(site, base, exponent)
    if is_of_integers:
        return _integer_power(site.tracer, base, exponent, loc)
    if isinstance(exponent, int) and 0 <= exponent <= 2:
        return _by_squaring(site.tracer, base, exponent, loc)
    return site.invoke(registry.by_name("pow"), [base, exponent])


def _known_power(site: Site, base: Any, exponent: Any) -> Any:
    """An integer to a power known at compile time; a typed exponent widens the base as any operand does."""
    if exponent < 0:
        hint = "an integer has no negative power; make the base a float"
        raise site.error(BadOperands("**", f"{describe_type(base)} and {describe_type(exponent)}", hint))
    dtype = _integer_dtype(base, exponent, site.loc)
    if isinstance(exponent, np.generic) or default_dtype(base) is dtypes.bool_:
        base = site.tracer.arithmetic.convert(base, dtype)
    return _by_squaring(site.tracer, base, int(exponent), site.loc)


def _integer_dtype(base: Any, exponent: Any, loc: Loc) -> DType:
    dtype, _ = meet(base, exponent, loc)
    return dtypes.int32 if dtype is dtypes.bool_ else dtype


def _by_squaring(tracer: Tracer, base: Any, exponent: int, loc: Loc) -> Any:
    result: Any = None
    square = base
    while exponent:
        if exponent & 1:
            result = square if result is None else tracer.arithmetic.binary("*", result, square, loc)
        exponent >>= 1
        if exponent:
            square = tracer.arithmetic.binary("*", square, square, loc)
    return _one_like(tracer, base) if result is None else result


def _one_like(tracer: Tracer, base: Any) -> Any:
    if not isinstance(base, Number):
        return tracer.arithmetic.convert(1, default_dtype(base))
    return Number(tracer.builder.constant(1.0 if base.dtype.is_float else 1, base.dtype), base.is_weak)


def _integer_power(tracer: Tracer, base: Any, exponent: Number, loc: Loc) -> Number:
    """By squaring, in a run-time loop over the bits of the exponent.

    while exponent > 0: result *= square if exponent & 1 else 1; square *= square; exponent >>= 1
    """
    dtype, is_weak = meet(base, exponent, loc)
    dtype = dtypes.int32 if dtype is dtypes.bool_ else dtype
    builder = tracer.builder
    start = tracer.arithmetic.to_value(exponent, dtype, loc)
    inits = (builder.constant(1, dtype), tracer.arithmetic.to_value(base, dtype, loc), start)
    zero, one = builder.constant(0, dtype), builder.constant(1, dtype)

    def params() -> list[Value]:
        return [Value(init.type, name) for init, name in zip(inits, ("result", "square", "exponent"))]

    with builder.block(state := params()) as before:
        builder.condition(builder.compare(CompareKind.GT, state[2], zero), *state)
    with builder.block(state := params()) as after:
        result, square, left = state
        is_odd = builder.compare(CompareKind.NE, builder.and_(left, one), zero)
        factor = builder.select(is_odd, square, one)
        builder.yield_(
            builder.binary(BinaryKind.MUL, result, factor),
            builder.binary(BinaryKind.MUL, square, square),
            builder.binary(BinaryKind.SHR, left, one),
        )
    found, _, _ = builder.while_(inits, before.done(), after.done())
    is_negative = builder.compare(CompareKind.LT, start, zero)
    return Number(builder.select(is_negative, zero, found), is_weak)
