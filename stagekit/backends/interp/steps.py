"""Straight-line ops as steps: arithmetic by the tables of `semantics`, memory through `access.py`, and what the host sees.

A step reads and writes `values` by number. Rows of `semantics` that are plain NumPy functions of the operands' own dtype are
called directly; the run sets NumPy's error state once for all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.backends.interp.access import both, read, write
from stagekit.backends.interp.breakpoints import stopped_blocks
from stagekit.backends.interp.checks import checks_of
from stagekit.backends.interp.findings import Message
from stagekit.backends.interp.memory import Allocation, Pointers, choose, just_aligned
from stagekit.backends.interp.program import Builder, Builders, Built, Compiler, Step, scalar_dtype
from stagekit.backends.interp.team import Team, Values
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType, shown
from stagekit.ir import Op, Pointer, Space, Value, ops, semantics

Meaning = Callable[..., Any]

_NARROW_BITS = 16  # floats this small compute in float32, see `semantics`
_LOCAL_BASE = 0x8000_0000  # local memory has addresses of its own, of which only the alignment matters


# -- arithmetic -------------------------------------------------------------------------------------------------------


def computed(meaning_of: Callable[[Any], Meaning]) -> Builder:
    """Return the builder of ops whose result is a function of their operands, lane by lane."""

    def build(c: Compiler, op: Op) -> Built:
        result, *operands = c.numbers((op.result, *op.operands()))
        return (_apply(meaning_of(op), result, operands), *checks_of(c, op))

    return build


def _apply(meaning: Meaning, result: int, operands: list[int]) -> Step:
    if len(operands) == 1:
        (operand,) = operands

        def unary(values: Values, team: Team) -> None:
            values[result] = meaning(values[operand])

        return unary
    if len(operands) == 2:
        lhs, rhs = operands

        def binary(values: Values, team: Team) -> None:
            values[result] = meaning(values[lhs], values[rhs])

        return binary

    def step(values: Values, team: Team) -> None:
        values[result] = meaning(*map(values.__getitem__, operands))

    return step


def _row(table: Any, general: Meaning, kind: Any, dtype: DType) -> Meaning:
    row = table[kind]
    computes_itself = not (dtype.is_float and dtype.bits <= _NARROW_BITS)
    if isinstance(row, np.ufunc) and computes_itself:
        return row
    return lambda *operands: general(kind, dtype, *operands)


def _binary(op: ops.Binary) -> Meaning:
    return _row(semantics.BINARY, semantics.binary, op.kind, scalar_dtype(op.lhs))


def _unary(op: ops.Unary) -> Meaning:
    return _row(semantics.UNARY, semantics.unary, op.kind, scalar_dtype(op.operand))


def _comparison(op: ops.Compare) -> Meaning:
    dtype, row = op.lhs.type.dtype, semantics.COMPARE[op.kind]
    if isinstance(op.lhs.type, Pointer):
        return lambda a, b: row(a.number(dtype), b.number(dtype))
    return _row(semantics.COMPARE, semantics.compare, op.kind, dtype)


def _conversion(op: ops.Cast) -> Meaning:
    source, target = scalar_dtype(op.operand), scalar_dtype(op.result)
    if source is target:
        return lambda value: value
    row = semantics.CAST[target.kind]

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return row(value, source, target)
        return semantics.cast(value, source, target)

    return convert


def _reinterpretation(op: ops.Bitcast) -> Meaning:
    source, target = op.operand.type.dtype, op.result.type.dtype
    if isinstance(op.operand.type, Pointer):
        if isinstance(op.result.type, Pointer):
            return lambda address: address.seen_as(source, target)
        return lambda address: address.number(source)
    if target.kind == "bool" or source.kind == "bool":
        raise InternalError(f"bitcast of {source.name} to {target.name}")
    return lambda value: value.view(target.numpy)


# -- memory -----------------------------------------------------------------------------------------------------------


def _lanes(c: Compiler, mask: Value | None) -> Callable[[Values, Team], Any]:
    """Return what gives the active lanes of an access that has this mask; False where there are none."""
    if mask is None:
        return lambda values, team: team.mask
    number = c.number(mask)
    return lambda values, team: both(team.mask, values[number])


def _load(c: Compiler, op: ops.Load) -> Built:
    access, lanes_of = c.access(op, "read", op.pointer), _lanes(c, op.mask)
    result, pointer = c.numbers((op.result, op.pointer))
    fill = None if op.mask is None or op.other is None else c.numbers((op.mask, op.other))

    def load(values: Values, team: Team) -> None:
        lanes = lanes_of(values, team)
        loaded = None if lanes is False else read(team, values[pointer], lanes, access)
        values[result] = loaded if fill is None else choose(values[fill[0]], loaded, values[fill[1]])

    return (load,)


def _store(c: Compiler, op: ops.Store) -> Built:
    access, lanes_of = c.access(op, "write", op.pointer), _lanes(c, op.mask)
    pointer, value = c.numbers((op.pointer, op.value))

    def store(values: Values, team: Team) -> None:
        lanes = lanes_of(values, team)
        if lanes is not False:
            write(team, values[pointer], values[value], lanes, access)

    return (store,)


_moved = computed(lambda op: operator.add)


def _offset(c: Compiler, op: ops.Offset) -> Built:
    view = op.indexed
    if view is None or not view.strides:
        return _moved(c, op)
    shape, strides = c.sizes(view.shape), c.sizes(view.strides)
    result, pointer = c.numbers((op.result, op.pointer))
    if shape is None or strides is None or not c.options.checks.axes:
        return _moved(c, op)

    def bound(values: Values, team: Team) -> None:
        extents, steps = ([values[n] for n in numbers] for numbers in (shape, strides))
        values[result] = values[pointer].within(op.pointer.type.dtype, extents, steps)

    return (bound,)


def _alloc(c: Compiler, op: ops.Alloc) -> Built:
    result = c.number(op.result)
    if op.space is Space.GLOBAL:
        c.constants[result] = Pointers(Allocation.missing("nowhere", op.dtype, 0), np.int64(0))
        return ()
    if op.space is Space.SHARED:
        number = len(c.shared)
        c.shared.append(op)

        def shared(values: Values, team: Team) -> None:
            values[result] = Pointers(team.memory[number], np.int64(0))
            for watcher in team.launch.watchers if op.count is not None else ():
                watcher.begin(team, team.memory[number])

        return (shared,)
    size = (op.count or 0) * op.dtype.itemsize
    base = just_aligned(_LOCAL_BASE, max(op.align, op.dtype.itemsize))
    name = op.result.name or "local"

    def local(values: Values, team: Team) -> None:
        if result not in team.local:
            memory = Allocation.fresh(name, Space.LOCAL, op.dtype, base, size=size, copies=team.lanes)
            team.local[result] = memory
        values[result] = Pointers(team.local[result], np.int64(0))

    return (local,)


def _table(c: Compiler, op: ops.Table) -> Built:
    memory = Allocation.table(op.result.name or "table", op.dtype, bytes.fromhex(op.data))
    c.constants[c.number(op.result)] = Pointers(memory, np.int64(0))
    return ()


# -- prints and asserts -----------------------------------------------------------------------------------------------


def _print(c: Compiler, op: ops.Print) -> Built:
    messages_of = _messages(c, op, op.format)
    return (lambda values, team: team.launch.prints.extend(messages_of(values, team, team.mask)),)


def _assert(c: Compiler, op: ops.Assert) -> Built:
    condition = c.number(op.condition)
    messages_of = _messages(c, op, op.message)

    def step(values: Values, team: Team) -> None:
        failed = both(team.mask, ~values[condition])
        if failed is not False:
            team.launch.failures.extend(messages_of(values, team, failed))

    return (step,)


def _breakpoint(c: Compiler, op: ops.Breakpoint) -> Built:
    numbers, types = c.numbers(op.operands_), [v.type for v in op.operands_]

    def step(values: Values, team: Team) -> None:
        if team.launch.stop is not None:
            for stopped in stopped_blocks(team, [values[n] for n in numbers], types):
                team.launch.stop(op.scene, stopped)

    return (step,)


def _messages(c: Compiler, op: ops.Print | ops.Assert, template: str) -> Callable[[Values, Team, Any], list[Message]]:
    numbers = c.numbers(op.operands_)
    dtypes = [scalar_dtype(v) for v in op.operands_]

    def messages(values: Values, team: Team, mask: Any) -> list[Message]:
        lanes = team.lane_numbers if mask is None else np.flatnonzero(mask)
        columns = [team.spread(values[n])[lanes] for n in numbers]
        rows = [tuple(map(semantics.to_python, row, dtypes)) for row in zip(*columns)] if columns else [()] * len(lanes)
        return [
            Message(template.format(*map(shown, row, dtypes)), op.loc, team.launch.who(tag), row)
            for tag, row in zip(team.tag[lanes].tolist(), rows, strict=True)
        ]

    return messages


STEPS: Builders = {
    ops.Binary: computed(_binary),
    ops.Unary: computed(_unary),
    ops.Compare: computed(_comparison),
    ops.Select: computed(lambda op: choose),
    ops.Cast: computed(_conversion),
    ops.Bitcast: computed(_reinterpretation),
    ops.Offset: _offset,
    ops.Load: _load,
    ops.Store: _store,
    ops.Alloc: _alloc,
    ops.Table: _table,
    ops.Print: _print,
    ops.Assert: _assert,
    ops.Breakpoint: _breakpoint,
}
