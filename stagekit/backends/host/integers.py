"""Integer arithmetic and conversions over forms: as scalars, as patterns over the lanes, or as vectors.

    add Linear, Uniform   ->  one scalar add            add Vector, Uniform  ->  splat, vector add

A 64-bit operation is done on 32-bit lanes where the intervals say that operands and result fit.
"""

from __future__ import annotations

from stagekit import dtypes
from stagekit.backends.host import linear
from stagekit.backends.host.forms import LANES, Form, Index, Linear, Uniform, Vector, known
from stagekit.backends.host.quotients import divide, divides_by_neighbours, in_one_row
from stagekit.backends.host.spread import as_vector, held_dtype, widened
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, intervals


def pattern_of(form: Form) -> linear.Pattern:
    if not isinstance(form, Uniform | Linear):
        raise InternalError(f"{form} is not regular over the lanes")
    return form


def integer_binary(warp: Warp, kind: BinaryKind, dtype: DType, a: Form, b: Form) -> Index:
    """`a kind b` in the cheapest form that can hold it."""
    if isinstance(a, Uniform) and isinstance(b, Uniform):
        return linear.scalar(warp.w, kind, dtype, a, b)
    if not isinstance(a, Vector) and not isinstance(b, Vector):
        pattern = linear.binary(warp.w, kind, dtype, pattern_of(a), pattern_of(b))
        if pattern is not None:
            return pattern
    if isinstance(a, Linear) and isinstance(b, Uniform) and divides_by_neighbours(kind, dtype, a, b):
        return in_one_row(warp, kind, a, b) or divide(warp, kind, dtype, a, b)
    return _vector_binary(warp, kind, dtype, as_vector(warp, dtype, a), as_vector(warp, dtype, b))


def _vector_binary(warp: Warp, kind: BinaryKind, dtype: DType, a: Vector, b: Vector) -> Vector:
    interval = intervals.binary(kind, dtype, known(a), known(b))
    if dtype.bits == 64 and all(each.fits(dtypes.int32) for each in (known(a), known(b), interval)):
        text = arith.binary(warp.w, kind, dtypes.int32, LANES, narrowed(warp, dtype, a), narrowed(warp, dtype, b))
        return Vector(text, interval, is_narrow=True)
    text = arith.binary(warp.w, kind, dtype, LANES, widened(warp.w, dtype, a), widened(warp.w, dtype, b))
    return Vector(text, interval)


def narrowed(warp: Warp, dtype: DType, form: Vector) -> str:
    """A 64-bit integer whose interval fits, in 32 bits."""
    return form.text if form.is_narrow else arith.cast(warp.w, dtype, dtypes.int32, LANES, form.text)


def integer_cast(warp: Warp, source: DType, target: DType, a: Form) -> Index:
    """Between integer dtypes: extend, cut, or reinterpret the sign."""
    if not isinstance(a, Vector):
        pattern = linear.extended(warp.w, source, target, pattern_of(a))
        if pattern is not None:
            return pattern
    return _vector_cast(warp, source, target, as_vector(warp, source, a))


def _vector_cast(warp: Warp, source: DType, target: DType, a: Vector) -> Vector:
    interval, held = known(a).wrapped(target), held_dtype(source, a)
    if target.bits == 64 and known(a).fits(dtypes.int32) and known(a).fits(target):
        return Vector(arith.cast(warp.w, held, dtypes.int32, LANES, a.text), interval, is_narrow=True)
    # A narrow form is extended by its sign, as the number it holds asks for, whatever the target.
    return Vector(arith.cast(warp.w, held, target, LANES, a.text), interval)
