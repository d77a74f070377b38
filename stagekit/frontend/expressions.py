"""Expressions: which function evaluates which kind of node."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from stagekit.frontend import objects
from stagekit.frontend.assignments import assign, binding_scope
from stagekit.frontend.calls import make_closure
from stagekit.frontend.captures import read_free
from stagekit.frontend.conditions import condition, trace_bool, trace_compare, trace_conditional
from stagekit.frontend.control import describe
from stagekit.frontend.errors import BadCall, UnboundLocal, UnknownName
from stagekit.frontend.evaluation import EVALUATORS, Site, evaluate
from stagekit.frontend.iteration import each, items_of, iterator, source_of, thunks_of
from stagekit.frontend.journal import MISSING
from stagekit.frontend.operators import trace_binary, trace_unary
from stagekit.frontend.source import names_of
from stagekit.frontend.texts import trace_joined
from stagekit.frontend.tracer import Frame, Thunk, suggest
from stagekit.frontend.values import Generator, Number, Scope, holds_run_time


def trace_lambda(frame: Frame, node: ast.Lambda) -> Any:
    return make_closure(frame, node)


def trace_call(frame: Frame, node: ast.Call) -> Any:
    fn = evaluate(frame, node.func)
    args = elements(frame, node.args)
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = evaluate(frame, keyword.value)
        _add_keywords(frame, node, kwargs, {keyword.arg: value} if keyword.arg else value)
    site = Site(frame, node)
    frame.at(node)
    return frame.read(site.invoke(fn, args, kwargs), node)


def _add_keywords(frame: Frame, node: ast.Call, kwargs: dict[str, Any], more: Any) -> None:
    """Keywords, or what follows `**`: each name once, as Python has it."""
    if not isinstance(more, Mapping):
        problem = f"`{ast.unparse(node.func)}`: after ** stands {describe(more)}"
        raise frame.error(BadCall(problem, "give it a dict"), node)
    for key in more:
        if not isinstance(key, str) or key in kwargs:
            problem = f"got `{key}` twice" if key in kwargs else "keywords must be strings"
            raise frame.error(BadCall(f"`{ast.unparse(node.func)}`: {problem}", "give each keyword once"), node)
    kwargs.update(more)


def trace_walrus(frame: Frame, node: ast.NamedExpr) -> Any:
    value = evaluate(frame, node.value)
    scope = binding_scope(frame, node.target.id)
    frame.tracer.assign(scope.variables, node.target.id, value)
    return value


# -- names -------------------------------------------------------------------------------------------------------------


def trace_constant(frame: Frame, node: ast.Constant) -> Any:
    return node.value


def trace_name(frame: Frame, node: ast.Name) -> Any:
    name = node.id
    scope = frame.scope if name in frame.scope.names.local else frame.scope.owner_of(name)
    value = _free(frame, node) if scope is None else scope.variables.get(name, MISSING)
    if value is MISSING:
        raise frame.error(UnboundLocal(name), node)
    return value if type(value) is Number else frame.read(value, node)


def _free(frame: Frame, node: ast.Name) -> Any:
    """A name from outside the traced code: noted as a capture."""
    function, name = frame.function, node.id
    try:
        value = read_free(function, name)
    except NameError:
        known = [*frame.scope.names.local, *(function.__globals__ if function else ())]
        raise frame.error(UnknownName(name, suggest(name, known)), node) from None
    except ValueError:  # an empty cell
        raise frame.error(UnboundLocal(name), node) from None
    frame.tracer.captures.note_variable(function, name)
    return value


# -- attributes and items ------------------------------------------------------------------------------------------------


def trace_attribute(frame: Frame, node: ast.Attribute) -> Any:
    site = Site(frame, node)
    return frame.read(objects.attribute(site, evaluate(frame, node.value), node.attr), node)


def trace_subscript(frame: Frame, node: ast.Subscript) -> Any:
    owner = evaluate(frame, node.value)
    index = evaluate(frame, node.slice)
    site = Site(frame, node)
    frame.at(node)
    return frame.read(objects.item(site, owner, index), node)


def trace_slice(frame: Frame, node: ast.Slice) -> Any:
    parts = [evaluate(frame, p) if p is not None else None for p in (node.lower, node.upper, node.step)]
    return slice(*parts)


# -- displays ----------------------------------------------------------------------------------------------------------


def trace_tuple(frame: Frame, node: ast.Tuple) -> Any:
    return tuple(elements(frame, node.elts))


def trace_list(frame: Frame, node: ast.List) -> Any:
    return frame.tracer.journal.born(elements(frame, node.elts))


def trace_set(frame: Frame, node: ast.Set) -> Any:
    return frame.tracer.journal.born(set_of(Site(frame, node), elements(frame, node.elts)))


def trace_dict(frame: Frame, node: ast.Dict) -> Any:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values):
        if key is None:
            made.update(evaluate(frame, value))
        else:
            known = key_of(frame, key)  # before the value, unlike in an assignment
            made[known] = evaluate(frame, value)
    return frame.tracer.journal.born(made)


def elements(frame: Frame, nodes: Sequence[ast.expr]) -> list[Any]:
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            found.extend(items_of(Site(frame, node), evaluate(frame, node.value)))
        else:
            found.append(evaluate(frame, node))
    return found


def set_of(site: Site, elements: list[Any]) -> Any:
    """A set: which elements are equal must be known."""
    for element in elements:
        if holds_run_time(element):
            raise site.needs_static("an element of a set", element)
    return site.static(set, elements)


def key_of(frame: Frame, node: ast.expr) -> Any:
    key = evaluate(frame, node)
    if holds_run_time(key):
        raise Site(frame, node).needs_static("a dict key", key)
    Site(frame, node).static(hash, key)
    return key


# -- comprehensions ----------------------------------------------------------------------------------------------------


Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def trace_comprehension(frame: Frame, node: ast.ListComp | ast.SetComp | ast.DictComp) -> Any:
    """Comprehensions run at compile time, over compile-time items; their variables are their own."""
    found = [thunk() for thunk in _items(frame, node)()]
    if isinstance(node, ast.DictComp):
        return frame.tracer.journal.born(dict(found))
    return frame.tracer.journal.born(set_of(Site(frame, node), found) if isinstance(node, ast.SetComp) else found)


def trace_generator_expression(frame: Frame, node: ast.GeneratorExp) -> Generator:
    return iterator(frame.tracer, _items(frame, node))


def _items(frame: Frame, node: Comprehension) -> Callable[[], Iterator[Thunk]]:
    """What gives the items of a comprehension. The first iterable is evaluated now, as Python has it."""
    outer, first = frame.scope, node.generators[0].iter
    source = source_of(Site(frame, first), evaluate(frame, first))

    def make() -> Iterator[Thunk]:
        scope = Scope(_comprehension_names(node), frame.tracer.journal.born({}), outer)
        return _level(frame, node, scope, 0, each(source()))

    return make


def _level(frame: Frame, node: Comprehension, scope: Scope, depth: int, outer: Iterator[Thunk]) -> Iterator[Thunk]:
    """One `for` of a comprehension, and those inside it."""
    generator, is_last = node.generators[depth], depth + 1 == len(node.generators)
    for thunk in outer:
        with _inside(frame, scope):
            assign(frame, generator.target, thunk())
            frame.tracer.count_unrolled(frame.loc(node))
            is_kept = all(_static_condition(frame, test) for test in generator.ifs)
            inner = None if is_last or not is_kept else _next_iterable(frame, node, depth)
        if inner is not None:
            yield from _level(frame, node, scope, depth + 1, inner)
        elif is_kept:
            yield lambda: _comprehended(frame, node, scope)


def _next_iterable(frame: Frame, node: Comprehension, depth: int) -> Iterator[Thunk]:
    inner = node.generators[depth + 1].iter
    return thunks_of(Site(frame, inner), evaluate(frame, inner))


@contextmanager
def _inside(frame: Frame, scope: Scope) -> Iterator[None]:
    """Names mean those of the comprehension. Only while it runs: between two items the code that asks for them does."""
    around, frame.scope = frame.scope, scope
    try:
        yield
    finally:
        frame.scope = around


def _comprehension_names(node: Comprehension) -> Any:
    targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    names = names_of(node)
    return type(names)(frozenset(targets), names.nonlocal_)


def _comprehended(frame: Frame, node: Any, scope: Scope) -> Any:
    with _inside(frame, scope):
        if isinstance(node, ast.DictComp):
            return key_of(frame, node.key), evaluate(frame, node.value)
        return evaluate(frame, node.elt)


def _static_condition(frame: Frame, node: ast.expr) -> bool:
    outcome = condition(frame, node)
    if not isinstance(outcome, bool):
        raise Site(frame, node).needs_static("the condition of a comprehension", outcome)
    return outcome


EVALUATORS.update(
    {
        ast.Constant: trace_constant,
        ast.Name: trace_name,
        ast.Tuple: trace_tuple,
        ast.List: trace_list,
        ast.Set: trace_set,
        ast.Dict: trace_dict,
        ast.BinOp: trace_binary,
        ast.UnaryOp: trace_unary,
        ast.Compare: trace_compare,
        ast.BoolOp: trace_bool,
        ast.IfExp: trace_conditional,
        ast.Attribute: trace_attribute,
        ast.Subscript: trace_subscript,
        ast.Slice: trace_slice,
        ast.Call: trace_call,
        ast.Lambda: trace_lambda,
        ast.ListComp: trace_comprehension,
        ast.SetComp: trace_comprehension,
        ast.DictComp: trace_comprehension,
        ast.GeneratorExp: trace_generator_expression,
        ast.NamedExpr: trace_walrus,
        ast.JoinedStr: trace_joined,
    }
)
