"""What `legalize` writes has the same bits as the table of meaning, in ops that every target has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stagekit.diagnostics import UNKNOWN
from stagekit.dtypes import ALL_DTYPES, FLOAT_DTYPES, DType, bfloat16, bool_, float16, float32, float64, int32
from stagekit.ir import BinaryKind, Builder, CompareKind, Function, Op, Scalar, UnaryKind, Value, ops, walk
from stagekit.passes import PassContext
from stagekit.passes.legalize import is_legal_cast, legalize
from tests.cells import cell
from tests.numerics import exact
from tests.numerics.ir_eval import evaluate_function

CONTEXT = PassContext("cpu", 0, fastmath=False, debug=False)
ARITHMETIC = [k for k in BinaryKind if k.value in ("add", "sub", "mul", "div", "floordiv", "mod")]
NARROW = (float16, bfloat16)


def function_of(dtypes: tuple[DType, ...], body: Callable[..., Value]) -> Function:
    params = tuple(Value(Scalar(d)) for d in dtypes)
    b = Builder(UNKNOWN, params)
    b.yield_(body(b, *params))
    return Function("f", b.current.done())


def check(fn: Function, args: tuple[np.ndarray[Any, Any], ...], result: DType) -> None:
    """Legalised, `fn` is legal IR and gives the same numbers."""
    legal = legalize(fn, CONTEXT)
    assert [] == [op for op in walk(legal.body) if not _is_legal(op)]
    (expected,), (actual,) = evaluate_function(fn, args), evaluate_function(legal, args)

    wrong = np.flatnonzero(~exact.same_numbers(np.asarray(expected), np.asarray(actual), result))
    assert [] == [(*(a[i] for a in args), expected[i], actual[i]) for i in wrong[:5]]


def _is_legal(op: Op) -> bool:
    """Would emission know it?"""
    match op:
        case ops.Cast():
            return is_legal_cast(op.operand.type.dtype, op.result.type.dtype)
        case ops.Binary():
            dtype = op.lhs.type.dtype
            is_division = op.kind in (BinaryKind.FLOORDIV, BinaryKind.MOD)
            return not dtype.is_float or (dtype.bits >= float32.bits and not is_division)
        case ops.Compare():
            return not op.lhs.type.dtype.is_float or op.lhs.type.dtype.bits >= float32.bits
        case ops.Unary():
            return op.operand.type.dtype not in NARROW
        case _:
            return True


@pytest.mark.parametrize("source", ALL_DTYPES, ids=lambda d: d.short)
def test_casts(source: DType) -> None:
    for target in ALL_DTYPES:
        if source is not target:
            fn = function_of((source,), lambda b, x, target=target: b.cast(x, target))
            with cell(target.name):
                check(fn, (exact.samples(source, 1000, seed=1),), target)


@pytest.mark.parametrize("target", ALL_DTYPES, ids=lambda d: d.short)
@pytest.mark.parametrize("source", NARROW, ids=lambda d: d.short)
def test_casts_of_every_16_bit_float(source: DType, target: DType) -> None:
    if source is target:
        return
    check(function_of((source,), lambda b, x: b.cast(x, target)), (exact.every_float16(source),), target)


@pytest.mark.parametrize("target", NARROW, ids=lambda d: d.short)
def test_casts_of_float64_beside_every_tie(target: DType) -> None:
    """The middle of each pair of neighbours, and a hair to either side: where rounding twice goes wrong."""
    with np.errstate(all="ignore"):
        values = exact.every_float16(target).astype(np.float64)[: 1 << 15]
        middle = (values[:-1] + values[1:]) / 2
    beside = np.concatenate([middle * (1 + tilt) for tilt in (0.0, 2.0**-45, -(2.0**-45))])

    check(function_of((float64,), lambda b, x: b.cast(x, target)), (beside,), target)


@pytest.mark.parametrize("kind", ARITHMETIC, ids=lambda k: k.value)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda d: d.short)
def test_arithmetic(dtype: DType, kind: BinaryKind) -> None:
    args = exact.samples(dtype, 1000, seed=2), exact.samples(dtype, 1000, seed=3)

    check(function_of((dtype, dtype), lambda b, x, y: b.binary(kind, x, y)), args, dtype)


@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.is_float], ids=lambda d: d.short)
def test_comparisons(dtype: DType) -> None:
    x, y = exact.samples(dtype, 500, seed=4), exact.samples(dtype, 500, seed=5)
    for kind in CompareKind:
        fn = function_of((dtype, dtype), lambda b, x, y, kind=kind: b.compare(kind, x, y))
        with cell(kind):
            check(fn, (np.concatenate([x, x]), np.concatenate([y, x])), bool_)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=lambda d: d.short)
def test_negation(dtype: DType) -> None:
    check(function_of((dtype,), lambda b, x: b.unary(UnaryKind.NEG, x)), (exact.samples(dtype, 1000, seed=6),), dtype)


def test_what_is_legal_stays_the_same_object() -> None:
    fn = function_of((float32, int32), lambda b, x, n: b.add(b.mul(x, x), b.cast(n, float32)))

    assert legalize(fn, CONTEXT) is fn
