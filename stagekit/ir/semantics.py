"""What arithmetic means: the one set of tables that folding, the interpreter, the front end and the tests all read.

In: NumPy arrays or scalars of `dtype.numpy`, any shape, lane by lane. Out: the same kind, of the result's dtype.
No value warns or raises; `docs/arithmetic.md` shows every edge case, computed by this module.

    binary(BinaryKind.FLOORDIV, int32, np.int32(-7), np.int32(2))    ->  np.int32(-4)
    cast(np.float32(3e9), float32, int32)                            ->  np.int32(2147483647)

float16 and bfloat16 arithmetic is one float32 operation, rounded back: for + - * / that equals rounding the exact
result once, as 24 bits are at least 2 * 11 + 2 (Figueroa, "When is double rounding innocuous?", 1995).
Sources: IEEE 754-2019 for floats; NumPy 2 for `//` and `%` of floats (`npy_divmod`); `ml_dtypes` for bfloat16 and float8.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from stagekit.dtypes import DType, bool_, float16, float32, float64, number_as, rounded
from stagekit.ir.ops import BinaryKind, CompareKind, UnaryKind

Array = np.ndarray[Any, np.dtype[Any]]
Number = bool | int | float

# Figueroa's bound holds for two formats at once only if the wide one has 2p + 2 bits: true for these in float32.
_THROUGH_FLOAT32_BITS = 16


def binary(kind: BinaryKind, dtype: DType, a: Any, b: Any) -> Any:
    """Return `a kind b` for operands of `dtype`."""
    return _apply(BINARY[kind], dtype, a, b)


def unary(kind: UnaryKind, dtype: DType, a: Any) -> Any:
    """Return `kind a` for an operand of `dtype`."""
    return _apply(UNARY[kind], dtype, a)


def compare(kind: CompareKind, dtype: DType, a: Any, b: Any) -> Any:
    """Return `a kind b` as bool for operands of `dtype`."""
    return _same_kind(_quietly(COMPARE[kind], *(_wide(np.asarray(x), dtype) for x in (a, b))), a, b)


def cast(value: Any, source: DType, target: DType) -> Any:
    """Convert `value` from dtype `source` to `target`, rounded at most once."""
    array = np.asarray(value)
    if source is target:
        return value
    return _same_kind(_quietly(CAST[target.kind], array, source, target), value)


def round_to(value: Any, dtype: DType) -> Number:
    """Return the Python number that `dtype` has for `value`: what `cast` would give if it could read the exact number.

    Floats round to nearest even and may become infinite; an integer dtype wraps an int and saturates a float.
    """
    if type(value) is int and dtype.is_integer:
        return dtype.wrap(value)
    is_double = type(value) is float or (type(value) is int and abs(value) <= 1 << 53)
    if is_double and not dtype.is_in_numpy:
        return dtype.layout.nearest(float(value))
    code = _STRUCT_CODES.get(dtype) if is_double else None
    if code is None:
        return to_python(typed(value, dtype), dtype)
    try:
        return float(struct.unpack(code, struct.pack(code, float(value)))[0])
    except OverflowError:  # finite, and beyond the format
        return math.copysign(math.inf, value)


_STRUCT_CODES = {float16: "e", float32: "f", float64: "d"}  # the formats that `struct` rounds, much faster than NumPy


def typed(value: Any, dtype: DType) -> Any:
    """Return a Python or NumPy number as a NumPy scalar of `dtype`, by the rule of `round_to`."""
    if isinstance(value, int | np.integer | np.bool_):
        return _integer_as(int(value), dtype)
    return cast(np.float64(value), float64, dtype)


def to_python(value: Any, dtype: DType) -> Number:
    """Return the Python number that equals a NumPy scalar of `dtype`."""
    return _PYTHON_TYPES[dtype.kind](value)


_PYTHON_TYPES: dict[str, Callable[[Any], Number]] = {"bool": bool, "int": int, "uint": int, "float": float}


# -- calling a row ----------------------------------------------------------------------------------------------------


def _quietly(row: Callable[..., Any], *args: Any) -> Any:
    with np.errstate(all="ignore"):
        return row(*args)


def _same_kind(result: Any, *given: Any) -> Any:
    """Return `result` as an array where an array was given, else as a scalar."""
    return np.asarray(result) if any(isinstance(x, np.ndarray) for x in given) else np.asarray(result)[()]


def _apply(row: Callable[..., Any], dtype: DType, *operands: Any) -> Any:
    wide = [_wide(np.asarray(x), dtype) for x in operands]
    result = np.asarray(_quietly(row, *wide))
    return _same_kind(_quietly(result.astype, dtype.numpy, "K", "unsafe", True, False), *operands)


def _wide(array: Array, dtype: DType) -> Array:
    """Convert to the dtype in which `dtype` computes: float32 for every float of 16 bits or fewer."""
    narrow = dtype.is_float and dtype.bits <= _THROUGH_FLOAT32_BITS
    return array.astype(np.float32) if narrow else array


# -- binary, unary, compare -------------------------------------------------------------------------------------------


def _is_too_far(amount: Array) -> Array:
    """Return whether a shift amount, read as unsigned, is at least the width."""
    width = amount.dtype.itemsize * 8
    return np.asarray((amount < 0) | (amount >= width))


def _shift_left(a: Array, amount: Array) -> Array:
    too_far = _is_too_far(amount)
    return np.where(too_far, np.zeros_like(a), np.left_shift(a, np.where(too_far, np.zeros_like(amount), amount)))


def _shift_right(a: Array, amount: Array) -> Array:
    """Shift arithmetically where the dtype is signed; by the width or more, only the sign is left, or 0."""
    too_far = _is_too_far(amount)
    near = np.right_shift(a, np.where(too_far, np.zeros_like(amount), amount))
    return np.where(too_far, np.where(a < 0, ~np.zeros_like(a), np.zeros_like(a)), near)


BINARY: dict[BinaryKind, Callable[[Any, Any], Any]] = {
    BinaryKind.ADD: np.add,
    BinaryKind.SUB: np.subtract,
    BinaryKind.MUL: np.multiply,
    BinaryKind.DIV: np.divide,
    BinaryKind.FLOORDIV: np.floor_divide,  # NumPy: x // 0 == 0 and INT_MIN // -1 == INT_MIN for integers
    BinaryKind.MOD: np.remainder,  # NumPy: x % 0 == 0 for integers
    BinaryKind.AND: np.bitwise_and,
    BinaryKind.OR: np.bitwise_or,
    BinaryKind.XOR: np.bitwise_xor,
    BinaryKind.SHL: _shift_left,
    BinaryKind.SHR: _shift_right,
}

UNARY: dict[UnaryKind, Callable[[Any], Any]] = {
    UnaryKind.NEG: np.negative,
    UnaryKind.NOT: np.invert,  # logical on bool
}

COMPARE: dict[CompareKind, Callable[[Any, Any], Any]] = {
    CompareKind.EQ: np.equal,
    CompareKind.NE: np.not_equal,
    CompareKind.LT: np.less,
    CompareKind.LE: np.less_equal,
    CompareKind.GT: np.greater,
    CompareKind.GE: np.greater_equal,
}


# -- casts ------------------------------------------------------------------------------------------------------------


def _to_integer(value: Array, source: DType, target: DType) -> Array:
    """Take the low bits of an integer or bool, extended by the *source's* sign; of a float, truncate and clamp, NaN to 0."""
    if not source.is_float:
        return value.astype(target.numpy)
    exact = value.astype(np.float64)
    too_high = exact >= 2.0 ** target.max.bit_length()  # the first float64 above the range; `max` may not be one
    too_low = exact < float(target.min)
    inside = np.where(too_high | too_low | np.isnan(exact), 0.0, exact)
    carrier = np.int64 if target.is_signed else np.uint64
    limited = np.trunc(inside).astype(carrier).astype(target.numpy)
    return np.where(too_high, target.numpy.type(target.max), np.where(too_low, target.numpy.type(target.min), limited))


CAST: dict[str, Callable[[Array, DType, DType], Array]] = {
    "bool": lambda value, source, target: np.asarray(_wide(value, source) != 0),
    "int": _to_integer,
    "uint": _to_integer,
    "float": lambda value, source, target: rounded(_wide(value, source), target.numpy),
}
"""By the kind of the target, the cast of an array from another dtype: `CAST[target.kind](array, source, target)`."""


# -- exact Python numbers ---------------------------------------------------------------------------------------------


def _integer_as(value: int, dtype: DType) -> Any:
    if dtype is bool_:
        return np.bool_(value != 0)
    if dtype.is_integer:
        return dtype.numpy.type(dtype.wrap(value))
    return number_as(value, dtype.numpy)


__all__ = ["BINARY", "CAST", "COMPARE", "UNARY", "binary", "cast", "compare", "round_to", "to_python", "typed", "unary"]
