"""What a run-time loop carries from one iteration to the next, found by tracing its body until nothing new turns up.

The first guess is the variables that the body's text assigns and that hold run-time values. A variable that starts as a literal
stays one for a round, to see which type the body gives it (`acc = 0` becomes float32 when float32 is added), where it ends.
Then the changed locations are carried as block parameters of those types, and the body is traced again. A round that finds a new
location or a new type is thrown away, journal and blocks together; so are its errors, which a wrong type may have caused. The
first one ends where the last of what it takes for known, numbers and tuples, is found to change. Each round joins what the body
gives with what there was before the loop, and not with the types of earlier rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from stagekit.diagnostics import InternalError, Loc
from stagekit.frontend.control import (
    Places,
    assigned_here,
    common_dtype,
    filled_like,
    is_weak_number,
    join_dtype,
    note_widening,
    wrapped,
    zero_of,
)
from stagekit.frontend.errors import LoopTypeChange, MaybeUndefined, RunTimeValue, StagingError, StructureChange
from stagekit.frontend.facts import Polynomial
from stagekit.frontend.journal import MISSING, Change, Location, holders, is_alone, may_merge
from stagekit.frontend.numbers import is_numeric, own_type
from stagekit.frontend.parts import describe, leaves_of, note_parts, parts_of, rebuild, same_shape, same_static, settled
from stagekit.frontend.tracer import VALUE, Assigned, BecomesRunTime, Frame, Tracer
from stagekit.frontend.values import Address, Generator, Number, Partial, Poison, is_run_time
from stagekit.frozen import frozen, record
from stagekit.ir import Pointer, Type, Value, of_dtype

MAX_ROUNDS = 200  # every round finds a location or widens a type; most loops need two or three
_ONLY_WIDENING = 8  # the round from which types only widen, so that they cannot alternate for ever


@frozen(slots=False)
class LeafType:
    """The type of one carried IR value. is_weak: it was made from literals only so far."""

    type: Type
    is_weak: bool


Leaves = list[LeafType | None]
Steps = dict[int, Polynomial | None]
"""By the number of a value among those that an item carries; None for no such thing."""


@record()
class Item:
    """A carried location. shape: a value with the structure to rebuild (`start`, or where there is none the body's).

    leaves: for each leaf of `shape` the type that this round assumes; None for a compile-time part of a container that no
    iteration changes. found: the types that the end of the round asks for, None before. is_body_only: each iteration sets it
    anew; its value is carried out of the loop, but no iteration sees the one of the iteration before (`incoming`).
    """

    location: Location
    start: Any
    shape: Any
    leaves: Leaves
    place: Loc | None  # the line that assigned `start`
    found: Leaves | None = None
    is_body_only: bool = False
    incoming: Sequence[Value] = ()
    unset: Any = MISSING  # what a body-only one holds before its iteration has set it
    at_end: Any = None  # what it held at the end of the last round's body
    is_free: bool = False  # a container that no other place holds, before the loop and at the end of each iteration
    others: list[Any] = field(default_factory=list)  # other containers that it holds at the end of an iteration
    roots: set[int] = field(default_factory=set)  # ids of the containers older than the loop that it may be or hold
    unlike: Any = None  # what the body gives that does not correspond to `start`: see `control.settled`
    steps: Steps = field(default_factory=dict)  # what each turn adds to a carried value, as this round takes it
    found_steps: list[Steps] = field(default_factory=list)  # what the parts of this round have added

    @property
    def name(self) -> str:
        return self.location.describe()


def with_leaves(tracer: Tracer, value: Any, leaves: list[Any], is_free: bool, others: Sequence[Any]) -> Any:
    """Return `value` with its numbers and addresses replaced, in order, by those taken from the front of `leaves`.

    others: containers that the new one may stand for besides, where they have the same structure.
    """
    parts = parts_of(value)
    if parts is not None:
        others = [each for each in others if same_shape(value, each)]
        rows = zip(parts, *(parts_of(each) or [] for each in others))
        replaced = [with_leaves(tracer, part, leaves, is_free, rest) for part, *rest in rows]
        return rebuild(tracer, (value, *others), replaced, is_free=is_free)
    return leaves.pop(0) if is_numeric(value) or isinstance(value, Address) else value


def leaf_type(leaf: Any) -> LeafType:
    if isinstance(leaf, Address):
        return LeafType(leaf.type, False)
    return LeafType(own_type(leaf), is_weak_number(leaf))


class CarriedLocations:
    """The locations that one loop carries. Block parameters, initial values and yields are all in the order of `items`."""

    def __init__(self, frame: Frame, loc: Loc) -> None:
        self.frame, self.tracer, self.loc = frame, frame.tracer, loc
        self.is_shared = False  # this round found that a container is held elsewhere
        self.began = frame.tracer.journal.mark()
        self.items: dict[Any, Item] = {}
        self.errors: list[StagingError] = []  # those of this round
        self.is_ended = False  # this round ended where nothing was left of what it took for known
        self.candidates: Sequence[Location] = ()  # variables of this call that the body's text assigns
        self.moved: set[str] = set()  # names of variables to which the body's text adds
        self.early_names: Callable[[], set[str]] = set  # of variables that the body's text assigns while calls are left
        self.read_after: set[Any] = set()  # locations that are read after the loop, where its body surely runs
        self.dropped: set[Any] = set()  # locations that turned out not to be set on every path through the body
        self.assumed: Assigned = {}  # what a walrus behind `and` in the loop's test assigns: known in the body only
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
        """Assign each carried location its part of `values`, at the start of an iteration or after the loop."""
        queue = list(values)
        for item in self.items.values():
            pairs = zip(item.leaves, leaves_of(item.shape), strict=True)
            item.incoming = queue[: sum(leaf is not None for leaf in item.leaves)]
            self._bind_steps(item)
            leaves = [wrapped(queue.pop(0), leaf.is_weak) if leaf else static for leaf, static in pairs]
            if is_after or not item.is_body_only:
                held = with_leaves(self.tracer, item.shape, leaves, item.is_free, item.others)
                self.tracer.journal.assign(item.location, held)

    def current(self) -> list[Value]:
        """Return what the carried locations hold now, in the carried types. `Item.found` notes a value of another type."""
        return [value for item in self.items.values() for value in self._current(item)]

    def _current(self, item: Item) -> list[Value]:
        now = item.location.get()
        if item.is_body_only and now is item.unset:
            return list(item.incoming)
        item.at_end = now
        now = settled(self.tracer, now.value if isinstance(now, Partial) else now, item.shape, self.loc)
        if item.is_free and not self._is_alone(now):
            item.is_free, self.is_shared = False, True
        self._note_container(item, now)
        try:
            found = self._types_of(item, now)
        except StagingError as error:
            self.errors.append(error)
            found = None
        before = item.leaves if item.found is None else item.found
        if found is not None:
            item.found = found if item.found is None else [_wider(a, b) for a, b in zip(item.found, found, strict=True)]
        if found is None or item.found != item.leaves or before != item.leaves:  # the round will be thrown away
            return [zero_of(self.tracer, leaf.type) for leaf in item.leaves if leaf]
        pairs = zip(leaves_of(now), item.leaves, strict=True)
        values = [self._init(leaf, expected) for leaf, expected in pairs if expected]
        self._note_steps(item, values)
        return values

    # -- what moves by a step ---------------------------------------------------------------------------------------

    def _bind_steps(self, item: Item) -> None:
        """Say what is known of the carried values that move by a step."""
        starts = [start for start, leaf in zip(leaves_of(item.start), item.leaves) if leaf] if item.steps else []
        for place, step in item.steps.items():
            start = starts[place]
            if step is not None:
                begun = start.value if isinstance(start, Address | Number) else int(start)
                self.tracer.facts.carry(item.incoming[place], begun, step)

    def _note_steps(self, item: Item, values: Sequence[Value]) -> None:
        """Note what has been added to the carried values of which that matters: their multiples were asked for in vain."""
        facts = self.tracer.facts
        places = [p for p, before in enumerate(item.incoming) if before in facts.missed or p in item.steps]
        item.found_steps.append({place: facts.step(values[place], item.incoming[place]) for place in places})

    def _revise_steps(self, item: Item) -> bool:
        """Take the steps that the round found for the next one; return whether any are new. What was wrong once is no step."""
        *first, last = item.found_steps or [{}]
        item.found_steps = []
        is_moved_before = {place for each in first for place, step in each.items() if step is None or step.terms}
        found = {**item.steps, **{place: None if place in is_moved_before else step for place, step in last.items()}}
        before, item.steps = item.steps, {p: s if item.steps.get(p, s) == s else None for p, s in found.items()}
        return before != item.steps and any(step is not None for step in (*before.values(), *item.steps.values()))

    def _note_container(self, item: Item, now: Any) -> None:
        """Record the container that an item holds now: the next iteration finds a copy, which would not follow its changes."""
        roots = set(self._older_in(now)) if may_merge(now) and not item.is_free else set()
        if roots - item.roots:
            item.others.append(now)
            item.roots |= roots
            self.is_shared = True

    def _older_in(self, value: Any) -> Iterator[int]:
        """Yield the ids of the containers older than the loop that a value may be or hold."""
        yield from self.tracer.journal.older_roots(value, self.began)
        for part in parts_of(value) or ():
            yield from self._older_in(part)

    def _types_of(self, item: Item, now: Any) -> Leaves | None:
        """Return the types in which what an item holds now meets what it was before the loop; None where it has to settle."""
        if isinstance(now, Poison):
            if item.is_body_only:  # it turned out not to be set on every path
                item.is_body_only, self.dropped = False, {*self.dropped, item.location.identity}
            raise now.error(self.loc)

        places = lambda: (item.place, self.tracer.journal.place_of(item.location))  # noqa: E731  most need none
        if settled(self.tracer, item.shape, now, self.loc) is not item.shape:
            item.unlike = now
            return None
        if item.start is not MISSING:
            return self._joined_leaves(item.name, item.start, now, places)
        found = _new_leaves(now)
        if len(found) != len(item.leaves):
            raise self._type_change(item.name, item.shape, now, places)
        return found

    def inits(self) -> tuple[Value, ...]:
        """Return the values before the loop, in the carried types."""
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

    def revise(self, only_widening: bool) -> bool:
        """Take the types that the round found for the next one; return whether any are new."""
        is_shared, self.is_shared = self.is_shared, False
        before = [item.leaves for item in self.items.values()]
        lost = [key for key, item in self.items.items() if item.is_body_only and key not in self.read_after]
        lost += [key for key in self.dropped if key in self.items]
        for identity in lost:
            del self.items[identity]
        unlike = [item for item in self.items.values() if item.unlike is not None]
        for item in unlike:
            self._settle(item)
        for item in self.items.values():
            if item.found is not None:
                item.leaves = [_wider(a, b) for a, b in zip(item.leaves, item.found)] if only_widening else item.found
            item.found = None
        is_revised = bool(lost or unlike) or is_shared or before != [item.leaves for item in self.items.values()]
        if is_revised:  # a round of wrong types says nothing of steps
            for item in self.items.values():
                item.steps, item.found_steps = {}, []
        has_new_steps = [self._revise_steps(item) for item in self.items.values()]
        return is_revised or any(has_new_steps)

    def _settle(self, item: Item) -> None:
        """Carry an item as it meets what the body gives."""
        after, item.unlike, item.found = item.unlike, None, None
        shape = settled(self.tracer, item.shape, after, self.loc)
        if item.start is not MISSING:
            item.start = shape
        item.shape, item.leaves = shape, _new_leaves(shape)

    def extend(self, changes: dict[Any, Change]) -> bool:
        """Carry what a round changed and was not carried yet; return whether there was anything."""
        is_new = False
        for identity, change in changes.items():
            location, start = change.location, change.before
            is_restored = same_static(start, change.after) and identity not in self.tested
            if identity in self.items or is_restored:
                continue  # what the test changes, the body sees changed, even where it restores it
            is_unset = start is MISSING or isinstance(start, Poison)
            is_body_only = is_unset and location.key != VALUE and identity not in self.tested
            after = change.after.value if isinstance(change.after, Partial) else change.after
            if is_body_only and (identity not in self.read_after - self.dropped or isinstance(after, Poison)):
                continue  # `finish` makes it undefined
            if is_unset and not is_body_only and start is not MISSING:
                continue
            try:
                self._carry(location, MISSING if is_body_only else start, after, change.place)
                self.items[identity].is_body_only, self.items[identity].unset = is_body_only, start
                is_new = True
            except StagingError as error:
                self.errors.append(error)
        return is_new

    def carry_literals(self) -> bool:
        """Carry the candidates that were taken for the same literal in every iteration; return whether there are any."""
        literals = self.known_numbers()
        for location in literals:
            self.add(location, location.get(), location.get(), [leaf_type(location.get())])
        self.candidates = ()
        return bool(literals)

    def known_numbers(self) -> list[Location]:
        """Return the candidates that are not carried and hold numbers known at compile time."""
        return [each for each in self.candidates if each.identity not in self.items and is_numeric(each.get())]

    def known(self) -> set[Any]:
        """Return the candidates that a round takes for known: numbers, and tuples where all of them may change early."""
        uncarried = [each for each in self.candidates if each.identity not in self.items]
        tuples = [each for each in uncarried if isinstance(each.get(), tuple) and leaves_of(each.get())]
        if tuples and not self.early_names().issuperset([each.key for each in tuples]):
            tuples = []
        return {each.identity for each in (*self.known_numbers(), *tuples)}

    def _carry(self, location: Location, before: Any, after: Any, place: Loc | None) -> None:
        """Carry a location that held `before` before the loop; the line `place` of its body assigns `after`."""
        if isinstance(after, Poison):
            raise after.error(self.loc)
        if isinstance(location.container, Generator):
            raise StagingError(StructureChange("how far an iterator made before the loop has come"), self.loc)
        if before is MISSING:
            self.add(location, MISSING, after, _new_leaves(after))
            return
        places = lambda: (self.tracer.journal.place_of(location), place)  # noqa: E731  most need none
        before = settled(self.tracer, before, after, self.loc)
        with self.tracer.builder.block():  # nobody sees it: the round is thrown away
            after = settled(self.tracer, after, before, self.loc)
        leaves = self._joined_leaves(location.describe(), before, after, places)
        self.add(location, before, before, leaves)
        if location.key in self.moved:
            self.items[location.identity].steps = _first_step(before, after, leaves)

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

    def finish(
        self,
        changes: dict[Any, Change],
        *,
        runs: bool,
        is_endless: bool = False,
        broken: frozenset[int] = frozenset(),
        returned: frozenset[int] = frozenset(),
    ) -> None:
        """After the loop, make undefined what only the body assigned, wherever it may have no value.

        runs: at least one iteration runs. is_endless: only its exits end the loop. broken, returned: their numbers.
        """
        taken = broken | returned
        for identity, item in self.items.items():
            self._note_widening(item, changes.get(identity))
            if not item.is_body_only:
                continue
            is_partial = isinstance(item.at_end, Partial)
            exits = taken & item.at_end.exits if is_partial else taken
            is_set = runs and broken <= exits and (is_endless or not is_partial or item.at_end.is_set)
            if not (is_set and exits == taken):  # else each way that leads out of the loop sets it
                poison = self._undefined(item.location)
                partial = Partial(poison.diagnostic, poison.notes, item.location.get(), is_set, exits)
                self.tracer.journal.assign(item.location, partial)
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
    """Return the types of a value where there was none before; compile-time parts of a container stay so."""
    is_part = parts_of(value) is not None
    return [None if is_part and not is_run_time(leaf) else leaf_type(leaf) for leaf in leaves_of(value)]


def _first_step(before: Any, after: Any, leaves: Leaves) -> Steps:
    """Return what a turn adds to an integer known before and after the first one: the next round sees whether each does."""
    leaf = leaves[0] if isinstance(before, int | np.integer) and isinstance(after, int | np.integer) else None
    if leaf is None or not leaf.type.dtype.is_integer:
        return {}
    return {0: Polynomial({(): int(after) - int(before)}, leaf.type.dtype.bits)}


def _wider(a: LeafType | None, b: LeafType | None) -> LeafType | None:
    """Return the type that holds both; `b` where there is none."""
    if a is None or b is None or a == b:
        return a or b
    left, right = (Number(Value(each.type), each.is_weak) for each in (a, b))
    has_pointer = isinstance(a.type, Pointer) or isinstance(b.type, Pointer)
    met = None if has_pointer else join_dtype(left, right)
    return LeafType(of_dtype(met, a.type), a.is_weak and b.is_weak) if met else b


def settle(carried: CarriedLocations, trace: Callable[[], Any]) -> tuple[Any, dict[Any, Change]]:
    """Run rounds of `trace` until what is carried is right; return the last round's blocks and the changes it made."""
    refused: list[StagingError] = []
    tracer = carried.tracer
    for count in range(MAX_ROUNDS):
        start = tracer.checkpoint()
        carried.errors = []
        known = carried.known() if count == 0 else set()
        blocks = _round(carried, trace, known)
        if not carried.errors:
            tracer.refuse_structure_change(start.journal, carried.loc)
        changes = tracer.journal.undo(start.journal)
        asked = tracer.facts.withdraw(start.asked)  # what `revise` asks stays: it makes code before the loop
        if carried.is_ended:
            # what the other branch of an `if` assigned is undone by now: the next round finds it
            carried.extend({each: changes[each] for each in known if each in changes})
            tracer.forget(start)
            continue
        is_revised = carried.revise(count >= _ONLY_WIDENING)
        if not carried.extend(changes) and not is_revised:
            if not carried.errors:
                tracer.facts.note(asked)
                return blocks, changes
            if not carried.carry_literals():
                # the error with the final types; or the one before, where carrying literals is all that caused this one
                is_caused = refused and carried.errors[0].id == RunTimeValue.id
                raise refused[0] if is_caused else carried.errors[0]
            refused = carried.errors
        tracer.forget(start)
    raise InternalError(f"the loop at {carried.loc} did not settle")


def _round(carried: CarriedLocations, trace: Callable[[], Any], known: set[Any]) -> Any:
    """Trace once. Where a statement is refused the round goes on, since what follows may show that a type was wrong.

    known: variables that the round takes for known. It ends where the last of them gets run-time numbers (`carried.is_ended`).
    """
    frame, tracer = carried.frame, carried.tracer
    tracer.count_branch(carried.loc)
    outer, frame.doubts = frame.doubts, carried.errors
    tracer.control_depth += 1
    depth, iteration, open_loops = tracer.control_depth, frame.iteration, len(frame.loops)
    known -= tracer.taken_as_known.keys()  # those of a loop around end its round
    around, still_known = tracer.taken_as_known, known.copy()
    tracer.taken_as_known = {**around, **dict.fromkeys(known, still_known)}
    carried.is_ended = False
    try:
        return trace()
    except StagingError as error:
        carried.errors.append(error)
        return None
    except BecomesRunTime as error:
        if error.known is not still_known:
            raise
        carried.is_ended, frame.iteration = True, iteration
        del frame.loops[open_loops:]
        return None
    finally:
        tracer.control_depth = depth - 1
        tracer.taken_as_known = around
        frame.doubts = outer
