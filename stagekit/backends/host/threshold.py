"""Comparisons of integers that are regular over the lanes: one scalar, one clamp, one compare of 32-bit lanes.

    32*w + (0..31) < n    ->    (0..31) < clamp(n - 32*w, -1, 32)
                                any lane: 0 < n - 32*w      all lanes: 31 < n - 32*w

Only where neither side wraps: then the difference of the bases, saturated, decides as the exact one would.
"""

from __future__ import annotations

from stagekit import dtypes
from stagekit.backends.host.forms import LANES, Mask, Steps, Uniform, constant_mask, known
from stagekit.backends.host.linear import Pattern, extended_scalar, parts, plus, scalar, times
from stagekit.backends.host.spread import constant_vector, splat
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, CompareKind, intervals
from stagekit.ir.intervals import Interval
from stagekit.ir.ops import BELOW


def compare_patterns(w: Writer, kind: CompareKind, dtype: DType, a: Pattern, b: Pattern) -> Uniform | Mask | None:
    """`a kind b`, or None where it must be done on vectors."""
    if not (is_plain(a, dtype) and is_plain(b, dtype)):
        return None
    (base_a, offsets_a, scaled_a), (base_b, offsets_b, scaled_b) = parts(a), parts(b)
    if {c.text: steps for c, steps in scaled_a} != {c.text: steps for c, steps in scaled_b}:
        return None  # a difference with factors known only at run time
    offsets = plus(offsets_a, times(offsets_b, -1))
    if max(map(abs, offsets)) >= dtypes.int32.max:
        return None
    return against(w, kind, offsets, difference(w, dtype, base_b, base_a))


def is_plain(x: Pattern, dtype: DType) -> bool:
    """Does `x` never wrap, and is its base a signed 64-bit number?"""
    return known(x).fits(dtype) and all(f.fits(dtypes.int64) for f in (known(x), known(parts(x)[0])))


def difference(w: Writer, dtype: DType, a: Uniform, b: Uniform) -> Uniform:
    """`a - b` as a signed 64-bit number that saturates."""
    interval = known(a) - known(b)
    wide_a, wide_b = (extended_scalar(w, dtype, dtypes.int64, each) for each in (a, b))
    if interval.fits(dtypes.int64):
        return scalar(w, BinaryKind.SUB, dtypes.int64, wide_a, wide_b)
    return Uniform(w.call("i64", "llvm.ssub.sat.i64", [("i64", wide_a.text), ("i64", wide_b.text)]), interval)


def against(w: Writer, kind: CompareKind, offsets: Steps, threshold: Uniform) -> Uniform | Mask:
    """`offset kind threshold` per lane."""
    low, high = min(offsets), max(offsets)
    answers = [intervals.compare(kind, Interval.exactly(offset), known(threshold)) for offset in offsets]
    if None not in answers:
        return _constant(sum(bool(answer) << lane for lane, answer in enumerate(answers)))
    clamped = w.call("i64", "llvm.smax.i64", [("i64", threshold.text), ("i64", str(low - 1))])
    clamped = w.call("i64", "llvm.smin.i64", [("i64", clamped), ("i64", str(high + 1))])
    limit = splat(w, "i32", w.emit(f"trunc i64 {clamped} to i32"))
    text = arith.compare(w, kind, dtypes.int32, LANES, constant_vector("i32", offsets), limit)
    if kind in (CompareKind.EQ, CompareKind.NE):
        return Mask(text)
    first, last = (low, high) if kind in BELOW else (high, low)  # the offsets that decide "any" and "all"
    any_of, all_of = (arith.compare(w, kind, dtypes.int64, None, str(each), threshold.text) for each in (first, last))
    return Mask(text, any_of, all_of)


def _constant(lanes: int) -> Uniform | Mask:
    mask = constant_mask(lanes)
    return Uniform(mask.all) if mask.all == "true" else Uniform("false") if mask.any == "false" else mask
