"""Which ops on integers and bools have a result that is known, as tables; `fold.py` applies them.

    with_constant(MUL, int32, 1)     ->  SAME         x * 1 is x
    with_constant(AND, int32, 0)     ->  0            x & 0 is 0
    with_constant(ADD, int32, 5)     ->  None         no identity

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
    """The result is the operand `x` that the rule speaks of."""

    SAME = "same"


SAME = Same.SAME
Identity = Same | bool | int | None
"""The result of an op: its operand, a constant, or None where there is no identity."""

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

_OF_LEAST, _OF_LARGEST = {_C.GE: True, _C.LT: False}, {_C.LE: True, _C.GT: False}
TRUE_OF_EQUALS = frozenset({_C.EQ, _C.LE, _C.GE})
_OPPOSITE_OF_FLOATS = frozenset({_C.EQ, _C.NE})  # with a NaN, `<` and `>=` are both false


def with_constant(kind: BinaryKind, dtype: DType, constant: Any) -> Identity:
    """Return what `x kind constant` is."""
    has_all_bits = constant == (-1 if dtype.is_signed else dtype.max)  # also of a bool, of which 1 is True
    number = _ALL_BITS if has_all_bits else constant
    if number == _NEUTRAL.get(kind):
        return SAME
    if number == _ABSORBING.get(kind):
        return cast("bool | int", constant)
    return 0 if kind is _K.MOD and number == 1 else None


def of_zero(kind: BinaryKind) -> Identity:
    """Return what `0 kind x` is, for a kind that does not commute: SAME is that 0."""
    return SAME if kind in _ZERO_STAYS_ZERO else None


def of_equals(kind: BinaryKind, dtype: DType) -> Identity:
    """Return what `x kind x` is."""
    if kind in (_K.AND, _K.OR):
        return SAME
    zero = False if dtype is bool_ else 0
    return zero if kind in (_K.SUB, _K.XOR, _K.MOD) else None


def of_extremum(extreme: str | None, dtype: DType, constant: Any) -> Identity:
    """Return what `minimum(x, constant)` or its like is, of integers: the constant at one end of the dtype, x at the other."""
    if extreme is None or not dtype.is_integer:
        return None
    decides, yields = (dtype.min, dtype.max) if extreme == "min" else (dtype.max, dtype.min)
    return decides if constant == decides else SAME if constant == yields else None


# -- comparisons and casts --------------------------------------------------------------------------------------------


def of_bound(kind: CompareKind, dtype: DType, constant: Any) -> bool | None:
    """Return what `x kind constant` is where the constant is the least or the largest number of an integer dtype."""
    if not dtype.is_integer:
        return None
    known = _OF_LEAST if constant == dtype.min else _OF_LARGEST if constant == dtype.max else {}
    return known.get(kind)


def has_opposite(op: Compare) -> bool:
    """Return whether `not op` is a comparison too."""
    return not op.lhs.type.dtype.is_float or op.kind in _OPPOSITE_OF_FLOATS


def needs_no_step(first: Cast, target: DType) -> bool:
    """Return whether a cast directly to `target` gives the same as one through the result of `first`."""
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
    """Return whether a cast to `target` keeps every value of `source`."""
    if source.is_float:
        return target.is_float and (source is target or (source.bits < 32 <= target.bits) or target is float64)
    if target.is_float:
        return source.bits <= {float32: 24, float64: 53}.get(target, 0)
    return target.holds(source.min) and target.holds(source.max)
