"""Which loops may wait for another thread: they read, in every round, memory that the kernel also writes.

    while atomic_cas(lock, 0, 1) != 0: pass          # waits: `lock` is written by whoever holds it
    while lo < hi: ... keys[mid] ...                 # does not, if the kernel never writes `keys`

A compare-and-swap that expects what the loop itself saw last (the retry loop of `atomic_max` on floats) does not wait: it
fails only because another lane got through. Pointers are traced to the parameters and allocations that they come from.
"""

from __future__ import annotations

from itertools import chain

from stagekit.backends.interp.meaning import native_of
from stagekit.ir import Effect, Function, Native, Op, flow, ops, walk


class WaitingLoops:
    """The answer for every loop of a function. written: parameters and allocations that the kernel may write."""

    def __init__(self, fn: Function) -> None:
        self._sources = flow.sources(fn.body)
        self.written = flow.written(fn.body, self._sources)
        self._waiting = {op for op in walk(fn.body) if isinstance(op, ops.While) and self._waits(op)}

    def __contains__(self, op: Op) -> bool:
        return op in self._waiting

    def any(self) -> bool:
        return bool(self._waiting)

    def _waits(self, loop: ops.While) -> bool:
        return any(
            Effect.READ in op.effects and not _is_retry(op, loop) and self._touches_written(op)
            for op in chain(walk(loop.before), walk(loop.after))
        )

    def _touches_written(self, op: Op) -> bool:
        return not self.written.isdisjoint(flow.upstream(flow.pointers_of(op), self._sources))


def _is_retry(op: Op, loop: ops.While) -> bool:
    is_swap = isinstance(op, ops.IntrinsicOp) and native_of(op) is Native.ATOMIC_CAS
    return is_swap and op.operands()[1] in loop.before.params
