"""Integer expressions that the launcher evaluates on the host: grids, blocks and sizes computed from arguments.

    Op("floordiv", (Op("add", (Slot(3), Const(255))), Const(256)))        # ceildiv(n, 256)

Values are 64-bit signed integers that wrap, as in the kernel. A tree is plain data: frozen, hashable, picklable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Const:
    value: int


@dataclass(frozen=True, slots=True)
class Slot:
    """The value of parameter slot `index` (`signature.ParamSlot`)."""

    index: int


@dataclass(frozen=True, slots=True)
class Op:
    """`kind` is a key of `KINDS`."""

    kind: str
    args: tuple[HostExpr, ...]


HostExpr = Const | Slot | Op


def _wrap(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


KINDS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: _wrap(a + b),
    "sub": lambda a, b: _wrap(a - b),
    "mul": lambda a, b: _wrap(a * b),
    "floordiv": lambda a, b: _wrap(a // b) if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: _wrap(a << b) if 0 <= b < 64 else 0,
    "shr": lambda a, b: a >> b if 0 <= b < 64 else (-1 if a < 0 else 0),
    "neg": lambda a: _wrap(-a),
    "not": lambda a: ~a,
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
    "select": lambda c, a, b: a if c else b,
}


def evaluate(expr: HostExpr, slots: Sequence[int]) -> int:
    """The value of `expr` when the parameter slots hold `slots`."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Slot):
        return slots[expr.index]
    return KINDS[expr.kind](*(evaluate(a, slots) for a in expr.args))
