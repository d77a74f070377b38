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
from stagekit.frontend.evaluation import evaluate
from stagekit.frontend.frame import RETURN, VALUE, Frame
from stagekit.frontend.loop_statements import trace_for, trace_while
from stagekit.frontend.places import binding_scope
from stagekit.frontend.texts import message
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Number, escaped


def trace_expression(tracer: Tracer, frame: Frame, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):
        evaluate(tracer, frame, node.value)


def trace_pass(tracer: Tracer, frame: Frame, node: ast.stmt) -> None:
    pass


def trace_define(tracer: Tracer, frame: Frame, node: ast.FunctionDef) -> None:
    made: Any = make_closure(tracer, frame, node)
    for decorator in reversed(node.decorator_list):
        made = call(tracer, frame, decorator, evaluate(tracer, frame, decorator), [made], {})
    tracer.assign(binding_scope(frame, node.name).variables, node.name, made)


def trace_assert(tracer: Tracer, frame: Frame, node: ast.Assert) -> None:
    """A run-time check; the message is built only for those threads that fail."""
    holds = condition(tracer, frame, node.test)
    loc = tracer.at(frame, node)
    if holds is True:
        return
    value = tracer.builder.false() if holds is False else holds.value
    text, operands = message(tracer, frame, node.msg) if node.msg else (escaped(ast.unparse(node.test)), ())
    tracer.builder.loc = loc
    tracer.builder.check(value, text, operands)


def trace_return(tracer: Tracer, frame: Frame, node: ast.Return) -> None:
    value = evaluate(tracer, frame, node.value) if node.value else None
    tracer.assign(frame.control, VALUE, value)
    tracer.exit(frame, RETURN)


def trace_break(tracer: Tracer, frame: Frame, node: ast.Break) -> None:
    tracer.exit(frame, frame.loops[-1].broken)


def trace_continue(tracer: Tracer, frame: Frame, node: ast.Continue) -> None:
    tracer.exit(frame, frame.loops[-1].continued)


def trace_if(tracer: Tracer, frame: Frame, node: ast.If) -> None:
    chosen = condition(tracer, frame, node.test)
    if isinstance(chosen, bool):
        run_body(tracer, frame, node.body if chosen else node.orelse)
        return

    def then() -> None:
        assume(tracer, chosen, True)
        run_body(tracer, frame, node.body)

    def otherwise() -> None:
        assume(tracer, chosen, False)
        run_body(tracer, frame, node.orelse)

    branch(tracer, chosen.value, then, otherwise, frame.loc(node.test), frame=frame)


def trace_match(tracer: Tracer, frame: Frame, node: ast.Match) -> None:
    subject = evaluate(tracer, frame, node.subject)

    def attempt(cases: Sequence[ast.match_case]) -> None:
        if not cases:
            return
        case, rest = cases[0], cases[1:]
        matched = matching.attempt(tracer, frame, case.pattern, subject)
        if case.guard is not None:
            matched = both(tracer, frame, matched, lambda: holds(case, case.guard), node)
        if matched is True:
            take(case)
        elif matched is False:
            attempt(rest)
        else:
            branch(
                tracer,
                matched.value,
                lambda: take_at_run_time(case, matched),
                lambda: attempt(rest),
                frame.loc(case.pattern),
                frame=frame,
            )

    def holds(case: ast.match_case, guard: Any) -> bool | Number:
        matching.bind(tracer, frame, case.pattern)
        return condition(tracer, frame, guard)

    def take_at_run_time(case: ast.match_case, matched: bool | Number) -> None:
        assume(tracer, matched, True)
        take(case)

    def take(case: ast.match_case) -> None:
        matching.bind(tracer, frame, case.pattern)
        run_body(tracer, frame, case.body)

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
