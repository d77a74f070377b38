"""The ops that compute: constants, arithmetic, comparisons and conversions.

Nothing here reads the mask: no op traps, and what a lane that is off computes is never used.
"""

from __future__ import annotations

from stagekit import dtypes
from stagekit.backends.host.conversions import convert
from stagekit.backends.host.forms import LANES, Form, Mask, Uniform, Vector, known, number, unknown
from stagekit.backends.host.integers import integer_binary, integer_cast, narrowed, pattern_of
from stagekit.backends.host.pointers import address_as_integer, emit_pointer_compare, retyped
from stagekit.backends.host.spread import (
    as_mask,
    as_vector,
    dtype_of,
    held_dtype,
    mask_and,
    mask_not,
    scalar_vector,
    widened,
)
from stagekit.backends.host.threshold import compare_patterns
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, CompareKind, Pointer, Type, UnaryKind, intervals, ops
from stagekit.ir.intervals import Interval


def emit_constant(warp: Warp, op: ops.Constant) -> None:
    dtype = dtype_of(op.result.type)
    if dtype.is_integer:
        warp[op.result] = number(int(op.value))
    else:
        warp[op.result] = Uniform(arith.constant(dtype, None, op.value))


# -- arithmetic -------------------------------------------------------------------------------------------------------


def emit_binary(warp: Warp, op: ops.Binary) -> None:
    warp[op.result] = _binary(warp, op.kind, dtype_of(op.lhs.type), warp[op.lhs], warp[op.rhs])


def _binary(warp: Warp, kind: BinaryKind, dtype: DType, a: Form, b: Form) -> Form:
    if dtype.is_integer:
        return integer_binary(warp, kind, dtype, a, b)
    if isinstance(a, Uniform) and isinstance(b, Uniform):
        return Uniform(arith.binary(warp.w, kind, dtype, None, a.text, b.text))
    if dtype is dtypes.bool_:
        return _mask_binary(warp, kind, as_mask(warp, a), as_mask(warp, b))
    left, right = as_vector(warp, dtype, a), as_vector(warp, dtype, b)
    return Vector(arith.binary(warp.w, kind, dtype, LANES, left.text, right.text))


def _mask_binary(warp: Warp, kind: BinaryKind, a: Mask, b: Mask) -> Mask:
    if kind is BinaryKind.AND and (both := mask_and(warp.w, a, b)):
        return both
    any_of = warp.w.emit(f"or i1 {a.any}, {b.any}") if kind is BinaryKind.OR and a.any and b.any else None
    return Mask(arith.binary(warp.w, kind, dtypes.bool_, LANES, a.text, b.text), any=any_of)


def emit_unary(warp: Warp, op: ops.Unary) -> None:
    warp[op.result] = _unary(warp, op.kind, dtype_of(op.operand.type), warp[op.operand])


def _unary(warp: Warp, kind: UnaryKind, dtype: DType, a: Form) -> Form:
    if dtype.is_integer:
        return integer_binary(warp, BinaryKind.SUB, dtype, number(intervals.minuend(kind, dtype)), a)
    if isinstance(a, Uniform):
        return Uniform(arith.unary(warp.w, kind, dtype, None, a.text))
    if isinstance(a, Mask):
        return mask_not(warp.w, a)
    return Vector(arith.unary(warp.w, kind, dtype, LANES, as_vector(warp, dtype, a).text))


# -- comparisons ------------------------------------------------------------------------------------------------------


def emit_compare(warp: Warp, op: ops.Compare) -> None:
    a, b, type_ = warp[op.lhs], warp[op.rhs], op.lhs.type
    if op.result in warp.kernel.decided:
        warp[op.result] = Uniform("true" if warp.kernel.decided[op.result] else "false")
    elif isinstance(type_, Pointer):
        warp[op.result] = emit_pointer_compare(warp, op.kind, type_, a, b)
    else:
        warp[op.result] = compare(warp, op.kind, type_.dtype, a, b)


def compare(warp: Warp, kind: CompareKind, dtype: DType, a: Form, b: Form) -> Uniform | Mask:
    """`a kind b` of numbers or bools."""
    if isinstance(a, Uniform) and isinstance(b, Uniform):
        return scalar_compare(warp.w, kind, dtype, a, b)
    decided = _decided(kind, dtype, a, b)
    if decided is not None:
        return Uniform("true" if decided else "false")
    if dtype is dtypes.bool_:
        left, right = as_mask(warp, a), as_mask(warp, b)
        return Mask(arith.compare(warp.w, kind, dtype, LANES, left.text, right.text))
    if dtype.is_integer and not isinstance(a, Vector) and not isinstance(b, Vector):
        found = compare_patterns(warp.w, kind, dtype, pattern_of(a), pattern_of(b))
        if found is not None:
            return found
    return _vector_compare(warp, kind, dtype, as_vector(warp, dtype, a), as_vector(warp, dtype, b))


def _decided(kind: CompareKind, dtype: DType, a: Form, b: Form) -> bool | None:
    """The answer where what is known of two integers gives it."""
    if not dtype.is_integer:
        return None
    left, right = known(a), known(b)
    return intervals.compare(kind, left, right) if left.fits(dtype) and right.fits(dtype) else None


def scalar_compare(w: Writer, kind: CompareKind, dtype: DType, a: Uniform, b: Uniform) -> Uniform:
    """`a kind b` of two scalars; known now where their intervals tell."""
    decided = intervals.compare(kind, known(a), known(b)) if dtype.is_integer else None
    if decided is not None:
        return Uniform("true" if decided else "false")
    return Uniform(arith.compare(w, kind, dtype, None, a.text, b.text))


def _vector_compare(warp: Warp, kind: CompareKind, dtype: DType, a: Vector, b: Vector) -> Mask:
    if dtype.bits == 64 and dtype.is_integer and known(a).fits(dtypes.int32) and known(b).fits(dtypes.int32):
        left, right = narrowed(warp, dtype, a), narrowed(warp, dtype, b)
        return Mask(arith.compare(warp.w, kind, dtypes.int32, LANES, left, right))
    left, right = widened(warp.w, dtype, a), widened(warp.w, dtype, b)
    return Mask(arith.compare(warp.w, kind, dtype, LANES, left, right))


# -- conversions ------------------------------------------------------------------------------------------------------


def emit_cast(warp: Warp, op: ops.Cast) -> None:
    warp[op.result] = _cast(warp, dtype_of(op.operand.type), dtype_of(op.result.type), warp[op.operand])


def _cast(warp: Warp, source: DType, target: DType, a: Form) -> Form:
    if source.is_integer and target.is_integer:
        return integer_cast(warp, source, target, a)
    if target is dtypes.bool_ and source.is_integer:
        return compare(warp, CompareKind.NE, source, a, number(0))
    if isinstance(a, Uniform):
        return _scalar_cast(warp, source, target, a)
    if source is dtypes.bool_:
        return Vector(convert(warp, source, target, LANES, as_mask(warp, a).text), _cast_interval(source, target))
    vector = as_vector(warp, source, a)
    text = convert(warp, held_dtype(source, vector), target, LANES, vector.text)
    return Mask(text) if target is dtypes.bool_ else Vector(text, _cast_interval(source, target))


def _scalar_cast(warp: Warp, source: DType, target: DType, a: Uniform) -> Uniform:
    if a.text in ("true", "false") and target.is_integer:
        return number(int(a.text == "true"))
    return Uniform(convert(warp, source, target, None, a.text), _cast_interval(source, target))


def _cast_interval(source: DType, target: DType) -> Interval | None:
    """Of a cast from bool or a float."""
    return Interval.of(source) if source is dtypes.bool_ and target.is_integer else unknown(target)


def emit_bitcast(warp: Warp, op: ops.Bitcast) -> None:
    source, target, a = op.operand.type, op.result.type, warp[op.operand]
    if isinstance(source, Pointer) and isinstance(target, Pointer):
        warp[op.result] = retyped(warp, source, target, a)
    elif isinstance(source, Pointer):
        warp[op.result] = address_as_integer(warp, source, a)
    else:
        warp[op.result] = _bits(warp, source, target, a)


def _bits(warp: Warp, source: Type, target: Type, a: Form) -> Form:
    old, new = dtype_of(source), dtype_of(target)
    if old.is_integer and new.is_integer:
        return integer_cast(warp, old, new, a)  # of equal width: the same bits
    interval = unknown(new)
    if isinstance(a, Uniform):
        return Uniform(arith.bitcast(warp.w, source, target, None, a.text), interval)
    return Vector(arith.bitcast(warp.w, source, target, LANES, scalar_vector(warp, old, a)), interval)
