"""Statements: which function runs which kind of node."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from stagekit.frontend import matching
from stagekit.frontend.assignments import trace_annotated, trace_assign, trace_augmented, trace_delete
from stagekit.frontend.bodies import RUNNERS, run_body
from stagekit.frontend.calls import call, make_closure
from stagekit.frontend.conditions import assume, both, condition
from stagekit.frontend.control import branch
from stagekit.frontend.evaluation import Site, evaluate
from stagekit.frontend.frame import RETURN, VALUE, Frame
from stagekit.frontend.loop_statements import trace_for, trace_while
from stagekit.frontend.places import binding_scope
from stagekit.frontend.texts import message
from stagekit.frontend.values import Number, escaped


def trace_expression(frame: Frame, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):
        evaluate(frame, node.value)


def trace_pass(frame: Frame, node: ast.stmt) -> None:
    pass


def trace_define(frame: Frame, node: ast.FunctionDef) -> None:
    made: Any = make_closure(frame, node)
    for decorator in reversed(node.decorator_list):
        made = call(Site(frame, decorator), evaluate(frame, decorator), [made], {})
    frame.tracer.assign(binding_scope(frame, node.name).variables, node.name, made)


def trace_assert(frame: Frame, node: ast.Assert) -> None:
    """A run-time check; the message is built only for those threads that fail."""
    holds = condition(frame, node.test)
    loc = frame.at(node)
    if holds is True:
        return
    value = frame.tracer.builder.false() if holds is False else holds.value
    text, operands = message(frame, node.msg) if node.msg else (escaped(ast.unparse(node.test)), ())
    frame.tracer.builder.loc = loc
    frame.tracer.builder.check(value, text, operands)


def trace_return(frame: Frame, node: ast.Return) -> None:
    value = evaluate(frame, node.value) if node.value else None
    frame.tracer.assign(frame.control, VALUE, value)
    frame.exit(RETURN)


def trace_break(frame: Frame, node: ast.Break) -> None:
    frame.exit(frame.loops[-1].broken)


def trace_continue(frame: Frame, node: ast.Continue) -> None:
    frame.exit(frame.loops[-1].continued)


def trace_if(frame: Frame, node: ast.If) -> None:
    chosen = condition(frame, node.test)
    if isinstance(chosen, bool):
        run_body(frame, node.body if chosen else node.orelse)
        return

    def then() -> None:
        assume(frame.tracer, chosen, True)
        run_body(frame, node.body)

    def otherwise() -> None:
        assume(frame.tracer, chosen, False)
        run_body(frame, node.orelse)

    branch(frame.tracer, chosen.value, then, otherwise, frame.loc(node.test), frame=frame)


def trace_match(frame: Frame, node: ast.Match) -> None:
    subject = evaluate(frame, node.subject)

    def attempt(cases: Sequence[ast.match_case]) -> None:
        if not cases:
            return
        case, rest = cases[0], cases[1:]
        matched = matching.attempt(frame, case.pattern, subject)
        if case.guard is not None:
            matched = both(frame.tracer, matched, lambda: holds(case, case.guard), frame.loc(node))
        if matched is True:
            take(case)
        elif matched is False:
            attempt(rest)
        else:
            branch(
                frame.tracer,
                matched.value,
                lambda: take_at_run_time(case, matched),
                lambda: attempt(rest),
                frame.loc(case.pattern),
                frame=frame,
            )

    def holds(case: ast.match_case, guard: Any) -> bool | Number:
        matching.bind(frame, case.pattern)
        return condition(frame, guard)

    def take_at_run_time(case: ast.match_case, matched: bool | Number) -> None:
        assume(frame.tracer, matched, True)
        take(case)

    def take(case: ast.match_case) -> None:
        matching.bind(frame, case.pattern)
        run_body(frame, case.body)

    attempt(node.cases)


RUNNERS.update(
    {
        ast.Expr: trace_expression,
        ast.Pass: trace_pass,
        ast.Assign: trace_assign,
        ast.AnnAssign: trace_annotated,
        ast.AugAssign: trace_augmented,
        ast.Delete: trace_delete,
        ast.FunctionDef: trace_define,
        ast.Assert: trace_assert,
        ast.Return: trace_return,
        ast.Break: trace_break,
        ast.Continue: trace_continue,
        ast.If: trace_if,
        ast.Match: trace_match,
        ast.For: trace_for,
        ast.While: trace_while,
        ast.Nonlocal: trace_pass,
    }
)
