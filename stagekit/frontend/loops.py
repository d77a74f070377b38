"""What a run-time loop carries from one iteration to the next, found by tracing its body until nothing new turns up.

First guess: the variables that the body's text assigns and that hold run-time values. A variable that starts as a literal is
left as it is for one round, to see which type the body gives it (`acc = 0` becomes float32 when float32 is added). Then the
changed locations are carried as block parameters, with those types, and the body is traced again. A round that finds a new
location or a new type is thrown away, journal and blocks together; so are its errors, which may come of a type that was wrong.
Each round joins what the body gives with what there was before the loop, and not with the types of earlier rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stagekit.diagnostics import InternalError, Loc
from stagekit.frontend.control import (
    Places,
    assigned_here,
    common_dtype,
    describe,
    filled_like,
    is_weak_number,
    join_dtype,
    leaves_of,
    note_parts,
    note_widening,
    parts_of,
    rebuild,
    same_shape,
    same_static,
    wrapped,
    zero_of,
)
from stagekit.frontend.errors import LoopTypeChange, MaybeUndefined, RunTimeValue, StagingError, StructureChange
from stagekit.frontend.journal import MISSING, Change, Location, holders, is_alone, may_merge
from stagekit.frontend.numbers import is_numeric, own_type
from stagekit.frontend.tracer import VALUE, Assigned, Frame, Tracer
from stagekit.frontend.values import Address, Generator, Number, Partial, Poison, is_run_time
from stagekit.ir import Pointer, Type, Value, of_dtype

MAX_ROUNDS = 200  # every round finds a location or widens a type; most loops need two or three
_STILL = 8  # from this round on types only widen, so that they cannot alternate for ever


@dataclass(frozen=True)
class LeafType:
    """The type of one carried IR value. weak: made from literals only so far."""

    type: Type
    is_weak: bool


Leaves = list[LeafType | None]


@dataclass
class Item:
    """A carried location. shape: a value with the structure to rebuild (`start`, or the body's when there was none before).

    leaves: per leaf of `shape` the type that this round assumes; None for a compile-time part of a container that no iteration
    changes. found: the types that it should have had, None before the round has come to its end. is_late: the body alone gives it
    a value, in each iteration anew: it is carried out of the loop, and no iteration sees what one before it has left (`handed`).
    """

    location: Location
    start: Any
    shape: Any
    leaves: Leaves
    place: Loc | None  # of the line that assigned `start`
    found: Leaves | None = None
    is_late: bool = False
    handed: Sequence[Value] = ()
    unset: Any = MISSING  # what a late one holds before its iteration has set it
    last: Any = None  # what it held at the end of the last round's body
    is_free: bool = False  # a container that no other place holds, before the loop and at the end of each iteration
    others: list[Any] = field(default_factory=list)  # that it holds at the end of an iteration, in place of `start`
    roots: set[int] = field(default_factory=set)  # by id: the containers older than the loop that it may be or hold

    @property
    def name(self) -> str:
        return self.location.describe()


def with_leaves(tracer: Tracer, value: Any, leaves: list[Any], is_free: bool, others: Sequence[Any] = ()) -> Any:
    """`value` with its numbers and addresses replaced, in order; takes them from the front of `leaves`.

    others: what the new one may stand for besides, of the same structure.
    """
    parts = parts_of(value)
    if parts is not None:
        others = [each for each in others if same_shape(value, each)]
        rows = zip(parts, *(parts_of(each) or [] for each in others))
        made = [with_leaves(tracer, part, leaves, is_free, rest) for part, *rest in rows]
        return rebuild(tracer, (value, *others), made, is_free=is_free)
    return leaves.pop(0) if is_numeric(value) or isinstance(value, Address) else value


def leaf_type(leaf: Any) -> LeafType:
    if isinstance(leaf, Address):
        return LeafType(leaf.type, False)
    return LeafType(own_type(leaf), is_weak_number(leaf))


class CarriedLocations:
    """The locations that one loop carries. Block parameters, initial values and yields are all in the order of `items`."""

    def __init__(self, frame: Frame, loc: Loc) -> None:
        self.frame, self.tracer, self.loc = frame, frame.tracer, loc
        self.is_shared = False  # did this round find that a container is held elsewhere?
        self.began = frame.tracer.journal.mark()
        self.items: dict[Any, Item] = {}
        self.errors: list[StagingError] = []  # of this round
        self.candidates: Sequence[Location] = ()  # of this call, assigned in the body's text
        self.read_after: set[Any] = set()  # locations that are read outside of a loop whose body surely runs
        self.dropped: set[Any] = set()  # locations that turned out not to be set on every path through the body
        self.assumed: Assigned = {}  # by a walrus behind `and` in the loop's test: known in the body only
        self.tested: set[Any] = set()  # locations that the loop's test assigns: it runs at least once

    def add(self, location: Location, start: Any, shape: Any, leaves: Leaves) -> None:
        item = Item(location, start, shape, leaves, self.tracer.journal.place_of(location))
        item.roots = set(self._older_in(start))
        item.is_free = may_merge(shape) and self.frame.owns(location) and (start is MISSING or self._is_alone(start))
        self.items[location.identity] = item

    def _is_alone(self, value: Any) -> bool:
        return is_alone(self.tracer.journal, value, holders(self.tracer.journal))

    def guess(self, locations: Sequence[Location]) -> None:
        """Carry those locations that hold run-time values."""
        self.candidates = locations
        for location in locations:
            start = location.get()
            leaves = leaves_of(start)
            if any(is_run_time(leaf) for leaf in leaves):
                self.add(location, start, start, [leaf_type(leaf) if is_run_time(leaf) else None for leaf in leaves])

    # -- one round ----------------------------------------------------------------------------------------------

    def params(self) -> list[Value]:
        return [Value(leaf.type, item.name) for item in self.items.values() for leaf in item.leaves if leaf]

    def bind(self, values: Sequence[Value], *, is_after: bool = False) -> None:
        """Let every carried location hold its part of `values`: at the start of an iteration, or after the loop."""
        queue = list(values)
        for item in self.items.values():
            kept = zip(item.leaves, leaves_of(item.shape), strict=True)
            item.handed = queue[: sum(leaf is not None for leaf in item.leaves)]
            leaves = [wrapped(queue.pop(0), leaf.is_weak) if leaf else static for leaf, static in kept]
            if is_after or not item.is_late:
                held = with_leaves(self.tracer, item.shape, leaves, item.is_free, item.others)
                self.tracer.journal.assign(item.location, held)

    def current(self) -> list[Value]:
        """What the carried locations hold now, in the carried types. Where those are wrong, the item says so afterwards."""
        return [value for item in self.items.values() for value in self._current(item)]

    def _current(self, item: Item) -> list[Value]:
        now = item.location.get()
        if item.is_late and now is item.unset:
            return list(item.handed)
        item.last = now
        now = now.value if isinstance(now, Partial) else now
        if item.is_free and not self._is_alone(now):
            item.is_free, self.is_shared = False, True
        self._note_other(item, now)
        try:
            found = self._types_of(item, now)
        except StagingError as error:
            self.errors.append(error)
            found = None
        before = item.leaves if item.found is None else item.found
        if found is not None:
            item.found = found if item.found is None else [_wider(a, b) for a, b in zip(item.found, found, strict=True)]
        if found is None or item.found != item.leaves or before != item.leaves:  # the round counts for nothing
            return [zero_of(self.tracer, leaf.type) for leaf in item.leaves if leaf]
        kept = zip(leaves_of(now), item.leaves, strict=True)
        return [self._init(leaf, expected) for leaf, expected in kept if expected]

    def _note_other(self, item: Item, now: Any) -> None:
        """What an item holds at the end of an iteration, the next one finds as a copy: it must not change behind that."""
        roots = set(self._older_in(now)) if may_merge(now) and not item.is_free else set()
        if roots - item.roots:
            item.others.append(now)
            item.roots |= roots
            self.is_shared = True

    def _older_in(self, value: Any) -> Iterator[int]:
        """By id: the containers older than the loop that a value may be or hold."""
        yield from self.tracer.journal.older_roots(value, self.began)
        for part in parts_of(value) or ():
            yield from self._older_in(part)

    def _types_of(self, item: Item, now: Any) -> Leaves:
        """The types in which what an item holds now meets what it was before the loop."""
        if isinstance(now, Poison):
            if item.is_late:  # with these types it is not set on every path
                item.is_late, self.dropped = False, {*self.dropped, item.location.identity}
            raise now.error(self.loc)

        places = lambda: (item.place, self.tracer.journal.place_of(item.location))  # noqa: E731  most need none
        if item.start is not MISSING:
            return self._joined_leaves(item.name, item.start, now, places)
        found = _new_leaves(now)
        if len(found) != len(item.leaves):
            raise self._type_change(item.name, item.shape, now, places)
        return found

    def inits(self) -> tuple[Value, ...]:
        """The values before the loop, in the carried types."""
        found: list[Value] = []
        for item in self.items.values():
            starts = leaves_of(item.start) if item.start is not MISSING else [None] * len(item.leaves)
            found.extend(self._init(start, leaf) for start, leaf in zip(starts, item.leaves, strict=True) if leaf)
        return tuple(found)

    def _init(self, start: Any, leaf: LeafType) -> Value:
        if start is None:
            return zero_of(self.tracer, leaf.type)
        if isinstance(start, Address):
            return start.value
        return self.tracer.arithmetic.to_value(start, leaf.type.dtype)

    # -- between rounds -----------------------------------------------------------------------------------------

    def revise(self, is_final: bool) -> bool:
        """Take the types that the round found for the next one; says whether any are new."""
        before, is_shared, self.is_shared = self.types(), self.is_shared, False
        lost = [key for key, item in self.items.items() if item.is_late and key not in self.read_after]
        lost += [key for key in self.dropped if key in self.items]
        for identity in lost:
            del self.items[identity]
        for item in self.items.values():
            if item.found is not None:
                item.leaves = [_wider(a, b) for a, b in zip(item.leaves, item.found)] if is_final else item.found
            item.found = None
        return bool(lost) or is_shared or self.types() != before

    def types(self) -> Leaves:
        return [leaf for item in self.items.values() for leaf in item.leaves]

    def extend(self, changes: dict[Any, Change]) -> bool:
        """Carry what a round changed and was not carried yet; says whether there was anything."""
        is_new = False
        for identity, change in changes.items():
            is_back = same_static(change.before, change.after) and identity not in self.tested
            if identity in self.items or is_back:
                continue  # what the test changes, the body sees changed, whatever it makes of it
            is_unset = change.before is MISSING or isinstance(change.before, Poison)
            is_late = is_unset and change.location.key != VALUE and identity not in self.tested
            after = change.after.value if isinstance(change.after, Partial) else change.after
            if is_late and (identity not in self.read_after - self.dropped or isinstance(after, Poison)):
                continue  # see `leave`
            if is_unset and not is_late and change.before is not MISSING:
                continue
            try:
                self._carry(replace(change, before=MISSING if is_late else change.before, after=after))
                self.items[identity].is_late, self.items[identity].unset = is_late, change.before
                is_new = True
            except StagingError as error:
                self.errors.append(error)
        return is_new

    def carry_literals(self) -> bool:
        """Carry the numbers that the body may change and that it was taken to begin with in every iteration; says whether any."""
        kept = [place for place in self.candidates if place.identity not in self.items and is_numeric(place.get())]
        for location in kept:
            self.add(location, location.get(), location.get(), [leaf_type(location.get())])
        self.candidates = ()
        return bool(kept)

    def _carry(self, change: Change) -> None:
        if isinstance(change.after, Poison):
            raise change.after.error(self.loc)
        if isinstance(change.location.container, Generator):
            raise StagingError(StructureChange("how far an iterator made before the loop has come"), self.loc)
        location, before, after = change.location, change.before, change.after
        if before is MISSING:
            self.add(location, MISSING, after, _new_leaves(after))
            return
        places = lambda: (self.tracer.journal.place_of(location), change.place)  # noqa: E731  most need none
        self.add(location, before, before, self._joined_leaves(location.describe(), before, after, places))

    def _joined_leaves(self, name: str, before: Any, after: Any, places: Callable[[], Places]) -> Leaves:
        if is_numeric(before) and same_static(before, after):
            return [None]
        if is_numeric(before) and is_numeric(after):
            dtype = join_dtype(before, after)
            if dtype is not None:
                return [LeafType(of_dtype(dtype, own_type(before)), is_weak_number(before) and is_weak_number(after))]
        elif isinstance(before, Address) and isinstance(after, Address) and before.type == after.type:
            return [leaf_type(before)]
        elif parts_of(before) is not None and same_shape(before, after):
            note_parts(self.tracer, before, after)
            pairs = zip(parts_of(before) or [], parts_of(after) or [])
            return [leaf for a, b in pairs for leaf in self._joined_leaves(name, a, b, places)]
        elif same_static(before, after):
            return []
        raise self._type_change(name, before, after, places)

    def _type_change(self, name: str, before: Any, after: Any, places: Callable[[], Places]) -> StagingError:
        dtype = common_dtype(before, after)
        repair = "make every iteration give the type that it has before the loop"
        if dtype is not None:
            start = name if isinstance(before, Number) else before
            repair = f"start with a type that the body keeps, for example `{name} = sk.{dtype.name}({start})`"
        filled = filled_like(after, before, name)
        if filled:
            repair = f"start with a tile of that length and dtype: `{name} = {filled}`"
        notes = assigned_here(name, (before, after), places())
        return StagingError(LoopTypeChange(name, describe(before), describe(after), repair), self.loc, notes)

    def leave(
        self,
        changes: dict[Any, Change],
        *,
        runs: bool,
        is_endless: bool = False,
        broken: frozenset[int] = frozenset(),
        returned: frozenset[int] = frozenset(),
    ) -> None:
        """After the loop: what only the body assigned may have no value.

        runs: at least one iteration does. is_endless: only its exits, `broken` and `returned` by number, end the loop.
        """
        taken = broken | returned
        for identity, item in self.items.items():
            self._note_widening(item, changes.get(identity))
            if not item.is_late:
                continue
            is_partial = isinstance(item.last, Partial)
            exits = taken & item.last.exits if is_partial else taken
            is_set = runs and broken <= exits and (is_endless or not is_partial or item.last.is_set)
            if not (is_set and exits == taken):  # else each way that leads out of the loop sets it
                poison = self._undefined(item.location)
                kept = Partial(poison.diagnostic, poison.notes, item.location.get(), is_set, exits)
                self.tracer.journal.assign(item.location, kept)
        own = [each for identity, each in changes.items() if identity not in self.items and each.before is MISSING]
        for location in (*(each.location for each in own), *(location for location, _ in self.assumed.values())):
            self.tracer.journal.assign(location, self._undefined(location))

    def _note_widening(self, item: Item, change: Change | None) -> None:
        loc = (change.place if change is not None else None) or self.loc
        starts = [] if item.start is MISSING else leaves_of(item.start)
        for start, leaf in zip(starts, item.leaves):
            if leaf is not None and not isinstance(leaf.type, Pointer):
                carried = Number(Value(leaf.type), leaf.is_weak)
                note_widening(self.tracer, item.name, start, carried, leaf.type.dtype, loc)

    def _undefined(self, location: Location) -> Poison:
        name = location.describe()
        why = f"only the loop at line {self.loc.line} assigns it, which may run no iteration"
        return Poison(MaybeUndefined(name, why, "loop"), ())


def _new_leaves(value: Any) -> Leaves:
    """The types of what had no value before; what a container holds at compile time stays so."""
    is_part = parts_of(value) is not None
    return [None if is_part and not is_run_time(leaf) else leaf_type(leaf) for leaf in leaves_of(value)]


def _wider(a: LeafType | None, b: LeafType | None) -> LeafType | None:
    """The type that holds both; `b` where there is none."""
    if a is None or b is None or a == b:
        return a or b
    left, right = (Number(Value(each.type), each.is_weak) for each in (a, b))
    has_pointer = isinstance(a.type, Pointer) or isinstance(b.type, Pointer)
    met = None if has_pointer else join_dtype(left, right)
    return LeafType(of_dtype(met, a.type), a.is_weak and b.is_weak) if met else b


def settle(carried: CarriedLocations, trace: Callable[[], Any]) -> tuple[Any, dict[Any, Change]]:
    """Run rounds of `trace` until what is carried is right. Returns the last round's blocks and the changes it made."""
    refused: list[StagingError] = []
    tracer = carried.tracer
    for count in range(MAX_ROUNDS):
        start = tracer.checkpoint()
        carried.errors = []
        blocks = _round(carried, trace)
        if not carried.errors:
            tracer.refuse_structure_change(start.journal, carried.loc)
        changes = tracer.journal.undo(start.journal)
        is_revised = carried.revise(count >= _STILL)
        if not carried.extend(changes) and not is_revised:
            if not carried.errors:
                return blocks, changes
            if not carried.carry_literals():
                # as the types are in the end, or as before, if it is only that a literal was carried
                is_late = refused and carried.errors[0].id == RunTimeValue.id
                raise refused[0] if is_late else carried.errors[0]
            refused = carried.errors
        tracer.forget(start)
    raise InternalError(f"the loop at {carried.loc} did not settle")


def _round(carried: CarriedLocations, trace: Callable[[], Any]) -> Any:
    """Trace once. Where a statement is refused, the round goes on: what follows may show that a type was wrong."""
    frame, tracer = carried.frame, carried.tracer
    tracer.count_branch(carried.loc)
    outer, frame.doubts = frame.doubts, carried.errors
    tracer.control_depth += 1
    depth = tracer.control_depth
    try:
        return trace()
    except StagingError as error:
        carried.errors.append(error)
        return None
    finally:
        tracer.control_depth = depth - 1
        frame.doubts = outer
