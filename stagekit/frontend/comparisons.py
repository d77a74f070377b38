"""Comparisons: `a < b < c`, `is`, `in`; of containers item by item."""

from __future__ import annotations

import ast
import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

from stagekit import dtypes
from stagekit.frontend import arrays, rangeloop
from stagekit.frontend.conditions import both, either, negate_condition, truth
from stagekit.frontend.control import branch, describe
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import Site, evaluate, first_answer, user_method
from stagekit.frontend.iteration import forget_position, items_of
from stagekit.frontend.numbers import COMPARISONS, default_dtype, is_literal, is_numeric
from stagekit.frontend.tracer import Frame
from stagekit.frontend.values import STAND_INS, Address, Array, Number, StagedRange, holds_run_time


def trace_compare(frame: Frame, node: ast.Compare) -> Any:
    """`a < b < c`: every operand once, later ones only if the links before hold."""
    left = evaluate(frame, node.left)
    return _chain(frame, node, left, list(zip(node.ops, node.comparators)))


def _chain(frame: Frame, node: ast.Compare, left: Any, links: list[tuple[ast.cmpop, ast.expr]]) -> Any:
    (op, right_node), rest = links[0], links[1:]
    right = evaluate(frame, right_node)
    site = Site(frame, node)
    first = compare(site, op, left, right)
    if not rest:
        return first
    holds = truth(site, first)
    return both(frame.tracer, holds, lambda: truth(site, _chain(frame, node, right, rest)), site.loc)


def compare(site: Site, op: ast.cmpop, left: Any, right: Any) -> Any:
    """One link of a comparison."""
    if isinstance(op, ast.Is | ast.IsNot):
        is_same = left is right if not is_literal(left) else (type(left) is type(right) and left == right)
        return is_same is isinstance(op, ast.Is)
    if isinstance(op, ast.In | ast.NotIn):
        found = contains(site, left, right)
        return negate_condition(site.tracer, found) if isinstance(op, ast.NotIn) else found
    _, _, python = COMPARISONS[type(op)]
    site.at()
    if is_numeric(left) and is_numeric(right) and not (is_literal(left) and is_literal(right)):
        return site.tracer.arithmetic.compare(type(op), left, right)
    answer = _by_comparison_method(site, type(op), left, right)
    if answer is not NotImplemented:
        return answer
    if isinstance(left, STAND_INS) or isinstance(right, STAND_INS):
        return _compare_stand_ins(site, op, left, right)
    if holds_run_time(left) or holds_run_time(right):
        from stagekit.frontend.comparisons import compare_contents  # whose items are compared here

        return compare_contents(site, op, left, right)
    return site.static(python, left, right)


def _compare_stand_ins(site: Site, op: ast.cmpop, left: Any, right: Any) -> Any:
    """A run-time value against something that is not a number: equality is False, as in Python; order is refused."""
    is_pointer = isinstance(left, Address) or isinstance(right, Address)
    if is_pointer and isinstance(left, Address | Array) and isinstance(right, Address | Array):
        distance = arrays.distance(site, arrays.base_of(site, left), arrays.base_of(site, right))
        return site.tracer.arithmetic.compare(type(op), distance, 0)
    if isinstance(op, ast.Eq | ast.NotEq) and not isinstance(left, Array) and not isinstance(right, Array):
        return isinstance(op, ast.NotEq)
    symbol = COMPARISONS[type(op)][0]
    hint = "compare elements, or addresses: `A.ptr == B.ptr`" if isinstance(left, Array) else ""
    raise site.error(BadOperands(symbol, f"{describe(left)} and {describe(right)}", hint))


_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _by_comparison_method(site: Site, op: type[ast.cmpop], left: Any, right: Any) -> Any:
    """The answer of a user's class: `left.__lt__(right)`, else `right.__gt__(left)`; the other way where right's derives."""
    is_derived = type(right) is not type(left) and isinstance(right, type(left))

    def ask(name: str) -> Any:
        plain, mirrored = (left, right, f"__{name}__"), (right, left, f"__{_MIRRORED[name]}__")
        return first_answer(site, *((mirrored, plain) if is_derived else (plain, mirrored)))

    answer = ask(COMPARISONS[op][1].value)
    if answer is NotImplemented and op is ast.NotEq:  # a class without `__ne__` is unequal where it is not equal
        equal = ask("eq")
        return equal if equal is NotImplemented else negate_condition(site.tracer, truth(site, equal))
    return answer


def contains(site: Site, item: Any, container: Any) -> bool | Number:
    """`item in container` for a compile-time container; a run-time item is compared with each element."""
    method = user_method(site.tracer, container, "__contains__")
    if method is not None:
        return truth(site, site.invoke(method, [container, item]))
    if not holds_run_time(item) and not holds_run_time(container) and not isinstance(container, Iterator):
        return bool(site.static(operator.contains, container, item))
    if isinstance(container, StagedRange) and is_numeric(item) and not default_dtype(item).is_float:
        return rangeloop.holds(site.tracer, container, item, site.loc)
    if isinstance(container, range) and is_numeric(item):
        return _in_range(site, item, container)
    found: bool | Number = False
    for element in items_of(site, container):
        is_same = element is item
        equal = is_same or truth(site, compare(site, ast.Eq(), item, element))
        found = either(site.tracer, found, equal)
    if isinstance(found, Number):
        forget_position(site.tracer, container)
    return found


def _in_range(site: Site, item: Any, numbers: range) -> bool | Number:
    """Between the ends and on a step, without a comparison per number."""
    if not numbers:
        return False
    first, last, step = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]), abs(numbers.step)
    site.at()
    low, high = (site.tracer.arithmetic.compare(op, item, end) for op, end in ((ast.GtE, first), (ast.LtE, last)))
    if default_dtype(item).is_float:
        distance = site.tracer.arithmetic.binary("-", item, first)
    else:  # as uint64, which holds the distance of any two integers
        wide = site.tracer.arithmetic.convert(site.tracer.arithmetic.convert(item, dtypes.INDEX), dtypes.uint64)
        distance = site.tracer.arithmetic.binary("-", wide, first % 2**64)
    past = site.tracer.arithmetic.binary("%", distance, step)
    on_step = site.tracer.arithmetic.compare(ast.Eq, past, 0)
    return Number(site.tracer.builder.and_(site.tracer.builder.and_(low.value, high.value), on_step.value))


# -- of values that hold run-time values -------------------------------------------------------------------------------


Outcome = bool | Number


def compare_contents(site: Site, op: ast.cmpop, left: Any, right: Any) -> Outcome:
    """`left op right` where one of the two holds run-time values."""
    is_alike = _kind(left) is not None and _kind(left) is _kind(right)
    if isinstance(op, ast.Eq | ast.NotEq):
        equal = left is right or (is_alike and _equal(site, left, right))
        return negate_condition(site.tracer, equal) if isinstance(op, ast.NotEq) else equal
    if not is_alike or not (_is_ordered(left) and _is_ordered(right)):
        symbol = COMPARISONS[type(op)][0]
        raise site.error(BadOperands(symbol, f"{describe(left)} and {describe(right)}", ""))
    return _ordered(site, op, _items(left), _items(right))


def _kind(value: Any) -> type | None:
    """Values of one kind compare by their items; None for what compares by identity."""
    builtin = next((kind for kind in (tuple, list, dict) if isinstance(value, kind)), None)
    params = getattr(type(value), "__dataclass_params__", None)
    return builtin or (type(value) if params is not None and params.eq else None)


def _is_ordered(value: Any) -> bool:
    params = getattr(type(value), "__dataclass_params__", None)
    return isinstance(value, tuple | list) or (params is not None and params.order)


def _items(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return list(value)
    return [getattr(value, f.name) for f in dataclasses.fields(value) if f.compare]


def _equal(site: Site, left: Any, right: Any) -> Outcome:
    if isinstance(left, dict):
        if left.keys() != right.keys():
            return False
        return _all_equal(site, list(left.values()), [right[key] for key in left])
    return _all_equal(site, _items(left), _items(right))


def _all_equal(site: Site, left: list[Any], right: list[Any]) -> Outcome:
    equal: Outcome = len(left) == len(right)
    for a, b in zip(left, right):
        equal = both(site.tracer, equal, lambda a=a, b=b: _same(site, a, b), site.loc)  # type: ignore[misc]
    return equal


def _same(site: Site, a: Any, b: Any) -> Outcome:
    return truth(site, compare(site, ast.Eq(), a, b))


def _ordered(site: Site, op: ast.cmpop, left: list[Any], right: list[Any]) -> Outcome:
    """The first items that differ decide; where there are none, the lengths do."""
    if not left or not right:
        return bool(COMPARISONS[type(op)][2](len(left), len(right)))
    same = _same(site, left[0], right[0])

    def here() -> Outcome:
        outcome = compare(site, op, left[0], right[0])
        return truth(site, outcome)

    def later() -> Outcome:
        return _ordered(site, op, left[1:], right[1:])

    if isinstance(same, bool):
        return later() if same else here()
    outcome: Outcome = branch(site.tracer, same.value, later, here, site.loc)
    return outcome
