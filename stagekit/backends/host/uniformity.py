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

from stagekit.ir import Block, Effect, Function, Native, Op, Space, Value, flow, ops


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

    def flow(self, links: Iterable[flow.Edge]) -> bool:
        """Each target varies if its source does; did anything change?"""
        return self.mark([target for source, target in links if source in self.varying])

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
            return self._shape["xyz".index(op.params[0])] > 1
        if isinstance(op, ops.Alloc):
            return op.space is Space.LOCAL
        return bool(op.effects)

    def bodies(self, op: Op) -> bool:
        links = tuple(flow.edges(op))
        if isinstance(op, ops.For) and op not in self._barriers and not self.varying.isdisjoint(flow.deciders(op)):
            self.mark(op.loop_body.params[:1])
        self.flow(links)
        happened = [self.block(body) for body in op.bodies()]
        while self.flow(links) and not isinstance(op, ops.If):  # the arms of an `if` see nothing of what they yield
            happened = [self.block(body) for body in op.bodies()]
        return any(happened)
