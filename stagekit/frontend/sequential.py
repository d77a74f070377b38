"""Make the threads of a block act as the one sequential program that a block-level kernel is.

    once { store(out, total) }          if thread_idx("x") == 0 { store(out, total) }
    statement                      ->   syncthreads()
    y = load(out)                       y = load(out)

*Once*: one thread does what stands in a `once`; what it yields reaches the others through shared memory.

*In order*: a statement begins with a barrier where `statement_order.py` finds that one of its accesses needs it.

*Arguments* are taken for different arrays where the launcher can see whether they are: each pair that would need a barrier
otherwise is an `Apart`. A launch for which one does not hold runs code in which any two arguments may meet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stagekit.forks import cached_property
from stagekit.frontend.statement_order import Apart, ArgumentLayout, Equal, Given, StatementOrder
from stagekit.frozen import frozen
from stagekit.intrinsics import registry
from stagekit.ir import U32, Builder, CompareKind, Function, Space, Value, flow, ops, walk
from stagekit.ir.rewriter import Rewriter, rewrite
from stagekit.limits import WARP


@frozen(slots=False)
class Sequential:
    """What `sequential` makes. waits: why there is each barrier, in words. constant: arguments that nothing writes meanwhile.

    written: what the kernel writes, arguments among it.
    """

    function: Function
    waits: tuple[str, ...]
    apart: tuple[Apart, ...]
    constant: frozenset[Value]
    written: Collection[Value]


def sequential(
    fn: Function,
    threads: int,
    sized: Mapping[Value, ArgumentLayout],
    given: Given,
    asked: Mapping[tuple[Value, Value], Equal],
) -> Sequential:
    """Return `fn` without `once` and `statement`, for a block of `threads` threads along x.

    sized: the arrays of which a launcher sees where they end, if two of them that overlap may be left to other code. asked: what
    the kernel asked of pairs itself.
    """
    once = OnceBranches(fn, threads)
    if ops.ActOnce in fn.body.by_class:
        fn = once.run()
    order = StatementOrder(fn.body, threads, once.conditions, sized, given)
    order.apart.update(asked)
    if threads > 1:
        order.find()
    order.keep_apart_what_is_read_ahead()
    constant = order.constant(fn.params)

    def begin(op: ops.Statement, b: Builder) -> Sequence[Value]:
        if op in order.reasons:
            emit_barrier(b, threads)
        return ()

    waits = tuple(dict.fromkeys(order.reasons.values()))
    return Sequential(rewrite(fn, {ops.Statement: begin}), waits, order.facts, constant, order.written)


def thread_level(
    fn: Function, sized: Mapping[Value, ArgumentLayout], given: Given, asked: Mapping[tuple[Value, Value], Equal]
) -> Sequential:
    """Return `fn` as it is, with what follows from that arrays are apart."""
    if not asked:
        return Sequential(fn, (), (), frozenset(), flow.written(fn.body, flow.sources(fn.body)))
    order = StatementOrder(fn.body, 1, set(), sized, given)
    order.apart.update(asked)
    constant = order.constant(fn.params)
    return Sequential(fn, (), order.facts, constant, order.written)


# -- what one thread does for its block ----------------------------------------------------------------------------------


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


def emit_barrier(b: Builder, threads: int) -> None:
    if threads > WARP:
        b.call(registry.by_name("syncthreads"), ())
    else:
        b.call(registry.by_name("syncwarp"), (b.constant((1 << threads) - 1, U32),))
