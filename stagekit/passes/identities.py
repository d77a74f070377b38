"""Which ops on integers and bools change nothing, as tables; `fold.py` applies them.

    beside_constant(MUL, int32, 1)     ->  LEFT         x * 1 is x
    beside_constant(AND, int32, 0)     ->  0            x & 0 is 0
    beside_constant(ADD, int32, 5)     ->  None         no identity

No rule for floats: `x + 0.0` is not `x` for -0.0, nor `x * 1.0` for a NaN with a payload.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from stagekit.dtypes import DType, bool_, float32, float64
from stagekit.ir import BinaryKind, CompareKind
from stagekit.ir.ops import Cast, Compare
from stagekit.passes.legalize import is_legal_cast

_K, _C = BinaryKind, CompareKind


class Same(Enum):
    """The result is the other operand."""

    LEFT = "left"


LEFT = Same.LEFT
Identity = Same | bool | int | None
"""The result of an op: its left operand, a constant, or None where no rule says."""

_ZERO, _ONE, _ONES = "0", "1", "all bits"

# (kind, constant on the right) -> the result
_RIGHT: dict[tuple[BinaryKind, str], Same | str] = {
    (_K.ADD, _ZERO): LEFT,
    (_K.SUB, _ZERO): LEFT,
    (_K.MUL, _ZERO): _ZERO,
    (_K.MUL, _ONE): LEFT,
    (_K.FLOORDIV, _ZERO): _ZERO,
    (_K.FLOORDIV, _ONE): LEFT,
    (_K.MOD, _ZERO): _ZERO,
    (_K.MOD, _ONE): _ZERO,
    (_K.AND, _ZERO): _ZERO,
    (_K.AND, _ONES): LEFT,
    (_K.OR, _ZERO): LEFT,
    (_K.OR, _ONES): _ONES,
    (_K.XOR, _ZERO): LEFT,
    (_K.SHL, _ZERO): LEFT,
    (_K.SHR, _ZERO): LEFT,
}
COMMUTATIVE = frozenset({_K.ADD, _K.MUL, _K.AND, _K.OR, _K.XOR})
_ZERO_STAYS_ZERO = frozenset({_K.FLOORDIV, _K.MOD, _K.SHL, _K.SHR})
_EQUAL: dict[BinaryKind, Same | str] = {_K.SUB: _ZERO, _K.XOR: _ZERO, _K.MOD: _ZERO, _K.AND: LEFT, _K.OR: LEFT}

TRUE_OF_EQUALS = frozenset({_C.EQ, _C.LE, _C.GE})
_OPPOSITE_OF_FLOATS = frozenset({_C.EQ, _C.NE})  # with a NaN, `<` and `>=` are both false


def beside_constant(kind: BinaryKind, dtype: DType, constant: Any) -> Identity:
    """`x kind constant`."""
    return _result(_RIGHT.get((kind, _name(constant, dtype))), dtype)


def after_zero(kind: BinaryKind) -> Identity:
    """`0 kind x`, for a kind that does not commute: LEFT is that 0."""
    return LEFT if kind in _ZERO_STAYS_ZERO else None


def of_equals(kind: BinaryKind, dtype: DType) -> Identity:
    """`x kind x`."""
    return _result(_EQUAL.get(kind), dtype)


def beside_limit(extreme: str | None, dtype: DType, constant: Any) -> Identity:
    """`minimum(x, constant)` and its like, of integers: the constant at one end of the dtype, x at the other."""
    if extreme is None or not dtype.is_integer:
        return None
    decides, yields = (dtype.min, dtype.max) if extreme == "min" else (dtype.max, dtype.min)
    return decides if constant == decides else LEFT if constant == yields else None


def _name(constant: Any, dtype: DType) -> str:
    """What the tables call this number; a bool has all bits set, not 1."""
    if constant == 0:
        return _ZERO
    if constant == _ones(dtype):
        return _ONES
    return _ONE if constant == 1 else ""


def _ones(dtype: DType) -> int:
    """The number whose bits are all set."""
    return -1 if dtype.is_signed else dtype.max


def _result(rule: Same | str | None, dtype: DType) -> Identity:
    if rule is None or isinstance(rule, Same):
        return rule
    value = 0 if rule == _ZERO else _ones(dtype)
    return bool(value) if dtype is bool_ else value


# -- comparisons and casts --------------------------------------------------------------------------------------------


def has_opposite(op: Compare) -> bool:
    """Is `not op` a comparison too?"""
    return not op.lhs.type.dtype.is_float or op.kind in _OPPOSITE_OF_FLOATS


def needs_no_step(first: Cast, target: DType) -> bool:
    """Does casting directly to `target` give the same as through the result of `first`?"""
    source, middle = first.operand.type.dtype, first.result.type.dtype
    if source is target:
        return _keeps_value(source, middle)
    if not is_legal_cast(source, target):
        return False
    if source.is_float or not target.is_integer:
        return _keeps_value(source, middle)
    # Integers wrap, and from a float they saturate.
    return middle.is_integer and (target.bits <= middle.bits or _keeps_value(source, middle))


def _keeps_value(source: DType, target: DType) -> bool:
    """Does every value of `source` survive a cast to `target`?"""
    if source.is_float:
        return target.is_float and (source is target or (source.bits < 32 <= target.bits) or target is float64)
    if target.is_float:
        return source.bits <= {float32: 24, float64: 53}.get(target, 0)
    return target.holds(source.min) and target.holds(source.max)
