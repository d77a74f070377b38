"""Which values are one number for the whole block, and so can be computed once per block.

    block_idx, sizes, constants, what is computed from them           uniform
    thread_idx, lane_id, whatever was loaded, atomics, warp votes     varying
    results of control flow around a barrier                          varying if what is handed on is
    results of other control flow                                     varying if anything in it is, or has an effect

Optimistic: everything is uniform until something says otherwise, to a fixpoint; `varying` only grows, so a loop is
looked at again at most once per value that changes. A load is varying even from a uniform address: another thread may
have stored there since the last barrier.

Control flow that contains a barrier is taken by all threads alike or it is a fault (`blockflow.py` checks), so its
condition makes nothing varying.
"""

from __future__ import annotations

from collections.abc import Iterable

from stagekit.ir import Block, Effect, Function, Native, Op, Space, Value, ops

_AXES = {"x": 0, "y": 1, "z": 2}


def barrier_ops(block: Block) -> frozenset[Op]:
    """The ops under `block` that wait for the whole block of threads, or contain one that does."""
    found: set[Op] = set()
    _find_barriers(block, found)
    return frozenset(found)


def _find_barriers(block: Block, found: set[Op]) -> bool:
    here = [op for op in block.ops if _waits(op, found)]
    found.update(here)
    return bool(here)


def _waits(op: Op, found: set[Op]) -> bool:
    inside = [_find_barriers(body, found) for body in op.bodies()]
    return Effect.SYNC in op.effects or any(inside)


def varying_values(fn: Function, block: tuple[int, int, int], barriers: frozenset[Op]) -> frozenset[Value]:
    """The values of `fn` that may differ between the threads of a block of this shape."""
    analysis = _Analysis(block, barriers)
    analysis.block(fn.body)
    return frozenset(analysis.varying)


class _Analysis:
    """`block` and `op` tell whether something per thread happened: a varying value was read or made, or an effect."""

    def __init__(self, block: tuple[int, int, int], barriers: frozenset[Op]) -> None:
        self.varying: set[Value] = set()
        self._shape = block
        self._barriers = barriers

    def mark(self, values: Iterable[Value]) -> bool:
        """Note `values` as varying; did anything change?"""
        before = len(self.varying)
        self.varying.update(values)
        return len(self.varying) != before

    def flow(self, sources: Iterable[Value], targets: Iterable[Value]) -> bool:
        """Each target varies if its source does; did anything change?"""
        return self.mark([t for s, t in zip(sources, targets, strict=True) if s in self.varying])

    def block(self, block: Block) -> bool:
        happened = [self.op(op) for op in block.ops]
        return any(happened)

    def op(self, op: Op) -> bool:
        happened = self.bodies(op) or self.is_per_thread(op) or any(v in self.varying for v in op.operands())
        if happened and op not in self._barriers:
            self.mark(op.results)
        return happened

    def is_per_thread(self, op: Op) -> bool:
        if isinstance(op, ops.IntrinsicOp) and op.spec.lower["cpu"] is Native.THREAD_IDX:
            return self._shape[_AXES[op.params[0]]] > 1
        if isinstance(op, ops.Alloc):
            return op.space is Space.LOCAL
        return bool(op.effects)

    def bodies(self, op: Op) -> bool:
        if isinstance(op, ops.For):
            return self.for_(op)
        if isinstance(op, ops.While):
            return self.while_(op)
        happened = [self.block(body) for body in op.bodies()]
        for body in op.bodies():
            self.flow(body.ops[-1].operands(), op.results)
        return any(happened)

    def for_(self, op: ops.For) -> bool:
        index, *params = op.loop_body.params
        if op not in self._barriers and any(v in self.varying for v in (op.start, op.stop, op.step)):
            self.mark((index,))
        self.flow(op.inits, params)
        happened = self.block(op.loop_body)
        while self.flow(op.loop_body.ops[-1].operands(), params):
            happened = self.block(op.loop_body)
        self.flow(params, op.results)
        return happened

    def while_(self, op: ops.While) -> bool:
        self.flow(op.inits, op.before.params)
        is_changing, happened = True, False
        while is_changing:
            happened = self.block(op.before)
            _, *forwarded = op.before.ops[-1].operands()
            is_changing = self.flow(forwarded, op.after.params)
            happened |= self.block(op.after)
            is_changing |= self.flow(op.after.ops[-1].operands(), op.before.params)
            self.flow(forwarded, op.results)
        return happened
