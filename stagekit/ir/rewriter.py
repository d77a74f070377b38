"""Rebuild a function op by op: the identity, of which a pass states only what it changes.

    def not_not(op: Unary, builder: Builder) -> Sequence[Value] | None:
        ...
        return (inner,)      # what stands for `op.results` from here on; ops made with `builder` come before
        return None          # keep the op

    rewrite(fn, {Unary: not_not})

A rule sees an op that reads rewritten values and whose bodies are done; `builder.loc` is the op's place.
Keeps: order, places and the identity of all that does not change, up to the function itself. Linear in the number of ops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stagekit.diagnostics import UNKNOWN
from stagekit.ir.builder import Builder
from stagekit.ir.core import Block, Function, Op, Value, walk

Rule = Callable[[Any, Builder], Sequence[Value] | None]


class Rewriter:
    """One walk over a function. `mapping`: what stands for each value replaced so far."""

    def __init__(self, rules: Mapping[type[Op], Rule]) -> None:
        self.rules = rules
        self.builder = Builder(UNKNOWN)
        self.mapping: dict[Value, Value] = {}

    def run(self, fn: Function) -> Function:
        if self.rules and self.rules.keys().isdisjoint(map(type, walk(fn.body))):
            return fn
        rewritten = self.block(fn.body)
        return fn if rewritten is fn.body else dataclasses.replace(fn, body=rewritten)

    def block(self, block: Block) -> Block:
        """Return `block` rewritten, itself when nothing in it changed."""
        with self.builder.block(block.params) as opened:
            self.ops(block.ops)
        rewritten = tuple(opened.ops)
        return block if rewritten == block.ops else Block(block.params, rewritten)

    def ops(self, ops: Iterable[Op]) -> None:
        """Rewrite `ops` into the block under construction."""
        rules, mapping, done = self.rules, self.mapping, self.builder.current.ops
        replaced = mapping.keys()
        for each in ops:
            if each.BODY_FIELDS and each.bodies():  # inline PTX mostly has none
                self.op(each)
            elif type(each) in rules:
                self.simple(each)
            elif mapping and not replaced.isdisjoint(each.operands()):
                done.append(each.with_operands(mapping))
            else:
                done.append(each)

    def op(self, op: Op) -> None:
        """Rewrite an op that may have bodies, and those first."""
        self.simple(op.with_bodies([self.block(b) for b in op.bodies()]) if op.BODY_FIELDS else op)

    def simple(self, op: Op) -> None:
        """Rewrite an op whose bodies are done. One without a rule goes into the block at once."""
        if self.mapping:
            op = op.with_operands(self.mapping)
        rule = self.rules.get(type(op))
        if rule is None:
            self.builder.current.ops.append(op)
            return
        self.builder.loc = op.loc
        replacement = rule(op, self.builder)
        if replacement is None:
            self.builder.current.ops.append(op)
        elif replacement is not op.results:
            self.mapping.update(zip(op.results, replacement, strict=True))

    def values(self, values: Iterable[Value]) -> tuple[Value, ...]:
        """Return what stands for `values` now."""
        return tuple(self.mapping.get(v, v) for v in values)


def rewrite(fn: Function, rules: Mapping[type[Op], Rule]) -> Function:
    """Apply `rules` once to every op."""
    return Rewriter(rules).run(fn)
