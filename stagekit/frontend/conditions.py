"""Conditions: what is true, `and`, `or`, `not`, and `a if c else b`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.frontend.control import branch, describe
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import evaluate, invoke, static
from stagekit.frontend.frame import Frame
from stagekit.frontend.methods import user_method
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import STAND_INS, Number


def truth(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> bool | Number:
    """What `if value:` means: a Python bool, or a run-time bool."""
    if isinstance(value, Number):
        return value if value.dtype is dtypes.bool_ else Number(tracer.arithmetic.truth(value))
    if isinstance(value, STAND_INS):
        hint = "compare it, or test `is not None`"
        raise tracer.error(BadOperands("bool()", describe(value), hint), frame, node)
    for name in ("__bool__", "__len__"):
        method = user_method(value, name)
        if method is not None:
            return truth(tracer, frame, node, invoke(tracer, frame, node, method, [value]))
    return bool(static(tracer, frame, node, lambda: bool(value)))


def condition(tracer: Tracer, frame: Frame, node: ast.expr) -> bool | Number:
    """Evaluate `node` for its truth."""
    if isinstance(node, ast.BoolOp):
        return _bool_condition(tracer, frame, node)
    return truth(tracer, frame, node, evaluate(tracer, frame, node))


def negate_condition(tracer: Tracer, value: bool | Number) -> bool | Number:
    return not value if isinstance(value, bool) else Number(tracer.builder.not_(value.value))


def both(
    tracer: Tracer, frame: Frame, left: bool | Number, right: Callable[[], bool | Number], node: ast.AST
) -> bool | Number:
    """`left and right()`; the right side happens only where the left holds."""
    if isinstance(left, bool):
        return right() if left else False
    outcome: bool | Number = branch(tracer, left.value, right, lambda: False, frame.loc(node))
    return outcome


def either(tracer: Tracer, left: bool | Number, right: bool | Number) -> bool | Number:
    if left is True or right is True:
        return True
    if left is False:
        return right
    if right is False:
        return left
    return Number(tracer.builder.or_(left.value, right.value))


def _bool_condition(tracer: Tracer, frame: Frame, node: ast.BoolOp) -> bool | Number:
    def rest(nodes: Sequence[ast.expr]) -> bool | Number:
        first = condition(tracer, frame, nodes[0])
        if len(nodes) == 1:
            return first
        if isinstance(node.op, ast.And):
            return both(tracer, frame, first, lambda: rest(nodes[1:]), node)
        if isinstance(first, bool):
            return True if first else rest(nodes[1:])
        outcome: bool | Number = branch(tracer, first.value, lambda: True, lambda: rest(nodes[1:]), frame.loc(node))
        return outcome

    return rest(node.values)


def trace_bool(tracer: Tracer, frame: Frame, node: ast.BoolOp) -> Any:
    """`a or b` as a value: Python gives one of the operands."""

    def rest(nodes: Sequence[ast.expr]) -> Any:
        first = evaluate(tracer, frame, nodes[0])
        if len(nodes) == 1:
            return first
        holds = truth(tracer, frame, nodes[0], first)
        stops = holds if isinstance(node.op, ast.Or) else negate_condition(tracer, holds)
        if isinstance(stops, bool):
            return first if stops else rest(nodes[1:])
        return branch(tracer, stops.value, lambda: first, lambda: rest(nodes[1:]), frame.loc(node))

    return tracer.read(rest(node.values), frame, node)


def trace_conditional(tracer: Tracer, frame: Frame, node: ast.IfExp) -> Any:
    chosen = condition(tracer, frame, node.test)
    if isinstance(chosen, bool):
        return evaluate(tracer, frame, node.body if chosen else node.orelse)

    def then() -> Any:
        return evaluate(tracer, frame, node.body)

    def otherwise() -> Any:
        return evaluate(tracer, frame, node.orelse)

    return tracer.read(branch(tracer, chosen.value, then, otherwise, frame.loc(node)), frame, node)
