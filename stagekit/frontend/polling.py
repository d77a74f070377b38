"""Loops that wait for another thread by plain loads: refused, as compilers read such an element once, or leave the loop out.

    while flag[0] == 0: pass                              # nothing in the loop changes what it asks
    while sk.load(flag.ptr, order="acquire") == 0: pass   # read anew in each round

It must be certain: the loop does nothing but read, and whether it goes on follows from what plain loads find, and from nothing
that changes from round to round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from stagekit.frontend.effects import is_local
from stagekit.ir import Block, Effect, Op, Value, flow, ops, walk

_READS = frozenset({Effect.READ, Effect.VARYING})


def polling_loops(body: Block) -> Iterable[ops.While]:
    """Yield the loops that wait by plain loads."""
    return [op for op in walk(body) if type(op) is ops.While and _polls(op)]


def _polls(loop: ops.While) -> bool:
    inside = list(chain(walk(loop.before), walk(loop.after)))
    if any(isinstance(op, ops.InlineAsm) or not op.effects <= _READS for op in inside):
        return False
    flag, *forwarded = flow.end_of(loop.before)
    feeds = _feeds(inside, zip(forwarded, loop.after.params))
    following = dict(zip(loop.before.params, flow.end_of(loop.after)))
    asked = flow.upstream([flag], {**feeds, **{param: [value] for param, value in following.items()}})
    for param, value in following.items():
        if param in asked and value is not param and param in flow.upstream([value], feeds):
            return False  # a variable that is computed from itself
    return any(isinstance(op, ops.Load) and op.result in asked and not is_local(op.pointer) for op in inside)


def _feeds(inside: Iterable[Op], edges: Iterable[flow.Edge]) -> Mapping[Value, list[Value]]:
    """Return from which values each value is computed, within one round."""
    found: dict[Value, list[Value]] = {}
    for source, target in chain(edges, *map(flow.edges, inside)):
        found.setdefault(target, []).append(source)
    for op in inside:
        operands = flow.deciders(op) if op.BODY_FIELDS else op.operands()
        for result in op.results:
            found.setdefault(result, []).extend(operands)
    return found
