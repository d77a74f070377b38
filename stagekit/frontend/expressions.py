"""Expressions: which function evaluates which kind of node."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from stagekit.frontend.assignments import binding_scope
from stagekit.frontend.calls import call, make_closure
from stagekit.frontend.comparisons import trace_compare
from stagekit.frontend.comprehensions import trace_comprehension, trace_generator_expression
from stagekit.frontend.conditions import trace_bool, trace_conditional
from stagekit.frontend.control import describe
from stagekit.frontend.displays import elements, trace_dict, trace_list, trace_set, trace_tuple
from stagekit.frontend.errors import BadCall
from stagekit.frontend.evaluation import EVALUATORS, Site, evaluate
from stagekit.frontend.frame import Frame
from stagekit.frontend.items import trace_attribute, trace_slice, trace_subscript
from stagekit.frontend.names import trace_constant, trace_name
from stagekit.frontend.operators import trace_binary, trace_unary
from stagekit.frontend.texts import trace_joined


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
    site.at()
    return site.read(call(site, fn, args, kwargs))


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
