"""The one journal of every assignment while tracing, so that a run-time `if` or loop can see what a piece of code changed.

A *location* is a place that holds a value: a local variable, a list item, a dict entry, an attribute. The journal remembers
each location's former value, can undo back to a mark, and says which locations changed since.

    mark = journal.mark()
    ...                                  # the code of one arm, run for real
    changes = journal.undo(mark)         # {identity of a location: Change}; every location holds what it held at the mark

Objects made while tracing are *born* in the journal. What is born after a mark is private to that piece of code: its changes are
neither undone nor reported, since nobody outside can see them. An object that was never born belongs to the user's program and
may not be changed.

Everything that the traced code makes and can change is born, the variables of calls too. So a walk over it finds each place that
holds a container (`holders`). Two containers that meet after a run-time `if` become one that may be changed if no other place
holds either, since then nobody can tell that they were two.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from stagekit.diagnostics import Loc
from stagekit.dtypes import DType
from stagekit.frontend.state import ATOMIC_TYPES, lookup, stored
from stagekit.frontend.values import STAND_INS, BoundMethod, Closure, Number, Partial, Poison, StaticRange, is_open
from stagekit.frozen import frozen, record
from stagekit.native_tables import ABSENT


class _Missing:
    """The value of a location that does not exist."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@frozen(eq=False)
class Location:
    """`container[key]`, or `container.key`. Two locations are the same when container (by identity) and key are."""

    container: Any
    key: Any
    is_attribute: bool

    @property
    def identity(self) -> tuple[int, Any, bool]:
        return (id(self.container), self.key, self.is_attribute)

    def get(self) -> Any:
        if self.is_attribute:
            return _attribute(self.container, self.key)
        if isinstance(self.container, list):
            return self.container[self.key]
        return self.container.get(self.key, MISSING)

    def put(self, value: Any) -> None:
        if self.is_attribute:
            if value is MISSING:
                object.__delattr__(self.container, self.key)
            else:
                object.__setattr__(self.container, self.key, value)
        elif value is MISSING:
            del self.container[self.key]
        else:
            self.container[self.key] = value

    def describe(self) -> str:
        """Return how a person would name it."""
        if self.is_attribute:
            return f".{self.key}"
        return str(self.key) if isinstance(self.container, dict) else f"[{self.key}]"


def _attribute(owner: Any, name: str) -> Any:
    """Return an attribute, the object's own or a plain one of its class, without running the code of a property."""
    state = getattr(owner, "__dict__", {})
    if name in state:
        return state[name]
    found = lookup(type(owner), name)
    if isinstance(found, types.MemberDescriptorType):
        return getattr(owner, name, MISSING)
    return MISSING if found is ABSENT or hasattr(found, "__get__") else found


@frozen()
class Mark:
    """A moment of a trace: the length of the log, and the time."""

    length: int
    time: int


@record(slots=True)
class Change:
    """A location, what it held at the mark, what it holds after, and the line that put it there, where there is one."""

    location: Location
    before: Any
    after: Any
    place: Loc | None


@frozen(eq=False)
class _Logged:
    """A location that was assigned, or (`location` is None) a container that gained or lost items.

    before: what the location held, or a function that restores the old items. note: the line of the assignment, or in words what
    was done to the items.
    """

    container: Any
    location: Location | None
    before: Any
    note: Any

    def undo(self) -> None:
        if self.location is None:
            self.before()
        else:
            self.location.put(self.before)


class Journal:
    """All changes of one trace, oldest first."""

    def __init__(self) -> None:
        self._log: list[_Logged] = []
        self._births: dict[int, tuple[Any, int]] = {}  # by id: the object, which this keeps alive, and when it was born
        self._sealed: dict[int, tuple[Any, ...]] = {}  # by id: the containers that it may stand for, and itself
        self._copies: dict[int, list[Any]] = {}  # by id: the sealed containers that may stand for it
        self._buried: set[int] = set()
        self._time = 0

    def born(self, new: Any) -> Any:
        """Record that the code being traced made `new`; return it."""
        if id(new) not in self._births:
            self._time += 1
            self._births[id(new)] = (new, self._time)
        return new

    def is_born(self, container: Any) -> bool:
        return id(container) in self._births

    def seal(self, joined: Any, origins: Iterable[Any] = ()) -> Any:
        """Forbid changes of a container that stands for one of `origins`, since which one is known only at run time."""
        origins = tuple(origins)
        self._sealed[id(joined)] = (*origins, joined)
        for origin in filter(self.is_born, origins):
            self._copies.setdefault(id(origin), []).append(joined)
        return self.born(joined)

    def copies(self, container: Any) -> Iterator[Any]:
        """Yield the sealed containers that may stand for this one, and so do not follow when it changes."""
        for copy in self._copies.get(id(container), ()):
            yield copy
            yield from self.copies(copy)

    def bury(self, variables: dict[str, Any]) -> None:
        """Record that the call with these variables is over: nobody can read them any more."""
        self._buried.add(id(variables))

    def living(self) -> list[Any]:
        """Return everything that was born and is not buried."""
        return [born for identity, (born, _) in self._births.items() if identity not in self._buried]

    def is_sealed(self, container: Any) -> bool:
        return id(container) in self._sealed

    def birth_time(self, born: Any) -> int:
        return self._births[id(born)][1]

    def older_roots(self, container: Any, mark: Mark) -> Iterator[int]:
        """Yield the ids of those born before the mark among this container and what it may stand for."""
        birth = self._births.get(id(container))
        if birth is not None and birth[1] < mark.time:
            yield id(container)
            return
        for origin in self._sealed.get(id(container), ())[:-1]:
            yield from self.older_roots(origin, mark)

    def tick(self) -> int:
        """A time after all that was born so far."""
        self._time += 1
        return self._time

    def mark(self) -> Mark:
        return Mark(len(self._log), self.tick())

    def assign(self, location: Location, value: Any, place: Loc | None = None) -> None:
        """Store a value. place: the line that does so; None for a join or a loop."""
        self._log.append(_Logged(location.container, location, location.get(), place))
        location.put(value)

    def place_of(self, location: Location) -> Loc | None:
        """Return the line that last assigned this location, for error texts."""
        wanted = location.identity
        for entry in reversed(self._log):
            if entry.location is not None and entry.note and entry.location.identity == wanted:
                return entry.note  # type: ignore[no-any-return]
        return None

    def restructure(self, container: Any, what: str, restore: Callable[[], None]) -> None:
        """Record that items were added to or removed from `container`; call before doing so."""
        self._log.append(_Logged(container, None, restore, what))

    def _since(self, mark: Mark) -> list[_Logged]:
        """Return the entries since the mark about what is older than it, newest first."""
        births, never = self._births, (None, 0)
        recent = reversed(self._log[mark.length :])
        return [entry for entry in recent if births.get(id(entry.container), never)[1] <= mark.time]

    def restructured_since(self, mark: Mark) -> str | None:
        """Return what was first done since the mark to the items of a container older than it; None if nothing was."""
        found = [entry.note for entry in self._since(mark) if entry.location is None]
        return found[-1] if found else None

    def changes(self, mark: Mark) -> dict[Any, Change]:
        """Return what changed since the mark in locations older than it, by their identity, in order."""
        found: dict[Any, Change] = {}
        for entry in reversed(self._since(mark)):
            location = entry.location
            if location is None:
                continue
            known = found.get(location.identity)
            if known is None:
                found[location.identity] = Change(location, entry.before, location.get(), entry.note)
            elif entry.note is not None:
                known.place = entry.note
        return found

    def undo(self, mark: Mark, found: dict[Any, Change] | None = None) -> dict[Any, Change]:
        """Restore every older location to what it held at the mark; return what had changed (`found`, if known)."""
        found = self.changes(mark) if found is None else found
        for entry in self._since(mark):
            entry.undo()
        del self._log[mark.length :]
        return found


# -- who holds what -------------------------------------------------------------------------------------------------------

_HOLD_NOTHING = (
    *STAND_INS, StaticRange, Poison, DType, bool, int, float, complex, str, bytes, range, slice, type, np.generic, type(None),
    _Missing, np.ndarray, set, frozenset, types.ModuleType, types.FunctionType, types.BuiltinFunctionType,
)  # fmt: skip
_KINDS_THAT_HOLD_NOTHING = frozenset(_HOLD_NOTHING)  # of nearly everything that is held
UNKNOWN = -1  # the key that counts what holds others in a way that is not looked into


def holders(journal: Journal) -> Counter[int]:
    """Return in how many places the traced program holds each container, by its id."""
    found: Counter[int] = Counter()
    for living in journal.living():
        for held in _contents(living):
            if type(held) not in _KINDS_THAT_HOLD_NOTHING:
                _count(held, found)
    return found


def is_alone(journal: Journal, value: Any, counts: Counter[int]) -> bool:
    """Return whether the traced code made this container and each one in it, and one place alone holds each of them."""
    if is_changeable(value) and (not journal.is_born(value) or journal.is_sealed(value) or counts[id(value)] > 1):
        return False
    return not counts[UNKNOWN] and all(is_alone(journal, part, counts) for part in _contents(value) if may_merge(part))


def is_changeable(value: Any) -> bool:
    """Return whether this is a container that the program could change."""
    if type(value) is Number or type(value) in ATOMIC_TYPES:  # the commonest
        return False
    if isinstance(value, list | dict):
        return True
    parameters = getattr(type(value), "__dataclass_params__", None)
    return is_open(value) and not isinstance(value, tuple) and not (parameters and parameters.frozen)


def may_merge(value: Any) -> bool:
    """Return whether this is, or a tuple that holds, a container that the program could change."""
    return is_changeable(value) or (isinstance(value, tuple) and any(map(may_merge, value)))


def _contents(holder: Any) -> Iterable[Any]:
    if isinstance(holder, dict):
        return list(holder.values())
    if isinstance(holder, (list, tuple, set, frozenset)):
        return list(holder)
    return stored(holder).values() if is_open(holder) else ()  # an iterator counts where a variable or a `for` holds it


def _count(held: Any, found: Counter[int]) -> None:
    if isinstance(held, Partial):
        _count(held.value, found)
    elif isinstance(held, _HOLD_NOTHING):
        return
    elif isinstance(held, Closure):
        _count((*(held.stub.__defaults__ or ()), *(held.stub.__kwdefaults__ or {}).values()), found)
    elif isinstance(held, BoundMethod):
        _count(held.owner, found)
    elif isinstance(held, tuple):
        for each in held:
            if type(each) not in _KINDS_THAT_HOLD_NOTHING:
                _count(each, found)
    elif is_changeable(held):
        found[id(held)] += 1
    elif not is_open(held):
        found[UNKNOWN] += 1
