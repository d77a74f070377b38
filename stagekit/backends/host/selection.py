"""Choosing between two values, per lane or for all lanes alike. Also what joins the arms of an `if`."""

from __future__ import annotations

from stagekit import dtypes
from stagekit.backends.host.forms import LANES, Form, Mask, Uniform, Vector, known
from stagekit.backends.host.pointers import select_address
from stagekit.backends.host.spread import as_mask, as_vector, dtype_of, mask_and, widened
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.dtypes import DType
from stagekit.ir import Pointer, Type, ops


def emit_select(warp: Warp, op: ops.Select) -> None:
    condition = warp[op.condition]
    warp[op.result] = select(warp, op.result.type, condition, warp[op.if_true], warp[op.if_false])


def select(warp: Warp, type_: Type, condition: Form, if_true: Form, if_false: Form) -> Form:
    """`if_true` in the lanes where `condition` holds, else `if_false`."""
    if if_true == if_false:
        return if_true
    if isinstance(condition, Uniform) and condition.text in ("true", "false"):
        return if_true if condition.text == "true" else if_false
    if isinstance(type_, Pointer):
        return select_address(warp, type_, condition, if_true, if_false)
    if isinstance(condition, Uniform) and isinstance(if_true, Uniform) and isinstance(if_false, Uniform):
        return _scalar_select(warp, dtype_of(type_), condition, if_true, if_false)
    return _vector_select(warp, dtype_of(type_), as_mask(warp, condition), if_true, if_false)


def _scalar_select(warp: Warp, dtype: DType, condition: Uniform, if_true: Uniform, if_false: Uniform) -> Uniform:
    interval = known(if_true) | known(if_false) if dtype.is_integer else None
    return Uniform(arith.select(warp.w, dtype, None, condition.text, if_true.text, if_false.text), interval)


def _vector_select(warp: Warp, dtype: DType, mask: Mask, if_true: Form, if_false: Form) -> Vector | Mask:
    """A selection per lane; the result is narrow where both sides can be."""
    w = warp.w
    if dtype is dtypes.bool_:
        return _mask_select(warp, mask, if_true, if_false)
    left, right = as_vector(warp, dtype, if_true), as_vector(warp, dtype, if_false)
    interval = known(left) | known(right) if dtype.is_integer else None
    if left.is_narrow and right.is_narrow:
        return Vector(arith.select(w, dtypes.int32, LANES, mask.text, left.text, right.text), interval, is_narrow=True)
    wide = (widened(w, dtype, left), widened(w, dtype, right))
    return Vector(arith.select(w, dtype, LANES, mask.text, *wide), interval)


def _mask_select(warp: Warp, mask: Mask, if_true: Form, if_false: Form) -> Mask:
    """`a and b` comes as a selection with false: then what is known of all lanes is kept."""
    a, b = as_mask(warp, if_true), as_mask(warp, if_false)
    if b.any == "false" and (both := mask_and(warp.w, mask, a)):
        return both
    return Mask(arith.select(warp.w, dtypes.bool_, LANES, mask.text, a.text, b.text))
