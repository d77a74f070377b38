"""One form for a value that comes over several edges: the results of an `if`, the carried values of a loop.

    Uniform and Uniform                   a scalar phi
    Linear and Linear of one pattern      a phi of their bases
    anything else                         a vector phi

Because an arm ends before the other's forms are known, it leaves a hole for the code that converts its values.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass

from stagekit import dtypes
from stagekit.backends.host.branches import phi
from stagekit.backends.host.forms import LANES, Address, Form, Linear, Mask, Uniform, Vector, known
from stagekit.backends.host.integers import narrowed
from stagekit.backends.host.pointers import address_of, as_index, at, full_vector, lane_pointers, scalar_pointer
from stagekit.backends.host.spread import as_vector
from stagekit.backends.host.warp import Warp
from stagekit.backends.llvm.types import llvm_type
from stagekit.ir import INDEX, Pointer, Scalar, Type
from stagekit.ir.intervals import Interval


@dataclass(frozen=True, slots=True)
class Arm:
    """An edge into a join: the block it comes from and a hole at the end of that block."""

    label: str
    hole: int


def end_arm(warp: Warp, target: str) -> Arm:
    """End the block being written with a jump to `target`."""
    arm = Arm(warp.w.block, warp.w.hole())
    warp.w.line(f"br label %{target}")
    return arm


def join(warp: Warp, type_: Type, arms: tuple[Arm, ...], forms: tuple[Form, ...]) -> Form:
    """The form of a value that is `forms[i]` when control comes from `arms[i]`. Called at the head of the joining block."""
    if all(form == forms[0] for form in forms):
        return forms[0]
    if isinstance(type_, Pointer):
        return _join_addresses(warp, type_, arms, tuple(map(address_of, forms)))
    dtype = type_.dtype
    if dtype.is_integer:
        return _join_integers(warp, type_, arms, forms)
    if all(isinstance(form, Uniform) for form in forms):
        return Uniform(_scalar_phi(warp, llvm_type(dtype, None), arms, forms))
    text = _vector_phi(warp, type_, arms, forms)
    return Mask(text) if dtype is dtypes.bool_ else Vector(text)


def _scalar_phi(warp: Warp, held: str, arms: tuple[Arm, ...], forms: tuple[Form, ...]) -> str:
    texts = [form.text for form in forms if isinstance(form, Uniform)]
    return phi(warp.w, held, [(text, arm.label) for text, arm in zip(texts, arms, strict=True)])


def _vector_phi(warp: Warp, type_: Type, arms: tuple[Arm, ...], forms: tuple[Form, ...]) -> str:
    values = []
    for arm, form in zip(arms, forms, strict=True):
        with warp.w.into(arm.hole):
            values.append((full_vector(warp, type_, form), arm.label))
    return phi(warp.w, warp.w.type(type_, LANES), values)


def _join_integers(warp: Warp, type_: Scalar, arms: tuple[Arm, ...], forms: tuple[Form, ...]) -> Form:
    held = llvm_type(type_.dtype, None)
    if all(isinstance(form, Uniform) for form in forms):
        return Uniform(_scalar_phi(warp, held, arms, forms), _interval_of_all(forms))
    first = forms[0]
    if isinstance(first, Linear) and all(has_pattern_of(first, form) for form in forms):
        bases = tuple(form.base for form in forms if isinstance(form, Linear))
        return Linear(
            Uniform(_scalar_phi(warp, held, arms, bases), _interval_of_all(bases)), first.offsets, first.scaled
        )
    interval = _interval_of_all(forms)
    if type_.dtype.bits == 64 and interval.fits(dtypes.int32):
        return Vector(_narrow_phi(warp, type_, arms, forms), interval, is_narrow=True)
    return Vector(_vector_phi(warp, type_, arms, forms), Interval.of(type_.dtype))


def has_pattern_of(first: Linear, form: Form) -> bool:
    return isinstance(form, Linear) and (form.offsets, form.scaled) == (first.offsets, first.scaled)


def _interval_of_all(forms: tuple[Form, ...]) -> Interval:
    return functools.reduce(operator.or_, map(known, forms))


def _narrow_phi(warp: Warp, type_: Scalar, arms: tuple[Arm, ...], forms: tuple[Form, ...]) -> str:
    values = []
    for arm, form in zip(arms, forms, strict=True):
        with warp.w.into(arm.hole):
            values.append((narrowed(warp, type_.dtype, as_vector(warp, type_.dtype, form)), arm.label))
    return phi(warp.w, f"<{LANES} x i32>", values)


def _join_addresses(warp: Warp, type_: Pointer, arms: tuple[Arm, ...], addresses: tuple[Address, ...]) -> Address:
    base = addresses[0].base
    if isinstance(base, Uniform) and all(a.base == base for a in addresses):
        return Address(base, as_index(join(warp, INDEX, arms, tuple(a.index for a in addresses))))
    scalars: list[tuple[str, str]] = []
    for arm, address in zip(arms, addresses, strict=True):
        with warp.w.into(arm.hole):
            text = scalar_pointer(warp, type_, address)
        if text is None:
            return lane_pointers(_vector_phi(warp, type_, arms, addresses))
        scalars.append((text, arm.label))
    return at(phi(warp.w, "ptr", scalars))
