"""Conditions: the truth of a value, `and`, `or`, `not`, `a if c else b`, and comparisons; of containers item by item."""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import Loc
from stagekit.frontend import arrays, rangeloop
from stagekit.frontend.complexes import KINDS as COMPLEX
from stagekit.frontend.complexes import operands
from stagekit.frontend.control import Join, branch, trace_arms
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import Site, by_element, evaluate, first_answer, user_method
from stagekit.frontend.iteration import forget_position, items_of
from stagekit.frontend.numbers import COMPARISONS, USUAL, default_dtype, is_literal, is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.tracer import Assigned, Frame, Thunk, Tracer
from stagekit.frontend.values import (
    STAND_INS,
    Address,
    Array,
    Number,
    StagedRange,
    hint_of,
    holds_run_time,
    is_dataclass_with,
)

Truth = bool | Number  # of a condition: known at compile time, or a run-time bool
Test = Callable[[], Truth]


def truth(site: Site, value: Any) -> Truth:
    """Return what `if value:` asks for."""
    if isinstance(value, Number):
        return value if value.dtype is dtypes.bool_ else Number(site.tracer.arithmetic.truth(value))
    if isinstance(value, STAND_INS):
        hint = "compare it, or test `is not None`"
        raise site.error(BadOperands("bool()", describe(value), hint))
    for name in ("__bool__", "__len__"):
        method = user_method(site.tracer, value, name)
        if method is not None:
            return truth(site, site.invoke(method, [value]))
    if hint := hint_of(value):
        raise site.error(BadOperands("bool()", describe(value), hint))
    return bool(site.static(bool, value))


def condition(frame: Frame, node: ast.expr) -> Truth:
    """Evaluate `node` for its truth."""
    if not isinstance(node, ast.BoolOp):
        value = evaluate(frame, node)
        return value if value is True or value is False else truth(Site(frame, node), value)
    combine = both if isinstance(node.op, ast.And) else first_or

    def rest(nodes: Sequence[ast.expr]) -> Truth:
        first = condition(frame, nodes[0])
        return combine(frame.tracer, first, lambda: rest(nodes[1:]), frame.loc(node)) if nodes[1:] else first

    return rest(node.values)


def negate_condition(tracer: Tracer, value: Truth) -> Truth:
    if isinstance(value, bool):
        return not value
    negated = Number(tracer.builder.not_(value.value))
    for holds in (True, False):
        _grant(tracer, negated, holds, _granted(tracer, value, not holds))
    return negated


def both(tracer: Tracer, left: Truth, right: Test, loc: Loc) -> Truth:
    """Trace `left and right()`; the right side happens only where the left holds."""
    return _short_circuit(tracer, left, right, loc, True)


def first_or(tracer: Tracer, left: Truth, right: Test, loc: Loc) -> Truth:
    """Trace `left or right()`; the right side happens only where the left does not hold."""
    return _short_circuit(tracer, left, right, loc, False)


def _short_circuit(tracer: Tracer, left: Truth, right: Test, loc: Loc, needed: bool) -> Truth:
    """Trace `and` (needed: True) or `or` (needed: False): where the left is what is needed, the right happens and decides.

    So where the whole is what is needed, both sides have happened: what a walrus in either assigns is assigned there.
    """
    if isinstance(left, bool):
        return right() if left is needed else left

    def decide() -> Truth:
        outcome = right()
        assume(tracer, outcome, needed)
        return outcome

    arms: list[Test] = [decide, lambda: not needed]
    then, otherwise = arms if needed else reversed(arms)
    join = Join(tracer, left.value, trace_arms(tracer, then, otherwise, loc), loc)
    assigned = join.one_sided()
    outcome: Truth = join.emit()
    _grant(tracer, outcome, needed, {**_granted(tracer, left, needed), **assigned})
    return outcome


def _granted(tracer: Tracer, outcome: Truth, holds: bool) -> Assigned:
    """Return what the walruses in a condition must have assigned where it holds, or where it does not."""
    return tracer.grants.get((outcome.value, holds), {}) if isinstance(outcome, Number) else {}


def _grant(tracer: Tracer, outcome: Truth, holds: bool, assigned: Assigned) -> None:
    if isinstance(outcome, Number) and assigned:
        tracer.grants[outcome.value, holds] = assigned


def assume(tracer: Tracer, outcome: Truth, holds: bool) -> Assigned:
    """Assign what the walruses in a condition must have assigned here, where it is known to hold, or not to; return that."""
    known = _granted(tracer, outcome, holds)
    for location, value in known.values():
        tracer.journal.assign(location, value)
    return known


def choose(tracer: Tracer, chosen: Truth, then: Thunk, otherwise: Thunk, loc: Loc, frame: Frame | None = None) -> Any:
    """Run `then` where a condition holds and `otherwise` where it does not: one of them, or both under a run-time `if`.

    frame: the call whose statement this is, None for an expression.
    """
    if isinstance(chosen, bool):
        return then() if chosen else otherwise()

    def arm(holds: bool, run: Thunk) -> Any:
        assume(tracer, chosen, holds)
        return run()

    return branch(tracer, chosen.value, lambda: arm(True, then), lambda: arm(False, otherwise), loc, frame=frame)


def either(tracer: Tracer, left: Truth, right: Truth) -> Truth:
    if left is True or right is True:
        return True
    if left is False:
        return right
    if right is False:
        return left
    return Number(tracer.builder.or_(left.value, right.value))


def trace_bool(frame: Frame, node: ast.BoolOp) -> Any:
    """Trace `a or b` for its value, which is one of the operands."""

    def rest(nodes: Sequence[ast.expr]) -> Any:
        first = evaluate(frame, nodes[0])
        if len(nodes) == 1:
            return first
        holds = truth(Site(frame, nodes[0]), first)
        stops = holds if isinstance(node.op, ast.Or) else negate_condition(frame.tracer, holds)
        return choose(frame.tracer, stops, lambda: first, lambda: rest(nodes[1:]), frame.loc(node))

    return frame.read(rest(node.values), node)


def trace_conditional(frame: Frame, node: ast.IfExp) -> Any:
    holds = condition(frame, node.test)
    then, otherwise = (functools.partial(evaluate, frame, each) for each in (node.body, node.orelse))
    return frame.read(choose(frame.tracer, holds, then, otherwise, frame.loc(node)), node)


# -- comparisons ---------------------------------------------------------------------------------------------------------


def trace_compare(frame: Frame, node: ast.Compare) -> Any:
    """Trace `a < b < c`: each operand is evaluated once, and only where the comparisons before it hold."""
    site = Site(frame, node)

    def chain(left: Any, index: int) -> Any:
        right = evaluate(frame, node.comparators[index])
        outcome = compare(site, node.ops[index], left, right)
        if index + 1 == len(node.ops):
            return outcome
        return both(frame.tracer, truth(site, outcome), lambda: truth(site, chain(right, index + 1)), site.loc)

    return chain(evaluate(frame, node.left), 0)


def compare(site: Site, op: ast.cmpop, left: Any, right: Any) -> Any:
    """Return the outcome of `left op right` for any comparison operator and any two values."""
    kinds = {type(left), type(right)}
    if Number in kinds and kinds <= USUAL and type(op) in COMPARISONS:  # the commonest case
        site.at()
        return site.tracer.arithmetic.compare(type(op), left, right)
    if isinstance(op, ast.Is | ast.IsNot):
        is_same = left is right if not is_literal(left) else (type(left) is type(right) and left == right)
        return is_same is isinstance(op, ast.Is)
    if isinstance(op, ast.In | ast.NotIn):
        found = contains(site, left, right)
        return negate_condition(site.tracer, found) if isinstance(op, ast.NotIn) else found
    _, kind, python = COMPARISONS[type(op)]
    answer = by_element(site, left, right, f"__{kind.value}__", f"__{_MIRRORED[kind.value]}__")
    if answer is not NotImplemented:
        return answer
    if not kinds.isdisjoint(COMPLEX):
        left, right = operands(left, right)
    site.at()
    if is_numeric(left) and is_numeric(right) and not (is_literal(left) and is_literal(right)):
        return site.tracer.arithmetic.compare(type(op), left, right)
    answer = _by_comparison_method(site, type(op), left, right)
    if answer is not NotImplemented:
        return answer
    if isinstance(left, STAND_INS) or isinstance(right, STAND_INS):
        return _compare_stand_ins(site, op, left, right)
    if hint := hint_of(left) or hint_of(right):
        raise site.error(BadOperands(COMPARISONS[type(op)][0], f"{describe(left)} and {describe(right)}", hint))
    if holds_run_time(left) or holds_run_time(right):
        return _compare_contents(site, op, left, right)
    return site.static(python, left, right)


def _compare_stand_ins(site: Site, op: ast.cmpop, left: Any, right: Any) -> Any:
    """Compare a run-time value with something that is not a number: they are unequal, as in Python; order is refused."""
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
    """Return what a user's class answers: `left.__lt__(right)`, else `right.__gt__(left)`; NotImplemented where neither does.

    The right one is asked first where its class derives from the left's.
    """
    is_derived = type(right) is not type(left) and isinstance(right, type(left))

    def ask(name: str) -> Any:
        plain, mirrored = (left, right, f"__{name}__"), (right, left, f"__{_MIRRORED[name]}__")
        return first_answer(site, *((mirrored, plain) if is_derived else (plain, mirrored)))

    answer = ask(COMPARISONS[op][1].value)
    if answer is NotImplemented and op is ast.NotEq:  # a class without `__ne__` is unequal where it is not equal
        equal = ask("eq")
        return equal if equal is NotImplemented else negate_condition(site.tracer, truth(site, equal))
    return answer


def contains(site: Site, item: Any, container: Any) -> Truth:
    """Return the outcome of `item in container`; a run-time item is compared with each element."""
    method = user_method(site.tracer, container, "__contains__")
    if method is not None:
        return truth(site, site.invoke(method, [container, item]))
    if not holds_run_time(item) and not holds_run_time(container) and not isinstance(container, Iterator):
        return bool(site.static(operator.contains, container, item))
    if isinstance(container, StagedRange) and is_numeric(item) and not default_dtype(item).is_float:
        return rangeloop.holds(site.tracer, container, item, site.loc)
    if isinstance(container, range) and is_numeric(item):
        return _in_range(site, item, container)
    found: Truth = False
    for element in items_of(site, container):
        found = either(site.tracer, found, element is item or _equal(site, item, element))
    if isinstance(found, Number):
        forget_position(site.tracer, container)
    return found


def _in_range(site: Site, item: Any, numbers: range) -> Truth:
    """Return whether `item` is between the ends and on a step, without a comparison for each number."""
    if not numbers:
        return False
    first, last, step = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]), abs(numbers.step)
    site.at()
    arithmetic, builder = site.tracer.arithmetic, site.tracer.builder
    low, high = arithmetic.compare(ast.GtE, item, first), arithmetic.compare(ast.LtE, item, last)
    if default_dtype(item).is_float:
        distance = arithmetic.binary("-", item, first)
    else:  # as uint64, which holds the distance of any two integers
        wide = arithmetic.convert(arithmetic.convert(item, dtypes.INDEX), dtypes.uint64)
        distance = arithmetic.binary("-", wide, first % 2**64)
    on_step = arithmetic.compare(ast.Eq, arithmetic.binary("%", distance, step), 0)
    return Number(builder.and_(builder.and_(low.value, high.value), on_step.value))


# -- of values that hold run-time values -------------------------------------------------------------------------------


def _compare_contents(site: Site, op: ast.cmpop, left: Any, right: Any) -> Truth:
    """Compare two values of which one holds run-time values, item by item."""
    is_alike = _kind(left) is not None and _kind(left) is _kind(right)
    if isinstance(op, ast.Eq | ast.NotEq):
        equal = left is right or (is_alike and _equal_contents(site, left, right))
        return negate_condition(site.tracer, equal) if isinstance(op, ast.NotEq) else equal
    if not is_alike or not (_is_ordered(left) and _is_ordered(right)):
        symbol = COMPARISONS[type(op)][0]
        raise site.error(BadOperands(symbol, f"{describe(left)} and {describe(right)}", ""))
    return _ordered(site, op, _items(left), _items(right))


def _kind(value: Any) -> type | None:
    """Return what two values must share to be compared by their items; None for a value that is compared by identity."""
    builtin = next((kind for kind in (tuple, list, dict) if isinstance(value, kind)), None)
    return builtin or (type(value) if is_dataclass_with(value, "eq") else None)


def _is_ordered(value: Any) -> bool:
    return isinstance(value, tuple | list) or is_dataclass_with(value, "order")


def _items(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return list(value)
    return [getattr(value, f.name) for f in dataclasses.fields(value) if f.compare]


def _equal_contents(site: Site, left: Any, right: Any) -> Truth:
    if isinstance(left, dict):
        if left.keys() != right.keys():
            return False
        pairs = [(value, right[key]) for key, value in left.items()]
    else:
        pairs = list(zip(_items(left), _items(right)))
        if len(_items(left)) != len(_items(right)):
            return False
    equal: Truth = True
    for a, b in pairs:
        equal = both(site.tracer, equal, lambda a=a, b=b: _equal(site, a, b), site.loc)  # type: ignore[misc]
    return equal


def _equal(site: Site, a: Any, b: Any) -> Truth:
    return truth(site, compare(site, ast.Eq(), a, b))


def _ordered(site: Site, op: ast.cmpop, left: list[Any], right: list[Any]) -> Truth:
    """Compare two sequences: the first items that differ decide; where there are none, the lengths do."""
    if not left or not right:
        return bool(COMPARISONS[type(op)][2](len(left), len(right)))
    outcome: Truth = choose(
        site.tracer,
        _equal(site, left[0], right[0]),
        lambda: _ordered(site, op, left[1:], right[1:]),
        lambda: truth(site, compare(site, op, left[0], right[0])),
        site.loc,
    )
    return outcome
