"""A function compiled into Python closures, once per set of options; running it costs one call per op.

    program = prepare(fn, options)                               # `engine.py`
    for request in execute(program.code, team.values, team): ...

Every SSA value has a number; `team.values[number]` is its present value. Straight-line ops are *steps*, called in a row.
Control flow, and whatever may have to wait for another warp, is a generator that yields a request to the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from stagekit.backends.interp.indices import Indices
from stagekit.backends.interp.memory import Array
from stagekit.backends.interp.options import Options
from stagekit.backends.interp.product_registers import NONE, reading, registers_of, writing
from stagekit.backends.interp.team import Access, Axes, LaneIndexing, Role, Team, Values
from stagekit.backends.interp.uses import ALWAYS, Place, UseFinder
from stagekit.diagnostics import InternalError
from stagekit.dtypes import DType
from stagekit.frozen import frozen
from stagekit.ir import Block, Effect, Function, Native, Op, Pointer, Space, Value, flow, ops, semantics, walk


def native_of(op: ops.IntrinsicOp) -> Native | None:
    """Return the operation that the interpreter itself has for `op`; None where the record's `evaluate` says it all."""
    if "interp" not in op.spec.lower:
        return None
    found = op.spec.lowering("interp", tuple(v.type for v in op.args), fastmath=False)
    return found if isinstance(found, Native) else None


def waiting_loops(fn: Function, sources: flow.Sources, written: frozenset[Value]) -> frozenset[Op]:
    """Return the loops that may wait for another thread: they read, in every round, memory that the kernel also writes.

        while atomic_cas(lock, 0, 1) != 0: pass          # waits: `lock` is written by whoever holds it
        while lo < hi: ... keys[mid] ...                 # does not, if the kernel never writes `keys`

    A compare-and-swap that expects what the loop itself saw last (the retry loop of `atomic_max` on floats) does not wait: it
    fails only because another lane got through. written: the parameters and allocations that the kernel may write.
    """

    def waits(loop: ops.While) -> bool:
        reads = (op for op in chain(walk(loop.before), walk(loop.after)) if Effect.READ in op.effects)
        seen = flow.upstream(chain(*(flow.pointers_of(op) for op in reads if not _is_retry(op, loop))), sources)
        return not written.isdisjoint(seen)

    return frozenset(op for op in walk(fn.body) if isinstance(op, ops.While) and waits(op))


# what warps do that take turns
_WAITING = frozenset({Native.CLUSTER_BARRIER, Native.NAMED_BARRIER, Native.REGISTERS, Native.PEER, Native.TILE_COPY})


def _is_retry(op: Op, loop: ops.While) -> bool:
    is_swap = isinstance(op, ops.IntrinsicOp) and native_of(op) is Native.ATOMIC_CAS
    return is_swap and op.operands()[1] in loop.before.params


Step = Callable[[Values, Team], None]


Suspects = Callable[[Values], Any]  # the lanes that a check finds at fault: one bool for all, or one per lane
Report = Callable[[Values, Team, Array], None]  # of lanes at fault


class Arrive(NamedTuple):
    """The request of a team at a block barrier: per block, how many lanes are `present`, and in how many the predicate `holds`.

    rounds: of the loops around the barrier. The answer is (holds, present), summed over the teams of the block.
    """

    op: Op
    holds: Array
    present: Array
    rounds: tuple[int, ...]


class Turn(NamedTuple):
    """The request to let others run. op: what the team repeats. is_idle: nothing has changed in it since it last asked."""

    op: Op
    is_idle: bool


Running = Generator[Arrive | Turn, Any, None]
Control = Callable[[Values, Team], Running]
Built = tuple[Step, ...] | Control
Builder = Callable[["Compiler", Any], Built]
Builders = Mapping[type[Op], Builder]


class Code(NamedTuple):
    """A compiled block. parts: steps, then a control or None. params, yields: numbers of what it takes, and of what it gives."""

    parts: tuple[tuple[tuple[Step, ...], Control | None], ...]
    params: tuple[int, ...]
    yields: tuple[int, ...]


def execute(code: Code, values: Values, team: Team) -> Running:
    """Run `code`, yielding requests that `send` answers."""
    for steps, control in code.parts:
        for step in steps:
            step(values, team)
        if control is not None:
            yield from control(values, team)


@frozen(eq=False, slots=False)
class Program:
    """A function ready to run. constants: initial values by number. shared: the allocations of each block, by number.

    extra: values that only the accesses' shapes need; a launch passes them after the parameters.
    written: the parameters and allocations that the kernel may write. natives: its native operations and their parameters.
    is_scheduled: whether warps take turns; otherwise teams of whole blocks run from barrier to barrier.
    """

    fn: Function
    options: Options
    code: Code
    constants: tuple[Any, ...]
    params: tuple[int, ...]
    extra: tuple[Value, ...]
    shared: tuple[ops.Alloc, ...]
    accesses: tuple[Access, ...]
    written: frozenset[Value]
    natives: frozenset[tuple[Native, tuple[Any, ...]]]
    is_scheduled: bool

    def has(self, native: Native) -> bool:
        return any(found is native for found, _ in self.natives)

    def with_seed(self, seed: int) -> Program:
        """Return the same program with the schedule of `seed`, if it has a schedule."""
        schedule = self.options.schedule
        if schedule is None or schedule.seed == seed:
            return self
        return replace(self, options=replace(self.options, schedule=replace(schedule, seed=seed)))

    def fresh_values(self, params: tuple[Any, ...]) -> Values:
        values = list(self.constants)
        for number, value in zip(self.params, params, strict=True):
            values[number] = value
        return values


class Compiler:
    """Compiles one function. Builders of steps ask it for numbers of values and nested code, and register accesses with it."""

    def __init__(self, fn: Function, options: Options, builders: Builders) -> None:
        sources = flow.sources(fn.body)
        self.fn = fn
        self.builders = builders
        self.options = options
        self.written = frozenset(flow.written(fn.body, sources))
        self.waiting = waiting_loops(fn, sources, self.written)
        called = [(op, native_of(op)) for op in walk(fn.body) if isinstance(op, ops.IntrinsicOp)]
        natives = {native for _, native in called}
        self.is_scheduled = options.schedule is not None or bool(self.waiting) or not _WAITING.isdisjoint(natives)
        of_groups = [op for op, native in called if native is Native.WARPGROUP_PRODUCT]
        self.registers = registers_of(fn, of_groups) if options.checks.races else NONE
        self.uses = UseFinder(fn)
        self.indices = Indices(fn) if options.checks.overflow else None
        self.uses_as_index = self.uses if self.indices is None else self.uses.but_with(self.indices.users)
        self.exact: dict[Value, int] = {}  # of indices, the number of the value as float64 that has not wrapped
        self.constants: list[Any] = []
        self.accesses: list[Access] = []
        self.shared: list[ops.Alloc] = []
        self.natives: set[tuple[Native, tuple[Any, ...]]] = set()
        self.tails = frozenset(_tails(fn.body))
        self._numbers: dict[Value, int] = {}
        self._offsets: dict[Value, ops.Offset] = {}  # by the pointer that they make
        self._deferred: dict[Op | Block, list[Step]] = {}  # checks, by what they run behind
        for place, (words, loc) in self.registers.makers.items():
            self._deferred[place] = [writing(self.numbers(words), loc)]

    def program(self, extra: tuple[Value, ...]) -> Program:
        """Compile the whole function."""
        params = self.numbers((*self.fn.params, *extra))
        code = self.block(self.fn.body)
        return Program(
            fn=self.fn,
            options=self.options,
            code=code,
            constants=tuple(self.constants),
            params=params,
            extra=extra,
            shared=tuple(self.shared),
            accesses=tuple(self.accesses),
            written=self.written,
            natives=frozenset(self.natives),
            is_scheduled=self.is_scheduled,
        )

    # -- values -------------------------------------------------------------------------------------------------------

    def number(self, value: Value) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = self.constant(None)
        return found

    def numbers(self, values: tuple[Value, ...]) -> tuple[int, ...]:
        return tuple(self.number(v) for v in values)

    def constant(self, value: Any) -> int:
        """Return a new number for a constant, or for what one step passes to another (then it starts as None)."""
        self.constants.append(value)
        return len(self.constants) - 1

    # -- memory -------------------------------------------------------------------------------------------------------

    def access(self, op: Op, role: Role, pointer: Value) -> Access:
        """Register that `op` accesses memory through `pointer`."""
        kind = pointer.type
        if not isinstance(kind, Pointer):
            raise InternalError(f"{op.mnemonic} through {kind}")
        is_seen = any(map(self.uses.is_used, op.results))
        stated: dict[str, Any] = (
            {"align": op.align, "covers": op.covers} if isinstance(op, ops.Load | ops.Store) else {}
        )
        named = dict(zip([p.name for p in op.spec.params], op.params)) if isinstance(op, ops.IntrinsicOp) else {}
        order = {name: named[name] for name in ("order", "scope") if name in named}
        number, axes = len(self.accesses) + 1, self._axes_of(pointer)
        space = Space.SHARED if kind.space is Space.CLUSTER else kind.space  # of whichever block
        access = Access(number, role, kind.dtype, space, op.loc, axes, is_seen, **stated, **order)
        self.accesses.append(access)
        return access

    def _axes_of(self, pointer: Value) -> Axes | None:
        """Return the indexings that made `pointer`; None where none did, or where this function lacks their sizes."""
        links: list[LaneIndexing] = []
        op = self._offsets.get(pointer)
        while op is not None:
            link = self._link(op)
            if link is not None:
                links.insert(0, link)
            op = self._offsets.get(op.pointer)
        if not links:
            return None
        checked = [link for link in links if self.options.checks.axes and not link.is_whole_row]
        pairs = (pair for link in checked for pair in zip(link.indices, link.shape))
        return Axes(tuple(links), tuple((index, size) for index, size in pairs if index is not None))

    def _link(self, op: ops.Offset) -> LaneIndexing | None:
        """Return the indexing that `op` was written as, in numbers of values."""
        if op.indexed is None or op.indexed.strides:
            return None
        numbers, shape = self.sizes(op.indexed.indices), self.sizes(op.indexed.shape)
        return None if numbers is None or shape is None else LaneIndexing(numbers, shape, op.pointer in self._offsets)

    def sizes(self, sizes: Sequence[Value | int | None]) -> tuple[Any, ...] | None:
        """Return the numbers of sizes or indices, None for one that is None; None for all where this function lacks one."""
        if any(isinstance(size, Value) and size not in self._numbers for size in sizes):
            return None
        return tuple(self.constant(np.int64(s)) if isinstance(s, int) else s and self.number(s) for s in sizes)

    # -- code ---------------------------------------------------------------------------------------------------------

    def check_where_used(self, op: Op, places: Sequence[Place], suspects: Suspects, report: Report) -> tuple[Step, ...]:
        """Find the lanes at fault right after `op`, and report them in the `places` where its result is used.

        Return the steps to run right after `op`; `block` puts the others where they belong.
        """
        if not places:
            return ()
        if len(places) == 1 and places[0].after is op and places[0].alternatives == ALWAYS:
            return (_checking(suspects, report),)
        found = self.constant(None)  # the lanes at fault that have not been reported; None where there are none
        for place in places:
            self._deferred.setdefault(place.after, []).append(_reporting(found, place.compile(self.number), report))

        def find(values: Values, team: Team) -> None:
            lanes = suspects(values)
            values[found] = team.spread(lanes) if np.count_nonzero(lanes) else None

        return (find,)

    def block(self, block: Block) -> Code:
        parts: list[tuple[tuple[Step, ...], Control | None]] = []
        steps: list[Step] = self._deferred.pop(block, [])
        for op in block.ops[:-1]:
            control = self._build(op, steps)
            if control is not None:
                parts.append((tuple(steps), control))
                steps = []
            steps.extend(self._deferred.pop(op, ()))
        parts.append((tuple(steps), None))
        return Code(tuple(parts), self.numbers(block.params), self.numbers(block.ops[-1].operands()))

    def _build(self, op: Op, steps: list[Step]) -> Control | None:
        """Append the steps of `op` and return the control that runs behind them, if there is one."""
        if isinstance(op, ops.Constant):
            self.constants[self.number(op.result)] = semantics.typed(op.value, scalar_dtype(op.result))
            return None
        if isinstance(op, ops.Offset):
            self._offsets[op.result] = op
        read = self.registers.read_by(op)
        if read:
            steps.append(reading(self.numbers(read), op.loc))
        built = self.builders[type(op)](self, op)
        if not isinstance(built, tuple):
            return built
        steps.extend(built)
        schedule = self.options.schedule
        touches = op.effects & {Effect.READ, Effect.WRITE, Effect.COLLECTIVE}
        return _giving_way(op) if touches and schedule is not None and schedule.order == "random" else None


def _checking(suspects: Suspects, report: Report) -> Step:
    """Return the step that reports the active lanes at fault."""

    def step(values: Values, team: Team) -> None:
        found = suspects(values)
        if not np.count_nonzero(found):  # several times as fast as `any`, on a path that every op takes
            return
        at_fault = team.spread(found) if team.mask is None else team.spread(found) & team.mask
        if at_fault.any():
            report(values, team, at_fault)

    return step


def _reporting(found: int, lanes_of: Callable[[Values, Any], Any], report: Report) -> Step:
    """Return the step that reports lanes found at fault before, if they use the value here; each is reported once."""

    def step(values: Values, team: Team) -> None:
        suspects = values[found]
        if suspects is None or (lanes := lanes_of(values, team.mask)) is False:
            return
        at_fault = suspects if lanes is None else suspects & lanes
        if at_fault.any():
            report(values, team, at_fault)
            values[found] = suspects & ~at_fault

    return step


def _giving_way(op: Op) -> Control:
    """Return a control that lets other warps run."""

    def control(values: Values, team: Team) -> Running:
        yield Turn(op, False)

    return control


def _tails(block: Block) -> Iterator[Op]:
    """Yield each `if` behind which the kernel does nothing more: a lane that takes an empty arm there has returned."""
    last = block.ops[-2] if len(block.ops) > 1 else None
    if isinstance(last, ops.If):
        yield last
        for arm in last.bodies():
            yield from _tails(arm)


def scalar_dtype(value: Value) -> DType:
    if isinstance(value.type, Pointer):
        raise InternalError(f"a number is expected, got {value.type}")
    return value.type.dtype
