"""Read the first fragments of a loop's next round before the last products of this one, for as long as those are multiplied.

    for .. loop(%place) {                  wait, barrier, %a = ldmatrix
      wait, barrier                        for .. loop(%place, %a) {
      copies of a later round                %b = ldmatrix
      %a = ldmatrix                          copies of a later round
      mma %a                      ->         mma %a
      %b = ldmatrix                          wait, barrier, %c = ldmatrix      of the next round
      mma %b                                 mma %b
      yield(%next)                           yield(%next, %c)
    }                                      }

Else no warp multiplies from the barrier until fragments have come, behind the copies that begin there. Within a round fragments
are read one group of products ahead too. So this is for loops that do nothing else, such as those of `dot` in `staged`: they read
what copies bring, in memory that a number which goes round chooses, so that also behind the last round there is some.
`copies` may not write to what this round reads: without waiting for each other nobody would know which of the two comes first.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stagekit.frozen import frozen
from stagekit.intrinsics import by_name, sync, tensor
from stagekit.ir import BinaryKind, Block, Builder, CompareKind, Effect, Function, Op, Space, Value, flow, ops
from stagekit.ir.rewriter import rewrite
from stagekit.passes import PassContext

_WAIT, _BARRIER, _COPY, _LOAD, _PRODUCT, _PURE, _OTHER = "wbclp-?"
_KINDS = {
    tensor.cp_async_wait: _WAIT,
    sync.syncthreads: _BARRIER,
    tensor.cp_async: _COPY,
    tensor.cp_async_commit: _COPY,
    **dict.fromkeys((tensor.ldmatrix_x1, tensor.ldmatrix_x2, tensor.ldmatrix_x4), _LOAD),
    **dict.fromkeys(map(by_name, tensor.PRODUCTS), _PRODUCT),
}
_ROUND = re.compile(f"({_WAIT}{_BARRIER})({_COPY}*)({_LOAD}+){_PRODUCT}[{_LOAD}{_PRODUCT}]*")
"""What a round does, by kinds, apart from what is pure."""


def prefetch(fn: Function, context: PassContext) -> Function:
    """Let the rounds of loops that multiply what copies bring overlap."""
    return rewrite(fn, {ops.For: _rotated})


def _rotated(loop: ops.For, builder: Builder) -> Sequence[Value] | None:
    parts = _parts_of(loop, builder)
    if parts is None:
        return None
    carried, end = loop.loop_body.params[1:], loop.loop_body.ops[-1]
    before, following = builder.current.ops, list[Op]()
    inits = parts.first_fragments(dict(zip(carried, loop.inits)), before)
    nexts = parts.first_fragments(dict(zip(carried, end.operands())), following)
    held = {old: Value(old.type, old.name) for op in parts.loads for old in op.results}
    in_order = [op.with_operands(held) for op in (*parts.free, *parts.overlapping(following), end)]
    in_order[-1] = ops.Yield(loc=end.loc, values=(*in_order[-1].operands(), *nexts))
    results = tuple([Value(v.type, v.name) for v in (*loop.results, *inits)])
    body = Block((*loop.loop_body.params, *held.values()), tuple(in_order))
    builder.append(loop.replace(inits=(*loop.inits, *inits), loop_body=body, results=results))
    return results[: len(loop.results)]


@frozen()
class _Parts:
    """The ops of a round. start: waits, and what the places of `loads`, the first fragments, are computed from. free: what is
    computed from none of the others. rest: other loads, products, and what needs these.
    """

    start: list[Op]
    loads: list[Op]
    copies: list[Op]
    free: list[Op]
    rest: list[Op]

    def first_fragments(self, mapping: dict[Value, Value], to: list[Op]) -> tuple[Value, ...]:
        """Append copies of the ops that begin a round, and return its first fragments. mapping: of the carried values."""
        to.extend([op.copied(mapping, None) for op in (*self.start, *self.loads)])
        return tuple([mapping[value] for op in self.loads for value in op.results])

    def overlapping(self, following: list[Op]) -> Iterator[Op]:
        """Yield `rest` with each group of loads before the products ahead of it, behind the first of them the copies, and
        `following`, which begins the next round, before the last products.
        """
        groups: list[tuple[list[Op], list[Op]]] = [([], [])]  # loads, and products behind them
        for op in self.rest:
            if _kind_of(op) is _LOAD and groups[-1][1]:
                groups.append(([], []))
            groups[-1][_kind_of(op) is not _LOAD].append(op)
        loads = [group for group, _ in groups[1:]]
        ahead = [*loads[:1], self.copies, *loads[1:], following] if loads else [self.copies, following]
        yield from itertools.chain(*ahead[:2])
        for (_, products), more in zip(groups, [*ahead[2:], []]):
            yield from (*products, *more)


def _parts_of(loop: ops.For, builder: Builder) -> _Parts | None:
    """Return the parts of the rounds of a loop, None where they are others, or the first fragments might be nowhere."""
    *every, end = loop.loop_body.ops
    kinds = {op: _kind_of(op) for op in every}
    acting = [op for op in every if kinds[op] is not _PURE]
    found = _ROUND.fullmatch("".join([kinds[op] for op in acting]))
    if found is None:
        return None
    waits, copies, loads = (acting[slice(*found.span(group))] for group in (1, 2, 3))
    defined = {result: op for op in every for result in op.results}
    needed = flow.upstream(_operands(loads), {value: op.operands() for value, op in defined.items()})
    places = [op for op in every if not needed.isdisjoint(op.results)]
    if any(kinds[op] is not _PURE for op in places) or loop.loop_body.params[0] in needed:
        return None
    for param, init, value in zip(loop.loop_body.params[1:], loop.inits, end.operands()):
        if param in needed and not _goes_round(param, builder.definition_of(init), defined.get(value), defined):
            return None
    others = [op for op in every if op not in {*waits, *copies, *loads}]
    free, rest = _by_need(others, {result for op in acting for result in op.results})
    return _Parts([*waits, *places], loads, copies, free, rest)


def _kind_of(op: Op) -> str:
    """Return what an op of a round does, as one letter. Copies under a branch are none: overlapping, they are slower."""
    if isinstance(op, ops.IntrinsicOp) and op.spec in _KINDS:
        return _KINDS[op.spec]
    is_memory = isinstance(op, ops.Alloc) and op.space is not Space.GLOBAL
    has_bodies = isinstance(op, ops.If | ops.For | ops.While)
    return _PURE if op.effects <= {Effect.VARYING} and not is_memory and not has_bodies else _OTHER


def _operands(every: Iterable[Op]) -> list[Value]:
    return [value for op in every for value in op.operands()]


def _by_need(every: Iterable[Op], held: set[Value]) -> tuple[list[Op], list[Op]]:
    """Return the pure ops that need nothing of what is held, directly or not, and all others."""
    free, rest, waiting = list[Op](), list[Op](), set(held)
    for op in every:
        needs_it = _kind_of(op) is not _PURE or not waiting.isdisjoint(op.operands())
        (rest if needs_it else free).append(op)
        waiting.update(op.results if needs_it else ())
    return free, rest


def _goes_round(param: Value, init: Op | None, following: Op | None, defined: Mapping[Value, Op]) -> bool:
    """Return whether a carried value counts 0, 1, .. up to a number and then begins anew, as each of them chooses some memory."""
    if not isinstance(following, ops.Select) or not _number(init) == _number(defined.get(following.if_true)) == 0:
        return False
    test, step = defined.get(following.condition), defined.get(following.if_false)
    return (
        isinstance(test, ops.Compare) and test.kind is CompareKind.EQ and test.lhs is param
        and _number(defined.get(test.rhs)) is not None
        and isinstance(step, ops.Binary) and step.kind is BinaryKind.ADD and step.lhs is param
        and _number(defined.get(step.rhs)) == 1
    )  # fmt: skip


def _number(op: Op | None) -> Any:
    return op.value if isinstance(op, ops.Constant) else None
