"""One form of several: for a value that comes over several edges, or that is chosen per lane or for all lanes alike.

    Uniform and Uniform                   a scalar phi
    Linear and Linear of one pattern      a phi of their bases
    anything else                         a vector phi

Because an arm ends before the other's forms are known, it leaves a hole for the code that converts its values.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

from stagekit import dtypes
from stagekit.backends.host.forms import (
    LANES,
    Form,
    Gep,
    Linear,
    Mask,
    Uniform,
    Varying,
    known,
    known_truth,
    scalar_text,
    unknown,
)
from stagekit.backends.host.integers import narrowed
from stagekit.backends.host.pointers import address_of, as_index, at, full_vector, lane_pointers, scalar_pointer
from stagekit.backends.host.vectors import as_mask, as_vector, mask_and
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.blocks import Predecessor, phi
from stagekit.backends.llvm.types import llvm_type
from stagekit.dtypes import DType
from stagekit.ir import INDEX, Pointer, Type, Value, ops


def join_all(
    warp: Warp, values: Sequence[Value], ends: Sequence[Predecessor], arms: Sequence[Sequence[Form]]
) -> tuple[Form, ...]:
    """Return the forms of `values`, of which each arm has given one. Called at the head of the block where the arms meet."""
    return tuple([join(warp, v.type, ends, forms) for v, *forms in zip(values, *arms, strict=True)])


def join(warp: Warp, type_: Type, ends: Sequence[Predecessor], forms: Sequence[Form]) -> Form:
    """Return the form of a value that is `forms[i]` when control comes from `ends[i]`."""
    if all(form == forms[0] for form in forms):
        return forms[0]
    if isinstance(type_, Pointer):
        return _join_addresses(warp, type_, ends, tuple(map(address_of, forms)))
    dtype, interval = type_.dtype, None
    if dtype.is_integer:
        interval = functools.reduce(operator.or_, map(known, forms))
    first, held = forms[0], llvm_type(dtype, None)
    if isinstance(first, Uniform) and all(isinstance(form, Uniform) for form in forms):
        return Uniform(_phi(warp, held, ends, forms, scalar_text), interval)
    if isinstance(first, Linear) and all(has_pattern_of(first, form) for form in forms):
        bases = [form.base for form in forms if isinstance(form, Linear)]
        merged = functools.reduce(operator.or_, map(known, bases))
        return replace(first, base=Uniform(_phi(warp, held, ends, bases, scalar_text), merged))
    if dtype.bits == 64 and interval is not None and interval.fits(dtypes.int32):
        narrow = lambda form: narrowed(warp, dtype, as_vector(warp.w, dtype, form))  # noqa: E731
        return Varying(_phi(warp, f"<{LANES} x i32>", ends, forms, narrow), interval, is_narrow=True)
    text = _phi(warp, llvm_type(dtype, LANES), ends, forms, lambda form: full_vector(warp, type_, form))
    return Mask(text) if dtype is dtypes.bool_ else Varying(text, unknown(dtype))


def _phi(
    warp: Warp, held: str, ends: Sequence[Predecessor], forms: Sequence[Form], convert: Callable[[Form], str]
) -> str:
    """Emit a phi of the text that `convert` writes, at the end of each arm, for that arm's form."""
    values = []
    for end, form in zip(ends, forms, strict=True):
        with warp.w.into(end.hole):
            values.append((convert(form), end.label))
    return phi(warp.w, held, values)


def has_pattern_of(first: Linear, form: Form) -> bool:
    return isinstance(form, Linear) and (form.offsets, form.scaled) == (first.offsets, first.scaled)


def _join_addresses(warp: Warp, type_: Pointer, ends: Sequence[Predecessor], addresses: tuple[Gep, ...]) -> Gep:
    base = addresses[0].base
    if isinstance(base, Uniform) and all(a.base == base for a in addresses):
        return Gep(base, as_index(join(warp, INDEX, ends, tuple(a.index for a in addresses))))
    scalars: list[tuple[str, str]] = []
    for end, address in zip(ends, addresses, strict=True):
        with warp.w.into(end.hole):
            text = scalar_pointer(warp, type_, address)
        if text is None:
            vector = lambda form: full_vector(warp, type_, form)  # noqa: E731
            return lane_pointers(_phi(warp, llvm_type(type_, LANES), ends, addresses, vector))
        scalars.append((text, end.label))
    return at(phi(warp.w, "ptr", scalars))


# -- selection --------------------------------------------------------------------------------------------------------


def emit_select(warp: Warp, op: ops.Select) -> None:
    condition = warp[op.condition]
    warp[op.result] = select(warp, op.result.type, condition, warp[op.if_true], warp[op.if_false])


def select(warp: Warp, type_: Type, condition: Form, if_true: Form, if_false: Form) -> Form:
    """Return `if_true` in the lanes where `condition` holds, else `if_false`."""
    if if_true == if_false:
        return if_true
    if (holds := known_truth(condition)) is not None:
        return if_true if holds else if_false
    if isinstance(type_, Pointer):
        return _select_address(warp, type_, condition, if_true, if_false)
    if isinstance(condition, Uniform) and isinstance(if_true, Uniform) and isinstance(if_false, Uniform):
        dtype = type_.dtype
        interval = known(if_true) | known(if_false) if dtype.is_integer else None
        return Uniform(arith.select(warp.w, dtype, None, condition.text, if_true.text, if_false.text), interval)
    return _vector_select(warp, type_.dtype, as_mask(warp.w, condition), if_true, if_false)


def _select_address(warp: Warp, type_: Pointer, condition: Form, if_true: Form, if_false: Form) -> Gep:
    """Return one of two addresses, per lane unless everything is uniform."""
    a, b = address_of(if_true), address_of(if_false)
    one, other = scalar_pointer(warp, type_, a), scalar_pointer(warp, type_, b)
    if isinstance(condition, Uniform) and one and other:
        return at(arith.select(warp.w, type_, None, condition.text, one, other))
    mask, texts = as_mask(warp.w, condition), (full_vector(warp, type_, a), full_vector(warp, type_, b))
    return lane_pointers(arith.select(warp.w, type_, LANES, mask.text, *texts))


def _vector_select(warp: Warp, dtype: DType, mask: Mask, if_true: Form, if_false: Form) -> Varying | Mask:
    """Select per lane; the result is narrow where both sides can be."""
    w = warp.w
    if dtype is dtypes.bool_:
        return _mask_select(warp, mask, if_true, if_false)
    left, right = as_vector(warp.w, dtype, if_true), as_vector(warp.w, dtype, if_false)
    interval = known(left) | known(right) if dtype.is_integer else None
    if left.is_narrow and right.is_narrow:
        return Varying(arith.select(w, dtypes.int32, LANES, mask.text, left.text, right.text), interval, is_narrow=True)
    wide = (left.widened(w, dtype), right.widened(w, dtype))
    return Varying(arith.select(w, dtype, LANES, mask.text, *wide), interval)


def _mask_select(warp: Warp, mask: Mask, if_true: Form, if_false: Form) -> Mask:
    """Select masks. `a and b` arrives as a selection with false; as a conjunction it keeps what is known of all lanes."""
    a, b = as_mask(warp.w, if_true), as_mask(warp.w, if_false)
    if b.any == "false" and (both := mask_and(warp.w, mask, a)):
        return both
    return Mask(arith.select(warp.w, dtypes.bool_, LANES, mask.text, a.text, b.text))
