"""Operators: `a + b`, `-a`, `a += b`, for numbers, pointers, containers and objects of a user's class."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.dtypes import DType
from stagekit.frontend import arrays, objects
from stagekit.frontend.complexes import KINDS as COMPLEX
from stagekit.frontend.complexes import are_apart, operands
from stagekit.frontend.conditions import condition, negate_condition
from stagekit.frontend.errors import BadOperands
from stagekit.frontend.evaluation import EVALUATORS, NO_KEYWORDS, Site, by_element, by_method, evaluate, user_method
from stagekit.frontend.numbers import (
    OPERATORS,
    SYMBOLS,
    USUAL,
    default_dtype,
    describe_type,
    is_literal,
    is_numeric,
    meet,
)
from stagekit.frontend.parts import describe
from stagekit.frontend.texts import bounded_format
from stagekit.frontend.tracer import Frame
from stagekit.frontend.values import STAND_INS, Address, Array, Number, hint_of, holds_run_time, is_of_library
from stagekit.intrinsics import registry
from stagekit.ir import of_dtype


def trace_binary(frame: Frame, node: ast.BinOp) -> Any:
    left = EVALUATORS[type(node.left)](frame, node.left)  # what `evaluate` does: this is called most
    right = EVALUATORS[type(node.right)](frame, node.right)
    return binary(Site(frame, node), OPERATORS[type(node.op)].symbol, left, right)


def binary(site: Site, symbol: str, left: Any, right: Any) -> Any:
    """Return `left symbol right` for any two values."""
    kinds = {type(left), type(right)}
    if kinds <= USUAL:  # the commonest cases
        if Number in kinds and symbol not in ("**", "@"):
            site.at()
            return site.tracer.arithmetic.binary(symbol, left, right)
        if Number not in kinds and symbol not in _GROWS:
            return site.by_python(SYMBOLS[symbol].python, (left, right), NO_KEYWORDS)
    method = SYMBOLS[symbol].method
    answer = by_element(site, left, right, f"__{method}__", f"__r{method}__")
    if answer is not NotImplemented:
        return answer
    if is_literal(left) and is_literal(right):
        if symbol in _GROWS:
            _refuse_huge(site, symbol, left, right)
        return site.static(SYMBOLS[symbol].python, left, right)
    is_complex = not kinds.isdisjoint(COMPLEX)
    if is_complex:
        left, right = operands(left, right)
    site.at()
    if symbol != "@" and is_numeric(left) and is_numeric(right):
        return power(site, left, right) if symbol == "**" else site.tracer.arithmetic.binary(symbol, left, right)
    if isinstance(left, (Address, Array)) or isinstance(right, (Address, Array)):
        found = _pointer_arithmetic(site, symbol, left, right)
        if found is not None:
            return found
    if is_complex and are_apart(left, right):
        hint = "tiles and vectors hold real numbers: compute with the real and the imaginary parts"
        raise site.error(BadOperands(symbol, f"{describe(left)} and {describe(right)}", hint))
    answer = by_method(site, method, left, right)
    if answer is not NotImplemented:
        return answer
    if any(isinstance(each, STAND_INS) or is_of_library(each) for each in (left, right)):
        raise site.error(_refusal(symbol, left, right))
    if isinstance(left, str) and holds_run_time(right):
        raise site.needs_static("what is formatted into a string", right)
    if symbol == "*":
        _refuse_huge(site, symbol, left, right)
    if symbol == "%":
        site.static(bounded_format, left)
    found = site.static(SYMBOLS[symbol].python, left, right)
    return site.tracer.journal.born(found) if isinstance(found, (list, dict, set)) else found


_GROWS = frozenset({"*", "**", "<<"})
_MOST_BITS = 1 << 20
_MOST_ITEMS = 1 << 24


def _refuse_huge(site: Site, symbol: str, left: Any, right: Any) -> None:
    """Refuse integers and repeated sequences so large that Python would compute for hours or fill the memory."""
    if isinstance(right, (list, tuple, str, bytes)):
        left, right = right, left
    if not isinstance(right, int) or right < 2:
        return
    if isinstance(left, int):
        bits = int.bit_length(left)
        total = bits * right if symbol == "**" else bits + (right if symbol == "<<" else int.bit_length(right))
        stays_small = left in (0, 1, -1) and (symbol == "**" or left == 0)
        is_huge, what = total > _MOST_BITS and not stays_small, f"an integer of more than {_MOST_BITS} bits"
    elif isinstance(left, (list, tuple, str, bytes)):
        is_huge, what = len(left) * right > _MOST_ITEMS, f"more than {_MOST_ITEMS} items"
    else:
        return
    if is_huge:
        raise site.error(BadOperands(symbol, f"{describe(left)} and {describe(right)}", f"it would make {what}"))


def _refusal(symbol: str, left: Any, right: Any) -> BadOperands:
    hint = hint_of(left) or hint_of(right)
    if symbol == "@":
        hint = "the product of two matrices is `sk.dot(x, y)` of tiles, such as `x = sk.load(A.tile((row, k), (M, K)))`"
    elif isinstance(left, (list, tuple)) or isinstance(right, (list, tuple)):
        hint = "how many items a list has must be known; memory of a run-time size is an array argument"
    elif isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        hint = "index the array, or pass it to the kernel as an argument"
    elif isinstance(left, str) or isinstance(right, str):
        hint = "texts are known at compile time; show run-time numbers by an f-string in `print` or `assert`"
    return BadOperands(symbol, f"{describe(left)} and {describe(right)}", hint)


# The methods by which containers change in place.
_IN_PLACE: dict[str, dict[type, str]] = {
    "+": {list: "extend"},
    "*": {list: "__imul__"},
    "|": {dict: "update", set: "update"},
    "&": {set: "intersection_update"},
    "-": {set: "difference_update"},
    "^": {set: "symmetric_difference_update"},
}


def in_place(site: Site, symbol: str, left: Any, right: Any) -> Any:
    """Return what `left symbol= right` binds: a container changes in place, a user's object by its own in-place method; other
    values meet as in `left symbol right`.
    """
    if is_numeric(left):
        return binary(site, symbol, left, right)
    container = next((name for kind, name in _IN_PLACE.get(symbol, {}).items() if isinstance(left, kind)), None)
    if container is not None:
        if symbol == "*":
            _refuse_huge(site, symbol, left, right)
        site.invoke(objects.attribute(site, left, container), [right])
        return left
    method = user_method(site.tracer, left, f"__i{SYMBOLS[symbol].method}__")
    answer = NotImplemented if method is None else site.invoke(method, [left, right])
    return binary(site, symbol, left, right) if answer is NotImplemented else answer


def _pointer_arithmetic(site: Site, symbol: str, left: Any, right: Any) -> Any:
    """Return the sum of a pointer and an integer, or the difference of a pointer and either; None for anything else."""
    if symbol == "+" and is_numeric(left):
        left, right = right, left
    if symbol not in ("+", "-") or not isinstance(left, (Address, Array)):
        return None
    if (hint := arrays.the_number_in(left)) and is_numeric(right):
        raise site.error(BadOperands(symbol, f"{describe(left)} and {describe(right)}", hint))
    base = arrays.base_of(site, left)
    if symbol == "-" and isinstance(right, (Address, Array)):
        return arrays.distance(site, base, arrays.base_of(site, right))
    if not is_numeric(right):
        return None
    if isinstance(right, int | np.integer) and right == 0 and type(right) is not bool:  # as of tiles that begin at 0
        return base
    offset = arrays.index_value(site, right)
    steps = site.tracer.builder.neg(offset) if symbol == "-" else offset
    return Address(site.tracer.builder.offset(base.value, steps), base.start)


# -- one operand -------------------------------------------------------------------------------------------------------


def trace_unary(frame: Frame, node: ast.UnaryOp) -> Any:
    if isinstance(node.op, ast.Not):
        return negate_condition(frame.tracer, condition(frame, node.operand))
    return unary(Site(frame, node), type(node.op), evaluate(frame, node.operand))


def unary(site: Site, op: type[ast.unaryop], operand: Any) -> Any:
    """Return `-x`, `+x` or `~x` for any value."""
    site.at()
    if op is ast.Invert and is_numeric(operand) and (isinstance(operand, bool) or not is_literal(operand)):
        return site.tracer.arithmetic.invert(operand)
    if isinstance(operand, (Number, np.generic)) and is_numeric(operand):
        if op is ast.USub:
            return site.tracer.arithmetic.negate(operand)
        return site.tracer.arithmetic.binary("+", operand, 0) if default_dtype(operand) is dtypes.bool_ else operand
    name, python = UNARY[op]
    method = user_method(site.tracer, operand, name)
    if method is not None:
        return site.invoke(method, [operand])
    if isinstance(operand, STAND_INS) or is_of_library(operand):
        raise site.error(BadOperands(name, describe(operand), hint_of(operand)))
    return site.static(python, operand)


UNARY: dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]] = {
    ast.USub: ("__neg__", operator.neg),
    ast.UAdd: ("__pos__", operator.pos),
    ast.Invert: ("__invert__", operator.invert),
}


# -- powers ------------------------------------------------------------------------------------------------------------


def power(site: Site, base: Any, exponent: Any) -> Any:
    """Return `base ** exponent` of numbers that are not both literals."""
    if not default_dtype(base).is_float and not default_dtype(exponent).is_float:
        run = _integer_power if isinstance(exponent, Number) else _known_power
        return run(site, base, exponent)
    if default_dtype(base).is_float and type(exponent) in (bool, int, float) and exponent in (-1, 0, 1, 2, 3):
        found = _by_squaring(site, base, abs(int(exponent)))  # as near as `pow`, at a fraction of its cost
        return site.tracer.arithmetic.binary("/", 1.0, found) if exponent == -1 else found
    return site.invoke(registry.by_name("pow"), [base, exponent])


def _known_power(site: Site, base: Any, exponent: Any) -> Any:
    """Return an integer to a power known at compile time; a typed exponent widens the base as any operand does."""
    if exponent < 0:
        hint = "an integer has no negative power; make the base a float"
        raise site.error(BadOperands("**", f"{describe_type(base)} and a negative exponent, {exponent}", hint))
    if isinstance(exponent, np.generic) or default_dtype(base) is dtypes.bool_:
        base = site.tracer.arithmetic.convert(base, _integer_dtype(site, base, exponent)[0])
    return _by_squaring(site, base, int(exponent))


def _integer_dtype(site: Site, base: Any, exponent: Any) -> tuple[DType, bool]:
    dtype, is_weak = meet(base, exponent, site.loc)
    return (dtypes.int32 if dtype is dtypes.bool_ else dtype), is_weak


def _by_squaring(site: Site, base: Any, exponent: int) -> Any:
    arithmetic = site.tracer.arithmetic
    result: Any = None
    square = base
    while exponent:
        if exponent & 1:
            result = square if result is None else arithmetic.binary("*", result, square)
        exponent >>= 1
        if exponent:
            square = arithmetic.binary("*", square, square)
    if result is not None:
        return result
    dtype = default_dtype(base)
    if not isinstance(base, Number):
        return arithmetic.convert(1, dtype)
    one = site.tracer.builder.constant(1.0 if dtype.is_float else 1, of_dtype(dtype, base.value.type))
    return Number(one, base.is_weak)


def _integer_power(site: Site, base: Any, exponent: Number) -> Number:
    """Return an integer to a power that is known at run time: what `pow` gives."""
    dtype, is_weak = _integer_dtype(site, base, exponent)
    operands = site.tracer.arithmetic.pair(base, exponent, dtype)
    return Number(site.tracer.builder.call_one(registry.by_name("pow"), operands), is_weak)
