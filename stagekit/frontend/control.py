"""Run-time control flow: trace each arm or body for real, see in the journal what it changed, and join.

`branch` runs two arms against the same starting state and merges, location by location, what they changed. Statements use it
for `if`, expressions for `and`, `or` and ternaries, and early exits to guard what follows them. Loops are in `loops.py`.
"""

from __future__ import annotations

import functools
import math
import types
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from stagekit import dtypes
from stagekit.diagnostics import Loc, Note, shown
from stagekit.dtypes import DType
from stagekit.frontend.errors import JoinMismatch, MaybeUndefined
from stagekit.frontend.journal import MISSING, UNKNOWN, Change, Location, holders, may_merge
from stagekit.frontend.numbers import default_dtype, describe_type, is_literal, is_numeric, own_type
from stagekit.frontend.state import stored
from stagekit.frontend.tracer import Assigned, Frame, Thunk, Tracer, is_exit_flag, is_guarded
from stagekit.frontend.values import (
    Address,
    Array,
    Closure,
    Generator,
    Number,
    Partial,
    Poison,
    StagedRange,
    Text,
    is_open,
)
from stagekit.ir import BOOL, OpenBlock, Pointer, Space, Type, Value, of_dtype


def same_static(a: Any, b: Any) -> bool:
    """Are two values the same compile-time value, type and all?"""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Number | Address):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, np.generic):
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    return isinstance(a, int | str | bytes | type(None) | range) and bool(a == b)


def describe(value: Any) -> str:
    """How error texts name what a variable holds."""
    if is_numeric(value):
        return describe_type(value)
    if isinstance(value, Address):
        return f"a pointer to {value.dtype.name}"
    if isinstance(value, Array):
        return f"an array of {value.dtype.name}"
    if isinstance(value, Closure | types.FunctionType):
        return f"the function `{value.name if isinstance(value, Closure) else value.__name__}`"
    if isinstance(value, dict):
        keys = shown(list(value), most=60)
        return f"a {type(value).__name__} of length {len(value)} with the keys {keys}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of length {len(value)}"
    if value is None or isinstance(value, str | DType):
        return shown(value)
    return _KINDS.get(type(value)) or f"a {type(value).__name__}"


_KINDS: dict[type, str] = {
    StagedRange: "a range with run-time bounds",
    Generator: "an iterator",
    Text: "a text with run-time numbers in it",
}


# -- taking values apart and putting them together ------------------------------------------------------------------------


def parts_of(value: Any) -> list[Any] | None:
    """The items of a value that joins item by item; None for a value that is a leaf."""
    if type(value) in (tuple, list):
        return list(value)
    if type(value) is dict:
        return list(value.values())
    if isinstance(value, Array):
        return [value.base, *value.shape, *value.strides]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(value)
    if _is_plain_object(value):
        return [getattr(value, name) for name in stored(value)]
    return None


def leaves_of(value: Any) -> list[Any]:
    """The numbers and addresses in a value, in order."""
    parts = parts_of(value)
    if parts is not None:
        return [leaf for part in parts for leaf in leaves_of(part)]
    return [value] if is_numeric(value) or isinstance(value, Address) else []


def _is_plain_object(value: Any) -> bool:
    """Do its attributes make up this object? What derives from a list or an int is more than they are."""
    new: Any = type(value).__new__
    return is_open(value) and not isinstance(value, Enum) and new in (object.__new__, types.SimpleNamespace.__new__)


def note_parts(tracer: Tracer, *values: Any) -> None:
    """Record that objects come apart: the parts of those that were made outside the kernel are read."""
    for value in values:
        if _is_plain_object(value) and not tracer.journal.is_born(value):
            tracer.captures.note_state(value)


def same_shape(a: Any, b: Any) -> bool:
    """Do two values come apart into corresponding parts?"""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple | list):
        return bool(len(a) == len(b))
    if isinstance(a, dict):
        return bool(list(a) == list(b))
    if isinstance(a, Array):
        return bool(a.ndim == b.ndim and a.is_contiguous == b.is_contiguous)
    return list(stored(a)) == list(stored(b))


def rebuild(tracer: Tracer, origins: Sequence[Any], parts: list[Any], *, is_free: bool = False) -> Any:
    """What stands for one of `origins`, made of other parts. A mutable one is sealed where other places hold those."""
    made = remade(origins[0], parts)
    if isinstance(made, Array | tuple):
        return made
    return tracer.journal.born(made) if is_free else tracer.journal.seal(made, origins)


def remade(like: Any, parts: list[Any]) -> Any:
    """A value like `like` made of other parts."""
    if isinstance(like, Array):
        n = like.ndim
        return Array(like.name, parts[0], tuple(parts[1 : 1 + n]), tuple(parts[1 + n :]), like.is_contiguous)
    if isinstance(like, tuple):
        return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
    if type(like) is list:
        return parts
    if type(like) is dict:
        return dict(zip(like, parts))
    kind: Any = type(like)
    made = kind.__new__(kind)
    for name, part in zip(stored(like), parts):
        object.__setattr__(made, name, part)
    return made


# -- joining two arms ---------------------------------------------------------------------------------------------------


Places = tuple[Loc | None, Loc | None]


@dataclass
class Arm:
    """One traced arm: its open block, its result, and what it changed."""

    block: OpenBlock
    result: Any
    changes: dict[Any, Change]
    counts: Counter[int] | None  # of `holders` at its end; None if it brings no container
    exits: range  # of `Tracer.exits`, those in it
    is_left: bool  # for certain, by one of them or one before

    def of(self, held: Any) -> tuple[Any, bool, frozenset[int]]:
        """What a variable that ends up so holds, and where: as in `Partial`."""
        if isinstance(held, Partial):
            return held.value, held.is_set or self.is_left, held.exits
        if held is MISSING or isinstance(held, Poison):
            return MISSING, self.is_left, frozenset()
        return held, True, frozenset(self.exits)


@dataclass(frozen=True)
class _Later:
    """A joined value that exists when the `If` does. make: gives it, from the results of that."""

    make: Callable[[Sequence[Value]], Any]


def _finish(plan: Any, results: Sequence[Value]) -> Any:
    return plan.make(results) if isinstance(plan, _Later) else plan


class Join:
    """Collects pairs of values that differ between two arms; then makes the `If`, whose results are the joined values."""

    def __init__(self, tracer: Tracer, condition: Value, then: Arm, other: Arm, loc: Loc) -> None:
        self.tracer, self.condition, self.loc = tracer, condition, loc
        self.then, self.other = then, other
        self.most = 1  # places that may hold a container which is merged
        self.yields: list[tuple[Value, Value]] = []

    def plan(self, a: Any, b: Any, name: str, *, is_lenient: bool, places: Places = (None, None)) -> Any:
        """What `name` will be after the join: the value itself, or a `_Later`. lenient: a missing side may be anything.

        places: of the lines that gave it `a` and `b`.
        """
        if same_static(a, b):
            return a
        for missing, present, arm in ((a, b, self.then), (b, a, self.other)):
            if missing is MISSING:
                return self._half(present, arm) if is_lenient else self._undefined(present, name)
        if isinstance(a, Poison) or isinstance(b, Poison):
            return a if isinstance(a, Poison) else b
        if is_numeric(a) and is_numeric(b):
            return self._numbers(a, b, name, places)
        if isinstance(a, Address) and isinstance(b, Address) and a.type == b.type:
            return self._leaf(a.value, b.value, is_weak=False)
        if parts_of(a) is not None and same_shape(a, b):
            note_parts(self.tracer, a, b)
            each = functools.partial(self.plan, name=name, is_lenient=is_lenient, places=places)
            return self._parts([(a, self.then), (b, self.other)], each)
        return self._mismatch(a, b, name, places)

    def plan_at(self, location: Location, name: str, a: Any, b: Any, places: Places) -> Any:
        """What a location will hold. A variable keeps a value that only paths which are left do not give it."""
        plan = self.plan(a, b, name, is_lenient=is_guarded(name), places=places)
        if location.is_attribute or is_guarded(name) or not isinstance(plan, Poison):
            return plan
        undefined = Poison(plan.diagnostic, plan.notes)  # and no value that one arm alone knows
        (left, is_set, exits), (right, is_also_set, more) = self.then.of(a), self.other.of(b)
        if not (is_set and is_also_set) and not exits | more:
            return undefined
        inner = self.plan(left, right, name, is_lenient=True, places=places)
        if isinstance(inner, Poison) or inner is MISSING:
            return undefined
        rest = is_set and is_also_set, exits | more
        return _Later(lambda results: Partial(plan.diagnostic, plan.notes, _finish(inner, results), *rest))

    def _half(self, present: Any, absent: Arm) -> Any:
        """One side has no value and will never be looked at: give it zeros."""
        holder = self.other if absent is self.then else self.then
        if present is not MISSING and parts_of(present):
            return self._parts([(present, holder)], lambda part: self._half(part, absent))
        if present is MISSING or not (is_numeric(present) or isinstance(present, Address)):
            return present
        builder, number = self.tracer.builder, present
        if is_numeric(present):
            with builder.resume(holder.block):
                number = self.tracer.arithmetic.number(present)
        with builder.resume(absent.block):
            stand_in = zero_of(self.tracer, number.value.type)
        pair = (stand_in, number.value) if absent is self.then else (number.value, stand_in)
        return self._leaf(*pair, is_weak=isinstance(number, Number) and number.is_weak)

    def _parts(self, held: Sequence[tuple[Any, Arm]], plan: Callable[..., Any]) -> _Later:
        """What stands for containers of one structure, each with the arm that holds it, by the plans for their parts."""
        origins = [container for container, _ in held]
        is_free = all(self._is_alone(container, arm) for container, arm in held)
        outer = self.most
        if not isinstance(origins[0], tuple):
            # one that no other place holds is the one place of each that it holds; others can reach into any other
            self.most = 1 if is_free else -1
        parts = [plan(*each) for each in zip(*(parts_of(container) or [] for container in origins))]
        self.most = outer
        tracer = self.tracer
        return _Later(lambda results: rebuild(tracer, origins, [_finish(p, results) for p in parts], is_free=is_free))

    def _is_alone(self, value: Any, arm: Arm) -> bool:
        """Was this container made by the traced code, and does no other place hold it at the end of the arm?"""
        counts, journal = arm.counts, self.tracer.journal
        if counts is None or counts[UNKNOWN] or not journal.is_born(value) or journal.is_sealed(value):
            return False
        return counts[id(value)] <= self.most

    def _numbers(self, a: Any, b: Any, name: str, places: Places) -> Any:
        if a is True and b is False:
            return Number(self.condition)
        dtype = join_dtype(a, b)
        if dtype is None:
            return self._mismatch(a, b, name, places)
        note_widening(self.tracer, name, a, b, dtype, next((place for place in places if place), self.loc))
        with self.tracer.builder.resume(self.then.block):
            left = self.tracer.arithmetic.to_value(a, dtype)
        with self.tracer.builder.resume(self.other.block):
            right = self.tracer.arithmetic.to_value(b, dtype)
        return self._leaf(left, right, is_weak=is_weak_number(a) and is_weak_number(b))

    def _leaf(self, a: Value, b: Value, *, is_weak: bool) -> Any:
        if a is b:
            return wrapped(a, is_weak)
        self.yields.append((a, b))
        index = len(self.yields) - 1
        return _Later(lambda results: wrapped(results[index], is_weak))

    def _undefined(self, present: Any, name: str) -> Poison:
        if isinstance(present, Poison):
            return present
        why = f"it is assigned on one path of the `if` at line {self.loc.line} only"
        return Poison(MaybeUndefined(name, why, "`if`"), (Note(f"the `if` that leaves `{name}` undefined", self.loc),))

    def _mismatch(self, a: Any, b: Any, name: str, places: Places) -> Poison:
        left, right = describe(a), describe(b)
        chosen = Note(f"`{name}` is {left} where this condition holds and {right} where it does not", self.loc)
        diagnostic = JoinMismatch(name, left, right, repair_of_join(a, b))
        return Poison(diagnostic, (chosen, *assigned_here(name, (a, b), places)))

    def make(self) -> tuple[Value, ...]:
        """Emit the `If`; its results in the order of the leaves."""
        builder = self.tracer.builder
        builder.loc = self.loc
        bodies = []
        for side, arm in enumerate((self.then, self.other)):
            with builder.resume(arm.block) as block:
                builder.yield_(*(pair[side] for pair in self.yields))
            bodies.append(block.done())
        return builder.if_(self.condition, bodies[0], bodies[1])


def wrapped(value: Value, is_weak: bool) -> Number | Address:
    return Address(value) if isinstance(value.type, Pointer) else Number(value, is_weak)


def assigned_here(name: str, values: tuple[Any, Any], places: Places) -> tuple[Note, ...]:
    """The lines that gave a variable two values that do not go together."""
    rows = [(value, place) for value, place in zip(values, places) if place is not None]
    return tuple(Note(f"here `{name}` becomes {describe(value)}", place) for value, place in rows)


def note_widening(tracer: Tracer, name: str, a: Any, b: Any, dtype: DType, loc: Loc) -> None:
    """For `.report()`: two paths gave numbers of two dtypes."""
    met = {default_dtype(each).name for each in (a, b) if not is_weak_number(each)}
    if len(met) == 2:
        left, right = sorted(met)
        text = f"line {loc.line}: {name} is {dtype.name}, where {left} and {right} meet"
        tracer.widened.append((loc.line, text))


def is_weak_number(value: Any) -> bool:
    return is_literal(value) or (isinstance(value, Number) and value.is_weak)


def join_dtype(a: Any, b: Any) -> DType | None:
    """The dtype in which two numbers of two paths meet; None where they do not. A literal takes the dtype of the other path,
    but never from float to integer; an integer that does not fit counts as its own dtype.
    """
    weak_a, weak_b = is_weak_number(a), is_weak_number(b)
    left, right = default_dtype(a), default_dtype(b)
    if of_dtype(left, own_type(b)) is not own_type(a):
        return None  # vectors of other tiles
    if weak_a and weak_b:
        met = dtypes.promote(left, right)
        return met if (left.kind == right.kind or {left.kind, right.kind} == {"int", "float"}) else None
    if not weak_a and not weak_b:
        return dtypes.least_common(left, right)
    strong, weak, literal = (right, left, a) if weak_a else (left, right, b)
    if strong.is_float:
        return strong if weak is not dtypes.bool_ else None
    if not (strong.is_integer and weak.is_integer):
        return strong if strong is weak else None
    if isinstance(literal, Number):  # it may be any number of its dtype, which uint64 alone does not widen for
        return dtypes.least_common(strong, weak) or strong
    if strong.holds(literal):
        return strong
    return dtypes.least_common(strong, weak) if weak.holds(literal) else None


def zero_of(tracer: Tracer, type_: Type) -> Value:
    """A value of `type_` that nobody will look at."""
    builder = tracer.builder
    if not isinstance(type_, Pointer):
        return builder.constant(0.0 if type_.dtype.is_float else False if type_.dtype is BOOL.dtype else 0, type_)
    if type_.space is Space.GLOBAL:
        return builder.bitcast(builder.index(0), type_)
    return builder.alloc(type_.dtype, type_.space, 0, type_.dtype.itemsize)


def common_dtype(a: Any, b: Any) -> DType | None:
    """A dtype that holds both, for an error text to propose; None where there is none."""
    return dtypes.promote(default_dtype(a), default_dtype(b)) if is_numeric(a) and is_numeric(b) else None


def filled_like(value: Any, number: Any, name: str) -> str:
    """How a user writes a value like `value` (a tile) that is `number` (held by `name`) throughout; "" where its class says
    nothing.
    """
    write = getattr(type(value), "__stagekit_filled__", None)
    leaves = leaves_of(value) if isinstance(write, types.FunctionType) and is_numeric(number) else []
    if write is None or not leaves or not all(map(is_numeric, leaves)):
        return ""
    if is_literal(number):
        name = "0" if number == 0 else repr(number) if math.isfinite(number) else f'float("{number}")'
    return str(write(value, name, f"sk.{default_dtype(leaves[0]).name}"))


def repair_of_join(a: Any, b: Any) -> str:
    """What to do about two paths that give `a` and `b`."""
    filled = filled_like(b, a, "...") or filled_like(a, b, "...")
    if filled:
        return f"give a tile on both paths, such as `{filled}`"
    dtype = common_dtype(a, b)
    if is_numeric(a) and is_numeric(b):
        example = f", for example by converting with `sk.{dtype.name}(...)`" if dtype is not None else ""
        return f"make both paths give the same type{example}"
    return "at run time numbers can be chosen, and containers of one structure; choose others under a compile-time condition"


def branch(
    tracer: Tracer,
    condition: Value,
    then: Thunk,
    otherwise: Thunk,
    loc: Loc,
    half: Assigned | None = None,
    *,
    is_left: bool = False,
    frame: Frame | None = None,
) -> Any:
    """Run both arms, join their effects on variables, and return their joined results.

    half: takes up, by location identity, (location, value) of what one arm alone gave a value, for who knows that it ran.
    is_left: `otherwise` is for the paths that have taken an exit before. frame: whose statement this is, None for an expression.
    """
    tracer.count_branch(loc)
    tracer.control_depth += 1
    arms = [_trace_arm(tracer, then, loc, is_left=False), _trace_arm(tracer, otherwise, loc, is_left=is_left)]
    tracer.control_depth -= 1
    if any(arm.counts is not None for arm in arms):
        before = holders(tracer.journal)
        for arm in arms:
            arm.counts = before if arm.counts is None else arm.counts
    join = Join(tracer, condition, arms[0], arms[1], loc)
    pairs = _pairs(tracer, *arms)
    plans = []
    for location, name, a, b, places in pairs:
        join.most = 1 if frame is not None and frame.owns(location) else -1
        plans.append((location, join.plan_at(location, name, a, b, places)))
    join.most = -1
    half_plans = []
    for location, name, a, b, _ in pairs if half is not None else ():
        is_half = (a is MISSING) is not (b is MISSING) and not isinstance(a, Poison) and not isinstance(b, Poison)
        if is_half and not is_guarded(name):
            half_plans.append((location, join.plan(a, b, name, is_lenient=True)))
    join.most = 0
    result_plan = join.plan(arms[0].result, arms[1].result, "the result", is_lenient=False)
    results = join.make()
    for location, plan in plans:
        value = _finish(plan, results)
        if value is not MISSING:
            tracer.journal.assign(location, value)
    if half is not None:
        half.update((location.identity, (location, _finish(plan, results))) for location, plan in half_plans)
    return _finish(result_plan, results)


def _trace_arm(tracer: Tracer, run: Thunk, loc: Loc, *, is_left: bool) -> Arm:
    """Run one arm for real, and undo what it changed."""
    mark, first_exit = tracer.journal.mark(), len(tracer.exits)
    with tracer.builder.block() as block:
        result = run()
    tracer.refuse_structure_change(mark, loc)
    changes = tracer.journal.changes(mark)
    values = [result, *(change.after for change in changes.values())]
    counts = holders(tracer.journal) if any(map(may_merge, values)) else None
    tracer.journal.undo(mark, changes)
    is_gone = any(c.after is True and is_exit_flag(c.location.key) for c in changes.values())
    return Arm(block, result, changes, counts, range(first_exit, len(tracer.exits)), is_gone or is_left)


def _pairs(tracer: Tracer, then: Arm, other: Arm) -> list[tuple[Location, str, Any, Any, Places]]:
    """Every location that an arm changed: (location, its name, value after `then`, value after `other`, their lines)."""
    rows = []
    for identity in {**then.changes, **other.changes}:
        left, right = then.changes.get(identity), other.changes.get(identity)
        change = left or right
        assert change is not None
        a = left.after if left else change.before
        b = right.after if right else change.before
        before = None if left and right else tracer.journal.place_of(change.location)
        places = (left.place if left else before, right.place if right else before)
        rows.append((change.location, change.location.describe(), a, b, places))
    return rows
