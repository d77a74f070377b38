"""Which values are the same value under another name: those that control flow passes on, and copies.

    %r = for %i = .. carry(%acc = %init) { .. yield %next }      edges: (%init, %acc) (%next, %acc) (%init, %r) (%next, %r)
    %q = offset %p, %i                                           copies: (%p, %q), as both point into one array

An edge is (the value, the block parameter or result that it becomes). Every analysis of loops and joins reads these tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stagekit.ir import ops
from stagekit.ir.core import Block, Effect, Op, Value, walk
from stagekit.ir.types import Pointer

Edge = tuple[Value, Value]
Sources = Mapping[Value, Sequence[Value]]


def edges(op: Op) -> Iterable[Edge]:
    """Return the edges of control flow: into its bodies, from one to the next, and out. Other ops have none."""
    rule = _EDGES.get(type(op))
    return rule(op) if rule else ()


def deciders(op: Op) -> tuple[Value, ...]:
    """Return the values that decide which way control flow goes: a condition, bounds, the flag of a `while`."""
    rule = _DECIDERS.get(type(op))
    return rule(op) if rule else ()


def takers(op: Op) -> Sequence[Sequence[Value | None]]:
    """Return, for each body of `op`, what takes each value that its terminator reads; None for the flag of a `while`."""
    rule = _TAKERS.get(type(op))
    return rule(op) if rule else ()


def copies(op: Op) -> Iterable[Edge]:
    """Return `edges`, and those from the operands of a select, of a bitcast and of a pointer that is moved to their results."""
    rule = _COPIES.get(type(op))
    return rule(op) if rule else ()


def end_of(block: Block) -> tuple[Value, ...]:
    """Return what the terminator of `block` reads; of a `condition` the flag comes first."""
    return block.ops[-1].operands()


def _edges_of_if(op: ops.If) -> Iterator[Edge]:
    for arm in (op.then_body, op.else_body):
        yield from zip(end_of(arm), op.results)


def _edges_of_for(op: ops.For) -> Iterator[Edge]:
    for values in (op.inits, end_of(op.loop_body)):
        yield from zip(values, op.loop_body.params[1:])
        yield from zip(values, op.results)


def _edges_of_while(op: ops.While) -> Iterator[Edge]:
    forwarded = end_of(op.before)[1:]
    yield from zip(op.inits, op.before.params)
    yield from zip(end_of(op.after), op.before.params)
    yield from zip(forwarded, op.after.params)
    yield from zip(forwarded, op.results)


def _moved_by_call(op: ops.IntrinsicOp) -> Iterable[Edge]:
    """Return the edge from a pointer that an intrinsic is given to the one that it makes of it."""
    if len(op.results) == 1 and isinstance(op.results[0].type, Pointer):
        return ((op.args[0], op.results[0]),)
    return ()


_Rules = Mapping[type[Op], Callable[[Any], Iterable[Edge]]]

_EDGES: _Rules = {
    ops.If: _edges_of_if,
    ops.For: _edges_of_for,
    ops.While: _edges_of_while,
    ops.ActOnce: lambda op: zip(end_of(op.thread_body), op.results),
}
_COPIES: _Rules = {
    **_EDGES,
    ops.Offset: lambda op: ((op.pointer, op.results[0]),),
    ops.Bitcast: lambda op: ((op.operand, op.results[0]),),
    ops.Select: lambda op: ((op.if_true, op.results[0]), (op.if_false, op.results[0])),
    ops.IntrinsicOp: _moved_by_call,
}
_TAKERS: Mapping[type[Op], Callable[[Any], Sequence[Sequence[Value | None]]]] = {
    ops.If: lambda op: (op.results, op.results),
    ops.For: lambda op: (op.loop_body.params[1:],),
    ops.While: lambda op: ((None, *op.after.params), op.before.params),
}
_DECIDERS: Mapping[type[Op], Callable[[Any], tuple[Value, ...]]] = {
    ops.If: lambda op: (op.condition,),
    ops.For: lambda op: (op.start, op.stop, op.step),
    ops.While: lambda op: end_of(op.before)[:1],
}


# -- against the flow -------------------------------------------------------------------------------------------------


def sources(block: Block, flow: Callable[[Op], Iterable[Edge]] | None = None) -> Sources:
    """Return, for each value, those from which the edges that `flow` gives of the ops under `block` lead to it.

    flow: `copies` if left out.
    """
    found: dict[Value, list[Value]] = {}
    for source, target in itertools.chain.from_iterable(map(flow, walk(block)) if flow else _copies_in(block)):
        found.setdefault(target, []).append(source)
    return found


def _copies_in(block: Block) -> Iterator[Iterable[Edge]]:
    for cls, alike in block.by_class.items():
        if cls is ops.IntrinsicOp:  # of which hardly any makes a pointer
            alike = [op for op in alike if op.results and isinstance(op.results[0].type, Pointer)]
        if cls in _COPIES:
            yield from map(_COPIES[cls], alike)


def upstream(values: Iterable[Value], comes_from: Sources) -> set[Value]:
    """Return `values` and everything that they come from, however far back."""
    seen: set[Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            waiting.extend(comes_from.get(value, ()))
    return seen


def pointers_of(op: Op) -> list[Value]:
    """Return the pointers that `op` reads: where it may access memory."""
    return [value for value in op.operands() if isinstance(value.type, Pointer)]


def targets_of(op: Op) -> Iterable[Value]:
    """Return the pointers through which `op` may write."""
    if type(op) is ops.Store:
        return (op.pointer,)
    if Effect.WRITE not in op.effects:
        return ()
    if not isinstance(op, ops.IntrinsicOp) or not op.spec.only_reads:
        return pointers_of(op)
    only_read = {value for name, value in zip(op.spec.args, op.args) if name in op.spec.only_reads}
    return [value for value in pointers_of(op) if value not in only_read]


def written(block: Block, comes_from: Sources) -> set[Value]:
    """Return the pointers through which ops under `block` write, and all that they are copies of: parameters, allocations."""
    return upstream([pointer for op in block.having(Effect.WRITE) for pointer in targets_of(op)], comes_from)
