"""Checks of arithmetic: division by zero, shifts out of range, rounded integers, NaN from numbers, indices that wrap.

Each check looks right behind its op, and reports the lanes in which the result is used, where it is used (`uses.py`). Only the
checks that the options ask for are built.

Which indices are checked says `indices.py`. Beside each index that may wrap stands its exact value, as float64, computed from
exact values. Where the index has wrapped, the two are apart by a multiple of 2**bits, which no rounding of 53 significant bits
comes near.

    %f = mul %row, %pitch              # 70000 * 40000 is -1494967296 in int32, and 2.8e9 beside it
    %q = floordiv %f, %width           # where it is used, the two are compared
"""

from __future__ import annotations

import functools
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
from stagekit.backends.interp.indices import is_integer, is_narrow, judged_with
from stagekit.backends.interp.memory import Array, MixedPointers, in_lane
from stagekit.backends.interp.program import Compiler, Report, Step, Suspects
from stagekit.backends.interp.team import Team, Values
from stagekit.diagnostics import Diagnostic
from stagekit.ir import BinaryKind, Op, Scalar, UnaryKind, Value, ops, semantics


def overflow_steps(c: Compiler, op: Op) -> tuple[Step, ...]:
    """Return the steps to run right behind `op`. The compiler runs the others where the result is used."""
    match op:
        case ops.Binary() | ops.Unary() | ops.Cast() if c.indices is not None and op.result in c.indices.wraps:
            return _index(c, op)
        case ops.Compare() if is_narrow(op.lhs) and any(
            each in c.exact for each in op.operands() if each.type.dtype.is_signed
        ):
            return _comparison(c, op)
        case ops.Offset() if c.indices is not None:
            return _move(c, op)
    return ()


def _index(c: Compiler, op: ops.Binary | ops.Unary | ops.Cast) -> tuple[Step, ...]:
    """Return the steps that compute the exact value, and compare where the result comes nearer to an address."""
    judged, exact = judged_with(op), c.constant(None)
    operands = [_exact(c, each) if each in judged else c.number(each) for each in op.operands()]
    meaning = np.positive if isinstance(op, ops.Cast) else _ARITHMETIC[op.kind][0]
    c.exact[op.result] = exact

    def compute(values: Values, team: Team) -> None:
        values[exact] = meaning(*map(values.__getitem__, operands), dtype=np.float64)

    places = c.uses_as_index.of(op, lambda user: op.result in judged_with(user))
    return (compute, *c.check_where_used(op, places, _wrapped(c, op.result), _report_wrapped(c, op)))


def _comparison(c: Compiler, op: ops.Compare) -> tuple[Step, ...]:
    """Return the steps that find where a signed index compares otherwise than if nothing had wrapped.

    Unsigned ones may: `x - 1 < n` is how one asks whether x is from 1 to n.
    """
    wrapped = [_wrapped(c, each) for each in op.operands() if each in c.exact]
    lhs, rhs = (_exact(c, each) for each in op.operands())
    result, compare = c.number(op.result), semantics.COMPARE[op.kind]

    def suspects(values: Values) -> Any:
        found = functools.reduce(np.logical_or, (each(values) for each in wrapped))
        return found & (compare(values[lhs], values[rhs]) != values[result]) if np.count_nonzero(found) else found

    return c.check_where_used(op, c.uses.of(op), suspects, _report_wrapped(c, op))


def _move(c: Compiler, op: ops.Offset) -> tuple[Step, ...]:
    """Return the steps that find addresses beyond those of 64 bits."""
    pointer, index = c.numbers(op.operands())
    limit = 2.0**63 / op.pointer.type.dtype.itemsize

    def suspects(values: Values) -> Any:
        address = values[pointer]
        if isinstance(address, MixedPointers):
            return np.False_
        return np.abs(np.add(address.index, values[index], dtype=np.float64)) >= limit

    def report(values: Values, team: Team, at_fault: Array) -> None:
        lane = int(np.argmax(at_fault))
        start = in_lane(values[pointer], lane)
        element = f"{start.index} + {in_lane(values[index], lane)} of `{start.allocation.name}`"
        team.report(IndexOverflow(f"the address of element {element}", "int64"), op.loc, at_fault)

    return c.check_where_used(op, c.uses.of(op), suspects, report)


# -- exact values -----------------------------------------------------------------------------------------------------


def _exact(c: Compiler, value: Value) -> int:
    """Return the number of the exact value: of an integer that cannot wrap, its own."""
    return c.exact.get(value, c.number(value))


def _wrapped(c: Compiler, index: Value) -> Suspects:
    """Return what finds the lanes in which an index is not its exact value."""
    exact, number, half = c.exact[index], c.number(index), 2.0 ** (index.type.dtype.bits - 1)

    def suspects(values: Values) -> Any:
        return np.abs(values[exact] - values[number]) >= half

    return suspects


def _shifted(a: Any, amount: Any, dtype: Any) -> Any:
    return np.multiply(a, np.exp2(amount, dtype=dtype), dtype=dtype)


_ARITHMETIC: dict[BinaryKind | UnaryKind, tuple[Callable[..., Any], str]] = {  # what it means, how it is written
    BinaryKind.ADD: (np.add, "{} + {}"),
    BinaryKind.SUB: (np.subtract, "{} - {}"),
    BinaryKind.MUL: (np.multiply, "{} * {}"),
    BinaryKind.SHL: (_shifted, "{} << {}"),
    UnaryKind.NEG: (np.negative, "-{}"),
}


def _report_wrapped(c: Compiler, op: Op) -> Report:
    """Return what reports the op that wrapped, which may stand before `op`."""

    def report(values: Values, team: Team, at_fault: Array) -> None:
        lane = int(np.argmax(at_fault))
        first = _first_wrapped(c, op, values, lane)
        operands = [in_lane(values[c.number(each)], lane) for each in first.operands()]
        text = "{}" if isinstance(first, ops.Cast) else _ARITHMETIC[first.kind][1]
        team.report(IndexOverflow(text.format(*operands), first.result.type.dtype.name), first.loc, at_fault)

    return report


def _first_wrapped(c: Compiler, op: Op, values: Values, lane: int) -> Any:
    """Return the first op that wrapped of those whose results `op` has taken in."""
    for operand in op.operands() if isinstance(op, ops.Compare) else judged_with(op):
        if c.indices is not None and operand in c.exact and in_lane(_wrapped(c, operand)(values), lane):
            return _first_wrapped(c, c.indices.makers[operand], values, lane)
    return op


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
            lhs, rhs = c.numbers(op.operands())
            yield Check(lambda values: values[rhs] == 0, lambda at: DivisionByZero(at(lhs), _SIGNS[op.kind]))
        case ops.Binary(kind=BinaryKind.SHL | BinaryKind.SHR) if wanted.shifts:
            amount, dtype = c.number(op.rhs), op.rhs.type.dtype
            yield Check(
                lambda values: (values[amount] < 0) | (values[amount] >= dtype.bits),
                lambda at: ShiftOutOfRange(dtype.name, at(amount), dtype.bits - 1),
            )
        case ops.Cast() if wanted.rounding and op.is_exact:
            yield _rounding(c, op)
    if wanted.nan and isinstance(op, _MAKERS_OF_NAN) and _is_float(op.result):
        yield _nan(c, op)


_SIGNS = {BinaryKind.FLOORDIV: "//", BinaryKind.MOD: "%"}
_MAKERS_OF_NAN = (ops.Binary, ops.Unary, ops.Cast, ops.IntrinsicOp)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_float


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
