"""Comparisons of containers and dataclasses that have run-time values in them: item by item, as Python compares them.

(a, b) < (c, d)    is    c if a != c decides, else what b < d says; later items are looked at only if they are reached
"""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from stagekit.frontend.comparisons import compare
from stagekit.frontend.conditions import both, negate_condition, truth
from stagekit.frontend.control import branch, describe
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import Site
from stagekit.frontend.numbers import COMPARISONS
from stagekit.frontend.values import Number

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
