"""Checks of arithmetic: division by zero, shifts out of range, overflow on the way to an index, rounded integers, NaN from
numbers.

Each check is a step behind its op, run on the lanes in which the result is used (`guards.py`). Built only where asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from stagekit.backends.interp.findings import (
    DivisionByZero,
    IndexOverflow,
    IntegerRounded,
    NanProduced,
    ShiftOutOfRange,
)
from stagekit.backends.interp.memory import Array, MixedPointers
from stagekit.backends.interp.team import Team
from stagekit.diagnostics import Diagnostic
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, Function, Op, Pointer, Scalar, UnaryKind, Value, flow, ops, semantics, walk

if TYPE_CHECKING:
    from stagekit.backends.interp.program import Compiler, Step, Values

Suspects = Callable[["Values"], Any]
"""Which lanes would be at fault: one bool for all, or one per lane."""

Describe = Callable[["Values", Team, int], Diagnostic]
"""What to say of one lane."""

_SIGNS = {BinaryKind.FLOORDIV: "//", BinaryKind.MOD: "%", BinaryKind.ADD: "+", BinaryKind.SUB: "-", BinaryKind.MUL: "*"}
_SHIFTS = (BinaryKind.SHL, BinaryKind.SHR)
_WRAPPING = (BinaryKind.ADD, BinaryKind.SUB, BinaryKind.MUL)


def checks_of(c: Compiler, op: Op) -> tuple[Step, ...]:
    """The steps to run right behind `op`; checks that must wait for a condition are left with the compiler."""
    steps = (c.check_where_used(op, _reporting(op, *pair)) for pair in _pairs(c, op))
    return tuple(step for step in steps if step is not None)


def _reporting(op: Op, suspects: Suspects, describe: Describe) -> Callable[[Values, Team, Any], None]:
    def check(values: Values, team: Team, mask: Any) -> None:
        found = suspects(values)
        if not found.any():  # twice as quick as `np.any` where it is asked all the time
            return
        at_fault = team.spread(found) if mask is None else team.spread(found) & mask
        if at_fault.any():
            lane = int(np.argmax(at_fault))
            team.report(describe(values, team, lane), op.loc, at_fault)

    return check


def _pairs(c: Compiler, op: Op) -> Iterator[tuple[Suspects, Describe]]:
    wanted = c.options.checks
    if wanted.division and isinstance(op, ops.Binary) and op.kind in ops.DIVISIONS and _is_integer(op.lhs):
        yield _division(c, op)
    if wanted.shifts and isinstance(op, ops.Binary) and op.kind in _SHIFTS:
        yield _shift(c, op)
    if wanted.overflow and any(r in c.index_values for r in op.results):
        yield from _overflow(c, op)
    if wanted.rounding and isinstance(op, ops.Cast) and op.is_exact:
        yield _rounding(c, op)
    if wanted.nan and op.results and _is_float(op.results[0]):
        yield _nan(c, op)


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer


def _is_float(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_float


def _element(values: Values, number: int, team: Team, lane: int) -> Any:
    return team.spread(values[number])[lane].item()


# -- division and shifts ----------------------------------------------------------------------------------------------


def _division(c: Compiler, op: ops.Binary) -> tuple[Suspects, Describe]:
    lhs, rhs = c.number(op.lhs), c.number(op.rhs)

    def describe(values: Values, team: Team, lane: int) -> Diagnostic:
        return DivisionByZero(_element(values, lhs, team, lane), _SIGNS[op.kind])

    return (lambda values: values[rhs] == 0), describe


def _shift(c: Compiler, op: ops.Binary) -> tuple[Suspects, Describe]:
    amount, dtype = c.number(op.rhs), op.rhs.type.dtype

    def describe(values: Values, team: Team, lane: int) -> Diagnostic:
        return ShiftOutOfRange(dtype.name, _element(values, amount, team, lane), dtype.bits - 1)

    return (lambda values: (values[amount] < 0) | (values[amount] >= dtype.bits)), describe


# -- overflow ---------------------------------------------------------------------------------------------------------


def index_values(fn: Function) -> frozenset[Value]:
    """Signed integers that sums, differences, products and widenings turn into an index of an `offset`.

    A value that goes through `%`, a shift or bit arithmetic may well have been meant to wrap: a hash.
    """
    comes_from = flow.sources(fn.body, lambda op: (*flow.copies(op), *_arithmetic(op)))
    pending = [op.index for op in walk(fn.body) if isinstance(op, ops.Offset)]
    found: set[Value] = set()
    while pending:
        value = pending.pop()
        if value not in found and _is_signed(value):
            found.add(value)
            pending.extend(comes_from.get(value, ()))
    return frozenset(found | {op.result for op in walk(fn.body) if isinstance(op, ops.Offset)})


def _is_signed(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_signed


def _arithmetic(op: Op) -> Iterator[tuple[Value, Value]]:
    match op:
        case ops.Binary(kind=kind) if kind in _WRAPPING:
            yield from ((op.lhs, op.result), (op.rhs, op.result))
        case ops.Unary(kind=UnaryKind.NEG) | ops.Cast():
            yield op.operand, op.result


def _overflow(c: Compiler, op: Op) -> Iterator[tuple[Suspects, Describe]]:
    match op:
        case ops.Binary(kind=kind) if kind in _WRAPPING:
            yield _binary_overflow(c, op)
        case ops.Cast() if _is_integer(op.operand):
            yield _cast_overflow(c, op)
        case ops.Offset():
            yield _offset_overflow(c, op)


def _binary_overflow(c: Compiler, op: ops.Binary) -> tuple[Suspects, Describe]:
    lhs, rhs, dtype = c.number(op.lhs), c.number(op.rhs), op.lhs.type.dtype
    test = _WRAPS[op.kind] if dtype.bits == 64 else _wraps_narrow(op.kind, dtype)

    def describe(values: Values, team: Team, lane: int) -> Diagnostic:
        a, b = _element(values, lhs, team, lane), _element(values, rhs, team, lane)
        return IndexOverflow(f"{a} {_SIGNS[op.kind]} {b}", dtype.name)

    return (lambda values: test(values[lhs], values[rhs])), describe


def _wraps_narrow(kind: BinaryKind, dtype: DType) -> Callable[[Any, Any], Any]:
    """Compute in int64, where 32 bits cannot overflow, and see whether it fits."""
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
    """By a division where the float product is anywhere near the limit, which is almost never."""
    estimate = np.abs(np.multiply(a, b, dtype=np.float64))
    if not (estimate >= 2.0**62).any():
        return np.False_
    exact = np.multiply(np.asarray(a).astype(object), np.asarray(b).astype(object))
    return np.asarray((exact < -(2**63)) | (exact >= 2**63)).astype(np.bool_)


_WRAPS: dict[BinaryKind, Callable[[Any, Any], Any]] = {
    BinaryKind.ADD: _add_wraps,
    BinaryKind.SUB: _sub_wraps,
    BinaryKind.MUL: _mul_wraps,
}


def _cast_overflow(c: Compiler, op: ops.Cast) -> tuple[Suspects, Describe]:
    operand, result, dtype = c.number(op.operand), c.number(op.result), op.result.type.dtype

    def describe(values: Values, team: Team, lane: int) -> Diagnostic:
        return IndexOverflow(str(_element(values, operand, team, lane)), dtype.name)

    return (lambda values: values[result] != values[operand]), describe


def _offset_overflow(c: Compiler, op: ops.Offset) -> tuple[Suspects, Describe]:
    pointer, index = c.number(op.pointer), c.number(op.index)
    limit = (2**63 - 1) // _pointee(op.pointer).itemsize

    def suspects(values: Values) -> Any:
        address, moved = values[pointer], values[index]
        if isinstance(address, MixedPointers):
            return np.False_
        total = address.index + moved
        return _add_wraps(address.index, moved) | (total > limit) | (total < -limit)

    def describe(values: Values, team: Team, lane: int) -> Diagnostic:
        address, moved = values[pointer], _element(values, index, team, lane)
        start = team.spread(address.index)[lane].item()
        return IndexOverflow(f"the address of element {start} + {moved} of `{address.allocation.name}`", "int64")

    return suspects, describe


def _pointee(value: Value) -> DType:
    assert isinstance(value.type, Pointer)
    return value.type.dtype


# -- rounding ---------------------------------------------------------------------------------------------------------

_FLOAT32_INTEGERS = np.uint64(1 << 24)  # float32 has 24 significant bits


def _rounding(c: Compiler, op: ops.Cast) -> tuple[Suspects, Describe]:
    operand, result = c.number(op.operand), c.number(op.result)

    def suspects(values: Values) -> Any:
        bits = values[operand].astype(np.uint64)
        size = np.where(values[operand] < 0, ~bits + np.uint64(1), bits)
        lowest_bit = np.maximum(bits & (~bits + np.uint64(1)), np.uint64(1))
        return size // lowest_bit >= _FLOAT32_INTEGERS

    def describe(values: Values, team: Team, lane: int) -> Diagnostic:
        return IntegerRounded(_element(values, operand, team, lane), int(_element(values, result, team, lane)))

    return suspects, describe


# -- NaN --------------------------------------------------------------------------------------------------------------


def _nan(c: Compiler, op: Op) -> tuple[Suspects, Describe]:
    result = c.number(op.result)
    floats = [c.number(v) for v in op.operands() if _is_float(v)]
    scalars = [c.number(v) for v in op.operands() if isinstance(v.type, Scalar)]
    name = op.kind.value if isinstance(op, ops.Binary | ops.Unary) else getattr(op, "spec", op)
    operation = getattr(name, "name", name if isinstance(name, str) else op.mnemonic)

    def suspects(values: Values) -> Any:
        found = values[result] != values[result]
        if not found.any():
            return found
        for number in floats:
            found = found & (values[number] == values[number])
        return found

    def describe(values: Values, team: Team, lane: int) -> Diagnostic:
        shown = ", ".join(str(_element(values, n, team, lane)) for n in scalars)
        return NanProduced(operation, f"({shown})")

    return suspects, describe


__all__ = ["Array", "checks_of", "index_values"]
