"""The one journal of every assignment while tracing, so that a run-time `if` or loop can see what a piece of code changed.

A *location* is a place that holds a value: a local variable, a list item, a dict entry, an attribute. The journal remembers
each location's former value, can undo back to a mark, and says which locations changed since.

    mark = journal.mark()
    ...                                  # the code of one arm, run for real
    changes = journal.undo(mark)         # {location: (before, after)}; everything is as it was at the mark

Objects made while tracing are *born* in it. What is born after a mark is private to that piece of code: its changes are not
undone and not reported, since nobody outside can see them. What is not born in the trace at all belongs to the user's program
and may not be changed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stagekit.diagnostics import Loc


class _Missing:
    """The value of a location that does not exist."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(slots=True, eq=False)  # never changed; a frozen one takes longer to make
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
        """How a person would name it."""
        if self.is_attribute:
            return f".{self.key}"
        return str(self.key) if isinstance(self.container, dict) else f"[{self.key}]"


def _attribute(owner: Any, name: str) -> Any:
    """What an attribute holds, without running the code of a property: the object's own, else a plain one of its class."""
    state = getattr(owner, "__dict__", {})
    if name in state:
        return state[name]
    found = next((cls.__dict__[name] for cls in type(owner).__mro__ if name in cls.__dict__), MISSING)
    if isinstance(found, types.MemberDescriptorType):
        return getattr(owner, name, MISSING)
    return MISSING if hasattr(found, "__get__") else found


@dataclass(frozen=True, slots=True)
class Mark:
    length: int
    time: int


@dataclass(frozen=True, slots=True)
class Change:
    """A location, what it held at the mark, what it holds after, and the line that put it there, where there is one."""

    location: Location
    before: Any
    after: Any
    place: Loc | None


@dataclass(slots=True, eq=False)
class _Assigned:
    location: Location
    before: Any
    place: Loc | None  # of the assignment in the user's text

    def undo(self) -> None:
        self.location.put(self.before)

    @property
    def container(self) -> Any:
        return self.location.container


@dataclass(frozen=True, slots=True, eq=False)
class _Restructured:
    """A container gained or lost items. `restore` brings the old contents back."""

    container: Any
    what: str
    restore: Callable[[], None]

    def undo(self) -> None:
        self.restore()


_Entry = _Assigned | _Restructured


class Journal:
    """All changes of one trace, oldest first."""

    def __init__(self) -> None:
        self._log: list[_Entry] = []
        self._births: dict[int, tuple[Any, int]] = {}  # id -> (the object, kept alive; when)
        self._sealed: dict[int, tuple[Any, ...]] = {}  # by id: what it may stand for, and itself
        self._copies: dict[int, list[Any]] = {}  # by the id of a container that was born: what stands for it or another
        self._buried: set[int] = set()
        self._time = 0

    def born(self, made: Any) -> Any:
        """Note that `made` was created by the code being traced; returns it."""
        if id(made) not in self._births:
            self._time += 1
            self._births[id(made)] = (made, self._time)
        return made

    def is_born(self, container: Any) -> bool:
        return id(container) in self._births

    def seal(self, made: Any, origins: Iterable[Any] = ()) -> Any:
        """Forbid changes of a container that stands for one of `origins`: which one it is is known only at run time."""
        origins = tuple(origins)
        self._sealed[id(made)] = (*origins, made)
        for origin in filter(self.is_born, origins):
            self._copies.setdefault(id(origin), []).append(made)
        return self.born(made)

    def copies(self, container: Any) -> Iterator[Any]:
        """What was made to stand for this container or another, and so does not follow when it changes."""
        for made in self._copies.get(id(container), ()):
            yield made
            yield from self.copies(made)

    def bury(self, variables: dict[str, Any]) -> None:
        """These are of a call that is over: nobody can read them any more."""
        self._buried.add(id(variables))

    def living(self) -> list[Any]:
        """All that was born, but for what is buried."""
        return [made for identity, (made, _) in self._births.items() if identity not in self._buried]

    def is_sealed(self, container: Any) -> bool:
        return id(container) in self._sealed

    def birth_time(self, made: Any) -> int:
        return self._births[id(made)][1]

    def older_roots(self, container: Any, mark: Mark) -> Iterator[int]:
        """The ids of what was born before the mark among this container and what it may stand for."""
        birth = self._births.get(id(container))
        if birth is not None and birth[1] < mark.time:
            yield id(container)
            return
        for origin in self._sealed.get(id(container), ())[:-1]:
            yield from self.older_roots(origin, mark)

    def mark(self) -> Mark:
        self._time += 1
        return Mark(len(self._log), self._time)

    def assign(self, location: Location, value: Any, place: Loc | None = None) -> None:
        """Store a value. place: of the line that does so; None for what only a join or a loop says."""
        self._log.append(_Assigned(location, location.get(), place))
        location.put(value)

    def place_of(self, location: Location) -> Loc | None:
        """The line that last assigned this location, for error texts."""
        wanted = location.identity
        return next(
            (
                e.place
                for e in reversed(self._log)
                if isinstance(e, _Assigned) and e.place and e.location.identity == wanted
            ),
            None,
        )

    def restructure(self, container: Any, what: str, restore: Callable[[], None]) -> None:
        """Record that items were added to or removed from `container`; call before doing so."""
        self._log.append(_Restructured(container, what, restore))

    def _is_private(self, entry: _Entry, mark: Mark) -> bool:
        birth = self._births.get(id(entry.container))
        return birth is not None and birth[1] > mark.time

    def restructured_since(self, mark: Mark) -> tuple[Any, str] | None:
        """A container older than the mark whose structure changed since, with what happened; None if there is none."""
        for entry in self._log[mark.length :]:
            if isinstance(entry, _Restructured) and not self._is_private(entry, mark):
                return entry.container, entry.what
        return None

    def changes(self, mark: Mark) -> dict[Any, Change]:
        """What changed since the mark in locations that are older than it, by location identity."""
        found: dict[Any, _Assigned] = {}
        places: dict[Any, Loc] = {}
        for entry in self._log[mark.length :]:
            if isinstance(entry, _Assigned) and not self._is_private(entry, mark):
                identity = entry.location.identity
                found.setdefault(identity, entry)
                if entry.place is not None:
                    places[identity] = entry.place
        return {
            identity: Change(first.location, first.before, first.location.get(), places.get(identity))
            for identity, first in found.items()
        }

    def undo(self, mark: Mark, found: dict[Any, Change] | None = None) -> dict[Any, Change]:
        """Bring every older location back to what it held at the mark; says what had changed (`found`, if asked before)."""
        found = self.changes(mark) if found is None else found
        for entry in reversed(self._log[mark.length :]):
            if not self._is_private(entry, mark):
                entry.undo()
        del self._log[mark.length :]
        return found
