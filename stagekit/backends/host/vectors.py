"""Vectors and masks made of other forms: the one place where regularity is given up.

    Uniform("%n")                     shufflevector: a splat
    Linear(Uniform("%b"), (0, 1, ..)) add: a splat of %b and the constant <0, 1, ..>

A mask made of a scalar keeps it as what holds of any and of all lanes.
"""

from __future__ import annotations

import functools

from stagekit import dtypes
from stagekit.backends.host.forms import CACHED_STEPS, LANES, Form, Linear, Mask, Uniform, Varying, constant_mask, known
from stagekit.backends.host.linear import wrapped
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import scalar_type, vector_of
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir.intervals import Interval


def splat(w: Writer, element: str, text: str) -> str:
    """Return `<32 x element>` with `text` in every lane."""
    if text[0] != "%":
        return f"splat ({element} {text})"
    held = vector_of(element, LANES)
    first = w.emit(f"insertelement {held} poison, {element} {text}, i64 0")
    return w.emit(f"shufflevector {held} {first}, {held} poison, <{LANES} x i32> zeroinitializer")


@functools.lru_cache(CACHED_STEPS)
def constant_vector(element: str, values: tuple[int, ...]) -> str:
    if values.count(values[0]) == len(values):
        return f"splat ({element} {values[0]})"
    return f"<{', '.join([f'{element} {v}' for v in values])}>"


def _linear_vector(w: Writer, dtype: DType, held: DType, form: Linear) -> Varying:
    interval, is_narrow, element = form.interval, held is not dtype, scalar_type(held)
    if (lanes := form.constants) is not None:
        return Varying(constant_vector(element, wrapped(held, lanes)), interval, is_narrow)
    vector = vector_of(element, LANES)
    total = constant_vector(element, wrapped(held, form.offsets))
    for coefficient, steps in form.scaled:
        factor = splat(w, element, arith.cast(w, dtype, held, None, coefficient.text))
        product = w.emit(f"mul {vector} {factor}, {constant_vector(element, wrapped(held, steps))}")
        total = w.emit(f"add {vector} {total}, {product}")
    base = _held_scalar(w, dtype, held, form.base)
    total = w.emit(f"add {vector} {splat(w, element, base)}, {total}")
    return Varying(total, interval if interval.fits(dtype) else Interval.of(dtype), is_narrow)


def _held_scalar(w: Writer, dtype: DType, held: DType, form: Uniform) -> str:
    if form.constant is not None:
        return str(held.wrap(form.constant))
    return arith.cast(w, dtype, held, None, form.text)


def as_vector(w: Writer, dtype: DType, form: Form) -> Varying:
    """Return any scalar form but a bool as a vector, narrow where it can be."""
    if isinstance(form, Varying):
        return form
    if not isinstance(form, Uniform | Linear):
        raise InternalError(f"no vector of {dtype.name} can be made of {form}")
    is_narrow = dtype.bits == 64 and dtype.is_integer and known(form).fits(dtypes.int32)
    held = dtypes.int32 if is_narrow else dtype
    if isinstance(form, Linear):
        return _linear_vector(w, dtype, held, form)
    text = _held_scalar(w, dtype, held, form) if is_narrow else form.text
    return Varying(splat(w, scalar_type(held), text), form.interval, is_narrow)


def as_mask(w: Writer, form: Form) -> Mask:
    """Return any form of a bool as a mask."""
    if isinstance(form, Mask):
        return form
    if isinstance(form, Uniform):
        return Mask(splat(w, "i1", form.text), any=form.text, all=form.text)
    raise InternalError(f"no mask can be made of {form}")


def scalar_vector(w: Writer, dtype: DType, form: Form) -> str:
    """Return the text of `<32 x T>` for any form of a number or bool, T as `llvm_type` holds it."""
    if dtype is dtypes.bool_:
        return as_mask(w, form).text
    return as_vector(w, dtype, form).widened(w, dtype)


def mask_and(w: Writer, a: Mask | None, b: Mask | None) -> Mask | None:
    """Return the lanes of both; None is all lanes."""
    if a is None or b is None:
        return a or b
    if a.lanes is not None and b.lanes is not None:
        return constant_mask(a.lanes & b.lanes)
    text = w.emit(f"and <{LANES} x i1> {a.text}, {b.text}")
    if a.all is None or b.all is None or "false" in (a.all, b.all):
        return Mask(text, all="false" if "false" in (a.all, b.all) else None)
    return Mask(text, all=w.emit(f"and i1 {a.all}, {b.all}"))
