"""Remove what nobody asks for: ops without effects whose results are unused, and carried values that only carry themselves.

    %1 = binary.mul %a, %b                                  (gone)
    %2 = for %lo, %hi, %st, (%x) : i64 loop(%i, %acc) {     for %lo, %hi, %st, () loop(%i) {
      %3 = binary.add %acc, %i                        ->
      yield(%3)                                               yield()
    }                                                       }     and then the loop itself

An unused load goes, and so does an endless loop that does nothing. Keeps: the order of effects. Linear: values are
marked from the effects backwards through `feeds`, so a cycle of carried values is live only if something enters it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stagekit.ir import Block, Effect, Function, Op, Value, flow, walk
from stagekit.ir.ops import Condition, For, If, While, Yield
from stagekit.passes.manager import PassContext
from stagekit.passes.rewriter import Rewriter

_REMOVABLE = frozenset({Effect.READ, Effect.VARYING, Effect.COLLECTIVE})


def dce(fn: Function, context: PassContext) -> Function:
    return _Sweeper(_Marker(fn)).run(fn)


# -- mark -------------------------------------------------------------------------------------------------------------


class _Marker:
    """`live`: the values that some effect depends on. `needed`: the ops that have effects, or contain one that has."""

    def __init__(self, fn: Function) -> None:
        self.feeds: dict[Value, tuple[Value, ...]] = {}  # what a value is made from
        self.needed: set[Op] = set()
        self.roots: list[Value] = []
        self.scan(fn.body)
        self.live = flow.upstream(self.roots, self.feeds)

    def scan(self, block: Block) -> bool:
        """Note the feeds in `block`; has it an effect?"""
        has_effect = False
        for op in block.ops:
            has_effect |= self.scan_op(op)
        return has_effect

    def scan_op(self, op: Op) -> bool:
        always = flow.deciders(op)
        if not always:
            return self.scan_simple(op)
        effects = [self.scan(b) for b in op.bodies()]  # every body is to be scanned
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
        if op.BODY_FIELDS:  # asm: what `host` does is its own affair
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
    kept = [r in live for r in op.results]
    if all(kept):
        return op
    then_body, else_body = (_only(b, b.params, kept) for b in op.bodies())
    return op.replace(results=_those(op.results, kept), then_body=then_body, else_body=else_body)


def _trim_for(op: For, live: set[Value]) -> Op:
    index, *carried = op.loop_body.params
    kept = [r in live or p in live for r, p in zip(op.results, carried)]
    if all(kept):
        return op
    loop_body = _only(op.loop_body, (index, *_those(carried, kept)), kept)
    return op.replace(results=_those(op.results, kept), inits=_those(op.inits, kept), loop_body=loop_body)


def _trim_while(op: While, live: set[Value]) -> Op:
    carried = [p in live for p in op.before.params]
    forwarded = [r in live or p in live for r, p in zip(op.results, op.after.params)]
    if all(carried) and all(forwarded):
        return op
    before = _only(op.before, _those(op.before.params, carried), forwarded)
    after = _only(op.after, _those(op.after.params, forwarded), carried)
    return op.replace(
        results=_those(op.results, forwarded), inits=_those(op.inits, carried), before=before, after=after
    )


_TRIMS: dict[type[Op], Callable[[Any, set[Value]], Op]] = {If: _trim_if, For: _trim_for, While: _trim_while}
"""Per control op: the same without the values that are not live."""


def _those(values: Iterable[Value], kept: Sequence[bool]) -> tuple[Value, ...]:
    return tuple(itertools.compress(values, kept))


def _only(block: Block, params: tuple[Value, ...], kept: Sequence[bool]) -> Block:
    """`block` with these parameters, handing out only the values that are kept."""
    last = block.ops[-1]
    assert isinstance(last, Yield | Condition)
    return Block(params, (*block.ops[:-1], last.replace(values=_those(last.values, kept))))
