"""Host expressions as machine code: sizes that follow from others, and the launch that a kernel computes itself.

`hostexpr.KINDS` says what each operation means; the range checks are those of `runtime/launch_config.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from stagekit.backends.launcher.routine import Routine
from stagekit.backends.launcher.values import Value
from stagekit.dtypes import int64, uint64
from stagekit.hostexpr import HostExpr, HostOp, Slot

_OPERATIONS: dict[str, Callable[..., Value]] = {
    **{kind: getattr(operator, kind) for kind in ("add", "sub", "mul", "floordiv", "mod", "xor", "neg")},
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "min": lambda a, b: (a < b).select(a, b),
    "max": lambda a, b: (a > b).select(a, b),
    "select": lambda condition, a, b: (condition != 0).select(a, b),
}


class Evaluator:
    """Writes the values of expressions. slots: integers by slot; a shared node is written once."""

    def __init__(self, r: Routine, slots: Mapping[int, Value]) -> None:
        self._r = r
        self._slots = slots
        self._known: dict[int, Value] = {}  # by identity: hashing a tree costs a walk over it

    def value_of(self, expr: HostExpr) -> Value:
        if isinstance(expr, int):
            return self._r.number(int64.wrap(expr))
        if isinstance(expr, Slot):
            return self._slots[expr.index]
        if id(expr) not in self._known:
            self._known[id(expr)] = self._operation(expr)
        return self._known[id(expr)]

    def _operation(self, op: HostOp) -> Value:
        args = [self.value_of(a) for a in op.args]
        if op.kind in _OPERATIONS:
            return _OPERATIONS[op.kind](*args)
        compared: Value = getattr(operator, op.kind)(*args)  # `eq` to `ge`
        return compared.to(int64)


def require_limits(r: Routine, axes: Sequence[Value], limits: Sequence[int]) -> None:
    """Every axis from 0 to its limit."""
    for axis, high in zip(axes, limits):
        r.require(axis.to(uint64) <= high)
