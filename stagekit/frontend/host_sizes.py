"""Sizes that a kernel computes for its launch, as expressions that the host evaluates from the parameter slots."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from stagekit.diagnostics import DIVISION, Loc
from stagekit.frontend.errors import LaunchNotComputable, StagingError
from stagekit.frontend.numbers import default_dtype, is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.values import Number
from stagekit.hostexpr import HostExpr, HostOp, Slot
from stagekit.ir import Block, Op, Scalar, Value, ops
from stagekit.signature import ArraySpec, LaunchSpec, TensorMapSpec


class HostExpressions:
    """Turns run-time sizes into expressions that the host evaluates from the parameter slots.

    among: the ops that may have computed them, if not only those outside of control flow.
    """

    def __init__(self, body: Block, loc: Loc, among: Iterable[Op] | None = None) -> None:
        self.slots = {v: i for i, v in enumerate(body.params)}
        self.definitions: dict[Value, Op] = {r: op for op in (body.ops if among is None else among) for r in op.results}
        self.loc = loc

    def convert(self, value: Any, what: str) -> HostExpr:
        if isinstance(value, Number) and value.dtype.is_integer:
            return self._convert_value(value.value, what)
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return int(value)
        is_float = is_numeric(value) and default_dtype(value).is_float
        hint = DIVISION if is_float else "give an integer"
        raise StagingError(LaunchNotComputable(what, f"is no integer: {describe(value)}", hint), self.loc)

    def convert_pointer(self, value: Value) -> HostExpr:
        """Return the address that a pointer into an argument has."""
        if value in self.slots:
            return Slot(self.slots[value])
        op = self.definitions.get(value)
        if not isinstance(op, ops.Offset):
            raise self._not_computable("an address")
        moved = HostOp("mul", (self._convert_value(op.index, "an address"), value.type.dtype.itemsize))
        return HostOp("add", (self.convert_pointer(op.pointer), moved))

    def name_of(self, value: Value) -> str:
        """Return the name of the argument that a pointer points into."""
        while isinstance(op := self.definitions.get(value), ops.Offset):
            value = op.pointer
        return value.name

    def _not_computable(self, what: str) -> StagingError:
        why = "does not depend on sizes and scalar arguments alone"
        hint = "compute grid and block from sizes, constexprs and scalar parameters"
        return StagingError(LaunchNotComputable(what, why, hint), self.loc)

    def _convert_value(self, value: Value, what: str) -> HostExpr:
        if value in self.slots and _is_integer(value):
            return Slot(self.slots[value])
        op = self.definitions.get(value)
        if isinstance(op, ops.Constant):
            return int(op.value)
        if isinstance(op, ops.Cast) and _is_integer(op.operand):
            return self._convert_value(op.operand, what)
        kind: str | None = None
        if isinstance(op, ops.Binary | ops.Unary | ops.Compare) and _is_integer(value):
            kind = op.kind.value
        elif isinstance(op, ops.Select):
            kind = "select"
        elif isinstance(op, ops.IntrinsicOp):
            kind = op.spec.extreme
        if op is None or not kind:
            raise self._not_computable(what)
        return HostOp(kind, tuple(self._convert_value(v, what) for v in op.operands()))


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and not value.type.dtype.is_float


def renumbered(tree: Any, number: dict[int, int]) -> Any:
    """Return host expressions, or what holds some, with the new numbers of their slots."""
    if isinstance(tree, Slot):
        return Slot(number[tree.index])
    if isinstance(tree, tuple):
        return tuple(renumbered(each, number) for each in tree)
    if type(tree) in _EXPRESSIONS_OF:
        changed = {name: renumbered(getattr(tree, name), number) for name in _EXPRESSIONS_OF[type(tree)]}
        return dataclasses.replace(tree, **changed)
    return tree


_EXPRESSIONS_OF: dict[type, tuple[str, ...]] = {
    HostOp: ("args",),
    ArraySpec: ("shape", "strides"),
    LaunchSpec: ("grid", "block", "shared_bytes"),
    TensorMapSpec: ("address", "shape", "strides"),
}
