"""Integer expressions that the launcher evaluates on the host: grids, blocks and sizes computed from arguments.

    HostOp("floordiv", (HostOp("add", (Slot(3), Const(255))), Const(256)))        # ceildiv(n, 256)

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
class HostOp:
    """`kind` is a key of `KINDS`."""

    kind: str
    args: tuple[HostExpr, ...]


HostExpr = Const | Slot | HostOp


def slots_in(expr: object) -> list[int]:
    """The slots that an expression reads, in order; none for what is no expression."""
    if isinstance(expr, Slot):
        return [expr.index]
    return [i for a in expr.args for i in slots_in(a)] if isinstance(expr, HostOp) else []


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


Evaluator = Callable[[Sequence[int]], tuple[int, ...]]
"""From the values of the parameter slots to those of expressions."""


def compile_expressions(expressions: Sequence[HostExpr]) -> Evaluator:
    """A function that computes all of these, each node once: a tree is walked here, and a launch only follows a list."""
    nodes = _in_order(expressions)
    constants = [node.value for node in nodes.values() if isinstance(node, Const)]
    slots = [node.index for node in nodes.values() if isinstance(node, Slot)]
    by_kind = sorted(nodes, key=lambda key: _ORDER.index(type(nodes[key])))  # else in order: operands come first
    places = {key: place for place, key in enumerate(by_kind)}
    steps = [
        (KINDS[node.kind], [places[id(a)] for a in node.args]) for node in nodes.values() if isinstance(node, HostOp)
    ]
    results = [places[id(expr)] for expr in expressions]
    last: tuple[list[int], tuple[int, ...]] | None = None  # mostly the next launch has the same sizes

    def evaluate(given: Sequence[int]) -> tuple[int, ...]:
        nonlocal last
        inputs, known = [given[slot] for slot in slots], last  # another thread may replace it meanwhile
        if known is not None and known[0] == inputs:
            return known[1]
        values = constants + inputs
        for function, operands in steps:
            values.append(function(*[values[place] for place in operands]))
        found = tuple([values[place] for place in results])
        last = inputs, found
        return found

    return evaluate


_ORDER = (Const, Slot, HostOp)


def _in_order(expressions: Sequence[HostExpr]) -> dict[int, HostExpr]:
    """All nodes, operands first, by identity: hashing a tree costs a walk over it."""
    found: dict[int, HostExpr] = {}

    def add(expr: HostExpr) -> None:
        if id(expr) not in found:
            for operand in expr.args if isinstance(expr, HostOp) else ():
                add(operand)
            found[id(expr)] = expr

    for expr in expressions:
        add(expr)
    return found
