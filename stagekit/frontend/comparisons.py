"""Comparisons: `a < b < c`, `is`, `in`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from typing import Any

from stagekit import dtypes
from stagekit.frontend import arrays, rangeloop
from stagekit.frontend.conditions import both, either, negate_condition, truth
from stagekit.frontend.control import describe
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import evaluate, invoke, static
from stagekit.frontend.frame import Frame
from stagekit.frontend.iteration import forget_position, items_of
from stagekit.frontend.methods import first_answer, user_method
from stagekit.frontend.numbers import COMPARISONS, default_dtype, is_literal, is_numeric
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import STAND_INS, Address, Array, Number, StagedRange, holds_run_time


def trace_compare(tracer: Tracer, frame: Frame, node: ast.Compare) -> Any:
    """`a < b < c`: every operand once, later ones only if the links before hold."""
    left = evaluate(tracer, frame, node.left)
    return _chain(tracer, frame, node, left, list(zip(node.ops, node.comparators)))


def _chain(tracer: Tracer, frame: Frame, node: ast.Compare, left: Any, links: list[tuple[ast.cmpop, ast.expr]]) -> Any:
    (op, right_node), rest = links[0], links[1:]
    right = evaluate(tracer, frame, right_node)
    first = compare(tracer, frame, node, op, left, right)
    if not rest:
        return first
    holds = truth(tracer, frame, node, first)
    return both(
        tracer, frame, holds, lambda: truth(tracer, frame, node, _chain(tracer, frame, node, right, rest)), node
    )


def compare(tracer: Tracer, frame: Frame, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> Any:
    """One link of a comparison."""
    if isinstance(op, ast.Is | ast.IsNot):
        is_same = left is right if not is_literal(left) else (type(left) is type(right) and left == right)
        return is_same is isinstance(op, ast.Is)
    if isinstance(op, ast.In | ast.NotIn):
        found = contains(tracer, frame, node, left, right)
        return negate_condition(tracer, found) if isinstance(op, ast.NotIn) else found
    _, _, python = COMPARISONS[type(op)]
    loc = tracer.at(frame, node)
    if is_numeric(left) and is_numeric(right) and not (is_literal(left) and is_literal(right)):
        return tracer.arithmetic.compare(type(op), left, right, loc)
    answer = _by_comparison_method(tracer, frame, node, type(op), left, right)
    if answer is not NotImplemented:
        return answer
    if isinstance(left, STAND_INS) or isinstance(right, STAND_INS):
        return _compare_stand_ins(tracer, frame, node, op, left, right)
    if holds_run_time(left) or holds_run_time(right):
        from stagekit.frontend.contents import compare_contents  # whose items are compared here

        return compare_contents(tracer, frame, node, op, left, right)
    return static(tracer, frame, node, python, left, right)


def _compare_stand_ins(tracer: Tracer, frame: Frame, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> Any:
    """A run-time value against something that is not a number: equality is False, as in Python; order is refused."""
    is_pointer = isinstance(left, Address) or isinstance(right, Address)
    if is_pointer and isinstance(left, Address | Array) and isinstance(right, Address | Array):
        loc = frame.loc(node)
        distance = arrays.distance(tracer, arrays.base_of(left, loc), arrays.base_of(right, loc), loc)
        return tracer.arithmetic.compare(type(op), distance, 0, loc)
    if isinstance(op, ast.Eq | ast.NotEq) and not isinstance(left, Array) and not isinstance(right, Array):
        return isinstance(op, ast.NotEq)
    symbol = COMPARISONS[type(op)][0]
    hint = "compare elements, or addresses: `A.ptr == B.ptr`" if isinstance(left, Array) else ""
    raise tracer.error(BadOperands(symbol, f"{describe(left)} and {describe(right)}", hint), frame, node)


_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _by_comparison_method(
    tracer: Tracer, frame: Frame, node: ast.AST, op: type[ast.cmpop], left: Any, right: Any
) -> Any:
    """The answer of a user's class: `left.__lt__(right)`, else `right.__gt__(left)`; the other way where right's derives."""
    is_derived = type(right) is not type(left) and isinstance(right, type(left))

    def ask(name: str) -> Any:
        plain, mirrored = (left, right, f"__{name}__"), (right, left, f"__{_MIRRORED[name]}__")
        return first_answer(tracer, frame, node, *((mirrored, plain) if is_derived else (plain, mirrored)))

    answer = ask(COMPARISONS[op][1].value)
    if answer is NotImplemented and op is ast.NotEq:  # a class without `__ne__` is unequal where it is not equal
        equal = ask("eq")
        return equal if equal is NotImplemented else negate_condition(tracer, truth(tracer, frame, node, equal))
    return answer


def contains(tracer: Tracer, frame: Frame, node: ast.AST, item: Any, container: Any) -> bool | Number:
    """`item in container` for a compile-time container; a run-time item is compared with each element."""
    method = user_method(tracer, container, "__contains__")
    if method is not None:
        return truth(tracer, frame, node, invoke(tracer, frame, node, method, [container, item]))
    if not holds_run_time(item) and not holds_run_time(container) and not isinstance(container, Iterator):
        return bool(static(tracer, frame, node, operator.contains, container, item))
    if isinstance(container, StagedRange) and is_numeric(item) and not default_dtype(item).is_float:
        return rangeloop.holds(tracer, container, item, frame.loc(node))
    if isinstance(container, range) and is_numeric(item):
        return _in_range(tracer, frame, node, item, container)
    found: bool | Number = False
    for element in items_of(tracer, frame, node, container):
        is_same = element is item
        equal = is_same or truth(tracer, frame, node, compare(tracer, frame, node, ast.Eq(), item, element))
        found = either(tracer, found, equal)
    if isinstance(found, Number):
        forget_position(tracer, container)
    return found


def _in_range(tracer: Tracer, frame: Frame, node: ast.AST, item: Any, numbers: range) -> bool | Number:
    """Between the ends and on a step, without a comparison per number."""
    if not numbers:
        return False
    first, last, step = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]), abs(numbers.step)
    loc = tracer.at(frame, node)
    low, high = (tracer.arithmetic.compare(op, item, end, loc) for op, end in ((ast.GtE, first), (ast.LtE, last)))
    if default_dtype(item).is_float:
        distance = tracer.arithmetic.binary("-", item, first, loc)
    else:  # as uint64, which holds the distance of any two integers
        wide = tracer.arithmetic.convert(tracer.arithmetic.convert(item, dtypes.INDEX), dtypes.uint64)
        distance = tracer.arithmetic.binary("-", wide, first % 2**64, loc)
    past = tracer.arithmetic.binary("%", distance, step, loc)
    on_step = tracer.arithmetic.compare(ast.Eq, past, 0, loc)
    return Number(tracer.builder.and_(tracer.builder.and_(low.value, high.value), on_step.value))
