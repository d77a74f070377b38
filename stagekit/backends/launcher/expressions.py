"""Host expressions as machine code: what a launch computes from its native parameters."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial

from stagekit.backends.launcher.registers import Reg
from stagekit.backends.launcher.routine import Routine
from stagekit.dtypes import int64
from stagekit.hostexpr import HostExpr, Slot


def _compare(compare: Callable[[Reg, Reg], Reg], a: Reg, b: Reg) -> Reg:
    return compare(a, b).to(int64)


_OPERATIONS: dict[str, Callable[..., Reg]] = {
    **{kind: getattr(operator, kind) for kind in ("add", "sub", "mul", "floordiv", "mod", "xor", "neg")},
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "min": lambda a, b: (a < b).select(a, b),
    "max": lambda a, b: (a > b).select(a, b),
    "select": lambda condition, a, b: (condition != 0).select(a, b),
    **{kind: partial(_compare, getattr(operator, kind)) for kind in ("eq", "ne", "lt", "le", "gt", "ge")},
}


class Expressions:
    """Writes expressions, a shared node once. slots: pointers to the native parameters."""

    def __init__(self, r: Routine, slots: Sequence[Reg]) -> None:
        self._r = r
        self._slots = slots
        self._values: dict[int, Reg] = {}  # by identity: hashing a tree costs a walk over it

    def value_of(self, expr: HostExpr) -> Reg:
        """Return the value of an expression."""
        if isinstance(expr, int):
            return self._r.number(int64.wrap(expr))
        if id(expr) not in self._values:
            if isinstance(expr, Slot):
                value = self._slots[expr.index].load(int64)
            else:
                value = _OPERATIONS[expr.kind](*map(self.value_of, expr.args))
            self._values[id(expr)] = value
        return self._values[id(expr)]
