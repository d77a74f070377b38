"""Which shared arrays of a kernel are in use at the same time, and may therefore not lie in the same memory.

    store %a, ..                       %a is in use
    syncthreads                        %a
    .. = load %a                       %a
    syncthreads                               no array is in use across this barrier
    store %b, ..                       %b     and may lie where %a lay

A *span* is what threads do from one barrier of the block to the next. While one thread is anywhere in a span, another one may be
anywhere else in it. So two arrays may share memory if there is no span in which both are in use. An array is in use from its
first access to its last; an execution of its `alloc` begins a new array, whose contents are unspecified.

Relies on: all threads of the block reach the same barriers in the same order, as the language demands.
Source of the equations: Aho, Lam, Sethi and Ullman, Compilers, 2nd edition, section 9.2 (live variables, reaching definitions).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stagekit.ir import flow, ops
from stagekit.ir.core import Block, Effect, Function, Op, Value, walk
from stagekit.ir.intrinsic import Native
from stagekit.ir.types import Pointer, Space
from stagekit.limits import WARP

Bits = int  # a set of arrays, or of points: bit i stands for number i


def in_use_together(fn: Function, arrays: Sequence[ops.Alloc], threads: int | None) -> list[Bits]:
    """Return for each array the set of those that must lie elsewhere, itself included; all are SHARED.

    threads: of the block; None where a launch decides.
    """
    graph = _Graph(fn, arrays, threads)
    graph.block(fn.body, [graph.point([])])
    together = [graph.pinned | 1 << number for number in range(len(arrays))]
    for present in graph.in_use_by_span():
        for number in _numbers(present):
            together[number] |= present
    everything = (1 << len(arrays)) - 1
    return [everything if graph.pinned >> number & 1 else each for number, each in enumerate(together)]


@dataclass(eq=False)
class _Point:
    """What happens between two barriers, or between places where paths meet or part. before, after: the neighbouring points.

    begins, uses: the arrays that are allocated here, and then accessed. accessed: since they were allocated, behind this point.
    needed: by an access behind this point. spans: the barriers, and the beginning of the kernel, since which none has come.
    """

    begins: Bits = 0
    uses: Bits = 0
    is_barrier: bool = False
    accessed: Bits = 0
    needed: Bits = 0
    spans: Bits = 0
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)


class _Graph:
    """The control flow between accesses, allocations and barriers. pinned: arrays that are in use throughout."""

    def __init__(self, fn: Function, arrays: Sequence[ops.Alloc], threads: int | None) -> None:
        self.numbers = {op.result: number for number, op in enumerate(arrays)}
        self.warp = (1 << threads) - 1 if threads is not None and threads <= WARP else None
        self.comes_from = flow.sources(fn.body)
        self.found: dict[Value, Bits] = {}
        every = walk(fn.body)
        self.constants = {op.result: op.value for op in every if type(op) is ops.Constant} if self.warp else {}
        loops = [op for op in every if type(op) in _LOOPS]
        # from an earlier iteration of a loop, a pointer may come when its array was another one
        self.carried = self.arrays_of(source for op in loops for source, _ in flow.edges(op))
        hiding = [op for op in every if type(op) not in _SEEN and _hides(op)]
        self.pinned = self.arrays_of(pointer for op in hiding for pointer in flow.pointers_of(op))
        self.points: list[_Point] = []

    def arrays_of(self, pointers: Iterable[Value]) -> Bits:
        """Return the arrays into which these may point."""
        return _union(map(self.arrays_of_one, pointers))

    def arrays_of_one(self, pointer: Value) -> Bits:
        if not isinstance(pointer.type, Pointer) or pointer.type.space is not Space.SHARED:
            return 0
        if pointer not in self.found:
            origins = flow.upstream([pointer], self.comes_from)
            self.found[pointer] = sum(1 << self.numbers[v] for v in origins if v in self.numbers)
        return self.found[pointer]

    # -- points -----------------------------------------------------------------------------------------------------

    def point(self, before: Iterable[int], *, begins: Bits = 0, is_barrier: bool = False) -> int:
        """Add a point that follows those of `before`, and return its number."""
        self.points.append(_Point(begins, is_barrier=is_barrier))
        number = len(self.points) - 1
        self.lead(before, number)
        return number

    def lead(self, sources: Iterable[int], target: int) -> None:
        for source in sources:
            self.points[source].after.append(target)
            self.points[target].before.append(source)

    def block(self, block: Block, before: list[int]) -> list[int]:
        """Add the points of a block, and return those behind which it ends."""
        for op in block.ops:
            if op.BODY_FIELDS or op.effects or type(op) is ops.Alloc:
                before = self.op(op, before)
        return before

    def op(self, op: Op, before: list[int]) -> list[int]:
        match op:
            case ops.If():
                arms = {*self.block(op.then_body, before), *self.block(op.else_body, before)}
                return before if arms == {*before} else [self.point(sorted(arms))]
            case ops.For():
                head = self.point(before)
                self.lead(self.block(op.loop_body, [head]), head)
                return [head]
            case ops.While():
                head = self.point(before)
                left = self.block(op.before, [head])
                self.lead(self.block(op.after, left), head)
                return left
            case ops.Alloc():
                begins = self.arrays_of_one(op.result) & ~self.carried
                return [self.point(before, begins=begins)] if begins else before
        if self.is_barrier(op):
            return [self.point(before, is_barrier=True)]
        return self.access(self.arrays_of(flow.pointers_of(op)), before)

    def access(self, uses: Bits, before: list[int]) -> list[int]:
        """Add accesses to the point that is open, or to a new one behind a barrier and where paths meet."""
        if uses and (len(before) > 1 or self.points[before[0]].is_barrier):
            before = [self.point(before)]
        if uses:
            self.points[before[0]].uses |= uses
        return before

    def is_barrier(self, op: Op) -> bool:
        """Return whether every thread of the block waits here for every other one."""
        if Effect.SYNC in op.effects:
            return True
        if self.warp is None or type(op) is not ops.IntrinsicOp or op.spec.lower["cuda"] is not Native.WARP_BARRIER:
            return False
        return int(self.constants.get(op.args[0], 0)) & self.warp == self.warp

    # -- what holds at each point -----------------------------------------------------------------------------------

    def in_use_by_span(self) -> list[Bits]:
        """Return for each span, numbered as the barrier before it, the arrays that are in use somewhere in it."""
        self.settle()
        found = [0] * len(self.points)
        for point in self.points:
            accessed, spans = self.arriving(point)
            for span in _numbers(spans or 1):
                found[span] |= point.uses | accessed & point.needed & ~point.begins
        return found

    def settle(self) -> None:
        """Compute `accessed`, `needed` and `spans` of every point: the least sets that satisfy the equations."""
        known: object = None
        while known != (known := [(p.accessed, p.needed, p.spans) for p in self.points]):
            for number, point in enumerate(self.points):
                accessed, spans = self.arriving(point)
                point.accessed = accessed & ~point.begins | point.uses
                point.spans = 1 << number if point.is_barrier or not point.before else spans
            for point in reversed(self.points):
                behind = [self.points[each] for each in point.after]
                point.needed = _union((each.needed | each.uses) & ~each.begins for each in behind)

    def arriving(self, point: _Point) -> tuple[Bits, Bits]:
        """Return `accessed` and `spans` as they are before a point."""
        ahead = [self.points[each] for each in point.before]
        return _union(each.accessed for each in ahead), _union(each.spans for each in ahead)


def _hides(op: Op) -> bool:
    """Return whether memory may be accessed, through a pointer that `op` reads, where no pointer is seen any more, or later."""
    if isinstance(op, ops.Bitcast):
        return not isinstance(op.result.type, Pointer)
    return not (isinstance(op, ops.IntrinsicOp) and op.effects & _MEMORY) or op.spec.is_asynchronous


_LOOPS = frozenset({ops.For, ops.While})
# ops that make pointers of pointers, that access memory by those they read, or that read none
_SEEN = _LOOPS | {
    *(ops.If, ops.Yield, ops.Condition, ops.Select, ops.Offset, ops.Load, ops.Store, ops.Alloc, ops.Table),
    *(ops.Constant, ops.Binary, ops.Unary, ops.Cast, ops.Splat, ops.Pack, ops.Extract),
}
_MEMORY = frozenset({Effect.READ, Effect.WRITE})


def _union(sets: Iterable[Bits]) -> Bits:
    found = 0
    for each in sets:
        found |= each
    return found


def _numbers(bits: Bits) -> Iterable[int]:
    while bits:
        yield (bits & -bits).bit_length() - 1
        bits &= bits - 1
