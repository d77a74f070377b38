"""Statements: lists of them, the rules of early exits, and which function runs which kind of node.

`break`, `continue` and `return` set flags (`Frame.control`). After a statement that may have set one, the rest of the list runs
only where no flag is set: not at all when one is set for certain, under a run-time `if` when it depends.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stagekit.diagnostics import Loc
from stagekit.frontend import effects, objects
from stagekit.frontend.assignments import (
    binding_scope,
    one_per_target,
    trace_annotated,
    trace_assign,
    trace_augmented,
    trace_delete,
)
from stagekit.frontend.conditions import Truth, both, choose, compare, condition, first_or, truth
from stagekit.frontend.control import branch
from stagekit.frontend.errors import OpBudget, StagingError, UnsupportedSyntax
from stagekit.frontend.evaluation import Site, evaluate, failure, is_of_the_user
from stagekit.frontend.journal import MISSING, Location
from stagekit.frontend.source import remembered
from stagekit.frontend.state import TooLarge
from stagekit.frontend.texts import message
from stagekit.frontend.tracer import CAPTURE, RETURN, VALUE, Frame
from stagekit.frontend.values import STAND_INS, Number, Partial, escaped


def run_body(frame: Frame, body: Sequence[ast.stmt]) -> None:
    """Run statements in order; after one that may have exited, the rest runs only where it has not."""
    tracer, options = frame.tracer, frame.tracer.options
    state = (tracer.control_depth, frame.iteration, len(frame.loops))
    for position, statement in enumerate(body):
        if tracer.builder.op_count > options.op_budget:
            raise frame.error(OpBudget(options.op_budget, tracer.most_unrolled()), statement)
        try:
            _run(frame, statement)
        except StagingError as error:
            if frame.doubts is None:
                raise
            frame.doubts.append(error)
            tracer.control_depth, frame.iteration, open_loops = state
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
    outer, frame.tracer.statement_began = frame.tracer.statement_began, frame.tracer.journal.tick()
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

    def set_only_flag() -> None:
        """Set the flag of the only possible exit, so that `if c: return a` and `return b` cover every path."""
        possible = [flag for flag in frame.flags() if frame.control.get(flag, False) is not False]
        if len(possible) == 1:
            frame.tracer.assign(frame.control, possible[0], True)

    no_exit, go_on = frame.tracer.builder.not_(stopped.value), functools.partial(run_rest, frame, rest)
    branch(frame.tracer, no_exit, go_on, set_only_flag, loc, frame=frame, after_exit=True)


def run_rest(frame: Frame, body: Sequence[ast.stmt]) -> None:
    """Run what comes behind an exit that was not taken."""
    define_partials(frame)
    run_body(frame, body)


def define_partials(frame: Frame) -> None:
    """Give variables that are undefined only on paths which exited their values, here where no exit was taken."""
    variables = frame.scope.variables
    for name, held in variables.items():  # no name comes or goes meanwhile
        if type(held) is Partial and held.is_set:
            frame.tracer.journal.assign(Location(variables, name, False), held.value)


def join_exits(frame: Frame, flag: str, first_exit: int, *, only_exited: bool = False) -> None:
    """Let the paths that took the exit `flag` go on here, with those that took no exit, or without them (`only_exited`)."""
    variables = frame.scope.variables
    partial = [(name, held) for name, held in variables.items() if isinstance(held, Partial)]
    taken = frame.exits_by(flag, first_exit) if partial else frozenset()
    for name, held in partial:
        is_set = (only_exited or held.is_set) and taken <= held.exits
        frame.tracer.journal.assign(Location(variables, name, False), dataclasses.replace(held, is_set=is_set))


@remembered
def may_exit(statement: ast.stmt) -> bool:
    """Return whether the statement contains an exit of this call or of a loop around it."""
    found = isinstance(statement, ast.Return | ast.Break | ast.Continue)
    for inner in nested(statement):  # without `any`: chains of `elif` nest deeper than calls through C may
        found = found or may_exit(inner)
    return found


def nested(statement: ast.stmt) -> Iterable[ast.stmt]:
    """Return the statements directly inside, of the same call."""
    if isinstance(statement, ast.FunctionDef):
        return ()
    if isinstance(statement, ast.Match):
        return (inner for case in statement.cases for inner in case.body)
    return (*getattr(statement, "body", ()), *getattr(statement, "orelse", ()))


def exit_taken(frame: Frame, flags: Sequence[str]) -> Truth:
    """Return whether one of `flags` is set."""
    taken: list[Any] = [v for flag in flags if (v := frame.control.get(flag)) is True or isinstance(v, Number)]
    if not taken:
        return False
    if any(v is True for v in taken):
        return True
    return Number(functools.reduce(frame.tracer.builder.or_, (v.value for v in taken)))


# -- each kind -----------------------------------------------------------------------------------------------------------


def trace_assert(frame: Frame, node: ast.Assert) -> None:
    """Emit a run-time check, whose message is built only for the threads that fail."""
    holds = condition(frame, node.test)
    loc = frame.at(node)
    if holds is True:
        return
    value = frame.tracer.builder.false() if holds is False else holds.value
    text, operands = message(frame, node.msg) if node.msg else (escaped(ast.unparse(node.test)), ())
    frame.tracer.builder.loc = loc
    effects.act(Site(frame, node), lambda: frame.tracer.builder.check(value, text, operands))


def trace_return(frame: Frame, node: ast.Return) -> None:
    value = evaluate(frame, node.value) if node.value else None
    frame.tracer.assign(frame.control, VALUE, value)
    frame.exit(RETURN)


def trace_if(frame: Frame, node: ast.If) -> None:
    holds = condition(frame, node.test)
    then, otherwise = (functools.partial(run_body, frame, body) for body in (node.body, node.orelse))
    choose(frame.tracer, holds, then, otherwise, frame.loc(node.test), frame)


# -- `match` ---------------------------------------------------------------------------------------------------------------
#
# Each pattern is a condition, compile-time where it can be. Names are bound where the whole pattern holds. Until then what they
# capture stands among the frame's control values, whose joins do not mind that a part of the pattern was never reached.


def trace_match(frame: Frame, node: ast.Match) -> None:
    subject = evaluate(frame, node.subject)

    def attempt(cases: Sequence[ast.match_case]) -> None:
        if not cases:
            return
        case = cases[0]
        captured = _captured_names(case.pattern)

        def bind() -> None:
            for name in captured:
                frame.tracer.assign(binding_scope(frame, name).variables, name, frame.control[CAPTURE + name])

        def guard() -> Truth:
            bind()
            return condition(frame, case.guard) if case.guard else True

        def take() -> None:
            bind()
            run_body(frame, case.body)

        for name in captured:
            if CAPTURE + name in frame.control:
                frame.tracer.assign(frame.control, CAPTURE + name, MISSING)
        matched = matches(frame, case.pattern, subject)
        if case.guard is not None:
            matched = both(frame.tracer, matched, guard, frame.loc(node))
        choose(frame.tracer, matched, take, lambda: attempt(cases[1:]), frame.loc(case.pattern), frame)

    attempt(node.cases)


def _captured_names(pattern: ast.pattern) -> list[str]:
    """Return the names that a pattern captures, in order."""
    nodes = list(ast.walk(pattern))
    plain = [n.name for n in nodes if isinstance(n, ast.MatchAs | ast.MatchStar) and n.name]
    return list(dict.fromkeys([*plain, *(n.rest for n in nodes if isinstance(n, ast.MatchMapping) and n.rest)]))


def matches(frame: Frame, pattern: ast.pattern, subject: Any) -> Truth:
    """Trace whether `subject` matches this pattern or part of one."""
    return _PATTERNS[type(pattern)](frame, pattern, subject)


def _matches_all(frame: Frame, pattern: ast.pattern, pairs: Iterable[tuple[ast.pattern, Any]]) -> Truth:
    """Trace whether each part of a subject matches its part of the pattern."""
    matched: Truth = True
    for inner, part in pairs:
        matched = both(frame.tracer, matched, functools.partial(matches, frame, inner, part), frame.loc(pattern))
    return matched


def _match_value(frame: Frame, pattern: ast.MatchValue, subject: Any) -> Truth:
    wanted = evaluate(frame, pattern.value)
    return truth(Site(frame, pattern), compare(Site(frame, pattern), ast.Eq(), subject, wanted))


def _match_name(frame: Frame, pattern: ast.MatchAs | ast.MatchStar, subject: Any) -> Truth:
    inner = pattern.pattern if isinstance(pattern, ast.MatchAs) else None
    matched: Truth = True if inner is None else matches(frame, inner, subject)
    if matched is not False and pattern.name is not None:
        frame.tracer.assign(frame.control, CAPTURE + pattern.name, subject)
    return matched


def _match_either(frame: Frame, pattern: ast.MatchOr, subject: Any) -> Truth:
    def rest(patterns: list[ast.pattern]) -> Truth:
        first, *others = patterns
        found = matches(frame, first, subject)
        return first_or(frame.tracer, found, lambda: rest(others), frame.loc(first)) if others else found

    return rest(pattern.patterns)


def _match_sequence(frame: Frame, pattern: ast.MatchSequence, subject: Any) -> Truth:
    items = one_per_target(frame, subject, pattern.patterns) if isinstance(subject, tuple | list) else None
    return items is not None and _matches_all(frame, pattern, zip(pattern.patterns, items, strict=True))


def _match_class(frame: Frame, pattern: ast.MatchClass, subject: Any) -> Truth:
    cls = evaluate(frame, pattern.cls)
    if isinstance(subject, STAND_INS) or not isinstance(subject, cls):
        return False
    names = [*getattr(cls, "__match_args__", ())[: len(pattern.patterns)], *pattern.kwd_attrs]
    wanted = [*pattern.patterns, *pattern.kwd_patterns]
    if not pattern.patterns or len(names) == len(wanted):
        pairs = [(p, objects.attribute(Site(frame, pattern), subject, n)) for n, p in zip(names, wanted)]
        return _matches_all(frame, pattern, pairs)
    what = f"a positional pattern of `{cls.__name__}`"
    raise frame.error(UnsupportedSyntax(what, "name the attributes"), pattern)


def _match_mapping(frame: Frame, pattern: ast.MatchMapping, subject: Any) -> Truth:
    keys = [evaluate(frame, k) for k in pattern.keys] if isinstance(subject, dict) else []
    if not isinstance(subject, dict) or any(k not in subject for k in keys):
        return False
    if pattern.rest is not None:
        rest = {k: v for k, v in subject.items() if k not in keys}
        frame.tracer.assign(frame.control, CAPTURE + pattern.rest, frame.tracer.journal.born(rest))
    return _matches_all(frame, pattern, zip(pattern.patterns, [subject[k] for k in keys]))


_PATTERNS: dict[type[ast.pattern], Callable[..., Truth]] = {
    ast.MatchValue: _match_value,
    ast.MatchSingleton: lambda frame, pattern, subject: subject is pattern.value,
    ast.MatchAs: _match_name,
    ast.MatchOr: _match_either,
    ast.MatchSequence: _match_sequence,
    ast.MatchStar: _match_name,
    ast.MatchClass: _match_class,
    ast.MatchMapping: _match_mapping,
}


# Kind of node -> its function. `calls` and `loop_statements` enter theirs, since those need this module.
RUNNERS: dict[type[ast.stmt], Callable[..., None]] = {
    ast.Expr: lambda frame, node: None if isinstance(node.value, ast.Constant) else evaluate(frame, node.value),
    **dict.fromkeys((ast.Pass, ast.Nonlocal), lambda frame, node: None),
    ast.Assign: trace_assign,
    ast.AnnAssign: trace_annotated,
    ast.AugAssign: trace_augmented,
    ast.Delete: trace_delete,
    ast.Assert: trace_assert,
    ast.Return: trace_return,
    ast.Break: lambda frame, node: frame.exit(frame.loops[-1].broken),
    ast.Continue: lambda frame, node: frame.exit(frame.loops[-1].continued),
    ast.If: trace_if,
    ast.Match: trace_match,
}
