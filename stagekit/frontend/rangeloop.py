"""Ranges with run-time bounds: what a run-time `for` goes through, what its variable holds afterwards, and `len(range(n))`."""

from __future__ import annotations

import ast
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import DIVISION, Loc, Note
from stagekit.dtypes import DType
from stagekit.frontend.arrays import the_number_in
from stagekit.frontend.control import join_dtype, repair_of_join
from stagekit.frontend.errors import (
    BadOperands,
    JoinMismatch,
    MaybeUndefined,
    MixedPromotion,
    RunTimeValue,
    StagingError,
)
from stagekit.frontend.extents import interval_of
from stagekit.frontend.journal import MISSING
from stagekit.frontend.numbers import default_dtype, describe_type, is_literal, is_numeric
from stagekit.frontend.parts import describe
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Number, Poison, StagedRange
from stagekit.frozen import frozen
from stagekit.ir import CompareKind, Value
from stagekit.ir.intervals import Interval
from stagekit.ir.trips import Trips


@frozen(slots=False)
class LoopRange:
    """The numbers of a run-time `for`. start, stop, step: values of `dtype`, int64 or uint64.

    is_empty, runs: it is known at compile time to run no iteration, or at least one. is_nonempty: None where `stop` is excluded,
    as in Python; else `stop` is the last number, and this run-time bool says whether there is a number at all.
    """

    dtype: DType
    start: Value
    stop: Value
    step: Value
    unroll: int | None
    is_empty: bool
    runs: bool
    is_nonempty: Value | None = None

    @property
    def bounds(self) -> tuple[Value, Value, Value]:
        return self.start, self.stop, self.step

    def trips(self, tracer: Tracer) -> Trips[Value]:
        return Trips(_IrNumbers(tracer, self.dtype), *self.bounds).enter()


class _IrNumbers:
    """`ir.trips.LoopArithmetic` that emits ops on values of the IR."""

    def __init__(self, tracer: Tracer, dtype: DType) -> None:
        self.tracer, self.dtype, builder = tracer, dtype, tracer.builder
        self.add, self.sub, self.both = builder.add, builder.sub, builder.and_
        self.compare, self.select = builder.compare, builder.select

    def interval(self, value: Value) -> Interval:
        return self.tracer.intervals[value]

    def number(self, value: int) -> Value:
        return self.tracer.builder.constant(value, self.dtype)

    def is_longer(self, a: Value, b: Value) -> Value:
        builder = self.tracer.builder
        return builder.compare(CompareKind.GT, *(builder.cast(each, self.dtype.unsigned) for each in (a, b)))


def staged(tracer: Tracer, iterable: range | StagedRange, loc: Loc) -> LoopRange:
    """Return a range with its bounds brought to values of one dtype."""
    if isinstance(iterable, range):
        iterable = StagedRange(iterable.start, iterable.stop, iterable.step, None, _forward_of(iterable))
    if iterable.forward is not None:
        return _to_an_end(tracer, iterable, iterable.forward, loc)
    bounds = _bounds(iterable, loc)
    is_static = not any(isinstance(b, Number) for b in bounds)
    runs = bool(range(*(int(b) for b in bounds))) if is_static else None
    dtype = _dtype(loc, *bounds)
    start, stop, step = (tracer.arithmetic.to_value(b, dtype) for b in bounds)
    return LoopRange(dtype, start, stop, step, iterable.unroll, runs is False, runs is True)


def _forward_of(numbers: range) -> StagedRange | None:
    """Return the reverse of a known range whose numbers an int64 holds, but not its stop; None for any other."""
    is_held = dtypes.INDEX.holds
    if not numbers or is_held(numbers.stop) or not (is_held(numbers[0]) and is_held(numbers[-1])):
        return None
    return StagedRange(numbers[-1], numbers[0], -numbers.step, None)


def _to_an_end(tracer: Tracer, iterable: StagedRange, forward: StagedRange, loc: Loc) -> LoopRange:
    """Return the range whose last number is the first of `forward`."""
    start, stop, end = (_wide(tracer, forward, b, loc).value for b in (iterable.start, forward.start, forward.stop))
    dtype, step, builder = start.type.dtype, int(iterable.step), tracer.builder
    runs = not isinstance(iterable.start, Number)
    kind = CompareKind.GT if step > 0 else CompareKind.LT
    is_nonempty = builder.constant(True, dtypes.bool_) if runs else builder.compare(kind, stop, end)
    by = builder.constant(dtype.wrap(step), dtype)
    return LoopRange(dtype, start, stop, by, iterable.unroll, False, runs, is_nonempty)


def _bounds(iterable: StagedRange, loc: Loc) -> tuple[Any, Any, Any]:
    """Return start, stop and step, which must be integers."""
    bounds = (iterable.start, iterable.stop, iterable.step)
    for bound in bounds:
        if not is_numeric(bound) or not (default_dtype(bound).is_integer or isinstance(bound, bool)):
            shown = describe_type(bound) if is_numeric(bound) else describe(bound)
            is_float = is_numeric(bound) and default_dtype(bound).is_float
            hint = DIVISION if is_float else the_number_in(bound) or "bounds and step are integers"
            raise StagingError(BadOperands("range", shown, hint), loc)
    return bounds


def _dtype(loc: Loc, *numbers: Any) -> DType:
    """Return the dtype that a range counts in: int64, or uint64 where a bound is, which does not mix with signed ones."""
    found = [each.dtype for each in numbers if isinstance(each, Number) and not each.is_weak]
    if dtypes.uint64 not in found:
        return dtypes.INDEX
    signed = next((each for each in found if each.is_signed), None)
    if signed is not None:
        raise StagingError(MixedPromotion(left=signed.name, right="uint64"), loc)
    return dtypes.uint64


def may_carry(before: Any, loop: LoopRange) -> bool:
    """Return whether the loop can carry its variable: it had no value before the loop, or is an integer of its dtype."""
    if before is MISSING:
        return True
    return is_numeric(before) and join_dtype(before, Number(loop.start)) is loop.dtype


def poison_after(name: str, before: Any, loop: LoopRange, loc: Loc) -> Poison:
    """Return what the variable is after a loop that does not carry it."""
    note = (Note(f"the loop over `{name}`", loc),)
    if before is MISSING:
        return Poison(MaybeUndefined(name, f"the loop at line {loc.line} may run no iteration", "loop"), note)
    repair = repair_of_join(before, Number(loop.start))
    return Poison(JoinMismatch(name, describe(before), describe(Number(loop.start)), repair), note)


# -- a range as a sequence -----------------------------------------------------------------------------------------------


def length(tracer: Tracer, iterable: StagedRange, loc: Loc) -> Number:
    """Return how many numbers there are, int64. Where they may be too many for that, a check is emitted."""
    if iterable.forward is not None:
        return length(tracer, iterable.forward, loc)
    count, step = _count(tracer, iterable, loc), _static_step(iterable, loc)
    ends = [interval_of(tracer, bound) for bound in (iterable.start, iterable.stop)]
    low, high = ends if step > 0 else ends[::-1]
    if high.hi - low.lo > abs(step) * dtypes.INDEX.max:
        is_held = tracer.arithmetic.compare(ast.GtE, count, 0)
        tracer.builder.loc = loc
        tracer.builder.check(is_held.value, "len() of 2**63 or more numbers", ())
    return count


def _count(tracer: Tracer, iterable: StagedRange, loc: Loc) -> Number:
    """Return how many numbers there are, int64, which may wrap. uint64 holds the distance of any two ends."""
    step = _static_step(iterable, loc)
    ends = _wide(tracer, iterable, iterable.start, loc), _wide(tracer, iterable, iterable.stop, loc)
    low, high = ends if step > 0 else ends[::-1]
    count = _distance(tracer, high, low)
    if abs(step) > 1:
        before = tracer.arithmetic.binary("-", count, 1)
        count = tracer.arithmetic.binary("+", tracer.arithmetic.binary("//", before, abs(step)), 1)
    is_any = tracer.arithmetic.compare(ast.Lt, low, high)
    return tracer.arithmetic.select(is_any.value, tracer.arithmetic.convert(count, dtypes.INDEX), 0)


def item(tracer: Tracer, iterable: StagedRange, index: Any, loc: Loc) -> Number:
    """Return `range(...)[index]`; a negative index known at compile time counts from the end."""
    if not is_numeric(index) or default_dtype(index).is_float:
        raise StagingError(BadOperands("range(...)[...]", describe(index), "an index is an integer"), loc)
    if is_literal(index) and index < 0:
        index = tracer.arithmetic.binary("+", _count(tracer, iterable, loc), index)
    start = _wide(tracer, iterable, iterable.start, loc)
    count = Number(tracer.arithmetic.to_value(index, start.dtype))
    step = _static_step(iterable, loc)
    moved = tracer.arithmetic.binary("*", count, abs(step))
    found: Number = tracer.arithmetic.binary("+" if step > 0 else "-", start, moved)
    return found


def reverse(tracer: Tracer, iterable: StagedRange, loc: Loc) -> StagedRange:
    """Return the same numbers from the last to the first; a range without numbers becomes one from its new end to its new end."""
    if iterable.forward is not None:
        return iterable.forward
    step = _static_step(iterable, loc)
    start, end = (_wide(tracer, iterable, each, loc) for each in (iterable.start, iterable.stop))
    reach = interval_of(tracer, iterable.start)
    if reach.lo == start.dtype.min if step > 0 else reach.hi == start.dtype.max:
        return StagedRange(item(tracer, iterable, -1, loc), end, -step, iterable.unroll, iterable)
    stop = tracer.arithmetic.binary("-" if step > 0 else "+", start, 1)
    is_any = tracer.arithmetic.compare(ast.Lt if step > 0 else ast.Gt, start, end)
    last = tracer.arithmetic.select(is_any.value, item(tracer, iterable, -1, loc), stop)
    return StagedRange(last, stop, -step, iterable.unroll)


def holds(tracer: Tracer, iterable: StagedRange, number: Any, loc: Loc) -> Number:
    """Return whether an integer is one of the numbers."""
    iterable = iterable if iterable.forward is None else iterable.forward
    builder, step = tracer.builder, _static_step(iterable, loc)
    given = (number, iterable.start, iterable.stop)
    dtype = _dtype(loc, *given)
    value, start, stop = (Number(tracer.arithmetic.to_value(each, dtype)) for each in given)
    reached, before = (ast.GtE, ast.Lt) if step > 0 else (ast.LtE, ast.Gt)
    found: Value = builder.and_(
        tracer.arithmetic.compare(reached, value, start).value, tracer.arithmetic.compare(before, value, stop).value
    )
    if abs(step) == 1:
        return Number(found)
    high, low = (value, start) if step > 0 else (start, value)
    past = tracer.arithmetic.binary("%", _distance(tracer, high, low), abs(step))
    return Number(builder.and_(found, tracer.arithmetic.compare(ast.Eq, past, 0).value))


def _distance(tracer: Tracer, high: Number, low: Number) -> Number:
    """Return `high - low` of int64 or uint64 numbers as uint64."""
    a, b = (tracer.arithmetic.convert(each, dtypes.uint64) for each in (high, low))
    found: Number = tracer.arithmetic.binary("-", a, b)
    return found


def _wide(tracer: Tracer, iterable: StagedRange, bound: Any, loc: Loc) -> Number:
    dtype = _dtype(loc, iterable.start, iterable.stop, iterable.step)
    return Number(tracer.arithmetic.to_value(bound, dtype))


def _static_step(iterable: StagedRange, loc: Loc) -> int:
    *_, step = _bounds(iterable, loc)
    if isinstance(step, Number):
        what, hint = "the step of a range that is not looped over", "compute its numbers from an index"
        raise StagingError(RunTimeValue(what, describe_type(iterable.step), hint), loc)
    return int(iterable.step)
