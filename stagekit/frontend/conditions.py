"""Conditions: what is true, `and`, `or`, `not`, and `a if c else b`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import Loc
from stagekit.frontend.control import branch, describe
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import Site, evaluate
from stagekit.frontend.frame import Frame
from stagekit.frontend.methods import user_method
from stagekit.frontend.tracer import Assigned, Grants, Tracer
from stagekit.frontend.values import STAND_INS, Number


def truth(site: Site, value: Any) -> bool | Number:
    """What `if value:` means: a Python bool, or a run-time bool."""
    if isinstance(value, Number):
        return value if value.dtype is dtypes.bool_ else Number(site.tracer.arithmetic.truth(value))
    if isinstance(value, STAND_INS):
        hint = "compare it, or test `is not None`"
        raise site.error(BadOperands("bool()", describe(value), hint))
    for name in ("__bool__", "__len__"):
        method = user_method(site.tracer, value, name)
        if method is not None:
            return truth(site, site.invoke(method, [value]))
    return bool(site.static(bool, value))


def condition(frame: Frame, node: ast.expr) -> bool | Number:
    """Evaluate `node` for its truth."""
    if isinstance(node, ast.BoolOp):
        return _bool_condition(frame, node)
    return truth(Site(frame, node), evaluate(frame, node))


def negate_condition(tracer: Tracer, value: bool | Number) -> bool | Number:
    if isinstance(value, bool):
        return not value
    negated = Number(tracer.builder.not_(value.value))
    if value.value in tracer.grants:
        known = tracer.grants[value.value]
        tracer.grants[negated.value] = Grants(known.if_false, known.if_true)
    return negated


def both(tracer: Tracer, left: bool | Number, right: Outcome, loc: Loc) -> bool | Number:
    """`left and right()`. Where it holds, what a walrus on the right assigns is assigned."""
    if isinstance(left, bool):
        return right() if left else False
    assigned: Assigned = {}
    outcome = branch(tracer, left.value, lambda: _granted(tracer, right(), True), lambda: False, loc, assigned)
    return _granting(tracer, outcome, Grants({**_grants(tracer, left).if_true, **assigned}, {}))


def _disjunction(tracer: Tracer, left: Number, right: Outcome, loc: Loc) -> bool | Number:
    """`left or right()`. Where it does not hold, what a walrus on the right assigns is assigned."""
    assigned: Assigned = {}
    outcome = branch(tracer, left.value, lambda: True, lambda: _granted(tracer, right(), False), loc, assigned)
    return _granting(tracer, outcome, Grants({}, {**_grants(tracer, left).if_false, **assigned}))


Outcome = Callable[[], bool | Number]
_NO_GRANTS = Grants({}, {})


def _grants(tracer: Tracer, outcome: bool | Number) -> Grants:
    return tracer.grants.get(outcome.value, _NO_GRANTS) if isinstance(outcome, Number) else _NO_GRANTS


def _granting(tracer: Tracer, outcome: bool | Number, grants: Grants) -> bool | Number:
    if isinstance(outcome, Number) and (grants.if_true or grants.if_false):
        tracer.grants[outcome.value] = grants
    return outcome


def _granted(tracer: Tracer, outcome: bool | Number, holds: bool) -> bool | Number:
    """The outcome of a condition; from here on it is known whether it holds."""
    assume(tracer, outcome, holds)
    return outcome


def assume(tracer: Tracer, outcome: bool | Number, holds: bool) -> Assigned:
    """Here a condition is known to hold, or not to: its walruses have assigned what they must have. Gives what that is."""
    known = _grants(tracer, outcome).if_true if holds else _grants(tracer, outcome).if_false
    for location, value in known.values():
        tracer.journal.assign(location, value)
    return known


def either(tracer: Tracer, left: bool | Number, right: bool | Number) -> bool | Number:
    if left is True or right is True:
        return True
    if left is False:
        return right
    if right is False:
        return left
    return Number(tracer.builder.or_(left.value, right.value))


def _bool_condition(frame: Frame, node: ast.BoolOp) -> bool | Number:
    def rest(nodes: Sequence[ast.expr]) -> bool | Number:
        first = condition(frame, nodes[0])
        if len(nodes) == 1:
            return first
        if isinstance(node.op, ast.And):
            return both(frame.tracer, first, lambda: rest(nodes[1:]), frame.loc(node))
        if isinstance(first, bool):
            return True if first else rest(nodes[1:])
        return _disjunction(frame.tracer, first, lambda: rest(nodes[1:]), frame.loc(node))

    return rest(node.values)


def trace_bool(frame: Frame, node: ast.BoolOp) -> Any:
    """`a or b` as a value: Python gives one of the operands."""

    def rest(nodes: Sequence[ast.expr]) -> Any:
        first = evaluate(frame, nodes[0])
        if len(nodes) == 1:
            return first
        holds = truth(Site(frame, nodes[0]), first)
        stops = holds if isinstance(node.op, ast.Or) else negate_condition(frame.tracer, holds)
        if isinstance(stops, bool):
            return first if stops else rest(nodes[1:])
        return branch(frame.tracer, stops.value, lambda: first, lambda: rest(nodes[1:]), frame.loc(node))

    return frame.read(rest(node.values), node)


def trace_conditional(frame: Frame, node: ast.IfExp) -> Any:
    chosen = condition(frame, node.test)
    if isinstance(chosen, bool):
        return evaluate(frame, node.body if chosen else node.orelse)

    def then() -> Any:
        assume(frame.tracer, chosen, True)
        return evaluate(frame, node.body)

    def otherwise() -> Any:
        assume(frame.tracer, chosen, False)
        return evaluate(frame, node.orelse)

    return frame.read(branch(frame.tracer, chosen.value, then, otherwise, frame.loc(node)), node)
