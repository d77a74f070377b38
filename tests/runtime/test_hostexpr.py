"""Compiled host expressions mean what a walk over the tree gives."""

from __future__ import annotations

import inspect

from hypothesis import given, settings
from hypothesis import strategies as st

from stagekit.hostexpr import KINDS, HostExpr, HostOp, Slot, compile_expressions

SLOTS = 3
EDGES = [0, 1, -1, 2, 63, 64, -64, 255, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
int64s = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)
leaves = int64s | st.builds(Slot, st.integers(0, SLOTS - 1))


def _arity(kind: str) -> int:
    return 2 if kind in ("min", "max") else len(inspect.signature(KINDS[kind]).parameters)


def _operations(children: st.SearchStrategy[HostExpr]) -> st.SearchStrategy[HostExpr]:
    def of_kind(kind: str) -> st.SearchStrategy[HostExpr]:
        return st.builds(HostOp, st.just(kind), st.tuples(*[children] * _arity(kind)))

    return st.sampled_from(sorted(KINDS)).flatmap(of_kind)


def evaluate(expr: HostExpr, slots: tuple[int, ...]) -> int:
    if isinstance(expr, HostOp):
        return KINDS[expr.kind](*(evaluate(a, slots) for a in expr.args))
    return expr if isinstance(expr, int) else slots[expr.index]


expressions = st.recursive(leaves, _operations, max_leaves=12)


@given(st.lists(expressions, max_size=4), *[st.tuples(*[int64s] * SLOTS)] * 2)
@settings(max_examples=150, deadline=None)
def test_compiled_and_interpreted_expressions_agree(
    trees: list[HostExpr], slots: tuple[int, ...], others: tuple[int, ...]
) -> None:
    compiled, expected = compile_expressions(trees), tuple(evaluate(t, slots) for t in trees)

    assert compiled(slots) == compiled(slots) == expected
    assert compiled(others) == tuple(evaluate(t, others) for t in trees)


def test_every_kind_agrees_on_edge_values() -> None:
    for kind in KINDS:
        operands = tuple(Slot(i) for i in range(_arity(kind)))
        compiled = compile_expressions([HostOp(kind, operands)])
        for a in EDGES:
            for b in EDGES:
                assert compiled((a, b, 7)) == (evaluate(HostOp(kind, operands), (a, b, 7)),), (kind, a, b)


def test_deep_expressions_compile() -> None:
    """A size that went through a long unrolled computation is a tree deeper than Python's parser allows brackets."""
    tree: HostExpr = Slot(0)
    for i in range(300):
        tree = HostOp("add", (tree, i))

    assert compile_expressions([tree])((1,)) == (1 + sum(range(300)),)


def test_equal_parts_are_evaluated_once() -> None:
    part: HostExpr = Slot(0)
    for _ in range(60):  # a tree of 2**60 nodes if it were written out
        part = HostOp("add", (part, part))

    assert compile_expressions([part])((1,)) == (2**60,)
