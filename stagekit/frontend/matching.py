"""`match` patterns: each is a condition, compile-time where it can be.

Names are bound where the whole pattern holds. Until then what they capture is kept among the frame's control values, whose joins
do not mind that a part of the pattern was never reached.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from stagekit.frontend import objects
from stagekit.frontend.assignments import binding_scope
from stagekit.frontend.comparisons import compare
from stagekit.frontend.conditions import both, choose, condition, first_or, truth
from stagekit.frontend.errors import UnsupportedSyntax
from stagekit.frontend.evaluation import Site, evaluate
from stagekit.frontend.frame import CAPTURE, Frame
from stagekit.frontend.journal import MISSING
from stagekit.frontend.statements import RUNNERS, run_body
from stagekit.frontend.values import STAND_INS, Number

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


def _singleton(frame: Frame, pattern: ast.MatchSingleton, subject: Any) -> Outcome:
    return subject is pattern.value


def _as(frame: Frame, pattern: ast.MatchAs, subject: Any) -> Outcome:
    matched: Outcome = True if pattern.pattern is None else matches(frame, pattern.pattern, subject)
    if matched is not False:
        _capture(frame, pattern.name, subject)
    return matched


def _or(frame: Frame, pattern: ast.MatchOr, subject: Any) -> Outcome:
    def rest(patterns: list[ast.pattern]) -> Outcome:
        found = matches(frame, patterns[0], subject)
        return (
            first_or(frame.tracer, found, lambda: rest(patterns[1:]), frame.loc(patterns[0])) if patterns[1:] else found
        )

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


def _star(frame: Frame, pattern: ast.MatchStar, subject: Any) -> Outcome:
    _capture(frame, pattern.name, subject)
    return True


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
    ast.MatchSingleton: _singleton,
    ast.MatchAs: _as,
    ast.MatchOr: _or,
    ast.MatchSequence: _sequence,
    ast.MatchStar: _star,
    ast.MatchClass: _class,
    ast.MatchMapping: _mapping,
}
RUNNERS[ast.Match] = trace_match
