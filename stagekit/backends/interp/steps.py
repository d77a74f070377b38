"""Straight-line ops as steps: arithmetic by the table of meaning, memory through `access.py`, prints and asserts.

A step reads and writes `values` by number. Rows of `semantics` that are plain NumPy functions of the operands' own dtype are
called directly; the run sets NumPy's error state once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.backends.interp.access import Access, Observer, both, read, write
from stagekit.backends.interp.checks import checks_of
from stagekit.backends.interp.memory import Allocation, Pointers, just_aligned, merge_addresses
from stagekit.backends.interp.program import Builders, Compiler, Step, Values, scalar_dtype
from stagekit.backends.interp.report import Message
from stagekit.backends.interp.team import Team
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType, shown
from stagekit.ir import Pointer, Space, Value, ops, semantics

Meaning = Callable[..., Any]

_NARROW_BITS = 16  # floats this small compute in float32, see `semantics`
SHARED_BASE = 0x1000  # shared and local memory have addresses of their own; what counts is their alignment
LOCAL_BASE = 0x8000_0000


# -- arithmetic -------------------------------------------------------------------------------------------------------


def _computes_itself(dtype: DType) -> bool:
    """Does NumPy compute this dtype in itself?"""
    return not (dtype.is_float and dtype.bits <= _NARROW_BITS)


def _meaning(table: Any, general: Meaning, kind: Any, dtype: DType) -> Meaning:
    row = table[kind]
    if isinstance(row, np.ufunc) and _computes_itself(dtype):
        return row
    return lambda *operands: general(kind, dtype, *operands)


def _unary_step(meaning: Meaning, result: int, operand: int) -> Step:
    def step(values: Values, team: Team) -> None:
        values[result] = meaning(values[operand])

    return step


def _binary_step(meaning: Meaning, result: int, lhs: int, rhs: int) -> Step:
    def step(values: Values, team: Team) -> None:
        values[result] = meaning(values[lhs], values[rhs])

    return step


def _binary(c: Compiler, op: ops.Binary) -> tuple[Step, ...]:
    meaning = _meaning(semantics.BINARY, semantics.binary, op.kind, scalar_dtype(op.lhs))
    step = _binary_step(meaning, c.number(op.result), c.number(op.lhs), c.number(op.rhs))
    return (step, *checks_of(c, op))


def _unary(c: Compiler, op: ops.Unary) -> tuple[Step, ...]:
    meaning = _meaning(semantics.UNARY, semantics.unary, op.kind, scalar_dtype(op.operand))
    return (_unary_step(meaning, c.number(op.result), c.number(op.operand)), *checks_of(c, op))


def _compare(c: Compiler, op: ops.Compare) -> tuple[Step, ...]:
    meaning = _pointer_comparison(op) if isinstance(op.lhs.type, Pointer) else _comparison(op)
    return (_binary_step(meaning, c.number(op.result), c.number(op.lhs), c.number(op.rhs)),)


def _comparison(op: ops.Compare) -> Meaning:
    return _meaning(semantics.COMPARE, semantics.compare, op.kind, scalar_dtype(op.lhs))


def _pointer_comparison(op: ops.Compare) -> Meaning:
    dtype, row = op.lhs.type.dtype, semantics.COMPARE[op.kind]
    return lambda a, b: row(a.number(dtype), b.number(dtype))


def _cast(c: Compiler, op: ops.Cast) -> tuple[Step, ...]:
    meaning = _conversion(scalar_dtype(op.operand), scalar_dtype(op.result))
    return (_unary_step(meaning, c.number(op.result), c.number(op.operand)), *checks_of(c, op))


def _conversion(source: DType, target: DType) -> Meaning:
    if source is target:
        return lambda value: value
    kinds = tuple("int" if d.is_integer else d.kind for d in (source, target))
    row = semantics.CAST[kinds[0], kinds[1]]

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return row(value, source, target)
        return semantics.cast(value, source, target)

    return convert


def _bitcast(c: Compiler, op: ops.Bitcast) -> tuple[Step, ...]:
    return (_unary_step(_reinterpretation(op.operand, op.result), c.number(op.result), c.number(op.operand)),)


def _reinterpretation(operand: Value, result: Value) -> Meaning:
    source, target = operand.type.dtype, result.type.dtype
    if isinstance(operand.type, Pointer):
        if isinstance(result.type, Pointer):
            return lambda address: address.seen_as(source, target)
        return lambda address: address.number(source)
    if target.kind == "bool" or source.kind == "bool":
        raise InternalError(f"bitcast of {source.name} to {target.name}")
    return lambda value: value.view(target.numpy)


def _select(c: Compiler, op: ops.Select) -> tuple[Step, ...]:
    result, condition, if_true, if_false = c.numbers((op.result, op.condition, op.if_true, op.if_false))

    def step(values: Values, team: Team) -> None:
        values[result] = choose(values[condition], values[if_true], values[if_false])

    return (step,)


def choose(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Lane by lane one of two values or pointers."""
    if not isinstance(condition, np.ndarray):
        return if_true if condition else if_false
    if if_true is if_false:
        return if_true
    if isinstance(if_true, (np.ndarray, np.generic)):
        return np.where(condition, if_true, if_false)
    return merge_addresses(condition, if_true, if_false)


# -- memory -----------------------------------------------------------------------------------------------------------


def _offset(c: Compiler, op: ops.Offset) -> tuple[Step, ...]:
    result, pointer, index = c.numbers((op.result, op.pointer, op.index))

    def step(values: Values, team: Team) -> None:
        values[result] = values[pointer].offset(values[index])

    return (step, *checks_of(c, op))


def _load(c: Compiler, op: ops.Load) -> tuple[Step, ...]:
    access = c.access(op, "read", op.pointer)
    result, pointer = c.number(op.result), c.number(op.pointer)
    if op.mask is not None and op.other is not None:
        return (_masked_load(result, pointer, c.number(op.mask), c.number(op.other), access, c.observers),)
    general = _general_load(result, pointer, access, c.observers)
    return (general if c.observers or access.checks_axes else _direct_load(result, pointer, access, general),)


def _general_load(result: int, pointer: int, access: Access, observers: tuple[Observer, ...]) -> Step:
    def step(values: Values, team: Team) -> None:
        values[result] = read(team, values[pointer], team.mask, access, observers)

    return step


def _direct_load(result: int, pointer: int, access: Access, general: Step) -> Step:
    """The usual case at full speed: all lanes on, one allocation, aligned, one copy, nothing outside; else `general`."""
    dtype = access.dtype
    is_bool = dtype.kind == "bool"

    def step(values: Values, team: Team) -> None:
        address = values[pointer]
        if team.mask is None and type(address) is Pointers:
            view, index = address.allocation.view(dtype), address.index
            if view.is_plain and not np.count_nonzero(index.view(np.uint64) >= view.limit):
                found = view.elements[index]
                values[result] = found != 0 if is_bool else found
                return
        general(values, team)

    return step


def _masked_load(
    result: int, pointer: int, mask: int, other: int, access: Access, observers: tuple[Observer, ...]
) -> Step:
    def step(values: Values, team: Team) -> None:
        wanted = values[mask]
        lanes = both(team.mask, wanted)
        if lanes is False:
            values[result] = values[other]
            return
        found = read(team, values[pointer], lanes, access, observers)
        values[result] = choose(wanted, found, values[other])

    return step


def _store(c: Compiler, op: ops.Store) -> tuple[Step, ...]:
    access = c.access(op, "write", op.pointer)
    pointer, value = c.number(op.pointer), c.number(op.value)
    if op.mask is not None:
        return (_masked_store(pointer, value, c.number(op.mask), access, c.observers),)
    general = _general_store(pointer, value, access, c.observers)
    return (general if c.observers or access.checks_axes else _direct_store(pointer, value, access, general),)


def _general_store(pointer: int, value: int, access: Access, observers: tuple[Observer, ...]) -> Step:
    def step(values: Values, team: Team) -> None:
        team.launch.writes += 1
        write(team, values[pointer], values[value], team.mask, access, observers)

    return step


def _direct_store(pointer: int, value: int, access: Access, general: Step) -> Step:
    """As `_direct_load`, where the pointers are one per lane: of lanes that share one, the last has to win."""
    dtype = access.dtype

    def step(values: Values, team: Team) -> None:
        address = values[pointer]
        if team.mask is None and type(address) is Pointers and type(address.index) is np.ndarray:
            view, index = address.allocation.view(dtype), address.index
            is_inside = view.is_plain and not np.count_nonzero(index.view(np.uint64) >= view.limit)
            if is_inside and address.allocation.is_writable:
                team.launch.writes += 1
                view.elements[index] = values[value]
                return
        general(values, team)

    return step


def _masked_store(pointer: int, value: int, mask: int, access: Access, observers: tuple[Observer, ...]) -> Step:
    def step(values: Values, team: Team) -> None:
        lanes = both(team.mask, values[mask])
        if lanes is not False:
            team.launch.writes += 1
            write(team, values[pointer], values[value], lanes, access, observers)

    return step


def _alloc(c: Compiler, op: ops.Alloc) -> tuple[Step, ...]:
    if op.space is Space.SHARED:
        return (_shared_step(c.number(op.result), c.allocate(op)),)
    if op.space is Space.LOCAL:
        return (_local_step(c.number(op.result), op),)
    raise InternalError("alloc in global memory")


def _shared_step(result: int, number: int) -> Step:
    def step(values: Values, team: Team) -> None:
        values[result] = Pointers(team.memory[number], np.int64(0))

    return step


def _local_step(result: int, op: ops.Alloc) -> Step:
    size = (op.count or 0) * op.dtype.itemsize
    base = just_aligned(LOCAL_BASE, max(op.align, op.dtype.itemsize))
    name = op.result.name or "local"

    def step(values: Values, team: Team) -> None:
        found = team.local.get(result)
        if found is None:
            found = Allocation.fresh(name, Space.LOCAL, op.dtype, base, size=size, copies=team.lanes)
            team.local[result] = found
        values[result] = Pointers(found, np.int64(0))

    return step


# -- prints and asserts -----------------------------------------------------------------------------------------------


def _print(c: Compiler, op: ops.Print) -> tuple[Step, ...]:
    read_out = _messages(c, op, op.format)
    return (lambda values, team: team.launch.prints.extend(read_out(values, team, team.mask)),)


def _assert(c: Compiler, op: ops.Assert) -> tuple[Step, ...]:
    condition = c.number(op.condition)
    read_out = _messages(c, op, op.message)

    def step(values: Values, team: Team) -> None:
        failed = both(team.mask, ~values[condition])
        if failed is not False:
            team.launch.failures.extend(read_out(values, team, failed))

    return (step,)


def _messages(c: Compiler, op: ops.Print | ops.Assert, template: str) -> Callable[[Values, Team, Any], list[Message]]:
    numbers = c.numbers(op.operands_)
    dtypes = [scalar_dtype(v) for v in op.operands_]

    def messages(values: Values, team: Team, mask: Any) -> list[Message]:
        lanes = np.arange(team.lanes) if mask is None else np.flatnonzero(mask)
        columns = [team.spread(values[n])[lanes] for n in numbers]
        rows = [tuple(map(semantics.to_python, row, dtypes)) for row in zip(*columns)] if columns else [()] * len(lanes)
        return [
            Message(template.format(*map(shown, row, dtypes)), op.loc, team.who(lane), row)
            for lane, row in zip(lanes.tolist(), rows, strict=True)
        ]

    return messages


STEPS: Builders = {
    ops.Binary: _binary,
    ops.Unary: _unary,
    ops.Compare: _compare,
    ops.Select: _select,
    ops.Cast: _cast,
    ops.Bitcast: _bitcast,
    ops.Offset: _offset,
    ops.Load: _load,
    ops.Store: _store,
    ops.Alloc: _alloc,
    ops.Print: _print,
    ops.Assert: _assert,
}
