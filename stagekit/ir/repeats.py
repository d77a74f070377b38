"""Compute each thing once: drop an op where the same has been computed on every path that leads to it.

    %1 = binary.add %a, %b
    if %c then {
      %2 = binary.add %a, %b      (gone: %1)
      ...

Only ops whose results depend on their operands, and on which thread this is; none that reads memory or other threads.
Scoped by dominance: what a body computes is forgotten after it. Linear.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from stagekit.ir import ops
from stagekit.ir.builder import Builder
from stagekit.ir.core import OP_CLASSES, Block, Effect, Op, Value
from stagekit.ir.rewriter import Rewriter

_REPEATABLE = frozenset({Effect.VARYING})
_DISTINCT = (ops.Alloc,)  # two of them are two pieces of memory


class Reuser(Rewriter):
    """Replaces ops that repeat another by its results."""

    def __init__(self) -> None:
        super().__init__({cls: _rule(self, key) for cls, key in _KEYS.items()})
        self.computed: dict[Any, tuple[Value, ...]] = {}
        self.in_this_block: list[Any] = []

    def block(self, block: Block) -> Block:
        outer, self.in_this_block = self.in_this_block, []
        rewritten = super().block(block)
        for key in self.in_this_block:
            del self.computed[key]
        self.in_this_block = outer
        return rewritten


def _rule(reuser: Reuser, key_of: Callable[[Any], Any]) -> Callable[[Op, Builder], Sequence[Value] | None]:
    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        effects = op.effects
        if effects and not effects <= _REPEATABLE:
            return None
        key = key_of(op)
        found = reuser.computed.get(key)
        if found is None:
            reuser.computed[key] = op.results
            reuser.in_this_block.append(key)
        return found

    return rule


# -- keys: equal exactly for ops that compute the same ----------------------------------------------------------------


def _intrinsic_key(op: ops.IntrinsicOp) -> Any:
    return op.spec, repr(op.params) if op.params else "", op.args  # repr: 1 == True


def _key_of(cls: type[Op]) -> Callable[[Any], Any]:
    """Return the function that makes a key from the fields of `cls`, with the result type where the operands do not decide it."""
    fields = operator.attrgetter("mnemonic", *cls.ATTRIBUTE_FIELDS, *(name for name, _ in cls.OPERAND_FIELDS))
    if cls in (ops.Cast, ops.Bitcast, ops.InlineAsm):
        return lambda op: (fields(op), op.results and op.results[0].type)
    return fields


_KEYS: dict[type[Op], Callable[[Any], Any]] = {
    **{c: _key_of(c) for c in OP_CLASSES.values() if not (c.BODY_FIELDS or c.is_terminator or c in _DISTINCT)},
    ops.Constant: lambda op: (ops.Constant, op.result.type, ops.exactly(op.value)),
    ops.IntrinsicOp: _intrinsic_key,
}
