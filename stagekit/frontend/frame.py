"""One call being traced: its variables, where free names lead, and which early exits may have happened.

`control` holds the exit flags as ordinary journaled values, so that run-time `break`, `continue` and `return` join and are
carried like any variable: False (not taken), True (taken for certain), or a run-time bool.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stagekit.diagnostics import Loc
from stagekit.diagnostics.diagnostic import Diagnostic
from stagekit.frontend.errors import NestingBudget, OpBudget, RecursionBudget, StagingError
from stagekit.frontend.journal import Location
from stagekit.frontend.markers import SizeExpr
from stagekit.frontend.source import Source
from stagekit.frontend.tracer import Tracer
from stagekit.frontend.values import Poison, Scope

MAX_DEPTH = 1_000  # calls in each other, as in Python

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
class Frame:
    """A call of one function, in a trace."""

    tracer: Tracer
    source: Source
    scope: Scope
    function: types.FunctionType | None  # for its globals and cells; None only in the tests of this room
    call_site: Loc | None
    depth: int
    iteration: tuple[str, ...] = ()
    control: dict[str, Any] = field(default_factory=dict)
    loops: list[LoopFlags] = field(default_factory=list)
    locs: dict[Any, Loc] = field(default_factory=dict)
    doubts: list[StagingError] | None = None  # errors of a loop's round, which may come of a wrong type

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

    # -- errors and places ----------------------------------------------------------------------------------------

    def error(self, diagnostic: Diagnostic, node: ast.AST) -> StagingError:
        return StagingError(diagnostic, self.loc(node))

    def at(self, node: ast.AST) -> Loc:
        """Move the builder to `node` and return its place."""
        loc = self.tracer.builder.loc = self.loc(node)
        return loc

    def read(self, value: Any, node: ast.AST) -> Any:
        """A value just read from a location at `node`: poison raises, a size becomes its run-time number."""
        if not isinstance(value, (Poison, SizeExpr)):
            return value
        if isinstance(value, Poison):
            raise value.error(self.loc(node))
        return self.tracer.size(value, self.loc(node))

    # -- exits ----------------------------------------------------------------------------------------------------

    def exit(self, flag: str) -> None:
        """Take an exit of a loop or call."""
        self.tracer.exits.append((self.control, flag))
        self.tracer.assign(self.control, flag, True)

    def exits_by(self, flag: str, first: int = 0) -> frozenset[int]:
        """The exits from number `first` on that set this flag."""
        rows = enumerate(self.tracer.exits[first:], first)
        return frozenset(number for number, (control, name) in rows if name == flag and control is self.control)

    # -- budgets --------------------------------------------------------------------------------------------------

    def count_ops(self, node: ast.AST) -> None:
        if self.tracer.builder.op_count > self.tracer.options.op_budget:
            raise self.error(OpBudget(self.tracer.options.op_budget, self.tracer.most_unrolled()), node)

    def count_deep_call(self, node: ast.AST, called: Source) -> None:
        """A recursion that calls itself twice ends, but not while anybody waits."""
        self.tracer.deep_calls += 1
        deep_calls = self.tracer.deep_calls
        is_often = deep_calls > self.tracer.options.unroll_budget
        if not is_often and self.depth < MAX_DEPTH:
            return
        often = f", and there were {deep_calls} such calls: raise the budget with `unroll_budget=`" if is_often else ""
        around = {(place.file, place.function) for place in self.loc(node).chain()}
        if (called.file, called.name) in around:
            raise self.error(RecursionBudget(called.name, self.depth, often), node)
        hint = "call some of them one after the other"
        raise self.error(NestingBudget("calls stand", f"{self.depth} deep in each other{often}", hint), node)


@dataclass(frozen=True, slots=True)
class LoopFlags:
    """Names under which a loop's flags stand in `Frame.control`."""

    broken: str
    continued: str
    first_exit: int  # of `Tracer.exits` that the loop may have
