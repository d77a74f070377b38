"""One call being traced: its variables, where free names lead, and which early exits may have happened.

`control` holds the exit flags as ordinary journaled values, so that run-time `break`, `continue` and `return` join and are
carried like any variable: False (not taken), True (taken for certain), or a run-time bool.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stagekit.diagnostics import Loc
from stagekit.frontend.errors import StagingError
from stagekit.frontend.journal import Location
from stagekit.frontend.source import FunctionNode, Names, Source

RETURN = "<return>"
BROKEN, CONTINUED = "<broken", "<continued"  # before the number of the loop
VALUE = "<return value>"
CAPTURE = "<captured>"  # before the name that a pattern captures


def is_exit_flag(name: Any) -> bool:
    return isinstance(name, str) and (name == RETURN or name.startswith((BROKEN, CONTINUED)))


def is_guarded(name: str) -> bool:
    """Is this read only where it was written? A join may then put anything on the other path."""
    return name == VALUE or name.startswith(CAPTURE)


@dataclass(eq=False)
class Scope:
    """A namespace of the program being traced: a call, or a comprehension inside one. `outer` is where free names continue."""

    names: Names
    variables: dict[str, Any]
    outer: Scope | None

    def owner_of(self, name: str) -> Scope | None:
        """The innermost traced scope that binds `name`."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names.local:
                return scope
            scope = scope.outer
        return None


@dataclass(eq=False)
class Frame:
    """A call of one function."""

    source: Source
    scope: Scope
    function: (
        types.FunctionType | None
    )  # the Python function, for its globals and cells; None only in the tests of this room
    call_site: Loc | None
    depth: int
    iteration: tuple[str, ...] = ()
    control: dict[str, Any] = field(default_factory=dict)
    loops: list[LoopFlags] = field(default_factory=list)
    locs: dict[Any, Loc] = field(default_factory=dict)
    doubts: list[StagingError] | None = (
        None  # takes up errors of the round of a run-time loop, which may come of a wrong type
    )

    @contextmanager
    def certain(self) -> Iterator[None]:
        """Within, an error is one: an unrolled loop that went on after it might never end."""
        outer, self.doubts = self.doubts, None
        try:
            yield
        finally:
            self.doubts = outer

    def owns(self, location: Location) -> bool:
        """At a statement of this call: is this a place of whose value no expression around can hold what no other place holds?"""
        return self.depth == 0 or location.container is self.scope.variables or location.container is self.control

    def loc(self, node: Any) -> Loc:
        key = (node, self.iteration)
        found = self.locs.get(key)
        if found is None:
            found = self.locs[key] = self.source.loc(node, self.call_site, self.iteration)
        return found

    def flags(self) -> list[str]:
        """Names of the flags that stop the statement list being run."""
        if not self.loops:
            return [RETURN]
        return [RETURN, self.loops[-1].broken, self.loops[-1].continued]


@dataclass(frozen=True, slots=True)
class LoopFlags:
    """Names under which a loop's flags stand in `Frame.control`."""

    broken: str
    continued: str
    first_exit: int  # of `Tracer.exits` that the loop may have


@dataclass(frozen=True, eq=False)
class Closure:
    """A function defined inside the traced code, with the scope it was defined in and its evaluated defaults."""

    source: Source
    frame: Frame
    scope: Scope
    defaults: tuple[Any, ...]
    kw_defaults: dict[str, Any]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"`{self.name}` is defined in a kernel and runs only there")

    @property
    def node(self) -> FunctionNode:
        return self.source.node

    @property
    def name(self) -> str:
        return self.source.name


def name_of_free(function: types.FunctionType | None, name: str) -> str:
    """What to call a name that the function does not bind: global `EPS`, captured `scale`, `len`."""
    if function is None:
        return f"`{name}`"
    if name in function.__code__.co_freevars:
        return f"captured `{name}`"
    return f"global `{name}`" if name in function.__globals__ else f"`{name}`"


def read_free(function: types.FunctionType | None, name: str) -> Any:
    """What a name that the function does not bind means now: its cell, else its module's global, else a builtin.

    Raises NameError where there is none, and ValueError for an empty cell.
    """
    if function is not None:
        code = function.__code__
        if name in code.co_freevars and function.__closure__ is not None:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        if name in function.__globals__:
            return function.__globals__[name]
        if name in _BUILTINS:
            return _BUILTINS[name]
    raise NameError(f"name {name!r} is not defined")


_BUILTINS = vars(builtins)
