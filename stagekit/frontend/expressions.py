"""Expressions: names, attributes, calls, displays and comprehensions; and the table of the functions that evaluate each node."""

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
from stagekit.frontend.errors import BadCall, UnboundLocal, UnknownName
from stagekit.frontend.evaluation import EVALUATORS, Site, evaluate
from stagekit.frontend.iteration import each, items_of, iterator, source_of, thunks_of
from stagekit.frontend.journal import MISSING
from stagekit.frontend.operators import trace_binary, trace_unary
from stagekit.frontend.parts import describe
from stagekit.frontend.source import Names, names_of
from stagekit.frontend.state import ATOMIC_TYPES
from stagekit.frontend.texts import trace_joined
from stagekit.frontend.tracer import Frame, Thunk, suggest
from stagekit.frontend.values import Number, Scope, holds_run_time


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
    """Add a keyword, or the mapping that follows `**`. As in Python, each name may be given once."""
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


def trace_name(frame: Frame, node: ast.Name) -> Any:
    name = node.id
    scope = frame.scope if name in frame.scope.names.local else frame.scope.owner_of(name)
    value = _free(frame, node) if scope is None else scope.variables.get(name, MISSING)
    if value is MISSING:
        raise frame.error(UnboundLocal(name), node)
    return value if type(value) in _READ_AS_THEY_ARE else frame.read(value, node)


_READ_AS_THEY_ARE = frozenset({Number, *ATOMIC_TYPES})


def _free(frame: Frame, node: ast.Name) -> Any:
    """Read a name from outside the traced code, and note it as a capture."""
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


# -- displays ----------------------------------------------------------------------------------------------------------


def trace_dict(frame: Frame, node: ast.Dict) -> Any:
    items: dict[Any, Any] = {}
    for key_node, value in zip(node.keys, node.values):
        if key_node is None:
            items.update(evaluate(frame, value))
        else:
            key = key_of(frame, key_node)  # before the value, unlike in an assignment
            items[key] = evaluate(frame, value)
    return frame.tracer.journal.born(items)


def elements(frame: Frame, nodes: Sequence[ast.expr]) -> list[Any]:
    """Evaluate expressions in order; a starred one gives its items."""
    values: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            values.extend(items_of(Site(frame, node), evaluate(frame, node.value)))
        else:
            values.append(evaluate(frame, node))
    return values


def set_of(site: Site, elements: list[Any]) -> Any:
    """Make a set, whose elements must be known, since equal ones are one."""
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
    """Run a comprehension at compile time, over compile-time items."""
    found = [thunk() for thunk in _items(frame, node)()]
    if isinstance(node, ast.DictComp):
        return frame.tracer.journal.born(dict(found))
    return frame.tracer.journal.born(set_of(Site(frame, node), found) if isinstance(node, ast.SetComp) else found)


def _items(frame: Frame, node: Comprehension) -> Callable[[], Iterator[Thunk]]:
    """Return a function that makes an iterator over a comprehension. As in Python, the first iterable is evaluated now."""
    outer, first = frame.scope, node.generators[0].iter
    source = source_of(Site(frame, first), evaluate(frame, first))

    def make() -> Iterator[Thunk]:
        targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        names = Names(frozenset(targets), names_of(node).nonlocal_)
        scope = Scope(names, frame.tracer.journal.born({}), outer)
        return _level(frame, node, scope, 0, each(source()))

    return make


def _level(frame: Frame, node: Comprehension, scope: Scope, depth: int, outer: Iterator[Thunk]) -> Iterator[Thunk]:
    """Yield a thunk for each item that one `for` of a comprehension gives, with those inside it."""
    generator, is_last = node.generators[depth], depth + 1 == len(node.generators)
    for thunk in outer:
        with _inside(frame, scope):
            assign(frame, generator.target, thunk())
            frame.tracer.count_unrolled(frame.loc(node))
            if not all(_static_condition(frame, test) for test in generator.ifs):
                continue
            if not is_last:
                iterable = node.generators[depth + 1].iter
                inner = thunks_of(Site(frame, iterable), evaluate(frame, iterable))
        if is_last:
            yield lambda: _comprehended(frame, node, scope)
        else:
            yield from _level(frame, node, scope, depth + 1, inner)


@contextmanager
def _inside(frame: Frame, scope: Scope) -> Iterator[None]:
    """Let names be looked up in the comprehension while its own code runs; between two items, other code runs."""
    around, frame.scope = frame.scope, scope
    try:
        yield
    finally:
        frame.scope = around


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
        ast.Constant: lambda frame, node: node.value,
        ast.Name: trace_name,
        ast.Tuple: lambda frame, node: tuple(elements(frame, node.elts)),
        ast.List: lambda frame, node: frame.tracer.journal.born(elements(frame, node.elts)),
        ast.Set: lambda frame, node: frame.tracer.journal.born(set_of(Site(frame, node), elements(frame, node.elts))),
        ast.Dict: trace_dict,
        ast.BinOp: trace_binary,
        ast.UnaryOp: trace_unary,
        ast.Compare: trace_compare,
        ast.BoolOp: trace_bool,
        ast.IfExp: trace_conditional,
        ast.Attribute: trace_attribute,
        ast.Subscript: trace_subscript,
        ast.Slice: lambda frame, node: slice(*[p and evaluate(frame, p) for p in (node.lower, node.upper, node.step)]),
        ast.Call: trace_call,
        ast.Lambda: make_closure,
        ast.ListComp: trace_comprehension,
        ast.SetComp: trace_comprehension,
        ast.DictComp: trace_comprehension,
        ast.GeneratorExp: lambda frame, node: iterator(frame.tracer, _items(frame, node)),
        ast.NamedExpr: trace_walrus,
        ast.JoinedStr: trace_joined,
    }
)
