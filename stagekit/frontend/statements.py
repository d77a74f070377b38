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
from stagekit.frontend import objects
from stagekit.frontend.assignments import binding_scope, trace_annotated, trace_assign, trace_augmented, trace_delete
from stagekit.frontend.comparisons import compare
from stagekit.frontend.conditions import both, choose, condition, first_or, truth
from stagekit.frontend.control import branch
from stagekit.frontend.errors import StagingError, UnsupportedSyntax
from stagekit.frontend.evaluation import Site, evaluate, failure, is_of_the_user
from stagekit.frontend.journal import MISSING, Location
from stagekit.frontend.source import children
from stagekit.frontend.state import TooLarge
from stagekit.frontend.texts import message
from stagekit.frontend.tracer import CAPTURE, RETURN, VALUE, Frame
from stagekit.frontend.values import STAND_INS, Number, Partial, escaped

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


def trace_if(frame: Frame, node: ast.If) -> None:
    choose(
        frame.tracer,
        condition(frame, node.test),
        lambda: run_body(frame, node.body),
        lambda: run_body(frame, node.orelse),
        frame.loc(node.test),
        frame,
    )


# -- `match` ---------------------------------------------------------------------------------------------------------------
#
# Each pattern is a condition, compile-time where it can be. Names are bound where the whole pattern holds. Until then what they
# capture is kept among the frame's control values, whose joins do not mind that a part of the pattern was never reached.

Outcome = bool | Number


def _bind(frame: Frame, pattern: ast.pattern) -> None:
    """Assign what the pattern captured. Call it where the pattern holds."""
    for name in _names(pattern):
        variables = binding_scope(frame, name).variables
        frame.tracer.assign(variables, name, frame.control[CAPTURE + name])


def _names(pattern: ast.pattern) -> list[str]:
    """The names that a pattern captures, in order."""
    nodes = list(ast.walk(pattern))
    plain = [n.name for n in nodes if isinstance(n, ast.MatchAs | ast.MatchStar) and n.name]
    return list(dict.fromkeys([*plain, *(n.rest for n in nodes if isinstance(n, ast.MatchMapping) and n.rest)]))


def trace_match(frame: Frame, node: ast.Match) -> None:
    subject = evaluate(frame, node.subject)

    def attempt(cases: Sequence[ast.match_case]) -> None:
        if not cases:
            return
        case = cases[0]

        def guard() -> bool | Number:
            _bind(frame, case.pattern)
            return condition(frame, case.guard) if case.guard else True

        def take() -> None:
            _bind(frame, case.pattern)
            run_body(frame, case.body)

        for name in _names(case.pattern):
            if CAPTURE + name in frame.control:
                frame.tracer.assign(frame.control, CAPTURE + name, MISSING)
        matched = matches(frame, case.pattern, subject)
        if case.guard is not None:
            matched = both(frame.tracer, matched, guard, frame.loc(node))
        choose(frame.tracer, matched, take, lambda: attempt(cases[1:]), frame.loc(case.pattern), frame)

    attempt(node.cases)


def _capture(frame: Frame, name: str | None, value: Any) -> None:
    if name is not None:
        frame.tracer.assign(frame.control, CAPTURE + name, value)


def matches(frame: Frame, pattern: ast.pattern, subject: Any) -> Outcome:
    """Does `subject` match this pattern or part of one?"""
    return _MATCH[type(pattern)](frame, pattern, subject)


def _value(frame: Frame, pattern: ast.MatchValue, subject: Any) -> Outcome:
    wanted = evaluate(frame, pattern.value)
    equal = compare(Site(frame, pattern), ast.Eq(), subject, wanted)
    return truth(Site(frame, pattern), equal)


def _as(frame: Frame, pattern: ast.MatchAs | ast.MatchStar, subject: Any) -> Outcome:
    inner = pattern.pattern if isinstance(pattern, ast.MatchAs) else None
    matched: Outcome = True if inner is None else matches(frame, inner, subject)
    if matched is not False:
        _capture(frame, pattern.name, subject)
    return matched


def _or(frame: Frame, pattern: ast.MatchOr, subject: Any) -> Outcome:
    def rest(patterns: list[ast.pattern]) -> Outcome:
        first, *others = patterns
        found = matches(frame, first, subject)
        return first_or(frame.tracer, found, lambda: rest(others), frame.loc(first)) if others else found

    return rest(pattern.patterns)


def _all(frame: Frame, pattern: ast.AST, tests: list[Callable[[], Outcome]]) -> Outcome:
    matched: Outcome = True
    for test in tests:
        matched = both(frame.tracer, matched, test, frame.loc(pattern))
    return matched


def _sequence(frame: Frame, pattern: ast.MatchSequence, subject: Any) -> Outcome:
    if not isinstance(subject, tuple | list):
        return False
    starred = [i for i, p in enumerate(pattern.patterns) if isinstance(p, ast.MatchStar)]
    fixed = len(pattern.patterns) - len(starred)
    if len(subject) < fixed or (not starred and len(subject) != fixed):
        return False
    items: list[Any] = list(subject)
    if starred:
        at, after = starred[0], fixed - starred[0]
        items = [*items[:at], frame.tracer.journal.born(items[at : len(items) - after]), *items[len(items) - after :]]
    pairs = zip(pattern.patterns, items, strict=True)
    return _all(frame, pattern, [lambda p=p, s=s: matches(frame, p, s) for p, s in pairs])  # type: ignore[misc]


def _class(frame: Frame, pattern: ast.MatchClass, subject: Any) -> Outcome:
    cls = evaluate(frame, pattern.cls)
    if isinstance(subject, STAND_INS) or not isinstance(subject, cls):
        return False
    names = [*getattr(cls, "__match_args__", ())[: len(pattern.patterns)], *pattern.kwd_attrs]
    wanted = [*pattern.patterns, *pattern.kwd_patterns]
    if not pattern.patterns or len(names) == len(wanted):
        pairs = [(p, objects.attribute(Site(frame, pattern), subject, n)) for n, p in zip(names, wanted)]
        return _all(frame, pattern, [lambda p=p, s=s: matches(frame, p, s) for p, s in pairs])  # type: ignore[misc]
    what = f"a positional pattern of `{cls.__name__}`"
    raise frame.error(UnsupportedSyntax(what, "name the attributes"), pattern)


def _mapping(frame: Frame, pattern: ast.MatchMapping, subject: Any) -> Outcome:
    if not isinstance(subject, dict):
        return False
    keys = [evaluate(frame, k) for k in pattern.keys]
    if any(k not in subject for k in keys):
        return False
    if pattern.rest is not None:
        rest = {k: v for k, v in subject.items() if k not in keys}
        _capture(frame, pattern.rest, frame.tracer.journal.born(rest))
    pairs = zip(pattern.patterns, keys)
    return _all(frame, pattern, [lambda p=p, k=k: matches(frame, p, subject[k]) for p, k in pairs])  # type: ignore[misc]


_MATCH: dict[type[ast.pattern], Callable[..., Outcome]] = {
    ast.MatchValue: _value,
    ast.MatchSingleton: lambda frame, pattern, subject: subject is pattern.value,
    ast.MatchAs: _as,
    ast.MatchOr: _or,
    ast.MatchSequence: _sequence,
    ast.MatchStar: _as,
    ast.MatchClass: _class,
    ast.MatchMapping: _mapping,
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
