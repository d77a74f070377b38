"""Loops over the whole grid, run round by round: one iteration of every block in a row, then the next iteration of every block.

    for i in range(first, n, grid):        round 0: blocks 1, 2, 3 ...        as written: block 1: rounds 0, 1, 2 ...
        y[i] = a * x[i] + y[i]             round 1: blocks 1, 2, 3 ...                    block 2: rounds 0, 1, 2 ...

Blocks run in any order and at any pace, so both are what the kernel means. As written, one thread of the host leaps through
memory with the grid as its stride; round by round it goes from neighbour to neighbour, without a mask or a loop in the block.
saxpy of 139,264 elements, block of 256, 8 iterations: 35 us as written, 15 by rounds, as with a thread per element.

It is done for kernels of which such a loop, a `for` or a `while` that counts, is all but the arithmetic in front of it, and that
carry nothing from one iteration to the next. Rounds in which a thread of the row has no iteration are left to the loop as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from stagekit import dtypes
from stagekit.backends.host.forms import Form, Uniform, known
from stagekit.backends.host.guards import MAX_GUARDED_OPS, RowSpan, bounds_of
from stagekit.backends.host.linear import extended_scalar
from stagekit.backends.host.safepoints import waiting_loops
from stagekit.backends.llvm.types import scalar_type
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import Loc
from stagekit.frozen import frozen
from stagekit.ir import (
    BOOL,
    BinaryKind,
    Block,
    CompareKind,
    Effect,
    Function,
    Native,
    Op,
    Scalar,
    Value,
    has_effect,
    ops,
    walk,
)
from stagekit.ir.intervals import Interval

_PURE = frozenset({Effect.VARYING})
_DTYPES = (dtypes.int32, dtypes.int64)


@frozen()
class Rounds:
    """A kernel taken apart. each: what a round does, without a loop; rest: the loop as it is, from a round on.

    Both have one parameter more, `shift`: the distance of the round from the first. start, stop, step: of the loop, in `each`.
    """

    each: Function
    rest: Function
    shift: Value
    start: Value
    stop: Value
    step: Value


@frozen()
class _Counted:
    """A loop as one that counts. hoisted: its ops that are the same in each iteration; inside: the others, which read `indices`.
    goes_on: what is true inside.
    """

    start: Value
    stop: Value
    step: Value
    hoisted: Sequence[Op]
    inside: Sequence[Op]
    indices: Sequence[Value]
    goes_on: Value | None = None


def rounds_of(fn: Function) -> Rounds | None:
    """Take `fn` apart; None if it is no such kernel."""
    *before, loop = fn.body.ops[:-1] or (None,)
    if (
        not isinstance(loop, ops.For | ops.While)
        or len(walk(fn.body)) > MAX_GUARDED_OPS
        or not all(map(_is_pure, before))
    ):
        return None
    if waiting_loops(fn) or any(isinstance(op, ops.Alloc) or has_effect(op, Effect.SYNC) for op in walk(fn.body)):
        return None
    counted = _of_for(loop) if isinstance(loop, ops.For) else _of_while(loop, {*fn.params, *_made(before)})
    if counted is None or not _strides(counted, before):
        return None
    return _taken_apart(fn, before, loop, counted)


def _strides(counted: _Counted, before: Sequence[Op]) -> bool:
    """Return whether the loop begins at the block's place in a row, and steps by something made of the grid's size."""
    every = (*before, *counted.hoisted)
    return counted.start in _made_of(Native.BLOCK_IDX, every) and counted.step in _made_of(Native.GRID_DIM, every)


def _made_of(native: Native, every: Sequence[Op]) -> set[Value]:
    """Return the values that are made of this intrinsic's along x."""
    found = set[Value]()
    for op in every:
        is_one = isinstance(op, ops.IntrinsicOp) and op.spec.lower["cpu"] is native and op.params == ("x",)
        if is_one or not found.isdisjoint(op.operands()):
            found.update(op.results)
    return found


def _is_pure(op: Op) -> bool:
    return op.effects <= _PURE and not op.BODY_FIELDS


def _made(every: Sequence[Op]) -> set[Value]:
    return {result for op in every for result in op.results}


def _of_for(loop: ops.For) -> _Counted | None:
    if loop.results or loop.start.type.dtype not in _DTYPES:
        return None
    return _Counted(loop.start, loop.stop, loop.step, (), loop.loop_body.ops[:-1], loop.loop_body.params)


def _of_while(loop: ops.While, outside: set[Value]) -> _Counted | None:
    """Return `while i < stop: ...; i += step` as a loop that counts."""
    if len(loop.inits) != 1 or loop.inits[0].type not in [Scalar(each) for each in _DTYPES]:
        return None
    (index,), end, (inner,) = loop.before.params, loop.before.ops[-1], loop.after.params or (None,)
    assert isinstance(end, ops.Condition)
    if end.values != (index,) or inner is None:
        return None
    every, outside, hoisted = (*loop.before.ops[:-1], *loop.after.ops[:-1]), set(outside), list[Op]()
    for op in every:
        if _is_pure(op) and outside.issuperset(op.operands()):
            hoisted.append(op)
            outside.update(op.results)
    makers = {result: op for op in every for result in op.results}
    stop = _bound(makers.get(end.flag), index)
    step = _added(makers.get(loop.after.ops[-1].operands()[0]), inner)
    if stop not in outside or step not in outside:
        return None
    inside = [op for op in every if op not in hoisted and op is not makers[end.flag]]
    return _Counted(loop.inits[0], stop, step, hoisted, inside, (index, inner), end.flag)


def _bound(op: Op | None, index: Value) -> Value | None:
    """Return `stop` where `op` is `index < stop`."""
    match op:
        case ops.Compare(kind=CompareKind.LT, lhs=lhs, rhs=stop) if lhs is index:
            return stop
        case ops.Compare(kind=CompareKind.GT, lhs=stop, rhs=rhs) if rhs is index:
            return stop
    return None


def _added(op: Op | None, index: Value) -> Value | None:
    """Return `step` where `op` is `index + step`."""
    if not isinstance(op, ops.Binary) or op.kind is not BinaryKind.ADD or index not in (op.lhs, op.rhs):
        return None
    return op.rhs if op.lhs is index else op.lhs


def _taken_apart(fn: Function, before: Sequence[Op], loop: ops.For | ops.While, counted: _Counted) -> Rounds:
    shift = Value(counted.start.type)
    begin = _sum(counted.start, shift, loop.loc)
    moved = loop.replace(start=begin.result) if isinstance(loop, ops.For) else loop.replace(inits=(begin.result,))
    standing = dict.fromkeys(counted.indices, begin.result)
    holds = [ops.Constant(value=True, loc=loop.loc, results=(Value(BOOL),))] if counted.goes_on is not None else []
    standing.update((counted.goes_on, op.result) for op in holds if counted.goes_on is not None)
    inside = Block((), tuple(counted.inside)).copied(standing).ops
    end = fn.body.ops[-1]

    def function(*every: Op) -> Function:
        return dataclasses.replace(fn, body=Block((*fn.params, shift), (*before, *every, end)))

    each = function(*counted.hoisted, begin, *holds, *inside)
    return Rounds(each, function(begin, moved), shift, counted.start, counted.stop, counted.step)


def _sum(a: Value, b: Value, loc: Loc) -> ops.Binary:
    return ops.Binary(kind=BinaryKind.ADD, lhs=a, rhs=b, loc=loc, results=(Value(a.type),))


# -- how many rounds --------------------------------------------------------------------------------------------------


@frozen()
class WholeRounds:
    """count: the rounds in which each thread of a row has an iteration, an i64. has_more: whether a thread has one after them."""

    count: str
    has_more: str
    step: str
    dtype: dtypes.DType

    def shift(self, w: Writer, number: str) -> Form:
        """Return the distance of a round from the first: `count` at most."""
        wide = w.emit(f"mul i64 {number}, {self.step}")
        type_ = scalar_type(self.dtype)
        text = wide if type_ == "i64" else w.emit(f"trunc i64 {wide} to {type_}")
        return Uniform(text, Interval(0, 2 * _limit(self.dtype)))


def _limit(dtype: dtypes.DType) -> int:
    """Return the greatest stop and step, with which no index wraps."""
    return 1 << (dtype.bits - 3)


def whole_rounds(w: Writer, rounds: Rounds, params: Mapping[Value, Form], span: RowSpan) -> WholeRounds | None:
    """Write how many rounds a row has; None if it cannot be told from the loop's bounds."""
    dtype, of_loop = rounds.start.type.dtype, (rounds.start, rounds.stop, rounds.step)
    start, stop, step = bounds_of(w, rounds.each, params, span, of_loop)
    if start is None or stop is None or step is None or not (stop.is_point and step.is_point):
        return None
    if known(start.low).lo < 0 or not 1 <= known(step.low).lo <= known(step.low).hi <= _limit(dtype):
        return None
    least, greatest, end, by = (
        extended_scalar(w, dtype, dtypes.int64, each).text for each in (start.low, start.high, stop.low, step.low)
    )
    left = w.call("i64", "llvm.ssub.sat.i64", [("i64", end), ("i64", greatest)])
    rounded = w.emit(f"add i64 {w.emit(f'sub i64 {left}, 1')}, {by}")
    is_any = w.emit(f"icmp sgt i64 {left}, 0")
    is_short = w.emit(f"icmp sle i64 {end}, {_limit(dtype)}")
    count = w.emit(f"udiv i64 {rounded}, {by}")
    count = w.emit(f"select i1 {w.emit(f'and i1 {is_any}, {is_short}')}, i64 {count}, i64 0")
    following = w.emit(f"add i64 {least}, {w.emit(f'mul i64 {count}, {by}')}")
    return WholeRounds(count, w.emit(f"icmp slt i64 {following}, {end}"), by, dtype)
