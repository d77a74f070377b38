"""Statements: lists of them, the rules of early exits, and which function runs which kind of node.

`break`, `continue` and `return` set flags (`Frame.control`). After a statement that may have set one, the rest of the list runs
only where no flag is set: not at all when one is set for certain, under a run-time `if` when it depends.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

from stagekit.diagnostics import Loc
from stagekit.frontend.assignments import trace_annotated, trace_assign, trace_augmented, trace_delete
from stagekit.frontend.conditions import choose, condition
from stagekit.frontend.control import branch
from stagekit.frontend.errors import StagingError
from stagekit.frontend.evaluation import evaluate, failure, is_of_the_user
from stagekit.frontend.frame import RETURN, VALUE, Frame
from stagekit.frontend.journal import Location
from stagekit.frontend.source import children
from stagekit.frontend.state import TooLarge
from stagekit.frontend.texts import message
from stagekit.frontend.values import Number, Partial, escaped

_EXITS = (ast.Return, ast.Break, ast.Continue)


def run_body(frame: Frame, body: Sequence[ast.stmt]) -> None:
    """Run statements in order, minding early exits."""
    state = (frame.tracer.control_depth, frame.iteration, len(frame.loops))
    for position, statement in enumerate(body):
        frame.count_ops(statement)
        try:
            _run(frame, statement)
        except StagingError as error:
            if frame.doubts is None:
                raise
            frame.doubts.append(error)
            frame.tracer.control_depth, frame.iteration, open_loops = state
            del frame.loops[open_loops:]
            continue
        if not may_exit(statement):
            continue
        stopped = exit_taken(frame, frame.flags())
        if stopped is True:
            return
        rest = body[position + 1 :]
        if isinstance(stopped, Number) and rest:
            _run_unless(frame, stopped, rest, frame.loc(statement))
            return


def _run(frame: Frame, statement: ast.stmt) -> None:
    outer, frame.tracer.statement_began = frame.tracer.statement_began, frame.tracer.journal.mark().time
    try:
        RUNNERS[type(statement)](frame, statement)
    except TooLarge as error:
        raise frame.error(error.diagnostic, statement) from None
    except Exception as error:
        if is_of_the_user(error):  # a method of a user's object that was only looked at
            raise frame.error(failure(error), statement) from error
        raise
    finally:
        frame.tracer.statement_began = outer


def _run_unless(frame: Frame, stopped: Number, rest: Sequence[ast.stmt], loc: Loc) -> None:
    """Run `rest` where no exit was taken."""

    def go_on() -> None:
        have_values(frame)
        run_body(frame, rest)

    def leave() -> None:
        """Where only one exit can have been taken, its flag is set: so `if c: return a` and `return b` cover every path."""
        possible = [flag for flag in frame.flags() if frame.control.get(flag, False) is not False]
        if len(possible) == 1:
            frame.tracer.assign(frame.control, possible[0], True)

    branch(frame.tracer, frame.tracer.builder.not_(stopped.value), go_on, leave, loc, is_left=True, frame=frame)


def have_values(frame: Frame) -> None:
    """Here no exit was taken: what only those leave without a value has one."""
    variables = frame.scope.variables
    for name, held in list(variables.items()):
        if isinstance(held, Partial) and held.is_set:
            frame.tracer.journal.assign(Location(variables, name, False), held.value)


def meet_exits(frame: Frame, flag: str, first: int, *, is_only: bool = False) -> None:
    """Here the paths that took `flag` go on, with those that took no exit, or without them (`is_only`)."""
    variables = frame.scope.variables
    partial = [(name, held) for name, held in variables.items() if isinstance(held, Partial)]
    taken = frame.exits_by(flag, first) if partial else frozenset()
    for name, held in partial:
        is_set = (is_only or held.is_set) and taken <= held.exits
        frame.tracer.journal.assign(Location(variables, name, False), dataclasses.replace(held, is_set=is_set))


def may_exit(statement: ast.stmt) -> bool:
    """Does the statement contain an exit of this call or of a loop around it? Remembered on the node."""
    found: bool | None = getattr(statement, "_may_exit", None)
    if found is None:
        found = isinstance(statement, _EXITS)
        for inner in nested(statement):  # without `any`: chains of `elif` nest deeper than calls through C may
            found = found or may_exit(inner)
        statement._may_exit = found  # type: ignore[attr-defined]
    return found


def nested(statement: ast.stmt) -> Iterable[ast.stmt]:
    """Statements directly inside, in the same call."""
    if isinstance(statement, ast.FunctionDef):
        return ()
    if isinstance(statement, ast.Match):
        return (inner for case in statement.cases for inner in case.body)
    return [node for node in children(statement) if isinstance(node, ast.stmt)]


def exit_taken(frame: Frame, flags: Sequence[str]) -> bool | Number:
    """Is one of `flags` set: False, True, or a run-time bool?"""
    values = [frame.control.get(flag, False) for flag in flags]
    if any(v is True for v in values):
        return True
    taken = [v.value for v in values if isinstance(v, Number)]
    if not taken:
        return False
    return Number(functools.reduce(frame.tracer.builder.or_, taken))


# -- each kind -----------------------------------------------------------------------------------------------------------


def trace_expression(frame: Frame, node: ast.Expr) -> None:
    if not isinstance(node.value, ast.Constant):
        evaluate(frame, node.value)


def trace_pass(frame: Frame, node: ast.stmt) -> None:
    pass


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
    choose(
        frame.tracer,
        condition(frame, node.test),
        lambda: run_body(frame, node.body),
        lambda: run_body(frame, node.orelse),
        frame.loc(node.test),
        frame,
    )


# Kind of node -> its function. `calls`, `loop_statements` and `matching` enter theirs, since those need this module.
RUNNERS: dict[type[ast.stmt], Callable[..., None]] = {
    ast.Expr: trace_expression,
    ast.Pass: trace_pass,
    ast.Assign: trace_assign,
    ast.AnnAssign: trace_annotated,
    ast.AugAssign: trace_augmented,
    ast.Delete: trace_delete,
    ast.Assert: trace_assert,
    ast.Return: trace_return,
    ast.Break: trace_break,
    ast.Continue: trace_continue,
    ast.If: trace_if,
    ast.Nonlocal: trace_pass,
}
