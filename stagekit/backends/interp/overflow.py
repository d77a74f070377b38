"""The check of indices that wrap. Which values those are says `indices.py`.

Beside each index that may wrap stands its exact value, as float64, computed from exact values. Where the index has wrapped, the
two are apart by a multiple of 2**bits, which no rounding of 53 significant bits comes near.

    %f = mul %row, %pitch              # 70000 * 40000 is -1494967296 in int32, and 2.8e9 beside it
    %q = floordiv %f, %width           # where it is used, the two are compared
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.backends.interp.findings import IndexOverflow
from stagekit.backends.interp.indices import is_narrow, judged_with
from stagekit.backends.interp.memory import Array, MixedPointers, in_lane
from stagekit.backends.interp.program import Compiler, Report, Step, Suspects
from stagekit.backends.interp.team import Team, Values
from stagekit.ir import BinaryKind, Op, UnaryKind, Value, ops, semantics


def overflow_steps(c: Compiler, op: Op) -> tuple[Step, ...]:
    """Return the steps to run right behind `op`. The compiler runs the others where the result is used."""
    match op:
        case ops.Binary() | ops.Unary() | ops.Cast() if c.indices is not None and op.result in c.indices.wraps:
            return _index(c, op)
        case ops.Compare() if is_narrow(op.lhs) and any(each in c.exact for each in op.operands() if _is_signed(each)):
            return _comparison(c, op)
        case ops.Offset() if c.indices is not None:
            return _move(c, op)
    return ()


def _index(c: Compiler, op: ops.Binary | ops.Unary | ops.Cast) -> tuple[Step, ...]:
    """Return the steps that compute the exact value, and compare where the result comes nearer to an address."""
    judged, exact = judged_with(op), c.constant(None)
    operands = [_exact(c, each) if each in judged else c.number(each) for each in op.operands()]
    meaning = np.positive if isinstance(op, ops.Cast) else _MEANINGS[op.kind]
    c.exact[op.result] = exact

    def compute(values: Values, team: Team) -> None:
        values[exact] = meaning(*map(values.__getitem__, operands), dtype=np.float64)

    places = c.uses_as_index.of(op, lambda user: op.result in judged_with(user))
    return (compute, *c.check_where_used(op, places, _wrapped(c, op.result), _report(c, op)))


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

    return c.check_where_used(op, c.uses.of(op), suspects, _report(c, op))


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


def _is_signed(value: Value) -> bool:
    return bool(value.type.dtype.is_signed)


def _shifted(a: Any, amount: Any, dtype: Any) -> Any:
    return np.multiply(a, np.exp2(amount, dtype=dtype), dtype=dtype)


_MEANINGS: dict[BinaryKind | UnaryKind, Callable[..., Any]] = {
    BinaryKind.ADD: np.add,
    BinaryKind.SUB: np.subtract,
    BinaryKind.MUL: np.multiply,
    BinaryKind.SHL: _shifted,
    UnaryKind.NEG: np.negative,
}
_TEXTS = {
    BinaryKind.ADD: "{} + {}",
    BinaryKind.SUB: "{} - {}",
    BinaryKind.MUL: "{} * {}",
    BinaryKind.SHL: "{} << {}",
    UnaryKind.NEG: "-{}",
}


def _report(c: Compiler, op: Op) -> Report:
    """Return what reports the op that wrapped, which may stand before `op`."""

    def report(values: Values, team: Team, at_fault: Array) -> None:
        lane = int(np.argmax(at_fault))
        first = _first_wrapped(c, op, values, lane)
        operands = [in_lane(values[c.number(each)], lane) for each in first.operands()]
        text = "{}" if isinstance(first, ops.Cast) else _TEXTS[first.kind]
        team.report(IndexOverflow(text.format(*operands), first.result.type.dtype.name), first.loc, at_fault)

    return report


def _first_wrapped(c: Compiler, op: Op, values: Values, lane: int) -> Any:
    """Return the first op that wrapped of those whose results `op` has taken in."""
    for operand in op.operands() if isinstance(op, ops.Compare) else judged_with(op):
        if c.indices is not None and operand in c.exact and in_lane(_wrapped(c, operand)(values), lane):
            return _first_wrapped(c, c.indices.makers[operand], values, lane)
    return op
