"""The ops that compute: constants, arithmetic, comparisons and conversions.

Nothing here reads the mask: no op traps, and what a lane that is off computes is never used. Integers that are regular over the
lanes are compared by one scalar, one clamp and one compare of 32-bit lanes:

    32*w + (0..31) < n    ->    (0..31) < clamp(n - 32*w, -1, 32)
                                any lane: 0 < n - 32*w      all lanes: 31 < n - 32*w

Only where neither side wraps: then the difference of the bases, saturated, decides as the exact one would.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from stagekit import dtypes
from stagekit.backends.host.forms import (
    ALL_LANES,
    CACHED_STEPS,
    LANES,
    Form,
    Mask,
    Steps,
    Uniform,
    Varying,
    constant_mask,
    known,
    known_truth,
    number,
    truth,
    unknown,
)
from stagekit.backends.host.integers import integer_binary, integer_cast, narrowed, regular
from stagekit.backends.host.linear import Regular, extended_scalar, parts, plus, scalar, times
from stagekit.backends.host.pointers import address_as_integer, elementwise, emit_pointer_compare, retyped
from stagekit.backends.host.vectors import as_mask, as_vector, constant_vector, mask_and, scalar_vector, splat
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import Lanes
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, CompareKind, Pointer, Scalar, intervals, ops
from stagekit.ir.intervals import Interval
from stagekit.ir.ops import BELOW

Write = Callable[[Lanes, list[str]], str]


def compare_regular(w: Writer, kind: CompareKind, dtype: DType, a: Regular, b: Regular) -> Uniform | Mask | None:
    """Compare two forms that are regular over the lanes; return None where it takes vectors."""
    if not (is_plain(a, dtype) and is_plain(b, dtype)):
        return None
    (base_a, offsets_a, scaled_a), (base_b, offsets_b, scaled_b) = parts(a), parts(b)
    if {c.text: steps for c, steps in scaled_a} != {c.text: steps for c, steps in scaled_b}:
        return None  # a difference with factors known only at run time
    offsets = plus(offsets_a, times(offsets_b, -1))
    return against(w, kind, offsets, difference(w, dtype, base_b, base_a)) if are_small(offsets) else None


def are_small(offsets: Steps) -> bool:
    """Return whether `against` can compare these, and the next number on either side of them, in 32 bits."""
    return max(map(abs, offsets)) < dtypes.int32.max


def is_plain(x: Regular, dtype: DType) -> bool:
    """Return whether `x` never wraps and both it and its base fit a signed 64-bit number."""
    return known(x).fits(dtype) and all(f.fits(dtypes.int64) for f in (known(x), known(parts(x)[0])))


def difference(w: Writer, dtype: DType, a: Uniform, b: Uniform) -> Uniform:
    """Return `a - b` as a signed 64-bit number that saturates."""
    interval = known(a) - known(b)
    wide_a, wide_b = (extended_scalar(w, dtype, dtypes.int64, each) for each in (a, b))
    if interval.fits(dtypes.int64):
        return scalar(w, BinaryKind.SUB, dtypes.int64, wide_a, wide_b)
    return Uniform(w.call("i64", "llvm.ssub.sat.i64", [("i64", wide_a.text), ("i64", wide_b.text)]), interval)


def against(w: Writer, kind: CompareKind, offsets: Steps, threshold: Uniform) -> Uniform | Mask:
    """Return `offset kind threshold` in each lane, for offsets that `are_small`."""
    low, high = min(offsets), max(offsets)
    if (lanes := _known_lanes(kind, offsets, known(threshold))) is not None:
        return truth(bool(lanes)) if lanes in (0, ALL_LANES) else constant_mask(lanes)
    clamped = w.call("i64", "llvm.smax.i64", [("i64", threshold.text), ("i64", str(low - 1))])
    clamped = w.call("i64", "llvm.smin.i64", [("i64", clamped), ("i64", str(high + 1))])
    limit = splat(w, "i32", w.emit(f"trunc i64 {clamped} to i32"))
    text = arith.compare(w, kind, dtypes.int32, LANES, constant_vector("i32", offsets), limit)
    if kind in (CompareKind.EQ, CompareKind.NE):
        return _equal(w, kind, text, threshold, (low, high)) if len(set(offsets)) == high - low + 1 else Mask(text)
    first, last = (low, high) if kind in BELOW else (high, low)  # the offsets that decide "any" and "all"
    any_of, all_of = (arith.compare(w, kind, dtypes.int64, None, str(each), threshold.text) for each in (first, last))
    return Mask(text, any_of, all_of)


def _equal(w: Writer, kind: CompareKind, text: str, threshold: Uniform, ends: tuple[int, int]) -> Mask:
    """Return the mask of the neighbours that equal `threshold`, or do not: one does if it lies between the ends."""
    distance = w.emit(f"sub i64 {threshold.text}, {ends[0]}")
    is_equal = kind is CompareKind.EQ
    found = w.emit(f"icmp {'ule' if is_equal else 'ugt'} i64 {distance}, {ends[1] - ends[0]}")
    return Mask(text, any=found, all="false") if is_equal else Mask(text, any="true", all=found)


@functools.lru_cache(CACHED_STEPS)
def _known_lanes(kind: CompareKind, offsets: Steps, threshold: Interval) -> int | None:
    """Return in which lanes `offset kind threshold` holds, as bits; None where that is not known now."""
    lanes = 0
    for lane, offset in enumerate(offsets):
        answer = intervals.compare(kind, Interval.exactly(offset), threshold)
        if answer is None:
            return None
        lanes |= answer << lane
    return lanes


def constant_form(dtype: DType, value: float) -> Uniform:
    return number(int(value)) if dtype.is_integer else Uniform(arith.constant(dtype, None, value))


# -- arithmetic -------------------------------------------------------------------------------------------------------


def emit_binary(warp: Warp, op: ops.Binary) -> Form:
    kind, dtype, a, b = op.kind, op.lhs.type.dtype, warp[op.lhs], warp[op.rhs]
    if dtype.is_integer:
        return integer_binary(warp, kind, dtype, a, b)
    if dtype is dtypes.bool_ and kind is BinaryKind.AND and not (isinstance(a, Uniform) and isinstance(b, Uniform)):
        return mask_and(warp.w, as_mask(warp.w, a), as_mask(warp.w, b)) or as_mask(warp.w, a)
    type_ = Scalar(dtype)
    write: Write = lambda lanes, texts: arith.binary(warp.w, kind, dtype, lanes, *texts)  # noqa: E731
    return elementwise(warp, [(type_, a), (type_, b)], type_, write)


def emit_unary(warp: Warp, op: ops.Unary) -> Form:
    kind, type_, a = op.kind, op.operand.type, warp[op.operand]
    if type_.dtype.is_integer:
        least = number(intervals.minuend(kind, type_.dtype))
        return integer_binary(warp, BinaryKind.SUB, type_.dtype, least, a)
    if isinstance(a, Mask):
        return a.inverted(warp.w)
    write: Write = lambda lanes, texts: arith.unary(warp.w, kind, type_.dtype, lanes, *texts)  # noqa: E731
    return elementwise(warp, [(type_, a)], type_, write)


# -- comparisons ------------------------------------------------------------------------------------------------------


def emit_compare(warp: Warp, op: ops.Compare) -> Form:
    a, b, type_ = warp[op.lhs], warp[op.rhs], op.lhs.type
    if op.result in warp.kernel.decided:
        return truth(warp.kernel.decided[op.result])
    if isinstance(type_, Pointer):
        return emit_pointer_compare(warp, op.kind, type_, a, b)
    return compare(warp, op.kind, type_.dtype, a, b)


def compare(warp: Warp, kind: CompareKind, dtype: DType, a: Form, b: Form) -> Uniform | Mask:
    """Return `a kind b`, of numbers or bools."""
    if isinstance(a, Uniform) and isinstance(b, Uniform):
        return scalar_compare(warp.w, kind, dtype, a, b)
    if not dtype.is_integer:
        return Mask(arith.compare(warp.w, kind, dtype, LANES, *(scalar_vector(warp.w, dtype, form) for form in (a, b))))
    left, right = known(a), known(b)
    decided = intervals.compare(kind, left, right) if left.fits(dtype) and right.fits(dtype) else None
    if decided is not None:
        return truth(decided)
    if not isinstance(a, Varying) and not isinstance(b, Varying):
        found = compare_regular(warp.w, kind, dtype, regular(a), regular(b))
        if found is not None:
            return found
    return _vector_compare(warp, kind, dtype, as_vector(warp.w, dtype, a), as_vector(warp.w, dtype, b))


def scalar_compare(w: Writer, kind: CompareKind, dtype: DType, a: Uniform, b: Uniform) -> Uniform:
    """Return `a kind b` of two scalars, a known bool where their intervals decide it."""
    decided = intervals.compare(kind, known(a), known(b)) if dtype.is_integer else None
    if decided is not None:
        return truth(decided)
    return Uniform(arith.compare(w, kind, dtype, None, a.text, b.text))


def _vector_compare(warp: Warp, kind: CompareKind, dtype: DType, a: Varying, b: Varying) -> Mask:
    if dtype.bits == 64 and known(a).fits(dtypes.int32) and known(b).fits(dtypes.int32):
        left, right = narrowed(warp, dtype, a), narrowed(warp, dtype, b)
        return Mask(arith.compare(warp.w, kind, dtypes.int32, LANES, left, right))
    left, right = a.widened(warp.w, dtype), b.widened(warp.w, dtype)
    return Mask(arith.compare(warp.w, kind, dtype, LANES, left, right))


# -- conversions ------------------------------------------------------------------------------------------------------


def _convert(w: Writer, source: DType, target: DType, lanes: Lanes, text: str) -> str:
    """Convert as `arith.cast` does, and keep LLVM from merging two roundings, for which it would call into libgcc.

    Of `copysign(x, y)` in float64, rounded to float32 and then to float16, LLVM 22.1 rounds x and y alone, and y at once: by a
    call. A fence around the first rounding hides it from the second. (Of vectors LLVM does not take the sign apart.)
    """
    converted = arith.cast(w, source, target, lanes, text)
    if lanes is None and (source, target) == (dtypes.float64, dtypes.float32):
        return w.call("float", "llvm.arithmetic.fence.f32", [("float", converted)])
    return converted


def emit_cast(warp: Warp, op: ops.Cast) -> Form:
    source, target, a = op.operand.type.dtype, op.result.type.dtype, warp[op.operand]
    if source.is_integer and target.is_integer:
        return integer_cast(warp, source, target, a)
    if target is dtypes.bool_ and source.is_integer:
        return compare(warp, CompareKind.NE, source, a, number(0))
    interval = Interval.of(source) if source is dtypes.bool_ and target.is_integer else unknown(target)
    if target.is_integer and (known_bool := known_truth(a)) is not None:
        return number(int(known_bool))
    if isinstance(a, Uniform):
        return Uniform(_convert(warp.w, source, target, None, a.text), interval)
    if source is dtypes.bool_:
        text = _convert(warp.w, source, target, LANES, as_mask(warp.w, a).text)
    else:
        vector = as_vector(warp.w, source, a)
        text = _convert(warp.w, vector.held(source), target, LANES, vector.text)
    return Mask(text) if target is dtypes.bool_ else Varying(text, interval)


def emit_bitcast(warp: Warp, op: ops.Bitcast) -> Form:
    source, target, a = op.operand.type, op.result.type, warp[op.operand]
    if isinstance(source, Pointer):
        return retyped(warp, source, target, a) if isinstance(target, Pointer) else address_as_integer(warp, source, a)
    if source.dtype.is_integer and target.dtype.is_integer:
        return integer_cast(warp, source.dtype, target.dtype, a)  # of equal width: the same bits
    write: Write = lambda lanes, texts: arith.bitcast(warp.w, source, target, lanes, *texts)  # noqa: E731
    return elementwise(warp, [(source, a)], target, write)
