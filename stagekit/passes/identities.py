"""Which ops on integers and bools change nothing, as tables; `fold.py` applies them.

    beside_constant(MUL, int32, 1)     ->  LEFT         x * 1 is x
    beside_constant(AND, int32, 0)     ->  0            x & 0 is 0
    beside_constant(ADD, int32, 5)     ->  None         no identity

No rule for floats: `x + 0.0` is not `x` for -0.0, nor `x * 1.0` for a NaN with a payload.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, cast

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

_ALL_BITS = -1  # in the tables, of any dtype

_NEUTRAL = {  # `x kind this` is x
    **dict.fromkeys((_K.ADD, _K.SUB, _K.OR, _K.XOR, _K.SHL, _K.SHR), 0),
    _K.MUL: 1,
    _K.FLOORDIV: 1,
    _K.AND: _ALL_BITS,
}
_ABSORBING = {_K.MUL: 0, _K.FLOORDIV: 0, _K.MOD: 0, _K.AND: 0, _K.OR: _ALL_BITS}  # `x kind this` is this
COMMUTATIVE = frozenset({_K.ADD, _K.MUL, _K.AND, _K.OR, _K.XOR})
_ZERO_STAYS_ZERO = frozenset({_K.FLOORDIV, _K.MOD, _K.SHL, _K.SHR})

TRUE_OF_EQUALS = frozenset({_C.EQ, _C.LE, _C.GE})
_OPPOSITE_OF_FLOATS = frozenset({_C.EQ, _C.NE})  # with a NaN, `<` and `>=` are both false


def beside_constant(kind: BinaryKind, dtype: DType, constant: Any) -> Identity:
    """`x kind constant`."""
    number = (
        _ALL_BITS if constant == (-1 if dtype.is_signed else dtype.max) else constant
    )  # also of a bool, of which 1 is True
    if number == _NEUTRAL.get(kind):
        return LEFT
    if number == _ABSORBING.get(kind):
        return cast("bool | int", constant)
    return 0 if kind is _K.MOD and number == 1 else None


def after_zero(kind: BinaryKind) -> Identity:
    """`0 kind x`, for a kind that does not commute: LEFT is that 0."""
    return LEFT if kind in _ZERO_STAYS_ZERO else None


def of_equals(kind: BinaryKind, dtype: DType) -> Identity:
    """`x kind x`."""
    if kind in (_K.AND, _K.OR):
        return LEFT
    zero = False if dtype is bool_ else 0
    return zero if kind in (_K.SUB, _K.XOR, _K.MOD) else None


def beside_limit(extreme: str | None, dtype: DType, constant: Any) -> Identity:
    """`minimum(x, constant)` and its like, of integers: the constant at one end of the dtype, x at the other."""
    if extreme is None or not dtype.is_integer:
        return None
    decides, yields = (dtype.min, dtype.max) if extreme == "min" else (dtype.max, dtype.min)
    return decides if constant == decides else LEFT if constant == yields else None


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
