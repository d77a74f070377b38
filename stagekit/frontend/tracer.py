"""The state of one specialisation being traced, and the operations every part of the front end shares.

The front end *interprets* the syntax tree: expressions (`expressions.py`), statements (`statements.py`), run-time control flow
(`control.py`), calls (`calls.py`, `builtins.py`, `language.py`). They all receive the `Tracer`, or a `Frame`: one call being
traced, with its variables and which early exits may have happened.

`Frame.control` holds the exit flags as ordinary journaled values, so that run-time `break`, `continue` and `return` join and are
carried like any variable: False (not taken), True (taken for certain), or a run-time bool.
"""

from __future__ import annotations

import ast
import dataclasses
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stagekit.diagnostics import ALIKE, Diagnostic, InternalError, Loc, closest, counted
from stagekit.frontend.captures import Captures
from stagekit.frontend.errors import (
    FLATTEN,
    AmongThreads,
    ArgumentMutation,
    CapturedMutation,
    NestingBudget,
    RecursionBudget,
    SealedMutation,
    StagingError,
    StructureChange,
    UnboundSize,
    UnrollBudget,
)
from stagekit.frontend.facts import Facts
from stagekit.frontend.journal import UNKNOWN, Journal, Location, Mark, holders
from stagekit.frontend.markers import Dynamic, SizeExpr, SizeOp
from stagekit.frontend.numbers import Arithmetic
from stagekit.frontend.source import Source
from stagekit.frontend.values import Number, Poison, Scope, holds_run_time, is_fixed
from stagekit.frozen import frozen, record
from stagekit.hostexpr import KINDS
from stagekit.ir import BinaryKind, Builder, Fastmath, Value
from stagekit.ir.intervals import Intervals

UNROLL_BUDGET = 16_384  # iterations of static loops, all together: about half a second
OP_BUDGET = 1_000_000
MAX_DEPTH = 1_000  # calls in each other, as in Python
MAX_NESTING = 2_000  # run-time branches and loops in each other


@frozen()
class TraceOptions:
    """The options of a specialisation that tracing looks at."""

    fastmath: Fastmath = False
    debug: bool = False
    lineinfo: bool = False
    max_registers: int | None = None
    min_blocks: int | None = None
    threads: int | str | None = None  # of the block of a block-level kernel; in a trace never the name of a constexpr
    unroll_budget: int = UNROLL_BUDGET
    op_budget: int = OP_BUDGET


@frozen()
class Assumed:
    """What a trace takes for granted from its start. block_threads: of a block that tiles count on, None where there is none."""

    block_threads: int | None = None
    is_block_level: bool = False


class TraceAgain(Exception):
    """Raised where a trace finds that it should have assumed something else: `kernel.trace` starts again with that."""

    def __init__(self, assumed: Assumed) -> None:
        super().__init__(assumed)
        self.assumed = assumed


class BecomesRunTime(Exception):
    """Raised where the last of the variables that the round of a loop takes for known gets run-time numbers.

    known: the set of that round, of those that are still known, so empty.
    """

    def __init__(self, known: set[Any]) -> None:
        super().__init__()
        self.known = known


def _no_library(loc: Loc, function: Any, *args: Any) -> Any:
    raise InternalError("a trace without a kernel runs nothing of the library")


Assigned = dict[Any, tuple[Location, Any]]
Extents = tuple[int, int, int]


@frozen()
class WholeBlock:
    """`user` was called for a block of exactly these extents along x, y and z."""

    shape: Extents
    user: str
    loc: Loc


@frozen()
class Checkpoint:
    """A point of a trace that it can return to. lengths: of the lists that only grow. asked: how many facts were noted."""

    journal: Mark
    lengths: tuple[int, ...]
    asked: int
    unrolled_total: int


@record()
class Tracer:
    """Everything that lives as long as one trace."""

    builder: Builder
    options: TraceOptions
    assumed: Assumed = field(default_factory=Assumed)
    target: str = "interp"  # "cuda" leaves out what inline assembly means on others; for "cpu" tiles lie otherwise
    is_quick: bool = True  # answer what depends on arguments with True; see `facts.py`
    has_acted: bool = False  # something was emitted that a block-level kernel does once, or in order
    at_end: dict[Any, Any] = field(default_factory=dict)  # by a function that runs where the kernel ends: its argument
    whole_block: WholeBlock | None = None  # what a reduction over the block needs, None where there is none
    captures: Captures = field(default_factory=Captures)
    journal: Journal = field(default_factory=Journal)
    sizes: dict[Dynamic, Number] = field(default_factory=dict)
    launch: Any = None  # what `device_entry` gave: (grid, block, shared_bytes) of compile- or run-time ints
    shared_needs: list[tuple[Any, int]] = field(default_factory=list)  # dynamic shared memory: elements, bytes of each
    uses: dict[str, str] = field(default_factory=dict)  # launch styles that `program_id`, `thread_idx` or tiles ask for
    printed: list[str] = field(default_factory=list)
    scenes: list[Any] = field(default_factory=list)  # what each `breakpoint()` shows, by its number
    widened: list[tuple[int, str]] = field(default_factory=list)  # a line, and what is wider there than on a path
    exits: list[tuple[dict[str, Any], str]] = field(default_factory=list)  # the control values of the call, the flag
    unrolled: Counter[int] = field(default_factory=Counter)  # iterations by line
    unrolled_total: int = 0
    deep_calls: int = 0
    control_depth: int = 0  # run-time ifs and loops around the code being traced
    item_sizes: set[int] = field(default_factory=set)  # in bytes, of what the kernel's arguments point to
    is_placed: bool = False  # something was asked that has another answer on the CPU
    is_of_hopper: bool = False  # something was asked that has another answer on other GPUs
    run_direct: Callable[..., Any] = _no_library  # (loc, function of the library, arguments): where there is no site
    is_apart: Callable[[Value, Value], bool] = lambda one, other: False  # whether two arrays are taken not to overlap
    statement_began: int = 0  # when the innermost statement began; it may still hold what it has made since
    waiting: list[tuple[int, int]] = field(default_factory=list)  # of callers' statements: from when to when they ran
    lacks_hosts: bool = False  # there was a meaning of inline assembly on other targets, and it was left out
    taken_as_known: dict[Any, set[Any]] = field(default_factory=dict)
    """By the variables that the rounds of open loops take for known: those of the same round that still are."""
    sought: dict[tuple[int, int], Any] = field(default_factory=dict)  # by ids: classes with functions sought in them
    among_threads: dict[str, Loc] = field(default_factory=dict)  # the operations of `note_among_threads`
    forms: dict[int, Any] = field(default_factory=dict)  # by the id of what does not change: see `forms.taken_apart`
    stamps: Any = (None, None)  # what calls depend on beside their arguments, and what was recorded of such calls
    lent: dict[int, str] = field(default_factory=dict)  # by id: the names of arguments that hold others
    tensor_maps: dict[Any, int] = field(default_factory=dict)  # by array and form: the number of the map
    tables: dict[bytes, str] = field(default_factory=dict)  # by what they hold, which as text is long
    hints: set[Loc] = field(default_factory=set)  # the `while` loops that were found to depend on run-time values
    grants: dict[tuple[Value, bool], Assigned] = field(default_factory=dict)
    """What the walruses in a condition have assigned where it holds (True), or where it does not (False)."""

    def __post_init__(self) -> None:
        self.arithmetic = Arithmetic(self.builder)
        self.intervals = Intervals(self.builder.definition_of)
        self.facts = Facts(self.builder, self.intervals, is_quick=self.is_quick)

    # -- what only the text of a kernel tells -------------------------------------------------------------------

    @property
    def is_block_level(self) -> bool:
        return self.assumed.is_block_level

    def become_block_level(self) -> None:
        """Note that the kernel is one program per block, where a tile or `program_id` shows it."""
        self._refuse_among_threads()
        if not self.is_block_level:
            self.assume(dataclasses.replace(self.assumed, is_block_level=True), is_too_late=self.has_acted)

    def note_among_threads(self, name: str, loc: Loc) -> None:
        """Note an operation among threads outside what each thread does for itself; the program of a block has none."""
        self.among_threads.setdefault(name, loc)
        if self.is_block_level:
            self._refuse_among_threads()

    def _refuse_among_threads(self) -> None:
        for name, loc in self.among_threads.items():
            raise StagingError(AmongThreads(name), loc)

    def assume(self, assumed: Assumed, *, is_too_late: bool) -> None:
        if is_too_late:
            raise TraceAgain(assumed)
        self.assumed = assumed

    # -- rounds that count for nothing --------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """Return the point from which code may have to be traced again."""
        lengths = len(self.printed), len(self.widened), len(self.exits)
        return Checkpoint(self.journal.mark(), lengths, len(self.facts.asked), self.unrolled_total)

    def has_changed(self, start: Checkpoint) -> bool:
        """Return whether the code since `start` did more than emit ops: it assigned, printed, or took something for granted."""
        has_assigned = self.journal.changes(start.journal) or self.journal.restructured_since(start.journal)
        return bool(has_assigned) or (len(self.printed), len(self.facts.asked)) != (start.lengths[0], start.asked)

    def forget(self, start: Checkpoint) -> None:
        """Forget what was printed, unrolled and left since `start`.

        The caller undoes the journal, which says what changed, and withdraws the facts that the forgotten code alone rests on.
        """
        for rows, length in zip((self.printed, self.widened, self.exits), start.lengths):
            del rows[length:]  # type: ignore[attr-defined]  # lists of different things
        self.unrolled_total = start.unrolled_total

    # -- state --------------------------------------------------------------------------------------------------

    def assign(self, container: Any, key: Any, value: Any, *, is_attribute: bool = False) -> None:
        """Store into a variable, item or attribute. Everything the traced code stores goes through here."""
        location = Location(container, key, is_attribute)
        self.journal.assign(location, value, self.builder.loc)
        if self.taken_as_known and (type(value) is Number or isinstance(value, tuple)):
            self._note_known(location.identity, value)

    def _note_known(self, identity: Any, value: Any) -> None:
        """End the round of the loop that takes a variable for known, if what it gets is not, and nothing else is known there."""
        known = self.taken_as_known.get(identity)
        if known is not None and holds_run_time(value):
            known.discard(identity)
            if not known:
                raise BecomesRunTime(known)

    def is_settled(self, owner: Any) -> bool:
        """Return whether nobody outside can change the attributes of an object: the kernel made it, or it is a tuple of a class
        of ours or of Python's, or a tuple of run-time values, which only a kernel makes.
        """
        is_tuple = isinstance(owner, tuple)
        return self.journal.is_born(owner) or (is_tuple and (is_fixed(type(owner).__module__) or holds_run_time(owner)))

    def note_lookup(self, owner: Any, name: str) -> None:
        """Record what the class of an object says under a name, if anything: it may come to say something else."""
        cls = type(owner)
        if not is_fixed(cls.__module__):
            self.captures.note_member(cls, name)
            if not self.is_settled(owner):
                self.captures.note_type(owner)

    def lend(self, argument: Any, name: str) -> None:
        """Record what stands for an argument that holds others, which the kernel may not change."""
        self.lent[id(argument)] = name
        self.journal.seal(argument)

    def bytes_of(self, array: Any) -> str:
        """Return the bytes of an array as hexadecimal text, the same text for the same bytes."""
        data = array.tobytes()
        return self.tables.setdefault(data, data.hex())

    def check_mutable(self, container: Any, what: str, loc: Loc) -> None:
        """Refuse to change what was made outside the kernel, or what stands for one of two containers."""
        if id(container) in self.lent:
            raise StagingError(ArgumentMutation(what, self.lent[id(container)]), loc)
        if self.journal.is_sealed(container):
            raise StagingError(SealedMutation(what, "which of two containers this is, is known only at run time"), loc)
        copies = list(self.journal.copies(container))
        counts = holders(self.journal) if copies else Counter()
        if any(counts[id(each)] or counts[UNKNOWN] or self._may_be_temporary(each) for each in copies):
            why = "whether another name means this container is known only at run time"
            raise StagingError(SealedMutation(what, why), loc)
        if not self.journal.is_born(container):
            raise StagingError(CapturedMutation(what), loc)

    def _may_be_temporary(self, container: Any) -> bool:
        """Return whether a statement that is not done, here or in a caller, may still hold what it has made."""
        born = self.journal.birth_time(container)
        return born > self.statement_began or any(since < born <= until for since, until in self.waiting)

    def size(self, expr: SizeExpr | int, loc: Loc) -> Number | int:
        """Return the run-time value of a dynamic size, or of arithmetic on sizes."""
        if isinstance(expr, int):
            return expr
        if isinstance(expr, Dynamic):
            if expr not in self.sizes:
                raise StagingError(UnboundSize(expr.name), loc)
            return self.sizes[expr]
        assert isinstance(expr, SizeOp)
        args = [self.size(a, loc) for a in expr.args]
        if not any(isinstance(a, Number) for a in args):
            return KINDS[expr.kind](*args)
        values = [a.value if isinstance(a, Number) else self.builder.index(a) for a in args]
        if expr.kind == "neg":
            return Number(self.builder.neg(values[0]))
        return Number(self.builder.binary(BinaryKind(expr.kind), *values))

    def refuse_structure_change(self, mark: Any, loc: Loc) -> None:
        """Refuse changes of a container's length or keys since the mark: under run-time control only items may change."""
        found = self.journal.restructured_since(mark)
        if found is not None:
            raise StagingError(StructureChange(found), loc)

    # -- budgets ------------------------------------------------------------------------------------------------

    def count_unrolled(self, loc: Loc) -> None:
        if self.unrolled_total >= self.options.unroll_budget:
            self.expect_unrolled(1, loc)
        self.unrolled_total += 1
        self.unrolled[loc.line] += 1

    def expect_unrolled(self, count: int, loc: Loc) -> None:
        """Refuse a loop that will run `count` iterations for certain before it begins, where they are too many."""
        total, most = self.unrolled_total + count, self.options.unroll_budget
        if total > most:
            self.unrolled[loc.line] += count
            raise StagingError(UnrollBudget(total, most, self.most_unrolled()), loc)

    def count_branch(self, loc: Loc) -> None:
        if self.control_depth >= MAX_NESTING:
            what = "(each `elif`, `case`, `and` or early `return` is one more)"
            depth = f"{self.control_depth} deep in each other {what}"
            raise StagingError(NestingBudget("run-time branches stand", depth, FLATTEN), loc)

    def most_unrolled(self) -> str:
        """Return the loops that were unrolled most, in words, for errors of budgets."""
        rows = [f"line {line}: {counted(count, 'iteration')}" for line, count in self.unrolled.most_common(3)]
        return "; ".join(rows) or "no loop was unrolled"


# -- calls --------------------------------------------------------------------------------------------------------------

RETURN = "<return>"
BROKEN, CONTINUED = "<broken", "<continued"  # before the number of the loop
VALUE = "<return value>"
CAPTURE = "<captured>"  # before the name that a pattern captures


def is_exit_flag(name: Any) -> bool:
    return isinstance(name, str) and (name == RETURN or name.startswith((BROKEN, CONTINUED)))


def is_guarded(name: str) -> bool:
    """Return whether this is read only where it was assigned, so that a join may put anything on the other path."""
    return name == VALUE or name.startswith(CAPTURE)


@dataclass(eq=False, repr=False)  # as the type checker takes a function in a field of `@record` for a method
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
    locs: dict[Any, Loc] = field(default_factory=dict)  # in the iteration `located`
    located: tuple[str, ...] = ()
    doubts: list[StagingError] | None = None  # the errors of a loop's round, which a wrong type may have caused
    is_per_thread: bool = False  # each thread acts for itself: in the library's fragments, and in those marked so

    @contextmanager
    def certain(self) -> Iterator[None]:
        """Let errors end the trace within: an unrolled loop that went on after one might never end."""
        outer, self.doubts = self.doubts, None
        try:
            yield
        finally:
            self.doubts = outer

    def owns(self, location: Location) -> bool:
        """Return whether no expression can hold the value of this location, at a statement of this call."""
        return self.depth == 0 or location.container is self.scope.variables or location.container is self.control

    def loc(self, node: Any) -> Loc:
        if self.located is not self.iteration:
            self.locs, self.located = {}, self.iteration
        found = self.locs.get(node)
        if found is None:
            found = self.locs[node] = self.source.loc(node, self.call_site, self.iteration)
        return found

    def flags(self) -> list[str]:
        """Return the names of the flags that stop the statement list being run."""
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
        """Return a value just read from a location at `node`: poison raises, a size becomes its run-time number."""
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

    def exits_by(self, flag: str, first: int) -> frozenset[int]:
        """Return the exits from number `first` on that set this flag."""
        rows = enumerate(self.tracer.exits[first:], first)
        return frozenset(number for number, (control, name) in rows if name == flag and control is self.control)

    # -- budgets --------------------------------------------------------------------------------------------------

    def count_deep_call(self, node: ast.AST, called: Source) -> None:
        """Limit how deep calls are, and how many: a recursion that calls itself twice ends, but too late to wait for."""
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


@frozen()
class LoopFlags:
    """The names of a loop's flags in `Frame.control`."""

    broken: str
    continued: str
    first_exit: int  # the number in `Tracer.exits` of the first that the loop may have


CLOSE = 0.76  # among the many names of a module, where one always looks alike: `sort` and `sqrt` by 0.75


def suggest(name: str, known: Iterable[str], cutoff: float = ALIKE) -> str:
    """Return "did you mean `x`? ", or "" where no name is close."""
    close = closest(name, list(known), cutoff)
    return f"did you mean `{close}`? " if close else ""


Thunk = Callable[[], Any]
