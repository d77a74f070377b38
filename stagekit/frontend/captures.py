"""What the tracer read from outside the kernel: a compiled kernel stays valid as long as all of it is unchanged.

Every read of a global, a closure cell, a default or an attribute of a captured object is recorded as rows of `state.py`, and so
is all that CPython could read of what it was handed. `is_current()` returns whether every place still holds an object that means
the same; `changes()` describes those that do not.
"""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from stagekit.diagnostics import shown
from stagekit.frontend.state import (
    ANOTHER_OBJECT,
    BUILT_IN_CONTAINERS,
    ById,
    Row,
    asking,
    contents,
    freeze,
    held_by,
    holds,
    is_atomic,
    is_equal,
    lookup,
    now,
    state_rows,
    stored,
)
from stagekit.frontend.values import is_fixed
from stagekit.native_tables import ABSENT

Rows = Callable[[], list[Row]]
_MOST_READS = 5_000
_NAMELESS = ("state", "contents", "type")  # places without a name of their own; most were also read by a name


class Read:
    """One place that was read. what: its name in messages. make: returns its rows as of now, that of the place itself first."""

    __slots__ = ("_make", "rows", "text", "what")

    def __init__(self, what: str, make: Rows, rows: list[Row]) -> None:
        self.what = what
        self._make = make
        self.rows = rows
        self.text = shown(rows[0][3]) if len(rows) > 1 else ""  # as it was, for a value that can change inside

    def renew(self) -> bool:
        """Renew the rows and return True, if each value is equal to the one that was seen; else return False."""
        if not all(map(is_equal, self.rows)):
            return False
        self.rows = self._make()
        return True

    def describe_change(self) -> str:
        row = self.rows[0]
        value, seen = now(row), row[3]
        if value is ABSENT:
            return f"{self.what} is gone"
        before, after = self.text or shown(seen), shown(value)
        if before == after and not callable(value) and isinstance(freeze(value), ById) and value is not seen:
            return f"{self.what} is another object, which counts by identity ({ANOTHER_OBJECT})"
        if type(value) is types.FunctionType or before == after or row[0] == "ask":  # its text says nothing
            return f"{self.what} {'was redefined' if callable(value) else 'changed inside'}"
        return f"{self.what} changed {before} -> {after}"


class Captures:
    """All reads of one trace, each place once."""

    def __init__(self) -> None:
        self._reads: dict[Any, Read] = {}
        self.times_renewed = 0  # how often `is_current` has replaced rows
        self._is_too_much = False  # there are too many reads to watch
        self._given: dict[int, Any] = {}  # by id: what CPython was handed, and everything that can be reached from it

    def _note(self, owner: Any, place: str, what: str, make: Rows) -> None:
        """Record the rows of a place, once. They keep its owner alive, whose id is the key."""
        if (id(owner), place) not in self._reads and (rows := make()):
            self._reads[id(owner), place] = Read(what, make, rows)

    def has(self, owner: Any, place: str) -> bool:
        return (id(owner), place) in self._reads

    # -- reads of the tracer ------------------------------------------------------------------------------------

    def note_variable(self, fn: types.FunctionType | None, name: str) -> None:
        """Record what a name that `fn` does not bind means; nothing for functions of installed libraries, which do not change."""
        if fn is not None and not self.has(fn, name) and not is_fixed(fn.__globals__.get("__name__")):
            self._note(fn, name, name_of_free(fn, name), lambda: _variable(fn, name))

    def note_attribute(self, owner: Any, name: str, what: str) -> None:
        """Record the attribute of an object, a class or a module."""
        if not is_atomic(owner) and type(owner) is not np.ndarray and not self.has(owner, f".{name}"):
            self._note(owner, f".{name}", what, lambda: _with_contents(_attribute(owner, name)))
            self.note_type(owner)

    def note_presence(self, owner: Any, name: str) -> None:
        """Record whether an object has an attribute."""
        if not is_atomic(owner) and type(owner) is not np.ndarray:
            row = functools.partial(_by_pointer, owner, name, lambda: hasattr(owner, name))
            self._note(owner, f"has .{name}", f"whether there is `.{name}`", lambda: [row()])
            self.note_type(owner)

    def note_member(self, cls: type, name: str) -> None:
        """Record what a class or its bases store under a name."""
        if not self.has(cls, f".{name}") and not is_fixed(cls.__module__):
            what = f"`{cls.__name__}.{name}`"
            self._note(cls, f".{name}", what, lambda: _with_contents(("member", cls, name, lookup(cls, name))))

    def note_own(self, owner: Any, name: str) -> None:
        """Record that an object has no attribute of its own by this name, which would hide that of its class."""
        if type(getattr(owner, "__dict__", None)) is dict:
            places = ("item", vars(owner), name), ("attribute", owner, "__dict__")
            self._note(owner, f".{name}", f"`.{name}`", lambda: [_seen(*place) for place in places])
            self.note_type(owner)

    def note_type(self, owner: Any) -> None:
        """Record the class of an object."""
        if not self.has(owner, "type") and not isinstance(owner, type) and not is_atomic(owner):
            what = f"the class of a {type(owner).__name__}"
            self._note(owner, "type", what, lambda: [("type", owner, None, type(owner))])

    def note_function(self, fn: types.FunctionType) -> None:
        """Record the code and the defaults of a function, which reloading tools replace."""
        if not self.has(fn, "code") and not is_fixed(fn.__globals__.get("__name__")):
            self._note(fn, "code", f"`{fn.__name__}`", lambda: _function(fn))

    def note_contents(self, owner: Any) -> None:
        """Record what a container holds that was not read by a name, such as a constexpr."""
        if not is_atomic(owner):
            self._note(owner, "contents", f"the contents of a {type(owner).__name__}", lambda: contents(owner))

    def note_state(self, owner: Any) -> None:
        """Record everything that an object or a container holds."""
        self._note(owner, "state", f"the state of a {type(owner).__name__}", lambda: _state(owner))

    # -- what CPython was handed --------------------------------------------------------------------------------

    def note_given(self, value: Any, is_born: Callable[[Any], bool]) -> None:
        """Record all that CPython can read of a value it was handed: state, classes, and the free names of functions.

        is_born: whether the kernel made an object, whose state is then not recorded.
        """
        pending = [value]
        own: dict[int, Any] = {}
        while pending:
            each = pending.pop()
            if is_atomic(each) or id(each) in self._given or id(each) in own or _is_fixed_object(each):
                continue
            if len(self._reads) > _MOST_READS:
                self._is_too_much = True
                return
            # an object that the kernel made may hold something else at the next call
            known = own if is_born(each) else self._given
            known[id(each)] = each
            pending += self._take_in(each, is_own=known is own)

    def note_derived(self, value: Any) -> None:
        """Record that a value was computed from what CPython was handed: an array, or a number such as a `Fraction`.

        What it was computed from is recorded already. An object that may hold objects of others is not such a value.
        """
        kind = type(value)
        is_value = is_fixed(kind.__module__) and kind not in BUILT_IN_CONTAINERS and not hasattr(value, "__dict__")
        if is_value or kind is np.ndarray:
            self._given.setdefault(id(value), value)

    def _take_in(self, value: Any, *, is_own: bool) -> Iterable[Any]:
        """Record one object; return what can be reached from it."""
        if isinstance(value, types.FunctionType):
            return self._take_in_function(value)
        if isinstance(value, type):
            return self._take_in_class(value)
        if isinstance(value, _OF_PARTS):
            return [part for name in _PARTS if (part := getattr(value, name, None)) is not None]
        if not is_own:
            self.note_state(value)
        return [*held_by(value), *stored(value).values(), type(value)]

    def _take_in_function(self, fn: types.FunctionType) -> Iterator[Any]:
        self.note_function(fn)
        yield from (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values(), *vars(fn).values())
        names = dict.fromkeys(_names_in(fn.__code__))
        for name in names:
            try:
                value = read_free(fn, name)
            except (NameError, ValueError):  # it is the name of an attribute, or not assigned yet
                continue
            self.note_variable(fn, name)
            yield value
            if isinstance(value, types.ModuleType):
                yield from self._take_in_module(value, names)

    def _take_in_module(self, module: types.ModuleType, names: Iterable[str]) -> Iterator[Any]:
        """Record the attributes of a module that a function mentions, and those of modules among them; yield their values.

        Of a module of Python's, NumPy's or ours only what somebody else has put there: its own, such as a file, may come to hold
        something else that means nothing.
        """
        is_ours = is_fixed(vars(module).get("__name__"))
        for name in names:
            if name in vars(module) and not self.has(module, f".{name}"):
                self.note_attribute(module, name, f"`{module.__name__}.{name}`")
                value = vars(module)[name]
                if not is_ours or isinstance(value, types.FunctionType) or not is_fixed(type(value).__module__):
                    yield value
                if isinstance(value, types.ModuleType):
                    yield from self._take_in_module(value, names)

    def _take_in_class(self, cls: type) -> Iterator[Any]:
        yield type(cls)
        own = [base for base in cls.__mro__ if not is_fixed(base.__module__)]
        names = {name for base in own for name in vars(base)} - _MADE_BY_PYTHON
        for name in sorted(names | _ASKED_BY_PYTHON):
            self.note_member(cls, name)
        yield from (lookup(cls, name) for name in names)

    # -- checks -------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Return all rows, each once."""
        rows = (row for read in self._reads.values() for row in read.rows)
        found = {(row[0], id(row[1]), row[2] if isinstance(row[2], str) else None): row for row in rows}
        return list(found.values())

    def is_current(self) -> bool:
        """Return whether reading everything again would give the same values; renew the rows of those that are only equal."""
        if self._is_too_much:
            return False
        stale = [read for read in self._reads.values() if not all(map(holds, read.rows))]
        if not all(read.renew() for read in stale):
            return False
        self.times_renewed += bool(stale)
        return True

    def changes(self) -> list[str]:
        """Return what has changed, in words."""
        stale = {key: read for key, read in self._reads.items() if not all(map(is_equal, read.rows))}
        named = [read for (_, place), read in stale.items() if place not in _NAMELESS]
        found = [read.describe_change() for read in named or stale.values()]
        if self._is_too_much:
            what = "Python was handed more objects at compile time than can be watched"
            found.append(f"{what}: the kernel is traced at every call")
        return found


def _with_contents(*rows: Row) -> list[Row]:
    """Return rows of a place, and of what the value there holds."""
    return [*rows, *contents(rows[0][3])]


def _seen(kind: str, holder: Any, key: Any) -> Row:
    return (kind, holder, key, now((kind, holder, key, None)))


def _place_of_free(fn: types.FunctionType, name: str) -> tuple[str, Any, Any]:
    """Return kind, holder and key of the row of a name that `fn` does not bind: a cell, its module's global, else a builtin."""
    code = fn.__code__
    if name in code.co_freevars and fn.__closure__ is not None:
        return "cell", fn.__closure__[code.co_freevars.index(name)], None
    return "item", fn.__globals__ if name in fn.__globals__ else vars(builtins), name


def _variable(fn: types.FunctionType, name: str) -> list[Row]:
    """Return the rows of a name that `fn` does not bind; for a builtin, also that no global hides it."""
    place = _place_of_free(fn, name)
    is_builtin = place[1] is vars(builtins)
    return [_seen(*place), _seen("item", fn.__globals__, name)] if is_builtin else _with_contents(_seen(*place))


def _attribute(owner: Any, name: str) -> Row:
    """Return the cheapest row that tells what Python's lookup gives."""
    row = _seen("attribute", owner, name)
    if type(owner) is types.ModuleType and vars(owner).get(name, ABSENT) is row[3]:
        return _seen("item", vars(owner), name)
    if isinstance(owner, type) and lookup(type(owner), name) is ABSENT and lookup(owner, name) is row[3]:
        return _seen("member", owner, name)
    return _by_pointer(owner, name, lambda: freeze(getattr(owner, name)))


def _by_pointer(owner: Any, name: str, look: Callable[[], Any]) -> Row:
    """Return a row for an attribute; where each look at it makes a new object, `look` is asked at each call."""
    row = _seen("attribute", owner, name)
    return row if holds(row) else asking(look)


def _function(fn: types.FunctionType) -> list[Row]:
    rows = [_seen(kind, fn, None) for kind in ("code", "defaults", "keywords")]
    return [*rows, *(row for part in rows[1:] for row in contents(part[3]))]


def _state(value: Any) -> list[Row]:
    rows = contents(value)
    if not rows and type(value) not in BUILT_IN_CONTAINERS:
        state_rows(value, rows)
    return rows


# -- what is in what ------------------------------------------------------------------------------------------------------

_OF_PARTS = (
    types.MethodType, staticmethod, classmethod, property, functools.cached_property, functools.partial, functools.partialmethod
)  # fmt: skip
_PARTS = ("__func__", "__self__", "fget", "fset", "func", "args", "keywords")
_MADE_BY_PYTHON = frozenset({
    "__dict__", "__weakref__", "__module__", "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl",
    "__parameters__", "__orig_bases__", "__slotnames__",
})  # fmt: skip
_ASKED_BY_PYTHON = frozenset({
    "__getattr__", "__getattribute__", "__eq__", "__hash__", "__lt__", "__bool__", "__len__", "__iter__", "__getitem__",
    "__contains__", "__str__", "__repr__", "__format__", "__index__", "__int__", "__float__",
})  # fmt: skip
"""Names in a class that mean nothing to its objects, and those by which Python asks, whether a class has them or not."""


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the names in code that may be free, and those in nested functions."""
    yield from (*code.co_freevars, *code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _is_fixed_object(value: Any) -> bool:
    """Return whether nothing that can change is reached from it: a module as such, a library's code, an object of ours."""
    if isinstance(value, types.FunctionType):
        return is_fixed(value.__globals__.get("__name__"))
    if isinstance(value, type):
        return is_fixed(value.__module__)
    return isinstance(value, types.ModuleType) or str(type(value).__module__).partition(".")[0] == "stagekit"


def name_of_free(function: types.FunctionType | None, name: str) -> str:
    """Return how to call a name that the function does not bind: global `EPS`, captured `scale`, `len`."""
    if function is None:
        return f"`{name}`"
    if name in function.__code__.co_freevars:
        return f"captured `{name}`"
    return f"global `{name}`" if name in function.__globals__ else f"`{name}`"


def read_free(function: types.FunctionType | None, name: str) -> Any:
    """Return what a name that the function does not bind means now: its cell, else its module's global, else a builtin.

    Raises NameError where there is none, and ValueError for an empty cell.
    """
    if function is not None:
        kind, holder, _ = _place_of_free(function, name)
        if kind == "cell":
            return holder.cell_contents
        if name in holder:
            return holder[name]
    raise NameError(f"name {name!r} is not defined")
