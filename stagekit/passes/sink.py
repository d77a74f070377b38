"""Compute each thing where it is first needed, so that fewer registers hold what waits for its turn.

    w0 = load(w)      w1 = load(w + 8)              w0 = load(w)      store(out, x0 * w0)
    y0 = x0 * w0      y1 = x1 * w1          ->      w1 = load(w + 8)  store(out + 8, x1 * w1)
    store(out, y0)    store(out + 8, y1)

An operation on tiles is done for all vectors of a thread before the next one begins, and all are alive meanwhile. So this is for
functions that have vectors. Pure ops move, and loads of what nothing writes (the attribute `constant`), past stores to global
memory alone: what is loaded before threads wait for each other arrives while they do, and products of what is loaded from shared
memory stay where each load is used up. No op leaves its block, and all others keep their order. Linear.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from stagekit.ir import Block, Effect, Function, Op, Space, Value, Vector, flow, ops, walk
from stagekit.passes import PassContext

_MOVABLE = frozenset({Effect.VARYING})


def sink(fn: Function, context: PassContext) -> Function:
    """Move pure ops, and loads of arguments that are constant, down to what needs them."""
    if not any(isinstance(result.type, Vector) for op in walk(fn.body) for result in op.results):
        return fn
    return dataclasses.replace(fn, body=_Sinking(fn).block(fn.body))


class _Sinking:
    def __init__(self, fn: Function) -> None:
        self.constant = {param for param, holds in zip(fn.params, fn.attribute("constant", ())) if holds}
        self.comes_from = flow.sources(fn.body)

    def block(self, block: Block) -> Block:
        """Return `block` with its ops, and those of the bodies in it, in the order in which they are needed."""
        found: list[Op] = []
        waiting: dict[Value, Op] = {}  # by their results, the ops that no op has needed yet
        for op in block.ops:
            if self.may_move(op):
                for result in op.results:
                    waiting[result] = op
                continue
            _take(op.operands(), waiting, found)
            if type(op) is not ops.Store or op.pointer.type.space is not Space.GLOBAL:  # type: ignore[union-attr]
                _take(list(waiting), waiting, found)
            found.append(op.with_bodies(list(map(self.block, op.bodies()))) if op.BODY_FIELDS else op)
        return Block(block.params, tuple(found))

    def may_move(self, op: Op) -> bool:
        if op.BODY_FIELDS or op.is_terminator or type(op) is ops.Alloc:
            return False
        if type(op) is not ops.Load:
            return op.effects <= _MOVABLE
        if op.pointer.type.space is Space.CONSTANT:  # type: ignore[union-attr]
            return True
        roots = {value for value in flow.upstream([op.pointer], self.comes_from) if value not in self.comes_from}
        return roots <= self.constant


def _take(values: Iterable[Value], waiting: dict[Value, Op], found: list[Op]) -> None:
    """Move the ops that compute `values` to `found`, each behind those that it needs itself."""
    for value in values:
        path = _begun(value, waiting)
        while path:
            for each in path[-1].operands():
                if each in waiting:
                    path += _begun(each, waiting)
                    break
            else:
                found.append(path.pop())


def _begun(value: Value, waiting: dict[Value, Op]) -> list[Op]:
    """Return the op that computes `value`, which then waits no more; none where it does not wait."""
    op = waiting.get(value)
    if op is None:
        return []
    for each in op.results:
        del waiting[each]
    return [op]
