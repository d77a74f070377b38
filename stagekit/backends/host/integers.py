"""Integer arithmetic and conversions over forms: as scalars, as patterns over the lanes, or as vectors.

    add Linear, Uniform   ->  one scalar add            add Varying, Uniform  ->  splat, vector add

A 64-bit operation is done on 32-bit lanes where the intervals say that operands and result fit. Quotients and remainders of
neighbours by a number that is known only at run time take one scalar division for a warp:

    i = base + (0..31)          row, column = i // width, i % width

    first = base // width       rest = base - first * width             scalars
    more = (rest + lane) // width                                       small numbers, which float32 divides exactly
    first + more                rest + lane - more * width

Only by a number that is not positive each lane divides for itself.
"""

from __future__ import annotations

import functools

from stagekit import dtypes
from stagekit.backends.host import linear
from stagekit.backends.host.forms import LANES, Form, Index, Linear, Steps, Uniform, Varying, known, number
from stagekit.backends.host.lanes import PerLane, for_each_lane
from stagekit.backends.host.linear import scalar
from stagekit.backends.host.vectors import as_vector, constant_vector, splat
from stagekit.backends.host.warp import SharedQuotient, Warp
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.blocks import branch, phi
from stagekit.backends.llvm.types import scalar_type, vector_of
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir import BinaryKind, CompareKind, intervals, ops
from stagekit.ir.intervals import Interval


def regular(form: Form) -> linear.Regular:
    if not isinstance(form, Uniform | Linear):
        raise InternalError(f"{form} is not regular over the lanes")
    return form


def integer_binary(warp: Warp, kind: BinaryKind, dtype: DType, a: Form, b: Form) -> Index:
    """Return `a kind b` in the cheapest form that can hold it."""
    if isinstance(a, Uniform) and isinstance(b, Uniform):
        return linear.scalar(warp.w, kind, dtype, a, b)
    if not isinstance(a, Varying) and not isinstance(b, Varying):
        pattern = linear.binary(warp.w, kind, dtype, regular(a), regular(b))
        if pattern is not None:
            return pattern
    if isinstance(a, Linear) and isinstance(b, Uniform) and divides_by_neighbours(kind, dtype, a, b):
        return known_division(warp, kind, a, b) or divide(warp, kind, dtype, a, b)
    return _vector_binary(warp, kind, dtype, as_vector(warp.w, dtype, a), as_vector(warp.w, dtype, b))


def _vector_binary(warp: Warp, kind: BinaryKind, dtype: DType, a: Varying, b: Varying) -> Varying:
    interval = intervals.binary(kind, dtype, known(a), known(b))
    if dtype.bits == 64 and all(each.fits(dtypes.int32) for each in (known(a), known(b), interval)):
        text = arith.binary(warp.w, kind, dtypes.int32, LANES, narrowed(warp, dtype, a), narrowed(warp, dtype, b))
        return Varying(text, interval, is_narrow=True)
    text = arith.binary(warp.w, kind, dtype, LANES, a.widened(warp.w, dtype), b.widened(warp.w, dtype))
    return Varying(text, interval)


def narrowed(warp: Warp, dtype: DType, form: Varying) -> str:
    """Return a 64-bit integer, whose interval fits 32 bits, in 32 bits."""
    return form.text if form.is_narrow else arith.cast(warp.w, dtype, dtypes.int32, LANES, form.text)


def integer_cast(warp: Warp, source: DType, target: DType, a: Form) -> Index:
    """Convert between integer dtypes: extend, cut off, or reinterpret the sign."""
    if not isinstance(a, Varying):
        pattern = linear.extended(warp.w, source, target, regular(a))
        if pattern is not None:
            return pattern
    return _vector_cast(warp, source, target, as_vector(warp.w, source, a))


def _vector_cast(warp: Warp, source: DType, target: DType, a: Varying) -> Varying:
    interval, held = known(a).wrapped(target), a.held(source)
    if target.bits == 64 and known(a).fits(dtypes.int32) and known(a).fits(target):
        return Varying(arith.cast(warp.w, held, dtypes.int32, LANES, a.text), interval, is_narrow=True)
    # A narrow form is extended by its sign, as the number it holds asks for, whatever the target.
    return Varying(arith.cast(warp.w, held, target, LANES, a.text), interval)


# -- quotients of neighbours ------------------------------------------------------------------------------------------

_I32S, _FLOATS = vector_of("i32", LANES), vector_of("float", LANES)

MAX_SPAN = 1 << 21  # of what the lanes are apart, and of divisors: sums of both stay below 2**23


def divides_by_neighbours(kind: BinaryKind, dtype: DType, a: Linear, b: Uniform) -> bool:
    """Return whether `divide` can do `a kind b`."""
    if kind not in ops.DIVISIONS or dtype.bits < dtypes.int32.bits:
        return False
    return not a.scaled and b.constant is None and a.interval.fits(dtype) and _span(a.offsets) <= MAX_SPAN


def divide(warp: Warp, kind: BinaryKind, dtype: DType, a: Linear, b: Uniform) -> Varying:
    w, held = warp.w, vector_of(scalar_type(dtype), LANES)
    is_positive = arith.compare(w, CompareKind.GT, dtype, None, b.text, "0")
    ways = [functools.partial(way, warp, kind, dtype, a, b) for way in (_by_positive, _lane_by_lane)]
    ends, texts = branch(w, is_positive, ("positive", "other", "divided"), ways)
    quotients = phi(w, held, [(text, end.label) for text, end in zip(texts, ends, strict=True)])
    return Varying(quotients, intervals.binary(kind, dtype, known(a), known(b)))


def shared_quotient(warp: Warp, dtype: DType, a: Linear, b: Uniform) -> SharedQuotient:
    """Return the quotient and the remainders as they are if all lanes have one quotient, with the test whether they do."""
    w, element, lowest = warp.w, scalar_type(dtype), _lowest_lane(warp, dtype, a, b)
    is_positive = arith.compare(w, CompareKind.GT, dtype, None, b.text, "0")
    to_next = w.emit(f"sub {element} {b.text}, {lowest.rest}")
    is_near = arith.compare(w, CompareKind.GT, dtype, None, to_next, str(max(lowest.steps)))
    highest = max(known(b).hi - 1, 0)
    first = Uniform(lowest.first, Interval(0, known(a).hi) if known(a).lo >= 0 else Interval.of(dtype))
    remainders = Linear(Uniform(lowest.rest, Interval(0, max(highest - max(lowest.steps), 0))), lowest.steps)
    return SharedQuotient(first, remainders, w.emit(f"and i1 {is_positive}, {is_near}"))


def known_division(warp: Warp, kind: BinaryKind, a: Linear, b: Uniform) -> Uniform | Linear | None:
    """Return `a kind b` where all lanes are known to have one quotient, else None."""
    shared = warp.quotients.get((a, b.text))
    if shared is None:
        return None
    return shared.quotient if kind is BinaryKind.FLOORDIV else shared.remainders


def _span(offsets: Steps) -> int:
    return max(offsets) - min(offsets) + 1


def _by_positive(warp: Warp, kind: BinaryKind, dtype: DType, a: Linear, b: Uniform) -> str:
    """Divide by a positive number. The lanes span `MAX_SPAN` at most, so of a larger divisor they pass one multiple at most: it
    is taken for `MAX_SPAN`, with that multiple where it was.
    """
    w, element, lowest = warp.w, scalar_type(dtype), _lowest_lane(warp, dtype, a, b)
    held, first, rest = vector_of(element, LANES), lowest.first, lowest.rest
    divisor = _at_most(warp, element, b.text, str(MAX_SPAN))
    to_next = _at_most(warp, element, w.emit(f"sub {element} {b.text}, {rest}"), divisor)
    near_rest = w.emit(f"sub {element} {divisor}, {to_next}")
    steps = constant_vector("i32", lowest.steps)
    moved = w.emit(f"add {_I32S} {_as_i32s(warp, element, near_rest)}, {steps}")
    divisors = _as_i32s(warp, element, divisor)
    floats = [w.emit(f"sitofp {_I32S} {text} to {_FLOATS}") for text in (moved, divisors)]
    more = w.emit(f"fptosi {_FLOATS} {w.emit(f'fdiv {_FLOATS} {floats[0]}, {floats[1]}')} to {_I32S}")
    if kind is BinaryKind.FLOORDIV:
        return w.emit(f"add {held} {splat(w, element, first)}, {_extended(warp, element, more)}")
    left = w.emit(f"sub {_I32S} {moved}, {w.emit(f'mul {_I32S} {more}, {divisors}')}")
    far = splat(w, element, w.emit(f"sub {element} {rest}, {near_rest}"))
    is_first = w.emit(f"icmp eq {_I32S} {more}, zeroinitializer")
    added = w.emit(f"select <{LANES} x i1> {is_first}, {held} {far}, {held} zeroinitializer")
    return w.emit(f"add {held} {_extended(warp, element, left)}, {added}")


@frozen()
class _LowestLane:
    """Quotient and remainder of the lowest lane, and how far the other lanes' dividends are above its own."""

    first: str
    rest: str
    steps: Steps


def _lowest_lane(warp: Warp, dtype: DType, a: Linear, b: Uniform) -> _LowestLane:
    w, element, least = warp.w, scalar_type(dtype), min(a.offsets)
    base = scalar(w, BinaryKind.ADD, dtype, a.base, number(least))
    first = arith.binary(w, BinaryKind.FLOORDIV, dtype, None, base.text, b.text)
    rest = w.emit(f"sub {element} {base.text}, {w.emit(f'mul {element} {first}, {b.text}')}")
    return _LowestLane(first, rest, tuple(offset - least for offset in a.offsets))


def _at_most(warp: Warp, element: str, text: str, most: str) -> str:
    return warp.w.call(element, f"llvm.umin.{element}", [(element, text), (element, most)])


def _as_i32s(warp: Warp, element: str, text: str) -> str:
    return splat(warp.w, "i32", text if element == "i32" else warp.w.emit(f"trunc {element} {text} to i32"))


def _extended(warp: Warp, element: str, text: str) -> str:
    return text if element == "i32" else warp.w.emit(f"zext {_I32S} {text} to {vector_of(element, LANES)}")


def _lane_by_lane(warp: Warp, kind: BinaryKind, dtype: DType, a: Linear, b: Uniform) -> str:
    element = scalar_type(dtype)
    dividends = PerLane(element, as_vector(warp.w, dtype, a).widened(warp.w, dtype), False)
    return for_each_lane(
        warp, None, [dividends], element, lambda lane: arith.binary(warp.w, kind, dtype, None, lane[0], b.text)
    )
