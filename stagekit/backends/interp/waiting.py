"""Which loops may wait for another thread: they read, in every round, memory that the kernel also writes.

    while atomic_cas(lock, 0, 1) != 0: pass          # waits: `lock` is written by whoever holds it
    while lo < hi: ... keys[mid] ...                 # does not, if the kernel never writes `keys`

A compare-and-swap that expects what the loop itself saw last (the retry loop of `atomic_max` on floats) does not wait: it
fails only because another lane got through. Pointers are traced to the parameters and allocations that they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from stagekit.backends.interp.meaning import native_of
from stagekit.ir import Block, Effect, Function, Native, Op, Value, ops, walk
from stagekit.ir.types import Pointer


class Sources:
    """What each value may be a copy of: through control flow and selects, and for pointers through offsets and bitcasts."""

    def __init__(self, block: Block) -> None:
        self._from: dict[Value, list[Value]] = {}
        for op in walk(block):
            for target, source in flows(op):
                self._from.setdefault(target, []).append(source)

    def roots(self, value: Value) -> frozenset[Value]:
        """Where `value` begins: parameters and results that are no mere copies."""
        seen: set[Value] = set()
        pending = [value]
        while pending:
            each = pending.pop()
            if each not in seen:
                seen.add(each)
                pending.extend(self._from.get(each, ()))
        return frozenset(v for v in seen if v not in self._from)


def flows(op: Op) -> Iterator[tuple[Value, Value]]:
    """(target, source) for every value that `op` hands on as it is, a moved pointer included."""
    match op:
        case ops.Offset(pointer=source) | ops.Bitcast(operand=source):
            yield op.result, source
        case ops.Select():
            yield from ((op.result, op.if_true), (op.result, op.if_false))
        case ops.If():
            for arm in op.bodies():
                yield from zip(op.results, arm.ops[-1].operands(), strict=True)
        case ops.For():
            carried, yielded = op.loop_body.params[1:], op.loop_body.ops[-1].operands()
            yield from zip(carried, op.inits, strict=True)
            yield from zip(carried, yielded, strict=True)
            yield from chain(zip(op.results, yielded, strict=True), zip(op.results, op.inits, strict=True))
        case ops.While():
            yield from zip(op.before.params, op.inits, strict=True)
            yield from zip(op.before.params, op.after.ops[-1].operands(), strict=True)
            for target in (op.after.params, op.results):
                yield from zip(target, op.before.ops[-1].operands()[1:], strict=True)


class WaitingLoops:
    """The answer for every loop of a function. written: parameters and allocations that the kernel may write."""

    def __init__(self, fn: Function) -> None:
        self._sources = Sources(fn.body)
        self.written = frozenset(
            chain.from_iterable(self._places(op) for op in walk(fn.body) if Effect.WRITE in op.effects)
        )
        self._waiting = {op for op in walk(fn.body) if isinstance(op, ops.While) and self._waits(op)}

    def __contains__(self, op: Op) -> bool:
        return op in self._waiting

    def any(self) -> bool:
        return bool(self._waiting)

    def _waits(self, loop: ops.While) -> bool:
        return any(
            Effect.READ in op.effects and not _is_retry(op, loop) and not self.written.isdisjoint(self._places(op))
            for op in chain(walk(loop.before), walk(loop.after))
        )

    def _places(self, op: Op) -> Iterator[Value]:
        """Parameters and allocations that `op` may touch."""
        for value in op.operands():
            if isinstance(value.type, Pointer):
                yield from self._sources.roots(value)


def _is_retry(op: Op, loop: ops.While) -> bool:
    is_swap = isinstance(op, ops.IntrinsicOp) and native_of(op) is Native.ATOMIC_CAS
    return is_swap and op.operands()[1] in loop.before.params


__all__ = ["Sources", "WaitingLoops", "flows"]
