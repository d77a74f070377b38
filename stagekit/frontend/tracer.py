"""The state of one specialisation being traced, and the operations every part of the front end shares.

The front end *interprets* the syntax tree: expressions (`expressions.py`), statements (`statements.py`), run-time control flow
(`control.py`), calls (`calls.py`, `builtins.py`, `language.py`). They all receive the `Tracer`.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stagekit.diagnostics import Loc, counted
from stagekit.frontend.captures import Captures
from stagekit.frontend.errors import (
    FLATTEN,
    CapturedMutation,
    NestingBudget,
    SealedMutation,
    StagingError,
    StructureChange,
    UnboundSize,
    UnrollBudget,
)
from stagekit.frontend.journal import Journal, Location, Mark, any_held
from stagekit.frontend.markers import Dynamic, SizeExpr, SizeOp
from stagekit.frontend.numbers import Arithmetic
from stagekit.frontend.values import Number, is_fixed
from stagekit.hostexpr import KINDS
from stagekit.ir import BinaryKind, Builder, Value
from stagekit.ir.intervals import Intervals

UNROLL_BUDGET = 16_384  # iterations of static loops, all together: about half a second
OP_BUDGET = 1_000_000
MAX_NESTING = 2_000  # run-time branches and loops in each other


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What the user asked of a specialisation, as far as tracing is concerned."""

    fastmath: bool = False
    debug: bool = False
    lineinfo: bool = False
    max_registers: int | None = None
    unroll_budget: int = UNROLL_BUDGET
    op_budget: int = OP_BUDGET


class NeedMoreThreads(Exception):
    """A tile longer than the block assumed so far: trace again with more threads. Never leaves the front end."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.threads = threads


Assigned = dict[Any, tuple[Location, Any]]


@dataclass(frozen=True, slots=True)
class WholeBlock:
    """`user` was called for a block of exactly `threads` threads."""

    threads: int
    user: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a trace had come. lengths: of the lists that only grow."""

    journal: Mark
    lengths: tuple[int, ...]
    unrolled_total: int


@dataclass(eq=False)
class Tracer:
    """Everything that lives as long as one trace."""

    builder: Builder
    options: TraceOptions
    block_threads: int | None  # threads per block that tiles may count on, None before the first tile
    whole_block: WholeBlock | None = None  # what a reduction over the block needs, None where there is none
    captures: Captures = field(default_factory=Captures)
    journal: Journal = field(default_factory=Journal)
    sizes: dict[Dynamic, Number] = field(default_factory=dict)
    launch: Any = None  # what `device_entry` gave: (grid, block, shared_bytes) of compile- or run-time ints
    shared_needs: list[tuple[Any, int]] = field(default_factory=list)  # dynamic shared memory: elements, bytes of each
    uses: dict[str, str] = field(
        default_factory=dict
    )  # `program_id`, `thread_idx`, `tile`: the style of kernel it makes
    printed: list[str] = field(default_factory=list)
    widened: list[tuple[int, str]] = field(
        default_factory=list
    )  # line, and which variable is wider than a path made it
    exits: list[tuple[dict[str, Any], str]] = field(default_factory=list)  # each traced one: whose control, which flag
    unrolled: Counter[int] = field(default_factory=Counter)  # iterations by line
    unrolled_total: int = 0
    deep_calls: int = 0
    control_depth: int = 0  # run-time ifs and loops around the code being traced
    has_hosts: bool = True  # trace what inline assembly means on targets that have no PTX?
    statement_began: int = 0  # the time when the innermost began: what it has made since, it may still hold
    waiting: list[tuple[int, int]] = field(default_factory=list)  # from when to when callers' statements made things
    lacks_hosts: bool = False  # was there such a meaning, and was it left out?
    hints: dict[Any, Any] = field(default_factory=dict)
    looked_up: dict[tuple[int, str], type] = field(default_factory=dict)  # what classes, by id, were asked for by name
    grants: dict[tuple[Value, bool], Assigned] = field(default_factory=dict)
    """What walruses in a condition are known to have assigned where it holds (True), or where it does not (False)."""

    def __post_init__(self) -> None:
        self.arithmetic = Arithmetic(self.builder)
        self.intervals = Intervals(self.builder.maker_of)

    # -- rounds that count for nothing --------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """Here begins what may have to be traced again."""
        lengths = len(self.printed), len(self.widened), len(self.exits)
        return Checkpoint(self.journal.mark(), lengths, self.unrolled_total)

    def forget(self, start: Checkpoint) -> None:
        """What was printed and unrolled since was not. The journal is undone by who asks it what changed."""
        for rows, length in zip((self.printed, self.widened, self.exits), start.lengths):
            del rows[length:]  # type: ignore[attr-defined]  # lists of different things
        self.unrolled_total = start.unrolled_total

    # -- state --------------------------------------------------------------------------------------------------

    def assign(self, container: Any, key: Any, value: Any, *, is_attribute: bool = False) -> None:
        """The one way to store into a variable, item or attribute."""
        self.journal.assign(Location(container, key, is_attribute), value, self.builder.loc)

    def note_lookup(self, owner: Any, name: str) -> None:
        """Record what the class of an object says under a name, if anything: it may come to say something else."""
        cls = type(owner)
        if (id(cls), name) not in self.looked_up:
            self.looked_up[id(cls), name] = cls
            self.captures.note_member(cls, name)
        if not is_fixed(cls.__module__) and not self.journal.is_born(owner):
            self.captures.note_type(owner)

    def check_mutable(self, container: Any, what: str, loc: Loc) -> None:
        """Refuse to change what was made outside the kernel, or what stands for one of two containers."""
        if self.journal.is_sealed(container):
            raise StagingError(SealedMutation(what, "which of two containers this is, is known only at run time"), loc)
        if any_held(self.journal, list(self.journal.copies(container)), self._may_be_temporary):
            raise StagingError(
                SealedMutation(what, "whether another name means this container is known only at run time"), loc
            )
        if not self.journal.is_born(container):
            raise StagingError(CapturedMutation(what), loc)

    @contextmanager
    def waiting_statement(self) -> Iterator[None]:
        """Remember, while the body of a called function runs, what the calling statement has made so far and may still hold."""
        self.waiting.append((self.statement_began, self.journal.mark().time))
        try:
            yield
        finally:
            self.waiting.pop()

    def _may_be_temporary(self, made: Any) -> bool:
        """May a statement that is not done, here or in a caller, still hold what it has made?"""
        born = self.journal.birth_time(made)
        return born > self.statement_began or any(since < born <= until for since, until in self.waiting)

    def size(self, expr: SizeExpr | int, loc: Loc) -> Number | int:
        """The run-time value of a dynamic size, or of arithmetic on sizes."""
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
        """Under run-time control containers may change items, not their length or keys."""
        found = self.journal.restructured_since(mark)
        if found is not None:
            raise StagingError(StructureChange(found), loc)

    # -- budgets ------------------------------------------------------------------------------------------------

    def count_unrolled(self, loc: Loc) -> None:
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
        """The loops that were unrolled most, for the budget errors."""
        rows = [f"line {line}: {counted(count, 'iteration')}" for line, count in self.unrolled.most_common(3)]
        return "; ".join(rows) or "no loop was unrolled"


_ALIKE = 0.6  # will do among the few names of one kernel
CLOSE = 0.76  # of a module's many names one always looks alike: `sort` and `sqrt` by 0.75


def suggest(name: str, known: Iterable[str], cutoff: float = _ALIKE) -> str:
    """'did you mean `x`?' or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean `{close[0]}`? " if close else ""


Thunk = Callable[[], Any]
