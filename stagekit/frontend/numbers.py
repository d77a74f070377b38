"""Arithmetic on what variables hold: Python literals, typed compile-time numbers (NumPy scalars), and run-time `Number`s.

Two operands *meet* in one dtype; literals (and weak numbers, which are made from literals) take the other operand's dtype.
Python itself computes with two literals. Two typed compile-time numbers fold through `ir/semantics.py`, the table that also
defines the run-time ops, so folding and running agree bit for bit.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import Loc, is_huge, shown
from stagekit.dtypes import DType, dtype_from_numpy, promote, true_divide_dtype
from stagekit.frontend.errors import BadOperands, LiteralRange, MixedPromotion, StagingError
from stagekit.frontend.values import Number
from stagekit.ir import BinaryKind, Builder, CompareKind, Scalar, Type, UnaryKind, Value, of_dtype, semantics

Literal = bool | int | float
Static = Any  # a NumPy scalar: a typed compile-time number
Numeric = Literal | np.generic | Number


class Operator(NamedTuple):
    """An operator of two operands.

    method: the name of the method by which a class answers it, without underscores. kind: its op on run-time numbers, None where
    it is composed of others.
    """

    symbol: str
    python: Callable[[Any, Any], Any]
    method: str
    kind: Any


OPERATORS: dict[type[ast.operator], Operator] = {
    ast.Add: Operator("+", operator.add, "add", BinaryKind.ADD),
    ast.Sub: Operator("-", operator.sub, "sub", BinaryKind.SUB),
    ast.Mult: Operator("*", operator.mul, "mul", BinaryKind.MUL),
    ast.Div: Operator("/", operator.truediv, "truediv", BinaryKind.DIV),
    ast.FloorDiv: Operator("//", operator.floordiv, "floordiv", BinaryKind.FLOORDIV),
    ast.Mod: Operator("%", operator.mod, "mod", BinaryKind.MOD),
    ast.Pow: Operator("**", operator.pow, "pow", None),
    ast.BitAnd: Operator("&", operator.and_, "and", BinaryKind.AND),
    ast.BitOr: Operator("|", operator.or_, "or", BinaryKind.OR),
    ast.BitXor: Operator("^", operator.xor, "xor", BinaryKind.XOR),
    ast.LShift: Operator("<<", operator.lshift, "lshift", BinaryKind.SHL),
    ast.RShift: Operator(">>", operator.rshift, "rshift", BinaryKind.SHR),
    ast.MatMult: Operator("@", operator.matmul, "matmul", None),
}
SYMBOLS = {each.symbol: each for each in OPERATORS.values()}

_INTEGER_ONLY = ("&", "|", "^", "<<", ">>")
_BOOL_TOO = ("&", "|", "^")

COMPARISONS: dict[type[ast.cmpop], tuple[str, CompareKind, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", CompareKind.EQ, operator.eq),
    ast.NotEq: ("!=", CompareKind.NE, operator.ne),
    ast.Lt: ("<", CompareKind.LT, operator.lt),
    ast.LtE: ("<=", CompareKind.LE, operator.le),
    ast.Gt: (">", CompareKind.GT, operator.gt),
    ast.GtE: (">=", CompareKind.GE, operator.ge),
}


def is_literal(value: Any) -> bool:
    """Return whether `value` is a Python number (an `IntEnum` member is one), which has no dtype of its own."""
    return isinstance(value, (int, float)) and not isinstance(value, np.generic)


def is_numeric(value: Any) -> bool:
    kind = type(value)  # `isinstance` would ask the object
    return kind in USUAL or (issubclass(kind, _NUMBERS) and not issubclass(kind, _NO_NUMBERS))


USUAL = frozenset({Number, bool, int, float})  # the types of most numbers
_NUMBERS = (Number, int, float, np.generic)
# NumPy scalars that are texts, times, records or complex.
_NO_NUMBERS = (np.flexible, np.datetime64, np.timedelta64, np.object_, np.complexfloating)


def standing(value: Numeric) -> tuple[DType, bool]:
    """Return the dtype of a number when nothing else decides, and whether it insists on it: literals and weak numbers do not.

    Literals are bool, int32 (int64 when they need it) or float64, which is rounded once, when it meets a dtype.
    """
    if type(value) is Number:
        return value.value.type.dtype, not value.is_weak
    if type(value) is float:
        return dtypes.float64, False
    if isinstance(value, np.generic):
        found = dtype_from_numpy(value.dtype)
        return (dtypes.float64, False) if found is None else (found, True)
    if isinstance(value, bool):
        return dtypes.bool_, False
    if isinstance(value, int):
        return dtypes.int32 if dtypes.int32.holds(value) else dtypes.int64, False
    return dtypes.float64, False


def default_dtype(value: Numeric) -> DType:
    return standing(value)[0]


def own_type(value: Any) -> Type:
    """Return the type of a value when nothing else decides."""
    return value.value.type if isinstance(value, Number) else Scalar(default_dtype(value))


def describe_type(value: Any) -> str:
    """Return how error texts name the type of a numeric value."""
    if isinstance(value, Number):
        return f"run-time {value.dtype.name}"
    if isinstance(value, np.generic):
        return default_dtype(value).name
    return f"{type(value).__name__} {shown(value)}"


def meet(left: Numeric, right: Numeric, loc: Loc) -> tuple[DType, bool]:
    """Return the dtype in which two operands meet, and whether the result stays weak."""
    a, b = standing(left), standing(right)
    return _met(*a, *b) or _refuse(a, b, loc)


def _refuse(a: tuple[DType, bool], b: tuple[DType, bool], loc: Loc) -> NoReturn:
    raise StagingError(MixedPromotion(left=a[0].name, right=b[0].name), loc)


@functools.cache
def _met(a: DType, a_insists: bool, b: DType, b_insists: bool) -> tuple[DType, bool] | None:
    """Return where two dtypes meet and whether the result stays weak; None where both insist and have no common one."""
    if a_insists != b_insists:
        strong, weak = (a, b) if a_insists else (b, a)
        if weak.is_float and not strong.is_float:
            return true_divide_dtype(strong), False
        return dtypes.int32 if strong is dtypes.bool_ and weak.is_integer else strong, False
    common = a if a is b else promote(a, b)
    return None if common is None and a_insists else (common or a, not a_insists)


@functools.cache
def _computed_in(symbol: str, a: DType, a_insists: bool, b: DType, b_insists: bool) -> tuple[DType, bool, str] | None:
    """Return the dtype in which operands are computed, whether the result is weak, and why they are not, or nothing; None where
    they do not meet.
    """
    found = _met(a, a_insists, b, b_insists)
    if found is None:
        return None
    met, is_weak = found
    dtype = met
    if symbol == "/":
        dtype = dtypes.float64 if is_weak else true_divide_dtype(met)
    elif met is dtypes.bool_ and symbol not in _BOOL_TOO:
        dtype = dtypes.int32
    is_bitwise = symbol in _INTEGER_ONLY
    if is_bitwise and dtype.is_float:
        return dtype, is_weak, "bit operations need integers"
    return dtype, is_weak, f"{dtype.name} is for storage: convert it" if dtype.is_storage_only else ""


def converted(value: Any, dtype: DType) -> Static:
    """Return `dtype(value)` of a number that is known, or of an array of them, an explicit conversion: integers wrap."""
    if is_literal(value):  # one of a user's class counts by its value alone
        return semantics.typed(int.__int__(value) if isinstance(value, int) else float.__float__(value), dtype)
    source = dtype_from_numpy(value.dtype)
    return semantics.typed(value, dtype) if source is None else semantics.cast(value, source, dtype)


def out_of_range(value: Literal | Static, dtype: DType) -> LiteralRange | None:
    """Return what is wrong where `dtype` cannot hold an integer literal; a float can, unless the literal is beyond all floats."""
    if not isinstance(value, int) or not (is_huge(value) if dtype.is_float else not dtype.holds(value)):
        return None
    return LiteralRange(value=shown(int(value)), dtype=dtype.name, low=str(dtype.min), high=str(dtype.max))


def _is_beyond(value: Numeric, dtype: DType) -> bool:
    """Return whether `value` is an integer literal that this integer dtype does not hold."""
    return isinstance(value, int) and dtype.is_integer and not dtype.holds(value)


_EXACT = 1 << 53  # every integer up to it is a float64


@functools.lru_cache(1024)
def _rounded(literal: str, dtype: DType) -> Any:
    """Return what a float dtype holds of a literal. Its text tells -0.0 from 0.0."""
    return semantics.round_to(float(literal), dtype)


_NOT = "write `not x`: Python takes a bool that is known for 0 or 1 here; `~x` of a run-time bool is its opposite"


class Arithmetic:
    """Operations on numeric values, building IR where a run-time value is involved."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    # -- conversion ---------------------------------------------------------------------------------------------

    def to_value(self, value: Numeric, dtype: DType) -> Value:
        """Return `value` as an IR value of `dtype`. An integer literal must fit; everything else converts as `Cast` does."""
        if isinstance(value, Number):
            operand = value.value
            return operand if operand.type.dtype is dtype else self.builder.cast(operand, dtype)
        if type(value) is int and dtype.is_integer and dtype.min <= value <= dtype.max:  # nearly all that are known
            return self.builder.constant(value, dtype)
        if dtype.is_float and (type(value) is float or (type(value) is int and -_EXACT <= value <= _EXACT)):
            return self.builder.constant(_rounded(repr(value), dtype), dtype)
        self._check_range(value, dtype)
        return self.builder.constant(self.payload(value, dtype), dtype)

    def _check_range(self, value: Literal | np.generic, dtype: DType) -> None:
        if problem := out_of_range(value, dtype):
            raise StagingError(problem, self.builder.loc)

    def payload(self, value: Literal | np.generic, dtype: DType) -> Literal:
        """Convert a compile-time number to what a `Constant` of `dtype` holds."""
        if isinstance(value, np.generic):
            source = dtype_from_numpy(value.dtype)
            if source is not None:
                return semantics.to_python(semantics.cast(value, source, dtype), dtype)
            value = value.item()
        return semantics.round_to(value, dtype)

    def convert(self, value: Numeric, dtype: DType) -> Number | Static:
        """Return `dtype(value)`, an explicit conversion: integers wrap."""
        if isinstance(value, Number):
            return Number(self.builder.cast(value.value, dtype))
        return converted(value, dtype)

    def number(self, value: Numeric) -> Number:
        """Return a numeric value as a run-time one, in its own or default dtype."""
        if isinstance(value, Number):
            return value
        dtype = default_dtype(value)
        return Number(self.to_value(value, dtype), is_weak=is_literal(value))

    # -- operators ----------------------------------------------------------------------------------------------

    def operand_dtype(self, symbol: str, left: Numeric, right: Numeric) -> tuple[DType, bool]:
        """Return the dtype in which `left symbol right` is computed, and whether the result is weak."""
        a, b = standing(left), standing(right)
        dtype, is_weak, hint = _computed_in(symbol, *a, *b) or _refuse(a, b, self.builder.loc)
        if hint:
            what = f"{describe_type(left)} and {describe_type(right)}"
            raise StagingError(BadOperands(symbol, what, hint), self.builder.loc)
        return dtype, is_weak

    def binary(self, symbol: str, left: Numeric, right: Numeric) -> Number | Static:
        """Return `left symbol right` for numbers of which at least one is not a literal."""
        dtype, is_weak = self.operand_dtype(symbol, left, right)
        kind = SYMBOLS[symbol].kind
        if not isinstance(left, Number) and not isinstance(right, Number):
            return semantics.binary(kind, dtype, self._static(left, dtype), self._static(right, dtype))
        return Number(self.builder.binary(kind, *self.pair(left, right, dtype)), is_weak)

    def _static(self, value: Literal | np.generic, dtype: DType) -> Static:
        self._check_range(value, dtype)
        return semantics.typed(self.payload(value, dtype), dtype)

    def compare(self, op: type[ast.cmpop], left: Numeric, right: Numeric) -> Number | Static:
        """Compare numbers of which at least one is not a literal. An integer literal may be beyond the dtype of the other."""
        _, kind, python = COMPARISONS[op]
        dtype, _ = meet(left, right, self.builder.loc)
        if _is_beyond(left, dtype):
            return self._decided(python(left, 0), right)
        if _is_beyond(right, dtype):
            return self._decided(python(0, right), left)
        if not isinstance(left, Number) and not isinstance(right, Number):
            return semantics.compare(kind, dtype, self._static(left, dtype), self._static(right, dtype))
        return Number(self.builder.compare(kind, *self.pair(left, right, dtype)))

    def _decided(self, outcome: bool, other: Numeric) -> Number | Static:
        """Return the outcome of a comparison with `other` that is the same for all its values."""
        if not isinstance(other, Number):
            return np.bool_(outcome)
        return Number(self.builder.constant(bool(outcome), of_dtype(dtypes.bool_, other.value.type)))

    def negate(self, operand: Number | np.generic) -> Number | Static:
        dtype = default_dtype(operand)
        if dtype is dtypes.bool_:
            dtype = dtypes.int32
        if isinstance(operand, Number):
            value = self.to_value(operand, dtype)
            return Number(self.builder.neg(value), operand.is_weak)
        return semantics.unary(UnaryKind.NEG, dtype, semantics.cast(operand, default_dtype(operand), dtype))

    def invert(self, operand: Numeric) -> Number | Static:
        """Return `~x`: bitwise on integers, logical on typed bools. A Python bool is refused, since Python answers -1 or -2."""
        dtype = default_dtype(operand)
        if dtype.is_float or isinstance(operand, bool):
            hint = _NOT if isinstance(operand, bool) else "bit operations need integers"
            raise StagingError(BadOperands("~", describe_type(operand), hint), self.builder.loc)
        if isinstance(operand, Number):
            return Number(self.builder.not_(operand.value), operand.is_weak)
        assert isinstance(operand, np.generic)
        return semantics.unary(UnaryKind.NOT, dtype, operand)

    def truth(self, operand: Number) -> Value:
        """Return the truth of a number as a bool value; NaN is true, as in Python."""
        return self.builder.cast(operand.value, dtypes.bool_)

    def select(self, condition: Value, if_true: Numeric, if_false: Numeric) -> Number:
        dtype, is_weak = meet(if_true, if_false, self.builder.loc)
        chosen = self.pair(if_true, if_false, dtype)
        return Number(self.builder.select(*self.builder.broadcast(condition, *chosen)), is_weak)

    def pair(self, left: Numeric, right: Numeric, dtype: DType) -> tuple[Value, ...]:
        """Return both operands in `dtype`, with the same number of lanes."""
        a, b = self.to_value(left, dtype), self.to_value(right, dtype)
        return (a, b) if a.type is b.type else self.builder.broadcast(a, b)
