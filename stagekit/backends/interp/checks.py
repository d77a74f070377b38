"""Checks of arithmetic: division by zero, shifts out of range, rounded integers, NaN from numbers; and those of `overflow.py`.

Each check looks right behind its op, and reports the lanes in which the result is used, where it is used (`uses.py`). Only the
checks that the options ask for are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.findings import DivisionByZero, IntegerRounded, NanProduced, ShiftOutOfRange
from stagekit.backends.interp.indices import is_integer
from stagekit.backends.interp.memory import Array, in_lane
from stagekit.backends.interp.overflow import overflow_steps
from stagekit.backends.interp.program import Compiler, Report, Step, Suspects
from stagekit.backends.interp.team import Team, Values
from stagekit.diagnostics import Diagnostic
from stagekit.ir import BinaryKind, Op, Scalar, Value, ops


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
    return (*overflow_steps(c, op), *(step for steps in checks for step in steps))


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
        case ops.Cast() if wanted.rounding and op.is_exact:
            yield _rounding(c, op)
    if wanted.nan and isinstance(op, _MAKERS_OF_NAN) and _is_float(op.result):
        yield _nan(c, op)


_SIGNS = {BinaryKind.FLOORDIV: "//", BinaryKind.MOD: "%"}
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
