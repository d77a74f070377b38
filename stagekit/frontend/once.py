"""What one thread does for its block becomes a branch, and what others read of it goes through shared memory.

%x = once { ...; yield %v }    ->    if thread_idx("x") == 0 { ...; store(%slot, %v) }
statement
%x = load(%slot)
"""

from __future__ import annotations

from collections.abc import Sequence

from stagekit.forks import cached_property
from stagekit.intrinsics import registry
from stagekit.ir import U32, Builder, CompareKind, Function, Space, Value, flow, ops, walk
from stagekit.ir.rewriter import Rewriter
from stagekit.limits import WARP


def emit_barrier(b: Builder, threads: int) -> None:
    if threads > WARP:
        b.call(registry.by_name("syncthreads"), ())
    else:
        b.call(registry.by_name("syncwarp"), (b.constant((1 << threads) - 1, U32),))


class OnceBranches:
    """Turns each `once` into a branch. conditions: of these branches; they hold in the first thread alone."""

    def __init__(self, fn: Function, threads: int) -> None:
        self.fn = fn
        self.threads = threads
        self.conditions: set[Value] = set()

    @cached_property
    def used(self) -> set[Value]:
        return {value for each in walk(self.fn.body) for value in each.operands()}

    def run(self) -> Function:
        return Rewriter({ops.ActOnce: self.branch}).run(self.fn)

    def branch(self, op: ops.ActOnce, b: Builder) -> Sequence[Value]:
        given = flow.end_of(op.thread_body)
        if self.threads == 1:
            b.current.ops += op.thread_body.ops[:-1]
            return given
        slots = {v: _slot(v, b) for v, result in zip(given, op.results) if result in self.used}
        condition = b.compare(CompareKind.EQ, b.call_one(registry.by_name("thread_idx"), (), ("x",)), b.index(0))
        self.conditions.add(condition)
        with b.block() as then:
            then.ops += op.thread_body.ops[:-1]
            for value, slot in slots.items():
                b.store(slot, value)
            b.yield_()
        with b.block() as otherwise:
            b.yield_()
        b.if_(condition, then.done(), otherwise.done())
        if slots:
            b.statement()
        return [b.load(slots[v]) if v in slots else v for v in given]


def _slot(value: Value, b: Builder) -> Value:
    """Return shared memory for `value`."""
    dtype = value.type.dtype
    return b.alloc(dtype, Space.SHARED, 1, dtype.itemsize, "once")
