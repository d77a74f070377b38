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
from typing import Any

from stagekit import dtypes
from stagekit.diagnostics import Loc, Note
from stagekit.dtypes import DType
from stagekit.frontend.errors import JoinMismatch, MaybeUndefined
from stagekit.frontend.journal import MISSING, UNKNOWN, Change, Location, holders, may_merge
from stagekit.frontend.numbers import default_dtype, is_literal, is_numeric, own_type
from stagekit.frontend.parts import describe, leaves_of, note_parts, parts_of, rebuild, same_shape, same_static, settled
from stagekit.frontend.state import stored
from stagekit.frontend.tracer import Assigned, Frame, Thunk, Tracer, is_exit_flag, is_guarded
from stagekit.frontend.values import Address, Array, Number, Partial, Poison, is_run_time
from stagekit.frozen import record
from stagekit.ir import BOOL, OpenBlock, Pointer, Type, Value, of_dtype, ops

Places = tuple[Loc | None, Loc | None]


@record()
class Arm:
    """One traced arm: its open block, its result, and what it changed.

    holder_counts: `holders` at its end, None if it changes no container. exits: the numbers of its exits in `Tracer.exits`.
    has_exited: one of those, or one before the arm, is taken for certain.
    """

    block: OpenBlock
    result: Any
    changes: dict[Any, Change]
    holder_counts: Counter[int] | None
    exits: range
    has_exited: bool

    def parts_of(self, container: Any) -> list[Any]:
        """Return the parts that a container has at the end of this arm. One made before it holds what it held then again."""
        parts = parts_of(container) or []
        if isinstance(container, tuple | Array):  # which never change
            return parts
        is_attribute = not isinstance(container, list | dict)
        keys = range(len(parts)) if isinstance(container, list) else stored(container) if is_attribute else container
        changes = (self.changes.get((id(container), key, is_attribute)) for key in keys)
        return [change.after if change else part for part, change in zip(parts, changes, strict=True)]

    def as_partial(self, held: Any) -> tuple[Any, bool, frozenset[int]]:
        """Return `value`, `is_set` and `exits`, as in `Partial`, of a variable that holds `held` at the end of this arm."""
        if isinstance(held, Partial):
            return held.value, held.is_set or self.has_exited, held.exits
        if held is MISSING or isinstance(held, Poison):
            return MISSING, self.has_exited, frozenset()
        return held, True, frozenset(self.exits)


class Join:
    """The join of two arms: the value of each location that an arm changed, where they differ a result of the `If` to emit.

    frame: the call whose statement this is; None for an expression.
    """

    def __init__(
        self, tracer: Tracer, condition: Value, arms: Sequence[Arm], loc: Loc, frame: Frame | None = None
    ) -> None:
        self.tracer, self.condition, self.loc = tracer, condition, loc
        self.then, self.other = arms
        self.most_holders = 1  # the most places that may hold a container which is merged into one that can change
        self.yields: list[tuple[Value, Value, Value]] = []  # what each arm yields, and the result
        self.joined: list[tuple[Location, Any, Any, Any]] = []  # what it holds after each arm, and after the join
        for identity in {**self.then.changes, **self.other.changes}:
            left, right = self.then.changes.get(identity), self.other.changes.get(identity)
            location, before = ((left or right).location, (left or right).before)  # type: ignore[union-attr]
            a, b = left.after if left else before, right.after if right else before
            place = None if left and right else tracer.journal.place_of(location)
            places = left.place if left else place, right.place if right else place
            self.most_holders = 1 if frame is not None and frame.owns(location) else -1
            self.joined.append((location, a, b, self._join_location(location, a, b, places)))

    def one_sided(self) -> Assigned:
        """Return the values that one arm alone gives locations, for those who know that this arm ran."""
        self.most_holders = -1
        found: Assigned = {}
        for location, a, b, _ in self.joined:
            name = location.describe()
            is_one_sided = (a is MISSING) is not (b is MISSING)
            if is_one_sided and not isinstance(a, Poison) and not isinstance(b, Poison) and not is_guarded(name):
                found[location.identity] = location, self._join(a, b, name, is_lenient=True)
        return found

    def emit(self) -> Any:
        """Emit the `If`, assign the joined values, and return the joined result of the arms."""
        self.most_holders = 0
        result = self._join(self.then.result, self.other.result, "the result", is_lenient=False)
        builder = self.tracer.builder
        builder.loc = self.loc
        bodies = []
        for side, arm in enumerate((self.then, self.other)):
            with builder.resume(arm.block) as block:
                builder.yield_(*(row[side] for row in self.yields))
            bodies.append(block.done())
        then, other = bodies
        results = tuple(result for _, _, result in self.yields)
        builder.append(ops.If(condition=self.condition, then_body=then, else_body=other, results=results, loc=self.loc))
        for location, _, _, value in self.joined:
            if value is not MISSING:
                self.tracer.journal.assign(location, value)
        return result

    def _join(self, a: Any, b: Any, name: str, *, is_lenient: bool, places: Places = (None, None)) -> Any:
        """Return what `name` will be after the join.

        is_lenient: a missing side may be anything. places: the lines that assigned `a` and `b`.
        """
        if same_static(a, b):
            return a
        for missing, present, arm in ((a, b, self.then), (b, a, self.other)):
            if missing is MISSING:
                return self._fill(present, arm) if is_lenient else self._undefined(present, name)
        if isinstance(a, Poison) or isinstance(b, Poison):
            return a if isinstance(a, Poison) else b
        if is_numeric(a) and is_numeric(b):
            return self._join_numbers(a, b, name, places)
        if isinstance(a, Address) and isinstance(b, Address) and a.type == b.type:
            return self._join_leaves(a.value, b.value, is_weak=False)
        with self.tracer.builder.resume(self.then.block):
            left = settled(self.tracer, a, b, self.loc)
        with self.tracer.builder.resume(self.other.block):
            a, b = left, settled(self.tracer, b, a, self.loc)
        if parts_of(a) is not None and same_shape(a, b):
            note_parts(self.tracer, a, b)
            join_parts = functools.partial(self._join, name=name, is_lenient=is_lenient, places=places)
            return self._join_containers([(a, self.then), (b, self.other)], join_parts)
        return self._mismatch(a, b, name, places)

    def _join_location(self, location: Location, a: Any, b: Any, places: Places) -> Any:
        """Return what a location will hold. A variable keeps a value that is missing only on paths which have exited."""
        name = location.describe()
        joined = self._join(a, b, name, is_lenient=is_guarded(name), places=places)
        if location.is_attribute or is_guarded(name) or not isinstance(joined, Poison):
            return joined
        left, is_left_set, left_exits = self.then.as_partial(a)
        right, is_right_set, right_exits = self.other.as_partial(b)
        is_set, exits = is_left_set and is_right_set, left_exits | right_exits
        if is_set or exits:
            value = self._join(left, right, name, is_lenient=True, places=places)
            if not isinstance(value, Poison) and value is not MISSING:
                return Partial(joined.diagnostic, joined.notes, value, is_set, exits)
        return Poison(joined.diagnostic, joined.notes)  # without the value that a `Partial` of one arm has

    def _fill(self, present: Any, absent: Arm) -> Any:
        """Join a value with an arm that has none, where zeros, which nothing reads, stand in for its run-time values."""
        holder = self.other if absent is self.then else self.then
        if present is not MISSING and parts_of(present):
            return self._join_containers([(present, holder)], lambda part: self._fill(part, absent))
        if not is_run_time(present):
            return present
        with self.tracer.builder.resume(absent.block):
            stand_in = zero_of(self.tracer, present.value.type)
        pair = (stand_in, present.value) if absent is self.then else (present.value, stand_in)
        return self._join_leaves(*pair, is_weak=isinstance(present, Number) and present.is_weak)

    def _join_containers(self, held: Sequence[tuple[Any, Arm]], join_parts: Callable[..., Any]) -> Any:
        """Return the container that stands for those of the arms, which have one structure, so that parts correspond."""
        origins = [container for container, _ in held]
        is_free = all(self._is_alone(container, arm) for container, arm in held)
        outer = self.most_holders
        if not isinstance(origins[0], tuple):
            # a container that no other place holds is the only holder of its parts; the parts of others may be held anywhere
            self.most_holders = 1 if is_free else -1
        parts = [join_parts(*each) for each in zip(*(arm.parts_of(container) for container, arm in held))]
        self.most_holders = outer
        return rebuild(self.tracer, origins, parts, is_free=is_free)

    def _is_alone(self, value: Any, arm: Arm) -> bool:
        """Return whether the traced code made this container and no other place holds it at the end of the arm."""
        counts, journal = arm.holder_counts, self.tracer.journal
        if counts is None or counts[UNKNOWN] or not journal.is_born(value) or journal.is_sealed(value):
            return False
        return counts[id(value)] <= self.most_holders

    def _join_numbers(self, a: Any, b: Any, name: str, places: Places) -> Any:
        if a is True and b is False:
            return Number(self.condition)
        dtype = join_dtype(a, b)
        if dtype is None:
            return self._mismatch(a, b, name, places)
        note_widening(self.tracer, name, a, b, dtype, next((place for place in places if place), self.loc))
        values = []
        for number, arm in ((a, self.then), (b, self.other)):
            with self.tracer.builder.resume(arm.block):
                values.append(self.tracer.arithmetic.to_value(number, dtype))
        return self._join_leaves(values[0], values[1], is_weak=is_weak_number(a) and is_weak_number(b))

    def _join_leaves(self, a: Value, b: Value, *, is_weak: bool) -> Any:
        if a is b:
            return wrapped(a, is_weak)
        result = Value(a.type)
        self.yields.append((a, b, result))
        return wrapped(result, is_weak)

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


def wrapped(value: Value, is_weak: bool) -> Number | Address:
    return Address(value) if isinstance(value.type, Pointer) else Number(value, is_weak)


def assigned_here(name: str, values: tuple[Any, Any], places: Places) -> tuple[Note, ...]:
    """Return notes at the lines that gave a variable two values that do not go together."""
    rows = zip(values, places)
    return tuple(Note(f"here `{name}` becomes {describe(value)}", place) for value, place in rows if place is not None)


def note_widening(tracer: Tracer, name: str, a: Any, b: Any, dtype: DType, loc: Loc) -> None:
    """Record, for `.report()`, that two paths gave numbers of two dtypes."""
    met = {default_dtype(each).name for each in (a, b) if not is_weak_number(each)}
    if len(met) == 2:
        left, right = sorted(met)
        text = f"line {loc.line}: {name} is {dtype.name}, where {left} and {right} meet"
        tracer.widened.append((loc.line, text))


def is_weak_number(value: Any) -> bool:
    return is_literal(value) or (isinstance(value, Number) and value.is_weak)


def join_dtype(a: Any, b: Any) -> DType | None:
    """Return the dtype in which the numbers of two paths meet; None where they do not.

    A literal takes the dtype of the other path, but never from float to integer; one that does not fit counts as its own dtype.
    """
    weak_a, weak_b = is_weak_number(a), is_weak_number(b)
    left, right = default_dtype(a), default_dtype(b)
    if of_dtype(left, own_type(b)) is not own_type(a):
        return None  # a vector meets only one of as many lanes
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
    if isinstance(literal, Number):  # it may have any value of its dtype; uint64 is not widened for it
        return dtypes.least_common(strong, weak) or strong
    if strong.holds(literal):
        return strong
    return dtypes.least_common(strong, weak) if weak.holds(literal) else None


def zero_of(tracer: Tracer, type_: Type) -> Value:
    """Emit a value of `type_` that nothing reads."""
    builder = tracer.builder
    if not isinstance(type_, Pointer):
        return builder.constant(0.0 if type_.dtype.is_float else False if type_.dtype is BOOL.dtype else 0, type_)
    return builder.alloc(type_.dtype, type_.space, 0, type_.dtype.itemsize)


def common_dtype(a: Any, b: Any) -> DType | None:
    """Return a dtype that holds both, for an error text to propose; None where there is none."""
    return dtypes.promote(default_dtype(a), default_dtype(b)) if is_numeric(a) and is_numeric(b) else None


def filled_like(value: Any, number: Any, name: str) -> str:
    """Return how a user writes a tile like `value` filled with `number`, which `name` holds; "" where its class does not say."""
    write = getattr(type(value), "__stagekit_filled__", None)
    leaves = leaves_of(value) if isinstance(write, types.FunctionType) and is_numeric(number) else []
    if write is None or not leaves or not all(map(is_numeric, leaves)):
        return ""
    if is_literal(number):
        name = "0" if number == 0 else repr(number) if math.isfinite(number) else f'float("{number}")'
    return str(write(value, name, f"sk.{default_dtype(leaves[0]).name}"))


def repair_of_join(a: Any, b: Any) -> str:
    """Return the help of an error: what to do about two paths that give `a` and `b`."""
    filled = filled_like(b, a, "...") or filled_like(a, b, "...")
    if filled:
        return f"give a tile on both paths, such as `{filled}`"
    dtype = common_dtype(a, b)
    if is_numeric(a) and is_numeric(b):
        example = f", for example by converting with `sk.{dtype.name}(...)`" if dtype is not None else ""
        return f"make both paths give the same type{example}"
    return "at run time numbers can be chosen, and containers of one structure; choose others under a compile-time condition"


def branch(
    tracer: Tracer, condition: Value, then: Thunk, otherwise: Thunk, loc: Loc, frame: Frame | None = None, **exits: bool
) -> Any:
    """Run both arms, join their effects on variables, and return their joined results.

    frame: the call whose statement this is, None for an expression. exits: see `trace_arms`.
    """
    return Join(tracer, condition, trace_arms(tracer, then, otherwise, loc, **exits), loc, frame).emit()


def trace_arms(tracer: Tracer, then: Thunk, otherwise: Thunk, loc: Loc, *, after_exit: bool = False) -> list[Arm]:
    """Run each arm for real, and undo what it changed. after_exit: `otherwise` is for the paths that have exited before."""
    tracer.count_branch(loc)
    tracer.control_depth += 1
    arms = []
    for run, has_exited in ((then, False), (otherwise, after_exit)):
        mark, first_exit = tracer.journal.mark(), len(tracer.exits)
        with tracer.builder.block() as block:
            result = run()
        tracer.refuse_structure_change(mark, loc)
        changes = tracer.journal.changes(mark)
        values = [result, *(change.after for change in changes.values())]
        counts = holders(tracer.journal) if any(map(may_merge, values)) else None
        tracer.journal.undo(mark, changes)
        exits = range(first_exit, len(tracer.exits))
        has_exited |= any(c.after is True and is_exit_flag(c.location.key) for c in changes.values())
        arms.append(Arm(block, result, changes, counts, exits, has_exited))
    tracer.control_depth -= 1
    if any(arm.holder_counts is not None for arm in arms):
        before = holders(tracer.journal)
        for arm in arms:
            arm.holder_counts = before if arm.holder_counts is None else arm.holder_counts
    return arms
