"""Make vectors and masks of forms: the one place where regularity is given up.

    Uniform("%x") of f32               ->  insertelement, shufflevector
    Linear(base, (0, 1, ..)) of i64    ->  splat(base) + <0, 1, ..>, in 32 bits where its interval allows

Also what is asked of masks: any lane, all lanes, the word with a bit per lane.
"""

from __future__ import annotations

from stagekit import dtypes
from stagekit.backends.host.forms import (
    ALL_LANES,
    LANES,
    Form,
    Linear,
    Mask,
    Uniform,
    Vector,
    constant_mask,
    known,
)
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import scalar_type, vector_of
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir import Scalar, Type
from stagekit.ir.intervals import Interval


def splat(w: Writer, element: str, text: str) -> str:
    """`<32 x element>` with `text` in every lane."""
    if text[0] != "%":
        return f"splat ({element} {text})"
    held = vector_of(element, LANES)
    first = w.emit(f"insertelement {held} poison, {element} {text}, i64 0")
    return w.emit(f"shufflevector {held} {first}, {held} poison, <{LANES} x i32> zeroinitializer")


def constant_vector(element: str, values: tuple[int, ...]) -> str:
    if all(v == values[0] for v in values):
        return f"splat ({element} {values[0]})"
    return f"<{', '.join(f'{element} {v}' for v in values)}>"


def dtype_of(type_: Type) -> DType:
    """The dtype of a scalar type."""
    if not isinstance(type_, Scalar):
        raise InternalError(f"{type_} is not a scalar")
    return type_.dtype


def held_dtype(dtype: DType, form: Vector) -> DType:
    """The dtype whose vectors hold `form`: int32 for a narrow 64-bit integer."""
    return dtypes.int32 if form.is_narrow else dtype


def _linear_vector(w: Writer, dtype: DType, form: Linear) -> Vector:
    interval = form.interval
    is_narrow = dtype.bits == 64 and interval.fits(dtypes.int32)
    held = dtypes.int32 if is_narrow else dtype
    element = scalar_type(held)
    if (lanes := form.constants) is not None:
        return Vector(constant_vector(element, tuple(held.wrap(v) for v in lanes)), interval, is_narrow)
    vector = vector_of(element, LANES)
    total = constant_vector(element, tuple(held.wrap(o) for o in form.offsets))
    for coefficient, steps in form.scaled:
        factor = splat(w, element, arith.cast(w, dtype, held, None, coefficient.text))
        product = w.emit(f"mul {vector} {factor}, {constant_vector(element, tuple(held.wrap(s) for s in steps))}")
        total = w.emit(f"add {vector} {total}, {product}")
    base = _held_scalar(w, dtype, held, form.base)
    total = w.emit(f"add {vector} {splat(w, element, base)}, {total}")
    return Vector(total, interval if interval.fits(dtype) else Interval.of(dtype), is_narrow)


def _held_scalar(w: Writer, dtype: DType, held: DType, form: Uniform) -> str:
    if form.constant is not None:
        return str(held.wrap(form.constant))
    return arith.cast(w, dtype, held, None, form.text)


def _uniform_vector(w: Writer, dtype: DType, form: Uniform) -> Vector:
    is_narrow = dtype.bits == 64 and dtype.is_integer and known(form).fits(dtypes.int32)
    held = dtypes.int32 if is_narrow else dtype
    text = _held_scalar(w, dtype, held, form) if is_narrow else form.text
    return Vector(splat(w, scalar_type(held), text), form.interval, is_narrow)


def as_vector(warp: Warp, dtype: DType, form: Form) -> Vector:
    """Any scalar form but a bool as a vector, narrow where it can be."""
    if isinstance(form, Vector):
        return form
    if isinstance(form, Uniform):
        return _uniform_vector(warp.w, dtype, form)
    if isinstance(form, Linear):
        return _linear_vector(warp.w, dtype, form)
    raise InternalError(f"no vector of {dtype.name} can be made of {form}")


def as_mask(warp: Warp, form: Form) -> Mask:
    """Any form of a bool as a mask."""
    if isinstance(form, Mask):
        return form
    if isinstance(form, Uniform):
        return Mask(splat(warp.w, "i1", form.text), any=form.text, all=form.text)
    raise InternalError(f"no mask can be made of {form}")


def widened(w: Writer, dtype: DType, form: Vector) -> str:
    """The vector in the full width of `dtype`."""
    if not form.is_narrow:
        return form.text
    return arith.cast(w, dtypes.int32, dtype, LANES, form.text)


def scalar_vector(warp: Warp, dtype: DType, form: Form) -> str:
    """The text of `<32 x T>` for any form of a number or bool, T as `llvm_type` holds it."""
    if dtype is dtypes.bool_:
        return as_mask(warp, form).text
    return widened(warp.w, dtype, as_vector(warp, dtype, form))


def any_lane(w: Writer, mask: Mask) -> str:
    """i1: is any lane on?"""
    return mask.any or w.emit(f"icmp ne i32 {lane_word(w, mask)}, 0")


def all_lanes(w: Writer, mask: Mask) -> str:
    """i1: is every lane on?"""
    return mask.all or w.emit(f"icmp eq i32 {lane_word(w, mask)}, -1")


def lane_word(w: Writer, mask: Mask) -> str:
    """i32 with a bit per lane."""
    if mask.lanes is not None:
        return str(dtypes.int32.wrap(mask.lanes))
    return w.emit(f"bitcast <{LANES} x i1> {mask.text} to i32")


def mask_and(w: Writer, a: Mask | None, b: Mask | None) -> Mask | None:
    """The lanes of both; None is all lanes."""
    if a is None or b is None:
        return a or b
    if a.lanes is not None and b.lanes is not None:
        return constant_mask(a.lanes & b.lanes)
    text = w.emit(f"and <{LANES} x i1> {a.text}, {b.text}")
    return Mask(text, all=_both(w, a.all, b.all))


def _both(w: Writer, a: str | None, b: str | None) -> str | None:
    if a == "false" or b == "false":
        return "false"
    if a is None or b is None:
        return None
    return w.emit(f"and i1 {a}, {b}")


def mask_not(w: Writer, a: Mask) -> Mask:
    """The other lanes, of all 32."""
    if a.lanes is not None:
        return constant_mask(a.lanes ^ ALL_LANES)
    text = w.emit(f"xor <{LANES} x i1> {a.text}, splat (i1 true)")
    return Mask(text, any=_not(w, a.all), all=_not(w, a.any))


def _not(w: Writer, text: str | None) -> str | None:
    return None if text is None else w.emit(f"xor i1 {text}, true")
