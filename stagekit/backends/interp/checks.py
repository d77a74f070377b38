"""Checks of arithmetic: division by zero, shifts out of range, overflow on the way to an index, rounded integers, NaN from
numbers.

Each check is a step behind its op, which runs on the lanes in which the result is used (`Guards`). Only the checks that the
options ask for are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.findings import (
    DivisionByZero,
    IndexOverflow,
    IntegerRounded,
    NanProduced,
    ShiftOutOfRange,
)
from stagekit.backends.interp.memory import MixedPointers, in_lane
from stagekit.backends.interp.program import Compiler, Step
from stagekit.backends.interp.team import Team, Values
from stagekit.diagnostics import Diagnostic
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Op, Scalar, Value, ops, semantics


class Check(NamedTuple):
    """One check of one op.

    suspects: the lanes that would be at fault, one bool for all or one per lane. describe: the diagnostic of one lane, given
    a function from the number of a value to the value in that lane.
    """

    suspects: Callable[[Values], Any]
    describe: Callable[[Callable[[int], Any]], Diagnostic]


def checks_of(c: Compiler, op: Op) -> tuple[Step, ...]:
    """Return the steps to run right behind `op`. The compiler runs the checks that must wait for a condition later."""
    return tuple(step for check in _checks(c, op) for step in c.check_where_used(op, _reporting(op, check)))


def _reporting(op: Op, check: Check) -> Callable[[Values, Team, Any], None]:
    suspects, describe = check

    def step(values: Values, team: Team, mask: Any) -> None:
        found = suspects(values)
        if not np.count_nonzero(found):  # several times as fast as `any`, on a path that every op takes
            return
        at_fault = team.spread(found) if mask is None else team.spread(found) & mask
        if at_fault.any():
            lane = int(np.argmax(at_fault))
            team.report(describe(lambda number: in_lane(values[number], lane)), op.loc, at_fault)

    return step


def _checks(c: Compiler, op: Op) -> Iterator[Check]:
    wanted, counts_as_index = c.options.checks, any(r in c.index_values for r in op.results)
    match op:
        case ops.Binary(kind=BinaryKind.FLOORDIV | BinaryKind.MOD) if wanted.division and _is_integer(op.lhs):
            yield _division(c, op)
        case ops.Binary(kind=BinaryKind.SHL | BinaryKind.SHR) if wanted.shifts:
            yield _shift(c, op)
        case ops.Binary(kind=kind) if counts_as_index and kind in _WRAPS:
            yield _binary_overflow(c, op)
        case ops.Cast() if counts_as_index and _is_integer(op.operand):
            yield _cast_overflow(c, op)
        case ops.Offset() if counts_as_index:
            yield _offset_overflow(c, op)
        case ops.Cast() if wanted.rounding and op.is_exact:
            yield _rounding(c, op)
    if wanted.nan and isinstance(op, _MAKERS_OF_NAN) and _is_float(op.result):
        yield _nan(c, op)


_SIGNS = {BinaryKind.FLOORDIV: "//", BinaryKind.MOD: "%", BinaryKind.ADD: "+", BinaryKind.SUB: "-", BinaryKind.MUL: "*"}
_MAKERS_OF_NAN = (ops.Binary, ops.Unary, ops.Cast, ops.IntrinsicOp)


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_float


def _division(c: Compiler, op: ops.Binary) -> Check:
    lhs, rhs = c.numbers(op.operands())
    return Check(lambda values: values[rhs] == 0, lambda at: DivisionByZero(at(lhs), _SIGNS[op.kind]))


def _shift(c: Compiler, op: ops.Binary) -> Check:
    amount, dtype = c.number(op.rhs), op.rhs.type.dtype
    return Check(
        lambda values: (values[amount] < 0) | (values[amount] >= dtype.bits),
        lambda at: ShiftOutOfRange(dtype.name, at(amount), dtype.bits - 1),
    )


# -- overflow ---------------------------------------------------------------------------------------------------------


def _binary_overflow(c: Compiler, op: ops.Binary) -> Check:
    (lhs, rhs), dtype = c.numbers(op.operands()), op.lhs.type.dtype
    wraps = _WRAPS[op.kind] if dtype.bits == 64 else _wraps_narrow(op.kind, dtype)
    return Check(
        lambda values: wraps(values[lhs], values[rhs]),
        lambda at: IndexOverflow(f"{at(lhs)} {_SIGNS[op.kind]} {at(rhs)}", dtype.name),
    )


def _wraps_narrow(kind: BinaryKind, dtype: DType) -> Callable[[Any, Any], Any]:
    """Return a test that computes in int64, where 32 bits cannot overflow, and compares with the limits of `dtype`."""
    row = semantics.BINARY[kind]

    def test(a: Any, b: Any) -> Any:
        exact = row(a.astype(np.int64), b.astype(np.int64))
        return (exact < dtype.min) | (exact > dtype.max)

    return test


def _add_wraps(a: Any, b: Any) -> Any:
    total = np.add(a, b)
    return ((a ^ total) & (b ^ total)) < 0


def _sub_wraps(a: Any, b: Any) -> Any:
    difference = np.subtract(a, b)
    return ((a ^ b) & (a ^ difference)) < 0


def _mul_wraps(a: Any, b: Any) -> Any:
    """Return where a product leaves int64: by exact integers where the float product comes near the limit, which is rare."""
    estimate = np.abs(np.multiply(a, b, dtype=np.float64))
    if not np.count_nonzero(estimate >= 2.0**62):
        return np.False_
    exact = np.multiply(np.asarray(a).astype(object), np.asarray(b).astype(object))
    return np.asarray((exact < -(2**63)) | (exact >= 2**63)).astype(np.bool_)


_WRAPS: dict[BinaryKind, Callable[[Any, Any], Any]] = {
    BinaryKind.ADD: _add_wraps,
    BinaryKind.SUB: _sub_wraps,
    BinaryKind.MUL: _mul_wraps,
}


def _cast_overflow(c: Compiler, op: ops.Cast) -> Check:
    operand, result = c.numbers((op.operand, op.result))
    dtype = op.result.type.dtype
    return Check(
        lambda values: values[result] != values[operand], lambda at: IndexOverflow(str(at(operand)), dtype.name)
    )


def _offset_overflow(c: Compiler, op: ops.Offset) -> Check:
    pointer, index = c.numbers(op.operands())
    limit = (2**63 - 1) // op.pointer.type.dtype.itemsize

    def suspects(values: Values) -> Any:
        address, moved = values[pointer], values[index]
        if isinstance(address, MixedPointers):
            return np.False_
        total = address.index + moved
        return _add_wraps(address.index, moved) | (total > limit) | (total < -limit)

    def describe(at: Callable[[int], Any]) -> Diagnostic:
        start = at(pointer)
        element = f"{start.index} + {at(index)} of `{start.allocation.name}`"
        return IndexOverflow(f"the address of element {element}", "int64")

    return Check(suspects, describe)


# -- floats -----------------------------------------------------------------------------------------------------------

_FLOAT32_INTEGERS = np.uint64(1 << 24)  # float32 has 24 significant bits


def _rounding(c: Compiler, op: ops.Cast) -> Check:
    operand, result = c.numbers((op.operand, op.result))

    def suspects(values: Values) -> Any:
        bits = values[operand].astype(np.uint64)
        size = np.where(values[operand] < 0, ~bits + np.uint64(1), bits)
        lowest_bit = np.maximum(bits & (~bits + np.uint64(1)), np.uint64(1))
        return size // lowest_bit >= _FLOAT32_INTEGERS

    return Check(suspects, lambda at: IntegerRounded(at(operand), int(at(result))))


def _nan(c: Compiler, op: ops.Binary | ops.Unary | ops.Cast | ops.IntrinsicOp) -> Check:
    result = c.number(op.result)
    floats = [c.number(v) for v in op.operands() if _is_float(v)]
    scalars = [c.number(v) for v in op.operands() if isinstance(v.type, Scalar)]
    match op:
        case ops.IntrinsicOp():
            operation = op.spec.name
        case ops.Cast():
            operation = op.mnemonic
        case _:
            operation = op.kind.value

    def suspects(values: Values) -> Any:
        found = values[result] != values[result]
        if not np.count_nonzero(found):
            return found
        for number in floats:
            found = found & (values[number] == values[number])
        return found

    def describe(at: Callable[[int], Any]) -> Diagnostic:
        return NanProduced(operation, f"({', '.join(str(at(n)) for n in scalars)})")

    return Check(suspects, describe)
