"""How the value of one op is held for the 32 lanes of a warp. The more regular the form, the cheaper what is made of it.

    Uniform   one scalar for all lanes                                  block index, sizes, loop counters
    Linear    base + offsets[lane] + sum(coefficient * steps[lane])     thread index, addresses computed from it
    Vector    <32 x T>                                                  whatever was loaded or computed per lane
    Mask      <32 x i1>                                                 a bool per lane
    Address   a pointer and an index in elements, in one of the forms above

Integers carry an `Interval`; a 64-bit integer whose interval fits 32 bits may be held as `<32 x i32>` (`is_narrow`). In a lane
that is switched off a form holds any value at all. The second half makes vectors and masks of forms: the one place where
regularity is given up. It also has what is asked of masks: any lane, all lanes, the word with a bit per lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagekit import dtypes
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.types import scalar_type, vector_of
from stagekit.backends.llvm.writer import Writer
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.ir import Scalar, Type
from stagekit.ir.intervals import Interval
from stagekit.limits import WARP

LANES = WARP
ALL_LANES = (1 << LANES) - 1

Steps = tuple[int, ...]  # one number per lane


@dataclass(frozen=True, slots=True)
class Uniform:
    """`text`: an LLVM scalar. interval: of an integer, else None. A known integer is always spelt as a literal."""

    text: str
    interval: Interval | None = None

    @property
    def constant(self) -> int | None:
        return self.interval.constant if self.interval else None


@dataclass(frozen=True, slots=True)
class Linear:
    """`base + offsets[lane] + sum(coefficient * steps[lane])`, modulo 2**bits. At least one lane differs from another.

    Coefficients are never literals (those are merged into `offsets`) and no two have the same text.
    """

    base: Uniform
    offsets: Steps
    scaled: tuple[tuple[Uniform, Steps], ...] = ()

    @property
    def interval(self) -> Interval:
        """Of the mathematical sum: a range outside the dtype's means that it may wrap."""
        total = known(self.base) + Interval(min(self.offsets), max(self.offsets))
        for coefficient, steps in self.scaled:
            total += known(coefficient) * Interval(min(steps), max(steps))
        return total

    @property
    def constants(self) -> Steps | None:
        """The value in each lane, if it is known now."""
        base = self.base.constant
        return None if base is None or self.scaled else tuple(base + o for o in self.offsets)


@dataclass(frozen=True, slots=True)
class Vector:
    """`text`: `<32 x T>`, or `<32 x i32>` for a 64-bit integer that `is_narrow`."""

    text: str
    interval: Interval | None = None
    is_narrow: bool = False


@dataclass(frozen=True, slots=True)
class Mask:
    """`text`: `<32 x i1>`. any, all: scalars that say the same of all lanes, where they were cheap to make.

    lanes: the bits, where they are known now.
    """

    text: str
    any: str | None = None
    all: str | None = None
    lanes: int | None = None


Index = Uniform | Linear | Vector


@dataclass(frozen=True, slots=True)
class Address:
    """`base` moved by `index` elements. base: a scalar pointer, or `<32 x ptr>` where lanes point into different arrays."""

    base: Uniform | Vector
    index: Index


Form = Uniform | Linear | Vector | Mask | Address


def unknown(dtype: DType) -> Interval | None:
    """The interval of a form of which only the dtype is known."""
    return Interval.of(dtype) if dtype.is_integer else None


def known(form: Form) -> Interval:
    """The interval of an integer form, which always has one."""
    if isinstance(form, Mask | Address) or form.interval is None:
        raise TypeError(f"{form} is not an integer")
    return form.interval


def scalar_text(form: Form) -> str:
    """The scalar of a form that is the same in all lanes."""
    if not isinstance(form, Uniform):
        raise InternalError(f"{form} where a scalar is needed")
    return form.text


def number(value: int) -> Uniform:
    """A known integer."""
    return Uniform(str(value), Interval.exactly(value))


ZERO = number(0)


def lane_bits(lanes: int) -> str:
    """The constant `<32 x i1>` with these bits."""
    if lanes == ALL_LANES:
        return "splat (i1 true)"
    return f"<{', '.join('i1 true' if lanes >> i & 1 else 'i1 false' for i in range(LANES))}>"


def constant_mask(lanes: int) -> Mask:
    any_of, all_of = ("true" if holds else "false" for holds in (lanes != 0, lanes == ALL_LANES))
    return Mask(lane_bits(lanes), any_of, all_of, lanes)


# -- vectors and masks of forms ---------------------------------------------------------------------------------------


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


def _linear_vector(w: Writer, dtype: DType, held: DType, form: Linear) -> Vector:
    interval, is_narrow, element = form.interval, held is not dtype, scalar_type(held)
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


def as_vector(w: Writer, dtype: DType, form: Form) -> Vector:
    """Return any scalar form but a bool as a vector, narrow where it can be."""
    if isinstance(form, Vector):
        return form
    if not isinstance(form, Uniform | Linear):
        raise InternalError(f"no vector of {dtype.name} can be made of {form}")
    is_narrow = dtype.bits == 64 and dtype.is_integer and known(form).fits(dtypes.int32)
    held = dtypes.int32 if is_narrow else dtype
    if isinstance(form, Linear):
        return _linear_vector(w, dtype, held, form)
    text = _held_scalar(w, dtype, held, form) if is_narrow else form.text
    return Vector(splat(w, scalar_type(held), text), form.interval, is_narrow)


def as_mask(w: Writer, form: Form) -> Mask:
    """Return any form of a bool as a mask."""
    if isinstance(form, Mask):
        return form
    if isinstance(form, Uniform):
        return Mask(splat(w, "i1", form.text), any=form.text, all=form.text)
    raise InternalError(f"no mask can be made of {form}")


def widened(w: Writer, dtype: DType, form: Vector) -> str:
    """The vector in the full width of `dtype`."""
    if not form.is_narrow:
        return form.text
    return arith.cast(w, dtypes.int32, dtype, LANES, form.text)


def scalar_vector(w: Writer, dtype: DType, form: Form) -> str:
    """The text of `<32 x T>` for any form of a number or bool, T as `llvm_type` holds it."""
    if dtype is dtypes.bool_:
        return as_mask(w, form).text
    return widened(w, dtype, as_vector(w, dtype, form))


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
    if a.all is None or b.all is None or "false" in (a.all, b.all):
        return Mask(text, all="false" if "false" in (a.all, b.all) else None)
    return Mask(text, all=w.emit(f"and i1 {a.all}, {b.all}"))


def mask_not(w: Writer, a: Mask) -> Mask:
    """The other lanes, of all 32."""
    if a.lanes is not None:
        return constant_mask(a.lanes ^ ALL_LANES)
    text = w.emit(f"xor <{LANES} x i1> {a.text}, splat (i1 true)")
    any_of, all_of = (None if each is None else w.emit(f"xor i1 {each}, true") for each in (a.all, a.any))
    return Mask(text, any=any_of, all=all_of)
