"""Integer expressions that the launcher evaluates on the host: grids, blocks and sizes computed from arguments.

    HostOp("floordiv", (HostOp("add", (Slot(3), 255)), 256))        # ceildiv(n, 256)

An int stands for itself. Values are 64-bit signed integers that wrap, as in the kernel. A tree is plain data: frozen, hashable,
picklable.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from stagekit.dtypes import int64
from stagekit.frozen import frozen


@frozen()
class Slot:
    """The value of parameter slot `index` (`signature.ParamSlot`)."""

    index: int


@frozen()
class HostOp:
    """`kind` is a key of `KINDS`."""

    kind: str
    args: tuple[HostExpr, ...]


HostExpr = int | Slot | HostOp

KINDS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: int64.wrap(a + b),
    "sub": lambda a, b: int64.wrap(a - b),
    "mul": lambda a, b: int64.wrap(a * b),
    "floordiv": lambda a, b: int64.wrap(a // b) if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": lambda a, b: int64.wrap(a << b) if 0 <= b < 64 else 0,
    "shr": lambda a, b: a >> b if 0 <= b < 64 else (-1 if a < 0 else 0),
    "neg": lambda a: int64.wrap(-a),
    "not": operator.invert,
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
    "select": lambda condition, a, b: a if condition else b,
}


def slots_in(expr: object) -> list[int]:
    """Return the slots that an expression reads, in order; none for what is no expression."""
    if isinstance(expr, Slot):
        return [expr.index]
    return [i for a in expr.args for i in slots_in(a)] if isinstance(expr, HostOp) else []


Evaluator = Callable[[Sequence[int]], tuple[int, ...]]
"""From the values of the parameter slots to those of expressions."""


def compile_expressions(expressions: Sequence[HostExpr]) -> Evaluator:
    """Return a function that computes all of these, each node once: the trees are walked here, and a launch follows a list."""
    nodes: dict[int, HostExpr] = {}  # operands first; by identity, since hashing a tree costs a walk over it

    def add(expr: HostExpr) -> None:
        if id(expr) not in nodes:
            for operand in expr.args if isinstance(expr, HostOp) else ():
                add(operand)
            nodes[id(expr)] = expr

    for expr in expressions:
        add(expr)

    def evaluate(slots: Sequence[int]) -> tuple[int, ...]:
        known: dict[int, int] = {}
        for key, node in nodes.items():
            if isinstance(node, HostOp):
                known[key] = KINDS[node.kind](*[known[id(operand)] for operand in node.args])
            else:
                known[key] = slots[node.index] if isinstance(node, Slot) else node
        return tuple([known[id(expr)] for expr in expressions])

    return evaluate
