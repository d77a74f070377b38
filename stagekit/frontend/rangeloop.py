"""Ranges with run-time bounds: what a run-time `for` goes through, what its variable holds afterwards, and `len(range(n))`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import Loc, Note
from stagekit.frontend.control import describe, join_dtype, repair_of_join
from stagekit.frontend.errors import BadOperands, JoinMismatch, MaybeUndefined, RunTimeValue, StagingError
from stagekit.frontend.journal import MISSING
from stagekit.frontend.numbers import default_dtype, describe_type, is_literal, is_numeric
from stagekit.frontend.slices import most_of
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Number, Poison, StagedRange
from stagekit.ir import Builder, CompareKind, Value


@dataclass(frozen=True)
class Range:
    """start, stop, step: int64 values. is_empty, runs: known at compile time to run no iteration, or at least one."""

    start: Value
    stop: Value
    step: Value
    static_step: int | None
    unroll: int | None
    is_empty: bool
    runs: bool

    @property
    def bounds(self) -> tuple[Value, Value, Value]:
        return self.start, self.stop, self.step

    def goes_on(self, builder: Builder, counter: Value) -> Value:
        """Is `counter` still inside?"""
        below = builder.compare(CompareKind.LT, counter, self.stop)
        if self.static_step is not None:
            return below if self.static_step > 0 else builder.compare(CompareKind.GT, counter, self.stop)
        zero = builder.index(0)
        above = builder.compare(CompareKind.GT, counter, self.stop)
        is_up = builder.compare(CompareKind.GT, self.step, zero)
        is_down = builder.compare(CompareKind.LT, self.step, zero)
        return builder.or_(builder.and_(is_up, below), builder.and_(is_down, above))


def staged(tracer: Tracer, iterable: range | StagedRange, loc: Loc) -> Range:
    """Bring the bounds of a range to int64 values."""
    if isinstance(iterable, range):
        iterable = StagedRange(iterable.start, iterable.stop, iterable.step, None)
    bounds = (iterable.start, iterable.stop, iterable.step)
    for bound in bounds:
        if not is_numeric(bound) or not (default_dtype(bound).is_integer or isinstance(bound, bool)):
            shown = describe_type(bound) if is_numeric(bound) else describe(bound)
            raise StagingError(BadOperands("range", shown, "bounds and step are integers"), loc)
    is_static = not any(isinstance(b, Number) for b in bounds)
    runs = bool(range(*(int(b) for b in bounds))) if is_static else None
    start, stop, step = (tracer.arithmetic.to_value(b, dtypes.INDEX, loc) for b in bounds)
    static_step = None if isinstance(iterable.step, Number) else int(iterable.step)
    return Range(start, stop, step, static_step, iterable.unroll, runs is False, runs is True)


def most_of_counter(tracer: Tracer, loop: Range) -> int | None:
    """A bound of the loop variable, if it counts up from a number that is not negative."""
    if loop.static_step is None or loop.static_step < 0 or most_of(tracer, loop.start) is None:
        return None
    most = most_of(tracer, loop.stop)
    return loop.start.type.dtype.max if most is None else most


def may_carry(before: Any, loop: Range) -> bool:
    """Can the loop variable go on after the loop: was it an integer of the index dtype before, or will the loop run for sure?"""
    if before is MISSING:
        return True
    return is_numeric(before) and join_dtype(before, Number(loop.start)) is dtypes.INDEX


def after(name: str, before: Any, loop: Range, loc: Loc) -> Poison:
    """What the variable is after a loop that does not carry it."""
    note = (Note(f"the loop over `{name}`", loc),)
    if before is MISSING:
        return Poison(MaybeUndefined(name, f"the loop at line {loc.line} may run no iteration", "loop"), note)
    repair = repair_of_join(before, Number(loop.start))
    return Poison(JoinMismatch(name, describe(before), "run-time int64", repair), note)


# -- a range as a sequence -----------------------------------------------------------------------------------------------


def length(tracer: Tracer, iterable: StagedRange, loc: Loc) -> Number:
    """How many numbers there are."""
    step = _static_step(iterable, loc)
    span = tracer.arithmetic.binary("-", _wide(tracer, iterable.stop, loc), _wide(tracer, iterable.start, loc), loc)
    rounded = tracer.arithmetic.binary("+", span, step - 1 if step > 0 else step + 1, loc)
    count = tracer.arithmetic.binary("//", rounded, step, loc)
    is_none = tracer.arithmetic.compare(ast.Lt, count, 0, loc)
    return tracer.arithmetic.select(is_none.value, 0, count, loc)


def item(tracer: Tracer, iterable: StagedRange, index: Any, loc: Loc) -> Number:
    """`range(...)[index]`; a negative index known at compile time counts from the end."""
    if not is_numeric(index) or default_dtype(index).is_float:
        raise StagingError(BadOperands("range(...)[...]", describe(index), "an index is an integer"), loc)
    if is_literal(index) and index < 0:
        index = tracer.arithmetic.binary("+", length(tracer, iterable, loc), index, loc)
    moved = tracer.arithmetic.binary("*", _wide(tracer, index, loc), _static_step(iterable, loc), loc)
    found: Number = tracer.arithmetic.binary("+", _wide(tracer, iterable.start, loc), moved, loc)
    return found


def reverse(tracer: Tracer, iterable: StagedRange, loc: Loc) -> StagedRange:
    """The same numbers from the last to the first."""
    step = _static_step(iterable, loc)
    last = item(tracer, iterable, -1, loc)
    stop = tracer.arithmetic.binary("-", _wide(tracer, iterable.start, loc), step, loc)
    return StagedRange(last, stop, -step, iterable.unroll)


def holds(tracer: Tracer, iterable: StagedRange, number: Any, loc: Loc) -> Number:
    """Is an integer one of the numbers?"""
    builder, step = tracer.builder, _static_step(iterable, loc)
    past = tracer.arithmetic.binary("-", _wide(tracer, number, loc), _wide(tracer, iterable.start, loc), loc)
    place = tracer.arithmetic.binary("//", past, step, loc)
    on_step = tracer.arithmetic.compare(ast.Eq, tracer.arithmetic.binary("%", past, step, loc), 0, loc)
    not_before = tracer.arithmetic.compare(ast.GtE, place, 0, loc)
    not_after = tracer.arithmetic.compare(ast.Lt, place, length(tracer, iterable, loc), loc)
    return Number(builder.and_(on_step.value, builder.and_(not_before.value, not_after.value)))


def _wide(tracer: Tracer, bound: Any, loc: Loc) -> Number:
    return Number(tracer.arithmetic.to_value(bound, dtypes.INDEX, loc))


def _static_step(iterable: StagedRange, loc: Loc) -> int:
    if isinstance(iterable.step, Number):
        what, hint = "the step of a range that is not looped over", "compute its numbers from an index"
        raise StagingError(RunTimeValue(what, describe_type(iterable.step), hint), loc)
    return int(iterable.step)
