"""What the language promises of numbers, as far as random programs need it: the types that operands meet in, and what they hold.

A `Number` is an expression with the interval of its values, the grid they lie on, and every type it may have: that differs
between stages and between the paths that lead to it. An operation is *exact* if its result, and each operand once converted, is
held by every type that it may be done in. CPython's unbounded numbers then are the right answer whatever the types. What is not
exact (it would wrap, round, or be refused) is not drawn.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64")
NAMES = ("int", "float", "bool", *_INTS, *_FLOATS)  # the first three are Python's own, which adapt
_BITS = {name: int(name.lstrip("uintfloa")) for name in (*_INTS, *_FLOATS)}
_DIGITS = {"float16": 11, "float32": 24, "float64": 53, "float": 53}

Types = int  # a set of names, one bit each


@functools.cache
def types(*names: str) -> Types:
    return sum(1 << NAMES.index(name) for name in names)


def names_of(some: Types) -> list[str]:
    return [name for i, name in enumerate(NAMES) if some >> i & 1]


SIGNED = types("int", "int8", "int16", "int32", "int64")
NARROW_UNSIGNED = types("int", "uint8", "uint16", "uint32")
UNSIGNED = NARROW_UNSIGNED | types("uint64")
INTEGERS = SIGNED | NARROW_UNSIGNED  # any two of them meet
FLOATS = types("float", *_FLOATS)
BOOL = types("bool")
WIDE = types("int", "int32", "int64")  # what `int(x)` gives of a number of up to 32 bits
WIDE_FLOATS = types("float", "float32", "float64")  # what `float(x)` gives


class Number(NamedTuple):
    """An expression. low, high: of its values, which are multiples of `step`, a power of two. types: those it may have."""

    text: str
    low: float
    high: float
    types: Types
    step: float = 1

    @property
    def is_integer(self) -> bool:
        return not self.types & FLOATS

    def named(self, text: str) -> Number:
        return self._replace(text=text)

    def fits(self, spec: Number) -> bool:
        """Is every value, in every type, one that `spec` allows?"""
        return self.is_within(spec) and not self.types & ~spec.types

    def is_within(self, spec: Number) -> bool:
        return spec.low <= self.low and self.high <= spec.high and self.step >= spec.step


def literal(value: float) -> Number:
    step = 1.0
    while value % step:
        step /= 2
    return Number(repr(value), value, value, types("float" if isinstance(value, float) else "int"), step)


@functools.cache
def held(low: float, high: float, step: float) -> Types:
    """The types that hold every value of an interval exactly."""
    return types(*(name for name in NAMES if _holds(name, low, high, step)))


def _holds(name: str, low: float, high: float, step: float) -> bool:
    if name in _DIGITS:
        return bool(max(-low, high) / step <= 2 ** _DIGITS[name])
    if name == "bool":
        return low >= 0 and high <= 1 and step == 1
    least, most = _interval(name)
    return step >= 1 and least <= low and high <= most


def _interval(name: str) -> tuple[int, int]:
    bits = _BITS.get(name, 32)  # a Python int that is known at run time only is an int32 until it meets a dtype
    return (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def interval(name: str) -> tuple[int, int]:
    """What an argument of an integer type may be, well inside of what a float64 holds."""
    least, most = _interval(name)
    return max(least, -(10**12)), min(most, 10**12)


# -- two types meet ---------------------------------------------------------------------------------------------------


@functools.cache
def met(left: Types, right: Types) -> Types | None:
    """The types in which two operands may meet; None where some pair does not."""
    found = 0
    for a, b in itertools.product(names_of(left), names_of(right)):
        pair = _meet(a, b)
        if pair is None:
            return None
        found |= types(*pair)
    return found


def _meet(a: str, b: str) -> tuple[str, ...] | None:
    if "bool" in (a, b):
        other = b if a == "bool" else a
        return ("int", "int32") if other in ("bool", "int") else None if "float" in other else (other,)
    if a == b or b == "int":
        return (a,)
    if a == "int":
        return (b,)
    if "float" in (a, b):
        other = b if a == "float" else a
        return (other,) if "float" in other else ("float32" if _BITS[other] <= 32 else "float64",)
    if "float" in a or "float" in b:
        return (max((n for n in (a, b) if "float" in n), key=_BITS.__getitem__),)
    if a[0] == b[0]:
        return (max(a, b, key=_BITS.__getitem__),)
    signed, unsigned = (b, a) if a[0] == "u" else (a, b)
    bits = max(_BITS[signed], 2 * _BITS[unsigned])
    return (f"int{bits}",) if bits <= 64 else None


def paths(numbers: Iterable[Number]) -> Number | None:
    """What a variable is that holds one of them: paths meet by value."""
    some = list(numbers)
    low, high, step = min(n.low for n in some), max(n.high for n in some), min(n.step for n in some)
    joined = functools.reduce(lambda a, b: a | b, (n.types for n in some))
    if len({bool(n.types & FLOATS) for n in some}) > 1 or (joined & BOOL and joined != BOOL):
        return None
    if joined & types("uint64") and (joined & ~UNSIGNED or low < 0):
        return None
    if joined & types("int") and (low < -128 or high > 127):
        joined |= types("int32")
    return Number("", low, high, closed(joined), step)


@functools.cache
def closed(some: Types) -> Types:
    """With all types that any of them meet in."""
    found = some
    while (more := found | (met(found, found) or 0)) != found:
        found = more
    return found


# -- operators --------------------------------------------------------------------------------------------------------

BITWISE = ("&", "|", "^")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def binary(operator: str, x: Number, y: Number) -> Number | None:
    """`x operator y` where that is exact."""
    common = _common(x, y)
    if common is None:
        return None
    text = f"({x.text} {operator} {y.text})"
    if operator in COMPARISONS:
        return Number(text, 0, 1, BOOL)
    if operator == "/":
        return _divided(text, x, y, common)
    if x.is_integer and y.is_integer:
        spread = _integer_interval(operator, x, y)
        return spread and _exact(Number(text, *spread, common))
    spread_step = _float_interval(operator, x, y)
    return spread_step and _exact(Number(text, *spread_step[:2], common, spread_step[2]))


def _common(x: Number, y: Number) -> Types | None:
    """The types that the operands meet in, if these hold the operands."""
    return _meeting(x.types, y.types, held(x.low, x.high, x.step) & held(y.low, y.high, y.step))


@functools.cache
def _meeting(left: Types, right: Types, kept: Types) -> Types | None:
    found = met(left, right)
    return found if found is not None and not found & ~kept else None


def _exact(number: Number) -> Number | None:
    return None if number.types & ~held(number.low, number.high, number.step) else number


def _integer_interval(operator: str, x: Number, y: Number) -> tuple[float, float] | None:
    if operator in BITWISE:
        return _bits(operator, x, y)
    if operator in ("//", "%", "<<", ">>", "**") and not _is_plain(operator, y):
        return None
    ends = list(itertools.product((x.low, x.high), (y.low, y.high)))
    if operator == "%":
        return (0, y.high - 1) if y.low > 0 else (y.low + 1, 0)
    if operator == "**":
        most = max(-x.low, x.high, 1) ** y.high
        return (-most if x.low < 0 else 0), most
    results = [_APPLY[operator](int(a), int(b)) for a, b in ends]
    return min(results), max(results)


def _is_plain(operator: str, y: Number) -> bool:
    """A divisor is one number, not 0; an amount or exponent is small."""
    return y.low == y.high != 0 if operator in ("//", "%") else y.low >= 0 and y.high <= 7


_APPLY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}


def _bits(operator: str, x: Number, y: Number) -> tuple[float, float]:
    if operator == "&" and (x.low >= 0 or y.low >= 0):
        return 0, min(n.high for n in (x, y) if n.low >= 0)
    most = 2 ** int(max(-x.low, x.high + 1, -y.low, y.high + 1) - 0.5).bit_length()
    return (0 if x.low >= 0 and y.low >= 0 else -most), most - 1


def _float_interval(operator: str, x: Number, y: Number) -> tuple[float, float, float] | None:
    step = min(x.step, y.step)
    if operator in ("+", "-", "*"):
        results = [_APPLY[operator](a, b) for a, b in itertools.product((x.low, x.high), (y.low, y.high))]
        return min(results), max(results), (x.step * y.step if operator == "*" else step)
    if operator not in ("//", "%") or not (y.low == y.high > 0):
        return None
    return (0, y.high - step, step) if operator == "%" else (x.low // y.low, x.high // y.low, 1)


def _divided(text: str, x: Number, y: Number, common: Types) -> Number | None:
    """By a power of two, which is exact."""
    if y.low != y.high or y.low <= 0 or math.frexp(y.low)[0] != 0.5:
        return None
    made = common & FLOATS
    made |= types("float") if common & types("int") else 0
    made |= types("float32") if common & types("int8", "int16", "int32", "uint8", "uint16", "uint32") else 0
    made |= types("float64") if common & types("int64", "uint64") else 0
    whole = Number(text, x.low, x.high, made, x.step)
    return _exact(whole) and _exact(Number(text, x.low / y.low, x.high / y.low, made, x.step / y.low))


def negated(x: Number) -> Number | None:
    return (
        None
        if x.types & (UNSIGNED & ~types("int"))
        else _exact(Number(f"(-{x.text})", -x.high, -x.low, x.types, x.step))
    )


def inverted(x: Number) -> Number | None:
    return (
        None
        if x.types & (UNSIGNED & ~types("int")) or not x.is_integer
        else Number(f"(~{x.text})", -x.high - 1, -x.low - 1, x.types)
    )


def absolute(x: Number) -> Number | None:
    """None where it may be the smallest integer of a type, whose magnitude the type does not hold."""
    low = 0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return _exact(Number(f"abs({x.text})", low, max(-x.low, x.high), x.types, x.step))


def extremum(name: str, items: list[Number]) -> Number | None:
    """`min` or `max`: one of the items, in the type that they meet in."""
    common = 0
    for x, y in itertools.pairwise(items):
        if _common(x, y) is None:
            return None
    common = functools.reduce(lambda a, b: a | b, (x.types for x in items))
    choose = min if name == "min" else max
    text = f"{name}({', '.join(x.text for x in items)})"
    made = Number(
        text, choose(x.low for x in items), choose(x.high for x in items), closed(common), min(x.step for x in items)
    )
    return _exact(made)


# -- conversions ------------------------------------------------------------------------------------------------------


def as_int(x: Number) -> Number:
    """`int(x)`, which is int32 or wider at run time. It cuts fractions off."""
    made = WIDE | (x.types & types("uint64"))
    if not held(x.low, x.high, 1) & types("int32"):
        return converted(x, "int64") or literal(0)
    return Number(
        f"int({x.text})",
        math.ceil(x.low) if x.low < 0 else x.low // 1,
        x.high // 1 if x.high > 0 else math.ceil(x.high),
        made,
    )


def as_float(x: Number) -> Number | None:
    return _exact(Number(f"float({x.text})", x.low, x.high, WIDE_FLOATS, x.step))


def converted(x: Number, name: str) -> Number | None:
    """`sk.int16(x)`."""
    return _exact(Number(f"sk.{name}({x.text})", x.low, x.high, types(name), x.step))


def typed_names(some: Types) -> Iterator[str]:
    return (name for name in names_of(some) if name not in ("int", "float", "bool"))
