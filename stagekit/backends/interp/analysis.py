"""Analyses of a function before it is turned into steps: what the interpreter itself does, and loops that wait."""

from __future__ import annotations

from itertools import chain

from stagekit.ir import Effect, Function, Native, Op, Value, flow, ops, walk


def native_of(op: ops.IntrinsicOp) -> Native | None:
    """Return the operation that the interpreter itself has for `op`; None where the record's `evaluate` says it all."""
    if "interp" not in op.spec.lower:
        return None
    found = op.spec.lowering("interp", tuple(v.type for v in op.args), fastmath=False)
    return found if isinstance(found, Native) else None


def waiting_loops(fn: Function, sources: flow.Sources, written: frozenset[Value]) -> frozenset[Op]:
    """Return the loops that may wait for another thread: they read, in every round, memory that the kernel also writes.

        while atomic_cas(lock, 0, 1) != 0: pass          # waits: `lock` is written by whoever holds it
        while lo < hi: ... keys[mid] ...                 # does not, if the kernel never writes `keys`

    A compare-and-swap that expects what the loop itself saw last (the retry loop of `atomic_max` on floats) does not wait: it
    fails only because another lane got through. written: the parameters and allocations that the kernel may write.
    """

    def waits(loop: ops.While) -> bool:
        reads = (op for op in chain(walk(loop.before), walk(loop.after)) if Effect.READ in op.effects)
        seen = flow.upstream(chain(*(flow.pointers_of(op) for op in reads if not _is_retry(op, loop))), sources)
        return not written.isdisjoint(seen)

    return frozenset(op for op in walk(fn.body) if isinstance(op, ops.While) and waits(op))


def _is_retry(op: Op, loop: ops.While) -> bool:
    is_swap = isinstance(op, ops.IntrinsicOp) and native_of(op) is Native.ATOMIC_CAS
    return is_swap and op.operands()[1] in loop.before.params
