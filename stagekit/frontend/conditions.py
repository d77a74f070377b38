"""Conditions: the truth of a value, `and`, `or`, `not`, and `a if c else b`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import Loc
from stagekit.frontend.control import Join, branch, describe, trace_arms
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import Site, evaluate, user_method
from stagekit.frontend.tracer import Assigned, Frame, Thunk, Tracer
from stagekit.frontend.values import STAND_INS, Number

Truth = bool | Number  # of a condition: known at compile time, or a run-time bool
Test = Callable[[], Truth]


def truth(site: Site, value: Any) -> Truth:
    """Return what `if value:` asks for."""
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


def condition(frame: Frame, node: ast.expr) -> Truth:
    """Evaluate `node` for its truth."""
    if not isinstance(node, ast.BoolOp):
        return truth(Site(frame, node), evaluate(frame, node))
    combine = both if isinstance(node.op, ast.And) else first_or

    def rest(nodes: Sequence[ast.expr]) -> Truth:
        first = condition(frame, nodes[0])
        return combine(frame.tracer, first, lambda: rest(nodes[1:]), frame.loc(node)) if nodes[1:] else first

    return rest(node.values)


def negate_condition(tracer: Tracer, value: Truth) -> Truth:
    if isinstance(value, bool):
        return not value
    negated = Number(tracer.builder.not_(value.value))
    for holds in (True, False):
        _grant(tracer, negated, holds, _granted(tracer, value, not holds))
    return negated


def both(tracer: Tracer, left: Truth, right: Test, loc: Loc) -> Truth:
    """Trace `left and right()`; the right side happens only where the left holds."""
    return _short_circuit(tracer, left, right, loc, True)


def first_or(tracer: Tracer, left: Truth, right: Test, loc: Loc) -> Truth:
    """Trace `left or right()`; the right side happens only where the left does not hold."""
    return _short_circuit(tracer, left, right, loc, False)


def _short_circuit(tracer: Tracer, left: Truth, right: Test, loc: Loc, needed: bool) -> Truth:
    """Trace `and` (needed: True) or `or` (needed: False): where the left is what is needed, the right happens and decides.

    So where the whole is what is needed, both sides have happened: what a walrus in either assigns is assigned there.
    """
    if isinstance(left, bool):
        return right() if left is needed else left

    def decide() -> Truth:
        outcome = right()
        assume(tracer, outcome, needed)
        return outcome

    arms: list[Test] = [decide, lambda: not needed]
    then, otherwise = arms if needed else reversed(arms)
    join = Join(tracer, left.value, trace_arms(tracer, then, otherwise, loc), loc)
    assigned = join.one_sided()
    outcome: Truth = join.emit()
    _grant(tracer, outcome, needed, {**_granted(tracer, left, needed), **assigned})
    return outcome


def _granted(tracer: Tracer, outcome: Truth, holds: bool) -> Assigned:
    """Return what the walruses in a condition must have assigned where it holds, or where it does not."""
    return tracer.grants.get((outcome.value, holds), {}) if isinstance(outcome, Number) else {}


def _grant(tracer: Tracer, outcome: Truth, holds: bool, assigned: Assigned) -> None:
    if isinstance(outcome, Number) and assigned:
        tracer.grants[outcome.value, holds] = assigned


def assume(tracer: Tracer, outcome: Truth, holds: bool) -> Assigned:
    """Assign what the walruses in a condition must have assigned here, where it is known to hold, or not to; return that."""
    known = _granted(tracer, outcome, holds)
    for location, value in known.values():
        tracer.journal.assign(location, value)
    return known


def choose(tracer: Tracer, chosen: Truth, then: Thunk, otherwise: Thunk, loc: Loc, frame: Frame | None = None) -> Any:
    """Run `then` where a condition holds and `otherwise` where it does not: one of them, or both under a run-time `if`.

    frame: the call whose statement this is, None for an expression.
    """
    if isinstance(chosen, bool):
        return then() if chosen else otherwise()

    def arm(holds: bool, run: Thunk) -> Any:
        assume(tracer, chosen, holds)
        return run()

    return branch(tracer, chosen.value, lambda: arm(True, then), lambda: arm(False, otherwise), loc, frame=frame)


def either(tracer: Tracer, left: Truth, right: Truth) -> Truth:
    if left is True or right is True:
        return True
    if left is False:
        return right
    if right is False:
        return left
    return Number(tracer.builder.or_(left.value, right.value))


def trace_bool(frame: Frame, node: ast.BoolOp) -> Any:
    """Trace `a or b` for its value, which is one of the operands."""

    def rest(nodes: Sequence[ast.expr]) -> Any:
        first = evaluate(frame, nodes[0])
        if len(nodes) == 1:
            return first
        holds = truth(Site(frame, nodes[0]), first)
        stops = holds if isinstance(node.op, ast.Or) else negate_condition(frame.tracer, holds)
        return choose(frame.tracer, stops, lambda: first, lambda: rest(nodes[1:]), frame.loc(node))

    return frame.read(rest(node.values), node)


def trace_conditional(frame: Frame, node: ast.IfExp) -> Any:
    value = choose(
        frame.tracer,
        condition(frame, node.test),
        lambda: evaluate(frame, node.body),
        lambda: evaluate(frame, node.orelse),
        frame.loc(node),
    )
    return frame.read(value, node)
