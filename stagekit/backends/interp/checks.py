"""Checks of arithmetic: division by zero, shifts out of range, overflow on the way to an index, rounded integers, NaN from
numbers.

Each check looks right behind its op, and reports the lanes in which the result is used, where it is used (`uses.py`). Only the
checks that the options ask for are built.
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
from stagekit.backends.interp.indices import Indices, is_integer, judged_with
from stagekit.backends.interp.memory import Array, MixedPointers, in_lane
from stagekit.backends.interp.program import Compiler, Report, Step, Suspects
from stagekit.backends.interp.team import Team, Values
from stagekit.diagnostics import Diagnostic
from stagekit.ir import BinaryKind, Op, Scalar, UnaryKind, Value, ops


class Check(NamedTuple):
    """One check of one op.

    suspects: the lanes that would be at fault. describe: the diagnostic of one lane, given a function from the number of a value
    to the value in that lane.
    """

    suspects: Suspects
    describe: Callable[[Callable[[int], Any]], Diagnostic]


def checks_of(c: Compiler, op: Op) -> tuple[Step, ...]:
    """Return the steps to run right behind `op`. The compiler runs the others where the result is used."""
    checks = (c.check_where_used(op, c.uses.of(op), check.suspects, _report(op, check)) for check in _checks(c, op))
    return (*_overflow(c, op), *(step for steps in checks for step in steps))


def _report(op: Op, check: Check) -> Report:
    def report(values: Values, team: Team, at_fault: Array) -> None:
        lane = int(np.argmax(at_fault))
        team.report(check.describe(lambda number: in_lane(values[number], lane)), op.loc, at_fault)

    return report


def _checks(c: Compiler, op: Op) -> Iterator[Check]:
    wanted = c.options.checks
    match op:
        case ops.Binary(kind=BinaryKind.FLOORDIV | BinaryKind.MOD) if wanted.division and is_integer(op.lhs):
            yield _division(c, op)
        case ops.Binary(kind=BinaryKind.SHL | BinaryKind.SHR) if wanted.shifts:
            yield _shift(c, op)
        case ops.Offset() if wanted.overflow:
            yield _offset_overflow(c, op)
        case ops.Cast() if wanted.rounding and op.is_exact:
            yield _rounding(c, op)
    if wanted.nan and isinstance(op, _MAKERS_OF_NAN) and _is_float(op.result):
        yield _nan(c, op)


_SIGNS = {
    BinaryKind.FLOORDIV: "//",
    BinaryKind.MOD: "%",
    BinaryKind.ADD: "+",
    BinaryKind.SUB: "-",
    BinaryKind.MUL: "*",
    BinaryKind.SHL: "<<",
}
_MAKERS_OF_NAN = (ops.Binary, ops.Unary, ops.Cast, ops.IntrinsicOp)


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
#
# Beside each index that may wrap stands the same value as float64, computed from what has not wrapped. Where it has, the two are
# apart by a multiple of 2**bits, which no rounding of 53 significant bits comes near.


def _overflow(c: Compiler, op: Op) -> tuple[Step, ...]:
    """Return the steps that compute the exact result of an index, and that compare the two where it is used."""
    indices = c.indices
    if indices is None or not op.results or op.results[0] not in indices.wraps:
        return ()
    judged = judged_with(op)
    operands = [c.exact.get(each) or c.number(each) if each in judged else c.number(each) for each in op.operands()]
    meaning = np.positive if isinstance(op, ops.Cast) else _EXACT[op.kind]  # type: ignore[attr-defined]
    number, exact = c.number(op.results[0]), c.constant(None)
    limit = _wrapped_by(op.results[0])
    c.exact[op.results[0]] = exact

    def compute(values: Values, team: Team) -> None:
        values[exact] = meaning(*map(values.__getitem__, operands), dtype=np.float64)

    def suspects(values: Values) -> Any:
        return np.abs(values[exact] - values[number]) >= limit

    def report(values: Values, team: Team, at_fault: Array) -> None:
        lane = int(np.argmax(at_fault))
        wrapped = _first_wrapped(c, indices, op, lambda number: in_lane(values[number], lane))
        shown = [in_lane(values[c.number(each)], lane) for each in wrapped.operands()]
        sign = (
            _SIGNS[wrapped.kind] if isinstance(wrapped, ops.Binary) else "-" if isinstance(wrapped, ops.Unary) else ""
        )
        expression = f" {sign} ".join(map(str, shown)) if len(shown) == 2 else f"{sign}{shown[0]}"
        team.report(IndexOverflow(expression, wrapped.results[0].type.dtype.name), wrapped.loc, at_fault)

    places = c.uses_as_index.of(op, lambda user: op.results[0] in judged_with(user))
    return (compute, *c.check_where_used(op, places, suspects, report))


def _wrapped_by(value: Value) -> float:
    """Return how far a wrapped number is from the exact one, at the least."""
    return float(2 ** (value.type.dtype.bits - 1))


def _first_wrapped(c: Compiler, indices: Indices, op: Op, at: Callable[[int], Any]) -> Op:
    """Return the op that wrapped first, of those whose results `op` has taken in. at: from the number of a value to its value."""
    for operand in judged_with(op):
        exact = c.exact.get(operand)
        if exact is not None and abs(at(exact) - at(c.number(operand))) >= _wrapped_by(operand):
            return _first_wrapped(c, indices, indices.makers[operand], at)
    return op


def _shifted(a: Any, amount: Any, dtype: Any) -> Any:
    return np.multiply(a, np.exp2(amount, dtype=dtype), dtype=dtype)


_EXACT: dict[BinaryKind | UnaryKind, Callable[..., Any]] = {
    BinaryKind.ADD: np.add,
    BinaryKind.SUB: np.subtract,
    BinaryKind.MUL: np.multiply,
    BinaryKind.SHL: _shifted,
    UnaryKind.NEG: np.negative,
}


def _offset_overflow(c: Compiler, op: ops.Offset) -> Check:
    pointer, index = c.numbers(op.operands())
    limit = 2.0**63 / op.pointer.type.dtype.itemsize

    def suspects(values: Values) -> Any:
        address = values[pointer]
        if isinstance(address, MixedPointers):
            return np.False_
        return np.abs(np.add(address.index, values[index], dtype=np.float64)) >= limit

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
