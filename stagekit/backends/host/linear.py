"""Arithmetic on integers that differ from lane to lane by a known pattern, without vectors: on the scalars they are made of.

    thread index t of warp w         Linear(32 * w, (0, 1, 2, ...))
    t // 16 * n + t % 16             Linear(2 * w * n, (0, ..15, 0, ..15), ((n, (0, ..0, 1, ..1)),))

Each function returns None where the result has no such pattern; the caller then computes with vectors. Sums and products are
exact modulo 2**bits. Division does not commute with a wrap, so it looks at the intervals first.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable

from stagekit.backends.host.forms import CACHED_STEPS, LANES, Linear, Steps, Uniform, known, number
from stagekit.backends.llvm import arith
from stagekit.backends.llvm.writer import Writer
from stagekit.dtypes import DType
from stagekit.ir import BinaryKind, intervals
from stagekit.passes import identities

Regular = Uniform | Linear


def scalar(w: Writer, kind: BinaryKind, dtype: DType, a: Uniform, b: Uniform) -> Uniform:
    """Return `a kind b` of scalar integers; it is computed now where both are known."""
    held = intervals.binary(kind, dtype, known(a), known(b))
    if held.constant is not None:
        return number(held.lo)
    for other, constant in ((a, b.constant), (b, a.constant if kind in identities.COMMUTATIVE else None)):
        if constant is not None and identities.with_constant(kind, dtype, constant) is identities.SAME:
            return other
    text = arith.binary(w, kind, dtype, None, a.text, b.text)
    if b.constant is not None and kind in (BinaryKind.ADD, BinaryKind.SUB):
        w.note_distance(text, a.text, b.constant if kind is BinaryKind.ADD else -b.constant)
    return Uniform(text, held)


def made(w: Writer, dtype: DType, base: Uniform, offsets: Steps, scaled: Iterable[tuple[Uniform, Steps]]) -> Regular:
    """Return a sum in its simplest form: equal coefficients merged, and what is the same in every lane put into the base."""
    merged: dict[str, tuple[Uniform, Steps]] = {}
    for coefficient, steps in scaled:
        before = merged.get(coefficient.text)
        merged[coefficient.text] = (coefficient, plus(before[1], steps) if before else steps)
    terms = []
    for coefficient, steps in merged.values():
        if _is_level(steps):
            level = scalar(w, BinaryKind.MUL, dtype, coefficient, number(dtype.wrap(steps[0])))
            base = scalar(w, BinaryKind.ADD, dtype, base, level)
        else:
            terms.append((coefficient, steps))
    if _is_level(offsets) and not terms:
        return scalar(w, BinaryKind.ADD, dtype, base, number(dtype.wrap(offsets[0])))
    if base.constant is not None and not terms:
        # Known lanes are reduced now, so that their interval is exact.
        return Linear(number(0), wrapped(dtype, offsets, base.constant))
    return Linear(base, offsets, tuple(terms))


def _is_level(steps: Steps) -> bool:
    return steps.count(steps[0]) == len(steps)


@functools.lru_cache(CACHED_STEPS)
def plus(a: Steps, b: Steps) -> Steps:
    return tuple(map(operator.add, a, b))


@functools.lru_cache(CACHED_STEPS)
def times(a: Steps, factor: int) -> Steps:
    return tuple([x * factor for x in a])


@functools.lru_cache(CACHED_STEPS)
def wrapped(dtype: DType, steps: Steps, added: int = 0) -> Steps:
    """Return what an integer dtype keeps of each number, after adding one to all."""
    low, size = dtype.min, 1 << dtype.bits
    return tuple([(step + added - low) % size + low for step in steps])


NO_STEPS: Steps = (0,) * LANES


def parts(x: Regular) -> tuple[Uniform, Steps, tuple[tuple[Uniform, Steps], ...]]:
    return (x, NO_STEPS, ()) if isinstance(x, Uniform) else (x.base, x.offsets, x.scaled)


def _sum(kind: BinaryKind) -> Callable[[Writer, DType, Regular, Regular], Regular | None]:
    sign = -1 if kind is BinaryKind.SUB else 1

    def combined(w: Writer, dtype: DType, a: Regular, b: Regular) -> Regular | None:
        (base_a, offsets_a, scaled_a), (base_b, offsets_b, scaled_b) = parts(a), parts(b)
        base = scalar(w, kind, dtype, base_a, base_b)
        terms = (*scaled_a, *((c, times(s, sign)) for c, s in scaled_b))
        return made(w, dtype, base, plus(offsets_a, times(offsets_b, sign)), terms)

    return combined


def _multiply(w: Writer, dtype: DType, a: Regular, b: Regular) -> Regular | None:
    if isinstance(a, Uniform):
        a, b = b, a
    if isinstance(a, Uniform) or not isinstance(b, Uniform):
        return None
    base = scalar(w, BinaryKind.MUL, dtype, a.base, b)
    if b.constant is not None:
        return made(w, dtype, base, times(a.offsets, b.constant), ((c, times(s, b.constant)) for c, s in a.scaled))
    products = [(scalar(w, BinaryKind.MUL, dtype, c, b), s) for c, s in a.scaled]
    return made(w, dtype, base, NO_STEPS, (*products, (b, a.offsets)))


def _shift_left(w: Writer, dtype: DType, a: Regular, b: Regular) -> Regular | None:
    amount = b.constant if isinstance(b, Uniform) else None
    if amount is None or not 0 <= amount < dtype.bits:
        return None
    return _multiply(w, dtype, a, number(dtype.wrap(1 << amount)))


def _floor_divide(w: Writer, dtype: DType, a: Regular, b: Regular) -> Regular | None:
    divisor = _positive_constant(b)
    if divisor is None or not _divides_by_parts(a, dtype):
        return None
    base, offsets, _ = parts(a)
    quotient = scalar(w, BinaryKind.FLOORDIV, dtype, base, number(divisor))
    if known(base).multiple % divisor == 0:
        return made(w, dtype, quotient, tuple([o // divisor for o in offsets]), ())
    return quotient if _stays_within(base, offsets, divisor) else None


def _modulo(w: Writer, dtype: DType, a: Regular, b: Regular) -> Regular | None:
    divisor = _positive_constant(b)
    if divisor is None or not _divides_by_parts(a, dtype):
        return None
    base, offsets, _ = parts(a)
    if known(base).multiple % divisor == 0:
        return made(w, dtype, number(0), tuple([o % divisor for o in offsets]), ())
    if not _stays_within(base, offsets, divisor):
        return None
    return made(w, dtype, scalar(w, BinaryKind.MOD, dtype, base, number(divisor)), offsets, ())


def _positive_constant(form: Regular) -> int | None:
    value = form.constant if isinstance(form, Uniform) else None
    return value if value is not None and value > 0 else None


def _divides_by_parts(a: Regular, dtype: DType) -> bool:
    """Return whether `a` is a base plus known offsets, which never wraps."""
    return isinstance(a, Linear) and not a.scaled and a.interval.fits(dtype)


def _stays_within(base: Uniform, offsets: Steps, divisor: int) -> bool:
    """Return whether the offsets never carry the value over a multiple of `divisor`, as with 32 * w + (0..31) and 64."""
    grain = known(base).multiple
    return min(offsets) >= 0 and max(offsets) < grain and divisor % grain == 0


def _and(w: Writer, dtype: DType, a: Regular, b: Regular) -> Regular | None:
    """Compute `x & (2**k - 1)` as `x % 2**k`."""
    low_bits = b.constant if isinstance(b, Uniform) else None
    if low_bits is None or low_bits < 0 or low_bits & (low_bits + 1):
        return None
    return _modulo(w, dtype, a, number(low_bits + 1))


def _shift_right(w: Writer, dtype: DType, a: Regular, b: Regular) -> Regular | None:
    amount = b.constant if isinstance(b, Uniform) else None
    if amount is None or not 0 <= amount < dtype.bits - 1:
        return None
    return _floor_divide(w, dtype, a, number(1 << amount))


_RULES: dict[BinaryKind, Callable[[Writer, DType, Regular, Regular], Regular | None]] = {
    BinaryKind.ADD: _sum(BinaryKind.ADD),
    BinaryKind.SUB: _sum(BinaryKind.SUB),
    BinaryKind.MUL: _multiply,
    BinaryKind.SHL: _shift_left,
    BinaryKind.FLOORDIV: _floor_divide,
    BinaryKind.MOD: _modulo,
    BinaryKind.AND: _and,
    BinaryKind.SHR: _shift_right,
}


def binary(w: Writer, kind: BinaryKind, dtype: DType, a: Regular, b: Regular) -> Regular | None:
    """Return `a kind b`, at least one of them a `Linear`; None where the result is not regular."""
    rule = _RULES.get(kind)
    return rule(w, dtype, a, b) if rule else None


def extended(w: Writer, source: DType, target: DType, a: Regular) -> Regular | None:
    """Cast `a` from one integer dtype to another; return None where a wrap could come between the sum and its extension."""
    if target.bits > source.bits and not known(a).fits(source):
        return None
    base, offsets, scaled = parts(a)
    terms = [(extended_scalar(w, source, target, c), s) for c, s in scaled]
    return made(w, target, extended_scalar(w, source, target, base), offsets, terms)


def extended_scalar(w: Writer, source: DType, target: DType, a: Uniform) -> Uniform:
    """Cast a scalar integer to another integer dtype."""
    if a.constant is not None:
        return number(target.wrap(a.constant))
    return Uniform(arith.cast(w, source, target, None, a.text), known(a).wrapped(target))
