"""Remove dead code: ops without effects whose results are unused, and carried values that feed only themselves.

    %1 = binary.mul %a, %b                                  (gone)
    %2 = for %lo, %hi, %st, (%x) : i64 loop(%i, %acc) {     for %lo, %hi, %st, () loop(%i) {
      %3 = binary.add %acc, %i                        ->
      yield(%3)                                               yield()
    }                                                       }     and then the loop itself

An unused load is removed, and so is an endless loop without effects. Keeps: the order of effects. Linear: values are
marked from the effects backwards through `feeds`, so that a cycle of carried values is live only if an effect depends on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stagekit.ir import Block, Effect, Function, Op, Value, flow, walk
from stagekit.ir.ops import Condition, For, If, While, Yield
from stagekit.ir.rewriter import Rewriter
from stagekit.passes import PassContext

_REMOVABLE = frozenset({Effect.READ, Effect.VARYING, Effect.COLLECTIVE})


def dce(fn: Function, context: PassContext) -> Function:
    """Remove the ops and carried values on which no effect depends."""
    return _Sweeper(_Marker(fn)).run(fn)


# -- mark -------------------------------------------------------------------------------------------------------------


class _Marker:
    """`live`: the values that some effect depends on. `needed`: the ops that have effects, or contain one that has."""

    def __init__(self, fn: Function) -> None:
        self.feeds: dict[Value, tuple[Value, ...]] = {}  # from which values each value is computed
        self.needed: set[Op] = set()
        self.roots: list[Value] = []
        self.scan(fn.body)
        self.live = flow.upstream(self.roots, self.feeds)

    def scan(self, block: Block) -> bool:
        """Record the feeds in `block`, and return whether it has an effect."""
        has_effect = False
        for op in block.ops:
            has_effect |= self.scan_control(op) if type(op) in _TRIMS else self.scan_simple(op)
        return has_effect

    def scan_control(self, op: Op) -> bool:
        always = flow.deciders(op)
        effects = [self.scan(b) for b in op.bodies()]  # a list, so that every body is scanned
        for source, target in flow.edges(op):
            self.feeds.setdefault(target, always)
            self.feeds[target] += (source,)
        if any(effects):
            self.needed.add(op)
            self.roots.extend(always)
        return any(effects)

    def scan_simple(self, op: Op) -> bool:
        operands = op.operands()
        for result in op.results:
            self.feeds[result] = operands
        if op.BODY_FIELDS:  # asm, whose `host` stays as it is
            for inner in (i for b in op.bodies() for i in walk(b)):
                self.needed.add(inner)
                self.roots.extend(inner.operands())
        effects = op.effects
        if not effects or effects <= _REMOVABLE:
            return False
        self.needed.add(op)
        self.roots.extend(operands)
        return True


# -- sweep ------------------------------------------------------------------------------------------------------------


class _Sweeper(Rewriter):
    def __init__(self, marked: _Marker) -> None:
        super().__init__({})
        self.live = marked.live
        self.needed = marked.needed

    def ops(self, ops: Iterable[Op]) -> None:
        live, needed = self.live, self.needed
        super().ops([op for op in ops if op.is_terminator or op in needed or not live.isdisjoint(op.results)])

    def op(self, op: Op) -> None:
        trim = _TRIMS.get(type(op))
        super().op(trim(op, self.live) if trim else op)


def _trim_if(op: If, live: set[Value]) -> Op:
    is_live = [r in live for r in op.results]
    if all(is_live):
        return op
    then_body, else_body = (_narrowed(b, b.params, is_live) for b in op.bodies())
    return op.replace(results=_selected(op.results, is_live), then_body=then_body, else_body=else_body)


def _trim_for(op: For, live: set[Value]) -> Op:
    index, *carried = op.loop_body.params
    is_live = [r in live or p in live for r, p in zip(op.results, carried)]
    if all(is_live):
        return op
    loop_body = _narrowed(op.loop_body, (index, *_selected(carried, is_live)), is_live)
    return op.replace(results=_selected(op.results, is_live), inits=_selected(op.inits, is_live), loop_body=loop_body)


def _trim_while(op: While, live: set[Value]) -> Op:
    carried = [p in live for p in op.before.params]
    forwarded = [r in live or p in live for r, p in zip(op.results, op.after.params)]
    if all(carried) and all(forwarded):
        return op
    before = _narrowed(op.before, _selected(op.before.params, carried), forwarded)
    after = _narrowed(op.after, _selected(op.after.params, forwarded), carried)
    return op.replace(
        results=_selected(op.results, forwarded), inits=_selected(op.inits, carried), before=before, after=after
    )


_TRIMS: dict[type[Op], Callable[[Any, set[Value]], Op]] = {If: _trim_if, For: _trim_for, While: _trim_while}
"""Per control op, a function that returns it without the values that are not live."""


def _selected(values: Iterable[Value], is_live: Sequence[bool]) -> tuple[Value, ...]:
    return tuple(itertools.compress(values, is_live))


def _narrowed(block: Block, params: tuple[Value, ...], is_live: Sequence[bool]) -> Block:
    """Return `block` with these parameters and a terminator that passes on the values that are live."""
    last = block.ops[-1]
    assert isinstance(last, Yield | Condition)
    return Block(params, (*block.ops[:-1], last.replace(values=_selected(last.values, is_live))))
