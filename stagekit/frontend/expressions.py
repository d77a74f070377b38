"""Expressions: one function per kind of node, and the places that can be assigned to.

Everything follows the value: compile-time operands are Python's own business, a run-time operand makes IR, and an object of a
user's class answers through its own methods, which are staged like any other function.
"""

from __future__ import annotations

import ast
import itertools
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import InternalError, Loc, StagekitError
from stagekit.frontend import arrays, objects
from stagekit.frontend.control import branch, describe
from stagekit.frontend.errors import (
    BadCall,
    BadIndex,
    BadOperands,
    NotIterable,
    RunTimeValue,
    StaticFailure,
    UnboundLocal,
    UnknownName,
    UnrollBudget,
    UnsupportedSyntax,
)
from stagekit.frontend.frame import Frame, Scope, free_variable, name_of_free
from stagekit.frontend.journal import MISSING
from stagekit.frontend.numbers import COMPARISONS, PYTHON_BINARY, describe_type, is_literal, is_numeric
from stagekit.frontend.source import names_of
from stagekit.frontend.tracer import NeedMoreThreads, Tracer, suggest
from stagekit.frontend.values import (
    STAND_INS,
    Address,
    Array,
    Generator,
    Number,
    StagedRange,
    StaticRange,
    holds_run_time,
)
from stagekit.ir import Value


def evaluate(tracer: Tracer, frame: Frame, node: ast.expr) -> Any:
    """The value of an expression."""
    return _EVALUATE[type(node)](tracer, frame, node)


def static(tracer: Tracer, frame: Frame, node: ast.AST, compute: Callable[[], Any]) -> Any:
    """Run Python at compile time; what it raises becomes an error at `node`."""
    try:
        return compute()
    except (StagekitError, InternalError, NeedMoreThreads):
        raise
    except Exception as error:
        raise tracer.error(StaticFailure(type(error).__name__, str(error)), frame, node) from error


# -- names, constants, displays -----------------------------------------------------------------------------------------


def _constant(tracer: Tracer, frame: Frame, node: ast.Constant) -> Any:
    return node.value


def _name(tracer: Tracer, frame: Frame, node: ast.Name) -> Any:
    name = node.id
    scope = frame.scope.owner_of(name)
    if scope is not None:
        value = scope.variables.get(name, MISSING)
        if value is MISSING:
            raise tracer.error(UnboundLocal(name), frame, node)
    else:
        value = _free(tracer, frame, node)
    return tracer.read(value, frame, node)


def _free(tracer: Tracer, frame: Frame, node: ast.Name) -> Any:
    """A name from outside the traced code: noted as a capture."""
    again = free_variable(frame.function, node.id) if frame.function else None
    if again is None:
        known = [*frame.scope.names.local, *(frame.function.__globals__ if frame.function else ())]
        raise tracer.error(UnknownName(node.id, suggest(node.id, known)), frame, node)
    try:
        value = again()
    except ValueError:  # an empty cell
        raise tracer.error(UnboundLocal(node.id), frame, node) from None
    tracer.captures.note(frame.function, node.id, name_of_free(frame.function, node.id), again, value)
    return value


def _tuple(tracer: Tracer, frame: Frame, node: ast.Tuple) -> Any:
    return tuple(_elements(tracer, frame, node.elts))


def _list(tracer: Tracer, frame: Frame, node: ast.List) -> Any:
    return tracer.journal.born(_elements(tracer, frame, node.elts))


def _set(tracer: Tracer, frame: Frame, node: ast.Set) -> Any:
    return tracer.journal.born(_set_of(tracer, frame, node, _elements(tracer, frame, node.elts)))


def _set_of(tracer: Tracer, frame: Frame, node: ast.AST, elements: list[Any]) -> Any:
    """A set: which elements are equal must be known."""
    for element in elements:
        if holds_run_time(element):
            raise _needs_static(tracer, frame, node, "an element of a set", element)
    return static(tracer, frame, node, lambda: set(elements))


def _elements(tracer: Tracer, frame: Frame, nodes: Sequence[ast.expr]) -> list[Any]:
    found: list[Any] = []
    for each in nodes:
        if isinstance(each, ast.Starred):
            found.extend(items_of(tracer, frame, each, evaluate(tracer, frame, each.value)))
        else:
            found.append(evaluate(tracer, frame, each))
    return found


def _dict(tracer: Tracer, frame: Frame, node: ast.Dict) -> Any:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values):
        if key is None:
            made.update(evaluate(tracer, frame, value))
        else:
            known = _key(tracer, frame, key)  # before the value, unlike in an assignment
            made[known] = evaluate(tracer, frame, value)
    return tracer.journal.born(made)


def _key(tracer: Tracer, frame: Frame, node: ast.expr) -> Any:
    key = evaluate(tracer, frame, node)
    if holds_run_time(key):
        raise _needs_static(tracer, frame, node, "a dict key", key)
    return key


def _needs_static(tracer: Tracer, frame: Frame, node: ast.AST, what: str, value: Any) -> StagekitError:
    hint = "use a run-time `if`, or memory from `alloc_local`, where the choice is made at run time"
    shown = describe_type(value) if is_numeric(value) else describe(value)
    return tracer.error(RunTimeValue(what, shown, hint), frame, node)


# -- operators ----------------------------------------------------------------------------------------------------------


def _binary(tracer: Tracer, frame: Frame, node: ast.BinOp) -> Any:
    left = evaluate(tracer, frame, node.left)
    right = evaluate(tracer, frame, node.right)
    symbol, _ = PYTHON_BINARY[type(node.op)]
    return binary(tracer, frame, node, symbol, left, right)


_SYMBOLS = dict(PYTHON_BINARY.values())
_METHODS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift", "@": "matmul",
}  # fmt: skip


def binary(tracer: Tracer, frame: Frame, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right` for any two values."""
    if is_literal(left) and is_literal(right):
        return static(tracer, frame, node, lambda: _SYMBOLS[symbol](left, right))
    loc = tracer.at(frame, node)
    if is_numeric(left) and is_numeric(right):
        if symbol == "**":
            return power(tracer, frame, node, left, right)
        if symbol != "@":
            return tracer.arithmetic.binary(symbol, left, right, loc)
    if isinstance(left, Address | Array) or isinstance(right, Address | Array):
        moved = _pointer_arithmetic(tracer, symbol, left, right, loc)
        if moved is not None:
            return moved
    answer = _by_method(tracer, frame, node, _METHODS[symbol], left, right)
    if answer is not NotImplemented:
        return answer
    if isinstance(left, STAND_INS) or isinstance(right, STAND_INS):
        raise tracer.error(BadOperands(symbol, f"{describe(left)} and {describe(right)}", ""), frame, node)
    if isinstance(left, str) and holds_run_time(right):
        raise _needs_static(tracer, frame, node, "what is formatted into a string", right)
    made = static(tracer, frame, node, lambda: _SYMBOLS[symbol](left, right))
    return tracer.journal.born(made) if isinstance(made, list | dict | set) else made


def in_place(tracer: Tracer, frame: Frame, node: ast.AST, symbol: str, left: Any, right: Any, loc: Loc) -> Any:
    """`left symbol= right`: the object's own in-place method, else the plain operator."""
    method = _user_method(left, f"__i{_METHODS[symbol]}__")
    if method is not None:
        return _call(tracer, frame, node, method, [left, right])
    return binary(tracer, frame, node, symbol, left, right)


def _by_method(tracer: Tracer, frame: Frame, node: ast.AST, name: str, left: Any, right: Any) -> Any:
    """The answer of a user's class: `left.__add__(right)`, else `right.__radd__(left)`."""
    return _first_answer(tracer, frame, node, (left, right, f"__{name}__"), (right, left, f"__r{name}__"))


def _first_answer(
    tracer: Tracer, frame: Frame, node: ast.AST, plain: tuple[Any, Any, str], mirrored: tuple[Any, Any, str]
) -> Any:
    """Two ways to ask, each (owner, other, method). The right side is asked first where its class derives from the left's."""
    is_derived = type(plain[1]) is not type(plain[0]) and isinstance(plain[1], type(plain[0]))
    for owner, other, name in (mirrored, plain) if is_derived else (plain, mirrored):
        method = _user_method(owner, name)
        if method is not None and _has_source(method):
            answer = _call(tracer, frame, node, method, [owner, other])
            if answer is not NotImplemented:
                return answer
    return NotImplemented


def _user_method(owner: Any, name: str) -> Any:
    """A method written in Python in the class of `owner`; None for built-in types and stand-ins."""
    if isinstance(owner, STAND_INS) or is_numeric(owner):
        return None
    for cls in type(owner).__mro__:
        found = cls.__dict__.get(name)
        if found is not None:
            return found if isinstance(found, types.FunctionType) else None
    return None


def _call(tracer: Tracer, frame: Frame, node: ast.AST, fn: Any, args: list[Any]) -> Any:
    from stagekit.frontend.calls import call  # expressions and calls need each other, as in the language

    return call(tracer, frame, node, fn, args, {})


def _pointer_arithmetic(tracer: Tracer, symbol: str, left: Any, right: Any, loc: Loc) -> Any:
    """pointer + integer, integer + pointer, pointer - integer, pointer - pointer; None where it is something else."""
    if symbol == "+" and is_numeric(left):
        left, right = right, left
    if symbol not in ("+", "-") or not isinstance(left, Address | Array):
        return None
    base = arrays.base_of(left, loc)
    if symbol == "-" and isinstance(right, Address | Array):
        return arrays.distance(tracer, base, arrays.base_of(right, loc), loc)
    if not is_numeric(right):
        return None
    offset = arrays.index_value(tracer, right, loc)
    return Address(tracer.builder.offset(base.value, tracer.builder.neg(offset) if symbol == "-" else offset))


def power(tracer: Tracer, frame: Frame, node: ast.AST, base: Any, exponent: Any) -> Any:
    """`base ** exponent`: small compile-time integer powers multiply (as NumPy's square does), integers by squaring."""
    loc = frame.loc(node)
    is_integer_base = not _dtype_of(base).is_float
    if isinstance(exponent, int) and exponent >= 0 and (is_integer_base or exponent <= 2):
        return _integer_power(tracer, base, exponent, loc)
    if is_integer_base and not _dtype_of(exponent).is_float:
        hint = "an integer power needs an exponent known at compile time and not negative; or make the base a float"
        raise tracer.error(BadOperands("**", f"{describe_type(base)} and {describe_type(exponent)}", hint), frame, node)
    from stagekit.intrinsics import registry

    return _call(tracer, frame, node, registry.by_name("pow"), [base, exponent])


def _integer_power(tracer: Tracer, base: Any, exponent: int, loc: Loc) -> Any:
    result: Any = None
    square = base
    while exponent:
        if exponent & 1:
            result = square if result is None else tracer.arithmetic.binary("*", result, square, loc)
        exponent >>= 1
        if exponent:
            square = tracer.arithmetic.binary("*", square, square, loc)
    if result is None:
        return (
            tracer.arithmetic.convert(1, _dtype_of(base)) if not isinstance(base, Number) else _one_like(tracer, base)
        )
    return result


def _one_like(tracer: Tracer, base: Number) -> Number:
    return Number(tracer.builder.constant(1.0 if base.dtype.is_float else 1, base.dtype), base.is_weak)


def _dtype_of(value: Any) -> dtypes.DType:
    from stagekit.frontend.numbers import default_dtype

    return default_dtype(value)


def _unary(tracer: Tracer, frame: Frame, node: ast.UnaryOp) -> Any:
    if isinstance(node.op, ast.Not):
        return negate_condition(tracer, condition(tracer, frame, node.operand))
    return unary(tracer, frame, node, type(node.op), evaluate(tracer, frame, node.operand))


def unary(tracer: Tracer, frame: Frame, node: ast.AST, op: type[ast.unaryop], operand: Any) -> Any:
    """`-x`, `+x` or `~x` for any value."""
    loc = tracer.at(frame, node)
    if op is ast.Invert and is_numeric(operand) and (isinstance(operand, bool) or not is_literal(operand)):
        return tracer.arithmetic.invert(operand, loc)
    if isinstance(operand, Number | np.generic):
        if op is ast.USub:
            return tracer.arithmetic.negate(operand, loc)
        return tracer.arithmetic.binary("+", operand, 0, loc) if _dtype_of(operand) is dtypes.bool_ else operand
    name, python = UNARY[op]
    method = _user_method(operand, name)
    if method is not None:
        return _call(tracer, frame, node, method, [operand])
    if isinstance(operand, STAND_INS):
        raise tracer.error(BadOperands(name, describe(operand), ""), frame, node)
    return static(tracer, frame, node, lambda: python(operand))


UNARY: dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]] = {
    ast.USub: ("__neg__", operator.neg),
    ast.UAdd: ("__pos__", operator.pos),
    ast.Invert: ("__invert__", operator.invert),
}


# -- comparisons and conditions -----------------------------------------------------------------------------------------


def _compare(tracer: Tracer, frame: Frame, node: ast.Compare) -> Any:
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
        from stagekit.frontend import contents

        return contents.compare(tracer, frame, node, op, left, right)
    return static(tracer, frame, node, lambda: python(left, right))


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
    def ask(name: str) -> Any:
        plain, mirrored = (left, right, f"__{name}__"), (right, left, f"__{_MIRRORED[name]}__")
        return _first_answer(tracer, frame, node, plain, mirrored)

    answer = ask(COMPARISONS[op][1].value)
    if answer is NotImplemented and op is ast.NotEq:  # a class without `__ne__` is unequal where it is not equal
        equal = ask("eq")
        return equal if equal is NotImplemented else negate_condition(tracer, truth(tracer, frame, node, equal))
    return answer


def _has_source(method: types.FunctionType) -> bool:
    """Dataclasses generate methods without source; Python runs those itself."""
    return not method.__code__.co_filename.startswith("<")


def contains(tracer: Tracer, frame: Frame, node: ast.AST, item: Any, container: Any) -> bool | Number:
    """`item in container` for a compile-time container; a run-time item is compared with each element."""
    method = _user_method(container, "__contains__")
    if method is not None:
        return truth(tracer, frame, node, _call(tracer, frame, node, method, [container, item]))
    if not holds_run_time(item) and not holds_run_time(container):
        return bool(static(tracer, frame, node, lambda: item in container))
    if isinstance(container, range) and is_numeric(item):
        return _in_range(tracer, frame, node, item, container)
    found: bool | Number = False
    for element in items_of(tracer, frame, node, container):
        is_same = element is item
        equal = is_same or truth(tracer, frame, node, compare(tracer, frame, node, ast.Eq(), item, element))
        found = either(tracer, found, equal)
    return found


def _in_range(tracer: Tracer, frame: Frame, node: ast.AST, item: Any, numbers: range) -> bool | Number:
    """Between the ends and on a step, without a comparison per number."""
    if not numbers:
        return False
    first, last, step = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]), abs(numbers.step)
    loc = tracer.at(frame, node)
    low, high = (tracer.arithmetic.compare(op, item, end, loc) for op, end in ((ast.GtE, first), (ast.LtE, last)))
    wide = item if _dtype_of(item).is_float else tracer.arithmetic.convert(item, dtypes.INDEX)
    past = tracer.arithmetic.binary("%", tracer.arithmetic.binary("-", wide, first, loc), step, loc)
    on_step = tracer.arithmetic.compare(ast.Eq, past, 0, loc)
    return Number(tracer.builder.and_(tracer.builder.and_(low.value, high.value), on_step.value))


def either(tracer: Tracer, left: bool | Number, right: bool | Number) -> bool | Number:
    if left is True or right is True:
        return True
    if left is False:
        return right
    if right is False:
        return left
    return Number(tracer.builder.or_(left.value, right.value))


def truth(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> bool | Number:
    """What `if value:` means: a Python bool, or a run-time bool."""
    if isinstance(value, Number):
        return value if value.dtype is dtypes.bool_ else Number(tracer.arithmetic.truth(value))
    if isinstance(value, STAND_INS):
        hint = "compare it, or test `is not None`"
        raise tracer.error(BadOperands("bool()", describe(value), hint), frame, node)
    for name in ("__bool__", "__len__"):
        method = _user_method(value, name)
        if method is not None:
            return truth(tracer, frame, node, _call(tracer, frame, node, method, [value]))
    return bool(static(tracer, frame, node, lambda: bool(value)))


def condition(tracer: Tracer, frame: Frame, node: ast.expr) -> bool | Number:
    """Evaluate `node` for its truth."""
    if isinstance(node, ast.BoolOp):
        return _bool_condition(tracer, frame, node)
    return truth(tracer, frame, node, evaluate(tracer, frame, node))


def negate_condition(tracer: Tracer, value: bool | Number) -> bool | Number:
    return not value if isinstance(value, bool) else Number(tracer.builder.not_(value.value))


def both(
    tracer: Tracer, frame: Frame, left: bool | Number, right: Callable[[], bool | Number], node: ast.AST
) -> bool | Number:
    """`left and right()`; the right side happens only where the left holds."""
    if isinstance(left, bool):
        return right() if left else False
    outcome: bool | Number = branch(tracer, left.value, right, lambda: False, frame.loc(node))
    return outcome


def _bool_condition(tracer: Tracer, frame: Frame, node: ast.BoolOp) -> bool | Number:
    def rest(nodes: Sequence[ast.expr]) -> bool | Number:
        first = condition(tracer, frame, nodes[0])
        if len(nodes) == 1:
            return first
        if isinstance(node.op, ast.And):
            return both(tracer, frame, first, lambda: rest(nodes[1:]), node)
        if isinstance(first, bool):
            return True if first else rest(nodes[1:])
        outcome: bool | Number = branch(tracer, first.value, lambda: True, lambda: rest(nodes[1:]), frame.loc(node))
        return outcome

    return rest(node.values)


def _bool(tracer: Tracer, frame: Frame, node: ast.BoolOp) -> Any:
    """`a or b` as a value: Python gives one of the operands."""

    def rest(nodes: Sequence[ast.expr]) -> Any:
        first = evaluate(tracer, frame, nodes[0])
        if len(nodes) == 1:
            return first
        holds = truth(tracer, frame, nodes[0], first)
        stops = holds if isinstance(node.op, ast.Or) else negate_condition(tracer, holds)
        if isinstance(stops, bool):
            return first if stops else rest(nodes[1:])
        return branch(tracer, stops.value, lambda: first, lambda: rest(nodes[1:]), frame.loc(node))

    return tracer.read(rest(node.values), frame, node)


def _conditional(tracer: Tracer, frame: Frame, node: ast.IfExp) -> Any:
    chosen = condition(tracer, frame, node.test)
    if isinstance(chosen, bool):
        return evaluate(tracer, frame, node.body if chosen else node.orelse)

    def then() -> Any:
        return evaluate(tracer, frame, node.body)

    def otherwise() -> Any:
        return evaluate(tracer, frame, node.orelse)

    return tracer.read(branch(tracer, chosen.value, then, otherwise, frame.loc(node)), frame, node)


# -- attributes, items, places ------------------------------------------------------------------------------------------


def _attribute(tracer: Tracer, frame: Frame, node: ast.Attribute) -> Any:
    owner = evaluate(tracer, frame, node.value)
    return tracer.read(objects.attribute(tracer, frame, node, owner, node.attr), frame, node)


def _subscript(tracer: Tracer, frame: Frame, node: ast.Subscript) -> Any:
    owner = evaluate(tracer, frame, node.value)
    index = evaluate(tracer, frame, node.slice)
    tracer.at(frame, node)
    return tracer.read(item(tracer, frame, node, owner, index), frame, node)


def _refuse_index(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any) -> None:
    """What has no items, whatever the index."""
    if isinstance(owner, Address):
        hint = "use `load(pointer + i)`, or take the parameter as a Tensor"
        raise tracer.error(BadIndex("a pointer cannot be indexed", hint), frame, node)
    if is_numeric(owner) or owner is None:
        raise tracer.error(
            BadIndex(f"{describe(owner)} cannot be indexed", "index an array or a container"), frame, node
        )


def item(tracer: Tracer, frame: Frame, node: ast.AST, owner: Any, index: Any) -> Any:
    """`owner[index]`."""
    if isinstance(owner, Array):
        return arrays.load_item(tracer, frame.loc(node), owner, index)
    _refuse_index(tracer, frame, node, owner)
    method = _user_method(owner, "__getitem__")
    if method is not None:
        return _call(tracer, frame, node, method, [owner, index])
    if holds_run_time(index):
        raise _needs_static(tracer, frame, node, "the index of a Python container", index)
    if isinstance(owner, STAND_INS):
        raise tracer.error(BadIndex(f"{describe(owner)} cannot be indexed", ""), frame, node)
    found = static(tracer, frame, node, lambda: owner[index])
    return tracer.journal.born(found) if isinstance(index, slice) and isinstance(found, list) else found


def _slice(tracer: Tracer, frame: Frame, node: ast.Slice) -> Any:
    parts = [evaluate(tracer, frame, p) if p is not None else None for p in (node.lower, node.upper, node.step)]
    return slice(*parts)


@dataclass(frozen=True)
class Place:
    """Something that can be assigned to, its object and index already evaluated."""

    get: Callable[[], Any]
    put: Callable[[Any], None]


def place_of(tracer: Tracer, frame: Frame, target: ast.expr) -> Place:
    """Evaluate the object and index of an assignment target, once."""
    if isinstance(target, ast.Name):
        scope = binding_scope(frame, target.id)
        return Place(
            lambda: _name(tracer, frame, target), lambda value: tracer.assign(scope.variables, target.id, value)
        )
    if isinstance(target, ast.Attribute):
        owner = evaluate(tracer, frame, target.value)
        return Place(
            lambda: tracer.read(objects.attribute(tracer, frame, target, owner, target.attr), frame, target),
            lambda value: objects.put(tracer, frame, target, owner, target.attr, value),
        )
    if isinstance(target, ast.Subscript):
        owner = evaluate(tracer, frame, target.value)
        index = evaluate(tracer, frame, target.slice)
        return _item_place(tracer, frame, target, owner, index)
    raise tracer.error(
        UnsupportedSyntax("this assignment target", "assign to a name, an item or an attribute"), frame, target
    )


def binding_scope(frame: Frame, name: str) -> Scope:
    """The scope that an assignment to `name` binds in: this call's, or an outer one for `nonlocal`."""
    scope = frame.scope.owner_of(name)
    return scope if scope is not None else frame.scope


def _item_place(tracer: Tracer, frame: Frame, node: ast.Subscript, owner: Any, index: Any) -> Place:
    loc = frame.loc(node)
    if isinstance(owner, Array):
        pointer = arrays.element_pointer(tracer, loc, owner, index)
        return Place(lambda: arrays.load(tracer, pointer), lambda value: arrays.store(tracer, loc, pointer, value))
    _refuse_index(tracer, frame, node, owner)
    method = _user_method(owner, "__setitem__")
    if method is not None:
        return Place(
            lambda: item(tracer, frame, node, owner, index),
            lambda value: _call(tracer, frame, node, method, [owner, index, value]),
        )
    if holds_run_time(index):
        raise _needs_static(tracer, frame, node, "the index of a Python container", index)
    return Place(
        lambda: tracer.read(item(tracer, frame, node, owner, index), frame, node),
        lambda value: _put_item(tracer, frame, node, owner, index, value),
    )


def _put_item(tracer: Tracer, frame: Frame, node: ast.Subscript, owner: Any, index: Any, value: Any) -> None:
    if not isinstance(owner, list | dict):
        hint = "items of lists, dicts and arrays can be assigned"
        raise tracer.error(BadIndex(f"an item of {describe(owner)} cannot be assigned", hint), frame, node)
    tracer.check_mutable(owner, f"`{ast.unparse(node)} = ...`", frame.loc(node))
    if isinstance(owner, dict) and index not in owner:
        tracer.journal.restructure(owner, f"a new key {index!r}", arrays.restorer(owner))
        owner[index] = value
        return
    if isinstance(owner, list):
        if isinstance(index, slice):
            put_slice = arrays.container_method(tracer, frame, node, owner, "__setitem__")
            static(tracer, frame, node, lambda: put_slice.run(index, items_of(tracer, frame, node, value)))
            return
        if not isinstance(index, int | np.integer):
            message = f"list indices must be integers or slices, not {type(index).__name__}"
            raise tracer.error(StaticFailure("TypeError", message), frame, node)
        position = int(index) + (len(owner) if index < 0 else 0)
        if not 0 <= position < len(owner):
            raise tracer.error(StaticFailure("IndexError", "list assignment index out of range"), frame, node)
        index = position
    tracer.assign(owner, index, value)


def items_of(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Sequence[Any]:
    """The items of a compile-time iterable, as a list."""
    if isinstance(value, StaticRange):
        return list(value.values)
    if isinstance(value, Generator):
        return all_of(value) if begin(tracer, frame, node, value) else []
    if isinstance(value, STAND_INS):
        what = "a range with run-time bounds" if isinstance(value, StagedRange) else describe(value)
        hint = "its length is not known at compile time; loop over `range(...)` and index"
        raise tracer.error(NotIterable(f"{what} has no compile-time items", hint), frame, node)
    method = _user_method(value, "__iter__")
    if method is not None:
        return items_of(tracer, frame, node, _call(tracer, frame, node, method, [value]))
    if not hasattr(value, "__iter__") and not hasattr(value, "__getitem__"):
        raise tracer.error(
            NotIterable(f"{describe(value)} is not iterable", "use a list, a tuple or `range(...)`"), frame, node
        )
    return _listed(tracer, frame, node, value)


def _listed(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> list[Any]:
    """The items of an ordinary iterable; one without a length may have no end, and meets the budget."""
    budget = tracer.options.unroll_budget
    most = None if hasattr(value, "__len__") else budget + 1
    items: list[Any] = static(tracer, frame, node, lambda: list(itertools.islice(iter(value), most)))
    if most is not None and len(items) == most:
        raise tracer.error(UnrollBudget(most, budget, f"the items of {describe(value)}"), frame, node)
    return items


def one_by_one(tracer: Tracer, frame: Frame, node: ast.AST, value: Any) -> Iterator[Any]:
    """The items of an ordinary iterable as Python's `for` takes them: what the body appends comes too."""
    iterator, end = static(tracer, frame, node, lambda: iter(value)), object()
    while (item := static(tracer, frame, node, lambda: next(iterator, end))) is not end:
        yield item


# -- functions, comprehensions, strings ---------------------------------------------------------------------------------


def _lambda(tracer: Tracer, frame: Frame, node: ast.Lambda) -> Any:
    from stagekit.frontend.calls import make_closure

    return make_closure(tracer, frame, node)


def _call_node(tracer: Tracer, frame: Frame, node: ast.Call) -> Any:
    from stagekit.frontend.calls import call

    fn = evaluate(tracer, frame, node.func)
    args = _elements(tracer, frame, node.args)
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = evaluate(tracer, frame, keyword.value)
        kwargs.update({keyword.arg: value} if keyword.arg else value)
    tracer.at(frame, node)
    return tracer.read(call(tracer, frame, node, fn, args, kwargs), frame, node)


Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def _comprehension(tracer: Tracer, frame: Frame, node: ast.ListComp | ast.SetComp | ast.DictComp) -> Any:
    """Comprehensions run at compile time, over compile-time items; their variables are their own."""
    found = all_of(_generator(tracer, frame, node))
    if isinstance(node, ast.DictComp):
        return tracer.journal.born(dict(found))
    return tracer.journal.born(_set_of(tracer, frame, node, found) if isinstance(node, ast.SetComp) else found)


def _generator(tracer: Tracer, frame: Frame, node: Comprehension) -> Generator:
    """The items of a comprehension, made when they are asked for; the first iterable is evaluated now, as Python has it."""
    outer = frame.scope
    first = items_of(tracer, frame, node.generators[0].iter, evaluate(tracer, frame, node.generators[0].iter))

    def each(visit: Callable[[Callable[[], Any]], bool]) -> None:
        around, frame.scope = frame.scope, Scope(_comprehension_names(node), tracer.journal.born({}), outer)
        try:
            _level(tracer, frame, node, 0, first, visit)
        finally:
            frame.scope = around

    return Generator(each)


def _level(
    tracer: Tracer,
    frame: Frame,
    node: Comprehension,
    depth: int,
    items: Sequence[Any],
    visit: Callable[[Callable[[], Any]], bool],
) -> bool:
    """One `for` of a comprehension, and those inside it; says whether to go on."""
    generator, is_last = node.generators[depth], depth + 1 == len(node.generators)
    for value in items:
        _assign(tracer, frame, generator.target, value)
        tracer.count_unrolled(frame.loc(node))
        if not all(_static_condition(tracer, frame, test) for test in generator.ifs):
            continue
        if is_last:
            goes_on = visit(lambda: _comprehended(tracer, frame, node))
        else:
            inner = node.generators[depth + 1].iter
            goes_on = _level(
                tracer, frame, node, depth + 1, items_of(tracer, frame, inner, evaluate(tracer, frame, inner)), visit
            )
        if not goes_on:
            return False
    return True


def all_of(generator: Generator) -> list[Any]:
    """Every item of a generator."""
    found: list[Any] = []

    def visit(item: Callable[[], Any]) -> bool:
        found.append(item())
        return True

    generator.each(visit)
    return found


def begin(tracer: Tracer, frame: Frame, node: ast.AST, generator: Generator) -> bool:
    """Is a generator still fresh? It can be used once."""
    if generator.is_spent is False:
        tracer.assign(generator, "is_spent", True, is_attribute=True)
        return True
    if generator.is_spent is True:
        return False
    what = "whether the generator was used already"
    raise tracer.error(RunTimeValue(what, describe(generator.is_spent), "make a list of its items first"), frame, node)


def _generator_expression(tracer: Tracer, frame: Frame, node: ast.GeneratorExp) -> Generator:
    return tracer.journal.born(_generator(tracer, frame, node))  # type: ignore[no-any-return]


def _assign(tracer: Tracer, frame: Frame, target: ast.expr, value: Any) -> None:
    from stagekit.frontend.statements import assign

    assign(tracer, frame, target, value)


def _comprehension_names(node: Comprehension) -> Any:
    targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    names = names_of(node)
    return type(names)(frozenset(targets), names.nonlocal_, names.global_)


def _comprehended(tracer: Tracer, frame: Frame, node: Any) -> Any:
    if isinstance(node, ast.DictComp):
        return _key(tracer, frame, node.key), evaluate(tracer, frame, node.value)
    return evaluate(tracer, frame, node.elt)


def _static_condition(tracer: Tracer, frame: Frame, node: ast.expr) -> bool:
    outcome = condition(tracer, frame, node)
    if not isinstance(outcome, bool):
        raise _needs_static(tracer, frame, node, "the condition of a comprehension", outcome)
    return outcome


def _walrus(tracer: Tracer, frame: Frame, node: ast.NamedExpr) -> Any:
    value = evaluate(tracer, frame, node.value)
    scope = binding_scope(frame, node.target.id)
    tracer.assign(scope.variables, node.target.id, value)
    return value


@dataclass(frozen=True)
class Text:
    """An f-string with run-time values in it, for `print`, `assert` and `static_assert` only."""

    template: str
    operands: tuple[Number, ...]

    def __str__(self) -> str:
        return self.template.format(*(_Unknown() for _ in self.operands))


class _Unknown:
    """A run-time number in a text that is shown while specialising."""

    def __format__(self, spec: str) -> str:
        return "(run-time)"


def _joined(tracer: Tracer, frame: Frame, node: ast.JoinedStr) -> Any:
    template, operands = "", []
    for part in node.values:
        if isinstance(part, ast.Constant):
            template += str(part.value).replace("{", "{{").replace("}", "}}")
            continue
        assert isinstance(part, ast.FormattedValue)
        value = evaluate(tracer, frame, part.value)
        spec = evaluate(tracer, frame, part.format_spec) if part.format_spec else ""
        if isinstance(value, Number):
            _check_spec(tracer, frame, part, value, spec)
            template += f"{{:{spec}}}" if spec else "{}"
            operands.append(value)
        else:
            shown = repr(value) if part.conversion == 114 else value
            text = static(tracer, frame, part, lambda v=shown, s=spec: format(v, s))  # type: ignore[misc]
            template += text.replace("{", "{{").replace("}", "}}")
    if not operands:
        return template.replace("{{", "{").replace("}}", "}")
    return Text(template, tuple(operands))


def _check_spec(tracer: Tracer, frame: Frame, node: ast.AST, value: Number, spec: Any) -> None:
    """The format of a run-time number: known now, and one that its kind of number has."""
    if isinstance(spec, Text):
        raise _needs_static(tracer, frame, node, "a format", spec.operands[0])
    dtype = _dtype_of(value)
    sample = True if dtype is dtypes.bool_ else 1.5 if dtype.is_float else 1
    static(tracer, frame, node, lambda: f"{{:{spec}}}".format(sample))


def message(tracer: Tracer, frame: Frame, node: ast.expr) -> tuple[str, tuple[Value, ...]]:
    """The message of an `assert` as a template and its run-time operands."""
    return shown(tracer, frame, node, evaluate(tracer, frame, node), "the message")


def shown(tracer: Tracer, frame: Frame, node: ast.AST, value: Any, what: str) -> tuple[str, tuple[Value, ...]]:
    """How `print` and `assert` show any value: a template and its run-time operands."""
    if isinstance(value, Text):
        return value.template, tuple(n.value for n in value.operands)
    if isinstance(value, Number):
        return "{}", (value.value,)
    if holds_run_time(value):
        raise tracer.error(BadCall(f"{what} is {describe(value)}", "show its elements one by one"), frame, node)
    return str(value).replace("{", "{{").replace("}", "}}"), ()


_EVALUATE: dict[type[ast.expr], Callable[..., Any]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Set: _set,
    ast.Dict: _dict,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.IfExp: _conditional,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Call: _call_node,
    ast.Lambda: _lambda,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _generator_expression,
    ast.NamedExpr: _walrus,
    ast.JoinedStr: _joined,
}
